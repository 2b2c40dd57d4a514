// SPDX-License-Identifier: Apache-2.0

package api

import (
	"github.com/prometheus/client_golang/prometheus"
)

// metrics is what the API tells about its work beyond the gRPC metrics.
type metrics struct {
	conflicts  prometheus.Counter
	admitted   *prometheus.CounterVec
	refused    *prometheus.CounterVec
	queries    *prometheus.CounterVec
	viewJobs   prometheus.Gauge
	hashSecond prometheus.Histogram
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
		hashSecond: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "rackbus_api_firmware_hash_seconds",
			Help:    "Time to hash a firmware file at admission.",
			Buckets: []float64{0.01, 0.1, 0.5, 1, 2, 5, 10, 30},
		}),
	}
	r.MustRegister(m.conflicts, m.admitted, m.refused, m.queries, m.viewJobs, m.hashSecond)
	return m
}
