// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/job"
)

func failed(i int) Node {
	return Node{Ref: ref(i), Family: "compute", Ended: &Ended{
		State: job.StateFailed, Failure: job.NewFailure(job.FailureInvalidArgument, "the manifest is unusable"),
		ResultJSON: `{"status":"failed"}`,
	}}
}

func TestJobsThatHaveEndedAreAdmitted(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	a := h.admitter(nil)
	holder, err := a.AdmitLeaf(t.Context(), Request{Type: job.TypeFirmwareUpdate, Nodes: []Node{candidate(ref(9))}})
	require.NoError(t, err)
	res, err := a.Admit(t.Context(), Request{
		Type: job.TypeFirmwareUpdate, RackID: "r1", OnBusy: OnBusyQueue, NothingAdmitted: "nothing", Nodes: []Node{failed(0), failed(9), failed(1)},
	})
	require.NoError(t, err)
	require.Equal(t, 2, res.Admitted())
	require.Equal(t, job.FailureNodeBusy, res.Nodes[1].Refusal.Code, "a busy node is refused, not waited for")
	require.Equal(t, holder.JobID, res.Nodes[1].Refusal.Holder)
	for _, i := range []int{0, 2} {
		r := h.record(res.Nodes[i].JobID)
		require.Equal(t, job.StateFailed, r.State)
		require.Equal(t, "the manifest is unusable", r.Failure.Message)
		require.JSONEq(t, `{"status":"failed"}`, r.ResultJSON)
		require.Zero(t, r.PublicN)
		require.Empty(t, h.holder(res.Nodes[i].Ref))
	}
	parent := h.record(res.JobID)
	require.Equal(t, job.StateFailed, parent.State)
	require.Equal(t, uint32(2), parent.Counts.Failed)
	require.Equal(t, job.FailureChildrenFailed, parent.Failure.FailureCode)
	require.Zero(t, parent.PublicN)
	require.Len(t, h.fetch(1), 1, "only the holder has a command")
}

func TestJobsThatHaveEndedStandBesideOthers(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	a := h.admitter(nil)
	res, err := a.Admit(t.Context(), Request{Type: job.TypeFirmwareUpdate, RackID: "r1", Nodes: []Node{failed(0), candidate(ref(1))}})
	require.NoError(t, err)
	parent := h.record(res.JobID)
	require.Equal(t, job.StateRunning, parent.State)
	require.Equal(t, job.Counts{Queued: 1, Failed: 1}, parent.Counts)
	require.Equal(t, job.StateQueued, h.record(res.Nodes[1].JobID).State)
}

// A batch in several chunks that ends with its admission is sealed by the fold,
// which hears of the admission by its event.
func TestChunksOfJobsThatHaveEnded(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	a := h.admitter(func(o *Options) { o.chunkNodes = 2 })
	res, err := a.Admit(t.Context(), Request{Type: job.TypeFirmwareUpdate, RackID: "r1", Nodes: []Node{failed(0), failed(1), failed(2)}})
	require.NoError(t, err)
	parent := h.record(res.JobID)
	require.Equal(t, job.StateRunning, parent.State)
	require.False(t, parent.Admitted)
	require.Equal(t, uint32(3), parent.Counts.Failed)
	parent, c := job.Admit(parent, 3, parent.UpdatedAt)
	require.True(t, c.Sealed())
	require.Equal(t, job.StateFailed, parent.State)
}

func TestLeafThatHasEnded(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	a := h.admitter(nil)
	node := failed(0)
	node.Ended = &Ended{State: job.StateCompleted, Description: "PLAN_CHECKED", ResultJSON: `{"snapshot_id":"x"}`}
	req := Request{
		Type: job.TypeFirmwarePlanCheck, Nodes: []Node{node},
		Idempotency: Idempotency{Caller: "c", RPC: "CheckFirmwarePlan", Key: "k", Digest: []byte("d")},
	}
	res, err := a.AdmitLeaf(t.Context(), req)
	require.NoError(t, err)
	r := h.record(res.JobID)
	require.Equal(t, job.StateCompleted, r.State)
	require.Equal(t, "PLAN_CHECKED", r.Description)
	require.Equal(t, uint32(100), r.Percent)
	require.Empty(t, h.holder(ref(0)))
	again, err := a.AdmitLeaf(t.Context(), req)
	require.NoError(t, err)
	require.True(t, again.Replayed)
	require.Equal(t, res.JobID, again.JobID)
}
