// SPDX-License-Identifier: Apache-2.0

package api

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/rackbus/rackbus/pkg/credentials"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/proto/rackmanager"
	"github.com/rackbus/rackbus/proto/rackmanagerv2"
)

func (h *harness) validate(req *rackmanagerv2.StartSystemValidationRequest, pairs ...string) *rackmanagerv2.StartSystemValidationResponse {
	h.t.Helper()
	resp, err := rackmanagerv2.NewRackManagerV2Client(h.cc).StartSystemValidation(with(h.t.Context(), pairs...), req)
	require.NoError(h.t, err)
	return resp
}

func withValidator(o *Options) { o.Validator = true }

func TestStartSystemValidation(t *testing.T) {
	t.Parallel()
	h := newHarness(t, withValidator)
	tray := compute("r1", "tray-1")
	tray.HostEndpoint = endpoint("10.0.1.1")
	bare := compute("r1", "tray-3")
	bare.BmcEndpoint.Credentials = nil
	req := &rackmanagerv2.StartSystemValidationRequest{
		Nodes: set(tray, compute("r1", "tray-2"), bare, typed("r1", "switch-1", rackmanager.NodeType_SWITCH_GB200_NVIDIA),
			typed("r1", "shelf-1", rackmanager.NodeType_POWERSHELF_GB200_LITEON)),
		ConfigOverride: "{x: --y}",
	}
	resp := h.validate(req, metaIdempotencyKey, "k", metaJobName, "tuesday")
	r := resp.GetResponse()
	require.Equal(t, rackmanager.ReturnCode_RETURN_CODE_FAILURE, r.GetStatus(), "three nodes are refused")
	requireStats(t, 5, 3, r)
	require.Contains(t, r.GetMessage(), "Created 2 system validation jobs out of 5 nodes")
	require.Len(t, resp.GetJobs(), 2)
	require.Equal(t, "tray-1", resp.GetJobs()[0].GetNodeId())
	texts := map[string]string{}
	for _, n := range r.GetNodeResults() {
		texts[n.GetNodeId()] = n.GetErrorMessage()
	}
	require.Empty(t, texts["tray-1"])
	require.Contains(t, texts["tray-3"], "Missing BMC credentials")
	require.Contains(t, texts["switch-1"], "not for node type switch_gb200_nvidia")
	require.Contains(t, texts["shelf-1"], "not for node type powershelf_gb200_liteon")

	cmd := h.command(node.FamilyCompute, resp.GetJobs()[0].GetJobId())
	require.Equal(t, string(job.TypeSystemValidation), cmd.GetType())
	require.Equal(t, "{x: --y}", cmd.GetSystemValidation().GetConfigOverride())
	for _, kind := range []node.EndpointKind{node.EndpointBMC, node.EndpointHost} {
		login, err := credentials.Open(h.openers[node.FamilyCompute], cmd.GetTarget(), kind)
		require.NoError(t, err)
		require.Equal(t, plantedPassword, login.Password.Reveal())
	}

	status, err := h.rm.GetJobStatus(t.Context(), &rackmanager.GetJobStatusRequest{JobId: r.GetJobId()})
	require.NoError(t, err)
	require.Equal(t, rackmanager.JobExecutionState_JOB_EXECUTION_STATE_RUNNING, status.GetJobStates()[0].GetExecutionState())

	again := h.validate(req, metaIdempotencyKey, "k", metaJobName, "tuesday")
	require.Equal(t, r.GetJobId(), again.GetResponse().GetJobId(), "the same key gets the same jobs")
	require.Len(t, again.GetJobs(), 2)

	busy := h.validate(&rackmanagerv2.StartSystemValidationRequest{Nodes: set(compute("r1", "tray-1"))})
	require.Contains(t, busy.GetResponse().GetNodeResults()[0].GetErrorMessage(), resp.GetJobs()[0].GetJobId(), "one job at a time, by name")
	require.Empty(t, busy.GetJobs())
	require.NotContains(t, h.log.String(), plantedPassword)
}

func TestStartSystemValidationIsRefused(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	resp := h.validate(&rackmanagerv2.StartSystemValidationRequest{Nodes: set(compute("r1", "tray-1"), compute("r1", "tray-2"))})
	r := resp.GetResponse()
	require.Equal(t, rackmanager.ReturnCode_RETURN_CODE_FAILURE, r.GetStatus())
	requireStats(t, 2, 2, r)
	require.Empty(t, resp.GetJobs())
	for _, n := range r.GetNodeResults() {
		require.Contains(t, n.GetErrorMessage(), "no validator is configured")
	}
	record, err := h.rm.GetJobStatus(t.Context(), &rackmanager.GetJobStatusRequest{JobId: r.GetJobId()})
	require.NoError(t, err)
	require.Equal(t, rackmanager.JobExecutionState_JOB_EXECUTION_STATE_FAILED, record.GetJobStates()[0].GetExecutionState())

	empty := h.validate(&rackmanagerv2.StartSystemValidationRequest{})
	require.Equal(t, rackmanager.ReturnCode_RETURN_CODE_FAILURE, empty.GetResponse().GetStatus())
	require.Empty(t, empty.GetResponse().GetJobId())

	_, err = rackmanagerv2.NewRackManagerV2Client(h.cc).StartSystemValidation(t.Context(), &rackmanagerv2.StartSystemValidationRequest{
		Nodes: set(described("r1", "tray-9", map[string]string{"role": "unheard"})),
	})
	requireCode(t, err, codes.InvalidArgument, "")
}
