// SPDX-License-Identifier: Apache-2.0

package redfishagent

import (
	"encoding/json"

	"github.com/rackbus/rackbus/pkg/job"
)

// updateResult is the result_json of a completed update.
type updateResult struct {
	RackID           string          `json:"rack_id"`
	NodeID           string          `json:"node_id"`
	TargetsCompleted int             `json:"targets_completed"`
	TargetsSkipped   int             `json:"targets_skipped"`
	Targets          []targetResult  `json:"targets"`
	Activated        bool            `json:"activated"`
	Check            json.RawMessage `json:"post_activation_version_check"`
	Status           string          `json:"status"`
	// ActivationCount is told of products whose packages are activated one by one.
	ActivationCount *int `json:"activation_count,omitempty"`
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
	Details any      `json:"details,omitempty"`
}

// successResult tells the packages in the order in which they were sent.
func (u *update) successResult() string {
	target := u.t.Target()
	r := updateResult{RackID: target.GetRackId(), NodeID: target.GetNodeId(), Status: "completed"}
	activations := 0
	var checks []json.RawMessage
	for _, g := range u.groups {
		for n := range g.plan.Items {
			tr := g.targetResult(n)
			if tr.Status == statusSkipped {
				r.TargetsSkipped++
			} else {
				r.TargetsCompleted++
			}
			r.Targets = append(r.Targets, tr)
		}
		if g.state().Activated {
			activations++
		}
		if check := g.check(); check != nil {
			checks = append(checks, check)
		}
		if g.plan.Verification != "" {
			r.ActivationCount = &activations
		}
	}
	r.Activated = activations > 0
	switch len(checks) {
	case 0:
	case 1:
		r.Check = checks[0]
	default:
		r.Check = json.RawMessage(encode(map[string]any{"stages": checks}))
	}
	if r.TargetsCompleted == 0 {
		r.Status = "already_up_to_date"
	}
	return encode(r)
}

const (
	statusCompleted = "completed"
	statusSkipped   = "skipped"
)

// check is the group's comparison of versions, nil when there was none.
func (g *group) check() json.RawMessage {
	if g.inBand != nil {
		return g.inBand.Outcome().Check
	}
	if g.state().Report == nil {
		return nil
	}
	return json.RawMessage(encode(g.state().Report))
}

func (g *group) targetResult(n int) targetResult {
	p := g.pkg(n)
	tr := targetResult{
		Component: p.target.GetComponent(), FirmwareFile: fileOf(p.target), Target: p.label,
		ExpectedVersion: p.target.GetExpectedVersion(), Status: statusCompleted,
	}
	if g.inBand != nil {
		return tr.inBand(g.inBand.Outcome())
	}
	s := p.state()
	if s.Skipped != "" {
		tr.Status, tr.Reason = statusSkipped, s.Skipped
		return tr
	}
	tr.Summary = &targetSummary{Message: s.Summary, TaskIDs: []string{}}
	if id := s.Task.String(); id != "" {
		tr.Summary.TaskIDs = append(tr.Summary.TaskIDs, id)
	}
	switch {
	case s.Rescue != nil:
		tr.Summary.Details = s.Rescue
	case s.Supplies != nil && s.Supplies.Serial != "":
		tr.Summary.TaskIDs = []string{serialTaskID}
		tr.Summary.Details = suppliesDetails{Reason: s.Supplies.Serial, Units: s.Supplies.Units}
	}
	return tr
}

// suppliesDetails tells why, and with how many images, units were updated one by
// one.
type suppliesDetails struct {
	Reason string      `json:"reason"`
	Units  []unitState `json:"units"`
}

func (tr targetResult) inBand(o InBandOutcome) targetResult {
	if o.Skipped != "" {
		tr.Status, tr.Reason = statusSkipped, o.Skipped
		return tr
	}
	tr.Summary = &targetSummary{Message: o.Message, TaskIDs: []string{}}
	if len(o.Details) > 0 {
		tr.Summary.Details = o.Details
	}
	return tr
}

func encode(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		// Only plain values are in these results.
		return job.FailureResult(job.NewFailure(job.FailureInternal, err.Error()))
	}
	return string(data)
}
