// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rackbus/rackbus/pkg/job"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// Resume is how a stage goes on after its owner died.
type Resume uint8

const (
	// Repeatable stages only read, or end in the same state when repeated.
	Repeatable Resume = iota
	// Resumable stages continue from what the workflow saved, for example by
	// polling the task they had found.
	Resumable
	// Once stages change the device and must not be repeated blindly. Their
	// intent is recorded before; whoever takes over observes the device.
	Once
)

// String returns the name of the kind.
func (r Resume) String() string {
	switch r {
	case Repeatable:
		return "repeatable"
	case Resumable:
		return "resumable"
	case Once:
		return "once"
	default:
		return "unknown"
	}
}

// Observation is what a look at the device tells about an interrupted Once stage.
type Observation uint8

const (
	// ObservedUnknown means that it cannot be known whether the device took it.
	ObservedUnknown Observation = iota
	// ObservedNotStarted means that the device never got the change.
	ObservedNotStarted
	// ObservedDone means that the device took the change; its handle, if it has
	// one, was put into the workflow's state.
	ObservedDone
)

// String returns the name of the observation.
func (o Observation) String() string {
	switch o {
	case ObservedNotStarted:
		return "not_started"
	case ObservedDone:
		return "done"
	default:
		return "unknown"
	}
}

// Stage is one step of a workflow.
type Stage struct {
	Name        string
	Description string
	// Text is the job's state description while the stage runs; default Description.
	Text   string
	Resume Resume
	// Prepare, for Once stages, reads what Observe will need and puts it into the
	// workflow's state, before the intent is recorded. It may return Skip. Nothing
	// has changed yet, so that it is cut by a cancellation and when the process
	// drains.
	Prepare func(ctx context.Context) error
	// Run does the step. It returns Skip when there was nothing to do. Unless the
	// stage is a Once one, its context ends when the process drains.
	Run func(ctx context.Context) error
	// Observe is needed by Once stages.
	Observe func(ctx context.Context) (Observation, error)
	// Interruptible stages are cut by a cancellation. Others are left only at
	// their end: the device is working, and a node that reads cancelled must be
	// free. For the same reason a Resumable stage that is not interruptible
	// follows a Once stage even when the job was asked to stop in between. A Once
	// stage cannot be interruptible.
	Interruptible bool
	// Limit is how long one pass of the stage takes at most until it can be left, 0
	// when the workflow does not know. Whoever asks the job to stop is told it while
	// the stage cannot be cut.
	Limit time.Duration
	// Heeds says that the stage itself looks all the time whether the job was asked
	// to stop, and then leaves with what SafePoint returns. It is not told as one
	// that cannot be cut.
	Heeds bool
	// SwitchesPower says that the stage switches the power of the node, or waits for
	// what becomes of that. What the device logs meanwhile is not taken for a fault.
	SwitchesPower bool
	// Attempts and Pause repeat a stage, and the look at its device, while the
	// error is a RetryError; once when 0. A change whose answer was lost is
	// repeated only when the device shows that it never got it.
	Attempts int
	Pause    time.Duration
}

// errStagesTwice says that a workflow runs a second list of stages. Whoever
// takes it over could not tell which one the checkpoint speaks of.
var errStagesTwice = errors.New("agent: a job runs one list of stages")

// RunStages runs the stages in their order, beginning behind the last one that
// an earlier owner has finished. Between stages it stops when the job was
// asked to, or when the process drains. A job runs one list of stages, the same
// under every owner.
func (t *Task) RunStages(ctx context.Context, stages []Stage) error {
	if err := checkStages(stages); err != nil {
		return err
	}
	next, observe, err := t.resumeAt(stages)
	if err != nil {
		return err
	}
	t.openTimeline(stages, next)
	for i := next; i < len(stages); i++ {
		s := &stages[i]
		resumed := observe && i == next
		if err := t.boundary(ctx, resumed || t.carriesOn(stages, i, next)); err != nil {
			t.stopBefore(err)
			return fmt.Errorf("before stage %s: %w", s.Name, err)
		}
		if err := t.runStage(ctx, s, stopLimit(stages, i), resumed); err != nil {
			return t.stopStage(s, err)
		}
	}
	return nil
}

// pinned reports whether the stage, once the device is being changed, is left only
// at its end.
func (s *Stage) pinned() bool { return s.Resume != Repeatable && !s.Interruptible && !s.Heeds }

// stopLimit is how long it may take from the start of stage i until the job can
// stop: the stage, and those behind it that go on with the same change. It is 0
// when one of them does not tell.
func stopLimit(stages []Stage, i int) time.Duration {
	limit := stages[i].Limit
	for j := i + 1; limit > 0 && j < len(stages) && stages[j].Resume == Resumable && stages[j].pinned(); j++ {
		if stages[j].Limit == 0 {
			return 0
		}
		limit += stages[j].Limit
	}
	return limit
}

func checkStages(stages []Stage) error {
	seen := make(map[string]bool, len(stages))
	for _, s := range stages {
		switch {
		case s.Name == "" || s.Run == nil:
			return fmt.Errorf("agent: stage %q has no name or nothing to run", s.Name)
		case s.Resume == Once && s.Observe == nil:
			return fmt.Errorf("agent: stage %s changes the device once but cannot observe it", s.Name)
		case s.Resume == Once && s.Interruptible:
			return fmt.Errorf("agent: stage %s changes the device once and must not be interruptible", s.Name)
		case seen[s.Name]:
			return fmt.Errorf("agent: stage %s is listed twice", s.Name)
		}
		seen[s.Name] = true
	}
	return nil
}

