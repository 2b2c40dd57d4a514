// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"crypto/rand"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// queueing lets jobs wait for a busy node.
func queueing(o *Options) {
	o.MaxParked = 20
	o.OnBusy = map[job.Type]OnBusy{job.TypeFirmwareUpdate: OnBusyQueue}
}

// Jobs that wait for a busy node are not offered to agents, so they are in nobody's way.
func TestA1BusyNodeDelaysNoOther(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	a := h.admitter(queueing)
	holder, err := a.AdmitLeaf(t.Context(), request(1, 2))
	require.NoError(t, err)
	require.Contains(t, h.fetch(1), holder.JobID.String(), "at work, and not settled")
	for range 20 {
		_, err := a.AdmitLeaf(t.Context(), request(1, 2))
		require.NoError(t, err)
	}
	q, err := h.conn.Commands(t.Context(), node.FamilyCompute)
	require.NoError(t, err)
	asked := time.Now()
	free, err := a.AdmitLeaf(t.Context(), request(2, 3))
	require.NoError(t, err)
	var got job.ID
	require.NoError(t, q.Fetch(t.Context(), 1, func(d *bus.Delivery) { got = d.ID }))
	require.Equal(t, free.JobID, got)
	require.Less(t, time.Since(asked), 20*time.Second)
}

// A job that is asked for again is another job with other messages: no window of the broker swallows it.
func TestC5SecondAttemptIsAnotherJob(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	a := h.admitter(nil)
	seen := map[string]bool{}
	for range 3 {
		out, err := a.AdmitLeaf(t.Context(), request(1, 2))
		require.NoError(t, err)
		id := out.JobID
		require.False(t, seen[id.String()])
		seen[id.String()] = true
		require.Contains(t, h.fetch(1), id.String())
		failed := job.Event{
			Kind: job.EventFinished, ID: id, RackID: "r1", NodeID: "n1", Type: job.TypeFirmwareUpdate, Family: string(node.FamilyCompute),
			Epoch: 1, N: 1, State: job.StateFailed, Failure: job.NewFailure(job.FailureTaskException, "Exception"), At: time.Now(),
		}
		require.NoError(t, h.conn.PublishEvent(t.Context(), &failed))
		require.NotNil(t, h.finished(id), "its events are not taken for those of the attempt before")
		h.seal(id, time.Now())
	}
}

// A job that waits says for whom, also when the node was locked past all services.
func TestK13WaitingJobNamesTheHolder(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	a := h.admitter(queueing)
	byHand := leafOf(t, 1)
	tx := h.conn.Begin()
	tx.CreateRecord(&byHand)
	tx.HoldNode(ref(1), lockOf(&byHand), bus.Absent)
	_, err := tx.Commit(t.Context())
	require.NoError(t, err)

	waiting, err := a.AdmitLeaf(t.Context(), request(1, 2))
	require.NoError(t, err)
	r := h.record(waiting.JobID)
	require.Equal(t, job.StateQueued, r.State)
	require.Equal(t, byHand.ID, r.WaitsFor)
	require.Contains(t, r.Description, byHand.ID.String())
	refuse := request(1, 2)
	refuse.OnBusy = OnBusyRefuse
	_, err = a.AdmitLeaf(t.Context(), refuse)
	require.Contains(t, requireRefusal(t, err, job.FailureNodeBusy).Message, byHand.ID.String())
}

func leafOf(t *testing.T, i int) job.Record {
	t.Helper()
	id, err := job.NewFamily(rand.Reader)
	require.NoError(t, err)
	return job.NewLeaf(job.Spec{
		ID: id, Type: job.TypeFirmwareUpdate, RackID: ref(i).RackID, NodeID: ref(i).NodeID, Family: string(node.FamilyCompute),
		CreatedAt: time.Now(), Deadline: time.Now().Add(time.Hour),
	})
}

func lockOf(r *job.Record) *rackbusv1.NodeLock {
	return &rackbusv1.NodeLock{V: 1, JobId: r.ID.String(), Type: string(r.Type), Since: timestampIn(0)}
}
