// SPDX-License-Identifier: Apache-2.0

// Package securitytest runs the security workflows against a simulated switch over
// real connections.
package securitytest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

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
	"github.com/rackbus/rackbus/services/switch-agent/internal/nvue"
	"github.com/rackbus/rackbus/services/switch-agent/internal/security"
	"github.com/rackbus/rackbus/sim/nvswitch"
)

// What the tests call things.
const (
	// Tick is how long the pauses of workflows are.
	Tick = 5 * time.Millisecond
	// Patience bounds every wait for something that must happen.
	Patience = 20 * time.Second
	// Domain of the TLS material.
	Domain = "rack-a"
	// User and Password are the account of the switch.
	User     = "admin"
	Password = "Pl4nted.Old"

	rackID, nodeID = "rack-1", "switch-1"
)

// Bench is a simulated switch, and an agent's view of it.
type Bench struct {
	T   testing.TB
	Sim *nvswitch.Switch
	// CA signs our own identity and that of switches.
	CA *certs.CA
	// ClientDir holds our identity towards the domain's switches.
	ClientDir string
	Store     *switchtls.Store
	Switches  *device.Opener
	// Login is the account of the switch as the node's endpoint has it.
	Login node.Credentials
	// Logs is what was logged, down to debug.
	Logs *Buffer

	stateFile string
}

// Setup is what tests vary.
type Setup struct {
	Sim      nvswitch.Options
	Insecure bool
	// SSH and NVUE override waits.
	SSH  ssh.Timing
	NVUE nvue.Timing
}

// New starts a switch and makes TLS material for it, which it does not have yet.
func New(t testing.TB, change ...func(*Setup)) *Bench {
	t.Helper()
	setup := Setup{
		Sim: nvswitch.Options{
			ID: nodeID, Username: User, Password: Password, Logger: slog.New(slog.DiscardHandler),
			Timing: nvswitch.Timing{
				Apply: 2 * Tick, Action: Tick / 2, AppStart: Tick, Configure: Tick, Shutdown: 4 * Tick, Reboot: 20 * Tick,
			},
		},
		SSH: ssh.Timing{Connect: 5 * time.Second, KeepAlive: 5 * time.Second, Close: 100 * time.Millisecond, Exec: Patience},
		NVUE: nvue.Timing{
			Request: 5 * time.Second, RevisionPoll: Tick, RevisionLimit: 5 * time.Second,
			ActionPoll: Tick, ActionLimit: 5 * time.Second, Discard: 2 * time.Second,
		},
	}
	for _, c := range change {
		c(&setup)
	}
	sim, err := nvswitch.Start(context.WithoutCancel(t.Context()), setup.Sim)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sim.Close()) })
	ca, err := certs.NewCA()
	require.NoError(t, err)
	root := t.TempDir()
	b := &Bench{
		T: t, Sim: sim, CA: ca, ClientDir: filepath.Join(root, Domain), Logs: &Buffer{},
		Login:     node.Credentials{User: User, Password: secret.New(Password)},
		stateFile: filepath.Join(t.TempDir(), "state.json"),
	}
	require.NoError(t, os.MkdirAll(b.ClientDir, 0o700))
	b.WriteClient(b.Material())
	b.Store = switchtls.NewStore(switchtls.Settings{ClientRoot: root, DefaultDomain: Domain, Insecure: setup.Insecure})
	keys, err := ssh.OpenHostKeys(ssh.PolicyTrustOnFirstUse, filepath.Join(root, "known_hosts"), nil)
	require.NoError(t, err)
	ports := sim.Ports()
	b.Switches, err = device.NewOpener(device.Options{
		TLS: b.Store, NVUE: setup.NVUE, SSH: setup.SSH, HostKeys: keys, Targets: node.TargetPolicy{AllowLoopback: true},
		Ports: device.Ports{
			SSH: uint16(ports.SSH), NMXController: uint16(ports.NMXC), NMXTelemetry: uint16(ports.Telemetry), GNMI: uint16(ports.GNMI),
		},
	})
	require.NoError(t, err)
	t.Cleanup(b.Switches.Close)
	return b
}

