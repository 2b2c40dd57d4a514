// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
)

func TestCapacity(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	a := h.admitter(func(o *Options) { o.MaxTrackedJobs, o.ReapInterval, o.Retention = 4, time.Nanosecond, time.Hour })
	first, err := a.AdmitLeaf(t.Context(), request(100, 101))
	require.NoError(t, err)

	// A parent and two children fit; the tail does not.
	res, err := a.Admit(t.Context(), request(0, 4))
	require.NoError(t, err)
	require.Equal(t, 2, res.Admitted())
	require.Equal(t, job.FailureCapacity, res.Nodes[2].Refusal.Code)
	require.Equal(t, job.FailureCapacity, res.Nodes[3].Refusal.Code)
	require.Empty(t, h.holder(ref(2)))

	_, err = a.Admit(t.Context(), request(5, 7))
	requireRefusal(t, err, job.FailureCapacity)
	_, err = a.AdmitLeaf(t.Context(), request(7, 8))
	requireRefusal(t, err, job.FailureCapacity)

	// A job that has ended keeps its place while it can be read, and no longer.
	h.seal(first.JobID, time.Now())
	_, err = a.AdmitLeaf(t.Context(), request(7, 8))
	requireRefusal(t, err, job.FailureCapacity)
	forgetful := h.admitter(func(o *Options) {
		o.MaxTrackedJobs, o.ReapInterval, o.Retention = 4, time.Nanosecond, time.Nanosecond
	})
	_, err = forgetful.AdmitLeaf(t.Context(), request(7, 8))
	require.NoError(t, err)
	_, _, err = h.conn.Record(t.Context(), first.JobID)
	require.ErrorIs(t, err, bus.ErrNotFound)
	require.EqualValues(t, 4, h.capacity())
}

// TestCapacityLeavesEvidenceToItsTimer: a diagnosis whose retention has ended keeps its
// place until the jobs service has removed the evidence with it.
func TestCapacityLeavesEvidenceToItsTimer(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	a := h.admitter(func(o *Options) { o.MaxTrackedJobs, o.ReapInterval, o.Retention = 2, time.Nanosecond, time.Nanosecond })
	diagnosis := request(1, 2)
	diagnosis.Type = job.TypeNodeDiagnostics
	kept, err := a.AdmitLeaf(t.Context(), diagnosis)
	require.NoError(t, err)
	other, err := a.AdmitLeaf(t.Context(), request(2, 3))
	require.NoError(t, err)
	h.seal(kept.JobID, time.Now())
	_, err = a.AdmitLeaf(t.Context(), request(3, 4))
	requireRefusal(t, err, job.FailureCapacity)
	h.record(kept.JobID)
	h.seal(other.JobID, time.Now())
	_, err = a.AdmitLeaf(t.Context(), request(3, 4))
	require.NoError(t, err)
	h.record(kept.JobID)
}
