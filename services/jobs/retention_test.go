// SPDX-License-Identifier: Apache-2.0

package jobs_test

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/failpoint"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/services/jobs"
)

// TestRetentionTakesAFamilyAtOnce polls parent and children while they are
// removed, with a reaper that dies between its two steps: once one of them is
// gone, all of them are.
func TestRetentionTakesAFamilyAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	points := &failpoint.Points{}
	points.Arm("reap.between", 1, func() error { return failpoint.ErrInjected })
	r.start(hasty, func(o *jobs.Options) { o.Retention, o.Failpoints = 3*time.Second, points })
	const n = 40
	id := r.admission().batch("r", n, false)
	other := r.admission().leaf(ref("other", 1))
	for i := uint32(1); i <= n; i++ {
		r.finished(id.Child(i), 1, job.StateCompleted)
	}
	r.awaitState(id, job.StateCompleted)
	gone := false
	r.await("the family to leave", func() bool {
		for _, member := range []job.ID{id.Child(1), id, id.Child(n)} {
			_, _, err := r.conn.Record(t.Context(), member)
			if err != nil {
				require.ErrorIs(t, err, bus.ErrNotFound)
				gone = true
				continue
			}
			require.False(t, gone, "half of the family is left")
		}
		return gone
	})
	r.await("the records to be purged after the crash", func() bool {
		count, err := r.conn.CountFamily(t.Context(), id)
		require.NoError(t, err)
		return count == 0
	})
	records, _, err := r.conn.Capacity(t.Context())
	require.NoError(t, err)
	require.Equal(t, int64(1), records)
	require.Equal(t, job.StateQueued, r.record(other).State)
}

func TestRecountCorrectsTheCounter(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	registry := prometheus.NewRegistry()
	r.admission().leaf(ref("r", 1))
	_, rev, err := r.conn.Capacity(t.Context())
	require.NoError(t, err)
	require.NoError(t, r.conn.CorrectCapacity(t.Context(), 77, rev))
	r.start(func(o *jobs.Options) { o.RecountSettle, o.Registerer = 50*time.Millisecond, registry })
	r.await("the counter to be corrected", func() bool {
		records, _, err := r.conn.Capacity(t.Context())
		require.NoError(t, err)
		return records == 1
	})
	r.await("the metric to follow", func() bool { return gauge(t, registry, "rackbus_capacity_records") == 1 })
}

// gauge reads the sum of a metric's series.
func gauge(t testing.TB, g prometheus.Gatherer, name string) float64 {
	t.Helper()
	families, err := g.Gather()
	require.NoError(t, err)
	sum := 0.0
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			sum += m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return sum
}

func TestWorkflowMetrics(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	first, second := prometheus.NewRegistry(), prometheus.NewRegistry()
	const inFlight, counts = "rackbus_workflows_in_flight", "rackbus_workflows_counts_total"
	rep := r.start(hasty, func(o *jobs.Options) { o.Registerer = first })
	id := r.admission().batch("r", 2, false)
	r.started(id.Child(1), 1)
	r.started(id.Child(2), 1)
	r.await("three workflows in flight", func() bool { return gauge(t, first, inFlight) == 3 })
	r.finished(id.Child(1), 1, job.StateFailed)
	r.await("two workflows in flight", func() bool { return gauge(t, first, inFlight) == 2 })
	require.InDelta(t, 4, gauge(t, first, counts), 0)
	rep.stop(t)
	require.InDelta(t, 0, gauge(t, first, inFlight), 0)

	r.start(hasty, func(o *jobs.Options) { o.Registerer = second })
	r.await("the next replica to know of them", func() bool { return gauge(t, second, inFlight) == 2 })
	r.finished(id.Child(2), 1, job.StateFailed)
	r.await("nothing in flight", func() bool { return gauge(t, second, inFlight) == 0 })
	require.InDelta(t, 2, gauge(t, second, counts), 0)
	count, err := testutil.GatherAndCount(second, "rackbus_fold_commits_total")
	require.NoError(t, err)
	require.Equal(t, 4, count, "every result is there from the start")
}

func TestNewRefusesBadOptions(t *testing.T) {
	t.Parallel()
	_, err := jobs.New(jobs.Options{})
	require.ErrorIs(t, err, jobs.ErrInvalidOption)
}

func TestRunReportsAMisconfiguredBus(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c, err := bus.Connect(bus.Options{URLs: r.urls, Name: "x", Role: "x", Replicas: 3})
	require.NoError(t, err)
	defer c.Close()
	s, err := jobs.New(jobs.Options{Conn: c})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err = s.Run(ctx)
	require.ErrorIs(t, err, bus.ErrMisconfigured)
	require.Contains(t, err.Error(), "num_replicas")
}
