// SPDX-License-Identifier: Apache-2.0

package jobs_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
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
