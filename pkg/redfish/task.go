// SPDX-License-Identifier: Apache-2.0

package redfish

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/stmcginnis/gofish/schemas"
)

// TaskPhase is what a TaskState comes down to for whoever waits.
type TaskPhase string

// The phases.
const (
	TaskPending   TaskPhase = "pending"
	TaskRunning   TaskPhase = "running"
	TaskCompleted TaskPhase = "completed"
	TaskFailed    TaskPhase = "failed"
	TaskCancelled TaskPhase = "cancelled"
	// TaskSuspended waits for something; it may go on by itself.
	TaskSuspended TaskPhase = "suspended"
	// TaskNeedsAction will not go on before somebody does something.
	TaskNeedsAction TaskPhase = "needs_action"
	// TaskUnknown is a state we do not know; it is polled on.
	TaskUnknown TaskPhase = "unknown"
)

// TaskStatus is one look at a task.
type TaskStatus struct {
	Ref   TaskRef
	Phase TaskPhase
	// State and Health are the device's TaskState and TaskStatus.
	State  schemas.TaskState
	Health schemas.Health
	// Percent is 0 to 100, -1 when the device does not say.
	Percent int
	// EndTime is the device's text, empty while the task runs.
	EndTime  string
	Messages []schemas.Message
	// Text sums the messages up: those that are not OK with their resolutions,
	// else the last one, else the health.
	Text string
	// MessageID is that of the most telling message.
	MessageID string
	// Handoff marks an OnReset update that a shelf controller took over: it is
	// complete and waits for the activation.
	Handoff bool
	// RetryAfter is what the device asked to wait before the next look.
	RetryAfter time.Duration
	// Target is the URI of the request that began the task, empty when the device does
	// not tell (Task v1.1, Payload.TargetUri).
	Target string
}

// TaskError is a task that ended without success.
type TaskError struct {
	Task TaskStatus
}

// Error gives state, health and messages.
func (e *TaskError) Error() string {
	t := e.Task
	text := fmt.Sprintf("firmware task %s ended unsuccessfully: state='%s', status='%s', message='%s'", t.Ref, t.State, t.Health, t.Text)
	if t.MessageID != "" {
		text += " (" + t.MessageID + ")"
	}
	if t.Phase == TaskNeedsAction {
		text += "; the device waits for someone to act on it (see the resolution, or its console) before the update can go on"
	}
	return text
}

// Terminal reports whether the task will not change any more without help.
func (t TaskStatus) Terminal() bool {
	switch t.Phase {
	case TaskCompleted, TaskFailed, TaskCancelled, TaskNeedsAction:
		return true
	default:
		return false
	}
}

// Err returns a *TaskError for a task that ended without success, nil for one
// that succeeded or still runs.
func (t TaskStatus) Err() error {
	if !t.Terminal() || !t.failed() {
		return nil
	}
	return &TaskError{Task: t}
}

// failed judges an ended task. Completed is not enough: the health, and with a
// warning the texts, may say that nothing was installed.
func (t TaskStatus) failed() bool {
	if t.Handoff {
		return false
	}
	if t.Phase != TaskCompleted {
		return true
	}
	switch strings.ToLower(string(t.Health)) {
	case "critical", "failed", "cancelled", "canceled":
		return true
	case "warning":
		return saysFailure(t.text())
	default:
		return false
	}
}

// text is all there is to search, ids included.
func (t TaskStatus) text() string {
	var b strings.Builder
	b.WriteString(t.Text)
	for _, m := range t.Messages {
		b.WriteString("\n" + m.MessageID + "\n" + m.Message)
	}
	return strings.ToLower(b.String())
}

// saysFailure lists the words with which a Warning means that components were
// not installed.
func saysFailure(text string) bool {
	return slices.ContainsFunc([]string{"resourceerrorsdetected", "detected errors", "completed with errors",
		"firmware update had errors", "no matching devices"},
		func(words string) bool { return strings.Contains(text, words) })
}

