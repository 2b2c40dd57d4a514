// SPDX-License-Identifier: Apache-2.0

// Package agenttest runs agents of Redfish devices against an embedded broker,
// with the test in the role of the API and of the jobs service.
package agenttest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/bus/broker"
	"github.com/rackbus/rackbus/pkg/config"
	"github.com/rackbus/rackbus/pkg/diagnostics"
	"github.com/rackbus/rackbus/pkg/failpoint"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/process"
	"github.com/rackbus/rackbus/pkg/redfish"
	"github.com/rackbus/rackbus/pkg/redfishagent"
	"github.com/rackbus/rackbus/pkg/seal"
)

// Patience bounds every wait for something that must happen.
const Patience = time.Minute

// Rig is a broker and what the API holds of it.
type Rig struct {
	T      testing.TB
	Family node.Family
	Conn   *bus.Conn
	// FirmwareDir is where agents look for images.
	FirmwareDir string

	// KeyDir has the keys of the family.
	KeyDir string
	// Rack is the rack that a test's devices have to be in where the rig is shared,
	// empty where it is not.
	Rack string

	broker *broker.Broker
	sealer *seal.Sealer
	timing bus.Timing
	places *places
	// below is where the images of a test lie below the directory of the shared agent.
	below string
	log   *slog.Logger
}

// New starts a broker. Set RACKBUS_TEST_LOG to see the logs.
func New(t testing.TB, family node.Family) *Rig {
	t.Helper()
	return newRig(t, family, BusTiming())
}

func newRig(t testing.TB, family node.Family, timing bus.Timing) *Rig {
	t.Helper()
	keys := filepath.Join(t.TempDir(), "keys")
	require.NoError(t, seal.WriteKeys(keys, []node.Family{family}))
	public, err := seal.LoadPublic(keys)
	require.NoError(t, err)
	sealer, err := seal.NewSealer(public)
	require.NoError(t, err)
	b, err := broker.Start(broker.Options{Name: "test", StoreDir: storeDir(t), Host: "127.0.0.1", Port: -1})
	require.NoError(t, err)
	t.Cleanup(b.Close)
	r := &Rig{
		T: t, Family: family, FirmwareDir: t.TempDir(), KeyDir: keys, broker: b, sealer: sealer,
		timing: timing, places: &places{begun: map[job.ID]uint64{}}, log: slog.New(slog.DiscardHandler),
	}
	if os.Getenv("RACKBUS_TEST_LOG") != "" {
		r.log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	patient := timing
	patient.Request = Patience / 2 // the test itself waits where an agent would not
	r.Conn = r.connectTimed("test", patient)
	t.Cleanup(r.Conn.Close)
	require.NoError(t, r.Conn.Provision(t.Context()))
	return r
}

// URL is where the broker listens.
func (r *Rig) URL() string { return r.broker.URL() }

// storeDir is in memory where there is such a file system: the broker syncs every
// write, and these tests do not cut its power.
func storeDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "rackbus-test-") //nolint:usetesting // in memory
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}

// BusTiming are leases short enough for tests of takeovers.
func BusTiming() bus.Timing {
	t := bus.DefaultTiming(1)
	t.SessionTTL, t.SessionRenew, t.SessionMargin = 3*time.Second, 300*time.Millisecond, 300*time.Millisecond
	t.AckWait, t.WorkInterval, t.NakBusy = time.Second, 300*time.Millisecond, 200*time.Millisecond
	return t
}

// Steady makes leases outlast any pause of a busy machine, for agents from which nobody takes over.
func Steady(t bus.Timing) bus.Timing {
	t.SessionTTL, t.SessionMargin = 2*Patience, Patience/6
	return t
}

// Connect opens a connection for a further process. Close it.
func (r *Rig) Connect(role string) *bus.Conn { return r.connect(role) }

func (r *Rig) connect(role string) *bus.Conn { return r.connectTimed(role, r.timing) }

func (r *Rig) connectTimed(role string, timing bus.Timing) *bus.Conn {
	r.T.Helper()
	c, err := bus.Connect(bus.Options{
		URLs: []string{r.broker.URL()}, Name: role, Role: role, Replicas: 1, Timing: timing, Logger: r.log,
	})
	require.NoError(r.T, err)
	return c
}