// resumeAt finds where an earlier owner left off. observe says that this stage
// had announced a change of the device. A checkpoint of a stage that is not
// listed would make everything run again, changes of the device included.
func (t *Task) resumeAt(stages []Stage) (next int, observe bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.staged {
		return 0, false, errStagesTwice
	}
	t.staged = true
	at := t.ck.GetStage()
	if at == "" {
		return 0, false, nil
	}
	for i, s := range stages {
		if s.Name != at {
			continue
		}
		if t.ck.GetPhase() == rackbusv1.CheckpointPhase_CHECKPOINT_PHASE_OUTCOME {
			return i + 1, false, nil
		}
		return i, s.Resume == Once, nil
	}
	return 0, false, Fail(job.FailureOutcomeUnknown, at,
		"interrupted in stage "+at+", which this agent does not know: nothing was repeated", nil)
}

// carriesOn reports whether stage i goes on with what the device is doing
// already, so that a job asked to stop is not left in front of it.
func (t *Task) carriesOn(stages []Stage, i, next int) bool {
	if stages[i].Resume != Resumable || stages[i].Interruptible {
		return false
	}
	if i == next && t.Epoch() > 1 {
		return true // an earlier owner may have been in it
	}
	return i > 0 && stages[i-1].Resume != Repeatable
}

// boundary returns why the job stops between two stages.
func (t *Task) boundary(ctx context.Context, carriesOn bool) error {
	err := t.SafePoint(ctx)
	if !carriesOn || !errors.Is(err, ErrCancelled) {
		return err
	}
	if t.f.draining() {
		return ErrHandedOver
	}
	return nil
}

// runStage enters a stage, does it, and records that it has ended.
func (t *Task) runStage(ctx context.Context, s *Stage, limit time.Duration, observe bool) (err error) {
	ctx, end := traceStage(ctx, s.Name)
	defer func() { end(err) }()
	// What cuts the stage does not keep its outcome from being recorded.
	sctx, leave := t.enter(ctx, s, limit, observe)
	defer leave()
	err = t.passStage(sctx, s, limit, observe)
	var skip *skipError
	switch {
	case errors.As(err, &skip):
		t.skipCurrent(skip.reason)
		return t.saveOutcome(ctx, s)
	case err != nil && sctx.Err() != nil:
		// What cut the stage says more than the error it has led to.
		if cause := context.Cause(sctx); !errors.Is(err, cause) {
			err = fmt.Errorf("%w: %w", cause, err)
		}
		return err
	case err != nil:
		return err
	}
	t.completeCurrent()
	return t.saveOutcome(ctx, s)
}

// passStage does the step of a stage, unless the device shows that an earlier
// owner has done it.
func (t *Task) passStage(ctx context.Context, s *Stage, limit time.Duration, observe bool) error {
	if observe {
		done, err := t.observeStage(ctx, s)
		if err != nil || done {
			return err
		}
		// The device is as it was before the stage.
		if err := t.SafePoint(ctx); err != nil {
			return err
		}
	}
	if s.Resume == Once {
		if err := t.prepare(ctx, s); err != nil {
			return err
		}
		t.pin(s, limit)
		if err := t.checkpoint(ctx, s.Name, rackbusv1.CheckpointPhase_CHECKPOINT_PHASE_INTENT); err != nil {
			return err
		}
		if err := t.Failpoint(FailAfterIntent); err != nil {
			return err
		}
	}
	if err := t.Failpoint(FailInStage + s.Name); err != nil {
		return err
	}
	return t.perform(ctx, s)
}

// prepare does what comes before the change of a Once stage. Up to its end the
// device is as it was, and the job can stop.
func (t *Task) prepare(ctx context.Context, s *Stage) error {
	if s.Prepare == nil {
		return t.SafePoint(ctx)
	}
	pctx, cut := context.WithCancelCause(ctx)
	defer cut(context.Canceled)
	stop := context.AfterFunc(t.f.drained, func() { cut(ErrHandedOver) }) //nolint:contextcheck // the end of the process cuts it
	defer stop()
	t.mu.Lock()
	t.cutPrepare = cut
	asked := t.asked
	t.mu.Unlock()
	defer func() {
		t.mu.Lock()
		t.cutPrepare = nil
		t.mu.Unlock()
	}()
	if asked != nil {
		cut(ErrCancelled)
	}
	err := s.Prepare(pctx)
	var skip *skipError
	switch {
	case errors.As(err, &skip):
		return err
	case err != nil && pctx.Err() != nil:
		return context.Cause(pctx)
	case err != nil:
		return err
	}
	return t.SafePoint(ctx)
}

// saveOutcome records the end of a stage. Stages that can simply be repeated
// need no record of it.
func (t *Task) saveOutcome(ctx context.Context, s *Stage) error {
	if s.Resume == Repeatable {
		return nil
	}
	return t.checkpoint(ctx, s.Name, rackbusv1.CheckpointPhase_CHECKPOINT_PHASE_OUTCOME)
}

// stopStage marks the stage that ended the workflow; a handed-over job goes on.
func (t *Task) stopStage(s *Stage, err error) error {
	if !errors.Is(err, ErrHandedOver) {
		t.failCurrent(t.mask.told(err))
	}
	return fmt.Errorf("stage %s: %w", s.Name, err)
}

// stopBefore marks what is left when the workflow ends between two stages.
func (t *Task) stopBefore(err error) {
	if errors.Is(err, ErrHandedOver) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.timeline = t.timeline.SkipRemaining(now())
}
