// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

const (
	componentBMC = rackmanager.SwitchFirmwareComponentType_SWITCH_FIRMWARE_COMPONENT_TYPE_BMC
	componentTop = rackmanager.SwitchFirmwareComponentType_SWITCH_FIRMWARE_COMPONENT_TYPE_TRANSCEIVER
)

// registerRack registers a switch, one without its operating system's address, and a
// tray.
func registerRack(h *harness) {
	bare := switchNode("r1", 2)
	bare.HostEndpoint = nil
	h.register(switchNode("r1", 1), bare, compute("r1", "tray"))
}

// unusable are registered nodes that no switch RPC takes, with what it says.
var unusable = map[string][2]string{
	"rack not found: r9": {"r9", "sw-1"},
	"node not found: z":  {"r1", "z"},
	"node tray is not a switch (type=compute_gb200_nvidia)":        {"r1", "tray"},
	"invalid host endpoint for switch sw-2: missing host endpoint": {"r1", "sw-2"},
}

func TestListSwitchFirmwareAndImages(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	registerRack(h)
	agents := h.switches(map[string]agent.QueryHandler{
		opListSwitchFirmware: answering(`{"actual-firmware":"1.0"}`), opListSwitchImages: answering(`{"nvos.bin":{}}`),
	})
	list := func(rack, id string, c rackmanager.SwitchFirmwareComponentType) *rackmanager.ListSwitchFirmwareResponse {
		resp, err := h.rm.ListSwitchFirmware(t.Context(), &rackmanager.ListSwitchFirmwareRequest{RackId: rack, NodeId: id, ComponentType: c})
		require.NoError(t, err)
		return resp
	}
	images := func(rack, id string) *rackmanager.ListSwitchSystemImagesResponse {
		resp, err := h.rm.ListSwitchSystemImages(t.Context(), &rackmanager.ListSwitchSystemImagesRequest{RackId: rack, NodeId: id})
		require.NoError(t, err)
		return resp
	}
	for text, at := range unusable {
		resp := list(at[0], at[1], 0) // before the component is looked at
		requireFailure(t, resp.GetStatus())
		require.Equal(t, text, resp.GetErrorMessage())
		none := images(at[0], at[1])
		requireFailure(t, none.GetStatus())
		require.Equal(t, text, none.GetErrorMessage())
	}
	for _, c := range []rackmanager.SwitchFirmwareComponentType{0, 1, 8, -1} {
		resp := list("r1", "sw-1", c)
		requireFailure(t, resp.GetStatus())
		require.Contains(t, resp.GetErrorMessage(), "is not BMC, FPGA, EROT, CPLD, BIOS or TRANSCEIVER")
	}
	require.Empty(t, agents.requests(opListSwitchFirmware), "no refused call reached the switch")
	for c := componentBMC; c <= componentTop; c++ {
		resp := list("r1", "sw-1", c)
		requireSuccess(t, resp.GetStatus(), resp.GetErrorMessage())
		require.JSONEq(t, `{"actual-firmware":"1.0"}`, resp.GetResultJson())
	}
	var asked []string
	for _, r := range agents.requests(opListSwitchFirmware) {
		asked = append(asked, r.GetSwitchFirmware().GetComponent())
	}
	require.Equal(t, []string{"BMC", "FPGA", "EROT", "CPLD", "BIOS", "TRANSCEIVER"}, asked)
	got := images("r1", "sw-1")
	requireSuccess(t, got.GetStatus(), got.GetErrorMessage())
	require.JSONEq(t, `{"nvos.bin":{}}`, got.GetImagesJson())
}

func TestListingsTellWhatTheSwitchSaid(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	registerRack(h)
	resp, err := h.rm.ListSwitchSystemImages(t.Context(), &rackmanager.ListSwitchSystemImagesRequest{RackId: "r1", NodeId: "sw-1"})
	require.NoError(t, err)
	requireFailure(t, resp.GetStatus())
	require.Equal(t, "no agent of the switch family is connected that serves list_switch_images", resp.GetErrorMessage())
	h.switches(map[string]agent.QueryHandler{opListSwitchFirmware: declining("NVUE refused the login")})
	list, err := h.rm.ListSwitchFirmware(t.Context(), &rackmanager.ListSwitchFirmwareRequest{RackId: "r1", NodeId: "sw-1", ComponentType: componentBMC})
	require.NoError(t, err)
	requireFailure(t, list.GetStatus())
	require.Equal(t, "NVUE refused the login", list.GetErrorMessage())
	require.Empty(t, list.GetResultJson())
}