// Timing has every wait of the workflows scaled down to milliseconds. What bounds a
// wait for something that does happen leaves a busy machine its time.
func Timing() redfishagent.Timing {
	const tick = 10 * time.Millisecond
	return redfishagent.Timing{
		Redfish: redfish.Timing{
			Request: 5 * time.Second, Collection: 5 * time.Second,
			UploadStall: Patience, UploadAnswer: Patience,
			PowerOnConflictInterval: tick, DeviceInfo: 5 * time.Second,
			InventoryInterval: tick, BackgroundCopyLimit: 10 * time.Second, BackgroundCopyInterval: tick,
			ReadyReads: 2, ReadyInterval: tick, ReadyLimit: 2 * time.Second,
			StepInterval: 2 * tick, PowerPoll: tick, PowerOffLimit: 10 * time.Second, PowerOffSettle: 2 * tick,
			AuxSettle: 200 * time.Millisecond, PowerOnLimit: 10 * time.Second,
			PowerOnLongLimit: 10 * time.Second, PowerOnRepeat: 50 * time.Millisecond,
			BMCProbe: tick, BMCLimit: 10 * time.Second,
			ManagerProbe: tick, ManagerLimit: 10 * time.Second, ManagerLostProbe: tick, ManagerLostLimit: 3 * time.Second,
			ManagerProbeTimeout: 3 * time.Second, ManagerSteady: 300 * time.Millisecond,
			PowerUnitLimit: 10 * time.Second, PowerUnitPoll: tick, PowerUnitsLimit: 3 * time.Second, PowerUnitsInterval: tick,
			PowerUnitsPause: tick, PreserveInterval: tick, PreserveSettle: tick / 10,
		},
		TaskPoll: redfish.PollOptions{
			Interval: tick, Limit: 10 * time.Second, Tolerance: 4 * time.Second,
			NotFoundRetries: 3, NotFoundInterval: tick, SuspendedGrace: 100 * time.Millisecond,
		},
		VerifyFirstDelay: tick, VerifyInterval: tick, VerifyAttempts: 3,
		UntrackedLimit: 5 * time.Second, UploadAttempts: 4, UploadPause: 2 * tick,
		UploadSettle: 100 * time.Millisecond, RestartSettle: 100 * time.Millisecond, LostTaskWindow: 2 * time.Second, PackagePause: tick,
		UnitSettle: tick, UnitRetrySettle: 2 * tick, RecoveryGrace: tick,
	}
}

// AgentOptions are what tests vary of an agent.
type AgentOptions struct {
	Timing     redfishagent.Timing
	Failpoints *failpoint.Points
	// Mortal is set for agents that are killed: others can take over from them soon.
	Mortal bool
	// DrainTimeout and CutTimeout of the agent.
	DrainTimeout time.Duration
	MaxUploads   int
	// Pool is how the devices are connected to: the default where nil.
	Pool *redfish.Pool
	// Profiles, Artifacts and InBand of the workflows.
	Profiles  map[string]redfishagent.InventoryProfile
	Artifacts redfishagent.Artifacts
	InBand    redfishagent.InBand
	// Images are offered to devices that fetch them themselves.
	Images *redfishagent.ImageServer
	// Diagnostics tune the examination of nodes, and Collectors add to it. Bundles go
	// to the rig's broker.
	Diagnostics diagnostics.Options
	Collectors  []redfishagent.CollectorsFor
	// Handlers are further jobs of the agent.
	Handlers map[job.Type]agent.Handler
	// Logger is the rig's where nil.
	Logger *slog.Logger
}

// Mortal is for Start, of an agent that is killed.
func Mortal(o *AgentOptions) { o.Mortal = true }

// Agent is a running agent with a connection of its own.
type Agent struct {
	r    *Rig
	conn *bus.Conn
	pool *redfish.Pool
	stop context.CancelFunc
	done chan error
	// dead is closed when the process counts as killed.
	dead chan struct{}
	// mortal is AgentOptions.Mortal.
	mortal bool
}

// Start runs an agent until the test ends.
func (r *Rig) Start(change ...func(*AgentOptions)) *Agent {
	r.T.Helper()
	require.Empty(r.T, r.Rack, "a shared rig has its agent")
	o := AgentOptions{Timing: Timing(), DrainTimeout: 3 * time.Second}
	for _, c := range change {
		c(&o)
	}
	seeds, err := seal.LoadSeeds(r.KeyDir, r.Family)
	require.NoError(r.T, err)
	opener, err := seal.NewOpener(seeds, seal.OpenerOptions{})
	require.NoError(r.T, err)
	leases := r.timing
	if !o.Mortal {
		leases = Steady(leases)
	}
	a := &Agent{
		r: r, conn: r.connectTimed("agent-"+string(r.Family), leases), pool: cmp.Or(o.Pool, redfish.NewPool(redfish.PoolOptions{})),
		done: make(chan error, 1), dead: make(chan struct{}), mortal: o.Mortal,
	}
	if o.Diagnostics.Store == nil {
		o.Diagnostics.Store = a.conn
	}
	devices := redfishagent.New(redfishagent.Options{
		Diagnostics: o.Diagnostics, Collectors: o.Collectors,
		Pool: a.pool, FirmwareDir: r.FirmwareDir, Timing: o.Timing, Version: "0.0.0", MaxUploads: o.MaxUploads,
		Profiles: o.Profiles, Artifacts: o.Artifacts, InBand: o.InBand, Images: o.Images, Handlers: o.Handlers,
	})
	run, err := agent.New(agent.Options{
		Conn: a.conn, Family: r.Family, Instance: "agent", Opener: opener,
		Handlers: devices.Handlers(), Queries: devices.Queries(),
		ProgressInterval: 20 * time.Millisecond, ParentPause: 20 * time.Millisecond,
		DrainTimeout: o.DrainTimeout, CutTimeout: 5 * time.Second, DeadlineGrace: 500 * time.Millisecond,
		Failpoints: o.Failpoints, Logger: cmp.Or(o.Logger, r.log),
	})
	require.NoError(r.T, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.T.Context()))
	a.stop = cancel
	go func() { a.done <- run.Run(ctx) }()
	r.T.Cleanup(a.end)
	r.await("the agent to be ready", func() bool { return run.Ready() == nil })
	return a
}

