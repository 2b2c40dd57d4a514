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

// holdPause is how often a paused job looks whether its session is certain again.
const holdPause = 100 * time.Millisecond

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

// Stage is one step of a workflow.
type Stage struct {
	Name        string
	Description string
	Resume      Resume
	// Run does the step. It returns Skip when there was nothing to do.
	Run func(ctx context.Context) error
	// Observe is needed by Once stages.
	Observe func(ctx context.Context) (Observation, error)
	// Interruptible stages may stop for a cancellation while they wait. Others
	// are left only at their end: the device is working, and a node that reads
	// cancelled must be free.
	Interruptible bool
	// Attempts and Pause repeat a stage whose error is a RetryError; once when 0.
	Attempts int
	Pause    time.Duration
}

// RunStages runs the stages in their order, beginning behind the last one that
// an earlier owner has finished. Between stages it stops when the job was
// asked to, or when the process drains.
func (t *Task) RunStages(ctx context.Context, stages []Stage) error {
	if err := checkStages(stages); err != nil {
		return err
	}
	next, observe := t.resumeAt(stages)
	t.openTimeline(stages, next)
	for i := next; i < len(stages); i++ {
		s := &stages[i]
		if err := t.SafePoint(ctx); err != nil {
			return t.stopStage(s, err)
		}
		err := t.runStage(ctx, s, observe && i == next)
		if err != nil {
			return t.stopStage(s, err)
		}
	}
	return nil
}

func checkStages(stages []Stage) error {
	seen := make(map[string]bool, len(stages))
	for _, s := range stages {
		if s.Resume == Once && s.Observe == nil {
			return fmt.Errorf("agent: stage %s changes the device once but cannot observe it", s.Name)
		}
		if seen[s.Name] {
			return fmt.Errorf("agent: stage %s is listed twice", s.Name)
		}
		seen[s.Name] = true
	}
	return nil
}

// resumeAt finds where an earlier owner left off. observe says that this stage
// had announced a change of the device.
func (t *Task) resumeAt(stages []Stage) (next int, observe bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, s := range stages {
		if s.Name != t.ck.GetStage() {
			continue
		}
		if t.ck.GetPhase() == rackbusv1.CheckpointPhase_CHECKPOINT_PHASE_OUTCOME {
			return i + 1, false
		}
		return i, s.Resume == Once
	}
	return 0, false
}

func (t *Task) runStage(ctx context.Context, s *Stage, observe bool) error {
	t.enter(s)
	if observe {
		done, err := t.observeStage(ctx, s)
		if err != nil {
			return err
		}
		if done {
			return t.leave(ctx, s)
		}
	}
	if s.Resume == Once {
		if err := t.checkpoint(ctx, s.Name, rackbusv1.CheckpointPhase_CHECKPOINT_PHASE_INTENT); err != nil {
			return err
		}
	}
	err := t.perform(ctx, s)
	var skip *skipError
	if errors.As(err, &skip) {
		t.skipCurrent(skip.reason)
		return t.saveOutcome(ctx, s)
	}
	if err != nil {
		return err
	}
	return t.leave(ctx, s)
}

// perform runs a stage. When the hold of the node was not certain for a while,
// the stage waits for it and goes on; when the device's answer to a Once stage
// was lost, the device is asked what it has taken.
func (t *Task) perform(ctx context.Context, s *Stage) error {
	for {
		err := t.attempt(ctx, s)
		if err == nil || ctx.Err() != nil {
			return err
		}
		var unknown *UnknownError
		lostAnswer := s.Resume == Once && errors.As(err, &unknown)
		lapsed := errors.Is(err, ErrNotHeld) || !t.sess.Valid()
		if !lostAnswer && !lapsed {
			return err
		}
		if lapsed {
			t.log.Warn("hold of the node not certain, the job pauses", "op", s.Name, "err", err)
			if werr := t.awaitHold(ctx); werr != nil {
				return werr
			}
		}
		if !lostAnswer {
			continue
		}
		seen, oerr := t.resolveUnknown(ctx, s, unknown)
		switch {
		case oerr != nil:
			return oerr
		case seen == ObservedDone:
			return nil
		case !lapsed:
			return unknown.Err
		}
	}
}

// awaitHold waits until the session is certain again, or is lost.
func (t *Task) awaitHold(ctx context.Context) error {
	for !t.sess.Valid() {
		select {
		case <-t.sess.Lost():
			return ErrHandedOver
		default:
		}
		if err := sleep(ctx, holdPause); err != nil {
			return err
		}
	}
	return nil
}

// attempt runs a stage until it succeeds, fails for good, or has no tries left.
func (t *Task) attempt(ctx context.Context, s *Stage) error {
	for n := 1; ; n++ {
		err := s.Run(ctx)
		var retry *RetryError
		if err == nil || !errors.As(err, &retry) || n >= max(s.Attempts, 1) {
			return err
		}
		t.log.Warn("stage to be tried again", "op", s.Name, "attempt", n, "err", err)
		if serr := t.Sleep(ctx, max(retry.After, s.Pause)); serr != nil {
			return serr
		}
	}
}

// observeStage looks at the device after an earlier owner announced a change.
func (t *Task) observeStage(ctx context.Context, s *Stage) (done bool, err error) {
	seen, err := s.Observe(ctx)
	if err != nil {
		return false, err
	}
	t.log.Info("interrupted stage observed", "op", s.Name, "observation", int(seen), "epoch", t.Epoch())
	switch seen {
	case ObservedDone:
		return true, nil
	case ObservedNotStarted:
		return false, nil
	default:
		return false, outcomeUnknown(s, nil)
	}
}

// resolveUnknown decides a change whose answer was lost while the owner lives.
func (t *Task) resolveUnknown(ctx context.Context, s *Stage, cause *UnknownError) (Observation, error) {
	t.log.Warn("answer of the device lost", "op", s.Name, "err", cause)
	seen, err := s.Observe(ctx)
	if err != nil {
		return seen, outcomeUnknown(s, errors.Join(cause, err))
	}
	if seen == ObservedUnknown {
		return seen, outcomeUnknown(s, cause)
	}
	return seen, nil
}

func outcomeUnknown(s *Stage, cause error) error {
	return Fail(job.FailureOutcomeUnknown, s.Name,
		"interrupted during "+s.Name+": whether the device took the change is unknown, and it was not repeated", cause)
}

// leave ends a stage. Stages that can simply be repeated need no record of it.
func (t *Task) leave(ctx context.Context, s *Stage) error {
	t.completeCurrent()
	return t.saveOutcome(ctx, s)
}

func (t *Task) saveOutcome(ctx context.Context, s *Stage) error {
	if s.Resume == Repeatable {
		return nil
	}
	return t.checkpoint(ctx, s.Name, rackbusv1.CheckpointPhase_CHECKPOINT_PHASE_OUTCOME)
}

// stopStage marks the stage that ended the workflow; a handed-over job goes on.
func (t *Task) stopStage(s *Stage, err error) error {
	if !errors.Is(err, ErrHandedOver) {
		t.failCurrent(err.Error())
	}
	return fmt.Errorf("stage %s: %w", s.Name, err)
}
