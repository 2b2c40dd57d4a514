// SPDX-License-Identifier: Apache-2.0

package job

import "time"

// Kind tells what a record stands for. The numbers are those of rackbus.v1.JobKind.
type Kind uint8

const (
	// KindUnspecified is the kind of a job that does not exist.
	KindUnspecified Kind = iota
	// KindLeaf works on one node.
	KindLeaf
	// KindParent sums up its children and works on nothing itself.
	KindParent
	// KindCoordinator drives nodes of a rack, which are reserved for it.
	KindCoordinator

	kindCount
)

var kindNames = [kindCount]string{"unspecified", "leaf", "parent", "coordinator"}

// String returns the name of the kind.
func (k Kind) String() string {
	if k < kindCount {
		return kindNames[k]
	}
	return "unknown"
}

// StageStatus is where a stage of a workflow stands. The numbers are those of
// rackbus.v1.StageStatus.
type StageStatus uint8

// The states of a stage.
const (
	StageUnspecified StageStatus = iota
	StageQueued
	StageRunning
	StageCompleted
	StageFailed
	StageSkipped

	stageStatusCount
)

var stageStatusNames = [stageStatusCount]string{
	"unspecified", "queued", "running", "completed", "failed", "skipped",
}

// String returns the name as result_json shows it.
func (s StageStatus) String() string {
	if s < stageStatusCount {
		return stageStatusNames[s]
	}
	return "unknown"
}

// Stage is one line of a job's timeline.
type Stage struct {
	Name        string
	Description string
	Status      StageStatus
	// Message is the error of a failed stage.
	Message    string
	StartedAt  time.Time
	FinishedAt time.Time
	// Uninterruptible says that the stage, while it runs, cannot be left before its
	// end: the device is being changed. StopLimit is then how long it may take
	// until the job can stop, counted from StartedAt; 0 when that is not known.
	Uninterruptible bool
	StopLimit       time.Duration
	// SwitchesPower says that the stage switches the power of its node, or of
	// several: what devices log of that is no fault.
	SwitchesPower bool
}

// CancelMode is how firmly a job is asked to stop; a greater one is firmer. The
// numbers are those of rackbus.v1.CancelMode.
type CancelMode uint8

const (
	// CancelNone means that nobody asked.
	CancelNone CancelMode = iota
	// CancelGraceful stops at the next safe point.
	CancelGraceful
	// CancelTerminate cuts the connection to the device.
	CancelTerminate

	cancelModeCount
)

var cancelModeNames = [cancelModeCount]string{"none", "graceful", "terminate"}

// String returns the name of the mode.
func (m CancelMode) String() string {
	if m < cancelModeCount {
		return cancelModeNames[m]
	}
	return "unknown"
}

// Who asked a job to stop, in Cancel.Reason.
const (
	CancelReasonOperator = "operator"
	CancelReasonDeadline = "deadline"
	CancelReasonShutdown = "shutdown"
)

// Cancel is a request to stop. It is never changed after it was made, so records
// and events may share one.
type Cancel struct {
	Mode        CancelMode
	Reason      string
	RequestedBy string
	RequestedAt time.Time
	// Note is what the caller gave as the reason, in its own words.
	Note string
}

// mode returns how firm the request is, CancelNone when there is none.
func (c *Cancel) mode() CancelMode {
	if c == nil {
		return CancelNone
	}
	return c.Mode
}

// Counts is how many children of a parent are in which state. A child asked to
// stop counts as running until it has stopped.
type Counts struct {
	Queued     uint32
	Running    uint32
	Completed  uint32
	Failed     uint32
	Cancelled  uint32
	Terminated uint32
	Superseded uint32
	TimedOut   uint32
	// AlreadyUpToDate is how many of Completed found nothing to do.
	AlreadyUpToDate uint32
}

// Record is the truth about one job. The zero Record stands for a job that does
// not exist. Slices and pointers in it are never written through, so a copy of
// the struct is a copy of the record. Times are in UTC and zero when unset.
type Record struct {
	ID   ID
	Kind Kind
	Type Type
	// Name is for people; ids are for machines.
	Name string
	// RackID and NodeID are the target; NodeID is empty for a parent.
	RackID      string
	NodeID      string
	Family      string
	State       State
	Description string
	// Percent is 0 to 100.
	Percent uint32
	// Failure is set in every terminal state but StateCompleted.
	Failure    *Failure
	ResultJSON string
	Stages     []Stage
	// Attempt is how often an owner died over the job, plus one.
	Attempt uint32
	// Agent is the instance that works or worked on it.
	Agent string
	// Epoch is the highest epoch seen, EventN the highest event number within it.
	Epoch      uint64
	EventN     uint64
	CreatedAt  time.Time
	StartedAt  time.Time
	UpdatedAt  time.Time
	FinishedAt time.Time
	Deadline   time.Time
	// Cancel is the firmest request to stop, and the earliest of those. In a
	// terminal record it is the one that the outcome took into account.
	Cancel *Cancel
	// PublicN is how many state changes the public event stream has been given.
	PublicN uint64
	// Visible says that the id was handed to a caller, so that metrics count the job.
	Visible bool
	// Total is how many children a parent has, final once Admitted.
	Total    uint32
	Admitted bool
	Children ChildStates
	Counts   Counts
	// Reserved are the ids of further nodes in RackID whose locks a coordinator
	// holds until it ends.
	Reserved []string
	// RackPower says that a coordinator has the power guard of RackID until it ends.
	RackPower bool
	// WaitsFor is the job that holds the node while this one is parked.
	WaitsFor ID
	// Cleanup are the directories to remove once a top-level job has ended; see
	// CheckCleanup.
	Cleanup []string
	// About is the job that this one looks into, for node diagnostics.
	About ID
	// Diagnostics is set for node diagnostics that got as far as to classify.
	Diagnostics *Diagnostics
	// Rollout is set for a parent whose children start in waves.
	Rollout *Rollout
	// unknown are fields of a later version, which are written back as they came: while
	// replicas of two versions are at work, the former must not undo what the later one
	// has noted.
	unknown []byte
}

// Exists reports whether the record is one of a job, and not the zero Record.
func (r *Record) Exists() bool { return r.State != StateUnspecified }

// ParentID returns the id of the job's parent, and false for a top-level job.
func (r *Record) ParentID() (ID, bool) {
	if r.ID.IsTopLevel() {
		return ID{}, false
	}
	return r.ID.Parent(), true
}
