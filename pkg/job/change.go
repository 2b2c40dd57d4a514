// SPDX-License-Identifier: Apache-2.0

package job

import "time"

// Reason is why an event changed nothing. It is a stable word for logs and metrics.
type Reason string

// Why an event was ignored.
const (
	// ReasonUnknownJob means that no such job exists (any more).
	ReasonUnknownJob Reason = "unknown_job"
	// ReasonTerminal means that the job has ended.
	ReasonTerminal Reason = "terminal"
	// ReasonStaleEpoch means that the speaker no longer holds the job.
	ReasonStaleEpoch Reason = "stale_epoch"
	// ReasonDuplicate means that this or a later event was folded before.
	ReasonDuplicate Reason = "duplicate"
	// ReasonNotForKind means that jobs of this kind do not take such events.
	ReasonNotForKind Reason = "not_for_kind"
	// ReasonNotChild means that the job is no child of this parent.
	ReasonNotChild Reason = "not_child"
	// ReasonNoChange means that the record says already what the event tells.
	ReasonNoChange Reason = "no_change"
	// ReasonNote means that the event is for the history only.
	ReasonNote Reason = "note"
)

// Transition is one change of a job's state as the public event stream tells it.
type Transition struct {
	// From is StateUnspecified in the first transition of a job.
	From        State
	To          State
	Description string
	At          time.Time
	// N counts the transitions of the job, from 1.
	N uint64
}

// Change is what an event or a child did to a record.
type Change struct {
	// Ignored is why the record stayed as it was, empty when it changed.
	Ignored Reason
	// Transitions are the new changes of state, in their order. A record may
	// change without any.
	Transitions []Transition
}

// Applied reports whether the record changed and must be written.
func (c Change) Applied() bool { return c.Ignored == "" }

// Sealed reports whether the public stream now learns that the job has ended.
func (c Change) Sealed() bool {
	return len(c.Transitions) > 0 && c.Transitions[len(c.Transitions)-1].To.Terminal()
}

// announce appends the transition of r to state to, and the one into its first
// state when the public stream has not been told of the job yet.
func (c *Change) announce(r *Record, to State, description string, at time.Time) {
	c.introduce(r)
	r.PublicN++
	c.Transitions = append(c.Transitions, Transition{
		From: r.State, To: to, Description: description, At: at, N: r.PublicN,
	})
	r.State = to
}

// introduce appends the transition of a new job into its first state, once.
func (c *Change) introduce(r *Record) {
	if r.PublicN > 0 {
		return
	}
	r.PublicN = 1
	c.Transitions = append(c.Transitions, Transition{
		To: r.State, Description: r.Description, At: r.CreatedAt, N: 1,
	})
}
