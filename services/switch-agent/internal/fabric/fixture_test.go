// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/certs"
	"github.com/rackbus/rackbus/pkg/failpoint"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/secret"
	"github.com/rackbus/rackbus/pkg/ssh"
	"github.com/rackbus/rackbus/pkg/switchtls"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/services/switch-agent/internal/device"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nmxc"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nvue"
	"github.com/rackbus/rackbus/sim/faults"
	"github.com/rackbus/rackbus/sim/nvswitch"
	"github.com/rackbus/rackbus/sim/reqlog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	planted  = "pl4nted-pw"
	topology = "gb200_nvl36r1_c2g4_topology"
)

// quick are waits that fit the simulator.
func quick() Timing {
	look := Look{Times: 20, Pause: 20 * time.Millisecond}
	return Timing{
		Converge: look, Ready: Look{Times: 40, Pause: 20 * time.Millisecond}, Greet: look, GreetStarting: look,
		CertificateSettle: time.Millisecond, CommandGap: time.Millisecond, Probe: time.Second,
		SoftResetPause: time.Millisecond, Configured: 800 * time.Millisecond, ConfiguredPoll: 10 * time.Millisecond,
		SDNLimit: 1500 * time.Millisecond, SDNPoll: 10 * time.Millisecond, Show: 400 * time.Millisecond,
		Rollback: 2 * time.Second,
	}
}

// lab is a rack of simulated switches, and how this package gets to them.
type lab struct {
	t        *testing.T
	switches []*nvswitch.Switch
	store    *switchtls.Store
	log      *reqlog.Log
	rules    *faults.Set
	timing   Timing
	secure   bool
	ca       *certs.CA
}

// newLab starts n switches with plaintext gRPC.
func newLab(t *testing.T, n int, change ...func(i int, o *nvswitch.Options)) *lab {
	t.Helper()
	l := &lab{t: t, log: reqlog.New(reqlog.Options{}), timing: quick(), rules: &faults.Set{}}
	l.store = switchtls.NewStore(switchtls.Settings{Insecure: true})
	for i := range n {
		o := nvswitch.Options{
			ID: fmt.Sprintf("sw-%d", i+1), Listen: netip.AddrFrom4([4]byte{127, 0, 0, byte(i + 1)}), Password: planted, Slot: i, Log: l.log, Faults: l.rules,
			Timing: nvswitch.Timing{
				Apply: 5 * time.Millisecond, Action: 5 * time.Millisecond, AppStart: 15 * time.Millisecond,
				Configure: 10 * time.Millisecond, SDNReset: 300 * time.Millisecond,
			},
		}
		for _, c := range change {
			c(i, &o)
		}
		sw, err := nvswitch.Start(t.Context(), o)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, sw.Close()) })
		l.switches = append(l.switches, sw)
	}
	return l
}

// protect gives all switches certificates for some services, and us the material to
// verify them.
func (l *lab) protect(services ...string) *lab {
	l.t.Helper()
	var err error
	l.ca, err = certs.NewCA()
	require.NoError(l.t, err)
	root := l.t.TempDir()
	require.NoError(l.t, os.Mkdir(filepath.Join(root, "lab"), 0o755))
	cert, key, err := l.ca.Issue(certs.Leaf{Role: "rms"})
	require.NoError(l.t, err)
	for name, content := range map[string][]byte{
		switchtls.FileCA: l.ca.PEM(), switchtls.FileCertificate: cert, switchtls.FileKey: key,
	} {
		require.NoError(l.t, os.WriteFile(filepath.Join(root, "lab", name), content, 0o600))
	}
	l.store = switchtls.NewStore(switchtls.Settings{ClientRoot: root, DefaultDomain: "lab"})
	l.secure = true
	for _, sw := range l.switches {
		cert, key, err := l.ca.Issue(certs.Leaf{Role: "switch", Hosts: []string{sw.IP()}})
		require.NoError(l.t, err)
		require.NoError(l.t, sw.Provision("lab", nvswitch.Material{CA: l.ca.PEM(), Certificate: cert, Key: key}, services...))
	}
	return l
}

