// SPDX-License-Identifier: Apache-2.0

package redfishagent

import (
	"encoding/json"
	"errors"
	"strings"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/redfish"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// summaryLimit bounds the summary of a failure, in bytes.
const summaryLimit = 1200

// updateResult is the result_json of a completed update.
type updateResult struct {
	RackID           string                 `json:"rack_id"`
	NodeID           string                 `json:"node_id"`
	TargetsCompleted int                    `json:"targets_completed"`
	TargetsSkipped   int                    `json:"targets_skipped"`
	Targets          []targetResult         `json:"targets"`
	Activated        bool                   `json:"activated"`
	Check            *redfish.VersionReport `json:"post_activation_version_check"`
	Status           string                 `json:"status"`
}

type targetResult struct {
	Component       string         `json:"component"`
	FirmwareFile    string         `json:"firmware_file"`
	Target          string         `json:"target"`
	ExpectedVersion string         `json:"expected_version,omitempty"`
	Status          string         `json:"status"`
	Reason          string         `json:"reason,omitempty"`
	Summary         *targetSummary `json:"nvfwupd_summary,omitempty"`
}

type targetSummary struct {
	Message string   `json:"message"`
	TaskIDs []string `json:"task_ids"`
}

func (u *update) successResult() string {
	target := u.t.Target()
	r := updateResult{
		RackID: target.GetRackId(), NodeID: target.GetNodeId(),
		Activated: u.state.Activated, Check: u.state.Report, Status: "completed",
	}
	for i, s := range u.state.Targets {
		p := u.pkg(i)
		tr := targetResult{
			Component: p.target.GetComponent(), FirmwareFile: p.target.GetFile(), Target: p.label,
			ExpectedVersion: p.target.GetExpectedVersion(), Status: "completed",
		}
		if s.Skipped != "" {
			tr.Status, tr.Reason = "skipped", s.Skipped
			r.TargetsSkipped++
		} else {
			tr.Summary = &targetSummary{Message: s.Summary, TaskIDs: []string{}}
			if id := s.Task.String(); id != "" {
				tr.Summary.TaskIDs = append(tr.Summary.TaskIDs, id)
			}
			r.TargetsCompleted++
		}
		r.Targets = append(r.Targets, tr)
	}
	if r.TargetsCompleted == 0 {
		r.Status = "already_up_to_date"
	}
	return encode(r)
}

// failedUpdate is the result_json of a failed update.
type failedUpdate struct {
	Status       string        `json:"status"`
	Phase        string        `json:"phase"`
	ErrorCode    string        `json:"error_code"`
	ErrorMessage string        `json:"error_message"`
	Summary      string        `json:"summary"`
	Target       *failedTarget `json:"target,omitempty"`
	TargetID     string        `json:"target_id,omitempty"`
	Redfish      *redfishInfo  `json:"redfish,omitempty"`
	RawError     string        `json:"raw_error,omitempty"`
}

type failedTarget struct {
	Component       string `json:"component"`
	FirmwareFile    string `json:"firmware_file"`
	ExpectedVersion string `json:"expected_version,omitempty"`
}

type redfishInfo struct {
	Code       string `json:"code"`
	Message    string `json:"message"`
	Severity   string `json:"severity"`
	Resolution string `json:"resolution"`
}

// failureResult tells a failed or stopped update with its phase, its package and
// the device's own words. A job that another process goes on with has none.
func (u *update) failureResult(err error) string {
	if errors.Is(err, agent.ErrHandedOver) {
		return ""
	}
	f := u.failureOf(err)
	r := failedUpdate{
		Status: "failed", Phase: phaseOf(f.Phase), ErrorCode: f.Code.String(), Summary: summarise(f.Message),
	}
	r.ErrorMessage = r.Summary
	if f.Message != r.Summary {
		r.RawError = f.Message
	}
	if u.current != nil && (r.Phase == phaseUpdate || r.Phase == phasePoll) {
		r.Target = targetOf(u.current)
	}
	if d := f.Device; d != nil && (d.MessageID != "" || d.Message != "") {
		r.Redfish = &redfishInfo{Code: d.MessageID, Message: d.Message, Severity: d.Severity, Resolution: d.Resolution}
	}
	var task *redfish.TaskError
	if errors.As(err, &task) {
		r.TargetID = task.Task.Ref.String()
	}
	return encode(r)
}

// failureOf is what ended the update. One that was stopped on request or by its
// deadline is told as such.
func (u *update) failureOf(err error) *job.Failure {
	var f *agent.FailureError
	if errors.As(err, &f) {
		return f.Failure
	}
	text, code := err.Error(), job.FailureInternal
	switch {
	case errors.Is(err, agent.ErrTerminated):
		text, code = "firmware update job terminated: hardware state unknown", job.FailureTerminatedByOperator
	case errors.Is(err, agent.ErrDeadline):
		text, code = "firmware update job passed its deadline", job.FailureDeadlineExceeded
	case errors.Is(err, agent.ErrCancelled) && u.installed() && u.state.Activated:
		text, code = "firmware update job cancelled before the new versions were verified", job.FailureCancelledByOperator
	case errors.Is(err, agent.ErrCancelled) && u.installed():
		text, code = "firmware update job cancelled before activation", job.FailureCancelledByOperator
	case errors.Is(err, agent.ErrCancelled):
		text, code = "firmware update job cancelled before starting the next target group", job.FailureCancelledByOperator
	}
	failure := job.NewFailure(code, text)
	if code != job.FailureInternal {
		failure.Phase = phaseCancelled
	}
	return failure
}

// installed reports whether the device is through with every package.
func (u *update) installed() bool {
	for _, s := range u.state.Targets {
		if !s.Done && s.Skipped == "" {
			return false
		}
	}
	return len(u.state.Targets) > 0
}

// phaseOf is the phase that a stage belongs to: the runtime names the stage in
// which it gave up.
func phaseOf(stage string) string {
	for prefix, phase := range map[string]string{
		"check": phaseValidation, "upload": phaseUpdate, "install": phasePoll, "activate_": phaseActivation, "verify": phaseVerify,
	} {
		if strings.HasPrefix(stage, prefix) {
			return phase
		}
	}
	return stage
}

func targetOf(t *rackbusv1.FirmwareUpdateTarget) *failedTarget {
	return &failedTarget{Component: t.GetComponent(), FirmwareFile: t.GetFile(), ExpectedVersion: t.GetExpectedVersion()}
}

// summarise puts a text on one line and bounds it.
func summarise(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) <= summaryLimit {
		return text
	}
	return strings.ToValidUTF8(text[:summaryLimit-3], "") + "..."
}

func encode(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		// Only plain values are in these results.
		return job.FailureResult(job.NewFailure(job.FailureInternal, err.Error()))
	}
	return string(data)
}
