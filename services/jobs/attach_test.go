// SPDX-License-Identifier: Apache-2.0

package jobs_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	admit "github.com/rackbus/rackbus/pkg/admission"
	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// asked is a request for the nodes from..to-1 of a rack.
func asked(rack string, from, to int) admit.Request {
	req := admit.Request{Type: job.TypeFirmwareUpdate, RackID: rack}
	for i := from; i < to; i++ {
		at := ref(rack, i)
		req.Nodes = append(req.Nodes, admit.Node{
			Ref: at, Family: node.FamilyCompute,
			Command: func(job.ID) (*rackbusv1.JobCommand, error) {
				return &rackbusv1.JobCommand{Target: &rackbusv1.NodeTarget{RackId: at.RackID, NodeId: at.NodeID}}, nil
			},
		})
	}
	return req
}

// TestChildrenAreAttachedWhileABatchRuns attaches nodes at random moments while
// the fold sums up a batch. The parent ends when all that were attached have
// ended, and not before.
func TestChildrenAreAttachedWhileABatchRuns(t *testing.T) {
	t.Parallel()
	const rounds, own, further = 6, 3, 2
	r := newRig(t)
	r.start(hasty)
	a, err := admit.New(admit.Options{Conn: r.connect("api"), Logger: r.log})
	require.NoError(t, err)
	t.Cleanup(a.Close)
	refused := 0
	var want int64
	for round := range rounds {
		rack := fmt.Sprintf("rack-%d", round)
		res, err := a.Admit(t.Context(), asked(rack, 0, own))
		require.NoError(t, err)
		id := res.JobID
		attached := make([]admit.Result, further)
		errs := make([]error, further)
		var wg sync.WaitGroup
		for i := range further {
			wg.Go(func() {
				moment := time.NewTimer(rand.N(20 * time.Millisecond))
				defer moment.Stop()
				<-moment.C
				attached[i], errs[i] = a.Attach(t.Context(), id, asked(rack, own+i, own+i+1))
			})
		}
		for i := range uint32(own) {
			r.finished(id.Child(i+1), 1, job.StateCompleted)
		}
		wg.Wait()
		total := uint32(own)
		for i := range further {
			var refusal *admit.Refusal
			if errors.As(errs[i], &refusal) {
				// The three were faster.
				require.Equal(t, job.FailureParentUnusable, refusal.Code)
				r.awaitState(id, job.StateCompleted)
				refused++
				continue
			}
			require.NoError(t, errs[i])
			n := attached[i].Nodes[0]
			require.Nil(t, n.Refusal)
			require.False(t, r.record(id).State.Terminal(), "the parent has ended without child %s", n.JobID)
			r.finished(n.JobID, 1, job.StateCompleted)
			r.awaitState(n.JobID, job.StateCompleted)
			total++
		}
		parent := r.awaitState(id, job.StateCompleted)
		require.Equal(t, total, parent.Total)
		require.Equal(t, job.Counts{Completed: total}, parent.Counts)
		for i := range total {
			child := r.record(id.Child(i + 1))
			require.Equal(t, job.StateCompleted, child.State)
			r.requireFree(node.Ref{RackID: child.RackID, NodeID: child.NodeID}, child.ID)
		}
		want += int64(total) + 1
	}
	records, _, err := r.conn.Capacity(t.Context())
	require.NoError(t, err)
	require.Equal(t, want, records)
	counted, err := r.conn.CountRecords(t.Context())
	require.NoError(t, err)
	require.Equal(t, want, counted)
	t.Logf("%d of %d requests came too late", refused, rounds*further)
	r.await("all public changes", func() bool { return publicEnds(r.publicEvents()) == rounds })
	requireOrdered(t, r.publicEvents())
}

// publicEnds counts the ends of top-level jobs on the public stream.
func publicEnds(events []bus.PublicEvent) int {
	n := 0
	for i := range events {
		state, ok := job.ParseState(events[i].State)
		if ok && state.Terminal() && events[i].ParentJobID == "" {
			n++
		}
	}
	return n
}
