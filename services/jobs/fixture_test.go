// SPDX-License-Identifier: Apache-2.0

package jobs_test

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/bus/broker/brokertest"
	"github.com/rackbus/rackbus/pkg/bus/bustest"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/services/jobs"
)

// The tests wait for leases and timers, hardly ever for a processor.
const sideBySide = "5"

// long runs what differs from the other tests by the place of a request only.
var long = flag.Bool("long", false, "terminate jobs in every stage")

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", sideBySide); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// patience is for things that happen on one server: seconds at most, but tests of
// other packages run beside.
const patience = time.Minute

// rig is a broker, a connection in the role of API and agents, and the replicas
// of the jobs service under test.
type rig struct {
	t testing.TB
	// urls are those of one server, or of three.
	urls []string
	conn *bus.Conn
	raw  *bustest.Raw
	log  *slog.Logger
	// patience bounds every wait for something that must happen.
	patience time.Duration
	// timing of every connection.
	timing bus.Timing
}

// quick are leases short enough for tests.
func quick() bus.Timing {
	t := bus.DefaultTiming(1)
	t.SessionTTL, t.SessionRenew, t.SessionMargin = 3*time.Second, 300*time.Millisecond, 500*time.Millisecond
	t.AckWait, t.WorkInterval, t.NakBusy = 2*time.Second, time.Second, 200*time.Millisecond
	t.FoldTTL, t.FoldRenew = 2*time.Second, 200*time.Millisecond
	return t
}

func newRig(t testing.TB) *rig {
	t.Helper()
	return newRigTimed(t, quick())
}

func newRigTimed(t testing.TB, timing bus.Timing) *rig {
	t.Helper()
	return newRigWith(t, timing, brokertest.Start(t).URL())
}

func newRigOn(t testing.TB, urls ...string) *rig {
	t.Helper()
	return newRigWith(t, quick(), urls...)
}

func newRigWith(t testing.TB, timing bus.Timing, urls ...string) *rig {
	t.Helper()
	r := &rig{t: t, urls: urls, timing: timing, log: slog.New(slog.DiscardHandler), patience: patience}
	if os.Getenv("RACKBUS_TEST_LOG") != "" {
		r.log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	patient := timing
	patient.Request = patience / 2 // the test itself waits where the service would not
	r.conn = r.connectTimed("test", patient)
	raw, err := bustest.Open(strings.Join(urls, ","))
	require.NoError(t, err)
	r.raw = raw
	t.Cleanup(r.raw.Close)
	require.NoError(t, r.conn.Provision(t.Context()))
	return r
}

func (r *rig) connect(role string) *bus.Conn {
	r.t.Helper()
	return r.connectTimed(role, r.timing)
}

func (r *rig) connectTimed(role string, timing bus.Timing) *bus.Conn {
	r.t.Helper()
	c, err := bus.Connect(bus.Options{
		URLs: r.urls, Name: role, Role: role, Replicas: len(r.urls), Timing: timing, Logger: r.log,
	})
	require.NoError(r.t, err)
	r.t.Cleanup(c.Close)
	return c
}

// replica is a running jobs service.
type replica struct {
	*jobs.Service
	cancel context.CancelFunc
	done   chan error
}

// start runs a replica on a connection of its own.
func (r *rig) start(change ...func(*jobs.Options)) *replica {
	r.t.Helper()
	o := jobs.Options{
		Conn: r.connect("jobs"), Instance: "jobs", Balance: 300 * time.Millisecond, Logger: r.log,
		CommitInterval: 5 * time.Millisecond,
	}
	for _, c := range change {
		c(&o)
	}
	s, err := jobs.New(o)
	require.NoError(r.t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.t.Context()))
	rep := &replica{Service: s, cancel: cancel, done: make(chan error, 1)}
	go func() { rep.done <- s.Run(ctx) }()
	r.t.Cleanup(func() { rep.stop(r.t) })
	return rep
}

func (rep *replica) stop(t testing.TB) {
	t.Helper()
	rep.cancel()
	select {
	case err := <-rep.done:
		require.NoError(t, err)
		rep.done <- nil
	case <-time.After(patience):
		t.Fatal("the service does not stop")
	}
}

// pollInterval is the pause between looks at the bus, which tells nobody when
// what a test waits for has come true.
const pollInterval = 5 * time.Millisecond

