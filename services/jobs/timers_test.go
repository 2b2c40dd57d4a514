// SPDX-License-Identifier: Apache-2.0

package jobs_test

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/services/jobs"
	"github.com/rackbus/rackbus/services/jobs/internal/observe"
	"github.com/rackbus/rackbus/services/jobs/internal/timers"
)

// hasty are limits short enough for tests.
func hasty(o *jobs.Options) {
	o.Limits = jobs.Limits{
		DeadlineGrace: 300 * time.Millisecond, DeadlineRound: 200 * time.Millisecond,
		StopLimit: 600 * time.Millisecond, TakeoverLimit: 800 * time.Millisecond,
		CancelRoundMin: 100 * time.Millisecond, CancelRoundMax: 300 * time.Millisecond,
		AdmitRound: 100 * time.Millisecond, CleanupPause: 100 * time.Millisecond,
	}
}

// session opens an agent's session of the compute family.
func (r *rig) session() *bus.Session {
	r.t.Helper()
	s, err := r.conn.OpenSession(r.t.Context(), node.FamilyCompute, "agent")
	require.NoError(r.t, err)
	r.t.Cleanup(func() { _ = s.Close(context.WithoutCancel(r.t.Context())) })
	return s
}

// claim writes the checkpoint that an agent's claim leaves.
func (r *rig) claim(id job.ID, owner string, change ...func(*rackbusv1.JobCheckpoint)) {
	r.t.Helper()
	cp := &rackbusv1.JobCheckpoint{
		V: 1, JobId: id.String(), Family: string(node.FamilyCompute), Owner: owner, Epoch: 3, Attempt: 1,
		StartedAt: timestamppb.Now(), At: timestamppb.Now(),
	}
	for _, c := range change {
		c(cp)
	}
	_, err := r.conn.PutCheckpoint(r.t.Context(), cp, bus.Absent)
	require.NoError(r.t, err)
}

func (r *rig) checkpoint(id job.ID) (*rackbusv1.JobCheckpoint, bus.Revision) {
	r.t.Helper()
	cp, rev, err := r.conn.Checkpoint(r.t.Context(), node.FamilyCompute, id)
	require.NoError(r.t, err)
	return cp, rev
}

// requireFree checks that a job that ended holds its node no longer.
func (r *rig) requireFree(at node.Ref, last job.ID) {
	r.t.Helper()
	l := r.lock(at)
	require.Empty(r.t, l.GetJobId())
	require.Equal(r.t, last.String(), l.GetLastJobId())
}

func TestK4NoAgentUntilTheQueueDeadline(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start(hasty)
	a := r.admission()
	a.queue = 300 * time.Millisecond

	id := a.leaf(ref("r", 1))
	rec := r.awaitState(id, job.StateFailed)
	require.Equal(t, job.FailureAgentLost, rec.Failure.FailureCode)
	r.requireFree(ref("r", 1), id)
	r.await("the command to be erased", func() bool {
		_, _, err := r.conn.Command(t.Context(), node.FamilyCompute, ref("r", 1))
		return err != nil
	})
	cp, _ := r.checkpoint(id)
	require.True(t, cp.GetDone(), "an agent that meets the command later must find the job done")

	r.session()
	id = a.leaf(ref("r", 2))
	rec = r.awaitState(id, job.StateTimedOut)
	require.Equal(t, job.FailureQueueDeadline, rec.Failure.FailureCode)
	r.requireFree(ref("r", 2), id)
}