func TestPushSwitchFirmware(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	registerRack(h)
	h.firmware("fw/bmc.fwpkg", strings.Repeat("x", 1024))
	h.firmware("fw/small.fwpkg", strings.Repeat("x", 1023))
	agents := h.switches(map[string]agent.QueryHandler{opPushSwitchFirmware: changing(t, &rackbusv1.NodeReply{V: 1})})
	push := func(req *rackmanager.PushSwitchFirmwareRequest) *rackmanager.PushSwitchFirmwareResponse {
		resp, err := h.rm.PushSwitchFirmware(t.Context(), req)
		require.NoError(t, err)
		return resp
	}
	for text, at := range unusable {
		resp := push(&rackmanager.PushSwitchFirmwareRequest{RackId: at[0], NodeId: at[1]})
		requireFailure(t, resp.GetStatus())
		require.Equal(t, text, resp.GetErrorMessage())
	}
	for text, req := range map[string]*rackmanager.PushSwitchFirmwareRequest{
		"component_type 0":               {Filename: "a.fwpkg", LocalFilePath: "fw/bmc.fwpkg"},
		`filename "" must consist`:       {ComponentType: componentBMC, LocalFilePath: "fw/bmc.fwpkg"},
		`filename ".a" must`:             {ComponentType: componentBMC, Filename: ".a", LocalFilePath: "fw/bmc.fwpkg"},
		`filename "a/b" must`:            {ComponentType: componentBMC, Filename: "a/b", LocalFilePath: "fw/bmc.fwpkg"},
		"local_file_path is required":    {ComponentType: componentBMC, Filename: "a.fwpkg"},
		"firmware file not found":        {ComponentType: componentBMC, Filename: "a.fwpkg", LocalFilePath: "none"},
		"is outside firmware directory":  {ComponentType: componentBMC, Filename: "a.fwpkg", LocalFilePath: "/etc/passwd"},
		"has 1023 bytes, less than 1024": {ComponentType: componentBMC, Filename: "a.fwpkg", LocalFilePath: "fw/small.fwpkg"},
	} {
		req.RackId, req.NodeId = "r1", "sw-1"
		resp := push(req)
		requireFailure(t, resp.GetStatus())
		require.Contains(t, resp.GetErrorMessage(), text)
	}
	good := &rackmanager.PushSwitchFirmwareRequest{
		RackId: "r1", NodeId: "sw-1", ComponentType: componentBMC, Filename: "a.fwpkg", LocalFilePath: "fw/bmc.fwpkg"}
	resp := push(good)
	requireSuccess(t, resp.GetStatus(), resp.GetErrorMessage())
	require.Empty(t, resp.GetResultJson())
	require.Len(t, agents.requests(opPushSwitchFirmware), 1)
	asked := agents.requests(opPushSwitchFirmware)[0].GetSwitchFirmware()
	require.Equal(t, []string{"BMC", "a.fwpkg", "fw/bmc.fwpkg"}, []string{asked.GetComponent(), asked.GetFilename(), asked.GetFile()})
	require.EqualValues(t, 1024, asked.GetSizeBytes())
	require.Len(t, asked.GetSha256(), 32)
	require.True(t, h.free("r1", "sw-1"))

	// A job holds the switch: nothing is sent, and the answer names the job.
	reset, err := h.rm.BatchResetSwitchSdnFactoryDefault(t.Context(), &rackmanager.BatchResetSwitchSdnFactoryDefaultRequest{Nodes: set(switchNode("r1", 1))})
	require.NoError(t, err)
	requireSuccess(t, reset.GetResponse().GetStatus(), reset.GetResponse().GetMessage())
	held := agents.next(1)["sw-1"].cmd.GetJobId()
	busy := push(good)
	requireFailure(t, busy.GetStatus())
	require.Contains(t, busy.GetErrorMessage(), held)
	require.Len(t, agents.requests(opPushSwitchFirmware), 1)
}

