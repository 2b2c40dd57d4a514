// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

type metrics struct {
	inFlight        prometheus.Gauge
	sessionValidity prometheus.Gauge
	sessionsLost    prometheus.Counter
	takeovers       prometheus.Counter
	claims          *prometheus.CounterVec
	finished        *prometheus.CounterVec
	queries         *prometheus.HistogramVec
}

// queryBuckets cover a local answer up to a slow inventory walk, in seconds.
var queryBuckets = []float64{0.005, 0.02, 0.1, 0.5, 2, 10, 60, 300}

func newMetrics(reg prometheus.Registerer, family node.Family) *metrics {
	labels := prometheus.Labels{"family": string(family)}
	opts := func(name, help string) prometheus.Opts {
		return prometheus.Opts{Namespace: "rackbus", Subsystem: "agent", Name: name, Help: help, ConstLabels: labels}
	}
	m := &metrics{
		inFlight:        prometheus.NewGauge(prometheus.GaugeOpts(opts("jobs_in_flight", "Jobs this process works on."))),
		sessionValidity: prometheus.NewGauge(prometheus.GaugeOpts(opts("session_validity_seconds", "How long the session is certain without another renewal."))),
		sessionsLost:    prometheus.NewCounter(prometheus.CounterOpts(opts("sessions_lost_total", "Sessions that were lost and replaced."))),
		takeovers:       prometheus.NewCounter(prometheus.CounterOpts(opts("takeovers_total", "Jobs taken over from another owner."))),
		claims:          prometheus.NewCounterVec(prometheus.CounterOpts(opts("claims_total", "Delivered commands by what became of them.")), []string{"result"}),
		finished:        prometheus.NewCounterVec(prometheus.CounterOpts(opts("jobs_finished_total", "Jobs reported as ended.")), []string{"type", "state"}),
		queries: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "rackbus", Subsystem: "agent", Name: "query_seconds", Help: "Synchronous requests on nodes.",
			ConstLabels: labels, Buckets: queryBuckets,
		}, []string{"op", "result"}),
	}
	for _, result := range []string{"claimed", "done", "gone", "not_admitted", "owner_alive", "duplicate", "draining", "error"} {
		m.claims.WithLabelValues(result)
	}
	reg.MustRegister(m.inFlight, m.sessionValidity, m.sessionsLost, m.takeovers, m.claims, m.finished, m.queries)
	return m
}

func (m *metrics) query(op string, reply *rackbusv1.NodeReply, took time.Duration) {
	result := "ok"
	if reply.GetError() != nil {
		result = "error"
	}
	m.queries.WithLabelValues(op, result).Observe(took.Seconds())
}
