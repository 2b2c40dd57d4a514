// SPDX-License-Identifier: Apache-2.0

package diagnostics

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/job"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// Phases of a run, as a failure names them.
const (
	phasePrepare  = "prepare"
	phaseCollect  = "collect"
	phaseClassify = "classify"
	phaseStore    = "store"
)

// Workflow runs jobs of type node_diagnostics.
type Workflow struct {
	opts  Options
	seats chan struct{}
}

// New returns the workflow of one agent.
func New(opts Options) *Workflow {
	opts = opts.withDefaults()
	return &Workflow{opts: opts, seats: make(chan struct{}, opts.MaxRunning)}
}

// run is one job. All of it only reads the node, so whoever takes it over begins
// anew and replaces the bundle as a whole.
type run struct {
	w          *Workflow
	t          *agent.Task
	order      *rackbusv1.NodeDiagnosis
	collectors []Collector
	started    time.Time
	seated     bool

	before, after Fingerprint
	changes       []string
	content       bytes.Buffer
	bundle        *Bundle
	// manifest is set once the bundle has ended.
	manifest *Manifest
	outcomes []job.CollectorOutcome
	finding  *Finding
	stored   *job.EvidenceBundle
	// failure is why the run fails although its bundle is stored.
	failure *agent.FailureError
}

// Run examines the node of a task. It is a handler of the agent's runtime.
func (w *Workflow) Run(ctx context.Context, t *agent.Task) (agent.Outcome, error) {
	collectors, done, err := w.opts.Collectors(t)
	if done != nil {
		defer done()
	}
	if err != nil {
		return agent.Outcome{}, err
	}
	r := &run{w: w, t: t, order: t.Command().GetNodeDiagnosis()}
	r.collectors = append([]Collector{history{r.order}}, collectors...)
	defer r.leaveSeat()
	err = t.RunStages(ctx, []agent.Stage{
		{
			Name: phasePrepare, Description: "Checking whether the node can be examined",
			Resume: agent.Repeatable, Interruptible: true, Run: r.prepare,
		},
		{
			Name: phaseCollect, Description: "Collecting what the node tells",
			Resume: agent.Repeatable, Interruptible: true, Run: r.collect,
		},
		{
			Name: phaseClassify, Description: "Looking for known faults",
			Resume: agent.Repeatable, Interruptible: true, Run: r.classify,
		},
		{
			Name: phaseStore, Description: "Storing the evidence",
			Resume: agent.Repeatable, Interruptible: true, Run: r.store,
		},
		{
			Name: "conclude", Description: "Concluding",
			Resume: agent.Repeatable, Interruptible: true, Run: r.conclude,
		},
	})
	return r.outcome(), err
}

