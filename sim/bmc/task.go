// SPDX-License-Identifier: Apache-2.0

package bmc

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	taskRunning   = "Running"
	taskCompleted = "Completed"
	taskException = "Exception"

	// statusMember carries an HTTP status out of a live document.
	statusMember = "\x00status"
	// emptyMember marks a live document that is sent without a body.
	emptyMember = "\x00empty"
	// hgxPrefix begins the ids of tasks and inventory entries of the HMC.
	hgxPrefix = "HGX_"
	// keptTasks is how many ended tasks a device remembers.
	keptTasks = 32
	// transferAt and installAt are the percentages at which a task reports its next phase.
	transferAt, installAt = 5, 30
)

// Task is what a device reports of an update task.
type Task struct {
	ID      string    `json:"id"`
	State   string    `json:"state"`
	Status  string    `json:"status"`
	Percent int       `json:"percent"`
	Started time.Time `json:"started"`
	// Ended is zero while the task runs.
	Ended time.Time `json:"ended,omitzero"`
	// Versions are what the task brings, by inventory name.
	Versions map[string]string `json:"versions"`
}

// task is an update in progress or its memory.
type task struct {
	id       string
	plan     plan
	started  time.Time
	duration time.Duration
	stuckAt  int

	state, status string
	percent       int
	ended         time.Time
	extra         []Message
	// abandoned tasks do nothing when their time comes.
	abandoned bool
	// missing is how many reads do not find the task yet.
	missing int
}

// ending is how a task ends.
type ending struct {
	state, status string
	// at is the share of the duration after which it happens, percent what the task then shows.
	at, percent int
	messages    []Message
	flashed     bool
}

func (t *task) progress(now time.Time) int {
	if t.state != taskRunning || !t.ended.IsZero() {
		return t.percent
	}
	p := int(100 * now.Sub(t.started) / t.duration)
	if t.stuckAt > 0 {
		p = min(p, t.stuckAt)
	}
	return min(p, 99)
}

// Tasks returns the tasks a client can see, oldest first.
func (d *Device) Tasks() []Task {
	now := d.lock()
	defer d.mu.Unlock()
	out := make([]Task, len(d.tasks))
	for i, t := range d.tasks {
		out[i] = Task{ID: t.id, State: t.state, Status: t.status, Percent: t.progress(now), Started: t.started,
			Ended: t.ended, Versions: maps.Clone(t.plan.versions)}
	}
	return out
}

// AbortTask removes a task with its update.
func (d *Device) AbortTask(id string) {
	d.lock()
	defer d.mu.Unlock()
	for _, t := range d.tasks {
		if t.id == id {
			t.abandoned = true
		}
	}
	d.removeTask(id)
}

// DropTask removes a task as an operator might; its update goes on.
func (d *Device) DropTask(id string) {
	d.lock()
	defer d.mu.Unlock()
	d.removeTask(id)
}

func (d *Device) removeTask(id string) {
	d.tasks = slices.DeleteFunc(d.tasks, func(t *task) bool { return t.id == id })
}

func (d *Device) taskIDs() []string {
	var ids []string
	for _, t := range d.tasks {
		ids = append(ids, t.id)
	}
	if d.knobs.RunningTask != "" {
		ids = append(ids, d.knobs.RunningTask)
	}
	return ids
}

// updating reports whether an update of the HMC (hgx) or of anything else is in progress.
func (d *Device) updating(hgx bool) bool {
	if id := d.knobs.RunningTask; id != "" && strings.HasPrefix(id, hgxPrefix) == hgx && !over(d.knobs.RunningTaskState) {
		return true
	}
	for _, u := range d.units {
		if u.update != nil && u.update.ended.IsZero() && !u.update.abandoned {
			return true
		}
	}
	return slices.ContainsFunc(d.tasks, func(t *task) bool {
		return t.ended.IsZero() && strings.HasPrefix(t.id, hgxPrefix) == hgx
	})
}

// over reports whether a TaskState is one of an ended task.
func over(state string) bool {
	return slices.Contains([]string{taskCompleted, taskException, "Killed", "Cancelled"}, state)
}

