// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/bus/bustest"
	"github.com/rackbus/rackbus/pkg/job"
)

// TestDeadlineCannotLengthenLimits: what is configured caps what a caller asks for.
func TestDeadlineCannotLengthenLimits(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	a := h.admitter(func(o *Options) {
		o.QueueDeadline = time.Hour
		o.RunLimits = map[job.Type]time.Duration{job.TypeFirmwareUpdate: 2 * time.Hour}
	})
	req := request(1, 2)
	req.Deadline = time.Now().Add(90 * 24 * time.Hour)
	res, err := a.AdmitLeaf(t.Context(), req)
	require.NoError(t, err)
	require.WithinDuration(t, time.Now().Add(time.Hour), h.record(res.JobID).Deadline, time.Minute)
	require.EqualValues(t, 7200, h.fetch(1)[res.JobID.String()].GetRunLimitSeconds())
}

// TestEveryBatchHasADeadline: the caller's, or one behind those of all its children.
func TestEveryBatchHasADeadline(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	a := h.admitter(func(o *Options) {
		o.QueueDeadline, o.ParkedDeadline = time.Hour, 5*time.Hour
		o.RunLimits = map[job.Type]time.Duration{job.TypeFirmwareUpdate: 2 * time.Hour}
	})
	req := request(1, 3)
	res, err := a.Admit(t.Context(), req)
	require.NoError(t, err)
	parent := h.record(res.JobID)
	require.WithinDuration(t, time.Now().Add(8*time.Hour), parent.Deadline, time.Minute)
	raw, err := bustest.Open(h.b.URL())
	require.NoError(t, err)
	defer raw.Close()
	at, err := raw.ArmedTimer(t.Context(), bus.TimerDeadline, res.JobID)
	require.NoError(t, err)
	require.WithinDuration(t, parent.Deadline, at, time.Second)

	req = request(3, 5)
	req.Deadline = time.Now().Add(30 * time.Minute)
	res, err = a.Admit(t.Context(), req)
	require.NoError(t, err)
	require.True(t, req.Deadline.Equal(h.record(res.JobID).Deadline))
}
