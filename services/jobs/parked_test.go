// SPDX-License-Identifier: Apache-2.0

package jobs_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
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
	l := r.lock(at)
	require.Equal(t, next.String(), l.GetJobId())
	require.Empty(t, l.GetQueue())
}

// TestCoordinatorReleasesItsHolds admits a cold reboot by hand: a coordinator
// and one hold per node, which end with it.
func TestCoordinatorReleasesItsHolds(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start(hasty)
	id, own := newID(t), node.Ref{RackID: "r", NodeID: "r:cold-reboot"}
	const n = 30
	r.commit(func(tx *bus.Tx, records int64, rev bus.Revision) {
		deadline := time.Now().Add(time.Hour)
		tx.SetCapacity(records+n+1, rev)
		var holds []job.ID
		for i := uint32(1); i <= n; i++ {
			s := spec(job.ID{}, ref("r", int(i)), deadline)
			s.Type, s.Visible = job.TypeColdRebootSequence, false
			rec := job.NewHold(id, i, s)
			holds = append(holds, rec.ID)
			tx.HoldNode(ref("r", int(i)), held(&rec), bus.Absent)
			tx.CreateRecord(&rec)
		}
		s := spec(id, own, deadline)
		s.Type, s.Family = job.TypeColdRebootSequence, "rack"
		rec := job.NewCoordinator(s, holds)
		tx.HoldNode(own, held(&rec), bus.Absent)
		tx.CreateRecord(&rec)
		tx.PutCommand(command(&rec), time.Hour)
	})
	waiting := r.admission().park(ref("r", 3), true)
	r.started(id, 1)
	r.awaitState(id, job.StateRunning)
	r.finished(id, 1, job.StateFailed)
	r.awaitState(id, job.StateFailed)
	for i := uint32(1); i <= n; i++ {
		rec := r.record(id.Child(i))
		require.Equal(t, job.StateCompleted, rec.State, "in the same commit")
		require.Equal(t, job.HoldReleasedDescription, rec.Description)
		if i != 3 {
			r.requireFree(ref("r", int(i)), rec.ID)
		}
	}
	require.Equal(t, waiting.String(), r.lock(ref("r", 3)).GetJobId())
	r.requireFree(own, id)
}
