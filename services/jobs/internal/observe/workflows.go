// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"log/slog"

	"github.com/rackbus/rackbus/pkg/job"
)

// typeUnknown is the label of a type this version does not know, so that the
// label set stays bounded.
const typeUnknown = "unknown"

// codeUnknown is that of a failure code this version does not know.
const codeUnknown = "unknown"

// Partition counts and logs the state changes of one partition while this
// process is its active fold. It is used by one goroutine.
type Partition struct {
	m    *Metrics
	log  *slog.Logger
	live map[workflow]int
	// jobs are those that the backlog counts.
	jobs map[job.ID]job.State
}

type workflow struct{ typ, leaf string }

// NewPartition starts with nothing in flight.
func NewPartition(m *Metrics, log *slog.Logger) *Partition {
	return &Partition{m: m, log: log, live: make(map[workflow]int), jobs: make(map[job.ID]job.State)}
}

// Existing counts a job that was in flight when this process became active.
// Jobs that nobody was told of yet are counted by their first transition.
func (p *Partition) Existing(r *job.Record) {
	if r.PublicN == 0 || r.State.Terminal() {
		return
	}
	if r.Visible {
		p.add(workflowOf(r), 1)
	}
	p.move(r, r.State)
}

// Transition counts and logs one committed change of state of r.
func (p *Partition) Transition(r *job.Record, t job.Transition) {
	p.count(r, t)
	p.write(r, t)
}

// count takes a change into account. Workflows are, as published, the jobs whose ids
// callers have; the backlog and the failures have the children of batches too.
func (p *Partition) count(r *job.Record, t job.Transition) {
	p.move(r, t.To)
	if t.To.Terminal() && t.To != job.StateCompleted {
		p.m.failures.WithLabelValues(failureLabel(r.Failure)).Inc()
	}
	if !r.Visible {
		return
	}
	w := workflowOf(r)
	if t.From == job.StateUnspecified {
		p.m.workflows.WithLabelValues(w.typ, w.leaf, "queued", "none").Inc()
		p.add(w, 1)
	}
	if !t.To.Terminal() {
		return
	}
	p.add(w, -1)
	if t.To == job.StateCompleted {
		p.m.workflows.WithLabelValues(w.typ, w.leaf, "completed", "none").Inc()
		return
	}
	code := job.CodeUnspecified
	if r.Failure != nil {
		code = r.Failure.Code
	}
	p.m.workflows.WithLabelValues(w.typ, w.leaf, "failed", code.Label()).Inc()
}

// failureLabel is a code of the table: others could have any number of values.
func failureLabel(f *job.Failure) string {
	if f == nil {
		return codeUnknown
	}
	if _, known := f.FailureCode.Info(); !known {
		return codeUnknown
	}
	return string(f.FailureCode)
}

func (p *Partition) add(w workflow, n int) {
	p.live[w] += n
	p.m.inFlight.WithLabelValues(w.typ, w.leaf).Add(float64(n))
}

// move tells the backlog of a job's new state.
func (p *Partition) move(r *job.Record, to job.State) {
	if r.Kind == job.KindParent {
		return
	}
	p.m.backlog.move(r, p.jobs[r.ID], to)
	if to.Terminal() {
		delete(p.jobs, r.ID)
	} else {
		p.jobs[r.ID] = to
	}
}

// Close takes the partition's jobs out of the gauge: another process counts
// them from now on.
func (p *Partition) Close() {
	for w, n := range p.live {
		p.m.inFlight.WithLabelValues(w.typ, w.leaf).Sub(float64(n))
	}
	clear(p.live)
	p.m.backlog.leave(p.jobs)
	clear(p.jobs)
}

func workflowOf(r *job.Record) workflow {
	w := workflow{typ: typeUnknown, leaf: "false"}
	if _, known := r.Type.Info(); known {
		w.typ = string(r.Type)
	}
	if r.NodeID != "" {
		w.leaf = "true"
	}
	return w
}

// message is the log message for a change of state.
func message(t job.Transition) string {
	if t.From == job.StateUnspecified {
		return "job created"
	}
	switch t.To {
	case job.StateRunning:
		return "job started"
	case job.StateCancellationRequested:
		return "job cancellation requested"
	case job.StateCompleted:
		return "job completed"
	case job.StateFailed:
		return "job failed"
	case job.StatePartiallyFailed:
		return "job partially failed"
	case job.StateCancelled:
		return "job cancelled"
	case job.StateTerminated:
		return "job terminated"
	case job.StateSuperseded:
		return "job superseded"
	case job.StateTimedOut:
		return "job timed out"
	case job.StateUnspecified, job.StateQueued:
	}
	return "job changed"
}

func (p *Partition) write(r *job.Record, t job.Transition) {
	attrs := make([]any, 0, 18)
	attrs = append(attrs, "job_id", r.ID.String())
	if parent, ok := r.ParentID(); ok {
		attrs = append(attrs, "parent_job_id", parent.String())
	}
	attrs = append(attrs, "type", string(r.Type), "rack", r.RackID, "node", r.NodeID, "state", t.To.String())
	if r.Epoch > 0 {
		attrs = append(attrs, "epoch", r.Epoch, "attempt", r.Attempt)
	}
	if t.To.Terminal() && r.Failure != nil {
		attrs = append(attrs, "failure_code", string(r.Failure.FailureCode), "description", r.Failure.Message)
	} else {
		attrs = append(attrs, "description", t.Description)
	}
	p.log.Info(message(t), attrs...) //nolint:sloglint // One of the constants that message has.
}