// free reports whether nobody holds a node.
func (h *harness) free(rack, id string) bool {
	lock, err := h.conn.Lock(h.t.Context(), node.Ref{RackID: rack, NodeID: id})
	require.NoError(h.t, err)
	return lock.Free(time.Now())
}

// Power, device information, firmware inventory and updates reach switches as any node.
func TestSwitchesAreNodes(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	tray := uint32(3)
	replying := func(reply *rackbusv1.NodeReply) agent.QueryHandler {
		return func(context.Context, *agent.Query) *rackbusv1.NodeReply { return reply }
	}
	registerRack(h)
	agents := h.switches(map[string]agent.QueryHandler{
		opPowerGet: replying(&rackbusv1.NodeReply{V: 1, PowerState: "ON"}), opPowerSet: changing(t, &rackbusv1.NodeReply{V: 1}),
		opDeviceInfo:        replying(&rackbusv1.NodeReply{V: 1, DeviceInfo: &rackbusv1.DeviceInfo{TrayIndex: &tray}}),
		opFirmwareInventory: replying(&rackbusv1.NodeReply{V: 1, Firmware: []*rackbusv1.FirmwareEntry{{Name: "BMC", Version: "1.0"}}}),
	})
	power, err := h.rm.GetPowerState(t.Context(), &rackmanager.GetPowerStateRequest{RackId: "r1", NodeId: "sw-1"})
	require.NoError(t, err)
	require.Equal(t, "ON", power.GetPstate())
	cycled, err := h.rm.SetPowerState(t.Context(), &rackmanager.SetPowerStateRequest{RackId: "r1", NodeId: "sw-1", Operation: rackmanager.PowerOperation_POWER_OPERATION_RESET})
	require.NoError(t, err)
	requireSuccess(t, cycled.GetStatus(), "")
	info, err := h.rm.BatchGetNodeDeviceInfo(t.Context(), &rackmanager.BatchGetNodeDeviceInfoRequest{Nodes: set(switchNode("r1", 1))})
	require.NoError(t, err)
	require.Equal(t, tray, info.GetNodeDeviceDetails()[0].GetTrayIndex())
	inventory, err := h.rm.BatchGetFirmwareInventory(t.Context(), &rackmanager.BatchGetFirmwareInventoryRequest{Nodes: set(switchNode("r1", 1))})
	require.NoError(t, err)
	require.Equal(t, "1.0", inventory.GetNodes()[0].GetFirmwareList()[0].GetVersion())

	h.firmware("sw.fwpkg", "x")
	for _, typ := range []rackmanager.NodeType{
		rackmanager.NodeType_SWITCH_GB200_NVIDIA, rackmanager.NodeType_SWITCH_GB300_NVIDIA, rackmanager.NodeType_SWITCH_VRNVL72_NVIDIA,
	} {
		n := switchNode("r2", int(typ))
		n.Type = &typ
		up, err := h.rm.BatchUpdateFirmware(t.Context(), &rackmanager.BatchUpdateFirmwareRequest{
			Nodes: set(n), FirmwareTargets: map[int32]*rackmanager.FirmwareTargetList{
				int32(typ): {Targets: []*rackmanager.FirmwareTarget{{Target: "bmc", Filename: "sw.fwpkg"}, {Target: "CPLD2", Filename: "sw.fwpkg"}}}}})
		require.NoError(t, err)
		requireSuccess(t, up.GetResponse().GetStatus(), up.GetResponse().GetMessage())
		require.Equal(t, "CPLD2", agents.next(1)[n.GetNodeId()].cmd.GetFirmwareUpdate().GetTargets()[1].GetComponent())
	}
	// Registered without the operating system's login, no update could begin.
	bare, err := h.rm.UpdateFirmware(t.Context(), &rackmanager.UpdateFirmwareRequest{RackId: "r1", NodeId: "sw-2", Filename: "sw.fwpkg", Target: "bmc"})
	require.NoError(t, err)
	requireFailure(t, bare.GetStatus())
	require.Equal(t, "missing host credentials for switch sw-2", bare.GetMessage())
}