func TestDeadlineOfAClaimedJob(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start(hasty)
	a := r.admission()
	a.queue = 2 * time.Second // a claim comes earlier, on a busy machine too

	t.Run("whose outcome was not reported", func(t *testing.T) {
		id := a.leaf(ref("a", 1))
		rec := r.record(id)
		e := said(&rec, job.EventFinished, 3, 5)
		e.State = job.StateCompleted
		r.claim(id, "dead", func(cp *rackbusv1.JobCheckpoint) { cp.Done, cp.Outcome = true, job.EventToProto(e) })
		r.awaitState(id, job.StateCompleted)
	})
	t.Run("whose owner is dead", func(t *testing.T) {
		id := a.leaf(ref("a", 2))
		r.claim(id, "dead")
		rec := r.awaitState(id, job.StateTimedOut)
		require.Equal(t, job.FailureDeadlineExceeded, rec.Failure.FailureCode)
		require.Equal(t, uint64(3), rec.Epoch)
	})
	t.Run("whose claim the fold has not seen", func(t *testing.T) {
		id := a.leaf(ref("a", 3))
		r.claim(id, "dead", func(cp *rackbusv1.JobCheckpoint) {
			cp.Deadline = timestamppb.New(time.Now().Add(4 * time.Second))
		})
		rec := r.awaitState(id, job.StateTimedOut)
		require.Greater(t, rec.FinishedAt.Sub(rec.CreatedAt), 3900*time.Millisecond, "the run deadline counts")
	})
	t.Run("whose owner stops when asked", func(t *testing.T) {
		id := a.leaf(ref("a", 4))
		r.claim(id, r.session().ID())
		r.await("the request to stop", func() bool {
			cp, rev := r.checkpoint(id)
			if cp.GetCancel() == nil {
				return false
			}
			require.Equal(t, job.CancelReasonDeadline, cp.GetCancel().GetReason())
			done := proto.CloneOf(cp)
			rec := r.record(id)
			e := said(&rec, job.EventFinished, 3, 5)
			e.State = job.StateTimedOut
			done.Done, done.Outcome = true, job.EventToProto(e)
			_, err := r.conn.PutCheckpoint(t.Context(), done, rev)
			return err == nil
		})
		r.awaitState(id, job.StateTimedOut)
	})
	t.Run("whose owner does not stop", func(t *testing.T) {
		id := a.leaf(ref("a", 5))
		s := r.session()
		r.claim(id, s.ID())
		r.await("the termination request", func() bool {
			cp, _ := r.checkpoint(id)
			return cp.GetCancel().GetMode() == rackbusv1.CancelMode_CANCEL_MODE_TERMINATE
		})
		<-s.Lost()
		require.False(t, r.record(id).State.Terminal(), "the owner may still act until its validity is over")
		alive, err := r.conn.SessionAlive(t.Context(), node.FamilyCompute, s.ID())
		require.NoError(t, err)
		require.True(t, alive, "nobody may take its jobs over yet")
		r.awaitState(id, job.StateTimedOut)
		require.False(t, s.Valid())
		r.requireFree(ref("a", 5), id)
	})
}

// TestTimersOfAHostWhoseClockIsBehind handles timers that fired by a broker whose
// clock is a minute ahead of this host's.
func TestTimersOfAHostWhoseClockIsBehind(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const ahead = time.Minute
	a := r.admission()
	a.queue = ahead // over by the clock of the broker
	var limits jobs.Options
	hasty(&limits)
	metrics, err := observe.NewMetrics(prometheus.NewRegistry())
	require.NoError(t, err)
	h := &timers.Handler{Conn: r.conn, Limits: limits.Limits, Log: r.log, Metrics: metrics}
	fire := func(kind bus.TimerKind, id job.ID) time.Time {
		broker := time.Now().Add(ahead)
		require.NoError(t, h.Handle(t.Context(), bus.Timer{Kind: kind, ID: id, At: broker}))
		return broker
	}
	queued := a.leaf(ref("r", 1))
	fire(bus.TimerDeadline, queued)
	cp, _ := r.checkpoint(queued)
	require.True(t, cp.GetDone(), "its deadline is over where it counts")

	running := a.leaf(ref("r", 2))
	r.claim(running, r.session().ID())
	broker := fire(bus.TimerDeadline, running)
	cp, _ = r.checkpoint(running)
	require.NotNil(t, cp.GetCancel())
	at, err := r.raw.ArmedTimer(t.Context(), bus.TimerDeadline, running)
	require.NoError(t, err)
	require.False(t, at.Before(broker.Add(limits.Limits.DeadlineRound)), "the next look is not over already")
}

// cancelled publishes a request to stop and waits until the record shows it, or
// is past it.
func (r *rig) requestCancel(id job.ID, mode job.CancelMode) {
	r.t.Helper()
	now := time.Now().UTC()
	r.publish(job.Event{
		Kind: job.EventCancelRequested, ID: id, At: now,
		Cancel: &job.Cancel{Mode: mode, Reason: job.CancelReasonOperator, RequestedBy: "test", RequestedAt: now},
	})
	r.await("the request in the record", func() bool { return r.record(id).Cancel != nil })
}