// takeSeat waits until this process has room for another bundle. The run keeps the
// seat until it has ended.
func (r *run) takeSeat(ctx context.Context) error {
	if r.seated {
		return nil // the stage is repeated
	}
	select {
	case r.w.seats <- struct{}{}:
		r.seated = true
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (r *run) leaveSeat() {
	if r.seated {
		<-r.w.seats
	}
}

// prepare asks whether the node may be examined, and notes its state.
func (r *run) prepare(ctx context.Context) error {
	if err := r.takeSeat(ctx); err != nil {
		return err
	}
	for _, c := range r.collectors {
		p, ok := c.(Preconditioner)
		if !ok {
			continue
		}
		err := precondition(ctx, p, r.w.opts.CollectorLimit)
		var state *StateError
		switch {
		case errors.As(err, &state):
			return agent.Fail(job.FailureDiagnosticsProvisionState, phasePrepare, state.Error(), err)
		case err != nil && r.lost(ctx, err):
			return err
		case err != nil:
			// Collect tells it again, as the collector's outcome.
			r.t.Logger().Warn("precondition not read", "collector", c.Name(), "err", err)
		}
	}
	r.started = time.Now().UTC()
	var err error
	if r.before, err = fingerprint(ctx, r.collectors, r.w.opts.CollectorLimit); err != nil {
		if r.lost(ctx, err) {
			return err
		}
		r.t.Logger().Warn("state of the node not read", "err", err)
	}
	return nil
}

// lost reports whether an error says that this process may not go on by itself.
func (r *run) lost(ctx context.Context, err error) bool {
	return ctx.Err() != nil || errors.Is(err, agent.ErrNotHeld) || errors.Is(err, agent.ErrHandedOver) ||
		r.w.opts.Lost != nil && r.w.opts.Lost(err)
}

func (r *run) collect(ctx context.Context) error {
	r.content.Reset()
	r.manifest = nil
	r.bundle = NewBundle(&r.content, r.w.opts.Limits, r.started)
	runner := Runner{
		Limit: r.w.opts.CollectorLimit, Fatal: func(err error) bool { return r.lost(ctx, err) },
		Started: func(i int, c Collector) {
			r.t.Progress(100*i/len(r.collectors), "Collecting "+strings.ReplaceAll(c.Name(), "_", " "))
		},
	}
	outcomes, err := runner.Run(ctx, r.collectors, r.bundle)
	if err != nil {
		return err
	}
	r.outcomes = outcomes
	r.w.opts.Metrics.collected(outcomes)
	return nil
}

// classify looks whether the node is still as it was, and for a known fault in what
// was collected. Without what is required there is nothing to go by.
func (r *run) classify(ctx context.Context) error {
	r.finding, r.failure, r.changes = nil, nil, nil
	after, err := fingerprint(ctx, r.collectors, r.w.opts.CollectorLimit)
	switch {
	case err != nil && r.lost(ctx, err):
		return err
	case err != nil && r.before != nil:
		r.changes = []string{"the node cannot be read any more: " + MaskText(err.Error())}
	case err == nil && r.before != nil:
		r.changes = r.before.Changes(after)
	}
	r.after = after
	if missing := failedRequired(r.outcomes); len(missing) > 0 {
		parts := make([]string, len(missing))
		for i, o := range missing {
			parts[i] = o.Name + " (" + o.Message + ")"
		}
		r.failure = agent.Fail(job.FailureDiagnosticsClassification, phaseCollect,
			clip("required parts could not be collected: "+strings.Join(parts, "; "), maxFailure), nil)
		return agent.Skip("what is needed to classify could not be collected")
	}
	period := PeriodOf(r.order, r.started)
	f := Classify(r.w.opts.Rules, r.bundle.Evidence(), period, complete(r.outcomes))
	r.finding = &f
	r.w.opts.Metrics.classified(&f)
	r.t.Logger().Info("node classified", "failure_signature", f.Signature, "severity", string(f.Severity))
	if len(r.changes) > 0 {
		r.failure = agent.Fail(job.FailureDiagnosticsStateChanged, phaseClassify,
			clip("the node changed while it was examined: "+strings.Join(r.changes, "; "), maxFailure), nil)
		return nil
	}
	if code, message, failed := FailureIn(r.w.opts.Rules, r.bundle.Evidence(), period); failed {
		r.failure = agent.Fail(code, phaseClassify, clip(message, maxFailure), nil)
	}
	return nil
}

// maxFailure bounds the message of a failed run in bytes.
const maxFailure = 1200

// conclude fails a run whose evidence is stored all the same.
func (r *run) conclude(context.Context) error {
	if r.failure != nil {
		return r.failure
	}
	return nil
}

// outcome is what the job's record tells of the run, also of one that failed.
func (r *run) outcome() agent.Outcome {
	var o agent.Outcome
	if r.finding != nil {
		o.Diagnostics = &job.Diagnostics{
			FailureSignature: r.finding.Signature, Summary: r.finding.Summary, Advice: r.finding.Advice,
			Collectors: r.outcomes, Evidence: r.stored,
		}
		if r.failure == nil {
			o.Description = r.finding.Signature + ": " + r.finding.Summary
		}
	}
	raw, err := json.Marshal(resultOf(r))
	if err != nil {
		r.t.Logger().Error("result not encoded", "err", err)
		return o
	}
	o.ResultJSON = string(raw)
	return o
}

// result is the result_json of a run.
type result struct {
	// NodeDiagnostics is null for a run that failed before it could classify.
	NodeDiagnostics *Finding            `json:"node_diagnostics"`
	AboutJobID      string              `json:"about_job_id,omitempty"`
	Collectors      []ManifestCollector `json:"collectors"`
	Evidence        *ManifestBundle     `json:"evidence"`
}

func resultOf(r *run) result {
	out := result{NodeDiagnostics: r.finding, AboutJobID: r.order.GetAboutJobId(), Collectors: manifestCollectors(r.outcomes)}
	if r.stored != nil {
		out.Evidence = storedBundle(r.stored)
	}
	return out
}
