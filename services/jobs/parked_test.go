// SPDX-License-Identifier: Apache-2.0

package jobs_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

func TestParkedJobsFollowInTheirOrder(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start(hasty)
	a, at := r.admission(), ref("r", 1)
	first := a.leaf(at)
	second, third := a.park(at, true), a.park(at, true)

	r.finished(first, 1, job.StateCompleted)
	r.awaitState(first, job.StateCompleted)
	l := r.lock(at)
	require.Equal(t, second.String(), l.GetJobId(), "the node is handed over in the instant it gets free")
	require.Equal(t, []string{third.String()}, l.GetQueue())
	cmd, _, err := r.conn.Command(t.Context(), node.FamilyCompute, at)
	require.NoError(t, err)
	require.Equal(t, second.String(), cmd.GetJobId())
	r.await("the parked command to be dropped", func() bool {
		_, err := r.conn.ParkedCommand(t.Context(), at, second)
		return err != nil
	})

	r.await("the jobs in line to know whom they wait for", func() bool {
		next, last := r.record(second), r.record(third)
		return next.WaitsFor.IsZero() && next.Description == "Queued" && last.WaitsFor == second && last.Description == job.WaitingText(second)
	})
	r.started(second, 1)
	require.True(t, r.awaitState(second, job.StateRunning).WaitsFor.IsZero())
	r.finished(second, 1, job.StateFailed)
	r.awaitState(second, job.StateFailed)
	require.Equal(t, third.String(), r.lock(at).GetJobId())
	r.finished(third, 1, job.StateCompleted)
	r.awaitState(third, job.StateCompleted)
	r.requireFree(at, third)
}

func TestParkedJobThatEndsLeavesTheLine(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start(hasty)
	r.session()
	a, at := r.admission(), ref("r", 1)
	holder := a.leaf(at)
	cancelled := a.park(at, true)
	a.parked = 500 * time.Millisecond
	expired := a.park(at, true)
	a.parked = time.Hour
	patient := a.park(at, true)

	r.requestCancel(cancelled, job.CancelGraceful)
	r.awaitState(cancelled, job.StateCancelled)
	rec := r.awaitState(expired, job.StateTimedOut)
	require.Equal(t, job.FailureQueueDeadline, rec.Failure.FailureCode)
	l := r.lock(at)
	require.Equal(t, holder.String(), l.GetJobId())
	require.Equal(t, []string{patient.String()}, l.GetQueue())
	r.await("the parked commands to be dropped", func() bool {
		_, err1 := r.conn.ParkedCommand(t.Context(), at, cancelled)
		_, err2 := r.conn.ParkedCommand(t.Context(), at, expired)
		return err1 != nil && err2 != nil
	})
	r.finished(holder, 1, job.StateCompleted)
	r.awaitState(holder, job.StateCompleted)
	require.Equal(t, patient.String(), r.lock(at).GetJobId())
}

func TestLostParkedCommandFailsItsJob(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start(hasty)
	a, at := r.admission(), ref("r", 1)
	holder := a.leaf(at)
	lost, next := a.park(at, false), a.park(at, true)
	r.finished(holder, 1, job.StateCompleted)
	rec := r.awaitState(lost, job.StateFailed)
	require.Equal(t, job.FailureCommandLost, rec.Failure.FailureCode)
	r.awaitState(holder, job.StateCompleted) // of another partition, whose commit may come later
	l := r.lock(at)
	require.Equal(t, next.String(), l.GetJobId())
	require.Empty(t, l.GetQueue())
}

// TestCoordinatorReleasesWhatItReserved lets coordinators end in every way. What
// they kept from others is free in the commit in which they read terminal.
func TestCoordinatorReleasesWhatItReserved(t *testing.T) {
	t.Parallel()
	const soon = 2 * time.Second // the test has parked and claimed by then
	for name, end := range map[string]struct {
		state job.State
		queue time.Duration
		do    func(r *rig, id job.ID)
	}{
		"completed": {job.StateCompleted, time.Hour, func(r *rig, id job.ID) { r.finished(id, 1, job.StateCompleted) }},
		"failed":    {job.StateFailed, time.Hour, func(r *rig, id job.ID) { r.finished(id, 1, job.StateFailed) }},
		"cancelled before it started": {job.StateCancelled, time.Hour, func(r *rig, id job.ID) {
			r.requestCancel(id, job.CancelGraceful)
		}},
		"terminated without an owner": {job.StateTerminated, time.Hour, func(r *rig, id job.ID) {
			r.claim(id, "dead")
			r.requestCancel(id, job.CancelTerminate)
		}},
		"past its queue deadline with nobody alive": {job.StateFailed, soon, func(*rig, job.ID) {}},
		"past its run deadline with a dead owner": {job.StateTimedOut, soon, func(r *rig, id job.ID) {
			r.claim(id, "dead")
		}},
		"owner fenced": {job.StateTerminated, time.Hour, func(r *rig, id job.ID) {
			r.claim(id, r.session().ID())
			r.requestCancel(id, job.CancelTerminate)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.start(hasty)
			const n = 20
			reserved := make([]string, n)
			for i := range reserved {
				reserved[i] = ref("r", i+1).NodeID
			}
			own := node.Ref{RackID: "r", NodeID: "r:cold-reboot"}
			a := r.admission()
			rec := job.NewCoordinator(spec(newID(t), own, time.Now().Add(end.queue)), reserved, true)
			r.commit(func(tx *bus.Tx, records int64, rev bus.Revision) {
				tx.SetCapacity(records+1, rev)
				a.node(tx, &rec, rec.Deadline)
			})
			waiting := a.park(ref("r", 3), true)
			end.do(r, rec.ID)
			r.awaitState(rec.ID, end.state)
			for i := range n {
				if i+1 != 3 {
					r.requireFree(ref("r", i+1), rec.ID)
				}
			}
			require.Equal(t, waiting.String(), r.lock(ref("r", 3)).GetJobId(), "who waits follows")
			r.requireFree(own, rec.ID)
			guard, err := r.conn.TakeRackPower(t.Context(), "r", &rackbusv1.RackPower{V: 1, Holder: "x"}, time.Minute)
			require.NoError(t, err, "the power guard is free in the same commit")
			require.NoError(t, r.conn.ReleaseRackPower(t.Context(), guard))
			tracked, _, err := r.conn.Capacity(t.Context())
			require.NoError(t, err)
			require.EqualValues(t, 2, tracked, "a coordinator counts once, whatever it reserves")
		})
	}
}
