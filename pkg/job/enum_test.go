// SPDX-License-Identifier: Apache-2.0

package job

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// requireEnum checks that every number of a wire enum has the same name here.
func requireEnum(t *testing.T, prefix string, wire map[int32]string, count int, name func(int32) string) {
	t.Helper()
	require.Len(t, wire, count)
	for n, w := range wire {
		require.Equal(t, prefix+strings.ToUpper(name(n)), w)
	}
}

func TestEnumsEqualTheWire(t *testing.T) {
	requireEnum(t, "JOB_STATE_", rackbusv1.JobState_name, int(stateCount),
		func(n int32) string { return State(n).String() })
	requireEnum(t, "JOB_KIND_", rackbusv1.JobKind_name, int(kindCount),
		func(n int32) string { return Kind(n).String() })
	requireEnum(t, "JOB_EVENT_KIND_", rackbusv1.JobEventKind_name, int(eventKindCount),
		func(n int32) string { return EventKind(n).String() })
	requireEnum(t, "STAGE_STATUS_", rackbusv1.StageStatus_name, int(stageStatusCount),
		func(n int32) string { return StageStatus(n).String() })
	requireEnum(t, "JOB_ERROR_CODE_", rackbusv1.JobErrorCode_name, int(codeCount),
		func(n int32) string { return ErrorCode(n).Label() })
	wireMode := func(n int32) string {
		if CancelMode(n) == CancelNone {
			return "unspecified"
		}
		return CancelMode(n).String()
	}
	requireEnum(t, "CANCEL_MODE_", rackbusv1.CancelMode_name, int(cancelModeCount), wireMode)

	require.Equal(t, "state(99)", State(99).String())
	require.Equal(t, "ErrorCode(99)", ErrorCode(99).String())
	require.Equal(t, "internal", ErrorCode(99).Label())
	for _, unknown := range []string{Kind(99).String(), EventKind(99).String(), StageStatus(99).String(), CancelMode(99).String()} {
		require.Equal(t, "unknown", unknown)
	}
}

func TestStatesOnTheWire(t *testing.T) {
	for _, c := range []struct {
		state     State
		terminal  bool
		wire      string
		execution int32
	}{
		{StateUnspecified, false, "", 0},
		{StateQueued, false, "queued", 1},
		{StateRunning, false, "running", 2},
		{StateCancellationRequested, false, "running", 2},
		{StateCompleted, true, "completed", 3},
		{StateFailed, true, "failed", 4},
		{StatePartiallyFailed, true, "failed", 4},
		{StateCancelled, true, "failed", 4},
		{StateTerminated, true, "failed", 4},
		{StateSuperseded, true, "failed", 4},
		{StateTimedOut, true, "failed", 4},
		{State(11), false, "", 0},
	} {
		require.Equal(t, c.terminal, c.state.Terminal(), c.state)
		require.Equal(t, c.wire, c.state.Wire(), c.state)
		require.Equal(t, c.execution, c.state.Execution(), c.state)
		require.Equal(t, c.execution != 0, c.state.Valid(), c.state)
		parsed, ok := ParseState(c.state.String())
		require.Equal(t, c.state.Valid(), ok)
		if ok {
			require.Equal(t, c.state, parsed)
		}
	}
}

