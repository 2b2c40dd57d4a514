// SPDX-License-Identifier: Apache-2.0

package api

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/firmware/catalog"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

// byDescriptor is a node whose type has no number.
func byDescriptor(rack, id, vendor, family string) *rackmanager.NodeInfo {
	return &rackmanager.NodeInfo{RackId: rack, NodeId: id, BmcEndpoint: endpoint("10.0.0.2"), NodeDescriptor: descriptor(vendor, family)}
}

func descriptor(vendor, family string) *rackmanager.NodeDescriptor {
	return &rackmanager.NodeDescriptor{Attributes: map[string]string{"role": "compute", "vendor": vendor, "product_family": family}}
}

// commands takes the offered commands of a family, by node.
func (h *harness) commands(f node.Family, n int) map[string]*rackbusv1.JobCommand {
	h.t.Helper()
	q, err := h.conn.Commands(h.t.Context(), f)
	require.NoError(h.t, err)
	got := make(map[string]*rackbusv1.JobCommand)
	for len(got) < n {
		require.NoError(h.t, q.Fetch(h.t.Context(), n-len(got), func(d *bus.Delivery) { got[d.Ref().NodeID] = d.Command }))
	}
	return got
}

// shown are the targets of an update in short.
func shown(cmd *rackbusv1.JobCommand) (out []string) {
	for _, t := range cmd.GetFirmwareUpdate().GetTargets() {
		out = append(out, t.GetKey()+" "+t.GetComponent()+" "+t.GetArtifact().GetPath())
	}
	return out
}

func messages(r *rackmanager.NodeBatchResponse) map[string]string {
	out := map[string]string{}
	for _, n := range r.GetNodeResults() {
		out[n.GetNodeId()] = n.GetErrorMessage()
	}
	return out
}

