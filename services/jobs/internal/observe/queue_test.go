// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"crypto/rand"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/job"
)

func leaf(t *testing.T, created time.Time) *job.Record {
	t.Helper()
	id, err := job.NewFamily(rand.Reader)
	require.NoError(t, err)
	return &job.Record{
		ID: id, Kind: job.KindLeaf, Type: job.TypeFirmwareUpdate, NodeID: "n", State: job.StateQueued,
		CreatedAt: created, Visible: true, PublicN: 1,
	}
}

// TestBacklog follows jobs from their admission to their end, and a partition that goes to another process.
func TestBacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		m, err := NewMetrics(reg)
		require.NoError(t, err)
		p := NewPartition(m, slog.New(slog.DiscardHandler))
		requireBacklog := func(queued, running, stopping string, age float64) {
			t.Helper()
			require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP rackbus_jobs_in_state Jobs other than parents that have not ended, by state, in the partitions this process is active for.
# TYPE rackbus_jobs_in_state gauge
rackbus_jobs_in_state{state="cancellation_requested"} `+stopping+`
rackbus_jobs_in_state{state="queued"} `+queued+`
rackbus_jobs_in_state{state="running"} `+running+`
`), "rackbus_jobs_in_state"))
			require.InDelta(t, age, testutil.ToFloat64(m.backlog.oldest), 1e-9)
		}
		requireBacklog("0", "0", "0", 0)
		// Children of batches, whose ids their callers may not know, work on hardware too.
		first, second := leaf(t, time.Now()), leaf(t, time.Now().Add(time.Minute))
		parent := leaf(t, time.Now())
		parent.Kind, parent.NodeID = job.KindParent, ""
		first.Visible, second.Visible = false, false
		p.Existing(first)
		p.Existing(parent)
		time.Sleep(2 * time.Minute)
		p.Transition(second, job.Transition{To: job.StateQueued})
		requireBacklog("2", "0", "0", 120)
		first.StartedAt = time.Now()
		p.Transition(first, job.Transition{From: job.StateQueued, To: job.StateRunning})
		requireBacklog("1", "1", "0", 60)
		p.Transition(first, job.Transition{From: job.StateRunning, To: job.StateCancellationRequested})
		requireBacklog("1", "0", "1", 60)
		p.Transition(first, job.Transition{From: job.StateCancellationRequested, To: job.StateCancelled})
		requireBacklog("1", "0", "0", 60)
		p.Close()
		requireBacklog("0", "0", "0", 0)
		require.InDelta(t, 1, testutil.ToFloat64(m.failures.WithLabelValues(codeUnknown)), 0, "one was cancelled")
		require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(waitedTwoMinutes), "rackbus_job_queue_seconds"))
	})
}

const waitedTwoMinutes = `
# HELP rackbus_job_queue_seconds Time from a job's admission to its start, waiting for its node or its wave included.
# TYPE rackbus_job_queue_seconds histogram
rackbus_job_queue_seconds_bucket{le="0.1"} 0
rackbus_job_queue_seconds_bucket{le="0.5"} 0
rackbus_job_queue_seconds_bucket{le="1"} 0
rackbus_job_queue_seconds_bucket{le="5"} 0
rackbus_job_queue_seconds_bucket{le="15"} 0
rackbus_job_queue_seconds_bucket{le="60"} 0
rackbus_job_queue_seconds_bucket{le="300"} 1
rackbus_job_queue_seconds_bucket{le="1800"} 1
rackbus_job_queue_seconds_bucket{le="3600"} 1
rackbus_job_queue_seconds_bucket{le="14400"} 1
rackbus_job_queue_seconds_bucket{le="86400"} 1
rackbus_job_queue_seconds_bucket{le="+Inf"} 1
rackbus_job_queue_seconds_sum 120
rackbus_job_queue_seconds_count 1
`