// Stop drains the agent and waits for its end.
func (a *Agent) Stop() {
	a.r.T.Helper()
	a.stop()
	select {
	case err := <-a.done:
		require.NoError(a.r.T, err)
		a.done <- nil
	case <-time.After(Patience):
		a.r.T.Fatal("the agent does not stop")
	}
}

// Kill cuts the agent from the bus without any clean-up, as a kill of its
// process does. It does not wait.
func (a *Agent) Kill() {
	if !a.mortal {
		a.r.T.Error("an agent that is to be killed has to be Mortal")
	}
	select {
	case <-a.dead:
		return
	default:
		close(a.dead)
	}
	a.stop()
	go a.conn.Close()
}

// Dead is closed when the agent was killed, or was told to drain.
func (a *Agent) Dead() <-chan struct{} { return a.dead }

func (a *Agent) end() {
	a.stop()
	select {
	case err := <-a.done:
		// One that was killed ends with errors.
		a.r.log.Debug("agent ended", "err", err)
	case <-time.After(Patience):
		a.r.T.Error("the agent does not end")
	}
	a.conn.Close()
	a.pool.Close()
}

// errKilled is what a killed agent's workflow gets.
var errKilled = errors.New("killed by the test")

// StartDoomed runs an agent that is killed the n-th time it reaches a failpoint.
func (r *Rig) StartDoomed(point string, n int, change ...func(*AgentOptions)) *Agent {
	r.T.Helper()
	points := &failpoint.Points{}
	var doomed atomic.Pointer[Agent]
	points.Arm(point, n, func() error {
		doomed.Load().Kill()
		return errKilled
	})
	doomed.Store(r.Start(append(change, Mortal, func(o *AgentOptions) { o.Failpoints = points })...))
	return doomed.Load()
}

// StartLeaving runs an agent that is told to drain the n-th time it reaches a
// failpoint. Dead tells when; Stop waits for its end.
func (r *Rig) StartLeaving(point string, n int, change ...func(*AgentOptions)) *Agent {
	r.T.Helper()
	points := &failpoint.Points{}
	var leaving atomic.Pointer[Agent]
	points.Arm(point, n, func() error {
		close(leaving.Load().dead)
		leaving.Load().stop()
		return nil
	})
	leaving.Store(r.Start(append(change, func(o *AgentOptions) { o.Failpoints = points })...))
	return leaving.Load()
}

// await polls until ok, because what is awaited is on the bus, not in memory.
func (r *Rig) await(what string, ok func() bool) {
	r.T.Helper()
	deadline := time.Now().Add(Patience)
	for !ok() {
		if time.Now().After(deadline) {
			r.T.Fatalf("still waiting for: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// Run runs a program as configured, with waits scaled down, until the
// test ends. Keys of the configuration may be set beside what every test needs. It
// logs to the returned buffer, which may be read after stop.
func (r *Rig) Run(p process.Program, set ...string) (logs *bytes.Buffer, stop func()) {
	r.T.Helper()
	cfg, err := config.Load(config.Options{
		Process: p.Process, Optional: true, Environ: []string{},
		Set: append([]string{
			"bus.urls=" + r.URL(), "keys.dir=" + r.KeyDir, "workflows.firmware_dir=" + r.FirmwareDir,
			"metrics.port=0", "timing.scale=0.003", "logging.log_level=debug",
			"ssh.known_hosts=" + filepath.Join(r.T.TempDir(), "known_hosts"),
			"timing.bus.ack_wait=" + BusTiming().AckWait.String(), "timing.bus.work_interval=" + BusTiming().WorkInterval.String(),
		}, set...),
	})
	require.NoError(r.T, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.T.Context()))
	logs = &bytes.Buffer{}
	done := make(chan error, 1)
	go func() { done <- process.Run(ctx, p, cfg, logs) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			require.NoError(r.T, err)
		case <-time.After(Patience):
			r.T.Error("the program does not stop")
		}
	})
	r.T.Cleanup(stop)
	return logs, stop
}
