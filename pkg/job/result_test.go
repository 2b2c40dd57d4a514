// SPDX-License-Identifier: Apache-2.0

package job

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// failedBatchOf returns a batch of the type with one completed child and the rest failed.
func failedBatchOf(t *testing.T, typ Type, results ...string) (Record, []Record) {
	t.Helper()
	spec := parentSpec()
	spec.Type = typ
	total := uint32(len(results) + 1)
	p := NewParent(spec, total, true)
	p, _ = ApplyChild(p, child(total, StateCompleted, ""), at(1))
	var failed []Record
	for i, result := range results {
		c := child(uint32(i+1), StateFailed, result)
		c.NodeID = fmt.Sprintf("node-%d", i+1)
		c.Failure = NewFailure(FailureBMCRefused, "device said <no>")
		failed = append(failed, c)
		p, _ = ApplyChild(p, c, at(2))
	}
	require.Equal(t, StatePartiallyFailed, p.State)
	return p, failed
}

func TestFailedBatchResultFirmware(t *testing.T) {
	p, failed := failedBatchOf(t, TypeFirmwareUpdate,
		"",
		`{"status":"failed","phase":"update","error_code":"ServerError","error_message":"long","summary":"short","raw_error":"r",
		  "target":{"component":"BMC","firmware_file":"a.fwpkg","expected_version":"1"},"target_id":"t",
		  "redfish":{"code":"c","message":"m","severity":"s","resolution":"r","extra":1},"unknown":true,"rack_id":"rack-1"}`,
		`{"error_message":"only this"}`,
		`{"nothing":"known"}`,
		`not json`,
		`{"status":5}`,
		`{"status":null}`,
	)
	id := func(i uint32) string { return p.ID.Child(i).String() }
	head := func(i uint32) string {
		return fmt.Sprintf(`{"job_id":"%s","node_id":"node-%d","error_code":"ServerError","failure_code":"BMC_REFUSED","error":"device said <no>"`, id(i), i)
	}
	want := `{"completed":1,"failed":7,"missing":0,"total":8,"failed_jobs":[` +
		head(1) + `},` +
		head(2) + `,"summary":"short","result":{"status":"failed","phase":"update","error_code":"ServerError",` +
		`"error_message":"long","summary":"short","target":{"component":"BMC","firmware_file":"a.fwpkg"},"target_id":"t",` +
		`"redfish":{"code":"c","message":"m","severity":"s","resolution":"r"},"raw_error":"r"}},` +
		head(3) + `,"summary":"only this","result":{"error_message":"only this"}},` +
		head(4) + `,"raw_result_json":"{\"nothing\":\"known\"}"},` +
		head(5) + `,"raw_result_json":"not json"},` +
		head(6) + `,"raw_result_json":"{\"status\":5}"},` +
		head(7) + `,"raw_result_json":"{\"status\":null}"}]}`
	require.Equal(t, want, FailedBatchResult(p, failed, 0))
	require.Equal(t, want, FailedBatchResult(p, failed, len(want)+batchOverhead))
}

func TestFailedBatchResultOtherTypes(t *testing.T) {
	p, failed := failedBatchOf(t, TypeSwitchCertificate, `{"status":"failed"}`)
	require.Equal(t, `{"completed":1,"failed":1,"missing":0,"total":2,"failed_jobs":[{"job_id":"`+p.ID.Child(1).String()+
		`","node_id":"node-1","failure_code":"BMC_REFUSED","error":"device said <no>"}]}`, FailedBatchResult(p, failed, 0))
}

func TestFailedBatchResultKeepsItsSize(t *testing.T) {
	var results []string
	for range 50 {
		results = append(results, `{"status":"failed","summary":"`+strings.Repeat("x", 400)+`"}`)
	}
	p, failed := failedBatchOf(t, TypeFirmwareUpdate, results...)
	whole := FailedBatchResult(p, failed, 0)
	for limit := 160; limit < len(whole)+200; limit += 97 {
		got := FailedBatchResult(p, failed, limit)
		require.LessOrEqual(t, len(got), limit)
		var parsed struct {
			Failed     int `json:"failed"`
			Omitted    int `json:"omitted"`
			FailedJobs []struct {
				Result    *struct{} `json:"result"`
				ResultCut bool      `json:"result_cut"`
			} `json:"failed_jobs"`
		}
		require.NoError(t, json.Unmarshal([]byte(got), &parsed))
		require.Equal(t, 50, parsed.Failed)
		require.Equal(t, 50, parsed.Omitted+len(parsed.FailedJobs))
		for _, j := range parsed.FailedJobs {
			require.Equal(t, j.Result == nil, j.ResultCut, "a cut result says so")
		}
	}
	require.Equal(t, whole, FailedBatchResult(p, failed, len(whole)+200))
}

func TestFailedBatchResultOnlyForFailedParents(t *testing.T) {
	running := NewParent(parentSpec(), 1, true)
	require.Empty(t, FailedBatchResult(running, nil, 0))
	done, _ := ApplyChild(running, child(1, StateCompleted, ""), at(1))
	require.Equal(t, StateCompleted, done.State)
	require.Empty(t, FailedBatchResult(done, nil, 0))
	require.Empty(t, FailedBatchResult(NewParent(parentSpec(), 0, true), nil, 0), "a batch without children has no result")
}

func TestFailureResult(t *testing.T) {
	require.Equal(t, `{"status":"failed","error_code":"UpdateInProgress","failure_code":"NODE_BUSY","error_message":"busy <here>"}`,
		FailureResult(NewFailure(FailureNodeBusy, "busy <here>")))
	require.Empty(t, FailureResult(nil))
}
