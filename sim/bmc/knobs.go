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
	// TaskMissingReads is how many reads of each new task answer 404 before it is there.
	TaskMissingReads int `json:"task_missing_reads,omitempty"`
	// TaskMonitor is how the monitors of tasks answer.
	TaskMonitor TaskMonitor `json:"task_monitor,omitempty"`
	// RunningTaskState is the TaskState of RunningTask; empty is "Running".
	RunningTaskState string `json:"running_task_state,omitempty"`
	// SameVersion is what becomes of uploads that bring only versions that are installed, unless forced.
	SameVersion SameVersion `json:"same_version,omitempty"`
	// ComparisonStamp is the stamp of all components: images with a lower one fail, unless forced; 0 compares none.
	ComparisonStamp uint32 `json:"comparison_stamp,omitempty"`
	// Advertise are the ways of updating that the device offers; empty is what its model offers.
	Advertise []Push `json:"advertise,omitempty"`
	// Renames gives inventory entries a new id once a new version of them becomes active, from old id to new.
	Renames map[string]string `json:"renames,omitempty"`
	// Hidden are inventory entries that are not there.
	Hidden []string `json:"hidden,omitempty"`
	// EmbeddedInventory puts entries into the inventory collection itself, under Oem.Nvidia.FirmwareInventory.
	EmbeddedInventory Embedded `json:"embedded_inventory,omitempty"`
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
	// Immediate makes new versions active when their task completes, without any reset.
	Immediate bool `json:"immediate,omitempty"`
	// SupplyFailures are how often updates of a supply fail, by inventory name; negative is always.
	SupplyFailures map[string]int `json:"supply_failures,omitempty"`
	// SuppliesUnchanged are the inventory names of supplies whose updates end well and change nothing.
	SuppliesUnchanged []string `json:"supplies_unchanged,omitempty"`
	// ChassisResetOnly leaves only #Chassis.Reset of a LiteOn shelf's power actions.
	ChassisResetOnly bool `json:"chassis_reset_only,omitempty"`
	// RejectAllSupplies refuses supply pushes that do not name one supply.
	RejectAllSupplies bool `json:"reject_all_supplies,omitempty"`
	// PowerIgnored accepts power actions of the host and does nothing.
	PowerIgnored bool `json:"power_ignored,omitempty"`
	// PowerOnIgnored and PowerOffIgnored are how many requests to switch the host on or off are accepted and
	// ignored from now on; negative is all.
	PowerOnIgnored  int `json:"power_on_ignored,omitempty"`
	PowerOffIgnored int `json:"power_off_ignored,omitempty"`
	// PowerOnStuck leaves the host in PoweringOn for ever when it is switched on.
	PowerOnStuck bool `json:"power_on_stuck,omitempty"`
	// AllowedResets are the ResetType values that host and managers take; empty is what is usual.
	AllowedResets []string `json:"allowed_resets,omitempty"`
	// ResetParameters is how the reset actions of host and managers tell their values.
	ResetParameters ResetParameters `json:"reset_parameters,omitempty"`
	// BareActions is how actions without parameters treat a body.
	BareActions BareActions `json:"bare_actions,omitempty"`
	// ManagerResetIgnored accepts manager resets and does nothing.
	ManagerResetIgnored bool `json:"manager_reset_ignored,omitempty"`
	// HideLastReset leaves LastResetTime out of the managers.
	HideLastReset bool `json:"hide_last_reset,omitempty"`
	// PowerReported is shown as the host's PowerState instead of the true one, for example "PoweringOn".
	PowerReported string `json:"power_reported,omitempty"`
	// IfMatch is how PATCH treats If-Match.
	IfMatch IfMatch `json:"if_match,omitempty"`
	// RefuseUnchangedPatch answers 400 PatchValueAlreadyExists to a PATCH that changes nothing.
	RefuseUnchangedPatch bool `json:"refuse_unchanged_patch,omitempty"`
	// SilentPatches is how many PATCHes from now on are accepted without effect; negative is all.
	SilentPatches int `json:"silent_patches,omitempty"`
	// BreakGzip spoils answers to requests that accept gzip.
	BreakGzip bool `json:"break_gzip,omitempty"`
	// PasswordExpired answers 403 until the password is changed, which the simulator does not offer.
	PasswordExpired bool `json:"password_expired,omitempty"`
	// SessionSlots opens the SessionService for this many sessions; 0 leaves it disabled.
	SessionSlots int `json:"session_slots,omitempty"`
	// Outage is how the device is unreachable while its BMC restarts; empty is the device's configured mode.
	Outage OutageMode `json:"outage,omitempty"`
	// LogEntries are further entries of the device's logs, the oldest first.
	LogEntries []LogEntry `json:"log_entries,omitempty"`
	// LogLinksOnly makes logs show links to their entries, in place of the entries.
	LogLinksOnly bool `json:"log_links_only,omitempty"`
	// SensorHealth is the health of sensors that is not OK, by id, for example "Inlet_Temp_0".
	SensorHealth map[string]string `json:"sensor_health,omitempty"`
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
	// AnswerURL is 202 with an absolute URL as Location and no body.
	AnswerURL UploadAnswer = "url"
	// AnswerRelative is 202 with a Location relative to the push URI and no body.
	AnswerRelative UploadAnswer = "relative"
	// AnswerMonitor is 202 with the task's monitor as Location and no body.
	AnswerMonitor UploadAnswer = "monitor"
	// AnswerMonitorBody is 202 with a body that has only TaskMonitor.
	AnswerMonitorBody UploadAnswer = "monitor-body"
	// AnswerJobID is 202 with a job id such as JID_000000000001 in a message argument; the task has that id.
	AnswerJobID UploadAnswer = "job-id"
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