func TestApplyStoredToAMixedRack(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.add(mixed(t, "A"), "gb200", false)
	h.makeAvailable("A_1.0")
	held, _ := h.admitOn(compute("r1", "busy"))
	nodes := set(compute("r1", "tray"), byDescriptor("r1", "wiwynn", "Wi-Wynn", "GB200"), compute("r1", "busy"),
		typed("r1", "shelf", rackmanager.NodeType_POWERSHELF_GB300_LITEON), typed("r1", "switch", rackmanager.NodeType_SWITCH_GB200_NVIDIA),
		compute("r1", "tray"), &rackmanager.NodeInfo{RackId: "r1", NodeId: "nologin", Type: rackmanager.NodeType_COMPUTE_GB200_NVIDIA.Enum(),
			BmcEndpoint: &rackmanager.Endpoint{Interface: endpoint("10.0.0.3").GetInterface()}})
	req := &rackmanager.ApplyStoredFirmwareObjectRequest{
		RackId: "rack-of-request", FirmwareType: "PROD", HardwareType: "gb200", Nodes: nodes, ForceUpdate: true}
	ctx := with(t.Context(), metaIdempotencyKey, "k1", metaJobName, "night")
	resp, err := h.rm.ApplyStoredFirmwareObject(ctx, req)
	require.NoError(t, err)
	requireFailure(t, resp.GetResponse().GetStatus())
	require.Equal(t, "A_1.0", resp.GetObjectId(), "the default of the hardware type")
	require.Contains(t, resp.GetResponse().GetMessage(), "Created 4 firmware update jobs out of 7 nodes.")
	require.Equal(t, uint32(3), resp.GetResponse().GetStats().GetFailedNodes())
	refused := messages(resp.GetResponse())
	require.Contains(t, refused["busy"], held.String())
	require.Empty(t, refused["switch"])
	require.Contains(t, refused["nologin"], "Missing BMC credentials for node nologin")
	require.Contains(t, resp.GetResponse().GetNodeResults()[5].GetErrorMessage(), "r1")
	require.Empty(t, resp.GetResponse().GetNodeResults()[0].GetErrorMessage())

	parent, _, err := h.conn.Record(t.Context(), parseID(t, resp.GetResponse().GetJobId()))
	require.NoError(t, err)
	require.Equal(t, "night", parent.Name)
	require.Empty(t, parent.Cleanup, "the files of a stored object stay")
	cmds := h.commands(node.FamilyCompute, 3)
	require.Equal(t, []string{"HMC /redfish/v1/Chassis/HGX_Chassis_0 prod/hmc.fwpkg", "BMC  prod/bmc.fwpkg"}, shown(cmds["tray"]))
	require.Equal(t, shown(cmds["tray"]), shown(cmds["wiwynn"]))
	update := cmds["tray"].GetFirmwareUpdate()
	require.True(t, update.GetActivate() && update.GetForce() && update.GetMixed())
	require.Equal(t, "A_1.0", update.GetTargets()[0].GetArtifact().GetCache())
	require.Len(t, update.GetTargets()[0].GetSha256(), 32, "what was fetched is what will be installed")
	require.Equal(t, []string{"LiteOnPMC  prod/pmc.tar"}, shown(h.commands(node.FamilyPowerShelf, 1)["shelf"]))
	require.Equal(t, []string{"CPLD cpld prod/cpld.vme"}, shown(h.commands(node.FamilySwitch, 1)["switch"]))

	// The history has it, with the refused nodes.
	history, err := h.catalog().ListHistory(t.Context(), catalog.HistoryFilter{})
	require.NoError(t, err)
	require.Len(t, history, 1)
	require.Equal(t, "rack-of-request", history[0].GetRackId())
	require.Equal(t, "PROD", history[0].GetFirmwareType())
	require.Equal(t, []string{"tray", "wiwynn", "busy", "shelf", "switch", "tray", "nologin"}, history[0].GetNodeIds())
	require.Equal(t, []string{"busy", "tray", "nologin"}, history[0].GetRefusedNodeIds())
	require.Equal(t, resp.GetResponse().GetJobId(), history[0].GetJobId())

	// The same request again is the same job, and no further line.
	again, err := h.rm.ApplyStoredFirmwareObject(ctx, req)
	require.NoError(t, err)
	require.Equal(t, resp.GetResponse().GetJobId(), again.GetResponse().GetJobId())
	history, err = h.catalog().ListHistory(t.Context(), catalog.HistoryFilter{})
	require.NoError(t, err)
	require.Len(t, history, 1)
}

// admitOn starts an update that holds a node.
func (h *harness) admitOn(n *rackmanager.NodeInfo) (job.ID, job.ID) {
	h.t.Helper()
	h.firmware("held.pkg", "firmware")
	resp, err := h.rm.BatchUpdateFirmware(h.t.Context(), &rackmanager.BatchUpdateFirmwareRequest{
		Nodes: set(n), FirmwareTargets: map[int32]*rackmanager.FirmwareTargetList{
			int32(n.GetType()): {Targets: []*rackmanager.FirmwareTarget{{Filename: "held.pkg"}}}}})
	require.NoError(h.t, err)
	requireSuccess(h.t, resp.GetResponse().GetStatus(), resp.GetResponse().GetMessage())
	return parseID(h.t, resp.GetJobs()[0].GetJobId()), parseID(h.t, resp.GetResponse().GetJobId())
}

