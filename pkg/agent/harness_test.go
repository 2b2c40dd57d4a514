// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/bus/broker"
	"github.com/rackbus/rackbus/pkg/bus/broker/brokertest"
	"github.com/rackbus/rackbus/pkg/bus/bustest"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/porttest"
	"github.com/rackbus/rackbus/pkg/seal"
	"github.com/rackbus/rackbus/pkg/secret"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// The tests wait for leases and limits, hardly ever for a processor.
const sideBySide = "6"

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", sideBySide); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// patience bounds every wait of these tests; none is expected to last so long.
const patience = 20 * time.Second

// family is the family of every agent here.
const family = node.FamilyCompute

// quickTiming lets a session outlive three seconds in which the machine is busy with others.
func quickTiming() bus.Timing {
	return bus.Timing{
		SessionTTL: 4 * time.Second, SessionRenew: 300 * time.Millisecond, SessionMargin: time.Second,
		AckWait: time.Second, WorkInterval: 300 * time.Millisecond, NakBusy: 100 * time.Millisecond,
		FoldTTL: 2 * time.Second, FoldRenew: 500 * time.Millisecond,
		Coalesce: time.Millisecond, Request: 5 * time.Second,
	}
}

// site is a broker on which the test plays the API and the jobs service.
type site struct {
	t      testing.TB
	broker *broker.Broker
	store  string
	port   int
	timing bus.Timing
	api    *bus.Conn
	raw    *bustest.Raw
	nodes  atomic.Int64
	opener *seal.Opener
	sealer *seal.Sealer
}

func newSite(t testing.TB, timing bus.Timing) *site {
	t.Helper()
	s := &site{t: t, store: brokertest.StoreDir(t), port: porttest.Free(t, 1)[0], timing: timing}
	s.startBroker()
	// The test itself is patient where its agents are not.
	apiTiming := timing
	apiTiming.Request = patience
	s.api = s.connectWith("api", apiTiming)
	require.NoError(t, s.api.Provision(t.Context()))
	var err error
	s.raw, err = bustest.Open(s.broker.URL())
	require.NoError(t, err)
	t.Cleanup(s.raw.Close)
	seed, public, err := seal.GenerateFamilyKey()
	require.NoError(t, err)
	s.opener, err = seal.NewOpener([]secret.Value{seed}, seal.OpenerOptions{})
	require.NoError(t, err)
	s.sealer, err = seal.NewSealer(seal.PublicKeys{family: {public}})
	require.NoError(t, err)
	return s
}

func (s *site) startBroker() {
	s.broker = brokertest.StartIn(s.t, s.store, s.port)
}

func (s *site) connect(role string) *bus.Conn { return s.connectWith(role, s.timing) }

func (s *site) connectWith(role string, timing bus.Timing) *bus.Conn {
	c, err := bus.Connect(bus.Options{URLs: []string{s.broker.URL()}, Name: role, Role: role, Timing: timing})
	require.NoError(s.t, err)
	s.t.Cleanup(c.Close)
	return c
}

// process is an agent with a connection of its own.
type process struct {
	*agent.Agent
	s    *site
	conn *bus.Conn
	reg  *prometheus.Registry
	end  context.CancelFunc
	done chan error
	once sync.Once
	err  error
}

// start runs an agent until the test ends or stop is called.
func (s *site) start(name string, handlers map[job.Type]agent.Handler, change func(*agent.Options)) *process {
	s.t.Helper()
	p := &process{s: s, conn: s.connect("agent-" + name), reg: prometheus.NewRegistry(), done: make(chan error, 1)}
	o := agent.Options{
		Conn: p.conn, Family: family, Instance: name, Opener: s.opener, Handlers: handlers, MaxInFlight: 200, MaxStuck: 3,
		DrainTimeout: 10 * time.Second, CutTimeout: 5 * time.Second, ProgressInterval: 50 * time.Millisecond,
		DeadlineGrace: 200 * time.Millisecond,
		ParentPause:   20 * time.Millisecond, Registerer: p.reg, Logger: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&o)
	}
	a, err := agent.New(o)
	require.NoError(s.t, err)
	p.Agent = a
	ctx, end := context.WithCancel(context.Background())
	p.end = end
	go func() { p.done <- a.Run(ctx) }()
	s.t.Cleanup(func() { p.stop() })
	return p
}