// enable switches the cluster of a switch on, with its gRPC port open, beside all
// protocols.
func (l *lab) enable(i int) {
	l.t.Helper()
	sw := l.switches[i]
	sw.SetApp(nvue.AppController, true, stateEnabled)
	sw.SetConfig("/cluster", map[string]any{"state": stateEnabled})
	l.settled(i)
}

// settled waits until the controller of a switch runs.
func (l *lab) settled(i int) {
	l.t.Helper()
	require.Eventually(l.t, func() bool { return l.switches[i].App(nvue.AppController).Status == "ok" }, 20*time.Second, 5*time.Millisecond)
}

func (l *lab) target(i int) *rackbusv1.NodeTarget {
	sw := l.switches[i]
	return &rackbusv1.NodeTarget{
		RackId: "rack-1", NodeId: sw.ID(), NodeType: strings.ToLower(sw.NodeType()),
		Host: &rackbusv1.DeviceEndpoint{Address: sw.IP(), Port: uint32(sw.Ports().NVUE)},
	}
}

// caller opens switches for tests.
type caller struct {
	target *rackbusv1.NodeTarget
	guard  agent.Guard
}

func (c caller) Target() *rackbusv1.NodeTarget { return c.target }
func (c caller) Guard() agent.Guard            { return c.guard }

func (c caller) Credentials(node.EndpointKind) (node.Credentials, error) {
	return node.Credentials{User: "admin", Password: secret.New(planted)}, nil
}

func (l *lab) open(guard agent.Guard, target *rackbusv1.NodeTarget, domain string, log *slog.Logger) (Switch, error) {
	var ports nvswitch.Ports
	for _, sw := range l.switches {
		if sw.ID() == target.GetNodeId() {
			ports = sw.Ports()
		}
	}
	opener, err := device.NewOpener(device.Options{
		TLS: l.store, HostKeys: ssh.AnyHostKey{}, Targets: node.TargetPolicy{AllowLoopback: true},
		NVUE:  nvue.Timing{Request: 3 * time.Second, RevisionPoll: 5 * time.Millisecond, RevisionLimit: 2 * time.Second, ActionPoll: 5 * time.Millisecond, ActionLimit: time.Second},
		Ports: device.Ports{SSH: uint16(ports.SSH), NMXController: uint16(ports.NMXC), NMXTelemetry: uint16(ports.Telemetry), GNMI: uint16(ports.GNMI)},
	})
	if err != nil {
		return nil, err
	}
	sw, err := opener.Open(caller{target, guard}, domain, log)
	if err != nil {
		return nil, err
	}
	return On(sw, ControllerOptions{TLS: l.store, Timing: nmxc.Timing{Connect: 2 * time.Second, Call: 2 * time.Second}}), nil
}

// cluster returns the steps for a switch.
func (l *lab) cluster(i int) *Cluster {
	l.t.Helper()
	sw, err := l.open(nvue.Unguarded{}, l.target(i), "", slog.New(slog.DiscardHandler))
	require.NoError(l.t, err)
	l.t.Cleanup(sw.Close)
	require.NoError(l.t, sw.Initialize(l.t.Context()))
	return NewCluster(sw, l.timing)
}

// answer does a synchronous operation.
func (l *lab) answer(ctx context.Context, i int, op string, req *rackbusv1.NodeRequest) *rackbusv1.NodeReply {
	l.t.Helper()
	sw, err := l.open(nvue.Unguarded{}, l.target(i), "", slog.New(slog.DiscardHandler))
	require.NoError(l.t, err)
	defer sw.Close()
	reply := Answers(l.timing)[op](ctx, sw, req)
	require.NotContains(l.t, reply.String(), planted)
	return reply
}

// writes are the changing requests of a switch, all switches when id is empty, after
// a place in the log. Logins and reports change nothing that counts.
func (l *lab) writes(id string, after uint64) []string {
	var out []string
	for _, e := range l.log.Select(reqlog.Filter{Device: id, Writes: true, After: after}) {
		line := strings.TrimSpace(e.Method + " " + e.Path + " " + e.Verb)
		if e.Method == "LOGIN" || strings.Contains(line, "ls -t") || strings.Contains(line, "cat ") || strings.Contains(line, cmdGenerate) {
			continue
		}
		if id == "" {
			line = e.Device + " " + line
		}
		out = append(out, line)
	}
	return out
}

