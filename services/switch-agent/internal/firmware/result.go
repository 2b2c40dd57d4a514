// SPDX-License-Identifier: Apache-2.0

package firmware

import (
	"encoding/json"
	"strings"

	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/redfish"
)

// updateResult is the result_json of a completed update, as of every family.
type updateResult struct {
	RackID           string                 `json:"rack_id"`
	NodeID           string                 `json:"node_id"`
	TargetsCompleted int                    `json:"targets_completed"`
	TargetsSkipped   int                    `json:"targets_skipped"`
	Targets          []targetResult         `json:"targets"`
	Activated        bool                   `json:"activated"`
	Activation       *activationResult      `json:"activation,omitempty"`
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
	Message string         `json:"message"`
	TaskIDs []string       `json:"task_ids"`
	Details map[string]any `json:"details,omitempty"`
}

// activationResult tells how the firmware was brought into force, and through what.
type activationResult struct {
	Command  string    `json:"command"`
	ActionID string    `json:"action_id,omitempty"`
	Recovery *recovery `json:"recovery,omitempty"`
}

type recovery struct {
	Endpoint string `json:"endpoint"`
	Attempts int    `json:"attempts"`
	Reason   string `json:"reason"`
}

const (
	statusCompleted = "completed"
	statusSkipped   = "skipped"
	statusUpToDate  = "already_up_to_date"
	statusFailed    = "failed"

	commandCycle = "NVUE_PWR_CYCLE"
	endpointBMC  = "bmc"
)

func (u *update) successResult() string {
	target := u.t.Target()
	r := updateResult{
		RackID: target.GetRackId(), NodeID: target.GetNodeId(), Status: statusCompleted,
		Activated: u.state.Cycle.over(), Check: u.state.Report, Targets: []targetResult{},
	}
	for i := range u.work.steps {
		tr := u.targetResult(i)
		if tr.Status == statusSkipped {
			r.TargetsSkipped++
		} else {
			r.TargetsCompleted++
		}
		r.Targets = append(r.Targets, tr)
	}
	if r.TargetsCompleted == 0 {
		r.Status = statusUpToDate
	}
	if r.Activated {
		r.Activation = u.activationResult()
	}
	return encode(r)
}

func (u *update) activationResult() *activationResult {
	c := &u.state.Cycle
	a := &activationResult{Command: commandCycle, ActionID: string(c.ActionID)}
	if c.ByBMC {
		a.Recovery = &recovery{Endpoint: endpointBMC, Attempts: c.Attempts, Reason: c.Fault}
	}
	return a
}

func (u *update) targetResult(i int) targetResult {
	s := u.work.steps[i]
	t, st := u.cmd.GetTargets()[s.index], &u.state.Steps[i]
	tr := targetResult{
		Component: t.GetComponent(), FirmwareFile: refOf(t).Name(), Target: s.target,
		ExpectedVersion: st.Expected, Status: statusCompleted,
	}
	if st.Skipped != "" {
		tr.Status, tr.Reason = statusSkipped, st.Skipped
		return tr
	}
	tr.Summary = &targetSummary{Message: st.Summary, TaskIDs: []string{}}
	if st.InstallID != "" {
		tr.Summary.TaskIDs = append(tr.Summary.TaskIDs, string(st.InstallID))
	}
	if fallback := u.state.Bundle.Fallback; fallback != "" {
		tr.Summary.Details = map[string]any{"fallback": fallback}
	}
	return tr
}

// failedUpdate is the result_json of a failed update, as of every family.
type failedUpdate struct {
	Status       string            `json:"status"`
	Phase        string            `json:"phase"`
	ErrorCode    string            `json:"error_code"`
	FailureCode  string            `json:"failure_code"`
	ErrorMessage string            `json:"error_message"`
	Summary      string            `json:"summary"`
	Target       *failedTarget     `json:"target,omitempty"`
	TargetID     string            `json:"target_id,omitempty"`
	RawError     string            `json:"raw_error,omitempty"`
	Activation   *activationResult `json:"activation,omitempty"`
}

type failedTarget struct {
	Component       string `json:"component"`
	FirmwareFile    string `json:"firmware_file"`
	ExpectedVersion string `json:"expected_version,omitempty"`
}

// summaryLimit bounds the summary of a failure, in bytes.
const summaryLimit = 1200

func (u *update) failureResult(err error) string {
	f := u.failureOf(err)
	r := failedUpdate{
		Status: statusFailed, Phase: phaseOf(f.Phase), ErrorCode: f.Code.String(), FailureCode: string(f.FailureCode), Summary: summarise(f.Message),
	}
	if u.current != nil && (r.Phase == phaseUpdate || r.Phase == phasePoll) {
		t := u.cmd.GetTargets()[u.current.index]
		r.Target = &failedTarget{Component: t.GetComponent(), FirmwareFile: refOf(t).Name(), ExpectedVersion: t.GetExpectedVersion()}
		r.TargetID = u.current.target
	}
	if u.state.Cycle.Sent || u.state.Cycle.ByBMC {
		r.Activation = u.activationResult()
	}
	r.ErrorMessage = r.Summary
	if f.Message != r.Summary {
		r.RawError = f.Message
	}
	return encode(r)
}

// stagePhases are the phases that stages belong to, by the begin of their names:
// the runtime names the stage in which it gave up.
var stagePhases = [...]struct{ prefix, phase string }{
	{"artifacts", phasePlanning}, {"check", phaseValidation}, {"asic", phaseValidation}, {"bundle_monitor", phasePoll},
	{"bundle", phaseUpdate}, {"upload", phaseUpdate}, {"install", phaseUpdate}, {"monitor", phasePoll}, {"outcome", phasePoll},
	{"activate", phaseActivation}, {"verify", phaseVerify},
}

func phaseOf(stage string) string {
	for _, s := range stagePhases {
		if strings.HasPrefix(stage, s.prefix) {
			return s.phase
		}
	}
	return stage
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
