// SPDX-License-Identifier: Apache-2.0

package api

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/rackbus/rackbus/pkg/admission"
	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/credentials"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

// command takes the offered command of a job.
func (h *harness) command(f node.Family, id string) *rackbusv1.JobCommand {
	h.t.Helper()
	q, err := h.conn.Commands(h.t.Context(), f)
	require.NoError(h.t, err)
	var got *rackbusv1.JobCommand
	require.NoError(h.t, q.Fetch(h.t.Context(), 1, func(d *bus.Delivery) { got = d.Command }))
	require.Equal(h.t, id, got.GetJobId())
	return got
}

func TestUpdateFirmwareOffersACommand(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register(typed("r1", "shelf", rackmanager.NodeType_POWERSHELF_GB200_LITEON))
	h.firmware("sub/psu.pkg", "psu firmware")
	resp, err := h.rm.UpdateFirmware(with(t.Context(), metaJobName, "weekly"), &rackmanager.UpdateFirmwareRequest{
		RackId: "r1", NodeId: "shelf", Activate: true, ForceUpdate: true, Filename: "ignored.pkg",
		FirmwareTargets: []*rackmanager.FirmwareTarget{{Target: "PSU", Filename: filepath.Join(h.files, "sub/psu.pkg")}},
	})
	require.NoError(t, err)
	requireSuccess(t, resp.GetStatus(), resp.GetMessage())
	require.Equal(t, "Firmware update job created for shelf", resp.GetMessage())
	require.Equal(t, rackmanager.FirmwareUpdateError_FIRMWARE_UPDATE_ERROR_SUCCESS, resp.GetErrorCode())

	r, _, err := h.conn.Record(t.Context(), parseID(t, resp.GetJobId()))
	require.NoError(t, err)
	require.Equal(t, "weekly", r.Name)
	require.Equal(t, job.StateQueued, r.State)
	require.True(t, r.Visible)
	cmd := h.command(node.FamilyPowerShelf, resp.GetJobId())
	update := cmd.GetFirmwareUpdate()
	require.True(t, update.GetActivate())
	require.True(t, update.GetForce())
	target := update.GetTargets()[0]
	sum := sha256.Sum256([]byte("psu firmware"))
	require.True(t, proto.Equal(&rackbusv1.FirmwareUpdateTarget{
		File: "sub/psu.pkg", SizeBytes: 12, Sha256: sum[:]}, target), "a power shelf's component is dropped: %v", target)
	login, err := credentials.Open(h.openers[node.FamilyPowerShelf], cmd.GetTarget(), node.EndpointBMC)
	require.NoError(t, err)
	require.Equal(t, plantedPassword, login.Password.Reveal())
	raw, err := proto.Marshal(cmd)
	require.NoError(t, err)
	require.NotContains(t, string(raw), plantedPassword)
}

