// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/rackbus/rackbus/pkg/firmware/catalog"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

func TestPlanOfAManifest(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	fw := h.firmwareService()
	sw := typed("r1", "switch", rackmanager.NodeType_SWITCH_GB200_NVIDIA)
	sw.NodeDescriptor = &rackmanager.NodeDescriptor{Attributes: map[string]string{"inventory_profile": "nope"}}
	req := &rackbusv1.CheckFirmwarePlanRequest{
		ConfigJson: mixed(t, "P"), HardwareType: "gb200", FirmwareType: "prod", RackId: "r1",
		Nodes: set(compute("r1", "b"), compute("r1", "a"), sw),
	}
	ctx := with(t.Context(), metaIdempotencyKey, "k", metaJobName, "check")
	checked, err := fw.CheckFirmwarePlan(ctx, req)
	require.NoError(t, err)
	plan := checked.GetPlan()
	require.True(t, strings.HasPrefix(plan.GetSnapshotId(), "fwplan-"))
	require.False(t, plan.GetStored())
	require.Equal(t, "P_1.0", plan.GetObjectId())
	require.Equal(t, []string{"a", "b", "switch"}, []string{plan.GetNodes()[0].GetNodeId(), plan.GetNodes()[1].GetNodeId(), plan.GetNodes()[2].GetNodeId()})
	require.Equal(t, "HMC", plan.GetNodes()[0].GetTargets()[0].GetKey())
	require.Equal(t, "h2", plan.GetNodes()[0].GetTargets()[0].GetVersion())
	require.Contains(t, plan.GetNodes()[2].GetRefusal(), `unknown inventory_profile "nope"`)
	require.Len(t, plan.GetArtifacts(), 3)
	require.NotContains(t, plan.String(), plantedPassword)
	require.NotContains(t, plan.String(), "s3cret")

	r, _, err := h.conn.Record(t.Context(), parseID(t, checked.GetJobId()))
	require.NoError(t, err)
	require.Equal(t, job.StateCompleted, r.State)
	require.Equal(t, "PLAN_CHECKED", r.Description)
	require.Equal(t, job.TypeFirmwarePlanCheck, r.Type)
	require.Equal(t, "check", r.Name)
	require.JSONEq(t, `{"snapshot_id":"`+plan.GetSnapshotId()+`","object_id":"P_1.0","nodes":3,"refused_nodes":1,"targets":4}`, r.ResultJSON)
	again, err := fw.CheckFirmwarePlan(ctx, req)
	require.NoError(t, err)
	require.Equal(t, checked.GetJobId(), again.GetJobId())
	require.Equal(t, plan.GetSnapshotId(), again.GetPlan().GetSnapshotId())
	kept, err := fw.GetFirmwarePlan(t.Context(), &rackbusv1.GetFirmwarePlanRequest{SnapshotId: plan.GetSnapshotId()})
	require.NoError(t, err)
	require.NotNil(t, plan.GetCreatedAt())
	require.True(t, proto.Equal(plan, kept.GetPlan()))

	// Other nodes, fewer, elsewhere, or without a way to log in: not at all.
	apply := func(nodes ...*rackmanager.NodeInfo) (*rackbusv1.ApplyFirmwarePlanResponse, error) {
		return fw.ApplyFirmwarePlan(t.Context(), &rackbusv1.ApplyFirmwarePlanRequest{
			SnapshotId: plan.GetSnapshotId(), Nodes: set(nodes...), AccessToken: plantedPassword})
	}
	moved := compute("r1", "b")
	moved.BmcEndpoint.Interface.IpAddress = "10.9.9.9"
	nologin := compute("r1", "b")
	nologin.BmcEndpoint.Credentials = nil
	for name, c := range map[string]struct {
		nodes []*rackmanager.NodeInfo
		text  string
	}{
		"fewer":    {[]*rackmanager.NodeInfo{compute("r1", "a"), sw}, "the set of nodes is not the same"},
		"moved":    {[]*rackmanager.NodeInfo{compute("r1", "a"), moved, sw}, "the set of nodes is not the same"},
		"retyped":  {[]*rackmanager.NodeInfo{compute("r1", "a"), byDescriptor("r1", "b", "wiwynn", "gb200"), sw}, "the set of nodes is not the same"},
		"no login": {[]*rackmanager.NodeInfo{compute("r1", "a"), nologin, sw}, "node r1/b: Missing BMC credentials"},
	} {
		_, err := apply(c.nodes...)
		requireCode(t, err, codes.FailedPrecondition, c.text)
		require.Contains(t, err.Error(), "is not applied", name)
	}
	count, err := h.conn.CountRecords(t.Context())
	require.NoError(t, err)
	require.Equal(t, int64(1), count, "nothing but the check")

	applied, err := apply(sw, compute("r1", "a"), compute("r1", "b"))
	require.NoError(t, err)
	require.Equal(t, "P_1.0", applied.GetObjectId())
	require.Len(t, applied.GetJobs(), 2)
	require.Contains(t, messages(applied.GetResponse())["switch"], `unknown inventory_profile "nope"`)
	require.Len(t, h.commands(node.FamilyRack, 1), 1, "the files are fetched")
	require.Len(t, h.commands(node.FamilyCompute, 2), 2)
}

