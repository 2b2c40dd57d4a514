// SPDX-License-Identifier: Apache-2.0

package jobs_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	admit "github.com/rackbus/rackbus/pkg/admission"
	"github.com/rackbus/rackbus/pkg/job"
)

// TestJobsThatEndWithTheirAdmission admits jobs whose outcome is known: one by
// itself, a batch in one transaction, and one in several. All of them reach the
// public stream, once, and the parents end.
func TestJobsThatEndWithTheirAdmission(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start(hasty)
	a, err := admit.New(admit.Options{Conn: r.connect("api"), Logger: r.log})
	require.NoError(t, err)
	t.Cleanup(a.Close)
	ended := func(rack string, n int) admit.Request {
		req := asked(rack, 0, n)
		for i := range req.Nodes {
			req.Nodes[i].Command = nil
			req.Nodes[i].Ended = &admit.Ended{
				State: job.StateFailed, Failure: job.NewFailure(job.FailureInvalidArgument, "no use"), ResultJSON: `{"status":"failed"}`,
			}
		}
		return req
	}
	const few, many = 3, 300
	want := 0
	for rack, n := range map[string]int{"few": few, "many": many} {
		res, err := a.Admit(t.Context(), ended(rack, n))
		require.NoError(t, err)
		require.Equal(t, n, res.Admitted())
		parent := r.awaitState(res.JobID, job.StateFailed)
		require.Equal(t, job.Counts{Failed: uint32(n)}, parent.Counts)
		require.Equal(t, job.FailureChildrenFailed, parent.Failure.FailureCode)
		want += n + 1
	}
	leaf := ended("leaf", 1)
	leaf.Nodes[0].Ended = &admit.Ended{State: job.StateCompleted, Description: "PLAN_CHECKED", ResultJSON: "{}"}
	res, err := a.AdmitLeaf(t.Context(), leaf)
	require.NoError(t, err)
	want++
	require.Equal(t, "PLAN_CHECKED", r.record(res.JobID).Description)
	r.await("the end of every job on the public stream", func() bool {
		n := 0
		for _, e := range r.publicEvents() {
			if s, ok := job.ParseState(e.State); ok && s.Terminal() {
				n++
			}
		}
		return n == want
	})
	requireOrdered(t, r.publicEvents())
}