// await looks until ok.
func (r *rig) await(what string, ok func() bool) {
	r.t.Helper()
	deadline := time.Now().Add(r.patience)
	for !ok() {
		if time.Now().After(deadline) {
			r.t.Fatalf("still waiting for: %s", what)
		}
		time.Sleep(pollInterval)
	}
}

func (r *rig) record(id job.ID) job.Record {
	r.t.Helper()
	rec, _, err := r.conn.Record(r.t.Context(), id)
	require.NoError(r.t, err, id)
	return rec
}

func (r *rig) awaitState(id job.ID, want job.State) job.Record {
	r.t.Helper()
	var rec job.Record
	r.await(fmt.Sprintf("job %s to be %s, it is %s", id, want, rec.State), func() bool {
		rec = r.record(id)
		if rec.State.Terminal() {
			require.Equal(r.t, want, rec.State, "%+v", rec)
		}
		return rec.State == want
	})
	return rec
}

func (r *rig) lock(ref node.Ref) bus.Lock {
	r.t.Helper()
	l, err := r.conn.Lock(r.t.Context(), ref)
	require.NoError(r.t, err)
	return l
}

func newID(t testing.TB) job.ID {
	t.Helper()
	id, err := job.NewFamily(rand.Reader)
	require.NoError(t, err)
	return id
}

func ref(rack string, i int) node.Ref {
	return node.Ref{RackID: rack, NodeID: fmt.Sprintf("node-%d", i)}
}

// admission builds admission transactions as the API does.
type admission struct {
	r      *rig
	queue  time.Duration // until the queue deadline
	parked time.Duration // until the queue deadline of a parked job
	plan   []string      // cleanup plan of batches
}

func (r *rig) admission() admission { return admission{r: r, queue: time.Hour, parked: 24 * time.Hour} }

func (r *rig) commit(build func(tx *bus.Tx, records int64, rev bus.Revision)) bus.Commit {
	r.t.Helper()
	for {
		records, rev, err := r.conn.Capacity(r.t.Context())
		require.NoError(r.t, err)
		tx := r.conn.Begin()
		build(tx, records, rev)
		c, err := tx.Commit(r.t.Context())
		if errors.Is(err, bus.ErrConflict) {
			continue
		}
		require.NoError(r.t, err)
		return c
	}
}

func spec(id job.ID, at node.Ref, deadline time.Time) job.Spec {
	return job.Spec{
		ID: id, Type: job.TypeFirmwareUpdate, RackID: at.RackID, NodeID: at.NodeID, Family: string(node.FamilyCompute),
		CreatedAt: time.Now(), Deadline: deadline, Visible: true,
	}
}

func command(rec *job.Record) *rackbusv1.JobCommand {
	return &rackbusv1.JobCommand{
		V: 1, JobId: rec.ID.String(), Type: string(rec.Type), Family: rec.Family, RunLimitSeconds: 3600,
		Target: &rackbusv1.NodeTarget{RackId: rec.RackID, NodeId: rec.NodeID},
	}
}

func held(rec *job.Record, queue ...string) *rackbusv1.NodeLock {
	return &rackbusv1.NodeLock{V: 1, JobId: rec.ID.String(), Type: string(rec.Type), Since: timestamppb.Now(), Queue: queue}
}

// leaf admits a job without parent.
func (a admission) leaf(at node.Ref) job.ID {
	a.r.t.Helper()
	deadline := time.Now().Add(a.queue)
	rec := job.NewLeaf(spec(newID(a.r.t), at, deadline))
	a.r.commit(func(tx *bus.Tx, records int64, rev bus.Revision) {
		tx.SetCapacity(records+1, rev)
		a.node(tx, &rec, deadline)
	})
	return rec.ID
}

func (a admission) node(tx *bus.Tx, rec *job.Record, deadline time.Time) {
	at := node.Ref{RackID: rec.RackID, NodeID: rec.NodeID}
	tx.HoldNode(at, held(rec), a.r.lock(at).Revision)
	for _, id := range rec.Reserved {
		tx.HoldNode(node.Ref{RackID: rec.RackID, NodeID: id}, held(rec), bus.Absent)
	}
	if rec.RackPower {
		tx.HoldRack(rec.RackID, &rackbusv1.RackPower{V: 1, Holder: rec.ID.String(), Operation: "cold reboot"}, bus.Absent)
	}
	tx.CreateRecord(rec)
	tx.PutCommand(command(rec), 24*time.Hour)
	tx.ArmTimer(bus.TimerDeadline, rec.ID, deadline)
}

