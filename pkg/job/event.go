// SPDX-License-Identifier: Apache-2.0

package job

import "time"

// EventKind is what an event tells. The numbers are those of rackbus.v1.JobEventKind.
type EventKind uint8

const (
	// EventUnspecified is no event.
	EventUnspecified EventKind = iota
	// EventQueued says that the job was admitted.
	EventQueued
	// EventAdmitted says that all Total children of a parent are attached.
	EventAdmitted
	// EventClaimed says that an agent took the job and holds the node.
	EventClaimed
	// EventStarted says that the workflow began.
	EventStarted
	// EventProgress says that the workflow moved on.
	EventProgress
	// EventCancelRequested says that somebody asked the job to stop.
	EventCancelRequested
	// EventFinished says that the job reached the terminal state in State.
	EventFinished
	// EventNote tells something for the history. It changes nothing of the job but whom
	// it waits for.
	EventNote

	eventKindCount
)

var eventKindNames = [eventKindCount]string{
	"unspecified", "queued", "admitted", "claimed", "started", "progress", "cancel_requested", "finished", "note",
}

// String returns the name of the kind as event subjects show it.
func (k EventKind) String() string {
	if k < eventKindCount {
		return eventKindNames[k]
	}
	return "unknown"
}

// Event is one fact about one job.
//
// Claimed, Started, Progress and Finished events carry the whole visible picture
// of the job: Attempt, Agent, Description, Percent, Stages, StartedAt, Deadline
// and, when finished, Cancel. A later one (by Epoch, then N) so makes all earlier
// ones redundant, and losing or reordering those changes nothing.
type Event struct {
	Kind   EventKind
	ID     ID
	RackID string
	NodeID string
	Type   Type
	Family string
	// Epoch is the hold under which an agent speaks, N the running number within
	// it, from 1. Whoever seals a job in place of an agent uses the epoch of the
	// job's checkpoint.
	Epoch   uint64
	N       uint64
	Attempt uint32
	Agent   string
	// State is the outcome, with EventFinished.
	State       State
	Description string
	Percent     uint32
	Stages      []Stage
	Failure     *Failure
	ResultJSON  string
	At          time.Time
	// StartedAt is zero until the workflow began.
	StartedAt time.Time
	// Deadline is when the run must have ended.
	Deadline time.Time
	// Total is the number of children, with EventAdmitted.
	Total uint32
	// Cancel is the request, with EventCancelRequested; with EventFinished it is
	// the request that the worker had seen.
	Cancel *Cancel
	// CommandSeq is the stream sequence of the command, so that it can be erased.
	CommandSeq uint64
	// Diagnostics is what node diagnostics found, with EventFinished.
	Diagnostics *Diagnostics
	// Left is the job that has left the node, with an EventNote for a job in its line;
	// WaitsFor is who holds the node now, zero when it is held for this job.
	Left     ID
	WaitsFor ID
}