// Material is a certificate for the switch's address, with the domain's CA.
func (b *Bench) Material() nvswitch.Material { return b.Issue(certs.Leaf{}) }

// Issue is Material with some fields of the certificate given.
func (b *Bench) Issue(leaf certs.Leaf) nvswitch.Material {
	b.T.Helper()
	leaf.Role = "switch"
	if leaf.Hosts == nil {
		leaf.Hosts = []string{b.Sim.IP()}
	}
	cert, key, err := b.CA.Issue(leaf)
	require.NoError(b.T, err)
	return nvswitch.Material{CA: b.CA.PEM(), Certificate: cert, Key: key}
}

// WriteClient replaces our own identity.
func (b *Bench) WriteClient(m nvswitch.Material) {
	b.T.Helper()
	for name, content := range map[string][]byte{
		switchtls.FileCA: m.CA, switchtls.FileCertificate: m.Certificate, switchtls.FileKey: m.Key,
	} {
		require.NoError(b.T, os.WriteFile(filepath.Join(b.ClientDir, name), content, 0o600))
	}
}

// Provision gives the switch a certificate of the domain, as an earlier
// installation would have.
func (b *Bench) Provision(services ...string) {
	b.T.Helper()
	require.NoError(b.T, b.Sim.Provision("earlier", b.Material(), services...))
}

// Target is the switch as commands name it, without credentials.
func (b *Bench) Target() *rackbusv1.NodeTarget {
	return &rackbusv1.NodeTarget{
		RackId: rackID, NodeId: nodeID, NodeType: "switch_gb200_nvidia",
		Host: &rackbusv1.DeviceEndpoint{Address: b.Sim.IP(), Port: uint32(b.Sim.Ports().NVUE)},
	}
}

// Job is a job to be run.
type Job struct {
	Type    job.Type
	Command *rackbusv1.JobCommand
	Handler agent.Handler
	// Cancel, when closed, asks the job to stop.
	Cancel <-chan struct{}
	// Events is told of the job's course.
	Events func(job.Event)
}

// Run runs a job to its end, without a bus.
func (b *Bench) Run(j Job) job.Event {
	b.T.Helper()
	e, err := b.run(j, nil)
	require.NoError(b.T, err)
	return e
}

// Dies runs a job whose process dies the n-th time it reaches a failpoint, and
// returns what it left on the disk.
func (b *Bench) Dies(j Job, point string, n int) []byte {
	b.T.Helper()
	points := &failpoint.Points{}
	points.Arm(point, n, func() error { return fmt.Errorf("%w at %s", failpoint.ErrInjected, point) })
	_, err := b.run(j, points)
	require.ErrorIs(b.T, err, agent.ErrInterrupted, "the job does not reach %s %d times", point, n)
	state, err := os.ReadFile(b.stateFile)
	require.NoError(b.T, err)
	return state
}

func (b *Bench) run(j Job, points *failpoint.Points) (job.Event, error) {
	cmd := proto.CloneOf(j.Command)
	cmd.Type, cmd.Family, cmd.Target = string(j.Type), string(node.FamilySwitch), b.Target()
	ctx, cancel := context.WithTimeout(b.T.Context(), 2*Patience)
	defer cancel()
	return agent.RunDirect(ctx, agent.DirectOptions{
		Command: cmd, Handler: j.Handler, Credentials: map[node.EndpointKind]node.Credentials{node.EndpointHost: b.Login},
		Instance: "test", StateFile: b.stateFile, Failpoints: points, Cancel: j.Cancel, Events: j.Events, ProgressInterval: Tick,
		Logger: slog.New(slog.NewTextHandler(b.Logs, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
}

// Holding gives every job the same secrets.
func Holding(m proto.Message) security.Secrets {
	return func(_ *agent.Task, into proto.Message) error {
		if m == nil {
			return errors.New("no secrets")
		}
		proto.Merge(into, m)
		return nil
	}
}

// Buffer is what was logged; it may be used by several goroutines.
type Buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write adds to the buffer.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

// String is all that was written.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// Forget removes what a job that died has left for its successor, so that the next
// one is another job.
func (b *Bench) Forget() {
	b.T.Helper()
	require.NoError(b.T, os.Remove(b.stateFile))
}