func count(lines []string, part string) int {
	n := 0
	for _, l := range lines {
		if strings.Contains(l, part) {
			n++
		}
	}
	return n
}

// last is the place in the log that everything so far is before.
func (l *lab) last() uint64 {
	entries := l.log.Select(reqlog.Filter{})
	if len(entries) == 0 {
		return 0
	}
	return entries[len(entries)-1].Seq
}

// run is a job without a bus that may be taken up again.
type run struct {
	l      *lab
	opts   agent.DirectOptions
	texts  []string
	stages []job.Stage
}

func (l *lab) job(cmd *rackbusv1.JobCommand, handler func(*Workflow) agent.Handler) *run {
	cmd.Family, cmd.Target = string(node.FamilySwitch), l.target(0)
	r := &run{l: l}
	r.opts = agent.DirectOptions{
		Command: cmd, Handler: handler(New(Options{Open: l.open, Timing: l.timing})), Instance: "test",
		ProgressInterval: time.Millisecond,
		Events: func(e job.Event) {
			if n := len(r.texts); n == 0 || r.texts[n-1] != e.Description {
				r.texts = append(r.texts, e.Description)
			}
			r.stages = e.Stages
		},
	}
	return r
}

// fabric is the job that reconciles all switches.
func (l *lab) fabric(change ...func(*rackbusv1.FabricReconcile)) *run {
	cmd := &rackbusv1.FabricReconcile{Topology: topology}
	for i := range l.switches {
		cmd.Switches = append(cmd.Switches, &rackbusv1.FabricSwitch{Target: l.target(i)})
	}
	for _, c := range change {
		c(cmd)
	}
	return l.job(&rackbusv1.JobCommand{
		Type:      string(job.TypeConfigureScaleUpFabricManager2),
		Operation: &rackbusv1.JobCommand_FabricReconcile{FabricReconcile: cmd},
	}, func(w *Workflow) agent.Handler { return w.Reconcile })
}

// sdn is the job that resets the first switch.
func (l *lab) sdn() *run {
	return l.job(&rackbusv1.JobCommand{
		Type: string(job.TypeSwitchSdnFactoryDefaultReset), Operation: &rackbusv1.JobCommand_SdnReset{SdnReset: &rackbusv1.SdnReset{}},
	}, func(w *Workflow) agent.Handler { return w.ResetSDN })
}

// keep keeps the job's checkpoint over the death of its process.
func (r *run) keep() *run {
	r.l.t.Helper()
	if r.opts.StateFile == "" {
		r.opts.StateFile = filepath.Join(r.l.t.TempDir(), "state.json")
	}
	return r
}

// end runs the job to its end.
func (r *run) end() job.Event {
	r.l.t.Helper()
	ctx, cancel := context.WithTimeout(r.l.t.Context(), 30*time.Second)
	defer cancel()
	e, err := agent.RunDirect(ctx, r.opts)
	require.NoError(r.l.t, err)
	require.NotContains(r.l.t, fmt.Sprintf("%+v %+v", e, e.Failure), planted)
	return e
}

// completed runs the job to its good end and returns its result.
func (r *run) completed() document {
	r.l.t.Helper()
	e := r.end()
	if e.Failure != nil {
		require.FailNow(r.l.t, "the job failed", "%s: %s", e.Failure.Phase, e.Failure.Message)
	}
	require.Equal(r.l.t, job.StateCompleted, e.State)
	var doc document
	require.NoError(r.l.t, json.Unmarshal([]byte(e.ResultJSON), &doc))
	return doc
}

// crash lets the process die the n-th time the job comes to a point, and reports
// whether it came there.
func (r *run) crash(point string, n int) bool {
	r.l.t.Helper()
	o := r.keep().opts
	o.Failpoints = &failpoint.Points{}
	o.Failpoints.Arm(point, n, func() error { return failpoint.ErrInjected })
	_, err := agent.RunDirect(r.l.t.Context(), o)
	if err == nil {
		return false
	}
	require.ErrorIs(r.l.t, err, agent.ErrInterrupted)
	return true
}

func failureOf(t *testing.T, e job.Event) *job.Failure {
	t.Helper()
	require.Equal(t, job.StateFailed, e.State)
	require.NotNil(t, e.Failure)
	return e.Failure
}
