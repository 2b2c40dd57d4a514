// SPDX-License-Identifier: Apache-2.0

package nvue

import (
	"context"
	"time"
)

// Timing holds every wait, interval and limit of the package. A zero field takes
// its default, so the zero Timing is usable.
type Timing struct {
	// Request bounds one request, answer included. 30 s.
	Request time.Duration
	// Connect bounds the TCP connect. 10 s.
	Connect time.Duration
	// Idle closes a kept connection that served no request for so long. 30 s.
	Idle time.Duration
	// RevisionPoll is the gap between looks at a revision, RevisionLimit ends the
	// wait for it. 1 s, 60 s.
	RevisionPoll  time.Duration
	RevisionLimit time.Duration
	// Discard bounds the removal of a failed revision, which has a time of its own
	// so that it happens even when the caller has run out of his. 10 s.
	Discard time.Duration
	// ActionPoll is the gap between looks at an action, ActionLimit ends the wait
	// for it. 1 s, 60 s.
	ActionPoll  time.Duration
	ActionLimit time.Duration
}

func (t Timing) withDefaults() Timing {
	for _, f := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&t.Request, 30 * time.Second},
		{&t.Connect, 10 * time.Second},
		{&t.Idle, 30 * time.Second},
		{&t.RevisionPoll, time.Second},
		{&t.RevisionLimit, time.Minute},
		{&t.Discard, 10 * time.Second},
		{&t.ActionPoll, time.Second},
		{&t.ActionLimit, time.Minute},
	} {
		if *f.field <= 0 {
			*f.field = f.value
		}
	}
	return t
}

// sleep waits for d or the end of ctx.
func sleep(ctx context.Context, op string, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ended(ctx, op)
	}
}

// ended builds the error of a context that ended while nothing was under way.
func ended(ctx context.Context, op string) *Error {
	return &Error{Op: op, Code: transportCode(ctx.Err()), reason: "interrupted while waiting", cause: context.Cause(ctx)}
}
