// SPDX-License-Identifier: Apache-2.0

// Package observe turns what the jobs service does into metrics and log lines.
package observe

import (
	"errors"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
)

// Results of a commit, as label values.
const (
	ResultOK       = "ok"
	ResultConflict = "conflict"
	ResultFenced   = "fenced"
	ResultError    = "error"
)

// Results of removing a directory, as label values.
const (
	CleanupRemoved  = "removed"
	CleanupNotFound = "not_found"
	CleanupFailed   = "failed"
	CleanupSkipped  = "skipped"
)

// What became of an artifact that a download was to bring, as label values.
const (
	ArtifactFetched = "fetched"
	ArtifactFound   = "found"
	ArtifactFailed  = "failed"
)

// Results of an event besides the job.Reason of an ignored one.
const (
	resultApplied = "applied"
	resultInvalid = "invalid"
)

// Metrics are the metrics of the jobs service. Their label sets are bounded:
// partitions, kinds, results and job types, never ids.
type Metrics struct {
	lag           *prometheus.GaugeVec
	commits       *prometheus.CounterVec
	commitSeconds prometheus.Histogram
	events        *prometheus.CounterVec
	fenced        prometheus.Counter
	timers        *prometheus.CounterVec
	capacity      prometheus.Gauge
	inFlight      *prometheus.GaugeVec
	workflows     *prometheus.CounterVec
	failures      *prometheus.CounterVec
	cleanups      *prometheus.CounterVec
	artifacts     *prometheus.CounterVec
	artifactBytes prometheus.Counter
	backlog       *backlog
}

// NewMetrics registers the metrics. A nil registerer keeps them private. It
// fails when one of the names is taken by another metric.
func NewMetrics(registerer prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		lag: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "rackbus_fold_lag_events", Help: "Events of a partition that its active fold has not committed yet.",
		}, []string{"partition"}),
		commits: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rackbus_fold_commits_total", Help: "Commits of the fold by result.",
		}, []string{"result"}),
		commitSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "rackbus_fold_commit_seconds", Help: "Time a successful commit of the fold took.",
			Buckets: []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5},
		}),
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rackbus_fold_events_total", Help: "Events read by the fold, by kind and by what became of them.",
		}, []string{"kind", "result"}),
		fenced: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "rackbus_fold_fenced_total", Help: "Commits refused because another fold is active on the partition.",
		}),
		timers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rackbus_timers_total", Help: "Timers handled, by kind and result.",
		}, []string{"kind", "result"}),
		capacity: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "rackbus_capacity_records", Help: "Tracked job records as the admission counter has them.",
		}),
		inFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "rackbus_workflows_in_flight",
			Help: "Workflows that have not ended, in the partitions this process is active for.",
		}, []string{"workflow_type", "is_leaf"}),
		workflows: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rackbus_workflows_counts_total",
			Help: "Workflows that were created (queued) or have ended, counted once each.",
		}, []string{"workflow_type", "is_leaf", "workflow_state", "error_code"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rackbus_workflow_failures_total",
			Help: "Jobs that have ended without being completed, batches and their children alike, by failure code.",
		}, []string{"failure_code"}),
		cleanups: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rackbus_cleanups_total", Help: "Directories of ended jobs that were to be removed, by what became of it, repetitions included.",
		}, []string{"result"}),
		artifacts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rackbus_artifacts_total",
			Help: "Firmware artifacts that downloads were to bring, by what became of them, repetitions included.",
		}, []string{"result"}),
		artifactBytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "rackbus_artifact_bytes_total",
			Help: "Bytes of firmware artifacts that came from their sources, those of tries that failed included.",
		}),
		backlog: newBacklog(),
	}
	m.preset()
	if registerer == nil {
		return m, nil
	}
	var errs []error
	for _, c := range append(m.backlog.collectors(),
		m.lag, m.commits, m.commitSeconds, m.events, m.fenced, m.timers, m.capacity, m.inFlight, m.workflows,
		m.failures, m.cleanups, m.artifacts, m.artifactBytes,
	) {
		errs = append(errs, registerer.Register(c))
	}
	return m, errors.Join(errs...)
}