func TestUpdateFirmwareRefusals(t *testing.T) {
	t.Parallel()
	h := newHarness(t, func(o *Options) { o.Admission.MaxTrackedJobs = 1 })
	h.firmware("fw.pkg", "x")
	h.firmware("cx7.bin", "x")
	h.firmware("empty.pkg", "")
	outside := filepath.Join(t.TempDir(), "outside.pkg")
	require.NoError(t, os.WriteFile(outside, []byte("x"), 0o644))
	require.NoError(t, os.Symlink(outside, filepath.Join(h.files, "link.pkg")))
	h.register(compute("gb200", "c"), typed("gb300", "c", rackmanager.NodeType_COMPUTE_GB300_NVIDIA),
		typed("gb200", "s", rackmanager.NodeType_SWITCH_GB200_NVIDIA), typed("gb300", "lenovo", rackmanager.NodeType_COMPUTE_GB300_LENOVO),
		typed("gb200", "delta", rackmanager.NodeType_POWERSHELF_GB200_DELTA))
	list := func(targets ...string) []*rackmanager.FirmwareTarget {
		var out []*rackmanager.FirmwareTarget
		for _, name := range targets {
			out = append(out, &rackmanager.FirmwareTarget{Target: name, Filename: "fw.pkg"})
		}
		return out
	}
	const (
		none   = rackmanager.FirmwareUpdateError_FIRMWARE_UPDATE_ERROR_UNSPECIFIED
		noFile = rackmanager.FirmwareUpdateError_FIRMWARE_UPDATE_ERROR_FILE_NOT_FOUND
		client = rackmanager.FirmwareUpdateError_FIRMWARE_UPDATE_ERROR_CLIENT_FAILURE
	)
	for name, c := range map[string]struct {
		req  *rackmanager.UpdateFirmwareRequest
		code rackmanager.FirmwareUpdateError
		text string
	}{
		"rack":         {&rackmanager.UpdateFirmwareRequest{RackId: "r9", NodeId: "c"}, none, "rack not found"},
		"node":         {&rackmanager.UpdateFirmwareRequest{RackId: "gb200", NodeId: "z"}, none, "node not found"},
		"no target":    {&rackmanager.UpdateFirmwareRequest{RackId: "gb200", NodeId: "c"}, none, "no firmware targets specified"},
		"no file name": {&rackmanager.UpdateFirmwareRequest{RackId: "gb200", NodeId: "c", FirmwareTargets: []*rackmanager.FirmwareTarget{{Target: "x"}}}, noFile, "firmware_targets entry has empty filename"},
		"missing":      {&rackmanager.UpdateFirmwareRequest{RackId: "gb200", NodeId: "c", Filename: "none.pkg"}, noFile, "firmware file not found: "},
		"missing in list": {&rackmanager.UpdateFirmwareRequest{RackId: "gb200", NodeId: "c",
			FirmwareTargets: []*rackmanager.FirmwareTarget{{Target: "BMC_0", Filename: "none.pkg"}}}, noFile, "(component: BMC_0)"},
		"outside": {&rackmanager.UpdateFirmwareRequest{RackId: "gb200", NodeId: "c", Filename: outside}, noFile, "is outside firmware directory"},
		"symlink": {&rackmanager.UpdateFirmwareRequest{RackId: "gb200", NodeId: "c", Filename: "link.pkg"}, noFile, "is outside firmware directory"},
		"empty":   {&rackmanager.UpdateFirmwareRequest{RackId: "gb200", NodeId: "c", Filename: "empty.pkg"}, noFile, "is empty"},
		"arm image": {&rackmanager.UpdateFirmwareRequest{RackId: "gb200", NodeId: "c", Activate: true, FirmwareTargets: list("BF3_BFB")}, client,
			"BF3_BFB installs an operating system"},
		"in-band elsewhere": {&rackmanager.UpdateFirmwareRequest{RackId: "gb300", NodeId: "c", FirmwareTargets: list("CX8")}, client, "GB200 compute trays only"},
		"in-band mixed":     {&rackmanager.UpdateFirmwareRequest{RackId: "gb200", NodeId: "c", FirmwareTargets: list("CX7", "BMC_0")}, client, "cannot be mixed"},
		"in-band inactive":  {&rackmanager.UpdateFirmwareRequest{RackId: "gb200", NodeId: "c", FirmwareTargets: list("bf3_nic")}, client, "need activate"},
		"in-band name":      {&rackmanager.UpdateFirmwareRequest{RackId: "gb200", NodeId: "c", Activate: true, FirmwareTargets: list("CX7")}, client, "has to end in .bin or .pldm"},
		"in-band no host": {&rackmanager.UpdateFirmwareRequest{RackId: "gb200", NodeId: "c", Activate: true,
			FirmwareTargets: []*rackmanager.FirmwareTarget{{Target: "CX7", Filename: "cx7.bin"}}}, client, "need a host endpoint with credentials"},
		"switch": {&rackmanager.UpdateFirmwareRequest{RackId: "gb200", NodeId: "s", Filename: "fw.pkg", Target: "bmc/0"}, client, "names no component of a switch"},
		"lenovo": {&rackmanager.UpdateFirmwareRequest{RackId: "gb300", NodeId: "lenovo", Filename: "fw.pkg", Target: "CPU_0"}, client,
			"compute_gb300_lenovo takes the components BMC and HMC, not CPU_0"},
	} {
		t.Run(name, func(t *testing.T) {
			resp, err := h.rm.UpdateFirmware(t.Context(), c.req)
			require.NoError(t, err)
			requireFailure(t, resp.GetStatus())
			require.Equal(t, c.code, resp.GetErrorCode())
			require.Contains(t, resp.GetMessage(), c.text)
			require.Empty(t, resp.GetJobId())
		})
	}
	count, err := h.conn.CountRecords(t.Context())
	require.NoError(t, err)
	require.Zero(t, count, "a refused request leaves nothing behind")

	first, err := h.rm.UpdateFirmware(t.Context(), &rackmanager.UpdateFirmwareRequest{RackId: "gb200", NodeId: "c", Filename: "fw.pkg"})
	require.NoError(t, err)
	requireSuccess(t, first.GetStatus(), first.GetMessage())
	busy, err := h.rm.UpdateFirmware(t.Context(), &rackmanager.UpdateFirmwareRequest{RackId: "gb200", NodeId: "c", Filename: "none.pkg"})
	require.NoError(t, err, "busy comes before the file")
	require.Equal(t, rackmanager.FirmwareUpdateError_FIRMWARE_UPDATE_ERROR_UPDATE_IN_PROGRESS, busy.GetErrorCode())
	require.Contains(t, busy.GetMessage(), first.GetJobId())
	full, err := h.rm.UpdateFirmware(t.Context(), &rackmanager.UpdateFirmwareRequest{RackId: "gb300", NodeId: "c", Filename: "fw.pkg"})
	require.NoError(t, err)
	require.Equal(t, rackmanager.FirmwareUpdateError_FIRMWARE_UPDATE_ERROR_EXCEPTION, full.GetErrorCode())
	require.Contains(t, full.GetMessage(), "1 of at most 1")
}

