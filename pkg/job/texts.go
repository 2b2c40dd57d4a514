// SPDX-License-Identifier: Apache-2.0

package job

import (
	"fmt"
	"strconv"
)

// AbandonedMessage is the published message of a job whose worker returned without
// an outcome, crashed, or was given up.
const AbandonedMessage = "job task exited before recording a terminal state"

// AbandonedDescription is the state description that goes with AbandonedMessage.
const AbandonedDescription = "Abandoned"

const (
	textQueued          = "Queued"
	textRunning         = "Running"
	textNothingAdmitted = "none of the selected nodes could be given a job"
)

// cancelPrefix begins the description of a job that was asked to stop.
func cancelPrefix(m CancelMode) string {
	switch m {
	case CancelGraceful:
		return "Stopping at the next safe point: "
	case CancelTerminate:
		return "Stopping by force: "
	default:
		return ""
	}
}

// initialText is the description of a job that was just created.
func initialText(k Kind, t Type) string {
	switch k {
	case KindParent:
		return batchText(Counts{}, 0, false, t.Wording())
	default:
		return textQueued
	}
}

// pictureText is the description that a worker's event gives.
func pictureText(description string, running bool) string {
	switch {
	case description != "":
		return description
	case running:
		return textRunning
	}
	return textQueued
}

// outcomeText is the description of a job that ended without saying more.
func outcomeText(s State) string {
	switch s {
	case StateCompleted:
		return "Completed"
	case StateCancelled:
		return "Cancelled at a safe point"
	case StateTerminated:
		return "Terminated; the state of the hardware is unknown"
	case StateSuperseded:
		return "Superseded by a newer job before it started"
	case StateTimedOut:
		return "Timed out"
	default:
		return "Failed"
	}
}

// batchText tells how far a batch is.
func batchText(c Counts, total uint32, admitted bool, w Wording) string {
	b := make([]byte, 0, 96)
	b = append(append(b, "Batch "...), w.Noun...)
	if admitted {
		b = append(b, " under way: "...)
	} else {
		b = append(b, " is taking in its jobs: "...)
	}
	b = appendCount(b, c.Done())
	b = append(b, " of "...)
	b = appendCount(b, total)
	b = append(b, " done"...)
	if c.Running > 0 {
		b = append(appendCount(append(b, ", "...), c.Running), " running"...)
	}
	if c.Queued > 0 {
		b = append(appendCount(append(b, ", "...), c.Queued), " queued"...)
	}
	return string(b)
}

func appendCount(b []byte, n uint32) []byte { return strconv.AppendUint(b, uint64(n), 10) }

// batchSuccessText is the description of a batch all of whose children completed.
func batchSuccessText(c Counts, total uint32, w Wording) string {
	switch {
	case c.AlreadyUpToDate >= total:
		return fmt.Sprintf("Nothing to do: all %d nodes were already up to date", total)
	case c.AlreadyUpToDate > 0:
		return fmt.Sprintf("%d of %d %s applied, already up to date: %d",
			total-c.AlreadyUpToDate, total, w.Plural, c.AlreadyUpToDate)
	}
	return fmt.Sprintf("All %d %s succeeded", total, w.Plural)
}

// batchCompleteText is the published description of a batch that ended with
// children that did not complete.
func batchCompleteText(c Counts, total uint32) string {
	return fmt.Sprintf("Batch complete: %d/%d succeeded, %d failed", c.Completed, total, c.Unsuccessful())
}

func batchFailureText(c Counts, total uint32, w Wording) string {
	return fmt.Sprintf("%d of %d %s did not succeed", c.Unsuccessful(), total, w.Plural)
}

// BusyText refuses a node that a job holds. Clients look for "already in progress".
func BusyText(rackID, nodeID string, holder ID) string {
	return fmt.Sprintf("node %s in rack %s: a job is already in progress (job_id %s)", nodeID, rackID, holder)
}

// BusyOperationText refuses a node that a synchronous operation holds. Clients
// look for "already in progress".
func BusyOperationText(rackID, nodeID, operation string) string {
	return fmt.Sprintf("node %s in rack %s: %s is already in progress", nodeID, rackID, operation)
}

// RackBusyText refuses a job because the power of its rack is being changed.
func RackBusyText(rackID string) string {
	return fmt.Sprintf("rack %s is busy with another power operation", rackID)
}

// QueueFullText refuses a node behind whose holder enough jobs wait. Clients look
// for "already in progress".
func QueueFullText(rackID, nodeID string, holder ID, waiting int) string {
	return fmt.Sprintf("node %s in rack %s: a job is already in progress (job_id %s) and %d more wait for it",
		nodeID, rackID, holder, waiting)
}

// CapacityText refuses a job because too many are tracked.
func CapacityText(current, limit int) string {
	return fmt.Sprintf("no room for another job: %d of at most %d are tracked; try again when some have ended",
		current, limit)
}

// ShutdownText refuses a job because the service is about to stop.
func ShutdownText() string { return "no new jobs are taken: the server is shutting down" }

// ParentUnusableText refuses a child because parent cannot have (more of) them.
func ParentUnusableText(parent ID) string {
	return fmt.Sprintf("job %s takes no child: it does not exist, has ended, or is a child itself", parent)
}

// DuplicateText refuses a node that the request names a second time.
func DuplicateText(rackID, nodeID string) string {
	return fmt.Sprintf("node %s in rack %s appears more than once in the request", nodeID, rackID)
}

// WaitingText is the description of a job that waits behind holder.
func WaitingText(holder ID) string { return fmt.Sprintf("Queued behind job %s", holder) }
