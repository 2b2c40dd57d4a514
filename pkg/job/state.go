// SPDX-License-Identifier: Apache-2.0

package job

import "fmt"

// State is where a job stands. The numbers are those of rackbus.v1.JobState and
// fit into four bits.
type State uint8

const (
	// StateUnspecified is the state of a job that does not exist.
	StateUnspecified State = iota
	// StateQueued means admitted, but no worker holds the node for it yet.
	StateQueued
	// StateRunning means that a worker holds the node.
	StateRunning
	// StateCancellationRequested means asked to stop; the worker stops at its next safe point.
	StateCancellationRequested
	// StateCompleted means that the job did what was asked, or found nothing left to do.
	StateCompleted
	// StateFailed means that the job ended with a typed error.
	StateFailed
	// StatePartiallyFailed means that some children of a parent completed and some did not.
	StatePartiallyFailed
	// StateCancelled means stopped at a safe point.
	StateCancelled
	// StateTerminated means cut by force; the state of the hardware is unknown.
	StateTerminated
	// StateSuperseded means that a newer job took its place before it started.
	StateSuperseded
	// StateTimedOut means that the job passed its deadline.
	StateTimedOut

	stateCount
)

// Numbers shared by the published enums JobExecutionState and FirmwareJobState.
const (
	executionUnspecified int32 = iota
	executionQueued
	executionRunning
	executionCompleted
	executionFailed
)

var stateNames = [stateCount]string{
	"unspecified", "queued", "running", "cancellation_requested", "completed", "failed",
	"partially_failed", "cancelled", "terminated", "superseded", "timed_out",
}

// Valid reports whether s is one of the ten states of an existing job.
func (s State) Valid() bool { return s > StateUnspecified && s < stateCount }

// Terminal reports whether a job in this state never changes again.
func (s State) Terminal() bool { return s >= StateCompleted && s < stateCount }

// String returns the name as public events and tools show it, for example "timed_out".
func (s State) String() string {
	if s < stateCount {
		return stateNames[s]
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// Execution returns the number of the state in the published enums
// JobExecutionState and FirmwareJobState: 1 queued, 2 running, 3 completed, 4 failed.
func (s State) Execution() int32 {
	switch {
	case s == StateQueued:
		return executionQueued
	case s == StateRunning, s == StateCancellationRequested:
		return executionRunning
	case s == StateCompleted:
		return executionCompleted
	case s.Terminal():
		return executionFailed
	}
	return executionUnspecified
}

// Wire returns the state as status calls with a textual state publish it:
// "queued", "running", "completed", "failed", or "" for a job that does not exist.
func (s State) Wire() string {
	switch s.Execution() {
	case executionQueued:
		return "queued"
	case executionRunning:
		return "running"
	case executionCompleted:
		return "completed"
	case executionFailed:
		return "failed"
	}
	return ""
}

// ParseState finds a state by the name that String gives it.
func ParseState(name string) (State, bool) {
	for s := StateQueued; s < stateCount; s++ {
		if stateNames[s] == name {
			return s, true
		}
	}
	return StateUnspecified, false
}
