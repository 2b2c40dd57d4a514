// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"time"

	"github.com/rackbus/rackbus/pkg/job"
)

// holdPause is how often a paused job looks whether its session is certain again.
const holdPause = 100 * time.Millisecond

// perform runs a stage until it succeeds, fails for good, or has no tries left.
//
// When the hold of the node was not certain for a while, the stage waits for it
// and goes on; that is no failed try. A Once stage goes on only when the device
// shows that it never got the change, or when nothing can have been sent.
func (t *Task) perform(ctx context.Context, s *Stage) error {
	for n := 1; ; n++ {
		t.act.reset()
		err := s.Run(ctx)
		if err == nil || ctx.Err() != nil {
			return err
		}
		lapsed := errors.Is(err, ErrNotHeld) || t.act.cut.Load() || !t.hold.Valid()
		if lapsed {
			t.log.Warn("hold of the node not certain, the job pauses", "op", s.Name, "err", err)
			if werr := t.awaitHold(ctx); werr != nil {
				return werr
			}
		}
		var unknown *UnknownError
		var retry *RetryError
		again := errors.As(err, &retry)
		if s.Resume == Once && (errors.As(err, &unknown) || lapsed && t.act.sent.Load()) {
			done, oerr := t.resolveUnknown(ctx, s, err)
			if oerr != nil || done {
				return oerr
			}
			again = true
		}
		if lapsed {
			n--
			continue
		}
		if !again || n >= max(s.Attempts, 1) {
			return err
		}
		t.log.Warn("stage to be tried again", "op", s.Name, "attempt", n, "err", err)
		if serr := t.Sleep(ctx, retryAfter(retry, s.Pause)); serr != nil {
			return serr
		}
	}
}

func retryAfter(retry *RetryError, pause time.Duration) time.Duration {
	if retry == nil {
		return pause
	}
	return max(retry.After, pause)
}

// awaitHold waits until the session is certain again, or is lost.
func (t *Task) awaitHold(ctx context.Context) error {
	for {
		if err := t.stopped(); err != nil {
			return err
		}
		if t.hold.Valid() {
			return nil
		}
		select {
		case <-t.hold.Lost():
			return ErrHandedOver
		default:
		}
		if err := sleep(ctx, holdPause); err != nil {
			return err
		}
	}
}

// observeStage looks at the device after an earlier owner announced a change.
func (t *Task) observeStage(ctx context.Context, s *Stage) (done bool, err error) {
	seen, err := t.observe(ctx, s)
	t.log.Info("interrupted stage observed", "op", s.Name, "observation", seen.String(), "epoch", t.Epoch(), "err", err)
	if err != nil || seen == ObservedUnknown {
		return false, outcomeUnknown(s, err)
	}
	return seen == ObservedDone, nil
}

// resolveUnknown decides a change whose answer was lost while the owner lives.
func (t *Task) resolveUnknown(ctx context.Context, s *Stage, cause error) (done bool, err error) {
	seen, err := t.observe(ctx, s)
	t.log.Warn("answer of the device lost", "op", s.Name, "observation", seen.String(), "err", errors.Join(cause, err))
	if err != nil || seen == ObservedUnknown {
		return false, outcomeUnknown(s, errors.Join(cause, err))
	}
	return seen == ObservedDone, nil
}

// observe looks at the device, again while that may help: looking changes nothing.
func (t *Task) observe(ctx context.Context, s *Stage) (Observation, error) {
	for n := 1; ; n++ {
		seen, err := s.Observe(ctx)
		var retry *RetryError
		if err == nil || !errors.As(err, &retry) || n >= max(s.Attempts, 1) {
			return seen, err
		}
		if serr := t.Sleep(ctx, retryAfter(retry, s.Pause)); serr != nil {
			return ObservedUnknown, serr
		}
	}
}

func outcomeUnknown(s *Stage, cause error) error {
	return Fail(job.FailureOutcomeUnknown, s.Name,
		"interrupted during "+s.Name+": whether the device took the change is unknown, and it was not repeated", cause)
}
