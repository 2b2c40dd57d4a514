// SPDX-License-Identifier: Apache-2.0

package switchagent_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/config"
	"github.com/rackbus/rackbus/pkg/failpoint"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/redfish"
	"github.com/rackbus/rackbus/pkg/redfishagent/agenttest"
	"github.com/rackbus/rackbus/pkg/seal"
	"github.com/rackbus/rackbus/pkg/ssh"
	"github.com/rackbus/rackbus/pkg/switchtls"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	switchagent "github.com/rackbus/rackbus/services/switch-agent"
	"github.com/rackbus/rackbus/services/switch-agent/internal/device"
	"github.com/rackbus/rackbus/services/switch-agent/internal/upload"
	"github.com/rackbus/rackbus/sim/nvswitch"
	"github.com/rackbus/rackbus/sim/reqlog"
)

// The tests wait for disks and timers, hardly ever for a processor.
const sideBySide = "8"

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", sideBySide); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// planted is the password of every switch; it must not show anywhere.
const planted = "pl4nted-Pw"

// bench is one simulated switch and a broker.
type bench struct {
	*agenttest.Rig
	t      *testing.T
	sw     *nvswitch.Switch
	node   *rackbusv1.NodeTarget
	keys   string
	logs   *lines
	timing config.SwitchTiming
	// stall is how long an upload may stand still.
	stall time.Duration
}

// newBench starts a switch without a BMC in its target. Agents are started by the
// tests.
func newBench(t *testing.T, change ...func(*nvswitch.Options)) *bench {
	t.Helper()
	t.Parallel()
	o := nvswitch.Options{Password: planted, Logger: slog.New(slog.DiscardHandler)}
	for _, c := range change {
		c(&o)
	}
	sw, err := nvswitch.Start(context.WithoutCancel(t.Context()), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sw.Close()) })
	b := &bench{
		Rig: agenttest.New(t, node.FamilySwitch), t: t, sw: sw,
		keys: filepath.Join(t.TempDir(), "known_hosts"), logs: &lines{}, timing: quick(), stall: 10 * time.Second,
	}
	b.node = b.target(true)
	b.node.Bmc = nil
	t.Cleanup(b.noSecrets)
	return b
}

// target is the switch with its BMC, and with its host where wanted.
func (b *bench) target(host bool) *rackbusv1.NodeTarget {
	b.t.Helper()
	d := agenttest.Device{
		RackID: "r1", NodeID: b.sw.ID(), Type: b.sw.NodeType(), IP: b.sw.IP(), Port: b.sw.Ports().BMC,
		User: b.sw.BMCUsername(), Password: b.sw.BMCPassword(),
	}
	if host {
		d.Host = &agenttest.Host{IP: b.sw.IP(), Port: b.sw.Ports().NVUE, User: b.sw.Username(), Password: b.sw.Password()}
	}
	return b.Target(d)
}

// quick has every wait scaled down to milliseconds.
func quick() config.SwitchTiming {
	c := config.Default()
	c.Timing.Scale = 0.001
	t := c.SwitchTiming()
	const tick = 10 * time.Millisecond
	for _, poll := range []*time.Duration{
		&t.ActionPoll, &t.RevisionPoll, &t.UninstallPoll, &t.HandoffPoll, &t.SteadyPoll, &t.InstallPoll, &t.InstallReadPause,
		&t.RebootPoll, &t.FetchPoll, &t.ASICPoll, &t.CyclePoll, &t.BMCCyclePoll, &t.UploadPause,
	} {
		*poll = tick
	}
	t.RequestTimeout, t.ConnectTimeout = 5*time.Second, 5*time.Second
	t.RebootProbeTimeout, t.CycleProbeTimeout = 5*time.Second, 5*time.Second
	// Limits are for a busy machine; tests of limits have their own.
	for _, limit := range []*time.Duration{
		&t.RevisionLimit, &t.ActionLimit, &t.SteadyThird, &t.HostKeyLimit, &t.InstallLimit, &t.RebootLimit, &t.ImageRebootLimit,
		&t.FetchLimit, &t.ASICLimit, &t.BMCCycleLimit, &t.UploadWindow, &t.PasswordDialogLimit, &t.PasswordLoginTimeout, &t.PasswordLoginLimit,
		&t.SDNResetLimit, &t.ControllerLimit, &t.FactoryResetLimit, &t.EvidenceLimit,
	} {
		*limit = 15 * time.Second
	}
	t.SteadyFirst, t.SteadySecond = 500*time.Millisecond, 500*time.Millisecond
	t.UninstallLimit, t.HandoffLimit = 3*time.Second, 3*time.Second
	t.InstallSettle, t.CycleSettle, t.BMCCycleGrace = 400*time.Millisecond, 400*time.Millisecond, 500*time.Millisecond
	t.CycleProbes, t.VerifyAttempts = 1000, 1000
	t.VerifyFirstDelay, t.VerifyInterval = tick, tick
	return t
}

