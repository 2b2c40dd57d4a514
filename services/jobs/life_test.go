// SPDX-License-Identifier: Apache-2.0

package jobs_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/job"
)

func TestLeafFromAdmissionToEnd(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start()
	at := ref("rack-1", 1)
	id := r.admission().leaf(at)
	require.Equal(t, id.String(), r.lock(at).GetJobId())

	rec := r.record(id)
	r.publish(job.Event{Kind: job.EventQueued, ID: id, RackID: at.RackID, NodeID: at.NodeID, At: rec.CreatedAt})
	r.started(id, 1)
	running := r.awaitState(id, job.StateRunning)
	require.Equal(t, "agent-1", running.Agent)
	r.finished(id, 1, job.StateCompleted)
	done := r.awaitState(id, job.StateCompleted)
	require.Equal(t, uint32(100), done.Percent)
	require.Empty(t, r.lock(at).GetJobId(), "terminal means free")
	require.Equal(t, id.String(), r.lock(at).GetLastJobId())

	r.await("three public changes", func() bool { return len(r.publicEvents()) == 3 })
	requireOrdered(t, r.publicEvents())
}

func TestBatchFromAdmissionToEnd(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start()
	const n = 500
	id := r.admission().batch("rack-1", n, false)
	starts, ends := make([]job.Event, n), make([]job.Event, n)
	for i := range n {
		rec := r.record(id.Child(uint32(i + 1)))
		starts[i], ends[i] = said(&rec, job.EventStarted, 1, 1), said(&rec, job.EventFinished, 1, 2)
		ends[i].State, ends[i].StartedAt = job.StateCompleted, starts[i].At
	}
	ends[6].State = job.StateFailed
	r.publishAll(starts)
	r.publishAll(ends)
	parent := r.awaitState(id, job.StatePartiallyFailed)
	require.Equal(t, "Batch complete: 499/500 succeeded, 1 failed", parent.Description)
	require.Equal(t, uint32(499), parent.Counts.Completed)
	require.Equal(t, uint32(1), parent.Counts.Failed)
	for i := 1; i <= n; i++ {
		require.Empty(t, r.lock(ref("rack-1", i)).GetJobId())
	}
	r.await("all public changes", func() bool { return len(r.publicEvents()) == 3*n+2 })
	last := requireOrdered(t, r.publicEvents())
	require.Equal(t, "partially_failed", last[id.String()])
}