// batch admits n nodes of a rack in chunks of 240. With cut it stops before the
// last chunk, as an API that dies.
func (a admission) batch(rack string, n int, cut bool) job.ID {
	a.r.t.Helper()
	id := newID(a.r.t)
	deadline := time.Now().Add(a.queue)
	const chunk = 240
	for start := 0; start < n; start += chunk {
		end := min(start+chunk, n)
		last := end == n && !cut
		a.r.commit(func(tx *bus.Tx, records int64, rev bus.Revision) {
			count := int64(end - start)
			s := spec(id, node.Ref{RackID: rack}, time.Time{})
			s.Family, s.Cleanup = "", a.plan
			parent := job.NewParent(s, uint32(end), last)
			if start == 0 {
				count++
				tx.SetCapacity(records+count, rev)
				tx.CreateRecord(&parent)
			} else {
				tx.SetCapacity(records+count, rev)
				a.grow(tx, id, uint32(end), last)
			}
			if cut {
				// Armed anew by every chunk, so that a slow machine is not cut off early.
				tx.ArmTimer(bus.TimerAdmit, id, time.Now().Add(2*time.Second))
			}
			for i := start; i < end; i++ {
				rec := job.NewChild(id, uint32(i+1), spec(job.ID{}, ref(rack, i+1), deadline))
				a.node(tx, &rec, deadline)
			}
		})
	}
	total := uint32(n)
	if !cut {
		a.r.publish(job.Event{Kind: job.EventAdmitted, ID: id, RackID: rack, Type: job.TypeFirmwareUpdate, Total: total, At: time.Now()})
	}
	return id
}

func (a admission) grow(tx *bus.Tx, id job.ID, total uint32, last bool) {
	parent, rev, err := a.r.conn.Record(a.r.t.Context(), id)
	require.NoError(a.r.t, err)
	var filled uint32
	parent.Total = total
	parent.Children, filled = parent.Children.Fill(total, job.StateQueued)
	parent.Counts.Queued += filled
	parent.Admitted = last
	tx.ReplaceRecord(&parent, rev)
}

// park admits a job behind the one that holds the node.
func (a admission) park(at node.Ref, withCommand bool) job.ID {
	a.r.t.Helper()
	deadline := time.Now().Add(a.parked)
	id := newID(a.r.t)
	a.r.commit(func(tx *bus.Tx, records int64, rev bus.Revision) {
		l := a.r.lock(at)
		holder, err := job.ParseID(l.GetJobId())
		require.NoError(a.r.t, err)
		s := spec(id, at, deadline)
		s.WaitsFor = holder
		rec := job.NewLeaf(s)
		l.Queue = append(l.Queue, id.String())
		tx.SetCapacity(records+1, rev)
		tx.HoldNode(at, l.NodeLock, l.Revision)
		tx.CreateRecord(&rec)
		if withCommand {
			tx.ParkCommand(command(&rec), 24*time.Hour)
		}
		tx.ArmTimer(bus.TimerDeadline, id, deadline)
	})
	return id
}

func (r *rig) publish(e job.Event) {
	r.t.Helper()
	require.NoError(r.t, r.conn.PublishEvent(r.t.Context(), &e))
}

// said is an event of the agent that owns a job.
func said(rec *job.Record, kind job.EventKind, epoch, n uint64) job.Event {
	return job.Event{
		Kind: kind, ID: rec.ID, RackID: rec.RackID, NodeID: rec.NodeID, Type: rec.Type, Family: rec.Family,
		Epoch: epoch, N: n, Attempt: 1, Agent: "agent-1", At: time.Now().UTC(),
	}
}

// started is what an agent says when its workflow begins.
func (r *rig) started(id job.ID, epoch uint64) {
	r.t.Helper()
	rec := r.record(id)
	e := said(&rec, job.EventStarted, epoch, 1)
	e.StartedAt, e.Deadline = e.At, e.At.Add(time.Hour)
	r.publish(e)
}

func (r *rig) finished(id job.ID, epoch uint64, state job.State) {
	r.t.Helper()
	rec := r.record(id)
	e := said(&rec, job.EventFinished, epoch, 9)
	e.StartedAt, e.State = e.At, state
	r.publish(e)
}

// publicEvents returns everything that the public stream holds, in order.
func (r *rig) publicEvents() []bus.PublicEvent {
	r.t.Helper()
	events, err := r.raw.PublicEvents(r.t.Context())
	require.NoError(r.t, err)
	return events
}
