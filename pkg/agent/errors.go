// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"time"

	"github.com/rackbus/rackbus/pkg/job"
)

// Reasons why a workflow is interrupted. They are causes of its context, and
// what SafePoint returns; a workflow passes them on unchanged.
var (
	// ErrNotHeld says that this process may not touch the node at this moment.
	ErrNotHeld = errors.New("agent: the node is not held")
	// ErrCancelled says that the job was asked to stop and reached a safe point.
	ErrCancelled = errors.New("agent: job cancelled at a safe point")
	// ErrTerminated says that the job is cut by force.
	ErrTerminated = errors.New("agent: job terminated")
	// ErrHandedOver says that another process goes on with the job.
	ErrHandedOver = errors.New("agent: job handed over")
	// ErrDeadline says that the job ran longer than it may.
	ErrDeadline = errors.New("agent: run deadline passed")
)

// FailureError is an error that says how the job's record tells it.
type FailureError struct {
	Failure *job.Failure
	Err     error
}

// Fail returns an error for a cause, in a phase of the workflow.
func Fail(code job.FailureCode, phase, message string, err error) *FailureError {
	f := job.NewFailure(code, message)
	f.Phase = phase
	return &FailureError{Failure: f, Err: err}
}

// Error returns the message that callers see.
func (e *FailureError) Error() string { return e.Failure.Message }

// Unwrap returns the cause.
func (e *FailureError) Unwrap() error { return e.Err }

// RetryError marks an error that a later try may cure.
type RetryError struct {
	// After is the least pause, 0 when the stage's own pause does.
	After time.Duration
	Err   error
}

// Retry marks err as worth another try.
func Retry(after time.Duration, err error) *RetryError { return &RetryError{After: after, Err: err} }

// Error returns the text of the cause.
func (e *RetryError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *RetryError) Unwrap() error { return e.Err }

// UnknownError marks an error after which the device may or may not have taken
// the change: it was sent and the answer was lost.
type UnknownError struct{ Err error }

// Unknown marks err as an unknown outcome.
func Unknown(err error) *UnknownError { return &UnknownError{Err: err} }

// Error returns the text of the cause.
func (e *UnknownError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *UnknownError) Unwrap() error { return e.Err }

// skipError ends a stage that found nothing to do.
type skipError struct{ reason string }

func (e *skipError) Error() string { return "nothing to do: " + e.reason }

// Skip ends a stage that found nothing to do.
func Skip(reason string) error { return &skipError{reason: reason} }
