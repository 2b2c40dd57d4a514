// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/job"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
	"github.com/rackbus/rackbus/sim"
	"github.com/rackbus/rackbus/sim/bmc"
	"github.com/rackbus/rackbus/test/cluster"
)

const (
	root = "../.."
	// A thousand jobs are four updates of these trays.
	followedTrays  = 250
	followedRounds = 4
)

// TestSubscribersFollowAThousandJobs runs both examples of docs/events.md beside a thousand updates, while each replica of the
// jobs service is killed once: the Go program prints every change of every job once and in order, and the commands of the
// nats command line show what the documentation says.
func TestSubscribersFollowAThousandJobs(t *testing.T) {
	t.Parallel()
	subscriber, commands := buildExamples(t)
	c := cluster.Start(t, cluster.Options{Replicas: 2, Racks: []sim.Options{{
		RackID: "row 7", Compute: followedTrays, Timing: bmc.Timing{Task: 100 * time.Millisecond, BMCOutage: 50 * time.Millisecond},
	}}})
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	shell := newShell(t, c, commands)
	shell.run(ctx, "connect")
	shell.run(ctx, "operator")
	out := follow(ctx, t, c, subscriber)

	s := &scene{Cluster: c, Client: c.Client(0)}
	_, err := s.CreateNodes(ctx, &rackmanager.CreateNodesRequest{Nodes: c.NodeSet(c.Racks[0])})
	require.NoError(t, err)
	c.WriteTrayPackage("tray.fwpkg", "2.0")
	// One tray refuses every update, so that there are failures to see.
	c.Racks[0].Devices()[0].UpdateKnobs(func(k *bmc.Knobs) { k.TaskEnd = &bmc.TaskEnd{} })
	for round := range followedRounds {
		answer, err := s.BatchUpdateFirmware(ctx, &rackmanager.BatchUpdateFirmwareRequest{
			Nodes: c.NodeSet(c.Racks[0]), ForceUpdate: true,
			FirmwareTargets: map[int32]*rackmanager.FirmwareTargetList{
				trayGB200: {Targets: []*rackmanager.FirmwareTarget{{Filename: "tray.fwpkg"}}},
			},
		})
		require.NoError(t, err)
		requireBatch(t, answer.GetResponse(), followedTrays)
		if round < 2 {
			// The replica that has led so far dies in the middle of a round.
			leader := c.Processes(cluster.RoleJobs)[round]
			require.NoError(t, s.untilSome(ctx, answer.GetResponse().GetJobId(), followedTrays/4))
			leader.Kill()
			require.NoError(t, leader.Start())
		}
		_, err = s.WaitJob(ctx, answer.GetResponse().GetJobId())
		require.NoError(t, err)
	}

	snapshot, err := c.Snapshot(ctx)
	require.NoError(t, err)
	require.Len(t, snapshot.Records, followedRounds*(followedTrays+1))
	out.awaitEnds(ctx, t, len(snapshot.Records))
	require.Empty(t, cluster.JudgeEvents(out.events(t), snapshot.Records))
	requireSchema(t, out.lines())
	byTime := shell.checkReplay(ctx, snapshot.Records)
	shell.consumer = "script" // a subscriber of its own
	shell.run(ctx, "operator")
	require.Equal(t, byTime[:10], events(t, shell.run(ctx, "subscriber")[0]))
	require.Equal(t, byTime[10:20], events(t, shell.run(ctx, "subscriber")[0]))
}