func TestApplyStoredRefusals(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.add(mixed(t, "A"), "gb200", false)
	h.add(mixed(t, "ANY"), "any", false)
	h.add(manifestOf(t, "NONE", boardOf("Rack")), "gb300", false)
	tray := set(compute("r", "n"))
	for _, id := range []string{"A_1.0", "ANY_1.0", "NONE_1.0"} {
		h.makeAvailable(id)
	}
	for name, c := range map[string]struct {
		req  *rackmanager.ApplyStoredFirmwareObjectRequest
		code codes.Code
		text string
	}{
		"no object and type": {&rackmanager.ApplyStoredFirmwareObjectRequest{Nodes: tray}, codes.InvalidArgument, "hardware_type is required when object_id is empty"},
		"no such object":     {&rackmanager.ApplyStoredFirmwareObjectRequest{ObjectId: "X", Nodes: tray}, codes.NotFound, "firmware object X not found"},
		"other hardware": {&rackmanager.ApplyStoredFirmwareObjectRequest{ObjectId: "A_1.0", HardwareType: "gb300", Nodes: tray}, codes.FailedPrecondition,
			"firmware object A_1.0 hardware type gb200 does not match request hardware type gb300"},
		"node type": {&rackmanager.ApplyStoredFirmwareObjectRequest{ObjectId: "A_1.0", Nodes: set(typed("r", "n", 99))}, codes.InvalidArgument, "unknown node type value 99"},
		"filter type": {&rackmanager.ApplyStoredFirmwareObjectRequest{ObjectId: "A_1.0", Nodes: tray,
			ComponentFilters: map[int32]*rackmanager.FirmwareObjectComponentFilter{0: {}}}, codes.InvalidArgument, "unknown node type value 0"},
		"no nodes":    {&rackmanager.ApplyStoredFirmwareObjectRequest{ObjectId: "A_1.0"}, codes.OK, "nodes is required"},
		"empty nodes": {&rackmanager.ApplyStoredFirmwareObjectRequest{ObjectId: "A_1.0", Nodes: set()}, codes.OK, "nodes must include at least one device"},
		"channel":     {&rackmanager.ApplyStoredFirmwareObjectRequest{ObjectId: "A_1.0", FirmwareType: "dev", Nodes: tray}, codes.OK, "no matching firmware found in config for Compute Node (compute_gb200_nvidia)"},
		"unlisted": {&rackmanager.ApplyStoredFirmwareObjectRequest{ObjectId: "ANY_1.0", HardwareType: "whatever", FirmwareType: "prod", Nodes: tray,
			ComponentFilters: map[int32]*rackmanager.FirmwareObjectComponentFilter{5: {}}}, codes.OK, "no firmware object targets found for supplied node types: compute_gb200_nvidia"},
		"arm":     {&rackmanager.ApplyStoredFirmwareObjectRequest{ObjectId: "A_1.0", FirmwareType: "prod", Nodes: tray, Components: []string{"BF3_BFB"}}, codes.OK, "select BF3_NIC"}, //nolint:staticcheck // older clients send it
		"nothing": {&rackmanager.ApplyStoredFirmwareObjectRequest{ObjectId: "NONE_1.0", FirmwareType: "prod", Nodes: tray}, codes.OK, "firmware object NONE_1.0 has no parsed components"},
	} {
		t.Run(name, func(t *testing.T) {
			resp, err := h.rm.ApplyStoredFirmwareObject(t.Context(), c.req)
			if c.code != codes.OK {
				requireCode(t, err, c.code, c.text)
				return
			}
			require.NoError(t, err)
			requireFailure(t, resp.GetResponse().GetStatus())
			require.Contains(t, resp.GetResponse().GetMessage(), c.text)
			require.Empty(t, resp.GetResponse().GetJobId())
			require.NotNil(t, resp.GetResponse().GetStats())
		})
	}
	count, err := h.conn.CountRecords(t.Context())
	require.NoError(t, err)
	require.Equal(t, int64(2), count, "nothing but the downloads of the two objects with files")
	history, err := h.catalog().ListHistory(t.Context(), catalog.HistoryFilter{})
	require.NoError(t, err)
	require.Empty(t, history)
}

