// SPDX-License-Identifier: Apache-2.0

package job

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// ErrInvalidEvent is wrapped by every error of Fold: the event contradicts itself
// or the record, and folding it again will fail again.
var ErrInvalidEvent = errors.New("invalid job event")

// Fold takes e into r and returns the new record with what changed. It depends on
// nothing but its arguments and does not change them. An event that comes too late,
// twice, or for a job that does not exist is no error: the record comes back as it
// was, and Change.Ignored says why.
//
// The terminal record depends on the terminal event alone (and, in PublicN, on
// which states subscribers were told of before), whatever the order in which the
// other events arrived. Epochs order the owners of a job: what an owner says after
// a later one has spoken is dropped.
func Fold(r Record, e Event) (Record, Change, error) {
	if !r.Exists() {
		return r, Change{Ignored: ReasonUnknownJob}, nil
	}
	if e.ID != r.ID {
		return r, Change{}, fmt.Errorf("%w: event of job %s for record of %s", ErrInvalidEvent, e.ID, r.ID)
	}
	if err := validate(&r, &e); err != nil {
		return r, Change{}, err
	}
	if e.Kind == EventNote {
		r, c := foldNote(r, &e)
		return r, c, nil
	}
	if r.State.Terminal() {
		return foldTerminal(r, &e)
	}
	switch e.Kind {
	case EventQueued:
		return foldQueued(r)
	case EventAdmitted:
		if r.Kind != KindParent {
			return r, Change{Ignored: ReasonNotForKind}, nil
		}
		r, c := Admit(r, e.Total, e.At)
		return r, c, nil
	case EventCancelRequested:
		return foldCancel(r, &e)
	default:
		return foldWorker(r, &e)
	}
}

// validate refuses events that no writer may send.
func validate(r *Record, e *Event) error {
	switch e.Kind {
	case EventQueued, EventClaimed, EventStarted, EventProgress, EventNote:
	case EventAdmitted:
		if e.Total > MaxChildren {
			return fmt.Errorf("%w: %d children, at most %d", ErrInvalidEvent, e.Total, MaxChildren)
		}
	case EventCancelRequested:
		if m := e.Cancel.mode(); m != CancelGraceful && m != CancelTerminate {
			return fmt.Errorf("%w: cancel request without a mode", ErrInvalidEvent)
		}
	case EventFinished:
		if !e.State.Terminal() || (e.State == StatePartiallyFailed && r.Kind != KindParent) {
			return fmt.Errorf("%w: finished as %s", ErrInvalidEvent, e.State)
		}
	default:
		return fmt.Errorf("%w: kind %d", ErrInvalidEvent, e.Kind)
	}
	return nil
}

// foldTerminal changes nothing but one case: a parent that was already failed when
// it was created is announced to the public stream by its first event.
func foldTerminal(r Record, e *Event) (Record, Change, error) {
	if r.PublicN > 0 || (e.Kind != EventQueued && e.Kind != EventAdmitted) {
		return r, Change{Ignored: ReasonTerminal}, nil
	}
	end, endText := r.State, r.Description
	r.State, r.Description = initialState(r.Kind), initialText(r.Kind, r.Type)
	var c Change
	c.announce(&r, end, endText, r.FinishedAt)
	r.Description = endText
	return r, c, nil
}

// foldNote takes nothing from a note but whom a job waits for that nobody has taken yet.
// Notes of several folds can come in another order: it is the last one that a job waits
// for nobody any more.
func foldNote(r Record, e *Event) (Record, Change) {
	switch {
	case e.Left.IsZero(), r.WaitsFor.IsZero(), r.State.Terminal():
	case e.WaitsFor.IsZero():
		return Promote(r, e.At), Change{}
	case r.WaitsFor == e.Left:
		return Park(r, e.WaitsFor, e.At), Change{}
	}
	return r, Change{Ignored: ReasonNote}
}

func foldQueued(r Record) (Record, Change, error) {
	if r.PublicN > 0 {
		return r, Change{Ignored: ReasonNoChange}, nil
	}
	var c Change
	c.introduce(&r)
	return r, c, nil
}

// foldCancel keeps the firmest request, and the earliest of equally firm ones.
func foldCancel(r Record, e *Event) (Record, Change, error) {
	if !firmer(e.Cancel, r.Cancel) {
		return r, Change{Ignored: ReasonNoChange}, nil
	}
	var c Change
	c.introduce(&r)
	text := strings.TrimPrefix(r.Description, cancelPrefix(r.Cancel.mode()))
	text = strings.TrimSuffix(text, stopNote(r.Cancel.mode(), r.Stages))
	r.Cancel = e.Cancel
	r.Description = stoppingText(r.Cancel.mode(), text, r.Stages)
	r.Rollout = r.stoppedByCancel()
	r.Description = r.rolloutText(r.Description)
	r.UpdatedAt = later(r.UpdatedAt, e.At)
	if r.State != StateCancellationRequested {
		c.announce(&r, StateCancellationRequested, r.Description, e.At)
	}
	return r, c, nil
}