// untilSome waits until so many children of a batch have ended.
func (s *scene) untilSome(ctx context.Context, id string, n int) error {
	for {
		out, err := s.Jobs.GetJob(ctx, &rackbusv1.GetJobRequest{JobId: id})
		if err != nil || int(out.GetJob().GetChildren().GetCompleted()) >= n {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// buildExamples builds the Go subscriber and the nats command line, each as its folder says.
func buildExamples(t *testing.T) (subscriber, commands string) {
	dir := t.TempDir()
	subscriber, commands = filepath.Join(dir, "subscriber"), filepath.Join(dir, "cli", "nats")
	var wg sync.WaitGroup
	for module, args := range map[string][]string{
		"examples/subscriber": {"-o", subscriber, "."},
		"tools/nats":          {"-o", commands, "github.com/nats-io/natscli/nats"},
	} {
		wg.Go(func() {
			build := exec.CommandContext(t.Context(), "go", append([]string{"build"}, args...)...)
			build.Dir, build.Env = filepath.Join(root, module), append(os.Environ(), "GOWORK=off")
			text, err := build.CombinedOutput()
			if err != nil {
				t.Errorf("build %s: %v\n%s", module, err, text)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return subscriber, commands
}

// output collects what a subscriber prints.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{}
}

// Write takes a piece of the output.
func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	select {
	case o.more <- struct{}{}:
	default:
	}
	return o.text.Write(b)
}

func (o *output) lines() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Split(strings.TrimSuffix(o.text.String(), "\n"), "\n")
}

func (o *output) events(t *testing.T) []cluster.Event {
	var events []cluster.Event
	for _, line := range o.lines() {
		var e cluster.Event
		require.NoError(t, json.Unmarshal([]byte(line), &e), line)
		events = append(events, e)
	}
	return events
}

// awaitEnds waits until so many jobs have ended.
func (o *output) awaitEnds(ctx context.Context, t *testing.T, n int) {
	t.Helper()
	for {
		ends := 0
		for _, e := range o.events(t) {
			if state, ok := job.ParseState(e.State); ok && state.Terminal() {
				ends++
			}
		}
		if ends >= n {
			return
		}
		select {
		case <-o.more:
		case <-ctx.Done():
			require.FailNow(t, "events are missing", "%d of %d jobs have ended", ends, n)
		}
	}
}

// follow runs the Go example until the test ends.
func follow(ctx context.Context, t *testing.T, c *cluster.Cluster, program string) *output {
	cert, key, roots := c.Certificate("client.crt"), c.Certificate("client.key"), c.Certificate("ca.crt")
	ctx, cancel := context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, program, "--server", strings.Join(c.BusURLs(), ","), "--tls-first",
		"--ca", roots, "--cert", cert, "--key", key, "--consumer", "site")
	out := &output{more: make(chan struct{}, 1)}
	var faults bytes.Buffer
	cmd.Stdout, cmd.Stderr = out, &faults
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // its end by the signal is no fault
		require.Empty(t, faults.String())
	})
	return out
}

// requireSchema checks events against the published schema.
func requireSchema(t *testing.T, lines []string) {
	t.Helper()
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	schema, err := compiler.Compile(filepath.Join(root, "docs/events/job-event.v1.schema.json"))
	require.NoError(t, err)
	failures := 0
	for _, line := range lines {
		event, err := jsonschema.UnmarshalJSON(strings.NewReader(line))
		require.NoError(t, err)
		require.NoError(t, schema.Validate(event), line)
		if strings.Contains(line, `"failure":`) {
			failures++
		}
	}
	require.GreaterOrEqual(t, failures, followedRounds, "the device's refusals")
}

// shell runs the commands of docs/events.md.
type shell struct {
	t   *testing.T
	dir string
	env []string
	// consumer takes the place of the one that the documentation names.
	consumer string
}

func newShell(t *testing.T, c *cluster.Cluster, commands string) *shell {
	dir := t.TempDir()
	for _, name := range []string{"client.crt", "client.key", "ca.crt"} {
		require.NoError(t, os.Symlink(c.Certificate(name), filepath.Join(dir, name)))
	}
	return &shell{t: t, dir: dir, env: append(os.Environ(),
		"PATH="+filepath.Dir(commands)+string(os.PathListSeparator)+os.Getenv("PATH"),
		"HOME="+dir, "XDG_CONFIG_HOME="+dir, "SERVERS="+strings.Join(c.BusURLs(), ","),
	)}
}

// block returns the commands of the code block that has the name.
func (s *shell) block(name string) []string {
	text, err := os.ReadFile(filepath.Join(root, "docs/events.md"))
	require.NoError(s.t, err)
	m := regexp.MustCompile("(?s)```sh " + name + "\n(.*?)```").FindSubmatch(text)
	require.NotNil(s.t, m, "docs/events.md has no block %q", name)
	return strings.Split(strings.TrimSpace(string(m[1])), "\n")
}

// run runs the commands of a block and returns what each has printed.
func (s *shell) run(ctx context.Context, block string, env ...string) []string {
	s.t.Helper()
	var out []string
	for _, command := range s.block(block) {
		// The servers of the cluster want TLS first.
		command = strings.Replace(command, " --select", " --tlsfirst --select", 1)
		if s.consumer != "" {
			command = strings.Replace(command, " site ", " "+s.consumer+" ", 1)
		}
		cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", command)
		cmd.Dir, cmd.Env = s.dir, append(s.env, env...)
		var faults bytes.Buffer
		cmd.Stderr = &faults
		text, err := cmd.Output()
		require.NoError(s.t, err, "%s\n%s\n%s", command, text, faults.String())
		out = append(out, string(text))
	}
	return out
}

// checkReplay looks into the past by rack, by job, by time and by state.
func (s *shell) checkReplay(ctx context.Context, records map[job.ID]job.Record) (byTime []cluster.Event) {
	t := s.t
	t.Helper()
	var failed job.Record
	count := map[job.State]int{}
	for _, r := range records {
		count[r.State]++
		if r.Kind == job.KindLeaf && r.State == job.StateFailed {
			failed = r
		}
	}
	require.Equal(t, followedRounds, count[job.StateFailed])
	out := s.run(ctx, "replay", "RACK=row=207", "JOB="+failed.ID.String())
	require.Len(t, out, 4)
	byRack, byJob, byState := events(t, out[0]), events(t, out[1]), events(t, out[3])
	byTime = events(t, out[2])
	require.Empty(t, cluster.JudgeEvents(byTime, records))
	require.Len(t, byRack, len(byTime), "all jobs are in one rack")
	require.Empty(t, cluster.JudgeEvents(byJob, map[job.ID]job.Record{failed.ID: failed}))
	require.Len(t, byJob, int(failed.PublicN))
	require.Len(t, byState, followedRounds)
	return byTime
}

// events reads what `nats --raw` prints.
func events(t *testing.T, text string) []cluster.Event {
	t.Helper()
	var out []cluster.Event
	decoder := json.NewDecoder(strings.NewReader(text))
	for decoder.More() {
		var e cluster.Event
		require.NoError(t, decoder.Decode(&e))
		out = append(out, e)
	}
	return out
}
