// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
)

func TestRolloutHoldsItsNodesAndOffersNone(t *testing.T) {
	h := newHarness(t)
	a := h.admitter(func(o *Options) {
		o.chunkNodes = 2
		// What the configuration says about busy nodes does not hold for a rollout.
		o.OnBusy = map[job.Type]OnBusy{job.TypeFirmwareUpdate: OnBusyQueue}
	})
	holder, err := a.Admit(t.Context(), request(2, 3))
	require.NoError(t, err)
	req := request(0, 6)
	req.Rollout = &job.RolloutPlan{WaveSize: 1, Spread: job.SpreadRack}
	req.Nodes[3] = candidate(node.Ref{RackID: "r2", NodeID: "n3"})
	before := time.Now()
	res, err := a.Admit(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, 5, res.Admitted())
	require.Equal(t, holder.JobID.Child(1), res.Nodes[2].Refusal.Holder)

	p := h.record(res.JobID)
	require.True(t, p.Admitted)
	require.Equal(t, uint32(5), p.Total)
	require.Equal(t, []uint32{0, 0, 1, 0, 0}, p.Rollout.Places)
	require.WithinDuration(t, before.Add(168*time.Hour), p.Deadline, time.Minute)
	at, due := p.RolloutDue()
	require.True(t, due)
	require.True(t, at.IsZero())
	for _, n := range res.Nodes {
		if n.JobID.IsZero() {
			continue
		}
		require.Equal(t, n.JobID.String(), h.holder(n.Ref))
		child := h.record(n.JobID)
		require.True(t, child.Deadline.IsZero(), "it is not in the queue of any agent")
		require.True(t, child.WaitsFor.IsZero())
		cmd, err := h.conn.ParkedCommand(t.Context(), n.Ref, n.JobID)
		require.NoError(t, err)
		require.Equal(t, int64(4*3600), cmd.GetRunLimitSeconds())
		_, _, err = h.conn.Command(t.Context(), node.FamilyCompute, n.Ref)
		require.ErrorIs(t, err, bus.ErrNotFound)
	}
	_, err = a.Attach(t.Context(), res.JobID, request(7, 8))
	require.ErrorContains(t, err, "it starts its nodes in waves")

	behind, err := a.Admit(t.Context(), request(0, 1))
	require.NoError(t, err)
	require.Equal(t, 1, behind.Admitted(), "others may wait behind a node whose wave has not come")
}

func TestRolloutRefusals(t *testing.T) {
	h := newHarness(t)
	a := h.admitter(nil)
	req := request(0, 2)
	req.Rollout = &job.RolloutPlan{WaveSize: 1}
	for _, policy := range []OnBusy{OnBusyQueue, OnBusySupersede} {
		req.OnBusy = policy
		_, err := a.Admit(t.Context(), req)
		require.Contains(t, requireRefusal(t, err, job.FailureInvalidArgument).Message, policy.String())
	}
	req.OnBusy = OnBusyDefault
	req.Rollout.Spread = job.SpreadDomain
	req.Nodes[0].Domain = "lab"
	_, err := a.Admit(t.Context(), req)
	require.Contains(t, requireRefusal(t, err, job.FailureInvalidArgument).Message, "use per=rack")
	req.Nodes[1].Domain = "lab"
	res, err := a.Admit(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, []uint32{0, 0}, h.record(res.JobID).Rollout.Places)

	leaf := request(5, 6)
	leaf.Rollout = req.Rollout
	_, err = a.AdmitLeaf(t.Context(), leaf)
	require.ErrorIs(t, err, errRollout)
	_, err = a.Attach(t.Context(), res.JobID, leaf)
	require.ErrorIs(t, err, errRollout)
}

// TestRolloutDeadlineIsNotThatOfItsJobs: it is until when all must have started; those
// that have may take as long as any other.
func TestRolloutDeadlineIsNotThatOfItsJobs(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	req := request(0, 2)
	req.Rollout = &job.RolloutPlan{WaveSize: 1}
	req.Deadline = time.Now().Add(30 * time.Minute)
	res, err := h.admitter(nil).Admit(t.Context(), req)
	require.NoError(t, err)
	require.True(t, req.Deadline.Equal(h.record(res.JobID).Deadline))
	for _, n := range res.Nodes {
		cmd, err := h.conn.ParkedCommand(t.Context(), n.Ref, n.JobID)
		require.NoError(t, err)
		require.Equal(t, int64(4*3600), cmd.GetRunLimitSeconds())
		require.Nil(t, cmd.GetDeadline())
	}
}