// Network devices beside other components are taken from stored objects too, where
// the host can be logged in to.
func TestApplyAllComponents(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.add(mixed(t, "A"), "gb200", false)
	h.makeAvailable("A_1.0")
	host := compute("r", "host")
	host.HostEndpoint = endpoint("10.0.1.1")
	wiwynn := byDescriptor("r", "wiwynn", "wiwynn", "gb200")
	resp, err := h.rm.ApplyStoredFirmwareObject(t.Context(), &rackmanager.ApplyStoredFirmwareObjectRequest{
		ObjectId: "A_1.0", FirmwareType: "prod", Nodes: set(host, compute("r", "nohost"), wiwynn),
		ComponentFilters: map[int32]*rackmanager.FirmwareObjectComponentFilter{1: {}},
		NodeDescriptorComponentFilters: []*rackmanager.NodeDescriptorFirmwareObjectComponentFilter{
			{NodeDescriptor: descriptor("wiwynn", "gb200"), ComponentFilter: &rackmanager.FirmwareObjectComponentFilter{Components: []string{"bmc"}}}},
	})
	require.NoError(t, err)
	require.Contains(t, messages(resp.GetResponse())["nohost"], "host endpoint with credentials")
	cmds := h.commands(node.FamilyCompute, 2)
	require.Contains(t, shown(cmds["host"]), "CX7 CX7 prod/cx7.bin")
	require.Greater(t, len(shown(cmds["host"])), 20)
	require.Equal(t, []string{"BMC  prod/bmc.fwpkg"}, shown(cmds["wiwynn"]))
}

func TestApplyInline(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	held, _ := h.admitOn(compute("r1", "busy"))
	req := &rackmanager.ApplyFirmwareObjectRequest{
		RackId: "r1", ConfigJson: signed(mixed(t, "INLINE")), AccessToken: proto.String(plantedPassword), FirmwareType: "prod", HardwareType: "gb200",
		Nodes: set(compute("r1", "busy"), byDescriptor("r1", "wiwynn", "wiwynn", "gb200"), typed("r1", "delta", rackmanager.NodeType_POWERSHELF_GB200_DELTA),
			typed("r1", "switch", rackmanager.NodeType_SWITCH_GB200_NVIDIA), typed("r2", "liteon", rackmanager.NodeType_POWERSHELF_GB200_LITEON)),
	}
	resp, err := h.rm.ApplyFirmwareObject(with(t.Context(), metaIdempotencyKey, "k"), req)
	require.NoError(t, err)
	requireFailure(t, resp.GetResponse().GetStatus())
	require.Equal(t, "INLINE_1.0", resp.GetObjectId())
	require.Contains(t, resp.GetResponse().GetMessage(), "Created firmware object apply jobs. Stage 0 downloads firmware artifacts")
	require.Len(t, resp.GetJobs(), 4)
	require.Contains(t, messages(resp.GetResponse())["busy"], held.String())
	require.Empty(t, messages(resp.GetResponse())["switch"])

	parent, _, err := h.conn.Record(t.Context(), parseID(t, resp.GetResponse().GetJobId()))
	require.NoError(t, err)
	require.Equal(t, "r1", parent.RackID)
	require.Len(t, parent.Cleanup, 1)
	cache, ok := strings.CutPrefix(parent.Cleanup[0], "firmware_objects_ephemeral/")
	require.True(t, ok)
	require.True(t, strings.HasPrefix(cache, "INLINE_1.0-"))
	download := h.commands(node.FamilyRack, 1)[cache]
	require.Equal(t, cache, download.GetArtifactDownload().GetCache())
	require.NotContains(t, download.String(), plantedPassword)
	records, err := h.catalog().CacheArtifacts(t.Context(), cache)
	require.NoError(t, err)
	var paths []string
	for _, r := range records {
		require.True(t, r.GetEphemeral())
		paths = append(paths, r.GetPath())
	}
	require.Equal(t, []string{"prod/bmc.fwpkg", "prod/cpld.vme", "prod/dpsu.tar", "prod/hmc.fwpkg", "prod/pmc.tar"}, paths, "only what some node takes")
	wiwynn := h.commands(node.FamilyCompute, 2)["wiwynn"].GetFirmwareUpdate()
	require.Equal(t, cache, wiwynn.GetTargets()[0].GetArtifact().GetCache())
	require.Empty(t, wiwynn.GetTargets()[0].GetSha256(), "not fetched yet")
	require.True(t, wiwynn.GetMixed() && wiwynn.GetActivate())
	history, err := h.catalog().ListHistory(t.Context(), catalog.HistoryFilter{})
	require.NoError(t, err)
	require.Empty(t, history, "there is no object for the history")

	again, err := h.rm.ApplyFirmwareObject(with(t.Context(), metaIdempotencyKey, "k"), req)
	require.NoError(t, err)
	require.Equal(t, resp.GetResponse().GetJobId(), again.GetResponse().GetJobId())
	require.Equal(t, "INLINE_1.0", again.GetObjectId())
}