// TaskMonitor is how task monitors answer.
type TaskMonitor string

const (
	// MonitorTask answers 202 with the task while it runs, then 200 with a message.
	MonitorTask TaskMonitor = ""
	// MonitorEmpty answers 202 without a body while the task runs, then 204, or 500 for a task that failed.
	MonitorEmpty TaskMonitor = "empty"
)

// SameVersion is what becomes of uploads that bring nothing new.
type SameVersion string

const (
	// SameVersionFlashes treats them like any other.
	SameVersionFlashes SameVersion = ""
	// SameVersionSkips completes the task with a message that the component was skipped.
	SameVersionSkips SameVersion = "skip"
	// SameVersionNoTask accepts the upload with 202, no body and no task.
	SameVersionNoTask SameVersion = "no-task"
	// SameVersionConflict refuses the upload with 409.
	SameVersionConflict SameVersion = "conflict"
)

// Push is a way of updating.
type Push string

const (
	// PushMultipart is MultipartHttpPushUri.
	PushMultipart Push = "multipart"
	// PushOctet is HttpPushUri.
	PushOctet Push = "push"
	// PushSimple is the action SimpleUpdate: the device fetches the image itself, by HTTP or HTTPS.
	PushSimple Push = "simple"
)

// Embedded is how much of the inventory its collection carries.
type Embedded string

const (
	// EmbeddedNone carries none.
	EmbeddedNone Embedded = ""
	// EmbeddedAll carries all entries.
	EmbeddedAll Embedded = "all"
	// EmbeddedHalf carries every other entry.
	EmbeddedHalf Embedded = "half"
)

// ResetParameters is how reset actions tell which values they take.
type ResetParameters string

const (
	// ResetParametersListed lists them as allowable values of the action.
	ResetParametersListed ResetParameters = ""
	// ResetParametersInfo lists them in the ActionInfo only.
	ResetParametersInfo ResetParameters = "action-info"
	// ResetParametersUntold lists them nowhere.
	ResetParametersUntold ResetParameters = "untold"
	// ResetParametersNone takes no ResetType at all for managers, and lists nothing.
	ResetParametersNone ResetParameters = "none"
)

// BareActions is how actions without parameters treat a body.
type BareActions string

const (
	// BareActionsAny take an empty object or no body.
	BareActionsAny BareActions = ""
	// BareActionsNeedBody answer 415 without a body.
	BareActionsNeedBody BareActions = "need-body"
	// BareActionsRefuseBody answer 400 with one.
	BareActionsRefuseBody BareActions = "refuse-body"
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
	// IfMatchWeak shows a weak tag, needs the header, and compares the tag with its W/ prefix.
	IfMatchWeak IfMatch = "weak"
	// IfMatchStrong shows a weak tag, needs the header, and takes the tag only without its W/ prefix.
	IfMatchStrong IfMatch = "strong"
	// IfMatchEmpty shows an empty tag and answers 412 to any header.
	IfMatchEmpty IfMatch = "empty"
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