// firmer is a strict order over requests, so that the one kept does not depend on
// the order of arrival.
func firmer(a, b *Cancel) bool {
	switch {
	case a.mode() != b.mode():
		return a.mode() > b.mode()
	case a == nil || b == nil:
		return false
	case !a.RequestedAt.Equal(b.RequestedAt):
		return a.RequestedAt.Before(b.RequestedAt)
	case a.Reason != b.Reason:
		return a.Reason < b.Reason
	case a.RequestedBy != b.RequestedBy:
		return a.RequestedBy < b.RequestedBy
	}
	return a.Note < b.Note
}

// foldWorker takes an event of whoever works on the job, or seals it in its place.
func foldWorker(r Record, e *Event) (Record, Change, error) {
	switch {
	case r.Kind == KindParent:
		return r, Change{Ignored: ReasonNotForKind}, nil // parents derive their state
	case e.Epoch < r.Epoch:
		return r, Change{Ignored: ReasonStaleEpoch}, nil
	case e.Kind == EventFinished:
		r, c := finish(r, e)
		return r, c, nil
	case e.Epoch == r.Epoch && e.N <= r.EventN:
		return r, Change{Ignored: ReasonDuplicate}, nil
	}
	var c Change
	c.introduce(&r)
	takePicture(&r, e)
	running := e.Kind != EventClaimed || !r.StartedAt.IsZero()
	if running && r.StartedAt.IsZero() {
		r.StartedAt = e.At
	}
	r.Description = pictureText(e.Description, running)
	r.Description = stoppingText(r.Cancel.mode(), r.Description, r.Stages)
	r.UpdatedAt = later(r.UpdatedAt, e.At)
	if running && r.State == StateQueued {
		c.announce(&r, StateRunning, r.Description, e.At)
	}
	return r, c, nil
}

// takePicture replaces what every event of a worker tells anew.
func takePicture(r *Record, e *Event) {
	r.Epoch, r.EventN = e.Epoch, e.N
	r.Percent, r.Stages = min(e.Percent, 100), e.Stages
	r.WaitsFor = ID{}
	// Once known these stay known, so an event that lacks them takes nothing away.
	if e.Attempt != 0 {
		r.Attempt = e.Attempt
	}
	if e.Agent != "" {
		r.Agent = e.Agent
	}
	if !e.StartedAt.IsZero() {
		r.StartedAt = e.StartedAt
	}
	if !e.Deadline.IsZero() {
		r.Deadline = e.Deadline
	}
}

// finish seals the record with the outcome in e.
func finish(r Record, e *Event) (Record, Change) {
	var c Change
	c.introduce(&r)
	takePicture(&r, e)
	if r.State == StateQueued && !r.StartedAt.IsZero() {
		// The event that it started got lost among later ones; subscribers still hear of it.
		c.announce(&r, StateRunning, textRunning, r.StartedAt)
	}
	// A request to stop that came too late to matter is not part of the outcome.
	stopped := e.State == StateCancelled || e.State == StateTerminated
	if e.Cancel != nil || !stopped {
		r.Cancel = e.Cancel
	}
	r.Description = e.Description
	if r.Description == "" {
		r.Description = outcomeText(e.State)
	}
	r.ResultJSON, r.Diagnostics = e.ResultJSON, e.Diagnostics
	r.Failure = outcomeFailure(e, r.Cancel)
	if e.State == StateCompleted {
		r.Percent = 100
	}
	r.UpdatedAt, r.FinishedAt = e.At, e.At
	c.announce(&r, e.State, r.Description, e.At)
	return r, c
}

// outcomeFailure returns the failure in e, or one made from the state when the
// writer left it out: a job that did not complete always says why.
func outcomeFailure(e *Event, cancel *Cancel) *Failure {
	switch {
	case e.State == StateCompleted:
		return nil
	case e.Failure != nil:
		return e.Failure
	}
	switch e.State {
	case StateCancelled:
		if cancel != nil && cancel.Reason == CancelReasonShutdown {
			return NewFailure(FailureShuttingDown, outcomeText(e.State))
		}
		return NewFailure(FailureCancelledByOperator, outcomeText(e.State))
	case StateTerminated:
		return NewFailure(FailureTerminatedByOperator, outcomeText(e.State))
	case StateSuperseded:
		return NewFailure(FailureSuperseded, outcomeText(e.State))
	case StateTimedOut:
		return NewFailure(FailureDeadlineExceeded, outcomeText(e.State))
	default:
		return NewFailure(FailureAbandoned, AbandonedMessage)
	}
}

// initialState is the state in which a job of the kind is created.
func initialState(k Kind) State {
	if k == KindParent {
		return StateRunning
	}
	return StateQueued
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