// phaseOf maps a TaskState, case-insensitively, with the spellings seen on
// hardware.
func phaseOf(state string, percent int) TaskPhase {
	switch strings.ToLower(state) {
	case "pending", "new", "starting":
		return TaskPending
	case "running", "start", "inprogress", "in_progress", "service", "stopping", "cancelling", "interrupted":
		// DMTF: an interrupted task is expected to restart.
		return TaskRunning
	case "completed", "complete", "ok":
		return TaskCompleted
	case "exception", "failed", "error", "critical", "killed", "action_failed":
		return TaskFailed
	case "action_error":
		if percent < 100 {
			return TaskFailed
		}
		return TaskCompleted
	case "cancelled", "canceled":
		return TaskCancelled
	case "suspended":
		return TaskSuspended
	case "userintervention":
		return TaskNeedsAction
	default:
		return TaskUnknown
	}
}

// Task looks at a task once. A task that no longer exists is an *Error with
// CodeNotFound.
func (c *Client) Task(ctx context.Context, ref TaskRef) (TaskStatus, error) {
	return c.task(ctx, ref, false)
}

// task looks at a task. last gives the connection up: thousands of polls would
// each keep one open for nothing.
func (c *Client) task(ctx context.Context, ref TaskRef, last bool) (TaskStatus, error) {
	const op = "read task"
	path := ref.URI
	if path == "" {
		path = ref.Monitor
	}
	if _, err := devicePath(path); err != nil {
		return TaskStatus{}, &Error{Op: op, Code: CodeInvalidArgument, cause: err}
	}
	a, err := c.send(ctx, request{op: op, method: http.MethodGet, path: path, last: last, limit: c.timing.Request})
	if err != nil {
		return TaskStatus{}, err
	}
	d, err := a.document()
	if ref.URI == "" {
		return c.scrubTask(monitorStatus(ref, a, d)), nil
	}
	if err != nil {
		return TaskStatus{}, &Error{Op: op, Method: http.MethodGet, Path: path, Status: a.status, Code: CodeInvalidResponse,
			Sent: true, reason: "the task is not a JSON object", cause: err}
	}
	status := taskStatus(ref, d)
	status.RetryAfter = retryAfter(a.header)
	if c.profile.ApplyTime != "" {
		status = status.recogniseHandoff()
	}
	return c.scrubTask(status), nil
}

// scrubTask removes our own credentials from what the device says of a task.
func (c *Client) scrubTask(t TaskStatus) TaskStatus {
	t.MessageID, t.Text = c.scrub(t.MessageID), c.scrub(t.Text)
	c.scrubMessages(t.Messages)
	return t
}

func (c *Client) scrubMessages(messages []schemas.Message) {
	for i := range messages {
		m := &messages[i]
		m.Message, m.Resolution = c.scrub(m.Message), c.scrub(m.Resolution)
		for k := range m.MessageArgs {
			m.MessageArgs[k] = c.scrub(m.MessageArgs[k])
		}
	}
}

// monitorStatus judges a monitor by its status code: 202 means running, any
// other success means done. A Task in the body says more.
func monitorStatus(ref TaskRef, a *answer, d document) TaskStatus {
	if d.has("TaskState") {
		status := taskStatus(ref, d)
		status.RetryAfter = retryAfter(a.header)
		return status
	}
	status := TaskStatus{Ref: ref, Phase: TaskCompleted, State: schemas.CompletedTaskState, Percent: 100}
	if a.status == http.StatusAccepted {
		status.Phase, status.State, status.Percent = TaskRunning, schemas.RunningTaskState, -1
	}
	status.RetryAfter = retryAfter(a.header)
	status.Messages = extendedInfo(d)
	status.summarise()
	return status
}

