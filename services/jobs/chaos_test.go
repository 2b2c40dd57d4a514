// SPDX-License-Identifier: Apache-2.0

package jobs_test

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/failpoint"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/services/jobs"
	"github.com/rackbus/rackbus/services/jobs/internal/foldtest"
)

// chaosRun is what one family of the chaos test is about.
type chaosRun struct {
	foldtest.Family
	// behind is a job that is parked behind the last node of the family.
	behind job.ID
}

// TestChaos lets random histories of many families go through two replicas
// whose folds die at random before and after commits, with the timers at work.
// Afterwards the records are what the stored events make of them without any
// crash, batches count their children right, every node is free, the capacity
// counter is the number of records, and the public stream tells every change
// once and in order.
func TestChaos(t *testing.T) {
	t.Parallel()
	const families = 16
	r := newRig(t)
	points := &failpoint.Points{}
	die := func() error {
		if rand.IntN(4) == 0 {
			return failpoint.ErrInjected
		}
		return nil
	}
	points.Arm("fold.before_commit", 0, die)
	points.Arm("fold.after_commit", 0, die)
	points.Arm("timer.before", 0, die)
	for range 2 {
		r.start(hasty, func(o *jobs.Options) { o.Failpoints = points })
	}
	seed := rand.IntN(1 << 20)
	t.Logf("seed %d", seed)
	runs := make([]chaosRun, families)
	var wg sync.WaitGroup
	for i := range runs {
		runs[i].Family = foldtest.Families().Example(seed + i)
		r.admitRecords(runs[i].Records)
		if i%3 == 0 {
			runs[i].behind = r.admission().park(runs[i].node(), true)
		}
		wg.Go(func() { r.playHistory(runs[i].Events) })
	}
	wg.Wait()
	var total int64
	public := 0
	for i := range runs {
		public += r.checkFamily(&runs[i])
		total += int64(len(runs[i].Records))
		if !runs[i].behind.IsZero() {
			total++
		}
	}
	records, _, err := r.conn.Capacity(t.Context())
	require.NoError(t, err)
	require.Equal(t, total, records)
	counted, err := r.conn.CountRecords(t.Context())
	require.NoError(t, err)
	require.Equal(t, total, counted)
	r.await("all public changes", func() bool { return len(r.publicEvents()) == public })
	requireOrdered(t, r.publicEvents())
}

// node is the last node of the family.
func (c *chaosRun) node() node.Ref {
	nodes := foldtest.Nodes(&c.Records[len(c.Records)-1])
	return nodes[len(nodes)-1]
}

// admitRecords admits a family in one transaction.
func (r *rig) admitRecords(records []job.Record) {
	r.t.Helper()
	r.commit(func(tx *bus.Tx, n int64, rev bus.Revision) {
		tx.SetCapacity(n+int64(len(records)), rev)
		for i := range records {
			if records[i].NodeID == "" {
				tx.CreateRecord(&records[i])
				continue
			}
			r.admission().node(tx, &records[i], records[i].Deadline)
		}
	})
}

// playHistory stores events as they are, repetitions included.
func (r *rig) playHistory(events []job.Event) {
	for i := range events {
		if err := r.raw.PublishAgain(r.t.Context(), &events[i]); err != nil {
			r.t.Error(err)
			return
		}
	}
}

// checkFamily waits until the family has ended, checks it, and returns how many
// public changes it has.
func (r *rig) checkFamily(c *chaosRun) int {
	r.t.Helper()
	var stored []bus.StoredEvent
	r.await("the family to end", func() bool {
		for i := range c.Records {
			if !r.record(c.Records[i].ID).State.Terminal() {
				return false
			}
		}
		return true
	})
	for i := range c.Records {
		events, _, err := r.conn.NewestJobEvents(r.t.Context(), c.Records[i].ID, 0, 1000, 16<<20)
		require.NoError(r.t, err)
		stored = append(stored, events...)
	}
	slices.SortFunc(stored, func(a, b bus.StoredEvent) int { return int(a.Sequence) - int(b.Sequence) })
	events := make([]job.Event, len(stored))
	for i := range stored {
		events[i] = stored[i].Event
	}
	public := 0
	counts := job.Counts{}
	for id, want := range foldtest.Expect(c.Records, events) {
		got := r.record(id)
		require.Equal(r.t, want, got)
		public += int(got.PublicN)
		if !id.IsTopLevel() {
			counts = counted(counts, got.State)
		}
	}
	if top := r.record(c.Records[0].ID); top.Kind == job.KindParent {
		require.Equal(r.t, counts, top.Counts)
	}
	return public + r.checkNodes(c)
}

func counted(c job.Counts, s job.State) job.Counts {
	for state, n := range map[job.State]*uint32{
		job.StateCompleted: &c.Completed, job.StateFailed: &c.Failed, job.StateCancelled: &c.Cancelled,
		job.StateTerminated: &c.Terminated, job.StateTimedOut: &c.TimedOut,
	} {
		if s == state {
			*n++
		}
	}
	return c
}

// checkNodes checks that the nodes are free, or held by who was next, who then
// ends as well.
func (r *rig) checkNodes(c *chaosRun) int {
	r.t.Helper()
	for i := range c.Records {
		rec := c.Records[i]
		for _, at := range foldtest.Nodes(&rec) {
			if at != c.node() || c.behind.IsZero() {
				require.Empty(r.t, r.lock(at).GetJobId(), at)
			}
		}
		guard, err := r.conn.RackGuard(r.t.Context(), rec.RackID)
		require.NoError(r.t, err)
		require.True(r.t, guard.Free(time.Now()), "no power guard outlives its job")
	}
	if c.behind.IsZero() {
		return 0
	}
	require.Equal(r.t, c.behind.String(), r.lock(c.node()).GetJobId())
	r.started(c.behind, 1)
	r.finished(c.behind, 1, job.StateCompleted)
	rec := r.awaitState(c.behind, job.StateCompleted)
	r.requireFree(c.node(), c.behind)
	return int(rec.PublicN)
}
