// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

func timestampIn(d time.Duration) *timestamppb.Timestamp { return timestamppb.New(time.Now().Add(d)) }

func TestQueueParksBehindTheHolder(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	a := h.admitter(func(o *Options) {
		o.MaxParked = 2
		o.OnBusy = map[job.Type]OnBusy{job.TypeFirmwareUpdate: OnBusyQueue}
	})
	first, err := a.AdmitLeaf(t.Context(), request(1, 2))
	require.NoError(t, err)
	second, err := a.AdmitLeaf(t.Context(), request(1, 2))
	require.NoError(t, err)
	batch, err := a.Admit(t.Context(), request(1, 2))
	require.NoError(t, err)

	lock, err := h.conn.Lock(t.Context(), ref(1))
	require.NoError(t, err)
	require.Equal(t, first.JobID.String(), lock.GetJobId())
	require.Equal(t, []string{second.JobID.String(), batch.JobID.Child(1).String()}, lock.GetQueue())
	r := h.record(second.JobID)
	require.Equal(t, job.StateQueued, r.State)
	require.Equal(t, first.JobID, r.WaitsFor)
	require.WithinDuration(t, time.Now().Add(24*time.Hour), r.Deadline, time.Minute)
	cmd, err := h.conn.ParkedCommand(t.Context(), ref(1), second.JobID)
	require.NoError(t, err)
	require.Equal(t, second.JobID.String(), cmd.GetJobId())

	_, err = a.AdmitLeaf(t.Context(), request(1, 2))
	require.Contains(t, requireRefusal(t, err, job.FailureNodeBusy).Message, "2 more wait")
	refuse := request(1, 2)
	refuse.OnBusy = OnBusyRefuse
	_, err = a.AdmitLeaf(t.Context(), refuse)
	requireRefusal(t, err, job.FailureNodeBusy)
}

// finished returns the outcome that was published for a job.
func (h *harness) finished(id job.ID) *job.Event {
	events, _, err := h.conn.NewestJobEvents(h.t.Context(), id, 0, 100, 16<<20)
	require.NoError(h.t, err)
	for i := range events {
		if events[i].Kind == job.EventFinished {
			return &events[i].Event
		}
	}
	return nil
}

func TestSupersedeReplacesWhatHasNotStarted(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	a := h.admitter(nil)
	holder, err := a.AdmitLeaf(t.Context(), request(1, 2))
	require.NoError(t, err)
	queue := request(1, 2)
	queue.OnBusy = OnBusyQueue
	waiting, err := a.AdmitLeaf(t.Context(), queue)
	require.NoError(t, err)
	super := request(1, 2)
	super.OnBusy = OnBusySupersede
	newer, err := a.AdmitLeaf(t.Context(), super)
	require.NoError(t, err)

	for _, old := range []job.ID{holder.JobID, waiting.JobID} {
		cp, _, err := h.conn.Checkpoint(t.Context(), node.FamilyCompute, old)
		require.NoError(t, err)
		require.True(t, cp.GetDone())
		require.True(t, cp.GetSuperseded())
		e := h.finished(old)
		require.NotNil(t, e)
		require.Equal(t, job.StateSuperseded, e.State)
		require.Contains(t, e.Failure.Message, newer.JobID.String())
		require.Contains(t, e.Description, newer.JobID.String())
	}
	require.Nil(t, h.finished(newer.JobID))
	lock, err := h.conn.Lock(t.Context(), ref(1))
	require.NoError(t, err)
	require.Contains(t, lock.GetQueue(), newer.JobID.String())
}

func TestSupersedeRefusesWhatHasStarted(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	a := h.admitter(nil)
	holder, err := a.AdmitLeaf(t.Context(), request(1, 2))
	require.NoError(t, err)
	claim(t, h, holder.JobID)
	super := request(1, 2)
	super.OnBusy = OnBusySupersede
	_, err = a.AdmitLeaf(t.Context(), super)
	require.Equal(t, holder.JobID, requireRefusal(t, err, job.FailureNodeBusy).Holder)
	require.EqualValues(t, 1, h.capacity(), "nothing was parked")
}

// The holder starts between the parking of the new job and the end of the old one.
func TestSupersedeLosesTheRace(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	a := h.admitter(nil)
	holder, err := a.AdmitLeaf(t.Context(), request(1, 2))
	require.NoError(t, err)
	queue := request(1, 2)
	queue.OnBusy = OnBusyQueue
	newer, err := a.AdmitLeaf(t.Context(), queue)
	require.NoError(t, err)
	claim(t, h, holder.JobID)
	refusal, err := a.supersede(t.Context(), ref(1), newer.JobID)
	require.NoError(t, err)
	require.Equal(t, holder.JobID, refusal.Holder)
	require.Nil(t, h.finished(holder.JobID))
	e := h.finished(newer.JobID)
	require.NotNil(t, e)
	require.Equal(t, job.StateFailed, e.State)
	require.Equal(t, job.FailureNodeBusy, e.Failure.FailureCode)
}

// claim does what an agent does first.
func claim(t *testing.T, h *harness, id job.ID) {
	t.Helper()
	_, err := h.conn.PutCheckpoint(t.Context(), &rackbusv1.JobCheckpoint{
		V: 1, JobId: id.String(), Family: string(node.FamilyCompute), Owner: "agent-1", Epoch: 1,
	}, bus.Absent)
	require.NoError(t, err)
}

func TestBusyRefusal(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, l := range map[string]bus.Lock{
		"never locked": {},
		"released":     {NodeLock: &rackbusv1.NodeLock{V: 1, LastJobId: "x"}},
	} {
		require.Nil(t, BusyRefusal(ref(1), l, now), name)
	}
	r := BusyRefusal(ref(1), bus.Lock{NodeLock: &rackbusv1.NodeLock{JobId: "not-an-id"}}, now)
	require.Contains(t, r.Message, fmt.Sprintf("%q", "not-an-id"))
}
