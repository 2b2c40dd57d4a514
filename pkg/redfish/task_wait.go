// SPDX-License-Identifier: Apache-2.0

package redfish

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/stmcginnis/gofish/schemas"
)

// PollOptions governs WaitTask. Zero fields take their defaults.
type PollOptions struct {
	// Interval is the gap between looks; a longer Retry-After is honoured. 5 s.
	Interval time.Duration
	// Limit bounds the whole wait. The profile's TaskLimit.
	Limit time.Duration
	// Tolerance is how long the task may be unreadable without a break. 15 min.
	Tolerance time.Duration
	// NotFoundRetries looks, NotFoundInterval apart, confirm that a task is gone:
	// BMCs answer 404 for a task they just created, and for those of an HMC that
	// is not back yet. 3, 10 s.
	NotFoundRetries  int
	NotFoundInterval time.Duration
	// SuspendedGrace is how long a suspended task may stay so before it counts as
	// waiting for somebody. 5 min.
	SuspendedGrace time.Duration
	// Progress is told of every good look: percent (-1 unknown) and text.
	Progress func(percent int, message string)
}

func (o PollOptions) withDefaults(p Profile) PollOptions {
	if o.Limit <= 0 {
		o.Limit = p.TaskLimit
	}
	for _, f := range []struct {
		field *time.Duration
		value time.Duration
	}{{&o.Interval, 5 * time.Second}, {&o.Limit, 90 * time.Minute}, {&o.Tolerance, 15 * time.Minute},
		{&o.NotFoundInterval, 10 * time.Second}, {&o.SuspendedGrace, 5 * time.Minute}} {
		if *f.field <= 0 {
			*f.field = f.value
		}
	}
	if o.NotFoundRetries <= 0 {
		o.NotFoundRetries = 3
	}
	return o
}

// TaskOutcome is how the wait for a task ended.
type TaskOutcome string

// The outcomes.
const (
	// TaskFinished: the task ended with success (or in a handoff).
	TaskFinished TaskOutcome = "finished"
	// TaskEndedBadly: the task ended without success, or needs somebody to act.
	TaskEndedBadly TaskOutcome = "failed"
	// TaskGone: the task no longer exists, or could not be read for longer than
	// the tolerance. Only the installed versions can tell what happened.
	TaskGone TaskOutcome = "gone"
	// TaskLimitPassed: the task was still running when the limit passed.
	TaskLimitPassed TaskOutcome = "limit_passed"
)

// TaskResult is the end of a wait.
type TaskResult struct {
	Outcome TaskOutcome
	// Task is the last good look.
	Task TaskStatus
	// Err says why: a *TaskError for TaskEndedBadly, the last read error for
	// TaskGone. Nil for TaskFinished.
	Err error
}

// ErrTaskLimit is in the result of a task that outlived the limit.
var ErrTaskLimit = errors.New("the task did not end within the limit")

// taskWait is the state of one WaitTask.
type taskWait struct {
	c       *Client
	ref     TaskRef
	o       PollOptions
	end     limit
	last    TaskStatus
	missing int
	bad     time.Time
	idle    time.Time
}

// WaitTask polls a task to its end. The error is set only when the wait itself
// could not go on: ctx ended, the hold was lost, the credentials were rejected.
func (c *Client) WaitTask(ctx context.Context, ref TaskRef, o PollOptions) (TaskResult, error) {
	const op = "wait for task"
	if ref.IsZero() {
		return TaskResult{}, invalid(op, "no task was given")
	}
	o = o.withDefaults(c.profile)
	w := &taskWait{c: c, ref: ref, o: o, end: within(o.Limit), last: TaskStatus{Ref: ref, Phase: TaskUnknown, Percent: -1}}
	for {
		next, result, err := w.look(ctx)
		if err != nil {
			return TaskResult{Task: w.last}, err
		}
		if result != nil {
			return *result, nil
		}
		if w.end.left() <= 0 {
			return TaskResult{Outcome: TaskLimitPassed, Task: w.last, Err: ErrTaskLimit}, nil
		}
		// The last look is at the limit, not before it.
		if err := sleep(ctx, op, min(next, max(w.end.left(), time.Millisecond))); err != nil {
			return TaskResult{Task: w.last}, err
		}
	}
}

// look polls once and says how long to wait, or how it ended.
func (w *taskWait) look(ctx context.Context) (time.Duration, *TaskResult, error) {
	task, err := w.c.task(ctx, w.ref, w.o.Interval > w.c.idle)
	if err != nil {
		return w.unreadable(ctx, err)
	}
	w.last, w.missing, w.bad = task, 0, time.Time{}
	if w.o.Progress != nil {
		w.o.Progress(task.Percent, task.Text)
	}
	if task.Phase != TaskSuspended {
		w.idle = time.Time{}
	} else if w.idle.IsZero() {
		w.idle = time.Now()
	} else if time.Since(w.idle) >= w.o.SuspendedGrace {
		task.Phase = TaskNeedsAction
		w.last = task
	}
	next := max(w.o.Interval, min(task.RetryAfter, maxRetryAfter))
	if !task.Terminal() {
		return next, nil, nil
	}
	if task.Err() == nil {
		return 0, &TaskResult{Outcome: TaskFinished, Task: task}, nil
	}
	return 0, w.failed(ctx, task), nil
}

// failed reads a failed task once more: BMCs add the telling messages late.
func (w *taskWait) failed(ctx context.Context, task TaskStatus) *TaskResult {
	if sleep(ctx, "wait for task", w.o.Interval) == nil {
		again, err := w.c.Task(ctx, w.ref)
		if err == nil && again.Err() != nil && len(again.Text) > len(task.Text) {
			task = again
		}
	}
	return &TaskResult{Outcome: TaskEndedBadly, Task: task, Err: &TaskError{Task: task}}
}

// unreadable decides what a failed look means.
func (w *taskWait) unreadable(ctx context.Context, err error) (time.Duration, *TaskResult, error) {
	if hopeless(ctx, err) || CodeOf(err) == CodeInvalidArgument {
		return 0, nil, err
	}
	w.c.log.Info("task not readable", slog.String("task", w.ref.String()), slog.String("err", err.Error()))
	if CodeOf(err) == CodeNotFound {
		if w.missing++; w.missing > w.o.NotFoundRetries {
			return 0, &TaskResult{Outcome: TaskGone, Task: w.last, Err: err}, nil
		}
		return w.o.NotFoundInterval, nil, nil
	}
	if status := statusOf(err); w.ref.URI == "" && status >= 400 && status < 500 && !transient(err) {
		// A monitor ends with the answer of the operation itself.
		e, _ := asError(err)
		w.last.Phase, w.last.State = TaskFailed, schemas.ExceptionTaskState
		w.last.Text, w.last.MessageID, w.last.Health = e.Message, e.MessageID, e.Severity
		return 0, &TaskResult{Outcome: TaskEndedBadly, Task: w.last, Err: &TaskError{Task: w.last}}, nil
	}
	w.missing = 0
	if w.bad.IsZero() {
		w.bad = time.Now()
	}
	if time.Since(w.bad) >= w.o.Tolerance {
		return 0, &TaskResult{Outcome: TaskGone, Task: w.last, Err: err}, nil
	}
	return pause(w.o.Interval, err), nil, nil
}