func TestPlanOfAStoredObject(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	fw := h.firmwareService()
	h.add(mixed(t, "A"), "gb200", false)
	check := func(filters map[int32]*rackmanager.FirmwareObjectComponentFilter) *rackbusv1.FirmwarePlan {
		resp, err := fw.CheckFirmwarePlan(t.Context(), &rackbusv1.CheckFirmwarePlanRequest{
			HardwareType: "gb200", FirmwareType: "prod", Nodes: set(compute("r1", "a")), ComponentFilters: filters})
		require.NoError(t, err)
		return resp.GetPlan()
	}
	plan := check(nil)
	require.True(t, plan.GetStored())
	require.Equal(t, plan.GetSnapshotId(), check(nil).GetSnapshotId(), "an equal plan is the same plan")
	parts := check(map[int32]*rackmanager.FirmwareObjectComponentFilter{1: {Components: []string{"CPU_0"}}})
	require.NotEqual(t, plan.GetSnapshotId(), parts.GetSnapshotId())
	apply := func(p *rackbusv1.FirmwarePlan) (*rackbusv1.ApplyFirmwarePlanResponse, error) {
		return fw.ApplyFirmwarePlan(t.Context(), &rackbusv1.ApplyFirmwarePlanRequest{SnapshotId: p.GetSnapshotId(), Nodes: set(compute("r1", "a"))})
	}
	_, err := apply(plan)
	requireCode(t, err, codes.FailedPrecondition, "firmware object A_1.0 is not available")
	h.makeAvailable("A_1.0")
	applied, err := apply(parts)
	require.NoError(t, err)
	requireSuccess(t, applied.GetResponse().GetStatus(), applied.GetResponse().GetMessage())
	require.Equal(t, []string{"CPU_0 /redfish/v1/UpdateService/FirmwareInventory/HGX_FW_CPU_0 prod/hmc.fwpkg"}, shown(h.commands(node.FamilyCompute, 1)["a"]))
	history, err := h.catalog().ListHistory(t.Context(), catalog.HistoryFilter{ObjectID: "A_1.0"})
	require.NoError(t, err)
	require.Len(t, history, 1)

	// Another manifest under the same id is another object.
	_, err = h.rm.DeleteFirmwareObject(t.Context(), &rackmanager.DeleteFirmwareObjectRequest{Id: "A_1.0"})
	require.NoError(t, err)
	_, err = apply(plan)
	requireCode(t, err, codes.FailedPrecondition, "firmware object A_1.0 was deleted")
	h.add(strings.Replace(mixed(t, "A"), `"h2"`, `"h3"`, 1), "gb200", false)
	h.makeAvailable("A_1.0")
	_, err = apply(plan)
	requireCode(t, err, codes.FailedPrecondition, "the manifest of firmware object A_1.0 is not the same")
}