func TestCancel(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start(hasty)
	a := r.admission()

	t.Run("before any claim", func(t *testing.T) {
		id := a.leaf(ref("c", 1))
		r.requestCancel(id, job.CancelTerminate)
		rec := r.awaitState(id, job.StateCancelled)
		require.Equal(t, job.FailureCancelledByOperator, rec.Failure.FailureCode)
		r.requireFree(ref("c", 1), id)
	})
	t.Run("after an outcome that was not reported", func(t *testing.T) {
		id := a.leaf(ref("c", 2))
		rec := r.record(id)
		e := said(&rec, job.EventFinished, 3, 5)
		e.State = job.StateCompleted
		r.claim(id, "dead", func(cp *rackbusv1.JobCheckpoint) { cp.Done, cp.Outcome = true, job.EventToProto(e) })
		r.requestCancel(id, job.CancelGraceful)
		require.Nil(t, r.awaitState(id, job.StateCompleted).Cancel, "it came too late to matter")
	})
	t.Run("of a job with a living owner", func(t *testing.T) {
		id := a.leaf(ref("c", 3))
		woken := make(chan job.ID, 10)
		require.NoError(t, r.conn.OnCancel(t.Context(), node.FamilyCompute, func(id job.ID) { woken <- id }))
		r.claim(id, r.session().ID())
		r.requestCancel(id, job.CancelGraceful)
		require.Equal(t, job.StateCancellationRequested, r.record(id).State)
		require.Equal(t, id, <-woken)
		require.Equal(t, id, <-woken, "it is woken until it has stopped")
		cp, _ := r.checkpoint(id)
		require.Equal(t, rackbusv1.CancelMode_CANCEL_MODE_GRACEFUL, cp.GetCancel().GetMode())
		r.finished(id, 3, job.StateCancelled)
		r.awaitState(id, job.StateCancelled)
	})
	t.Run("of a job whose owner is dead and has no successor", func(t *testing.T) {
		id := a.leaf(ref("c", 4))
		r.claim(id, "dead")
		r.started(id, 3)
		r.awaitState(id, job.StateRunning)
		r.requestCancel(id, job.CancelGraceful)
		r.await("the job to be free for the next owner", func() bool {
			cp, _ := r.checkpoint(id)
			return cp.GetOwner() == "" && cp.GetCancel() != nil || cp.GetDone()
		})
		rec := r.awaitState(id, job.StateTerminated)
		require.Equal(t, "terminated on request while no worker held it: hardware state unknown", rec.Failure.Message)
		r.requireFree(ref("c", 4), id)
	})
	t.Run("of a job whose owner does not confirm a termination", func(t *testing.T) {
		id := a.leaf(ref("c", 5))
		s := r.session()
		r.claim(id, s.ID())
		r.requestCancel(id, job.CancelTerminate)
		<-s.Lost()
		require.False(t, r.record(id).State.Terminal())
		r.awaitState(id, job.StateTerminated)
		require.False(t, s.Valid())
	})
	t.Run("of a batch", func(t *testing.T) {
		id := a.batch("batch", 20, false)
		r.finished(id.Child(1), 1, job.StateCompleted)
		r.awaitState(id.Child(1), job.StateCompleted)
		r.requestCancel(id, job.CancelGraceful)
		parent := r.awaitState(id, job.StatePartiallyFailed)
		require.Equal(t, uint32(1), parent.Counts.Completed)
		require.Equal(t, uint32(19), parent.Counts.Cancelled)
	})
}

// TestFailedBatchIsAnnounced creates a batch without any job, as an API does that
// dies right after.
func TestFailedBatchIsAnnounced(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start(hasty)
	id := newID(t)
	r.commit(func(tx *bus.Tx, records int64, rev bus.Revision) {
		s := spec(id, node.Ref{RackID: "r"}, time.Time{})
		s.Family = ""
		parent := job.NewParent(s, 0, true)
		require.Equal(t, job.StateFailed, parent.State)
		tx.SetCapacity(records+1, rev)
		tx.CreateRecord(&parent)
		tx.ArmTimer(bus.TimerReap, id, time.Now().Add(time.Hour))
		tx.ArmTimer(bus.TimerAdmit, id, time.Now())
	})
	r.await("its public changes", func() bool { return len(r.publicEvents()) == 2 })
	require.Equal(t, job.StateFailed.String(), requireOrdered(t, r.publicEvents())[id.String()])
}

func TestCutOffAdmissionIsClosed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	// Admitted before there is a service, for which the deadline has then passed
	// or not: both must end alike.
	id := r.admission().batch("r", 250, true)
	r.start(hasty)
	var parent job.Record
	r.await("the admission to be closed", func() bool { parent = r.record(id); return parent.Admitted })
	require.Equal(t, uint32(250), parent.Total)
	require.Equal(t, uint32(250), parent.Counts.Queued)
	note, err := r.conn.Admission(t.Context(), id)
	require.NoError(t, err)
	require.Len(t, note.GetRefused(), 1)
	require.Contains(t, note.GetRefused()[0].GetMessage(), "cut off after 250 nodes")
}