// startTask begins the update of a plan.
func (d *Device) startTask(now time.Time, p plan) *task {
	t := &task{
		id: strconv.Itoa(d.taskSerial), plan: p, started: now, duration: d.cfg.Timing.Task,
		state: taskRunning, status: "OK", stuckAt: d.knobs.TaskStuckAt, missing: d.knobs.TaskMissingReads,
	}
	switch {
	case d.knobs.UploadAnswer == AnswerJobID:
		t.id = fmt.Sprintf("JID_%012d", d.taskSerial+1)
	case p.hgx:
		t.id = hgxPrefix + t.id
	}
	d.taskSerial++
	for i := range d.units {
		if d.unitIn(p, i) {
			d.units[i] = unit{update: t}
		}
	}
	if !p.unlisted {
		if len(d.tasks) >= keptTasks {
			d.tasks = slices.Delete(d.tasks, 0, 1)
		}
		d.tasks = append(d.tasks, t)
	}
	if restart := d.knobs.RestartDuringUpdate; restart != nil {
		at := restart.AtPercent
		if at == 0 {
			at = 50
		}
		d.after(now, t.share(at), func(now time.Time) { d.restartDuring(t, *restart, now) })
	}
	if p.restartsAt > 0 && p.restartsAt < 100 {
		d.after(now, t.share(p.restartsAt), func(now time.Time) {
			if t.ended.IsZero() && !t.abandoned {
				d.restartBMC(now, d.cfg.Timing.BMCOutage)
			}
		})
	}
	if t.stuckAt == 0 {
		end := d.endingOf(p)
		d.after(now, t.share(end.at), func(now time.Time) { d.endTask(t, end, now) })
	}
	return t
}

// unitIn reports whether a plan updates a supply.
func (d *Device) unitIn(p plan, i int) bool {
	layout := d.blueprint.product.shelf
	if layout == nil {
		return false
	}
	_, hit := p.versions[layout.supply(i)]
	return hit
}

// share is a percentage of the task's duration.
func (t *task) share(percent int) time.Duration { return t.duration * time.Duration(percent) / 100 }

// endingOf decides how the task of a plan ends.
func (d *Device) endingOf(p plan) ending {
	switch {
	case d.knobs.TaskEnd != nil:
		return d.knobs.TaskEnd.ending()
	case p.end != nil:
		return *p.end
	case p.handoff == HandoffAborted:
		return ending{state: "Cancelled", status: "Warning", at: 100, percent: 100, flashed: true, messages: []Message{{
			ID: taskRegistry + "TaskAborted", Text: "The update task completed with errors.", Severity: "Warning",
			Resolution: "Reset the controller.",
		}}}
	case p.handoff == HandoffInternalError:
		return ending{state: taskRunning, status: "OK", at: 100, flashed: true, messages: []Message{{
			ID: baseRegistry + "InternalError", Text: "The request met an internal service error.", Severity: "Critical",
			Resolution: "Reset the controller.",
		}}}
	}
	return ending{state: taskCompleted, status: "OK", at: 100, percent: 100, flashed: true}
}

func (e TaskEnd) ending() ending {
	out := ending{state: e.State, status: e.Status, percent: e.Percent, messages: e.Messages, flashed: e.Flashed}
	if out.state == "" {
		out.state = taskException
	}
	if out.status == "" {
		out.status = "Critical"
	}
	if out.percent == 0 {
		out.percent = 60
		if out.state == taskCompleted {
			out.percent = 100
		}
	}
	out.at = out.percent
	if len(out.messages) == 0 && out.status != "OK" {
		out.messages = []Message{{
			ID: updateRegistry + "VerificationFailed", Text: "The image could not be verified on the component.",
			Severity: "Critical", Resolution: "Upload the image again.",
		}}
	}
	return out
}

func (d *Device) endTask(t *task, end ending, now time.Time) {
	if !t.ended.IsZero() || t.abandoned {
		return
	}
	t.state, t.status, t.percent, t.ended = end.state, end.status, end.percent, now
	t.extra = append(t.extra, end.messages...)
	if end.state == taskCompleted && end.status == "OK" {
		t.extra = append(t.extra,
			Message{ID: updateRegistry + "UpdateSuccessful", Text: "The components took their new images.", Severity: "OK"},
			Message{ID: taskRegistry + "TaskCompletedOK", Text: "The task has completed.", Severity: "OK", Args: []string{t.id}})
	}
	if end.flashed {
		d.flash(t, now)
	}
	for i := range d.units {
		if d.units[i].update == t {
			d.units[i].failed = !end.flashed || slices.Contains(t.plan.failing, d.blueprint.product.shelf.supply(i))
		}
	}
}

// flash makes the versions of a task pending, or active where the plan says so.
func (d *Device) flash(t *task, now time.Time) {
	taken := maps.Clone(t.plan.versions)
	for _, name := range slices.Concat(t.plan.failing, t.plan.unchanged) {
		delete(taken, name)
	}
	if t.plan.immediate {
		d.bringUp(taken)
	} else {
		if d.pending == nil {
			d.pending = map[string]string{}
		}
		maps.Copy(d.pending, taken)
	}
	if t.plan.restartsAt == 100 {
		d.restartBMC(now, d.cfg.Timing.BMCOutage)
	}
	if t.plan.forgotten {
		d.removeTask(t.id)
	}
}

