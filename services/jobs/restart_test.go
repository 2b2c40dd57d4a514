// SPDX-License-Identifier: Apache-2.0

package jobs_test

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/failpoint"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/services/jobs"
)

// TestFoldThatDiesLosesAndRepeatsNothing lets the fold die before commits and
// between commits and what follows them.
func TestFoldThatDiesLosesAndRepeatsNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	points := &failpoint.Points{}
	var deaths atomic.Int32
	die := func() error {
		if deaths.Add(1)%3 == 0 {
			return nil // every third one lives, so that it comes to an end
		}
		return failpoint.ErrInjected
	}
	points.Arm("fold.before_commit", 0, die)
	points.Arm("fold.after_commit", 0, die)
	r.start(hasty, func(o *jobs.Options) { o.Failpoints = points })
	const n = 20
	id := r.admission().batch("r", n, false)
	for i := uint32(1); i <= n; i++ {
		r.started(id.Child(i), 1)
		if i%4 == 0 {
			r.finished(id.Child(i), 1, job.StateCompleted)
			r.awaitState(id.Child(i), job.StateCompleted)
		}
	}
	for i := uint32(1); i <= n; i++ {
		r.finished(id.Child(i), 1, job.StateCompleted)
	}
	r.awaitState(id, job.StateCompleted)
	require.Greater(t, deaths.Load(), int32(10))
	r.await("all public changes", func() bool { return len(r.publicEvents()) == 3*n+2 })
	requireOrdered(t, r.publicEvents())
}

// TestReplicasShareAndHandOver runs two replicas, of which one joins and leaves
// again and again while jobs run.
func TestReplicasShareAndHandOver(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	steady := r.start(hasty)
	r.await("one replica to take all", func() bool { return len(steady.Active()) == 8 })
	const batches, n = 6, 12
	done := make(chan []job.ID)
	go func() {
		var ids []job.ID
		for b := range batches {
			id := r.admission().batch(string(rune('a'+b)), n, false)
			ids = append(ids, id)
			for i := uint32(1); i <= n; i++ {
				r.started(id.Child(i), 1)
				r.finished(id.Child(i), 1, job.StateCompleted)
			}
		}
		done <- ids
	}()
	var ids []job.ID
	for ids == nil {
		guest := r.start(hasty)
		r.await("both replicas to have a share", func() bool { return len(steady.Active()) == 4 && len(guest.Active()) == 4 })
		guest.stop(t)
		r.await("the partitions to come back", func() bool { return len(steady.Active()) == 8 })
		select {
		case ids = <-done:
		default:
		}
	}
	for _, id := range ids {
		parent := r.awaitState(id, job.StateCompleted)
		require.Equal(t, uint32(n), parent.Counts.Completed)
	}
	r.await("all public changes", func() bool { return len(r.publicEvents()) == batches*(3*n+2) })
	requireOrdered(t, r.publicEvents())
}
