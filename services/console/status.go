// SPDX-License-Identifier: Apache-2.0

package console

import (
	"slices"
	"strings"
	"time"

	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// Status is what a cell of an elevation shows. There are five.
type Status string

const (
	// StatusNone means that no job of the node is known, or none that says anything
	// about it.
	StatusNone Status = "none"
	// StatusWaiting means that a job of the node has not started.
	StatusWaiting Status = "waiting"
	// StatusWorking means that a worker holds the node.
	StatusWorking Status = "working"
	// StatusOK means that the newest job that ended by itself completed.
	StatusOK Status = "ok"
	// StatusFailed means that the newest job that ended by itself failed or passed its
	// deadline.
	StatusFailed Status = "failed"
)

// statusInfo is how people are told about a status.
type statusInfo struct {
	Status  Status
	Label   string
	Meaning string
}

// statuses is every status, in the order of legends and counts.
var statuses = [...]statusInfo{
	{StatusFailed, "failed", "The newest job that ran to its end failed, or passed its deadline."},
	{StatusWorking, "working", "A worker holds the node now, also while the job is asked to stop."},
	{StatusWaiting, "waiting", "A job was accepted for the node and has not started."},
	{StatusOK, "ok", "The newest job that ran to its end completed."},
	{StatusNone, "no history", "No job is known that says anything about the node."},
}

// Label returns the words for the status.
func (s Status) Label() string {
	for _, info := range statuses {
		if info.Status == s {
			return info.Label
		}
	}
	return string(s)
}

// Run is what the console keeps of one job.
type Run struct {
	ID          string
	ParentID    string
	Name        string
	Type        string
	RackID      string
	State       rackbusv1.JobState
	Percent     uint32
	Description string
	FailureCode string
	CreatedAt   time.Time
	UpdatedAt   time.Time
}

// NodeStatus is the status of a node and the runs it comes from.
type NodeStatus struct {
	Status Status
	// Owner is the run that decides the status; nil for StatusNone.
	Owner *Run
	// Withdrawn is the newest run that was cancelled, terminated or superseded, when it
	// is newer than the owner. It stays visible without deciding anything: the node is
	// as it was before that run, or unknown, but never proven good or bad by it.
	Withdrawn *Run
}

// observing are the types of jobs that look at a node and leave it as it is. They hold
// the node while they run, but how they end says nothing about it: a failed update
// stays failed after its diagnosis has completed.
var observing = []string{"node_diagnostics", "firmware_plan_check"}

// StatusOf derives the status of a node from its history, in any order. A run that
// holds the node comes before one that waits, and that before one that has ended; among
// equals the newest decides.
func StatusOf(history []*Run) NodeStatus {
	var working, waiting, ended, withdrawn *Run
	for _, r := range history {
		switch r.State {
		case rackbusv1.JobState_JOB_STATE_RUNNING, rackbusv1.JobState_JOB_STATE_CANCELLATION_REQUESTED:
			working = newer(working, r)
		case rackbusv1.JobState_JOB_STATE_QUEUED:
			waiting = newer(waiting, r)
		case rackbusv1.JobState_JOB_STATE_COMPLETED, rackbusv1.JobState_JOB_STATE_FAILED,
			rackbusv1.JobState_JOB_STATE_PARTIALLY_FAILED, rackbusv1.JobState_JOB_STATE_TIMED_OUT:
			if !slices.Contains(observing, r.Type) {
				ended = newer(ended, r)
			}
		case rackbusv1.JobState_JOB_STATE_CANCELLED, rackbusv1.JobState_JOB_STATE_TERMINATED,
			rackbusv1.JobState_JOB_STATE_SUPERSEDED:
			withdrawn = newer(withdrawn, r)
		case rackbusv1.JobState_JOB_STATE_UNSPECIFIED:
		}
	}
	s := NodeStatus{Status: StatusNone}
	switch {
	case working != nil:
		s.Status, s.Owner = StatusWorking, working
	case waiting != nil:
		s.Status, s.Owner = StatusWaiting, waiting
	case ended != nil && ended.State == rackbusv1.JobState_JOB_STATE_COMPLETED:
		s.Status, s.Owner = StatusOK, ended
	case ended != nil:
		s.Status, s.Owner = StatusFailed, ended
	}
	if withdrawn != nil && (s.Owner == nil || newer(s.Owner, withdrawn) == withdrawn) {
		s.Withdrawn = withdrawn
	}
	return s
}

// newer returns the run that was created later; a may be nil.
func newer(a, b *Run) *Run {
	if a == nil || compareRuns(a, b) < 0 {
		return b
	}
	return a
}

// compareRuns orders by creation, and runs of the same moment by id.
func compareRuns(a, b *Run) int {
	if c := a.CreatedAt.Compare(b.CreatedAt); c != 0 {
		return c
	}
	return strings.Compare(a.ID, b.ID)
}

// stateWord is a state as tools show it, for example "timed_out".
func stateWord(s rackbusv1.JobState) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "JOB_STATE_"))
}

// stateLabel is a state for people, for example "timed out".
func stateLabel(s rackbusv1.JobState) string { return strings.ReplaceAll(stateWord(s), "_", " ") }

// terminal reports whether a job in the state never changes again.
func terminal(s rackbusv1.JobState) bool { return s >= rackbusv1.JobState_JOB_STATE_COMPLETED }