func TestErrorCodeMapping(t *testing.T) {
	for _, c := range []struct {
		code               ErrorCode
		name, display      string
		jobError, firmware int32
	}{
		{CodeUnspecified, "Unspecified", "unspecified", 0, 1},
		{CodeInternal, "Internal", "internal", 1, 8},
		{CodeOther, "Other", "other", 2, 6},
		{CodeInvalidArgument, "InvalidArgument", "invalid argument", 3, 3},
		{CodeFailedPrecondition, "FailedPrecondition", "failed precondition", 11, 3},
		{CodeClientError, "ClientError", "client error", 11, 3},
		{CodeServerError, "ServerError", "server error", 12, 5},
		{CodeTimeout, "Timeout", "timeout", 13, 10},
		{CodeInvalidResponse, "InvalidResponse", "invalid response", 14, 9},
		{CodeUnauthenticated, "Unauthenticated", "unauthenticated", 15, 3},
		{CodeTargetNotFound, "TargetNotFound", "target not found", 21, 4},
		{CodeFileNotFound, "FileNotFound", "file not found", 22, 2},
		{CodeUpdateInProgress, "UpdateInProgress", "update in progress", 23, 13},
	} {
		require.Equal(t, c.name, c.code.String())
		require.Equal(t, c.display, c.code.Display())
		require.Equal(t, strings.ReplaceAll(c.display, " ", "_"), c.code.Label())
		require.Equal(t, c.jobError, c.code.JobError())
		require.Equal(t, c.firmware, c.code.FirmwareUpdateError())
		parsed, ok := ParseErrorCode(c.name)
		require.True(t, ok)
		require.Equal(t, c.code, parsed)
	}
	_, ok := ParseErrorCode("Nonsense")
	require.False(t, ok)
}

func TestFailureCodes(t *testing.T) {
	word := regexp.MustCompile(`^[A-Z]+(_[A-Z]+)*$`)
	seen := map[FailureCode]bool{}
	for _, info := range FailureCodes() {
		require.Regexp(t, word, string(info.FailureCode))
		require.False(t, seen[info.FailureCode], "%s twice", info.FailureCode)
		seen[info.FailureCode] = true
		require.NotEmpty(t, info.Meaning)
		require.NotContains(t, info.Meaning, "\n")
		require.NotEqual(t, RetryUnspecified, info.Retry, info.FailureCode)
		require.Less(t, info.Retry, retryCount)
		require.Regexp(t, `^[A-Z].*\.$`, info.Advice, info.FailureCode)
		require.Equal(t, "docs/failure-codes.md#"+strings.ToLower(string(info.FailureCode)), info.Runbook())
		require.NotEqual(t, CodeUnspecified, info.Code)
		f := NewFailure(info.FailureCode, "why")
		require.Equal(t, &Failure{Code: info.Code, FailureCode: info.FailureCode, Message: "why"}, f)
	}
	require.Equal(t, CodeUnauthenticated, FailureBMCAuthFailed.ErrorCode())
	require.Equal(t, CodeUpdateInProgress, FailureNodeBusy.ErrorCode())
	require.Equal(t, CodeOther, FailureCode("SOMETHING_NEW").ErrorCode())
}

func TestTypes(t *testing.T) {
	limits := map[Type]time.Duration{
		"firmware_update": 4 * time.Hour, "switch_certificate": time.Hour, "switch_mtls_disable": time.Hour,
		"switch_sdn_factory_default_reset": 2 * time.Hour, "switch_factory_default_reset": 2 * time.Hour,
		"switch_system_password_update": time.Hour, "switch_system_image_update": 3 * time.Hour,
		"configure_scale_up_fabric_manager_v2": time.Hour, "cold_reboot_sequence": 4 * time.Hour,
		"artifact_download": 12 * time.Hour, "firmware_plan_check": time.Minute, "system_validation": 12 * time.Hour,
		"node_diagnostics": 30 * time.Minute,
	}
	require.Len(t, Types(), len(limits))
	for id, limit := range limits {
		info, ok := id.Info()
		require.True(t, ok, id)
		require.Equal(t, id, info.Type)
		require.Equal(t, limit, info.RunLimit, id)
		require.Equal(t, id != "firmware_plan_check", info.Exclusive, id)
		require.Equal(t, info.Noun+"s", info.Plural)
		require.Equal(t, info.Wording, id.Wording())
	}
	_, ok := Type("unheard_of").Info()
	require.False(t, ok)
	require.Equal(t, Wording{"job", "jobs"}, Type("unheard_of").Wording())
}