// stop drains the agent and returns what Run has returned.
func (p *process) stop() error {
	p.once.Do(func() {
		p.end()
		select {
		case p.err = <-p.done:
		case <-time.After(patience):
			p.err = fmt.Errorf("agent did not stop within %s", patience)
		}
	})
	return p.err
}

// kill is the death of the process as the bus sees it: the connection is gone
// and nothing was given back. Its handlers go on until they look.
func (p *process) kill() { p.conn.Close() }

// metric is the value of a counter or gauge.
func (p *process) metric(name, label string) float64 {
	families, err := p.reg.Gather()
	require.NoError(p.s.t, err)
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			match := label == ""
			for _, l := range m.GetLabel() {
				match = match || l.GetValue() == label
			}
			if match {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return -1
}

// order is a job to admit. Zero fields take a leaf job without limit.
type order struct {
	typ    job.Type
	limit  time.Duration
	parent job.ID
	index  uint32
	// deadline is that of the caller.
	deadline time.Time
}

// admit does what the API does for one job on a node of its own.
func (s *site) admit(o order) job.ID {
	s.t.Helper()
	ref := node.Ref{RackID: "r1", NodeID: fmt.Sprintf("n%d", s.nodes.Add(1))}
	if o.typ == "" {
		o.typ = job.TypeFirmwareUpdate
	}
	spec := job.Spec{Type: o.typ, RackID: ref.RackID, NodeID: ref.NodeID, Family: string(family), CreatedAt: time.Now().UTC()}
	var r job.Record
	if o.parent.IsZero() {
		spec.ID = s.newID()
		r = job.NewLeaf(spec)
	} else {
		r = job.NewChild(o.parent, o.index, spec)
	}
	tx := s.api.Begin()
	tx.CreateRecord(&r)
	tx.HoldNode(ref, &rackbusv1.NodeLock{V: 1, JobId: r.ID.String()}, bus.Absent)
	cmd := &rackbusv1.JobCommand{
		V: 1, JobId: r.ID.String(), Type: string(o.typ), Family: string(family),
		Target:          &rackbusv1.NodeTarget{RackId: ref.RackID, NodeId: ref.NodeID},
		RunLimitSeconds: int64(o.limit / time.Second),
	}
	if !o.deadline.IsZero() {
		cmd.Deadline = timestamppb.New(o.deadline)
	}
	if !o.parent.IsZero() {
		cmd.ParentJobId = o.parent.String()
	}
	tx.PutCommand(cmd, time.Hour)
	_, err := tx.Commit(s.t.Context())
	require.NoError(s.t, err)
	return r.ID
}

func (s *site) newID() job.ID {
	id, err := job.NewFamily(rand.Reader)
	require.NoError(s.t, err)
	return id
}

func (s *site) checkpoint(id job.ID) (*rackbusv1.JobCheckpoint, bus.Revision) {
	ck, rev, err := s.api.Checkpoint(s.t.Context(), family, id)
	require.NoError(s.t, err)
	return ck, rev
}

// ask asks a claimed job to stop, as the cancel timer does.
func (s *site) ask(id job.ID, mode job.CancelMode, reason string) {
	s.t.Helper()
	for {
		ck, rev := s.checkpoint(id)
		next := proto.CloneOf(ck)
		next.Cancel = job.CancelToProto(&job.Cancel{Mode: mode, Reason: reason, RequestedAt: time.Now().UTC()})
		if _, err := s.api.PutCheckpoint(s.t.Context(), next, rev); err == nil {
			break
		}
	}
	require.NoError(s.t, s.api.WakeCancel(family, id))
}

// left is the checkpoint of a job whose owner is gone.
func (s *site) left(id job.ID, owner string, change func(*rackbusv1.JobCheckpoint)) {
	ck := &rackbusv1.JobCheckpoint{
		V: 1, JobId: id.String(), Type: string(job.TypeFirmwareUpdate), Family: string(family), RackId: "r1",
		Owner: owner, Epoch: 1, Attempt: 1, StartedAt: timestamppb.Now(),
	}
	change(ck)
	_, err := s.api.PutCheckpoint(s.t.Context(), ck, bus.Absent)
	require.NoError(s.t, err)
}

// await reads a job's events until it has finished, and returns them.
func (s *site) await(id job.ID) []job.Event {
	s.t.Helper()
	return s.awaitEvent(id, func(e job.Event) bool { return e.Kind == job.EventFinished })
}

// awaitEvent reads a job's events until one matches.
func (s *site) awaitEvent(id job.ID, match func(job.Event) bool) []job.Event {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	r, err := s.api.ReadEvents(ctx, id.Partition(bus.Partitions), 0)
	require.NoError(s.t, err)
	defer r.Close()
	var events []job.Event
	for {
		select {
		case raw := <-r.Wait():
			e, err := r.Take(raw)
			require.NoError(s.t, err)
			if e.ID != id {
				continue
			}
			events = append(events, e.Event)
			if match(e.Event) {
				return events
			}
		case <-ctx.Done():
			require.Failf(s.t, "event did not come", "job %s has %d events", id, len(events))
		}
	}
}

// history is every stored event of a job.
func (s *site) history(id job.ID) []job.Event {
	stored, _, err := s.api.NewestJobEvents(s.t.Context(), id, 0, 10_000, 16<<20)
	require.NoError(s.t, err)
	events := make([]job.Event, len(stored))
	for i, e := range stored {
		events[i] = e.Event
	}
	return events
}

// folded is what the fold makes of a job's record.
func (s *site) folded(id job.ID) job.Record {
	r, _, err := s.api.Record(s.t.Context(), id)
	require.NoError(s.t, err)
	for _, e := range s.history(id) {
		r, _, err = job.Fold(r, e)
		require.NoError(s.t, err)
	}
	return r
}

func last(events []job.Event) job.Event { return events[len(events)-1] }

// commands is how many commands are in the hands of agents, and how many wait.
func (s *site) commands() (unacked int, waiting uint64) {
	unacked, waiting, err := s.raw.Commands(s.t.Context(), family)
	require.NoError(s.t, err)
	return unacked, waiting
}

// device counts the changes that reach it.
type device struct {
	mu     sync.Mutex
	writes map[job.ID][]write
}

type write struct {
	epoch uint64
	at    time.Time
}

func newDevice() *device { return &device{writes: map[job.ID][]write{}} }

// write changes the device if the job's guard lets it.
func (d *device) write(t *agent.Task) error {
	if err := t.Guard().Check(); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.writes[t.ID()] = append(d.writes[t.ID()], write{t.Epoch(), time.Now()})
	return nil
}

// epochs are the holds under which a job has changed the device, in order.
func (d *device) epochs(id job.ID) []uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []uint64
	for _, w := range d.writes[id] {
		out = append(out, w.epoch)
	}
	return out
}