// preset makes every series that can be foreseen readable as zero.
func (m *Metrics) preset() {
	for _, r := range []string{ResultOK, ResultConflict, ResultFenced, ResultError} {
		m.commits.WithLabelValues(r)
	}
	for k := job.EventQueued; k <= job.EventFinished; k++ {
		m.events.WithLabelValues(k.String(), resultApplied)
	}
	for _, k := range []bus.TimerKind{bus.TimerAdmit, bus.TimerDeadline, bus.TimerCancel, bus.TimerReap, bus.TimerCleanup, bus.TimerRollout, bus.TimerDiagnose} {
		m.timers.WithLabelValues(string(k), ResultOK)
		m.timers.WithLabelValues(string(k), ResultError)
	}
	for _, f := range job.FailureCodes() {
		m.failures.WithLabelValues(string(f.FailureCode))
	}
	for _, r := range []string{CleanupRemoved, CleanupNotFound, CleanupFailed, CleanupSkipped} {
		m.cleanups.WithLabelValues(r)
	}
	for _, r := range []string{ArtifactFetched, ArtifactFound, ArtifactFailed} {
		m.artifacts.WithLabelValues(r)
	}
	for _, t := range job.Types() {
		for _, leaf := range []string{"true", "false"} {
			m.inFlight.WithLabelValues(string(t.Type), leaf)
			m.workflows.WithLabelValues(string(t.Type), leaf, "queued", "none")
			m.workflows.WithLabelValues(string(t.Type), leaf, "completed", "none")
		}
	}
}

// Lag sets how many events of a partition wait to be committed.
func (m *Metrics) Lag(partition int, events uint64) {
	m.lag.WithLabelValues(strconv.Itoa(partition)).Set(float64(events))
}

// Left says that this process is not active for a partition any more.
func (m *Metrics) Left(partition int) { m.lag.DeleteLabelValues(strconv.Itoa(partition)) }

// Commit counts one try of the fold to commit. seconds count for ResultOK only.
func (m *Metrics) Commit(result string, seconds float64) {
	m.commits.WithLabelValues(result).Inc()
	switch result {
	case ResultOK:
		m.commitSeconds.Observe(seconds)
	case ResultFenced:
		m.fenced.Inc()
	}
}

// Event counts an event that was read. reason is empty for one that changed a
// record.
func (m *Metrics) Event(kind job.EventKind, reason job.Reason, err error) {
	result := resultApplied
	switch {
	case err != nil:
		result = resultInvalid
	case reason != "":
		result = string(reason)
	}
	m.events.WithLabelValues(kind.String(), result).Inc()
}

// Timer counts a timer that was handled.
func (m *Metrics) Timer(kind bus.TimerKind, err error) {
	switch kind {
	case bus.TimerAdmit, bus.TimerDeadline, bus.TimerCancel, bus.TimerReap, bus.TimerCleanup, bus.TimerRollout, bus.TimerDiagnose:
	default:
		kind = "unknown"
	}
	result := ResultOK
	if err != nil {
		result = ResultError
	}
	m.timers.WithLabelValues(string(kind), result).Inc()
}

// Cleanup counts a directory of an ended job by what became of it.
func (m *Metrics) Cleanup(result string) { m.cleanups.WithLabelValues(result).Inc() }

// Artifact counts an artifact of a download by what became of it.
func (m *Metrics) Artifact(result string) { m.artifacts.WithLabelValues(result).Inc() }

// ArtifactBytes counts bytes of artifacts that have come.
func (m *Metrics) ArtifactBytes(n int) { m.artifactBytes.Add(float64(n)) }

// Capacity sets the number of tracked records.
func (m *Metrics) Capacity(records int64) { m.capacity.Set(float64(records)) }
