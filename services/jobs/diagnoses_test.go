// SPDX-License-Identifier: Apache-2.0

package jobs_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/failpoint"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/services/jobs"
)

func automatic(o *jobs.Options) { o.Diagnose = true }

// register puts nodes into the inventory.
func (r *rig) register(rack string, refs ...node.Ref) {
	r.t.Helper()
	for i, at := range refs {
		rev := bus.Absent
		if i > 0 {
			var err error
			_, rev, err = r.conn.Rack(r.t.Context(), rack)
			require.NoError(r.t, err)
		}
		require.NoError(r.t, r.conn.AddNodes(r.t.Context(), &rackbusv1.RackRecord{V: 1, RackId: rack}, rev,
			&rackbusv1.NodeRecord{V: 1, Target: &rackbusv1.NodeTarget{
				RackId: at.RackID, NodeId: at.NodeID, NodeType: "compute_gb200_nvidia",
			}}))
	}
}

// diagnoses are the examinations that look into a job.
func (r *rig) diagnoses(about job.ID) (out []job.Record) {
	r.t.Helper()
	require.NoError(r.t, r.conn.TopLevelRecords(r.t.Context(), func(rec job.Record) {
		if rec.Type == job.TypeNodeDiagnostics && (about.IsZero() || rec.About == about) {
			out = append(out, rec)
		}
	}))
	return out
}

// TestFailedJobsAreExamined lets children of a batch end in every way: the nodes of
// those that failed or timed out are examined once, although the timer's handler
// dies once, and the service is started anew.
func TestFailedJobsAreExamined(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	points := &failpoint.Points{}
	points.Arm("timer.before", 1, func() error { return failpoint.ErrInjected })
	rep := r.start(automatic, func(o *jobs.Options) { o.Failpoints = points })
	id := r.admission().batch("r", 6, false)
	r.register("r", ref("r", 1), ref("r", 2), ref("r", 3), ref("r", 4), ref("r", 5))
	for i, state := range []job.State{job.StateFailed, job.StateTimedOut, job.StateCompleted, job.StateCancelled} {
		r.started(id.Child(uint32(i)+1), 1)
		r.finished(id.Child(uint32(i)+1), 1, state)
	}
	unstarted := r.record(id.Child(5))
	e := said(&unstarted, job.EventFinished, 1, 1)
	e.State = job.StateFailed
	r.publish(e)
	r.started(id.Child(6), 1)
	r.finished(id.Child(6), 1, job.StateFailed) // its node is not registered
	r.awaitState(id, job.StatePartiallyFailed)
	for _, failed := range []job.ID{id.Child(1), id.Child(2)} {
		r.await("the examination", func() bool { return len(r.diagnoses(failed)) == 1 })
	}
	rep.stop(t)
	r.start(automatic)
	require.NoError(t, r.conn.ArmTimer(t.Context(), bus.TimerDiagnose, id.Child(1), time.Now())) // handled once more
	first := r.diagnoses(id.Child(1))[0]
	require.Equal(t, job.KindLeaf, first.Kind)
	require.Equal(t, ref("r", 1), node.Ref{RackID: first.RackID, NodeID: first.NodeID})
	require.Equal(t, first.ID.String(), r.lock(ref("r", 1)).GetJobId(), "it holds the node")

	// A diagnosis that fails is not looked into itself.
	r.started(first.ID, 1)
	r.finished(first.ID, 1, job.StateFailed)
	r.awaitState(first.ID, job.StateFailed)
	later := r.admission().leaf(ref("r", 3))
	r.started(later, 1)
	r.finished(later, 1, job.StateFailed)
	r.await("the examination of a later job", func() bool { return len(r.diagnoses(later)) == 1 })
	require.Len(t, r.diagnoses(job.ID{}), 3)
}

// TestNobodyIsExaminedUnlessWanted is the default.
func TestNobodyIsExaminedUnlessWanted(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start()
	id := r.admission().leaf(ref("r", 1))
	r.register("r", ref("r", 1))
	r.started(id, 1)
	r.finished(id, 1, job.StateFailed)
	r.awaitState(id, job.StateFailed)
	// A second one, so that the first had all the time it would have needed.
	again := r.admission().leaf(ref("r", 1))
	r.started(again, 1)
	r.finished(again, 1, job.StateFailed)
	r.awaitState(again, job.StateFailed)
	require.Empty(t, r.diagnoses(job.ID{}))
}

// TestEvidenceLeavesWithItsJob removes bundles when the retention of their job ends.
func TestEvidenceLeavesWithItsJob(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start(hasty, func(o *jobs.Options) { o.Retention = 300 * time.Millisecond })
	id, deadline := newID(t), time.Now().Add(time.Hour)
	r.commit(func(tx *bus.Tx, records int64, rev bus.Revision) {
		s := spec(id, node.Ref{RackID: "r"}, time.Time{})
		s.Type, s.Family = job.TypeNodeDiagnostics, ""
		parent := job.NewParent(s, 2, true)
		tx.SetCapacity(records+3, rev)
		tx.CreateRecord(&parent)
		for i := uint32(1); i <= 2; i++ {
			s := spec(job.ID{}, ref("r", int(i)), deadline)
			s.Type = job.TypeNodeDiagnostics
			rec := job.NewChild(id, i, s)
			r.admission().node(tx, &rec, deadline)
		}
	})
	for i := uint32(1); i <= 2; i++ {
		_, err := r.conn.PutEvidence(t.Context(), bus.EvidenceBundle(id.Child(i)), strings.NewReader("bundle"))
		require.NoError(t, err)
		_, err = r.conn.PutEvidence(t.Context(), bus.EvidenceManifest(id.Child(i)), strings.NewReader("manifest"))
		require.NoError(t, err)
		r.finished(id.Child(i), 1, job.StateCompleted)
	}
	for i := uint32(1); i <= 2; i++ {
		r.await("the evidence to leave", func() bool {
			_, merr := r.conn.Evidence(t.Context(), bus.EvidenceManifest(id.Child(i)))
			_, berr := r.conn.Evidence(t.Context(), bus.EvidenceBundle(id.Child(i)))
			return merr != nil && berr != nil
		})
	}
}
