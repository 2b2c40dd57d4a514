// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/credentials"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/switchtls"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
	"github.com/rackbus/rackbus/proto/rackmanagerv2"
)

func (h *harness) v2() rackmanagerv2.RackManagerV2Client {
	return rackmanagerv2.NewRackManagerV2Client(h.cc)
}

func wanted(extras ...*rackmanager.ScaleUpFabricStaticConfig) *rackmanagerv2.ScaleUpFabricConfig {
	return &rackmanagerv2.ScaleUpFabricConfig{TopologyType: "topo", ExtraStaticConfigs: extras}
}

func extra(file, key, value string) *rackmanager.ScaleUpFabricStaticConfig {
	return &rackmanager.ScaleUpFabricStaticConfig{ConfigFileName: file, Key: key, Value: value}
}

// trays tells of each switch where it sits, of others that nobody knows.
func trays(index map[string]uint32) map[string]agent.QueryHandler {
	return map[string]agent.QueryHandler{opDeviceInfo: func(_ context.Context, q *agent.Query) *rackbusv1.NodeReply {
		info := &rackbusv1.DeviceInfo{}
		if at, ok := index[q.Target().GetNodeId()]; ok {
			info.TrayIndex = &at
		}
		return &rackbusv1.NodeReply{V: 1, DeviceInfo: info}
	}}
}

func TestConfigureFabricV2(t *testing.T) {
	t.Parallel()
	h := newHarness(t, insecureSwitches)
	h.switchesIdle(trays(map[string]uint32{"sw-1": 4, "sw-2": 3, "sw-3": 3}))
	described := switchNode("r1", 2)
	described.Type = nil
	described.NodeDescriptor = &rackmanager.NodeDescriptor{Attributes: map[string]string{
		"role": "switch", "vendor": "nvidia", "product_family": "gb200", "fm_config: b ": " 2 ", "fm_config:a": "1"}}
	req := &rackmanagerv2.ConfigureScaleUpFabricManagerRequest{
		Nodes: set(switchNode("r1", 1), switchNode("r1", 3), described), Domain: proto.String(" lab "), Config: wanted(extra(" fm_config ", " k ", " v ")),
	}
	ctx := with(t.Context(), metaIdempotencyKey, "k", metaJobName, "tuesday")
	resp, err := h.v2().ConfigureScaleUpFabricManager(ctx, req)
	require.NoError(t, err)
	id := parseID(t, resp.GetJobId())
	rec, _, err := h.conn.Record(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, job.KindCoordinator, rec.Kind)
	require.Equal(t, job.TypeConfigureScaleUpFabricManager2, rec.Type)
	require.Equal(t, "sw-2", rec.NodeID, "lowest in the rack, then by name")
	require.Equal(t, []string{"sw-1", "sw-3"}, rec.Reserved)
	require.Equal(t, "tuesday", rec.Name)
	for _, name := range []string{"sw-1", "sw-2", "sw-3"} {
		require.False(t, h.free("r1", name), "every switch that is changed is kept from others")
	}
	cmd, _, err := h.conn.Command(t.Context(), node.FamilySwitch, node.Ref{RackID: "r1", NodeID: "sw-2"})
	require.NoError(t, err)
	op := cmd.GetFabricReconcile()
	require.Equal(t, "sw-2", op.GetPrimaryNodeId())
	require.Equal(t, "lab", op.GetDomain())
	require.Equal(t, "topo", op.GetTopology())
	require.True(t, proto.Equal(&rackbusv1.FabricEntry{File: "fm_config", Key: "k", Value: "v"}, op.GetExtras()[0]))
	require.Len(t, op.GetSwitches(), 3)
	require.Equal(t, map[string]string{"a": "1", "b": "2"}, op.GetSwitches()[2].GetFmConfig())
	require.Equal(t, "switch_gb200_nvidia", op.GetSwitches()[2].GetTarget().GetNodeType())
	for _, s := range op.GetSwitches() {
		login, err := credentials.Open(h.openers[node.FamilySwitch], s.GetTarget(), node.EndpointHost)
		require.NoError(t, err)
		require.Equal(t, plantedPassword, login.Password.Reveal())
	}
	again, err := h.v2().ConfigureScaleUpFabricManager(ctx, req)
	require.NoError(t, err)
	require.Equal(t, resp.GetJobId(), again.GetJobId())
	h.requireNowhere(plantedPassword)

	// Any of its switches is busy now: for another fabric, and for jobs of single ones.
	_, err = h.v2().ConfigureScaleUpFabricManager(t.Context(), &rackmanagerv2.ConfigureScaleUpFabricManagerRequest{
		Nodes: set(switchNode("r1", 9), switchNode("r1", 3)), PrimarySwitchNodeId: proto.String("sw-9"), Config: wanted()})
	requireCode(t, err, codes.FailedPrecondition, resp.GetJobId())
	require.True(t, h.free("r1", "sw-9"), "all or nothing")
	reset, err := h.rm.BatchResetSwitchSdnFactoryDefault(t.Context(), &rackmanager.BatchResetSwitchSdnFactoryDefaultRequest{Nodes: set(switchNode("r1", 1))})
	require.NoError(t, err)
	require.Contains(t, messages(reset.GetResponse())["sw-1"], resp.GetJobId())
	status, err := h.rm.GetJobStatus(t.Context(), &rackmanager.GetJobStatusRequest{JobId: resp.GetJobId()})
	require.NoError(t, err)
	require.Len(t, status.GetJobStates(), 1)
}