// lines keeps what agents log.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if os.Getenv("RACKBUS_TEST_LOG") != "" {
		_, _ = os.Stderr.Write(p)
	}
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (b *bench) noSecrets() {
	require.NotContains(b.t, b.logs.String(), planted)
}

// options are the agent's, for the simulated switch.
func (b *bench) options() switchagent.Options {
	b.t.Helper()
	log := slog.New(slog.NewTextHandler(b.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	keys, err := ssh.OpenHostKeys(ssh.PolicyTrustOnFirstUse, b.keys, log)
	require.NoError(b.t, err)
	p := b.sw.Ports()
	return switchagent.Options{
		Device: device.Options{
			TLS:      switchtls.NewStore(switchtls.Settings{Insecure: true}),
			NVUE:     switchagent.NVUETiming(b.timing),
			SSH:      ssh.Timing{Connect: 5 * time.Second, Handshake: 5 * time.Second, Login: 5 * time.Second},
			HostKeys: keys, Targets: node.TargetPolicy{AllowLoopback: true},
			Pool: redfish.NewPool(redfish.PoolOptions{}), Redfish: redfish.Timing{Request: 5 * time.Second, Collection: 5 * time.Second},
			Ports: device.Ports{SSH: uint16(p.SSH), NMXController: uint16(p.NMXC), NMXTelemetry: uint16(p.Telemetry), GNMI: uint16(p.GNMI)},
		},
		FirmwareDir: b.FirmwareDir, Timing: b.timing,
		ImageUpload: upload.Limits{Total: agenttest.Patience, Stall: b.stall},
	}
}

// running is an agent with a connection of its own.
type running struct {
	b    *bench
	conn *bus.Conn
	stop context.CancelFunc
	done chan error
	dead chan struct{}
}

// start runs an agent until the test ends.
func (b *bench) start(points *failpoint.Points, change ...func(*switchagent.Options)) *running {
	b.t.Helper()
	return b.startTimed(agenttest.Steady(agenttest.BusTiming()), points, change...)
}

func (b *bench) startTimed(leases bus.Timing, points *failpoint.Points, change ...func(*switchagent.Options)) *running {
	b.t.Helper()
	seeds, err := seal.LoadSeeds(b.KeyDir, b.Family)
	require.NoError(b.t, err)
	opener, err := seal.NewOpener(seeds, seal.OpenerOptions{})
	require.NoError(b.t, err)
	opts := b.options()
	opts.Seals = opener
	for _, c := range change {
		c(&opts)
	}
	log := slog.New(slog.NewTextHandler(b.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	switches, err := switchagent.New(opts)
	require.NoError(b.t, err)
	conn, err := bus.Connect(bus.Options{
		URLs: []string{b.URL()}, Name: "agent", Role: "agent-switch", Replicas: 1, Timing: leases, Logger: log,
	})
	require.NoError(b.t, err)
	r := &running{b: b, conn: conn, done: make(chan error, 1), dead: make(chan struct{})}
	a, err := agent.New(agent.Options{
		Conn: conn, Family: b.Family, Instance: "agent", Opener: opener,
		Handlers: switches.Handlers(), Queries: switches.Queries(),
		ProgressInterval: 20 * time.Millisecond, ParentPause: 20 * time.Millisecond,
		DrainTimeout: 3 * time.Second, CutTimeout: 5 * time.Second, ReleaseTimeout: 3 * time.Second, Failpoints: points, Logger: log,
	})
	require.NoError(b.t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(b.t.Context()))
	r.stop = cancel
	go func() { r.done <- a.Run(ctx) }()
	b.t.Cleanup(func() {
		r.stop()
		select {
		case <-r.done:
		case <-time.After(agenttest.Patience):
			b.t.Error("the agent does not end")
		}
		conn.Close()
		switches.Close()
	})
	b.until("the agent to be ready", func() bool { return a.Ready() == nil })
	return r
}

// kill cuts the agent from the bus without any clean-up, as a kill of its process
// does.
func (r *running) kill() {
	select {
	case <-r.dead:
		return
	default:
		close(r.dead)
	}
	r.stop()
	go r.conn.Close()
}

var errKilled = errors.New("killed by the test")

// doomed runs an agent that is killed the n-th time it reaches a failpoint.
func (b *bench) doomed(point string, n int) *running {
	b.t.Helper()
	points := &failpoint.Points{}
	var self atomic.Pointer[running]
	points.Arm(point, n, func() error {
		self.Load().kill()
		return errKilled
	})
	r := b.startTimed(agenttest.BusTiming(), points)
	self.Store(r)
	return r
}

// died waits until a doomed agent is dead. A job that ends before has never come to
// the point.
func (b *bench) died(r *running, id job.ID) {
	b.t.Helper()
	select {
	case <-r.dead:
	case <-time.After(agenttest.Patience):
		b.t.Fatalf("the agent still lives: %+v", b.Await(id).Event)
	}
}

func (b *bench) until(what string, ok func() bool) {
	b.t.Helper()
	for end := time.Now().Add(agenttest.Patience); !ok(); {
		if time.Now().After(end) {
			b.t.Fatalf("still waiting for: %s", what)
		}
		time.Sleep(5 * time.Millisecond) // what is awaited is behind a socket
	}
}

// imageFile writes an image of a version and returns the command that installs it.
func (b *bench) imageFile(version string) *rackbusv1.SwitchImageUpdate {
	b.t.Helper()
	name := "nvos-amd64-" + version + ".bin"
	f := b.File("", name, []byte("racksim-image: nvos-"+version+"\n"+strings.Repeat("x", 64<<10)))
	return &rackbusv1.SwitchImageUpdate{
		File: f.GetFile(), SizeBytes: f.GetSizeBytes(), Sha256: f.GetSha256(), ImageFilename: name, TargetBuildId: "nvos-" + version,
	}
}

// admitImage admits an image update.
func (b *bench) admitImage(u *rackbusv1.SwitchImageUpdate) job.ID {
	b.t.Helper()
	return b.Admit(b.node, nil, func(c *rackbusv1.JobCommand) {
		c.Type = string(job.TypeSwitchSystemImageUpdate)
		c.Operation = &rackbusv1.JobCommand_SwitchImageUpdate{SwitchImageUpdate: u}
	})
}

// actions counts the POSTs that started an action.
func (b *bench) actions(verb string) int {
	n := 0
	for _, e := range b.sw.Requests(reqlog.Filter{Protocol: reqlog.NVUE, Method: "POST"}) {
		if e.Verb == verb {
			n++
		}
	}
	return n
}

// puts are the files that were sent whole.
func (b *bench) puts() []reqlog.Entry {
	return b.sw.Requests(reqlog.Filter{Protocol: reqlog.SFTP, Method: "PUT"})
}

func decode(t *testing.T, text string) map[string]any {
	t.Helper()
	var v map[string]any
	require.NoError(t, json.Unmarshal([]byte(text), &v), text)
	return v
}
