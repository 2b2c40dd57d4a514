// SPDX-License-Identifier: Apache-2.0

package diagnostics

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rackbus/rackbus/pkg/job"
)

// Collector reads one thing of a node.
type Collector interface {
	// Name is a stable snake_case word, which manifests and metrics show.
	Name() string
	// Required says that without it there is nothing to classify by.
	Required() bool
	// Collect gives what it reads to the sink. It returns Skip when the node has
	// nothing of the kind. What it gave before an error stays in the bundle.
	Collect(ctx context.Context, into Sink) error
}

// NewCollector returns a Collector of a function.
func NewCollector(name string, required bool, collect func(ctx context.Context, into Sink) error) Collector {
	return &function{name, required, collect}
}

type function struct {
	name     string
	required bool
	collect  func(ctx context.Context, into Sink) error
}

func (f *function) Name() string { return f.name }

func (f *function) Required() bool { return f.required }

func (f *function) Collect(ctx context.Context, into Sink) error { return f.collect(ctx, into) }

// Preconditioner is a Collector that can tell before anything is read whether the
// node may be examined. An error that is a *StateError fails the run with
// NODE_DIAGNOSTICS_UNEXPECTED_PROVISION_STATE; another one is the collector's own
// failure.
type Preconditioner interface {
	Precondition(ctx context.Context) error
}

// Fingerprinter is a Collector that can tell the state which must stay the same
// while the node is examined.
type Fingerprinter interface {
	Fingerprint(ctx context.Context) (Fingerprint, error)
}

// Sink takes files. Secrets in them are masked.
type Sink interface {
	// JSON adds v as a document that rules can look at.
	JSON(name string, v any) error
	// Text adds plain text.
	Text(name, content string) error
}

// StateError says that a node is in a state in which it may not be examined.
type StateError struct {
	State string
	// Wanted are the states in which it may.
	Wanted []string
}

// Error names both.
func (e *StateError) Error() string {
	return fmt.Sprintf("the node is in provision state %q, it can be examined in %q", clip(MaskText(e.State), maxState), e.Wanted)
}

// skipError says that a node has nothing to collect.
type skipError struct{ reason string }

func (e *skipError) Error() string { return e.reason }

// Skip ends a collector that finds nothing of its kind on the node.
func Skip(reason string) error { return &skipError{reason} }

// Runner runs collectors.
type Runner struct {
	// Limit is how long one collector may take.
	Limit time.Duration
	// Fatal tells errors that end the whole run, since this process may not touch
	// the node any more; nil knows none.
	Fatal func(error) bool
	// Started is called before each collector; may be nil.
	Started func(index int, c Collector)
}

// Sinks gives each collector its part of the bundle.
type Sinks interface {
	Sink(collector string) Sink
}

// Run runs every collector, also behind one that failed. It returns an error only
// when ctx has ended or an error is fatal; what was collected is of no use then.
func (r Runner) Run(ctx context.Context, collectors []Collector, into Sinks) ([]job.CollectorOutcome, error) {
	out := make([]job.CollectorOutcome, 0, len(collectors))
	for i, c := range collectors {
		if r.Started != nil {
			r.Started(i, c)
		}
		o, err := r.one(ctx, c, into.Sink(c.Name()))
		if err != nil {
			return nil, err
		}
		out = append(out, o)
	}
	return out, nil
}

func (r Runner) one(ctx context.Context, c Collector, into Sink) (job.CollectorOutcome, error) {
	started := time.Now()
	cctx, cancel := context.WithTimeout(ctx, r.Limit)
	defer cancel()
	err := c.Collect(cctx, into)
	if ctx.Err() != nil {
		return job.CollectorOutcome{}, context.Cause(ctx)
	}
	if err != nil && r.Fatal != nil && r.Fatal(err) {
		return job.CollectorOutcome{}, err
	}
	o := job.CollectorOutcome{
		Name: c.Name(), Required: c.Required(), Status: job.CollectorCollected, Duration: time.Since(started),
	}
	var skip *skipError
	switch {
	case err == nil:
	case errors.As(err, &skip):
		o.Status, o.Message = job.CollectorSkipped, skip.reason
	case cctx.Err() != nil:
		o.Status, o.Message = job.CollectorFailed, fmt.Sprintf("not done after %s: %v", r.Limit, err)
	default:
		o.Status, o.Message = job.CollectorFailed, err.Error()
	}
	o.Message = clip(MaskText(o.Message), maxMessage)
	return o, nil
}

// maxMessage bounds the message of a collector in bytes: records carry all of them.
const maxMessage = 512

// clip cuts a text to at most n bytes, at the end of a character.
func clip(text string, n int) string {
	if len(text) <= n {
		return text
	}
	const mark = "..."
	cut := 0
	for i := range text {
		if i > n-len(mark) {
			break
		}
		cut = i
	}
	return text[:cut] + mark
}

// failedRequired returns the required collectors that failed.
func failedRequired(outcomes []job.CollectorOutcome) []job.CollectorOutcome {
	var out []job.CollectorOutcome
	for _, o := range outcomes {
		if o.Required && o.Status == job.CollectorFailed {
			out = append(out, o)
		}
	}
	return out
}

// complete reports whether no collector failed.
func complete(outcomes []job.CollectorOutcome) bool {
	for _, o := range outcomes {
		if o.Status == job.CollectorFailed {
			return false
		}
	}
	return true
}
