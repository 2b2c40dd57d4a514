// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

// byNode answers with a reply per node id; others are refused.
func byNode(replies map[string]*rackbusv1.NodeReply) handlers {
	answer := func(ctx context.Context, req *rackbusv1.NodeRequest) *rackbusv1.NodeReply {
		if r, ok := replies[req.GetTarget().GetNodeId()]; ok {
			return r
		}
		return refusing("BMC refused the credentials")(ctx, req)
	}
	return handlers{opDeviceInfo: answer, opFirmwareInventory: answer}
}

func TestDeviceInfo(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	shelf := typed("r1", "shelf", rackmanager.NodeType_POWERSHELF_GB200_LITEON)
	h.register(compute("r1", "b"), compute("r1", "a"), compute("r1", "broken"), shelf)
	info := func(slot uint32) *rackbusv1.NodeReply {
		return &rackbusv1.NodeReply{V: 1, DeviceInfo: &rackbusv1.DeviceInfo{SlotNumber: &slot, ChassisSn: proto.Int64(17)}}
	}
	h.agents(node.FamilyCompute, byNode(map[string]*rackbusv1.NodeReply{"a": info(1), "b": info(2), "none": {V: 1}}))

	for _, c := range []struct {
		rack, id, message string
		ok, info          bool
	}{
		{"", "a", "rack_id and node_id are required", false, false},
		{"r1", "", "rack_id and node_id are required", false, false},
		{"r9", "a", "rack not found: r9", false, false},
		{"r1", "z", "node not found: z", false, false},
		{"r1", "broken", "BMC refused the credentials", false, false},
		{"r1", "shelf", "Device info is not available for this node type", true, false},
		{"r1", "a", "Device info retrieved successfully", true, true},
	} {
		resp, err := h.rm.GetNodeDeviceInfo(t.Context(), &rackmanager.GetNodeDeviceInfoRequest{RackId: c.rack, NodeId: c.id})
		require.NoError(t, err)
		require.Equal(t, statusOf(c.ok), resp.GetStatus())
		require.Equal(t, c.message, resp.GetMessage())
		require.Equal(t, c.info, resp.GetDeviceInfo() != nil)
	}

	list := func(req *rackmanager.ListNodeDeviceInfoByNodeTypeRequest) *rackmanager.ListNodeDeviceInfoByNodeTypeResponse {
		t.Helper()
		resp, err := h.rm.ListNodeDeviceInfoByNodeType(t.Context(), req)
		require.NoError(t, err)
		return resp
	}
	resp := list(&rackmanager.ListNodeDeviceInfoByNodeTypeRequest{RackId: "r1", NodeType: rackmanager.NodeType_COMPUTE_GB200_NVIDIA})
	requireFailure(t, resp.GetStatus())
	require.Equal(t, "Completed with errors: node_id=broken: BMC refused the credentials", resp.GetMessage())
	require.Len(t, resp.GetNodeDeviceDetails(), 2)
	require.Equal(t, "a", resp.GetNodeDeviceDetails()[0].GetNodeId())
	require.EqualValues(t, 1, resp.GetNodeDeviceDetails()[0].GetSlotNumber())
	require.EqualValues(t, 17, resp.GetNodeDeviceDetails()[0].GetChassisSn())
	require.Nil(t, resp.GetNodeDeviceDetails()[0].TrayIndex, "what the device does not report is unset")
	require.EqualValues(t, 3, resp.GetStats().GetTotalNodes())

	resp = list(&rackmanager.ListNodeDeviceInfoByNodeTypeRequest{RackId: "r1", NodeDescriptor: &rackmanager.NodeDescriptor{
		Attributes: map[string]string{"role": "compute", "vendor": "wiwynn", "product_family": "gb200"}}})
	requireSuccess(t, resp.GetStatus(), "no such nodes is a success")
	require.Zero(t, resp.GetStats().GetTotalNodes())
	require.Equal(t, "rack_id is required",
		list(&rackmanager.ListNodeDeviceInfoByNodeTypeRequest{NodeType: 1}).GetMessage())
	require.Equal(t, "rack not found: r9",
		list(&rackmanager.ListNodeDeviceInfoByNodeTypeRequest{RackId: "r9", NodeType: 1}).GetMessage())
	_, err := h.rm.ListNodeDeviceInfoByNodeType(t.Context(), &rackmanager.ListNodeDeviceInfoByNodeTypeRequest{RackId: "r1", NodeType: 60})
	requireCode(t, err, codes.InvalidArgument, "unknown node type value 60")

	noLogin := typed("r1", "s", rackmanager.NodeType_SWITCH_GB200_NVIDIA)
	noLogin.HostEndpoint.Credentials = nil
	noHost := typed("r1", "s2", rackmanager.NodeType_SWITCH_GB200_NVIDIA)
	noHost.HostEndpoint = nil
	batch, err := h.rm.BatchGetNodeDeviceInfo(t.Context(), &rackmanager.BatchGetNodeDeviceInfoRequest{
		Nodes: set(compute("x", "b"), shelf, compute("x", "none"), noLogin, noHost)})
	require.NoError(t, err)
	requireFailure(t, batch.GetStatus())
	require.Equal(t, "Completed with errors: node_id=s: missing host credentials; node_id=s2: missing host endpoint", batch.GetMessage())
	require.Len(t, batch.GetNodeDeviceDetails(), 1)
	require.EqualValues(t, 3, batch.GetStats().GetSuccessfulNodes(), "nodes without device info are no failures")
	empty, err := h.rm.BatchGetNodeDeviceInfo(t.Context(), &rackmanager.BatchGetNodeDeviceInfoRequest{})
	require.NoError(t, err)
	require.Equal(t, "No nodes specified in request", empty.GetMessage())
}

