// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rackbus/rackbus/pkg/job"
)

// states are the states of jobs that have not ended.
var states = [...]job.State{job.StateQueued, job.StateRunning, job.StateCancellationRequested}

// waits covers an idle agent up to a job that waits a day for its node, in seconds.
var waits = []float64{0.1, 0.5, 1, 5, 15, 60, 300, 1800, 3600, 14400, 86400}

// backlog is what the jobs that work on hardware wait for: how many there are by
// state, how long they waited before they started, and since when the oldest waits.
// Parents are not in it.
type backlog struct {
	inState *prometheus.GaugeVec
	waited  prometheus.Histogram
	oldest  prometheus.GaugeFunc

	mu     sync.Mutex
	queued map[job.ID]time.Time
}

func newBacklog() *backlog {
	b := &backlog{
		inState: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "rackbus_jobs_in_state",
			Help: "Jobs other than parents that have not ended, by state, in the partitions this process is active for.",
		}, []string{"state"}),
		waited: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "rackbus_job_queue_seconds", Buckets: waits,
			Help: "Time from a job's admission to its start, waiting for its node or its wave included.",
		}),
		queued: make(map[job.ID]time.Time),
	}
	b.oldest = prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "rackbus_jobs_queued_oldest_seconds",
		Help: "Age of the oldest queued job, in the partitions this process is active for; 0 without any.",
	}, b.age)
	for _, s := range states {
		b.inState.WithLabelValues(s.String())
	}
	return b
}

func (b *backlog) collectors() []prometheus.Collector {
	return []prometheus.Collector{b.inState, b.waited, b.oldest}
}

// move takes a job from one state into another; states that have ended or are
// unspecified are not counted.
func (b *backlog) move(r *job.Record, from, to job.State) {
	b.add(from, -1)
	b.add(to, 1)
	if from == job.StateQueued && to == job.StateRunning && !r.StartedAt.IsZero() {
		b.waited.Observe(r.StartedAt.Sub(r.CreatedAt).Seconds())
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if to == job.StateQueued {
		b.queued[r.ID] = r.CreatedAt
	} else {
		delete(b.queued, r.ID)
	}
}

func (b *backlog) add(s job.State, n float64) {
	if s != job.StateUnspecified && !s.Terminal() {
		b.inState.WithLabelValues(s.String()).Add(n)
	}
}

func (b *backlog) age() float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	oldest := now
	for _, since := range b.queued {
		if since.Before(oldest) {
			oldest = since
		}
	}
	return now.Sub(oldest).Seconds()
}

// leave takes the jobs of a partition out again.
func (b *backlog) leave(live map[job.ID]job.State) {
	for _, s := range live {
		b.add(s, -1)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for id := range live {
		delete(b.queued, id)
	}
}
