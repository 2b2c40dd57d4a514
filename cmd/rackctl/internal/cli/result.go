// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/rackbus/rackbus/pkg/job"
)

// The result of an update as scripts read it. The field result is what the
// workflow tells, the same as a job's result_json.
type (
	updateResult struct {
		State       string          `json:"state"`
		Description string          `json:"description"`
		Seconds     float64         `json:"seconds"`
		Failure     *failureResult  `json:"failure,omitempty"`
		Stages      []stageResult   `json:"stages"`
		Result      json.RawMessage `json:"result,omitempty"`
	}
	failureResult struct {
		FailureCode string        `json:"failure_code"`
		Code        string        `json:"code"`
		Phase       string        `json:"phase,omitempty"`
		Message     string        `json:"message"`
		Device      *deviceResult `json:"device,omitempty"`
	}
	deviceResult struct {
		MessageID  string `json:"message_id,omitempty"`
		Message    string `json:"message,omitempty"`
		Resolution string `json:"resolution,omitempty"`
		HTTPStatus int32  `json:"http_status,omitempty"`
	}
	stageResult struct {
		Name        string `json:"name"`
		Description string `json:"description,omitempty"`
		Status      string `json:"status"`
	}
)

func resultOf(end job.Event) *updateResult {
	r := &updateResult{
		State: end.State.String(), Description: end.Description, Seconds: end.At.Sub(end.StartedAt).Seconds(),
		Stages: make([]stageResult, len(end.Stages)),
	}
	for i, s := range end.Stages {
		r.Stages[i] = stageResult{Name: s.Name, Description: s.Description, Status: s.Status.String()}
	}
	if json.Valid([]byte(end.ResultJSON)) {
		r.Result = json.RawMessage(end.ResultJSON)
	}
	if f := end.Failure; f != nil {
		r.Failure = &failureResult{FailureCode: string(f.FailureCode), Code: f.Code.String(), Phase: f.Phase, Message: f.Message}
		if d := f.Device; d != nil {
			r.Failure.Device = &deviceResult{
				MessageID: d.MessageID, Message: d.Message, Resolution: d.Resolution, HTTPStatus: d.HTTPStatus,
			}
		}
	}
	return r
}

// workflowResult is what the summary for people takes of the workflow's result.
type workflowResult struct {
	Status  string `json:"status"`
	Targets []struct {
		Target string `json:"target"`
		File   string `json:"firmware_file"`
		Status string `json:"status"`
		Reason string `json:"reason"`
	} `json:"targets"`
	Activated bool `json:"activated"`
	Check     *struct {
		Status     string `json:"status"`
		Components []struct {
			Name      string `json:"name"`
			Installed string `json:"system_version"`
			Wanted    string `json:"package_version"`
			Status    string `json:"status"`
		} `json:"components"`
	} `json:"post_activation_version_check"`
}

// text writes the result for people.
func (r *updateResult) text(w io.Writer) {
	fmt.Fprintf(w, "%s after %.0f s\n", r.State, r.Seconds)
	var result workflowResult
	if r.Result == nil || json.Unmarshal(r.Result, &result) != nil {
		return
	}
	for _, t := range result.Targets {
		fmt.Fprintf(w, "  %s (%s): %s", cell(t.File), cell(t.Target), t.Status)
		if t.Reason != "" {
			fmt.Fprintf(w, ", %s", cell(t.Reason))
		}
		fmt.Fprintln(w)
	}
	switch {
	case result.Check != nil:
		fmt.Fprintf(w, "  activated, versions %s\n", result.Check.Status)
		for _, c := range result.Check.Components {
			fmt.Fprintf(w, "    %s: %s, package has %s: %s\n", cell(c.Name), cell(c.Installed), cell(c.Wanted), c.Status)
		}
	case result.Activated:
		fmt.Fprintln(w, "  activated")
	case r.State == job.StateCompleted.String() && result.Status == "completed":
		fmt.Fprintln(w, "  not activated: the new firmware comes into force with the next power cycle")
	}
}