func TestPlanRefusals(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	fw := h.firmwareService()
	for name, c := range map[string]struct {
		req  *rackbusv1.CheckFirmwarePlanRequest
		code codes.Code
		text string
	}{
		"no nodes":   {&rackbusv1.CheckFirmwarePlanRequest{ConfigJson: "{}"}, codes.InvalidArgument, "No devices"},
		"both":       {&rackbusv1.CheckFirmwarePlanRequest{ConfigJson: "{}", ObjectId: "x", Nodes: set(compute("r", "a"))}, codes.InvalidArgument, "either config_json or object_id"},
		"hardware":   {&rackbusv1.CheckFirmwarePlanRequest{ConfigJson: "{}", Nodes: set(compute("r", "a"))}, codes.InvalidArgument, "hardware_type is required"},
		"twice":      {&rackbusv1.CheckFirmwarePlanRequest{ConfigJson: mixed(t, "P"), HardwareType: "x", Nodes: set(compute("r", "a"), compute("r", "a"))}, codes.InvalidArgument, "more than once"},
		"manifest":   {&rackbusv1.CheckFirmwarePlanRequest{ConfigJson: "{", HardwareType: "x", Nodes: set(compute("r", "a"))}, codes.InvalidArgument, "invalid config_json"},
		"a secret":   {&rackbusv1.CheckFirmwarePlanRequest{ConfigJson: signed(mixed(t, "P")), HardwareType: "x", FirmwareType: "prod", Nodes: set(compute("r", "a"))}, codes.InvalidArgument, "a plan cannot keep"},
		"no channel": {&rackbusv1.CheckFirmwarePlanRequest{ConfigJson: mixed(t, "P"), HardwareType: "x", Nodes: set(compute("r", "a"))}, codes.InvalidArgument, "no matching firmware found"},
		"no object":  {&rackbusv1.CheckFirmwarePlanRequest{ObjectId: "X", Nodes: set(compute("r", "a"))}, codes.NotFound, "firmware object X not found"},
	} {
		_, err := fw.CheckFirmwarePlan(t.Context(), c.req)
		requireCode(t, err, c.code, c.text)
		require.NotEmpty(t, name)
	}
	_, err := fw.GetFirmwarePlan(t.Context(), &rackbusv1.GetFirmwarePlanRequest{})
	requireCode(t, err, codes.InvalidArgument, "snapshot_id is required")
	_, err = fw.ApplyFirmwarePlan(t.Context(), &rackbusv1.ApplyFirmwarePlanRequest{SnapshotId: "fwplan-x"})
	requireCode(t, err, codes.NotFound, "firmware plan fwplan-x not found")
}

func TestCompareFirmwareObject(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	var asked atomic.Int32
	h.agents(node.FamilyCompute, handlers{opFirmwareInventory: func(_ context.Context, r *rackbusv1.NodeRequest) *rackbusv1.NodeReply {
		asked.Add(1)
		reply := &rackbusv1.NodeReply{V: 1}
		entry := func(name, version string) {
			reply.Firmware = append(reply.Firmware, &rackbusv1.FirmwareEntry{Name: name, Version: version})
		}
		switch r.GetTarget().GetNodeId() {
		case "same", "described":
			entry("HGX_FW_BMC_0", "H2")
			entry("FW_BMC_0", "b2")
		case "other":
			entry("HGX_FW_BMC_0", "h1")
			entry("FW_BMC_0", "b2")
		case "silent":
			entry("HGX_FW_BMC_0", "h2")
			entry("FW_BMC_0", "")
		case "without":
			entry("HGX_FW_BMC_0", "h2")
		default:
			reply.Error = &rackbusv1.NodeError{Code: "unavailable", Message: "no answer from the BMC"}
		}
		return reply
	}})
	compare := func(change func(*rackmanager.CompareFirmwareObjectRequest), nodes ...*rackmanager.NodeInfo) *rackmanager.CompareFirmwareObjectResponse {
		req := &rackmanager.CompareFirmwareObjectRequest{ConfigJson: mixed(t, "A"), FirmwareType: "prod", Nodes: set(nodes...)}
		if change != nil {
			change(req)
		}
		resp, err := h.rm.CompareFirmwareObject(t.Context(), req)
		require.NoError(t, err)
		return resp
	}
	status := func(n *rackmanager.NodeFirmwareManifestComparison) (out []int32) {
		for _, c := range n.GetComponents() {
			out = append(out, int32(c.GetStatus()))
		}
		return out
	}
	matched := compare(nil, compute("r", "same"), byDescriptor("r", "described", "wiwynn", "gb200"))
	requireSuccess(t, matched.GetResponse().GetStatus(), matched.GetResponse().GetMessage())
	require.True(t, matched.GetMatchesManifest())
	require.Equal(t, "A_1.0", matched.GetObjectId())
	require.Empty(t, matched.GetResponse().GetJobId())

	mixedUp := compare(nil, compute("r", "other"), compute("r", "silent"), compute("r", "without"), compute("r", "same"))
	requireSuccess(t, mixedUp.GetResponse().GetStatus(), mixedUp.GetResponse().GetMessage())
	require.False(t, mixedUp.GetMatchesManifest())
	require.Equal(t, []int32{2, 1}, status(mixedUp.GetNodes()[0]))
	require.Equal(t, []int32{1, 4}, status(mixedUp.GetNodes()[1]))
	require.Equal(t, []int32{1, 3}, status(mixedUp.GetNodes()[2]))
	require.True(t, mixedUp.GetNodes()[3].GetMatchesManifest())
	hmc := mixedUp.GetNodes()[0].GetComponents()[0]
	require.Equal(t, "HMC", hmc.GetComponent())
	require.Equal(t, "HGX_FW_BMC_0", hmc.GetInstalledComponent())
	require.Equal(t, "h1", hmc.GetInstalledVersion())
	require.Equal(t, "h2", hmc.GetProposedVersion())
	require.NotEmpty(t, hmc.GetReason())
	require.Equal(t, "/redfish/v1/Chassis/HGX_Chassis_0", hmc.GetTarget())

	// A node that cannot be read is no match.
	failed := compare(nil, compute("r", "same"), compute("r", "dead"))
	requireFailure(t, failed.GetResponse().GetStatus())
	require.False(t, failed.GetMatchesManifest())
	require.Len(t, failed.GetNodes(), 1)
	require.Contains(t, messages(failed.GetResponse())["dead"], "no answer from the BMC")

	// What cannot be compared is not asked.
	before := asked.Load()
	filtered := compare(func(r *rackmanager.CompareFirmwareObjectRequest) {
		r.ComponentFilters = map[int32]*rackmanager.FirmwareObjectComponentFilter{1: {Components: []string{"BMC"}}}
	}, compute("r", "other"), typed("r", "same", rackmanager.NodeType_COMPUTE_GB300_NVIDIA))
	require.True(t, filtered.GetNodes()[0].GetMatchesManifest(), "only the BMC was asked for")
	require.Contains(t, messages(filtered.GetResponse())["same"], "No firmware targets provided for node type compute_gb300_nvidia")
	require.Equal(t, before+1, asked.Load())
	count, err := h.conn.CountRecords(t.Context())
	require.NoError(t, err)
	require.Zero(t, count, "a comparison starts no job")

	require.Equal(t, "No devices specified in request", compare(nil).GetResponse().GetMessage())
	_, err = h.rm.CompareFirmwareObject(t.Context(), &rackmanager.CompareFirmwareObjectRequest{ConfigJson: "{", Nodes: set(compute("r", "n"))})
	requireCode(t, err, codes.InvalidArgument, "invalid config_json")
}

