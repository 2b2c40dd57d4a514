// SPDX-License-Identifier: Apache-2.0

package jobs_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/services/jobs"
)

// requireOrdered checks that every job's changes are there once, in their order
// and without a gap, each beginning where the former has ended, and that
// nothing follows a terminal state. It returns the last state of each job.
func requireOrdered(t testing.TB, events []bus.PublicEvent) map[string]string {
	t.Helper()
	last, n := make(map[string]string), make(map[string]uint64)
	for _, e := range events {
		n[e.JobID]++
		require.Equal(t, n[e.JobID], e.N, "change of job %s out of order", e.JobID)
		require.Equal(t, last[e.JobID], e.From, "change %d of job %s", e.N, e.JobID)
		state, ok := job.ParseState(e.From)
		require.False(t, ok && state.Terminal(), "job %s changed after %s", e.JobID, e.From)
		last[e.JobID] = e.State
	}
	return last
}

// TestJobsEndWithoutThePublicStream deletes the public stream for more commits
// than wait in memory: jobs must go on, and every change must come once the
// stream is back.
func TestJobsEndWithoutThePublicStream(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start(hasty, func(o *jobs.Options) { o.CommitInterval, o.Retry = time.Millisecond, 20*time.Millisecond })
	const n = 100 // children of one batch share its partition
	id := r.admission().batch("r", n, false)
	r.await("the batch to be announced", func() bool { return len(r.publicEvents()) > 0 })
	require.NoError(t, r.raw.DropPublicStream(t.Context()))
	for i := uint32(1); i <= n; i++ {
		r.finished(id.Child(i), 1, job.StateCompleted)
		r.awaitState(id.Child(i), job.StateCompleted) // a commit of its own
	}
	r.awaitState(id, job.StateCompleted)

	require.NoError(t, r.conn.Provision(t.Context()))
	// What was stored before went with the stream: children are told from their
	// first change on, the parent goes on where it was.
	byJob := func() map[string][]bus.PublicEvent {
		out := make(map[string][]bus.PublicEvent)
		for _, e := range r.publicEvents() {
			out[e.JobID] = append(out[e.JobID], e)
		}
		return out
	}
	r.await("all changes", func() bool {
		got := byJob()
		for i := uint32(1); i <= n; i++ {
			if len(got[id.Child(i).String()]) < 3 {
				return false
			}
		}
		return len(got[id.String()]) > 0
	})
	later := r.admission().leaf(ref("later", 1))
	r.finished(later, 1, job.StateCompleted)
	r.await("changes after them", func() bool { return len(byJob()[later.String()]) == 3 })
	for jobID, events := range byJob() {
		for i, e := range events {
			require.Equal(t, events[0].N+uint64(i), e.N, "change of job %s out of order", jobID)
		}
		if jobID != id.String() {
			require.Equal(t, uint64(1), events[0].N)
			require.Len(t, events, 3)
		}
		require.Equal(t, job.StateCompleted.String(), events[len(events)-1].State)
	}
}
