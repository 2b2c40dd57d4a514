// SPDX-License-Identifier: Apache-2.0

package redfish

import (
	"context"
	"strings"

	"github.com/stmcginnis/gofish/schemas"
)

// recogniseHandoff turns the two shapes in which shelf controllers leave an
// OnReset update behind, which read as failures or as running for ever, into a
// completed task that waits for the activation.
func (t TaskStatus) recogniseHandoff() TaskStatus {
	if !t.abortedHandoff() && !t.runningHandoff() {
		return t
	}
	t.Handoff = true
	t.Phase, t.Percent = TaskCompleted, 100
	t.Text = "PowerShelf OnReset update reached reset handoff; activation required: " + t.Text
	return t
}

// abortedHandoff: cancelled at 100 % with a warning that says aborted or
// completed with errors.
func (t TaskStatus) abortedHandoff() bool {
	if t.Phase != TaskCancelled || t.Health != schemas.WarningHealth || t.Percent != 100 {
		return false
	}
	for _, m := range t.Messages {
		if strings.Contains(m.MessageID, "TaskAborted") || strings.Contains(strings.ToLower(m.Message), "completed with errors") {
			return true
		}
	}
	return false
}

// runningHandoff: running at 0 % although it has an end, with a critical
// internal error.
func (t TaskStatus) runningHandoff() bool {
	if t.Phase != TaskRunning || t.Health != schemas.OKHealth || t.Percent != 0 || t.EndTime == "" {
		return false
	}
	for _, m := range t.Messages {
		if severityOf(m) == schemas.CriticalHealth &&
			(messageName(m.MessageID) == "InternalError" || strings.Contains(strings.ToLower(m.Message), "internal service error")) {
			return true
		}
	}
	return false
}

// HandoffTasks lists the tasks that already are in reset handoff. A shelf
// controller may drop the upload when it hands over; the task that was not in
// the list before then is the update's.
func (c *Client) HandoffTasks(ctx context.Context) ([]TaskRef, error) {
	list, err := c.collection(ctx, "list tasks", tasksPath)
	if err != nil {
		return nil, err
	}
	var out []TaskRef
	for _, member := range list.members {
		task, err := c.Task(ctx, refOf(member))
		if err != nil && hopeless(ctx, err) {
			return out, err
		}
		if err == nil && task.Handoff {
			out = append(out, task.Ref)
		}
	}
	return out, nil
}

// NewHandoff gives the newest handoff task that was not known before.
func NewHandoff(before, after []TaskRef) (TaskRef, bool) {
	known := map[string]bool{}
	for _, ref := range before {
		known[ref.URI] = true
	}
	var newest TaskRef
	for _, ref := range after {
		if !known[ref.URI] && (newest.IsZero() || laterID(ref.ID, newest.ID)) {
			newest = ref
		}
	}
	return newest, !newest.IsZero()
}

// laterID compares ids as numbers where they are, by length and text.
func laterID(a, b string) bool {
	if len(a) != len(b) {
		return len(a) > len(b)
	}
	return a > b
}