func (d *Device) restartDuring(t *task, restart UpdateRestart, now time.Time) {
	if !t.ended.IsZero() || t.abandoned {
		return
	}
	switch restart.Outcome {
	case RestartAbandons:
		d.endTask(t, ending{state: taskException, status: "Critical", percent: t.progress(now), messages: []Message{{
			ID: updateRegistry + "ApplyFailed", Text: "The update was interrupted by a restart.", Severity: "Critical",
			Resolution: "Start the update again.",
		}}}, now)
	case RestartActivates:
		t.plan.immediate, t.plan.restartsAt = true, 0
		d.endTask(t, ending{state: taskCompleted, status: "OK", percent: 100, flashed: true}, now)
	case RestartContinues:
		// The task goes on after the restart.
	}
	if restart.LoseTask {
		d.removeTask(t.id)
	}
	d.restartBMC(now, d.cfg.Timing.BMCOutage)
}

// taskResource is the page of a task or its monitor.
func taskResource(id string, monitor bool) *resource {
	uri := tasksURI + "/" + id
	gone := object{statusMember: http.StatusNotFound, "@odata.id": uri}
	return &resource{live: func(d *Device, now time.Time) object {
		at := slices.IndexFunc(d.tasks, func(t *task) bool { return t.id == id })
		switch {
		case at >= 0 && spend(&d.tasks[at].missing):
			return gone
		case at >= 0 && monitor:
			return d.monitorPage(d.tasks[at], now)
		case at >= 0:
			doc := d.tasks[at].document(now)
			if d.knobs.TaskReadStatus != 0 {
				doc[statusMember] = d.knobs.TaskReadStatus
			}
			return doc
		case id == d.knobs.RunningTask:
			foreign := task{id: id, state: cmp.Or(d.knobs.RunningTaskState, taskRunning), status: "OK",
				started: now.Add(-time.Minute), duration: time.Hour}
			return foreign.document(now)
		}
		return gone
	}}
}

// monitorPage is what the monitor of a task answers.
func (d *Device) monitorPage(t *task, now time.Time) object {
	empty := d.knobs.TaskMonitor == MonitorEmpty
	switch {
	case t.ended.IsZero() && empty:
		return object{statusMember: http.StatusAccepted, emptyMember: true}
	case t.ended.IsZero():
		doc := t.document(now)
		doc[statusMember] = http.StatusAccepted
		return doc
	case empty && t.state == taskCompleted && t.status == "OK":
		return object{statusMember: http.StatusNoContent, emptyMember: true}
	case empty:
		doc := ErrorBody(updateRegistry+"ApplyFailed", "The update did not succeed.", t.id)
		doc[statusMember] = http.StatusInternalServerError
		return doc
	}
	return object{"@Message.ExtendedInfo": []any{extended(
		taskRegistry+"TaskCompletedOK", "The task has ended.", "OK", "None.", t.id)}}
}

func (t *task) document(now time.Time) object {
	messages := t.messages(now)
	shown := make([]any, len(messages))
	for i, m := range messages {
		shown[i] = extended(m.ID, m.Text, m.Severity, m.Resolution, m.Args...)
	}
	doc := object{
		"@odata.id": tasksURI + "/" + t.id, "@odata.type": "#Task.v1_4_3.Task", "Id": t.id, "Name": "Task " + t.id,
		"TaskState": t.state, "TaskStatus": t.status, "PercentComplete": t.progress(now),
		"StartTime": t.started.UTC().Format(time.RFC3339), "TaskMonitor": tasksURI + "/" + t.id + "/Monitor",
		"HidePayload": true, "Messages": shown,
	}
	if !t.ended.IsZero() {
		doc["EndTime"] = t.ended.UTC().Format(time.RFC3339)
	}
	return doc
}

// messages are what the task has reported so far.
func (t *task) messages(now time.Time) []Message {
	progress := t.progress(now)
	out := []Message{{ID: taskRegistry + "TaskStarted", Text: "The task has started.", Severity: "OK", Args: []string{t.id}}}
	for _, phase := range []struct {
		from     int
		id, text string
	}{
		{0, "TargetDetermined", "%s will be updated."},
		{transferAt, "TransferringToComponent", "The image is being transferred to %s."},
		{installAt, "InstallingOnComponent", "The image is being installed on %s."},
	} {
		if progress < phase.from && t.ended.IsZero() {
			break
		}
		for _, name := range slices.Sorted(maps.Keys(t.plan.versions)) {
			out = append(out, Message{ID: updateRegistry + phase.id, Text: fmt.Sprintf(phase.text, name), Severity: "OK",
				Args: []string{t.plan.versions[name], name}})
		}
	}
	if t.ended.IsZero() && progress > 0 {
		out = append(out, Message{ID: taskRegistry + "TaskProgressChanged", Severity: "OK",
			Text: fmt.Sprintf("The task is at %d percent.", progress), Args: []string{t.id, strconv.Itoa(progress)}})
	}
	out = append(out, t.extra...)
	for i := range out {
		if out[i].Resolution == "" {
			out[i].Resolution = "None."
		}
	}
	return out
}