func taskStatus(ref TaskRef, d document) TaskStatus {
	t := TaskStatus{
		Ref:      ref,
		State:    schemas.TaskState(d.text("TaskState")),
		Health:   schemas.Health(d.text("TaskStatus")),
		Percent:  -1,
		EndTime:  d.text("EndTime"),
		Messages: decodeMessages(d.list("Messages")),
		Target:   d.object("Payload").text("TargetUri"),
	}
	if t.Health == "" {
		t.Health = schemas.Health(d.text("status"))
	}
	if p, ok := d.number("PercentComplete"); ok {
		t.Percent = int(math.Max(0, math.Min(100, p)))
	}
	t.Phase = phaseOf(string(t.State), t.Percent)
	t.summarise()
	return t
}

// summarise fills Text and MessageID.
func (t *TaskStatus) summarise() {
	var bad []string
	for _, m := range t.Messages {
		if severityOf(m) == schemas.OKHealth {
			continue
		}
		text := m.Message
		if text == "" {
			text = m.MessageID
		}
		if m.Resolution != "" && m.Resolution != "None." && m.Resolution != "None" {
			text += " Resolution: " + m.Resolution
		}
		bad = append(bad, text)
		if t.MessageID == "" || severityOf(m) == schemas.CriticalHealth {
			t.MessageID = m.MessageID
		}
	}
	switch n := len(t.Messages); {
	case len(bad) > 0:
		t.Text = clip(strings.Join(bad, "; "))
	case n > 0 && t.Messages[n-1].Message != "":
		t.Text, t.MessageID = t.Messages[n-1].Message, t.Messages[n-1].MessageID
	default:
		t.Text = string(t.Health)
	}
}

// RunningTasks lists the tasks of the device that have not ended.
func (c *Client) RunningTasks(ctx context.Context) ([]TaskStatus, error) {
	const op = "list tasks"
	list, err := c.collection(ctx, op, tasksPath)
	if err != nil {
		return nil, err
	}
	var running []TaskStatus
	for _, member := range list.members {
		task, err := c.Task(ctx, refOf(member))
		if err != nil {
			if hopeless(ctx, err) {
				return running, err
			}
			continue
		}
		switch strings.ToLower(string(task.State)) {
		case "new", "pending", "running", "service", "starting":
			running = append(running, task)
		}
	}
	return running, nil
}

// RunningUpdateTask finds a task that forbids an update: one of the HMC for a
// baseboard package, one of the BMC for any other. A device whose task list
// cannot be read does not forbid it; rejected credentials are an error.
func (c *Client) RunningUpdateTask(ctx context.Context, hmc bool) (task TaskStatus, found bool, err error) {
	if c.profile.Kind != KindCompute {
		return TaskStatus{}, false, nil
	}
	running, err := c.RunningTasks(ctx)
	for _, t := range running {
		if t.Ref.IsHMC() == hmc {
			return t, true, nil
		}
	}
	if err != nil && hopeless(ctx, err) {
		return TaskStatus{}, false, err
	}
	return TaskStatus{}, false, nil
}

// RunningUpdate finds a task, of either controller, under which firmware may be written,
// so that the device must not lose its power. One that was begun by a request to another
// service writes none. As in RunningUpdateTask, a list that cannot be read forbids nothing.
func (c *Client) RunningUpdate(ctx context.Context) (task TaskStatus, found bool, err error) {
	running, err := c.RunningTasks(ctx)
	for _, t := range running {
		if t.Target == "" || strings.Contains(t.Target, "/UpdateService") {
			return t, true, nil
		}
	}
	if err != nil && hopeless(ctx, err) {
		return TaskStatus{}, false, err
	}
	return TaskStatus{}, false, nil
}

// MarshalJSON keeps the status readable in a checkpoint or a result.
func (t TaskStatus) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		ID        string    `json:"id"`
		Phase     TaskPhase `json:"phase"`
		State     string    `json:"state"`
		Health    string    `json:"health,omitempty"`
		Percent   int       `json:"percent"`
		Text      string    `json:"message,omitempty"`
		MessageID string    `json:"message_id,omitempty"`
	}{t.Ref.String(), t.Phase, string(t.State), string(t.Health), t.Percent, t.Text, t.MessageID})
}
