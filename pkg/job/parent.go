// SPDX-License-Identifier: Apache-2.0

package job

import (
	"encoding/json"
	"strings"
	"time"
)

// statusUpToDate is the "status" in the result of a job that found nothing to do.
const statusUpToDate = "already_up_to_date"

// of returns the counter for children in state s, nil for unknown children.
func (c *Counts) of(s State) *uint32 {
	switch s {
	case StateQueued:
		return &c.Queued
	case StateRunning, StateCancellationRequested:
		return &c.Running
	case StateCompleted:
		return &c.Completed
	case StateFailed, StatePartiallyFailed:
		return &c.Failed
	case StateCancelled:
		return &c.Cancelled
	case StateTerminated:
		return &c.Terminated
	case StateSuperseded:
		return &c.Superseded
	case StateTimedOut:
		return &c.TimedOut
	default:
		return nil
	}
}

// Unsuccessful is how many children ended and did not complete.
func (c Counts) Unsuccessful() uint32 {
	return c.Failed + c.Cancelled + c.Terminated + c.Superseded + c.TimedOut
}

// Done is how many children ended.
func (c Counts) Done() uint32 { return c.Completed + c.Unsuccessful() }

// Known is how many children have been seen.
func (c Counts) Known() uint32 { return c.Queued + c.Running + c.Done() }

// ApplyChild takes the state of child into parent: its child vector, its counts
// and, for a KindParent, what Aggregate makes of them. at is when the child changed.
// A child of index i makes Total at least i. Applying a child again changes nothing,
// and neither does any child of a parent that has ended.
func ApplyChild(parent, child Record, at time.Time) (Record, Change) {
	switch {
	case !parent.Exists():
		return parent, Change{Ignored: ReasonUnknownJob}
	case !child.Exists(), child.ID.IsTopLevel(), child.ID.Parent() != parent.ID, child.ID.Index() > MaxChildren:
		return parent, Change{Ignored: ReasonNotChild}
	case parent.State.Terminal():
		return parent, Change{Ignored: ReasonTerminal}
	}
	r, i := parent, child.ID.Index()
	before := r.Children.Get(i)
	if before == child.State || before.Terminal() {
		return parent, Change{Ignored: ReasonNoChange}
	}
	var c Change
	c.introduce(&r)
	r.Children = r.Children.With(i, child.State)
	if n := r.Counts.of(before); n != nil {
		*n--
	}
	*r.Counts.of(child.State)++
	if child.State == StateCompleted && foundUpToDate(child.ResultJSON) {
		r.Counts.AlreadyUpToDate++
	}
	r.Total = max(r.Total, i)
	return derive(r, c, at)
}

// Admit notes that all children of the parent's admission are attached, total in
// number. Those that were not heard of yet are queued. With no child at all the
// parent fails.
func Admit(parent Record, total uint32, at time.Time) (Record, Change) {
	switch {
	case !parent.Exists():
		return parent, Change{Ignored: ReasonUnknownJob}
	case parent.State.Terminal():
		return parent, Change{Ignored: ReasonTerminal}
	case parent.Kind != KindParent, total > MaxChildren:
		return parent, Change{Ignored: ReasonNotForKind}
	case parent.Admitted && total <= parent.Total:
		return parent, Change{Ignored: ReasonNoChange}
	}
	r := parent
	var c Change
	c.introduce(&r)
	admit(&r, total)
	return derive(r, c, at)
}

// admit fills in the children that were not heard of yet.
func admit(r *Record, total uint32) {
	var filled uint32
	r.Admitted = true
	r.Total = max(r.Total, total)
	r.Children, filled = r.Children.Fill(r.Total, StateQueued)
	r.Counts.Queued += filled
}

// derive brings state and texts of a parent in line with its children.
func derive(r Record, c Change, at time.Time) (Record, Change) {
	r.UpdatedAt = later(r.UpdatedAt, at)
	if r.Kind != KindParent {
		return r, c
	}
	r.Rollout = r.settledRollout(at)
	state, text, failure := Aggregate(r.Counts, r.Total, r.Admitted, r.Cancel.mode(), r.Type.Wording())
	if !state.Terminal() {
		text = r.rolloutText(text)
	}
	r.Description, r.Failure = text, failure
	r.Percent = percentOf(r.Counts.Done(), r.Total)
	if state.Terminal() {
		r.FinishedAt = r.UpdatedAt
	}
	if state != r.State {
		c.announce(&r, state, text, at)
	}
	return r, c
}

// Aggregate is what a parent's state, description and failure are, given its
// children. It is total: every mix has an answer. The parent ends when it is
// admitted and all of total children have ended; until then it runs, or is asked
// to stop. The failure is nil unless the parent ended without completing.
func Aggregate(c Counts, total uint32, admitted bool, cancel CancelMode, w Wording) (State, string, *Failure) {
	done := c.Done()
	if !admitted || done < total {
		state := StateRunning
		if cancel != CancelNone {
			state = StateCancellationRequested
		}
		return state, cancelPrefix(cancel) + batchText(c, total, admitted, w), nil
	}
	if total == 0 {
		return StateFailed, outcomeText(StateFailed), NewFailure(FailureAdmissionFailed, textNothingAdmitted)
	}
	if c.Completed >= total {
		return StateCompleted, batchSuccessText(c, total, w), nil
	}
	state, code := StateFailed, FailureChildrenFailed
	switch stopped := c.Cancelled + c.Superseded + c.Terminated; {
	case c.Completed > 0:
		state = StatePartiallyFailed
	case c.TimedOut == done:
		state, code = StateTimedOut, FailureChildrenTimedOut
	case stopped == done && c.Terminated > 0:
		state, code = StateTerminated, FailureChildrenStopped
	case stopped == done:
		state, code = StateCancelled, FailureChildrenStopped
	}
	return state, batchCompleteText(c, total), NewFailure(code, batchFailureText(c, total, w))
}

func percentOf(done, total uint32) uint32 {
	if total == 0 {
		return 0
	}
	return uint32(uint64(done) * 100 / uint64(total))
}

// foundUpToDate reports whether a completed job's result says that there was
// nothing to do. Most results do not contain the word at all.
func foundUpToDate(resultJSON string) bool {
	if !strings.Contains(resultJSON, statusUpToDate) {
		return false
	}
	var result struct {
		Status string `json:"status"`
	}
	return json.Unmarshal([]byte(resultJSON), &result) == nil && result.Status == statusUpToDate
}
