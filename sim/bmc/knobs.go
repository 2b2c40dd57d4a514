// SPDX-License-Identifier: Apache-2.0

package bmc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/rackbus/rackbus/sim/internal/jsonduration"
)

// Knobs are named misbehaviours of a device. The zero value is a healthy one. They apply from the next time the
// device does the thing in question; a running task keeps what it was started with.
type Knobs struct {
	// TaskEnd makes update tasks end in another way than Completed and OK.
	TaskEnd *TaskEnd `json:"task_end,omitempty"`
	// TaskStuckAt makes update tasks stay Running at this percentage for ever; 0 is off.
	TaskStuckAt int `json:"task_stuck_at,omitempty"`
	// TaskReadStatus is the HTTP status of task reads, for example 202; 0 is 200.
	TaskReadStatus int `json:"task_read_status,omitempty"`
	// RunningTask is the id of a foreign update task that is always there and Running, for example "77" or "HGX_77".
	RunningTask string `json:"running_task,omitempty"`
	// LoseTasksOnRestart empties the task list, and gives up running updates, when the BMC restarts.
	LoseTasksOnRestart bool `json:"lose_tasks_on_restart,omitempty"`
	// RestartDuringUpdate restarts the BMC in the middle of each update.
	RestartDuringUpdate *UpdateRestart `json:"restart_during_update,omitempty"`
	// UploadAnswer is the shape of the answer to an accepted upload.
	UploadAnswer UploadAnswer `json:"upload_answer,omitempty"`
	// UploadBytesPerSecond throttles how fast upload bodies are received; 0 does not.
	UploadBytesPerSecond int64 `json:"upload_bytes_per_second,omitempty"`
	// ServiceDisabled shows ServiceEnabled false and refuses uploads.
	ServiceDisabled bool `json:"service_disabled,omitempty"`
	// VersionUnchanged drops pending versions at activation.
	VersionUnchanged bool `json:"version_unchanged,omitempty"`
	// ActivationNeedsAUX lets only an AUX power cycle activate pending versions of a compute tray.
	ActivationNeedsAUX bool `json:"activation_needs_aux,omitempty"`
	// HardwareWriteProtect shows HardwareWriteProtectEnable on Chassis_0; uploads end in Exception.
	HardwareWriteProtect bool `json:"hardware_write_protect,omitempty"`
	// WriteProtected are inventory names shown with WriteProtected; updates of them end in Exception.
	WriteProtected []string `json:"write_protected,omitempty"`
	// SilentManagerReset resets the manager without a visible outage.
	SilentManagerReset bool `json:"silent_manager_reset,omitempty"`
	// Handoff makes controller pushes under ApplyTime OnReset end in one of the two hand-off shapes.
	Handoff Handoff `json:"handoff,omitempty"`
	// RejectAllSupplies refuses supply pushes that do not name one supply.
	RejectAllSupplies bool `json:"reject_all_supplies,omitempty"`
	// PowerIgnored accepts power actions of the host and does nothing.
	PowerIgnored bool `json:"power_ignored,omitempty"`
	// PowerReported is shown as the host's PowerState instead of the true one, for example "PoweringOn".
	PowerReported string `json:"power_reported,omitempty"`
	// IfMatch is how PATCH treats If-Match.
	IfMatch IfMatch `json:"if_match,omitempty"`
	// RefuseUnchangedPatch answers 400 PatchValueAlreadyExists to a PATCH that changes nothing.
	RefuseUnchangedPatch bool `json:"refuse_unchanged_patch,omitempty"`
	// PasswordExpired answers 403 until the password is changed, which the simulator does not offer.
	PasswordExpired bool `json:"password_expired,omitempty"`
	// Outage is how the device is unreachable while its BMC restarts; empty is the device's configured mode.
	Outage OutageMode `json:"outage,omitempty"`
	// BackgroundCopy shows BackgroundCopyStatus InProgress for this long after the knob was changed; negative for ever.
	BackgroundCopy time.Duration `json:"-"`
}

// TaskEnd is the end of an update task.
type TaskEnd struct {
	// State is the TaskState; empty is "Exception".
	State string `json:"state,omitempty"`
	// Status is the TaskStatus; empty is "Critical".
	Status string `json:"status,omitempty"`
	// Percent is how far the task gets; 0 is 60 for states other than Completed, 100 for Completed.
	Percent int `json:"percent,omitempty"`
	// Messages are appended to the task's messages; none appends one for a failed verification.
	Messages []Message `json:"messages,omitempty"`
	// Flashed makes the new versions pending although the task does not end well.
	Flashed bool `json:"flashed,omitempty"`
}

