// SPDX-License-Identifier: Apache-2.0

package api

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// The check of a plan has ended when its job id is known: there is nothing to stop.
func TestStopPlanCheck(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	checked, err := h.firmwareService().CheckFirmwarePlan(t.Context(), &rackbusv1.CheckFirmwarePlanRequest{
		ConfigJson: mixed(t, "P"), HardwareType: "gb200", FirmwareType: "prod", RackId: "r1",
		Nodes: set(compute("r1", "a")),
	})
	require.NoError(t, err)
	before, rev, err := h.conn.Record(t.Context(), parseID(t, checked.GetJobId()))
	require.NoError(t, err)
	for _, mode := range []rackbusv1.CancelMode{rackbusv1.CancelMode_CANCEL_MODE_GRACEFUL, rackbusv1.CancelMode_CANCEL_MODE_TERMINATE} {
		_, err := h.jobs.CancelJob(t.Context(), &rackbusv1.CancelJobRequest{JobId: checked.GetJobId(), Mode: mode})
		requireCode(t, err, codes.FailedPrecondition, "completed")
	}
	after, same, err := h.conn.Record(t.Context(), before.ID)
	require.NoError(t, err)
	require.Equal(t, before, after)
	require.Equal(t, rev, same)
}