// A manifest that cannot be used fails jobs that exist: clients look there.
func TestInlineManifestFaultsFailTheJobs(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	held, _ := h.admitOn(compute("r1", "busy"))
	for name, c := range map[string]struct {
		config, channel, id, text string
		code                      rackmanager.JobError
		change                    func(*rackmanager.ApplyFirmwareObjectRequest)
	}{
		"syntax": {"{", "prod", "", "invalid config_json", rackmanager.JobError_JOB_ERROR_INVALID_ARGUMENT, nil},
		"id":     {manifestOf(t, "a/b"), "prod", "", "path-safe", rackmanager.JobError_JOB_ERROR_INVALID_ARGUMENT, nil},
		"location": {manifestOf(t, "P", boardOf("Compute Node", js{"Component": "BMC", "Type": "Prod", "Locations": arr{js{"Type": "Firmware"}}})), "prod", "P_1.0",
			"missing Location", rackmanager.JobError_JOB_ERROR_INVALID_ARGUMENT, nil},
		"nothing fits": {mixed(t, "P"), "dev", "P_1.0", "no matching firmware found", rackmanager.JobError_JOB_ERROR_INVALID_RESPONSE, nil},
		"selection": {mixed(t, "P"), "prod", "P_1.0", "select BF3_NIC", rackmanager.JobError_JOB_ERROR_INVALID_ARGUMENT, func(r *rackmanager.ApplyFirmwareObjectRequest) {
			r.ComponentFilters = map[int32]*rackmanager.FirmwareObjectComponentFilter{1: {Components: []string{"BF3_BFB"}}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			req := &rackmanager.ApplyFirmwareObjectRequest{
				RackId: "r1", ConfigJson: c.config, FirmwareType: c.channel, HardwareType: "gb200", Nodes: set(compute("r1", "a"), compute("r1", "busy"), compute("r1", "b"))}
			if c.change != nil {
				c.change(req)
			}
			resp, err := h.rm.ApplyFirmwareObject(t.Context(), req)
			require.NoError(t, err)
			require.Equal(t, c.id, resp.GetObjectId())
			require.Len(t, resp.GetJobs(), 2, "%v", resp.GetResponse())
			require.Contains(t, messages(resp.GetResponse())["busy"], held.String())
			read, err := h.rm.GetJobStatus(t.Context(), &rackmanager.GetJobStatusRequest{
				JobId: resp.GetResponse().GetJobId(), IncludeChildJobStates: true})
			require.NoError(t, err)
			require.Len(t, read.GetJobStates(), 3)
			for _, s := range read.GetJobStates() {
				require.Equal(t, rackmanager.JobExecutionState_JOB_EXECUTION_STATE_FAILED, s.GetExecutionState())
			}
			child := read.GetJobStates()[1]
			require.Equal(t, c.code, child.GetErrorCode())
			require.Contains(t, child.GetErrorMessage(), c.text)
			var result map[string]any
			require.NoError(t, json.Unmarshal([]byte(child.GetResultJson()), &result))
			require.Equal(t, "failed", result["status"])
			require.Equal(t, "planning", result["phase"])
			lock, err := h.conn.Lock(t.Context(), node.Ref{RackID: "r1", NodeID: "a"})
			require.NoError(t, err)
			require.Empty(t, lock.GetJobId())
			require.Contains(t, read.GetJobStates()[0].GetResultJson(), c.text[:6], "the parent names the failed jobs")
		})
	}
	none, err := h.rm.ApplyFirmwareObject(t.Context(), &rackmanager.ApplyFirmwareObjectRequest{HardwareType: "x", ConfigJson: "{"})
	require.NoError(t, err)
	require.Equal(t, "No devices specified in request", none.GetResponse().GetMessage())
	_, err = h.rm.ApplyFirmwareObject(t.Context(), &rackmanager.ApplyFirmwareObjectRequest{Nodes: set(compute("r", "n"))})
	requireCode(t, err, codes.InvalidArgument, "hardware_type is required")
}

// When no node is left, neither are the files.
func TestInlineApplyOfNothing(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.admitOn(compute("r1", "busy"))
	resp, err := h.rm.ApplyFirmwareObject(t.Context(), &rackmanager.ApplyFirmwareObjectRequest{
		RackId: "r1", ConfigJson: mixed(t, "P"), FirmwareType: "prod", HardwareType: "gb200", Nodes: set(compute("r1", "busy"))})
	require.NoError(t, err)
	requireFailure(t, resp.GetResponse().GetStatus())
	require.Equal(t, "No firmware object apply jobs created", resp.GetResponse().GetMessage())
	require.NotEmpty(t, resp.GetResponse().GetJobId())
	parent, _, err := h.conn.Record(t.Context(), parseID(t, resp.GetResponse().GetJobId()))
	require.NoError(t, err)
	require.Equal(t, job.StateFailed, parent.State)
	cache := strings.TrimPrefix(parent.Cleanup[0], "firmware_objects_ephemeral/")
	records, err := h.catalog().CacheArtifacts(t.Context(), cache)
	require.NoError(t, err)
	require.Empty(t, records)
	cmd := h.commands(node.FamilyRack, 1)[cache]
	events, _, err := h.conn.NewestJobEvents(t.Context(), parseID(t, cmd.GetJobId()), 0, 10, 16<<20)
	require.NoError(t, err)
	require.Equal(t, job.EventCancelRequested, events[len(events)-1].Kind)

	h.server.admitter.Drain()
	resp, err = h.rm.ApplyFirmwareObject(t.Context(), &rackmanager.ApplyFirmwareObjectRequest{
		RackId: "r1", ConfigJson: mixed(t, "P"), FirmwareType: "prod", HardwareType: "gb200", Nodes: set(compute("r1", "free"))})
	require.NoError(t, err)
	requireFailure(t, resp.GetResponse().GetStatus())
	require.Contains(t, resp.GetResponse().GetMessage(), "failed to create parent firmware object apply job: ")
	require.Equal(t, uint32(1), resp.GetResponse().GetStats().GetFailedNodes())
}

func TestApplyOnBusyQueue(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.add(mixed(t, "A"), "gb200", false)
	h.makeAvailable("A_1.0")
	h.admitOn(compute("r1", "busy"))
	resp, err := h.rm.ApplyStoredFirmwareObject(with(t.Context(), metaOnBusy, "queue"), &rackmanager.ApplyStoredFirmwareObjectRequest{
		ObjectId: "A_1.0", FirmwareType: "prod", Nodes: set(compute("r1", "busy"))})
	require.NoError(t, err)
	requireSuccess(t, resp.GetResponse().GetStatus(), resp.GetResponse().GetMessage())
	r, _, err := h.conn.Record(t.Context(), parseID(t, resp.GetJobs()[0].GetJobId()))
	require.NoError(t, err)
	require.False(t, r.WaitsFor.IsZero())
}