func TestFirmwareInventory(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register(compute("r1", "a"), compute("r1", "broken"), typed("r1", "shelf", rackmanager.NodeType_POWERSHELF_GB200_LITEON))
	reply := &rackbusv1.NodeReply{V: 1, Firmware: []*rackbusv1.FirmwareEntry{
		{Name: "FW_BMC_0", Version: "1.2", Updateable: true, Target: "/redfish/v1/x", Health: "OK", FirmwareType: 1}}}
	h.agents(node.FamilyCompute, byNode(map[string]*rackbusv1.NodeReply{"a": reply}))

	one, err := h.rm.GetNodeFirmwareInventory(t.Context(), &rackmanager.GetNodeFirmwareInventoryRequest{RackId: "r1", NodeId: "a"})
	require.NoError(t, err)
	requireSuccess(t, one.GetStatus(), "")
	require.Equal(t, "1.2", one.GetFirmwareList()[0].GetVersion())
	require.EqualValues(t, 1, one.GetFirmwareList()[0].GetFirmwareType())
	for _, c := range [][2]string{{"r9", "a"}, {"r1", "z"}, {"r1", "broken"}, {"", ""}} {
		resp, err := h.rm.GetNodeFirmwareInventory(t.Context(), &rackmanager.GetNodeFirmwareInventoryRequest{RackId: c[0], NodeId: c[1]})
		require.NoError(t, err)
		requireFailure(t, resp.GetStatus())
		require.Empty(t, resp.GetFirmwareList())
	}

	rack, err := h.rm.GetRackFirmwareInventory(t.Context(), &rackmanager.GetRackFirmwareInventoryRequest{RackId: "r1"})
	require.NoError(t, err)
	requireFailure(t, rack.GetStatus())
	require.Len(t, rack.GetNodes(), 1, "the others are left out")
	rack, err = h.rm.GetRackFirmwareInventory(t.Context(), &rackmanager.GetRackFirmwareInventoryRequest{RackId: "r9"})
	require.NoError(t, err)
	requireFailure(t, rack.GetStatus())

	batch, err := h.rm.BatchGetFirmwareInventory(t.Context(), &rackmanager.BatchGetFirmwareInventoryRequest{
		Nodes: set(compute("x", "a"), compute("x", "broken"))})
	require.NoError(t, err)
	require.Equal(t, "Firmware inventory query completed with 1 successes and 1 failures out of 2 nodes", batch.GetResponse().GetMessage())
	require.Equal(t, "BMC refused the credentials", batch.GetResponse().GetNodeResults()[1].GetErrorMessage())
	require.Len(t, batch.GetNodes(), 1)
	batch, err = h.rm.BatchGetFirmwareInventory(t.Context(), &rackmanager.BatchGetFirmwareInventoryRequest{Nodes: set(compute("x", "a"))})
	require.NoError(t, err)
	require.Equal(t, "Firmware inventory queried for 1/1 nodes", batch.GetResponse().GetMessage())
}

// The caller's deadline ends a query, and the agent is told of it.
func TestCallersDeadlineIsHonoured(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register(compute("r1", "a"))
	told, release := make(chan time.Time, 1), make(chan struct{})
	h.agents(node.FamilyCompute, handlers{opDeviceInfo: func(_ context.Context, req *rackbusv1.NodeRequest) *rackbusv1.NodeReply {
		told <- req.GetDeadline().AsTime()
		<-release
		return &rackbusv1.NodeReply{V: 1}
	}})
	t.Cleanup(func() { close(release) })
	start := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	_, err := h.rm.GetNodeDeviceInfo(ctx, &rackmanager.GetNodeDeviceInfoRequest{RackId: "r1", NodeId: "a"})
	requireCode(t, err, codes.DeadlineExceeded, "")
	// The limit without a deadline would be five minutes.
	require.WithinDuration(t, start.Add(3*time.Second), <-told, time.Minute)
	require.Less(t, time.Since(start), time.Minute)
}
