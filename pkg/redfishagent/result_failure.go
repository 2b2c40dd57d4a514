// SPDX-License-Identifier: Apache-2.0

package redfishagent

import (
	"errors"
	"strings"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/redfish"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// summaryLimit bounds the summary of a failure, in bytes.
const summaryLimit = 1200

// failedUpdate is the result_json of a failed update.
type failedUpdate struct {
	Status       string        `json:"status"`
	Phase        string        `json:"phase"`
	ErrorCode    string        `json:"error_code"`
	FailureCode  string        `json:"failure_code"`
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
	// Key and Version are how a firmware object names the package.
	Key     string `json:"key,omitempty"`
	Version string `json:"version,omitempty"`
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
	r := failedUpdate{Status: "failed", Phase: phaseOf(f.Phase), ErrorCode: f.Code.String(), FailureCode: string(f.FailureCode), Summary: summarise(f.Message)}
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
	var unit *unitError
	if errors.As(err, &unit) {
		r.TargetID = unit.unit
		r.Summary = summarise(unit.summary(f.Device))
	}
	r.ErrorMessage = r.Summary
	if f.Message != r.Summary {
		r.RawError = f.Message
	}
	return encode(r)
}

// summary is the form in which the failure of a power supply is told.
func (e *unitError) summary(d *job.DeviceAnswer) string {
	text := "PSU update failed: " + e.reason
	if e.unit != "" {
		text = "PSU update failed on " + e.unit + ": " + e.reason
	}
	if d == nil {
		return sentence(text)
	}
	switch {
	case d.MessageID != "" && d.Message != "":
		text = sentence(text) + " Redfish returned " + d.MessageID + ": " + d.Message
	case d.MessageID != "":
		text = sentence(text) + " Redfish returned " + d.MessageID
	case d.Message != "":
		text = sentence(text) + " Redfish returned: " + d.Message
	}
	if d.Resolution != "" && d.Resolution != "None." {
		text = sentence(text) + " Resolution: " + d.Resolution
	}
	return sentence(text)
}

// sentence puts a full stop behind a text that has no end.
func sentence(text string) string {
	if strings.HasSuffix(text, ".") || strings.HasSuffix(text, "!") || strings.HasSuffix(text, "?") {
		return text
	}
	return text + "."
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
	case errors.Is(err, agent.ErrCancelled) && u.betweenGroups():
		text, code = cancelledBetween, job.FailureCancelledByOperator
	case errors.Is(err, agent.ErrCancelled) && u.installed() && u.activated():
		text, code = "firmware update job cancelled before the new versions were verified", job.FailureCancelledByOperator
	case errors.Is(err, agent.ErrCancelled) && u.installed():
		text, code = "firmware update job cancelled before activation", job.FailureCancelledByOperator
	case errors.Is(err, agent.ErrCancelled):
		text, code = cancelledBetween, job.FailureCancelledByOperator
	}
	failure := job.NewFailure(code, text)
	if code != job.FailureInternal {
		failure.Phase = phaseCancelled
	}
	return failure
}

const cancelledBetween = "firmware update job cancelled before starting the next target group"

// betweenGroups reports whether the group that was worked on last is through and
// another one follows.
func (u *update) betweenGroups() bool {
	g := u.lastGroup()
	return g != nil && g.i+1 < len(u.groups) && g.check() != nil
}

// installed reports whether the node is through with every package of the group
// that is worked on: the last one that anything was sent for, else the first.
func (u *update) installed() bool {
	g := u.lastGroup()
	if g == nil || g.inBand != nil {
		return g != nil && g.applied()
	}
	for _, item := range g.plan.Items {
		if s := u.state.Targets[item.Index]; !s.Done && s.Skipped == "" {
			return false
		}
	}
	return true
}

func (u *update) activated() bool {
	g := u.lastGroup()
	return g != nil && (g.state().Activated || g.plan.Restarts)
}

func (u *update) lastGroup() *group {
	var last *group
	for _, g := range u.groups {
		if last == nil || g.applied() {
			last = g
		}
	}
	return last
}

// stagePhase is the phase that the stages with a prefix belong to.
type stagePhase struct{ prefix, phase string }

func stagePhases() []stagePhase {
	return []stagePhase{
		{"artifacts", phasePlanning}, {"check", phaseValidation}, {"preserve", phaseUpdate}, {"recover", phaseUpdate},
		{"upload", phaseUpdate}, {"install", phasePoll}, {"repair", phasePoll}, {"activate_", phaseActivation},
		{"host_ready", phaseActivation}, {"verify", phaseVerify},
		// Those of the in-band way.
		{"discover", phaseValidation}, {"flash", phaseUpdate},
	}
}

// phaseOf is the phase that a stage belongs to: the runtime names the stage in
// which it gave up.
func phaseOf(stage string) string {
	for _, s := range stagePhases() {
		if strings.HasPrefix(stage, s.prefix) {
			return s.phase
		}
	}
	return stage
}

func targetOf(t *rackbusv1.FirmwareUpdateTarget) *failedTarget {
	return &failedTarget{
		Component: t.GetComponent(), FirmwareFile: fileOf(t), ExpectedVersion: t.GetExpectedVersion(),
		Key: t.GetKey(), Version: t.GetVersion(),
	}
}

// nameComponent tells which component of a firmware object failed, and in which
// version: the target of the update may be no more than a Redfish URI.
func (u *update) nameComponent(err error) {
	var f *agent.FailureError
	if u.current.GetKey() == "" || !errors.As(err, &f) {
		return
	}
	switch phaseOf(f.Failure.Phase) {
	case phaseUpdate, phasePoll:
	default:
		return
	}
	name := "component " + u.current.GetKey()
	if version := u.current.GetVersion(); version != "" {
		name += ", version " + version
	}
	f.Failure.Message += " (" + name + ")"
}

// summarise puts a text on one line and bounds it.
func summarise(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) <= summaryLimit {
		return text
	}
	return strings.ToValidUTF8(text[:summaryLimit-3], "") + "..."
}