// switchesIdle runs an agent that answers and takes no jobs.
func (h *harness) switchesIdle(answers map[string]agent.QueryHandler) {
	hs := make(handlers)
	for op, answer := range answers {
		hs[op] = func(ctx context.Context, req *rackbusv1.NodeRequest) *rackbusv1.NodeReply {
			return answer(ctx, &agent.Query{Request: req})
		}
	}
	h.agents(node.FamilySwitch, hs)
}

// An agent gets the whole fabric, and can open the login of each of its switches.
func TestFabricV2ReachesTheAgent(t *testing.T) {
	t.Parallel()
	client := t.TempDir()
	material(t, client, "lab")
	h := newHarness(t, withTLS(switchtls.Settings{ClientRoot: client, DefaultDomain: "lab"}))
	agents := h.switches(nil)
	vr := rackmanager.NodeType_SWITCH_VRNVL72_NVIDIA
	a, b := switchNode("r1", 1), switchNode("r1", 2)
	a.Type, b.Type = &vr, &vr
	a.AdditionalHostEndpoints = []*rackmanager.Endpoint{endpoint("10.0.2.1"), endpoint("ignored")}
	resp, err := h.v2().ConfigureScaleUpFabricManager(t.Context(), &rackmanagerv2.ConfigureScaleUpFabricManagerRequest{
		Nodes: set(a, b), PrimarySwitchNodeId: proto.String(" sw-1 "), Config: wanted()})
	require.NoError(t, err)
	ran := agents.next(1)["sw-1"]
	require.Equal(t, resp.GetJobId(), ran.cmd.GetJobId())
	op := ran.cmd.GetFabricReconcile()
	require.Equal(t, "10.0.2.1", op.GetSwitches()[0].GetSecondaryAddress())
	require.Empty(t, op.GetSwitches()[1].GetSecondaryAddress())
	require.Empty(t, op.GetDomain(), "the agent has the same default")
}