func TestUpdateFirmwareMetadata(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register(compute("r1", "a"))
	h.firmware("fw.pkg", "x")
	req := &rackmanager.UpdateFirmwareRequest{RackId: "r1", NodeId: "a", Filename: "fw.pkg"}
	for pair, code := range map[[2]string]codes.Code{
		{metaOnBusy, "force"}:                           codes.InvalidArgument,
		{metaOnBusy, "perhaps"}:                         codes.InvalidArgument,
		{metaDeadline, "soon"}:                          codes.InvalidArgument,
		{metaDeadline, "-1m"}:                           codes.InvalidArgument,
		{metaDeadline, "2020-01-01T00:00:00Z"}:          codes.InvalidArgument,
		{metaJobName, fmt.Sprintf("%300s", "x")}:        codes.InvalidArgument,
		{metaIdempotencyKey, fmt.Sprintf("%300s", "x")}: codes.InvalidArgument,
	} {
		_, err := h.rm.UpdateFirmware(with(t.Context(), pair[0], pair[1]), req)
		if pair[0] == metaJobName {
			continue // leading space is trimmed: that one is fine
		}
		requireCode(t, err, code, pair[0])
	}
	// The name above was accepted, so the node is busy: further jobs wait.
	ctx := with(t.Context(), metaOnBusy, "queue", metaIdempotencyKey, "k1", metaDeadline, "90m")
	parked, err := h.rm.UpdateFirmware(ctx, req)
	require.NoError(t, err)
	requireSuccess(t, parked.GetStatus(), parked.GetMessage())
	r, _, err := h.conn.Record(t.Context(), parseID(t, parked.GetJobId()))
	require.NoError(t, err)
	require.False(t, r.WaitsFor.IsZero())
	require.WithinDuration(t, time.Now().Add(90*time.Minute), r.Deadline, time.Minute)

	// The repetition gets the same id, also when the file is gone by then.
	require.NoError(t, os.Remove(filepath.Join(h.files, "fw.pkg")))
	again, err := h.rm.UpdateFirmware(ctx, req)
	require.NoError(t, err)
	require.True(t, proto.Equal(parked, again), "%v", again)
	_, err = h.rm.UpdateFirmware(ctx, &rackmanager.UpdateFirmwareRequest{RackId: "r1", NodeId: "a", Filename: "other.pkg"})
	requireCode(t, err, codes.FailedPrecondition, "idempotency key")
}

// A call whose equal was admitted right after it had looked for such a one is not
// refused by the job of the other.
func TestUpdateFirmwareIsNotRefusedByItsOwnJob(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register(compute("r1", "a"))
	h.firmware("fw.pkg", "x")
	req := &rackmanager.UpdateFirmwareRequest{RackId: "r1", NodeId: "a", Filename: "fw.pkg"}
	first, err := h.rm.UpdateFirmware(with(t.Context(), metaIdempotencyKey, "k1"), req)
	require.NoError(t, err)
	requireSuccess(t, first.GetStatus(), first.GetMessage())

	m := &rackManager{Server: h.server}
	late := func(key string, req *rackmanager.UpdateFirmwareRequest) (*rackmanager.UpdateFirmwareResponse, error) {
		meta := jobMeta{key: key}
		idem, err := meta.idempotency(t.Context(), "UpdateFirmware", req)
		require.NoError(t, err)
		return m.admitUpdate(t.Context(), req, meta, idem)
	}
	again, err := late("k1", req)
	require.NoError(t, err)
	require.True(t, proto.Equal(first, again), "%v", again)

	for _, key := range []string{"", "k2"} {
		busy, err := late(key, req)
		require.NoError(t, err)
		require.Equal(t, rackmanager.FirmwareUpdateError_FIRMWARE_UPDATE_ERROR_UPDATE_IN_PROGRESS, busy.GetErrorCode())
	}
	_, err = late("k1", &rackmanager.UpdateFirmwareRequest{RackId: "r1", NodeId: "a", Filename: "other.pkg"})
	require.ErrorIs(t, err, admission.ErrKeyReused)
}

