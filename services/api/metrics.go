// SPDX-License-Identifier: Apache-2.0

package api

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rackbus/rackbus/pkg/admission"
	"github.com/rackbus/rackbus/pkg/job"
)

// metrics is what the API tells about its work beyond the gRPC metrics.
type metrics struct {
	conflicts  prometheus.Counter
	admitted   *prometheus.CounterVec
	refused    *prometheus.CounterVec
	queries    *prometheus.CounterVec
	viewJobs   prometheus.Gauge
	rollouts   *prometheus.GaugeVec
	hashSecond prometheus.Histogram
	auditLost  prometheus.Counter
	capacity   prometheus.Gauge
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		conflicts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "rackbus_api_admission_conflicts_total",
			Help: "Admissions that lost a race and were run again.",
		}),
		admitted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rackbus_api_admitted_nodes_total",
			Help: "Nodes that were given a job, by job type.",
		}, []string{"type"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rackbus_api_refused_nodes_total",
			Help: "Nodes that were refused a job, by job type and stable failure code.",
		}, []string{"type", "reason"}),
		queries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rackbus_api_agent_requests_total",
			Help: "Synchronous requests to agents, by family, operation and result.",
		}, []string{"family", "op", "result"}),
		viewJobs: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "rackbus_api_listed_jobs",
			Help: "Jobs that ListJobs and WatchJobs of this replica know.",
		}),
		rollouts: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "rackbus_api_rollouts_in_state",
			Help: "Rollouts of batches that have not ended, by state, as every replica knows them.",
		}, []string{"state"}),
		hashSecond: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "rackbus_api_firmware_hash_seconds",
			Help:    "Time to hash a firmware file at admission.",
			Buckets: []float64{0.01, 0.1, 0.5, 1, 2, 5, 10, 30},
		}),
		auditLost: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "rackbus_audit_lost_total",
			Help: "Calls whose audit record could not be stored; the log has them.",
		}),
		capacity: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "rackbus_capacity_limit_records",
			Help: "Job records that admission allows at a time (workflows.max_tracked_jobs).",
		}),
	}
	r.MustRegister(m.conflicts, m.admitted, m.refused, m.queries, m.viewJobs, m.rollouts, m.hashSecond, m.auditLost, m.capacity)
	for s := job.RolloutRunning; s <= job.RolloutReleased; s++ {
		m.setRollouts(s, 0)
	}
	return m
}

// setRollouts sets how many rollouts are in a state.
func (m *metrics) setRollouts(s job.RolloutState, rollouts float64) {
	m.rollouts.WithLabelValues(s.String()).Set(rollouts)
}

// hashTimer measures how long a firmware file takes to be found and hashed.
func (m *metrics) hashTimer() *prometheus.Timer { return prometheus.NewTimer(m.hashSecond) }

// leafAdmission counts the outcome of a single job.
func (m *metrics) leafAdmission(t job.Type, err error) {
	var refusal *admission.Refusal
	switch {
	case err == nil:
		m.admitted.WithLabelValues(string(t)).Inc()
	case errors.As(err, &refusal):
		m.refused.WithLabelValues(string(t), string(refusal.Code)).Inc()
	}
}

// batchAdmission counts the outcomes of a batch.
func (m *metrics) batchAdmission(t job.Type, res admission.Result) {
	for i := range res.Nodes {
		if r := res.Nodes[i].Refusal; r != nil {
			m.leafAdmission(t, r)
		} else {
			m.leafAdmission(t, nil)
		}
	}
}