func TestConfigureFabricV2IsRefused(t *testing.T) {
	t.Parallel()
	h := newHarness(t, insecureSwitches)
	h.switchesIdle(trays(map[string]uint32{"sw-1": 1}))
	one, two := set(switchNode("r1", 1)), set(switchNode("r1", 1), switchNode("r1", 2))
	sameAddress := switchNode("r1", 2)
	sameAddress.HostEndpoint.Interface.IpAddress = "[::ffff:10.0.1.1]"
	otherRack := switchNode("r2", 2)
	vr := rackmanager.NodeType_SWITCH_VRNVL72_NVIDIA
	secondary := switchNode("r1", 1)
	secondary.Type, secondary.AdditionalHostEndpoints = &vr, []*rackmanager.Endpoint{endpoint("switch.example")}
	doubled := switchNode("r1", 1)
	doubled.NodeDescriptor = &rackmanager.NodeDescriptor{Attributes: map[string]string{"fm_config:k": "1"}}
	topology := switchNode("r1", 1)
	topology.NodeDescriptor = &rackmanager.NodeDescriptor{Attributes: map[string]string{"fm_config:MNNVL_TOPOLOGY": "1"}}
	type request = rackmanagerv2.ConfigureScaleUpFabricManagerRequest
	for name, c := range map[string]struct {
		req  *request
		code codes.Code
		text string
	}{
		"no nodes":          {&request{}, codes.InvalidArgument, textNoNodes},
		"no config":         {&request{Nodes: one}, codes.InvalidArgument, "config is required"},
		"no topology":       {&request{Nodes: one, Config: &rackmanagerv2.ScaleUpFabricConfig{TopologyType: " "}}, codes.InvalidArgument, "config.topology_type is required"},
		"unknown topology":  {&request{Nodes: one, Config: &rackmanagerv2.ScaleUpFabricConfig{TopologyType: "unknown"}}, codes.InvalidArgument, "no topology that can be wanted"},
		"no file":           {&request{Nodes: one, Config: wanted(extra(" ", "k", ""))}, codes.InvalidArgument, "has no config_file_name"},
		"no key":            {&request{Nodes: one, Config: wanted(extra("f", " ", ""))}, codes.InvalidArgument, "has no key"},
		"topology as extra": {&request{Nodes: one, Config: wanted(extra("fm_config", " MNNVL_TOPOLOGY", "x"))}, codes.InvalidArgument, "cannot be an extra"},
		"extra twice":       {&request{Nodes: one, Config: wanted(extra("f", "k", "1"), extra(" f", "k", "2"))}, codes.InvalidArgument, "k in f is given more than once"},
		"node twice":        {&request{Nodes: set(switchNode("r1", 1), switchNode("r2", 1)), Config: wanted()}, codes.InvalidArgument, "node_id sw-1 is given more than once"},
		"no switch":         {&request{Nodes: set(compute("r1", "tray")), Config: wanted()}, codes.InvalidArgument, "is not a switch"},
		"same address":      {&request{Nodes: set(switchNode("r1", 1), sameAddress), Config: wanted()}, codes.InvalidArgument, "have the same host address 10.0.1.1"},
		"two racks":         {&request{Nodes: set(switchNode("r1", 1), otherRack), Config: wanted()}, codes.InvalidArgument, "must be of one rack"},
		"secondary":         {&request{Nodes: set(secondary), Config: wanted()}, codes.InvalidArgument, "no valid IP address"},
		"primary":           {&request{Nodes: two, PrimarySwitchNodeId: proto.String("sw-9"), Config: wanted()}, codes.InvalidArgument, "sw-9 is none of the nodes"},
		"descriptor":        {&request{Nodes: set(doubled), Config: wanted(extra("fm_config", "k", "2"))}, codes.InvalidArgument, "k in fm_config is given more than once"},
		"its topology":      {&request{Nodes: set(topology), Config: wanted()}, codes.InvalidArgument, "cannot be an extra"},
		"tray":              {&request{Nodes: two, Config: wanted()}, codes.FailedPrecondition, "the tray index of switch sw-2 could not be read"},
		"node type":         {&request{Nodes: set(typed("r1", "x", 99))}, codes.InvalidArgument, "unknown node type value 99"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := h.v2().ConfigureScaleUpFabricManager(t.Context(), c.req)
			requireCode(t, err, c.code, c.text)
		})
	}
	_, err := h.v2().ConfigureScaleUpFabricManager(with(t.Context(), metaOnBusy, "queue"), &request{Nodes: one, Config: wanted()})
	requireCode(t, err, codes.InvalidArgument, "cannot wait for busy switches")
	count, err := h.conn.CountRecords(t.Context())
	require.NoError(t, err)
	require.Zero(t, count)
}

// Without our identity towards its switches a fabric is not begun.
func TestConfigureFabricV2NeedsMaterial(t *testing.T) {
	t.Parallel()
	h := newHarness(t, func(o *Options) { o.Admission.MaxTrackedJobs = 2 }, withTLS(switchtls.Settings{ClientRoot: t.TempDir(), DefaultDomain: "lab"}))
	req := &rackmanagerv2.ConfigureScaleUpFabricManagerRequest{Nodes: set(switchNode("r1", 1)), Config: wanted()}
	_, err := h.v2().ConfigureScaleUpFabricManager(t.Context(), req)
	requireCode(t, err, codes.InvalidArgument, "client_tls_root")
}

func TestConfigureFabricV2WithoutRoom(t *testing.T) {
	t.Parallel()
	h := newHarness(t, insecureSwitches, func(o *Options) { o.Admission.MaxTrackedJobs = 2 })
	h.admitOn(compute("r9", "other"))
	_, err := h.v2().ConfigureScaleUpFabricManager(t.Context(), &rackmanagerv2.ConfigureScaleUpFabricManagerRequest{Nodes: set(switchNode("r1", 1)), Config: wanted()})
	requireCode(t, err, codes.Internal, "no room for another job")
}
