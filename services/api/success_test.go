// SPDX-License-Identifier: Apache-2.0

package api

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/job"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

// TestD8NoErrorMessageOnSuccess: of all types, states and contents of a record, only
// a job that did not complete is told with an error message, and each such one is.
func TestD8NoErrorMessageOnSuccess(t *testing.T) {
	t.Parallel()
	types := []job.Type{"unheard_of"}
	for _, info := range job.Types() {
		types = append(types, info.Type)
	}
	for _, typ := range types {
		for state := job.StateUnspecified; state.Valid(); state++ {
			for _, failure := range []*job.Failure{nil, {}, job.NewFailure(job.FailureTaskException, "left over")} {
				for _, description := range []string{"", "Completed", "already up to date"} {
					r := job.Record{Type: typ, State: state, Failure: failure, Description: description, ResultJSON: "{}"}
					require.Nil(t, jobMessage(&r).GetNodeDiagnostics(), "%s %s", typ, state)
					s := jobStatus(&r)
					failed := state.Terminal() && state != job.StateCompleted
					require.Equal(t, failed, s.GetErrorMessage() != "", "%s %s: %q", typ, state, s.GetErrorMessage())
					if !failed {
						require.Equal(t, rackmanager.JobError_JOB_ERROR_UNSPECIFIED, s.GetErrorCode())
						require.EqualValues(t, 1, errorCode(&r).FirmwareUpdateError(), "SUCCESS")
					}
				}
			}
		}
	}
}

// TestFailuresCarryTheirAdvice: the Jobs service tells of each code whether to try
// again, what to do, and where to read on.
func TestFailuresCarryTheirAdvice(t *testing.T) {
	t.Parallel()
	for _, info := range job.FailureCodes() {
		r := job.Record{State: job.StateFailed, Failure: job.NewFailure(info.FailureCode, "why")}
		f := jobMessage(&r).GetFailure()
		require.Equal(t, string(info.FailureCode), f.GetFailureCode())
		require.NotEqual(t, rackbusv1.FailureRetry_FAILURE_RETRY_UNSPECIFIED, f.GetRetry())
		require.Contains(t, rackbusv1.FailureRetry_name, int32(f.GetRetry()))
		require.Equal(t, info.Advice, f.GetAdvice())
		require.Equal(t, info.Runbook(), f.GetRunbook())
	}
	unknown := job.Record{State: job.StateFailed, Failure: job.NewFailure("SOMETHING_NEW", "why")}
	require.Empty(t, jobMessage(&unknown).GetFailure().GetAdvice())
	require.Nil(t, jobMessage(&job.Record{State: job.StateCompleted}).GetFailure())
}