// Answers that a client could not read are cut, and say so.
func TestLargePlansAndObjectsAreCut(t *testing.T) {
	t.Parallel()
	h := newHarness(t, func(o *Options) { o.MaxAnswerBytes = answerReserve + 1500 })
	fw := h.firmwareService()
	check := func(nodes ...*rackmanager.NodeInfo) (*rackbusv1.FirmwarePlan, string) {
		var trailer metadata.MD
		checked, err := fw.CheckFirmwarePlan(t.Context(), &rackbusv1.CheckFirmwarePlanRequest{
			ConfigJson: mixed(t, "P"), HardwareType: "gb200", FirmwareType: "prod", RackId: "r1", Nodes: set(nodes...)}, grpc.Trailer(&trailer))
		require.NoError(t, err)
		return checked.GetPlan(), strings.Join(trailer.Get(metaReason), "")
	}
	plan, reason := check(compute("r1", "a"))
	require.Empty(t, reason)
	require.NotEmpty(t, plan.GetNodes()[0].GetTargets())
	var some, many []*rackmanager.NodeInfo
	for i := range 60 {
		many = append(many, compute("r1", fmt.Sprintf("node-%02d", i)))
	}
	some = many[:8]
	plan, reason = check(some...)
	require.Contains(t, reason, "targets of the nodes")
	require.Len(t, plan.GetNodes(), 8)
	require.Empty(t, plan.GetNodes()[0].GetTargets())
	plan, reason = check(many...)
	require.Contains(t, reason, "nodes and files")
	require.Empty(t, plan.GetNodes())
	require.NotEmpty(t, plan.GetSnapshotId())

	packs := make([]any, 40)
	for i := range packs {
		packs[i] = pack("HMC", "h", fmt.Sprintf("https://files.invalid/package-%02d.fwpkg", i))
	}
	h.add(manifestOf(t, "O", boardOf("Compute Node", packs...)), "gb200", false)
	var trailer metadata.MD
	status, err := fw.GetFirmwareObjectStatus(t.Context(), &rackbusv1.GetFirmwareObjectStatusRequest{ObjectId: "O_1.0"}, grpc.Trailer(&trailer))
	require.NoError(t, err)
	require.Contains(t, strings.Join(trailer.Get(metaReason), ""), "the last files are left out")
	require.NotEmpty(t, status.GetArtifacts())
	require.Less(t, len(status.GetArtifacts()), 40)
}
