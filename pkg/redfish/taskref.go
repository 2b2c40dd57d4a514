// SPDX-License-Identifier: Apache-2.0

package redfish

import (
	"regexp"
	"strings"

	"github.com/stmcginnis/gofish/schemas"
)

// TaskRef names an update task. It is plain data, to be kept in a checkpoint.
type TaskRef struct {
	// ID is the task's id, for example 7 or HGX_3; empty when only a monitor is
	// known.
	ID string `json:"id,omitempty"`
	// URI is the task resource.
	URI string `json:"uri,omitempty"`
	// Monitor is a task monitor: polled by status code, its body is optional. It
	// is used only when there is no URI.
	Monitor string `json:"monitor,omitempty"`
}

// IsZero reports whether the reference names nothing.
func (r TaskRef) IsZero() bool { return r.URI == "" && r.Monitor == "" }

// String gives the id, else the monitor.
func (r TaskRef) String() string {
	if r.ID != "" {
		return r.ID
	}
	return r.Monitor
}

// TaskByID names a task of the task service by its id.
func TaskByID(id string) TaskRef { return TaskRef{ID: id, URI: tasksPath + "/" + id} }

// IsHMC reports whether the task runs on the manager of the GPU baseboard.
func (r TaskRef) IsHMC() bool { return strings.HasPrefix(r.ID, "HGX_") }

var (
	taskURI   = regexp.MustCompile(`^(/.*/Tasks/([^/?#]+))(/Monitor)?/?(?:[?#].*)?$`)
	taskInArg = regexp.MustCompile(`/redfish/v1/TaskService/Tasks/([A-Za-z0-9_.-]+)`)
	bareID    = regexp.MustCompile(`^[A-Za-z0-9_.-]+$`)
)

// namesTask lists messages whose first argument is the bare id of a task:
// TaskStarted of the TaskEvent registry, JCP001 and JCP027 of Dell's (job
// scheduled, job created).
func namesTask(id string) bool {
	switch messageName(id) {
	case "TaskStarted", "JCP001", "JCP027":
		return true
	default:
		return false
	}
}

// taskOf finds the task an answer refers to: the body first, then a path in the
// message arguments, then the Location header, then a bare id in the arguments.
func (c *Client) taskOf(a *answer, d document, messages []schemas.Message) (TaskRef, bool) {
	ref, ok := bodyTask(d)
	if !ok {
		ref, ok = argumentPath(messages)
	}
	if location := a.header.Get("Location"); location != "" {
		if path, err := c.headerPath(a.path, location); err == nil {
			fromHeader := refOf(path)
			if !ok {
				ref, ok = fromHeader, true
			} else if ref.Monitor == "" {
				ref.Monitor = fromHeader.Monitor
			}
		} else {
			c.log.Warn("task location outside the device ignored")
		}
	}
	if !ok {
		ref, ok = argumentID(messages)
	}
	return ref, ok && !ref.IsZero()
}

// refOf reads a path: a task, the monitor below a task, or any other monitor.
func refOf(path string) TaskRef {
	if m := taskURI.FindStringSubmatch(path); m != nil {
		ref := TaskRef{ID: m[2], URI: m[1]}
		if m[3] != "" {
			ref.Monitor = m[1] + m[3]
		}
		return ref
	}
	return TaskRef{Monitor: path}
}

func bodyTask(d document) (TaskRef, bool) {
	if path, err := devicePath(d.text("@odata.id")); err == nil {
		if ref := refOf(path); ref.URI != "" {
			if monitor, err := devicePath(d.link("TaskMonitor")); err == nil {
				ref.Monitor = monitor
			}
			return ref, true
		}
	}
	if id := d.text("Id"); bareID.MatchString(id) && (d.has("TaskState") || !d.has("@odata.type") || isTask(d)) {
		return TaskByID(id), true
	}
	if monitor, err := devicePath(d.link("TaskMonitor")); err == nil {
		return refOf(monitor), true
	}
	return TaskRef{}, false
}

func isTask(d document) bool { return strings.HasPrefix(d.text("@odata.type"), "#Task.") }

func argumentPath(messages []schemas.Message) (TaskRef, bool) {
	for _, m := range messages {
		for _, arg := range m.MessageArgs {
			if found := taskInArg.FindStringSubmatch(arg); found != nil {
				return TaskByID(found[1]), true
			}
		}
	}
	return TaskRef{}, false
}

func argumentID(messages []schemas.Message) (TaskRef, bool) {
	for _, m := range messages {
		if namesTask(m.MessageID) && len(m.MessageArgs) > 0 && bareID.MatchString(m.MessageArgs[0]) {
			return TaskByID(m.MessageArgs[0]), true
		}
	}
	return TaskRef{}, false
}