func TestBatchUpdateFirmwareByNodeType(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.firmware("fw.pkg", "x")
	h.register(compute("r1", "b"), compute("r1", "a"), typed("r1", "shelf", rackmanager.NodeType_POWERSHELF_GB200_LITEON))
	call := func(req *rackmanager.BatchUpdateFirmwareByNodeTypeRequest) *rackmanager.BatchUpdateFirmwareByNodeTypeResponse {
		t.Helper()
		resp, err := h.rm.BatchUpdateFirmwareByNodeType(t.Context(), req)
		require.NoError(t, err)
		return resp
	}
	_, err := h.rm.BatchUpdateFirmwareByNodeType(t.Context(), &rackmanager.BatchUpdateFirmwareByNodeTypeRequest{RackId: "r9"})
	requireCode(t, err, codes.InvalidArgument, "node descriptor is required")
	for text, req := range map[string]*rackmanager.BatchUpdateFirmwareByNodeTypeRequest{
		"rack not found: r9":             {RackId: "r9", NodeType: 1},
		"no firmware targets specified":  {RackId: "r1", NodeType: 1},
		"firmware file not found":        {RackId: "r1", NodeType: 1, Filename: "none.pkg"},
		"names no component of a switch": {RackId: "r1", NodeType: 3, Filename: "fw.pkg", Target: "bmc/0"},
	} {
		resp := call(req)
		requireFailure(t, resp.GetResponse().GetStatus())
		require.Contains(t, resp.GetResponse().GetMessage(), text)
		require.Empty(t, resp.GetResponse().GetJobId())
		require.NotNil(t, resp.GetResponse().GetStats())
	}
	nobody := call(&rackmanager.BatchUpdateFirmwareByNodeTypeRequest{RackId: "r1", NodeType: rackmanager.NodeType_COMPUTE_GB300_NVIDIA, Filename: "fw.pkg"})
	requireFailure(t, nobody.GetResponse().GetStatus())
	require.Equal(t, "no matching nodes found", nobody.GetResponse().GetMessage())
	parent, _, err := h.conn.Record(t.Context(), parseID(t, nobody.GetResponse().GetJobId()))
	require.NoError(t, err)
	require.Equal(t, job.StateFailed, parent.State)
	require.Equal(t, "no matching nodes found", parent.Failure.Message)

	resp := call(&rackmanager.BatchUpdateFirmwareByNodeTypeRequest{RackId: "r1", NodeType: 1, Filename: "fw.pkg", Target: "BMC_0", Activate: true})
	requireSuccess(t, resp.GetResponse().GetStatus(), resp.GetResponse().GetMessage())
	require.Equal(t, "Created 2 firmware update jobs for rack r1", resp.GetResponse().GetMessage())
	require.Len(t, resp.GetJobs(), 2)
	require.Equal(t, "a", resp.GetJobs()[0].GetNodeId())
	for _, r := range resp.GetResponse().GetNodeResults() {
		require.Empty(t, r.GetErrorMessage())
	}
	busy := call(&rackmanager.BatchUpdateFirmwareByNodeTypeRequest{RackId: "r1", NodeType: 1, Filename: "fw.pkg"})
	requireFailure(t, busy.GetResponse().GetStatus())
	require.Equal(t, "no firmware update jobs created", busy.GetResponse().GetMessage())
	require.NotEmpty(t, busy.GetResponse().GetJobId())
	require.Contains(t, busy.GetResponse().GetNodeResults()[0].GetErrorMessage(), resp.GetJobs()[0].GetJobId())
}