func (d *device) last(id job.ID) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.writes[id]) == 0 {
		return time.Time{}
	}
	return d.writes[id][len(d.writes[id])-1].at
}

// gate is a place at which a handler waits for its test.
type gate struct {
	reached chan struct{}
	open    chan struct{}
	once    sync.Once
}

func newGate() *gate { return &gate{reached: make(chan struct{}), open: make(chan struct{})} }

// pass tells that the gate was reached, and waits until it opens or ctx ends.
func (g *gate) pass(ctx context.Context) error {
	g.once.Do(func() { close(g.reached) })
	select {
	case <-g.open:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (g *gate) awaitReached(t testing.TB) {
	t.Helper()
	select {
	case <-g.reached:
	case <-time.After(patience):
		require.Fail(t, "the handler did not come to its gate")
	}
}

// only is the handler of every job of the default type.
func only(h agent.Handler) map[job.Type]agent.Handler {
	return map[job.Type]agent.Handler{job.TypeFirmwareUpdate: h}
}

// scripts give each job a handler of its own.
type scripts struct {
	mu sync.Mutex
	by map[job.ID]agent.Handler
}

func newScripts() *scripts { return &scripts{by: map[job.ID]agent.Handler{}} }

// add admits a job with its handler. The handler is known before the command.
func (sc *scripts) add(s *site, o order, h agent.Handler) job.ID {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	id := s.admit(o)
	sc.by[id] = h
	return id
}

func (sc *scripts) handler(ctx context.Context, t *agent.Task) (agent.Outcome, error) {
	sc.mu.Lock()
	h := sc.by[t.ID()]
	sc.mu.Unlock()
	return h(ctx, t)
}
