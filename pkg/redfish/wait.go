// SPDX-License-Identifier: Apache-2.0

package redfish

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// maxRetryAfter bounds how long a device may make a poll wait.
const maxRetryAfter = 2 * time.Minute

// sleep waits for d or the end of ctx.
func sleep(ctx context.Context, op string, d time.Duration) error {
	if ctx.Err() == nil {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return nil
		case <-ctx.Done():
		}
	}
	code, err := ended(ctx)
	return &Error{Op: op, Code: code, reason: "interrupted while waiting", cause: err}
}

// ended classes the end of a context and gives it with its cause.
func ended(ctx context.Context) (ErrorCode, error) {
	err, cause := ctx.Err(), context.Cause(ctx)
	switch {
	case errors.Is(cause, errStalled), errors.Is(cause, errBudget):
		return CodeTimeout, cause
	case errors.Is(cause, ErrNotHeld):
		return CodeFailedPrecondition, cause
	case !errors.Is(cause, err):
		err = fmt.Errorf("%w: %w", err, cause)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return CodeTimeout, err
	}
	return CodeCanceled, err
}

// pause is the next wait of a poll: the interval, or longer if the device asked.
func pause(interval time.Duration, err error) time.Duration {
	if e, ok := asError(err); ok {
		return max(interval, min(e.RetryAfter, maxRetryAfter))
	}
	return interval
}

// hopeless reports errors that no repetition cures: rejected credentials, a lost
// hold, the end of the caller's context.
func hopeless(ctx context.Context, err error) bool {
	if ctx.Err() != nil {
		return true
	}
	e, ok := asError(err)
	return ok && (e.CredentialFault() || isNotHeld(err))
}

// limit is a point in time after which a wait ends.
type limit struct{ end time.Time }

func within(d time.Duration) limit { return limit{end: time.Now().Add(d)} }

// passedAfter reports whether the limit lies before the end of another wait.
func (l limit) passedAfter(d time.Duration) bool { return time.Now().Add(d).After(l.end) }

// left is the time that remains.
func (l limit) left() time.Duration { return time.Until(l.end) }

// transient reports an *Error that says so of itself.
func transient(err error) bool {
	e, ok := asError(err)
	return ok && e.Transient()
}