func TestBatchUpdateFirmware(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.firmware("fw.pkg", "x")
	lists := func(number int32, targets ...*rackmanager.FirmwareTarget) map[int32]*rackmanager.FirmwareTargetList {
		return map[int32]*rackmanager.FirmwareTargetList{number: {Targets: targets}}
	}
	fw := &rackmanager.FirmwareTarget{Target: "BMC_0", Filename: "fw.pkg"}
	for text, req := range map[string]*rackmanager.BatchUpdateFirmwareRequest{
		"No nodes specified in request":            {FirmwareTargets: lists(1, fw)},
		"No firmware targets specified in request": {Nodes: set(compute("r1", "a"))},
		"Failed to resolve firmware targets for node type compute_gb300_nvidia: empty list": {
			Nodes: set(compute("r1", "a")), FirmwareTargets: lists(5)},
		"Failed to resolve firmware targets for node type compute_gb200_nvidia: firmware file not found": {
			Nodes: set(compute("r1", "a")), FirmwareTargets: lists(1, &rackmanager.FirmwareTarget{Filename: "none.pkg"})},
		"Invalid firmware workflow for node type compute_gb200_nvidia: in-band": {
			Nodes: set(compute("r1", "a")), FirmwareTargets: lists(1, fw, &rackmanager.FirmwareTarget{Target: "CX7", Filename: "fw.pkg"})},
	} {
		resp, err := h.rm.BatchUpdateFirmware(t.Context(), req)
		require.NoError(t, err)
		requireFailure(t, resp.GetResponse().GetStatus())
		require.Contains(t, resp.GetResponse().GetMessage(), text)
		require.Empty(t, resp.GetResponse().GetJobId())
		require.Zero(t, resp.GetResponse().GetStats().GetTotalNodes())
	}
	_, err := h.rm.BatchUpdateFirmware(t.Context(), &rackmanager.BatchUpdateFirmwareRequest{FirmwareTargets: lists(99, fw)})
	requireCode(t, err, codes.InvalidArgument, "unknown node type value 99")

	noLogin := compute("r1", "no-login")
	noLogin.BmcEndpoint.Credentials = nil
	noMAC := compute("r1", "no-mac")
	noMAC.BmcEndpoint.Interface.MacAddress = ""
	odd := compute("r1", "odd-profile")
	odd.NodeDescriptor = &rackmanager.NodeDescriptor{Attributes: map[string]string{"inventory_profile": "nope"}}
	req := &rackmanager.BatchUpdateFirmwareRequest{
		Nodes: set(compute("r1", "a"), noLogin, noMAC, odd, compute("r1", "a"),
			typed("r1", "switch", rackmanager.NodeType_SWITCH_GB200_NVIDIA), typed("r3", "gb300", rackmanager.NodeType_COMPUTE_GB300_NVIDIA)),
		FirmwareTargets: lists(1, fw),
		NodeDescriptorFirmwareTargets: []*rackmanager.NodeDescriptorFirmwareTargetList{{
			NodeDescriptor:  &rackmanager.NodeDescriptor{Attributes: map[string]string{"role": "switch", "vendor": "nvidia", "product_family": "gb200"}},
			FirmwareTargets: &rackmanager.FirmwareTargetList{Targets: []*rackmanager.FirmwareTarget{fw}},
		}},
	}
	ctx := with(t.Context(), metaIdempotencyKey, "batch-1")
	resp, err := h.rm.BatchUpdateFirmware(ctx, req)
	require.NoError(t, err)
	requireFailure(t, resp.GetResponse().GetStatus())
	require.Equal(t, "Created 2 firmware update jobs out of 7 nodes. Use GetFirmwareJobStatus with job_id to track overall batch status.",
		resp.GetResponse().GetMessage())
	require.EqualValues(t, 5, resp.GetResponse().GetStats().GetFailedNodes())
	texts := []string{"", "Missing BMC credentials for node no-login",
		"Failed to construct node for type compute_gb200_nvidia: missing BMC endpoint mac_address",
		`unknown inventory_profile "nope"`, "more than once", "",
		"No firmware targets provided for node type compute_gb300_nvidia"}
	for i, r := range resp.GetResponse().GetNodeResults() {
		require.Contains(t, r.GetErrorMessage(), texts[i])
		require.Equal(t, texts[i] == "", r.GetErrorMessage() == "")
	}
	require.Len(t, resp.GetJobs(), 2)

	again, err := h.rm.BatchUpdateFirmware(ctx, req)
	require.NoError(t, err)
	require.True(t, proto.Equal(resp, again), "%v", again)

	// GetJob lists every node, the refused ones with their reason.
	got, err := h.jobs.GetJob(t.Context(), &rackbusv1.GetJobRequest{JobId: resp.GetResponse().GetJobId(), IncludeChildren: true})
	require.NoError(t, err)
	require.Len(t, got.GetChildren(), 2)
	require.Len(t, got.GetRefusedNodes(), 5)
	require.Equal(t, "no-login", got.GetRefusedNodes()[0].GetNodeId())
}
