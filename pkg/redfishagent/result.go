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
		p := u.pkg(i, len(u.state.Targets))
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

// failureResult tells a failed update with its phase, its package and the
// device's own words. A job that was stopped has none.
func (u *update) failureResult(err error) string {
	var f *agent.FailureError
	if !errors.As(err, &f) {
		return ""
	}
	r := failedUpdate{
		Status: "failed", Phase: f.Failure.Phase, ErrorCode: f.Failure.Code.String(),
		Summary: summarise(f.Failure.Message),
	}
	r.ErrorMessage = r.Summary
	if f.Failure.Message != r.Summary {
		r.RawError = f.Failure.Message
	}
	if phase := f.Failure.Phase; u.current != nil && (phase == phaseUpdate || phase == phasePoll) {
		r.Target = targetOf(u.current)
	}
	if d := f.Failure.Device; d != nil && (d.MessageID != "" || d.Message != "") {
		r.Redfish = &redfishInfo{Code: d.MessageID, Message: d.Message, Severity: d.Severity, Resolution: d.Resolution}
	}
	var task *redfish.TaskError
	if errors.As(err, &task) {
		r.TargetID = task.Task.Ref.String()
	}
	return encode(r)
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
