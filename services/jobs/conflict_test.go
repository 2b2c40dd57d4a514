// SPDX-License-Identifier: Apache-2.0

package jobs_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/failpoint"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/services/jobs"
)

// meddle runs a replica and does something right before its first commit.
func (r *rig) meddle(do func(), change ...func(*jobs.Options)) *prometheus.Registry {
	points, registry := &failpoint.Points{}, prometheus.NewRegistry()
	points.Arm("fold.before_commit", 1, func() error { do(); return nil })
	change = append(change, hasty, func(o *jobs.Options) { o.Failpoints, o.Registerer = points, registry })
	r.start(change...)
	return registry
}

// commits reads how many commits had a result.
func commits(t *testing.T, g prometheus.Gatherer, result string) float64 {
	t.Helper()
	families, err := g.Gather()
	require.NoError(t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "rackbus_fold_commits_total" && m.GetLabel()[0].GetValue() == result {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

// TestAdmissionGrowsAParentThatTheFoldIsChanging lets the second chunk of a
// batch be admitted between the fold's look at the parent and its commit.
func TestAdmissionGrowsAParentThatTheFoldIsChanging(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.admission()
	id := a.batch("r", 2, true)
	registry := r.meddle(func() {
		third := job.NewChild(id, 3, spec(job.ID{}, ref("r", 3), time.Now().Add(time.Hour)))
		r.commit(func(tx *bus.Tx, records int64, rev bus.Revision) {
			tx.SetCapacity(records+1, rev)
			a.grow(tx, id, 3, true)
			a.node(tx, &third, third.Deadline)
		})
	})
	r.finished(id.Child(1), 1, job.StateCompleted)
	r.awaitState(id.Child(1), job.StateCompleted)
	parent := r.record(id)
	require.True(t, parent.Admitted)
	require.Equal(t, uint32(3), parent.Total)
	require.Equal(t, job.Counts{Queued: 2, Completed: 1}, parent.Counts)
	require.InDelta(t, 1, commits(t, registry, "conflict"), 0)
	require.InDelta(t, 0, commits(t, registry, "fenced"), 0)
	r.finished(id.Child(2), 1, job.StateCompleted)
	r.finished(id.Child(3), 1, job.StateCompleted)
	r.awaitState(id, job.StateCompleted)
}

// TestCommitNeedsMoreRecordsThanAreCached folds the events of a whole batch with
// a cache for two records, and lets the first commit be built anew.
func TestCommitNeedsMoreRecordsThanAreCached(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.admission()
	const n = 40
	id := a.batch("r", n, true)
	for i := uint32(1); i <= n; i++ {
		r.finished(id.Child(i), 1, job.StateCompleted)
	}
	registry := r.meddle(func() {
		another := job.NewChild(id, n+1, spec(job.ID{}, ref("r", n+1), time.Now().Add(time.Hour)))
		r.commit(func(tx *bus.Tx, records int64, rev bus.Revision) {
			tx.SetCapacity(records+1, rev)
			a.grow(tx, id, n+1, true)
			a.node(tx, &another, another.Deadline)
		})
	}, func(o *jobs.Options) { o.CachedRecords = 2 })
	for i := uint32(1); i <= n; i++ {
		r.awaitState(id.Child(i), job.StateCompleted)
	}
	require.InDelta(t, 1, commits(t, registry, "conflict"), 0)
	r.finished(id.Child(n+1), 1, job.StateCompleted)
	r.awaitState(id, job.StateCompleted)
}

// TestJobParksBehindAHolderThatIsEnding lets a job be parked between the fold's
// look at the lock and its commit: it must not be left behind.
func TestJobParksBehindAHolderThatIsEnding(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	at := ref("r", 1)
	holder := r.admission().leaf(at)
	var parked job.ID
	registry := r.meddle(func() { parked = r.admission().park(at, true) })
	r.finished(holder, 1, job.StateCompleted)
	r.awaitState(holder, job.StateCompleted)
	require.Equal(t, parked.String(), r.lock(at).GetJobId())
	require.InDelta(t, 1, commits(t, registry, "conflict"), 0)
}

// TestFoldThatWasOvertakenStartsAnew moves the cursor as another active fold
// does.
func TestFoldThatWasOvertakenStartsAnew(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	at := ref("r", 1)
	id := r.admission().leaf(at)
	p := id.Partition(bus.Partitions)
	registry := r.meddle(func() {
		sequence, rev, err := r.conn.Cursor(t.Context(), p)
		require.NoError(t, err)
		tx := r.conn.Begin()
		tx.SetCursor(p, sequence, rev)
		_, err = tx.Commit(t.Context())
		require.NoError(t, err)
	})
	r.finished(id, 1, job.StateCompleted)
	r.awaitState(id, job.StateCompleted)
	require.InDelta(t, 1, commits(t, registry, "fenced"), 0)
	r.requireFree(at, id)
	r.await("all public changes", func() bool { return len(r.publicEvents()) == 3 })
	requireOrdered(t, r.publicEvents())
}

// TestUnreadableEventIsSteppedOver puts bytes into the event stream that are no
// event.
func TestUnreadableEventIsSteppedOver(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	at := ref("r", 1)
	id := r.admission().leaf(at)
	require.NoError(t, r.raw.PublishGarbage(t.Context(), id))
	r.start(hasty)
	r.finished(id, 1, job.StateCompleted)
	r.awaitState(id, job.StateCompleted)
}
