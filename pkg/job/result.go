// SPDX-License-Identifier: Apache-2.0

package job

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// failedBatch is the published result of a batch that did not complete.
type failedBatch struct {
	Completed  uint32            `json:"completed"`
	Failed     uint32            `json:"failed"`
	Missing    uint32            `json:"missing"`
	Total      uint32            `json:"total"`
	FailedJobs []json.RawMessage `json:"failed_jobs"`
	// Omitted is how many failed jobs were left out for size.
	Omitted uint32 `json:"omitted,omitempty"`
}

// failedJob is one entry of failed_jobs.
type failedJob struct {
	JobID         string          `json:"job_id"`
	NodeID        string          `json:"node_id"`
	ErrorCode     string          `json:"error_code,omitempty"`
	FailureCode   FailureCode     `json:"failure_code,omitempty"`
	Error         string          `json:"error"`
	Summary       string          `json:"summary,omitempty"`
	Result        *firmwareResult `json:"result,omitempty"`
	RawResultJSON string          `json:"raw_result_json,omitempty"`
	// ResultCut says that result or raw_result_json was left out for size.
	ResultCut bool `json:"result_cut,omitempty"`
}

// firmwareResult is the part of a firmware job's result that its parent repeats;
// other keys are dropped, absent ones stay absent.
type firmwareResult struct {
	Status       *string         `json:"status,omitempty"`
	Phase        *string         `json:"phase,omitempty"`
	ErrorCode    *string         `json:"error_code,omitempty"`
	ErrorMessage *string         `json:"error_message,omitempty"`
	Summary      *string         `json:"summary,omitempty"`
	Target       *firmwareTarget `json:"target,omitempty"`
	TargetID     *string         `json:"target_id,omitempty"`
	Redfish      *redfishAnswer  `json:"redfish,omitempty"`
	RawError     *string         `json:"raw_error,omitempty"`
}

type firmwareTarget struct {
	Component    *string `json:"component,omitempty"`
	FirmwareFile *string `json:"firmware_file,omitempty"`
}

type redfishAnswer struct {
	Code       *string `json:"code,omitempty"`
	Message    *string `json:"message,omitempty"`
	Severity   *string `json:"severity,omitempty"`
	Resolution *string `json:"resolution,omitempty"`
}

// batchOverhead is more than the frame of a failedBatch can take, in bytes: five
// numbers of at most ten digits and their keys.
const batchOverhead = 160

// FailedBatchResult returns the result_json of a parent that ended without
// completing; failed are the records of its unsuccessful children, in order of
// their index. When maxBytes is not 0 (and at least 160) the text keeps within it: first the results
// of single children are left out ("result_cut":true), then whole children
// ("omitted":n). It returns "" for a parent that has not ended, that completed, or
// that never had a child.
func FailedBatchResult(parent Record, failed []Record, maxBytes int) string {
	if !parent.State.Terminal() || parent.State == StateCompleted || parent.Total == 0 {
		return ""
	}
	c := parent.Counts
	out := failedBatch{
		Completed: c.Completed, Failed: c.Unsuccessful(), Missing: parent.Total - min(c.Known(), parent.Total),
		Total: parent.Total, FailedJobs: make([]json.RawMessage, 0, len(failed)),
	}
	left := maxBytes - batchOverhead
	for i := range failed {
		entry := failedEntry(parent.Type, &failed[i])
		text := compactJSON(entry)
		if maxBytes > 0 && len(text)+1 > left && (entry.Result != nil || entry.RawResultJSON != "") {
			entry.Result, entry.RawResultJSON, entry.ResultCut = nil, "", true
			text = compactJSON(entry)
		}
		if maxBytes > 0 && len(text)+1 > left {
			out.Omitted = uint32(len(failed) - i)
			break
		}
		left -= len(text) + 1
		out.FailedJobs = append(out.FailedJobs, text)
	}
	return string(compactJSON(out))
}

// failedEntry describes one child; firmware updates say more than other types.
func failedEntry(parentType Type, child *Record) failedJob {
	entry := failedJob{JobID: child.ID.String(), NodeID: child.NodeID}
	var code ErrorCode
	if child.Failure != nil {
		code, entry.FailureCode, entry.Error = child.Failure.Code, child.Failure.FailureCode, child.Failure.Message
	}
	if parentType != TypeFirmwareUpdate {
		return entry
	}
	entry.ErrorCode = code.String()
	if child.ResultJSON == "" {
		return entry
	}
	var result firmwareResult
	if json.Unmarshal([]byte(child.ResultJSON), &result) != nil || result == (firmwareResult{}) {
		entry.RawResultJSON = child.ResultJSON
		return entry
	}
	entry.Result = &result
	switch {
	case result.Summary != nil:
		entry.Summary = *result.Summary
	case result.ErrorMessage != nil:
		entry.Summary = *result.ErrorMessage
	}
	return entry
}

// FailureResult returns the result_json of a failed job whose workflow has no
// result of its own.
func FailureResult(f *Failure) string {
	if f == nil {
		return ""
	}
	return string(compactJSON(struct {
		Status       string      `json:"status"`
		ErrorCode    string      `json:"error_code"`
		FailureCode  FailureCode `json:"failure_code,omitempty"`
		ErrorMessage string      `json:"error_message"`
	}{"failed", f.Code.String(), f.FailureCode, f.Message}))
}

// compactJSON renders v, one of this file's types, without HTML escapes. Those
// types hold nothing that JSON cannot say.
func compactJSON(v any) json.RawMessage {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(fmt.Sprintf("job: render result: %v", err))
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
