// SPDX-License-Identifier: Apache-2.0

package diagnostics

import (
	"context"
	"io"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
)

// Defaults of Options.
const (
	DefaultCollectorLimit = 3 * time.Minute
	DefaultMaxRunning     = 32
	DefaultFileBytes      = 4 << 20
	DefaultTotalBytes     = 16 << 20
	DefaultStoreAttempts  = 5
	DefaultStorePause     = 2 * time.Second
)

// Store takes bundles; a *bus.Conn is one.
type Store interface {
	PutEvidence(ctx context.Context, name bus.EvidenceName, r io.Reader) (bus.Evidence, error)
}

// Options configure a Workflow.
type Options struct {
	// Store takes the bundles. Without one, runs fail when they come to it.
	Store Store
	// Collectors returns what examines the node of a task, in the order in which
	// they run. The collector of the job's history is added to them. done, if not nil,
	// is called when the run has ended.
	Collectors func(t *agent.Task) (collectors []Collector, done func(), err error)
	// Rules is the table of known faults; default is Rules().
	Rules []Rule
	// Lost tells errors that say that this process may not touch the node any more,
	// beyond those of the runtime; nil knows no others.
	Lost func(error) bool
	// CollectorLimit is how long one collector may take, and how long it may take to
	// tell the node's state.
	CollectorLimit time.Duration
	// MaxRunning bounds the runs that hold a bundle in memory at a time.
	MaxRunning int
	// Limits of a bundle.
	Limits Limits
	// StoreAttempts are made to store a bundle, StorePause apart.
	StoreAttempts int
	StorePause    time.Duration
	// Version of the build, for manifests.
	Version string
	// Metrics counts the runs; nil counts nowhere.
	Metrics *Metrics
}

func (o Options) withDefaults() Options {
	if o.Rules == nil {
		o.Rules = Rules()
	}
	for value, standard := range map[*int]int{
		&o.MaxRunning: DefaultMaxRunning, &o.Limits.File: DefaultFileBytes, &o.Limits.Total: DefaultTotalBytes,
		&o.StoreAttempts: DefaultStoreAttempts,
	} {
		if *value <= 0 {
			*value = standard
		}
	}
	if o.CollectorLimit <= 0 {
		o.CollectorLimit = DefaultCollectorLimit
	}
	if o.StorePause <= 0 {
		o.StorePause = DefaultStorePause
	}
	return o
}

// Metrics are what agents count of diagnostics runs.
type Metrics struct {
	findings   *prometheus.CounterVec
	collectors *prometheus.HistogramVec
	bundles    prometheus.Histogram
}

// NewMetrics registers the metrics of one agent family.
func NewMetrics(reg prometheus.Registerer, family string) *Metrics {
	labels := prometheus.Labels{"family": family}
	m := &Metrics{
		findings: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rackbus_diagnostics_findings_total", ConstLabels: labels,
			Help: "Diagnostics runs that could classify, by failure signature.",
		}, []string{"failure_signature"}),
		collectors: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "rackbus_diagnostics_collector_duration_seconds", ConstLabels: labels,
			Help:    "Duration of collectors, by what became of them.",
			Buckets: []float64{.1, .5, 1, 5, 15, 60, 180},
		}, []string{"collector", "status"}),
		bundles: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "rackbus_diagnostics_bundle_bytes", ConstLabels: labels,
			Help:    "Size of stored evidence bundles.",
			Buckets: prometheus.ExponentialBuckets(1<<12, 4, 8),
		}),
	}
	reg.MustRegister(m.findings, m.collectors, m.bundles)
	return m
}

func (m *Metrics) collected(outcomes []job.CollectorOutcome) {
	if m == nil {
		return
	}
	for _, o := range outcomes {
		m.collectors.WithLabelValues(o.Name, o.Status.String()).Observe(o.Duration.Seconds())
	}
}

func (m *Metrics) classified(f *Finding) {
	if m != nil {
		m.findings.WithLabelValues(f.Signature).Inc()
	}
}

func (m *Metrics) stored(bytes int) {
	if m != nil {
		m.bundles.Observe(float64(bytes))
	}
}