// Message is an entry of a task's Messages.
type Message struct {
	ID         string   `json:"MessageId"`
	Text       string   `json:"Message"`
	Args       []string `json:"MessageArgs"`
	Severity   string   `json:"MessageSeverity"`
	Resolution string   `json:"Resolution"`
}

// UpdateRestart is a restart of the BMC in the middle of an update.
type UpdateRestart struct {
	// AtPercent is when; 0 is 50.
	AtPercent int `json:"at_percent,omitempty"`
	// LoseTask removes the task.
	LoseTask bool `json:"lose_task,omitempty"`
	// Outcome is what becomes of the update.
	Outcome RestartOutcome `json:"outcome,omitempty"`
}

// RestartOutcome is what becomes of an update whose BMC restarted.
type RestartOutcome string

const (
	// RestartContinues goes on with the update, seen or unseen.
	RestartContinues RestartOutcome = ""
	// RestartAbandons gives the update up; a task that is still there ends in Exception.
	RestartAbandons RestartOutcome = "abandons"
	// RestartActivates comes back with the new versions active; a task that is still there completes.
	RestartActivates RestartOutcome = "activates"
)

// UploadAnswer is the shape of the answer to an accepted upload.
type UploadAnswer string

const (
	// AnswerFull is 202 with Location and the task as body.
	AnswerFull UploadAnswer = ""
	// AnswerLocation is 202 with Location and no body.
	AnswerLocation UploadAnswer = "location"
	// AnswerBody is 202 with the task as body and no Location.
	AnswerBody UploadAnswer = "body"
	// AnswerLink is 202 with Location and only the task's @odata.id as body.
	AnswerLink UploadAnswer = "link"
	// AnswerMessageArgs is 202 with the task's URI in a message argument.
	AnswerMessageArgs UploadAnswer = "message-args"
	// AnswerAcceptedEmpty is 202 with neither Location nor body.
	AnswerAcceptedEmpty UploadAnswer = "accepted-empty"
	// AnswerOKEmpty is 200 without a task; the update goes on unseen.
	AnswerOKEmpty UploadAnswer = "ok-empty"
)

// Handoff is how a shelf controller's task looks once only the reset is missing.
type Handoff string

const (
	// HandoffNone completes the task.
	HandoffNone Handoff = ""
	// HandoffAborted is Cancelled, Warning, 100 % with a TaskAborted message.
	HandoffAborted Handoff = "aborted"
	// HandoffInternalError is Running, OK, 0 % with an EndTime and a critical InternalError message.
	HandoffInternalError Handoff = "internal-error"
)

// IfMatch is how PATCH treats the If-Match header.
type IfMatch string

const (
	// IfMatchOptional checks the header when it is there; * always matches, an empty one never.
	IfMatchOptional IfMatch = ""
	// IfMatchRequired answers 428 without the header.
	IfMatchRequired IfMatch = "required"
	// IfMatchRefused answers 412 with the header.
	IfMatchRefused IfMatch = "refused"
)

// OutageMode is how a device is unreachable.
type OutageMode string

const (
	// OutageUnavailable answers every request with 503.
	OutageUnavailable OutageMode = "503"
	// OutageRefuse refuses connections and cuts those that exist.
	OutageRefuse OutageMode = "refuse"
)

type plainKnobs Knobs

type knobsWire struct {
	plainKnobs
	BackgroundCopy jsonduration.Duration `json:"background_copy,omitempty"`
}

// UnmarshalJSON merges the given members into k and refuses unknown ones.
func (k *Knobs) UnmarshalJSON(b []byte) error {
	wire := knobsWire{plainKnobs: plainKnobs(*k), BackgroundCopy: jsonduration.Duration(k.BackgroundCopy)}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&wire); err != nil {
		return fmt.Errorf("read knobs: %w", err)
	}
	*k = Knobs(wire.plainKnobs)
	k.BackgroundCopy = time.Duration(wire.BackgroundCopy)
	return nil
}

// MarshalJSON writes the knobs that are set.
func (k Knobs) MarshalJSON() ([]byte, error) {
	return json.Marshal(knobsWire{plainKnobs: plainKnobs(k), BackgroundCopy: jsonduration.Duration(k.BackgroundCopy)})
}
