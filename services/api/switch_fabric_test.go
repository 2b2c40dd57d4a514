// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/rackbus/rackbus/pkg/agent"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

func TestConfigureScaleUpFabricManager(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	agents := h.switches(map[string]agent.QueryHandler{opFabricConfigure: changing(t, &rackbusv1.NodeReply{V: 1, SwitchResult: &rackbusv1.NodeReply_FabricManager{
		FabricManager: &rackbusv1.FabricManagerReply{Configured: true, Message: "configured", TopologyUsed: "topo", StateEnabled: true, GrpcEnabled: true}}})})
	call := func(req *rackmanager.ConfigureScaleUpFabricManagerRequest) *rackmanager.ConfigureScaleUpFabricManagerResponse {
		resp, err := h.rm.ConfigureScaleUpFabricManager(t.Context(), req)
		require.NoError(t, err)
		return resp
	}
	for text, req := range map[string]*rackmanager.ConfigureScaleUpFabricManagerRequest{
		"topology_type is required": {TopologyType: " "},
		textNoNode:                  {TopologyType: "topo"},
		"node tray is not a switch (type=compute_gb200_nvidia)": {TopologyType: "topo", Node: compute("r1", "tray")},
	} {
		resp := call(req)
		requireFailure(t, resp.GetStatus())
		require.Equal(t, text, resp.GetMessage())
	}
	_, err := h.rm.ConfigureScaleUpFabricManager(t.Context(), &rackmanager.ConfigureScaleUpFabricManagerRequest{Node: typed("r1", "x", 99)})
	requireCode(t, err, codes.InvalidArgument, "unknown node type value 99")
	resp := call(&rackmanager.ConfigureScaleUpFabricManagerRequest{TopologyType: " topo ", Node: switchNode("r1", 1), Domain: proto.String(" lab ")})
	requireSuccess(t, resp.GetStatus(), resp.GetMessage())
	require.True(t, proto.Equal(&rackmanager.ConfigureScaleUpFabricManagerResponse{
		Status: statusOf(true), Message: "configured", TopologyUsed: "topo", ScaleUpFabricStateEnabled: true, GrpcEnabled: true}, resp))
	asked := agents.requests(opFabricConfigure)
	require.Len(t, asked, 1)
	require.Equal(t, "topo", asked[0].GetFabricManager().GetTopology())
	require.Equal(t, "lab", asked[0].GetDomain())
	require.True(t, h.free("r1", "sw-1"))
}

// A configuration that failed says how far it got.
func TestConfigureScaleUpFabricManagerPartly(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.switches(map[string]agent.QueryHandler{opFabricConfigure: changing(t, &rackbusv1.NodeReply{V: 1, SwitchResult: &rackbusv1.NodeReply_FabricManager{
		FabricManager: &rackbusv1.FabricManagerReply{Message: "the controller is not ready", StateEnabled: true}}})})
	resp, err := h.rm.ConfigureScaleUpFabricManager(t.Context(), &rackmanager.ConfigureScaleUpFabricManagerRequest{TopologyType: "topo", Node: switchNode("r1", 1)})
	require.NoError(t, err)
	requireFailure(t, resp.GetStatus())
	require.True(t, resp.GetScaleUpFabricStateEnabled())
	require.False(t, resp.GetGrpcEnabled())
	require.Equal(t, "the controller is not ready", resp.GetMessage())
}

// A long call answers before its caller gives up, in its body, and the switch stays
// locked until nobody can be at work on it any more. The agent is told to be done
// earlier, so that what it has to say still gets through.
func TestLongChangeAnswersInTime(t *testing.T) {
	t.Parallel()
	h := newHarness(t, func(o *Options) { o.Timing.AnswerMargin = time.Second })
	release, told := make(chan struct{}), make(chan time.Time, 1)
	h.switches(map[string]agent.QueryHandler{opFabricConfigure: func(_ context.Context, q *agent.Query) *rackbusv1.NodeReply {
		told <- q.Request.GetDeadline().AsTime()
		<-release
		return agent.Refuse("timeout", "late", "")
	}})
	defer close(release)
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
	defer cancel()
	end, _ := ctx.Deadline()
	resp, err := h.rm.ConfigureScaleUpFabricManager(ctx, &rackmanager.ConfigureScaleUpFabricManagerRequest{TopologyType: "topo", Node: switchNode("r1", 1)})
	require.NoError(t, err)
	requireFailure(t, resp.GetStatus())
	require.Contains(t, resp.GetMessage(), "no answer within")
	require.Contains(t, resp.GetMessage(), "it is not known how far the switch got with the scale-up fabric configuration")
	require.True(t, time.Now().Before(end))
	require.True(t, (<-told).Before(end.Add(-800*time.Millisecond)), "two margins, an eighth of the time each, before the caller")
	require.False(t, h.free("r1", "sw-1"))
	other, err := h.rm.BatchSetScaleUpFabricState(t.Context(), &rackmanager.BatchSetScaleUpFabricStateRequest{Nodes: set(switchNode("r1", 1))})
	require.NoError(t, err)
	require.Contains(t, messages(other.GetResponse())["sw-1"], "scale-up fabric configuration")
}

func TestBatchSetScaleUpFabricState(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	agents := h.switches(map[string]agent.QueryHandler{opFabricStateSet: func(_ context.Context, q *agent.Query) *rackbusv1.NodeReply {
		if err := q.Guard().Check(); err != nil || q.Target().GetNodeId() == "sw-2" {
			return agent.Refuse("internal", "the switch did not converge", "")
		}
		return &rackbusv1.NodeReply{V: 1}
	}})
	bad, texts := badSwitches()
	resp, err := h.rm.BatchSetScaleUpFabricState(t.Context(), &rackmanager.BatchSetScaleUpFabricStateRequest{
		Nodes: set(append(bad, switchNode("r1", 1), switchNode("r1", 2), switchNode("r1", 1))...), Enabled: true})
	require.NoError(t, err)
	r := resp.GetResponse()
	requireFailure(t, r.GetStatus())
	requireStats(t, 11, 9, r)
	require.Empty(t, r.GetJobId())
	require.Equal(t, "Scale-up fabric state set with 2 successes and 9 failures out of 11 nodes", r.GetMessage())
	texts["sw-1"], texts["sw-2"] = "", "the switch did not converge"
	require.Equal(t, texts, messages(r))
	asked := agents.requests(opFabricStateSet)
	require.Len(t, asked, 3, "a switch that is named twice is set twice")
	for _, q := range asked {
		require.True(t, q.GetFabricSwitch().GetEnabled())
		require.Empty(t, q.GetDomain())
	}
	require.True(t, h.free("r1", "sw-1") && h.free("r1", "sw-2"))
	off, err := h.rm.BatchSetScaleUpFabricState(t.Context(), &rackmanager.BatchSetScaleUpFabricStateRequest{Nodes: set(switchNode("r1", 1))})
	require.NoError(t, err)
	requireSuccess(t, off.GetResponse().GetStatus(), off.GetResponse().GetMessage())
	require.False(t, agents.requests(opFabricStateSet)[3].GetFabricSwitch().GetEnabled())
	none, err := h.rm.BatchSetScaleUpFabricState(t.Context(), &rackmanager.BatchSetScaleUpFabricStateRequest{})
	require.NoError(t, err)
	require.Equal(t, textNoNodes, none.GetResponse().GetMessage())
}

func TestScaleUpFabricReads(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.switches(map[string]agent.QueryHandler{
		opFabricStateGet: answering(`{"state":"enabled","cluster_healthy":true}`),
		opFabricService: func(_ context.Context, q *agent.Query) *rackbusv1.NodeReply {
			if q.Target().GetNodeId() == "sw-2" {
				return agent.Refuse("unreachable", "no route", "")
			}
			return &rackbusv1.NodeReply{V: 1, ResultJson: `{"installed":true}`}
		},
	})
	state, err := h.rm.GetScaleUpFabricState(t.Context(), &rackmanager.GetScaleUpFabricStateRequest{Node: switchNode("r1", 1)})
	require.NoError(t, err)
	requireSuccess(t, state.GetStatus(), state.GetErrorMessage())
	require.JSONEq(t, `{"state":"enabled","cluster_healthy":true}`, state.GetStateJson())
	for text, n := range map[string]*rackmanager.NodeInfo{textNoNode: nil, "node tray is not a switch (type=compute_gb200_nvidia)": compute("r1", "tray")} {
		state, err := h.rm.GetScaleUpFabricState(t.Context(), &rackmanager.GetScaleUpFabricStateRequest{Node: n})
		require.NoError(t, err)
		requireFailure(t, state.GetStatus())
		require.Equal(t, text, state.GetErrorMessage())
		set, err := h.rm.SetScaleUpFabricTelemetryInterfaceState(t.Context(), &rackmanager.SetScaleUpFabricTelemetryInterfaceStateRequest{Node: n})
		require.NoError(t, err)
		requireFailure(t, set.GetStatus())
		require.Equal(t, text, set.GetErrorMessage())
	}
	_, err = h.rm.GetScaleUpFabricState(t.Context(), &rackmanager.GetScaleUpFabricStateRequest{Node: typed("r1", "x", 99)})
	requireCode(t, err, codes.InvalidArgument, "unknown node type value 99")

	services, err := h.rm.BatchGetScaleUpFabricServiceStatus(t.Context(), &rackmanager.BatchGetScaleUpFabricServiceStatusRequest{
		Nodes: set(switchNode("r1", 1), switchNode("r1", 2), compute("r1", "tray"))})
	require.NoError(t, err)
	requireSuccess(t, services.GetStatus(), "")
	require.EqualValues(t, 2, services.GetStats().GetFailedNodes())
	require.Len(t, services.GetServiceStatuses(), 3)
	require.JSONEq(t, `{"installed":true}`, services.GetServiceStatuses()["sw-1"].GetStatusJson())
	require.Empty(t, services.GetServiceStatuses()["sw-1"].GetErrorMessage())
	require.Equal(t, "no route", services.GetServiceStatuses()["sw-2"].GetErrorMessage())
	require.Contains(t, services.GetServiceStatuses()["tray"].GetErrorMessage(), "is not a switch")
	none, err := h.rm.BatchGetScaleUpFabricServiceStatus(t.Context(), &rackmanager.BatchGetScaleUpFabricServiceStatusRequest{})
	require.NoError(t, err)
	requireFailure(t, none.GetStatus())
	require.Empty(t, none.GetServiceStatuses())
}

func TestSetScaleUpFabricTelemetryInterfaceState(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	agents := h.switches(map[string]agent.QueryHandler{opTelemetrySet: func(_ context.Context, q *agent.Query) *rackbusv1.NodeReply {
		if err := q.Guard().Check(); err != nil || q.Target().GetNodeId() == "sw-2" {
			return agent.Refuse("unavailable", "not converged", "")
		}
		return &rackbusv1.NodeReply{V: 1}
	}})
	for enable, want := range map[bool]string{true: "enabled", false: "disabled"} {
		resp, err := h.rm.SetScaleUpFabricTelemetryInterfaceState(t.Context(), &rackmanager.SetScaleUpFabricTelemetryInterfaceStateRequest{
			Node: switchNode("r1", 1), Enable: enable})
		require.NoError(t, err)
		requireSuccess(t, resp.GetStatus(), resp.GetErrorMessage())
		require.JSONEq(t, fmt.Sprintf(`{"status":"success","state":%q}`, want), resp.GetResultJson())
		asked := agents.requests(opTelemetrySet)
		require.Equal(t, enable, asked[len(asked)-1].GetFabricSwitch().GetEnabled())
	}
	resp, err := h.rm.SetScaleUpFabricTelemetryInterfaceState(t.Context(), &rackmanager.SetScaleUpFabricTelemetryInterfaceStateRequest{
		Node: switchNode("r1", 2), Enable: true})
	require.NoError(t, err)
	requireFailure(t, resp.GetStatus())
	require.Equal(t, "not converged", resp.GetErrorMessage())
	require.Empty(t, resp.GetResultJson())
	require.True(t, h.free("r1", "sw-2"))
}

func TestFabricStatusOfParts(t *testing.T) {
	t.Parallel()
	entries := []*rackbusv1.FabricEntry{{File: "sm_config", Key: "b", Value: "2"}, {File: "fm_config", Key: "z", Value: "1"}, {File: "fm_config", Key: "a", Value: "0"}}
	primary := &rackbusv1.FabricSwitchStatus{Enabled: true, ManagerStatus: "ok", Topology: "topo", Entries: entries}
	off := &rackbusv1.FabricSwitchStatus{ManagerStatus: "stopped"}
	lost := &rackbusv1.FabricSwitchStatus{Error: "no route"}
	for name, c := range map[string]struct {
		parts    []*rackbusv1.FabricSwitchStatus
		ok       bool
		text     string
		topology string
	}{
		"one":           {[]*rackbusv1.FabricSwitchStatus{off, primary}, true, "", "topo"},
		"none":          {[]*rackbusv1.FabricSwitchStatus{off, off}, true, "", ""},
		"one lost":      {[]*rackbusv1.FabricSwitchStatus{lost, primary}, true, "", "topo"},
		"all lost":      {[]*rackbusv1.FabricSwitchStatus{lost, lost}, false, "none of the switches", ""},
		"two":           {[]*rackbusv1.FabricSwitchStatus{primary, primary}, false, "more than one switch has the scale-up fabric enabled: sw-1, sw-2", ""},
		"no topology":   {[]*rackbusv1.FabricSwitchStatus{{Enabled: true}, off}, false, "has no topology", ""},
		"config unread": {[]*rackbusv1.FabricSwitchStatus{off, {Enabled: true, ConfigError: "Hello failed"}}, false, "the fabric configuration of switch sw-2 could not be read: Hello failed", ""},
	} {
		t.Run(name, func(t *testing.T) {
			nodes, err := selectNodes(set(switchNode("r1", 1), switchNode("r1", 2)))
			require.NoError(t, err)
			resp := fabricStatus(nodes, c.parts)
			require.Equal(t, statusOf(c.ok), resp.GetStatus())
			require.Contains(t, resp.GetErrorMessage(), c.text)
			require.Equal(t, c.text == "", resp.GetErrorMessage() == "")
			require.Equal(t, c.topology, resp.GetFabricStatus().GetTopologyType())
			require.Len(t, resp.GetFabricStatus().GetSwitches(), 2)
			for i, s := range resp.GetFabricStatus().GetSwitches() {
				require.Equal(t, c.parts[i].GetEnabled(), s.GetEnabled())
				require.Equal(t, c.parts[i].GetManagerStatus(), s.GetFabricManagerStatus())
				require.Equal(t, c.parts[i].GetError(), s.GetErrorMessage())
			}
			if c.topology == "" {
				require.Empty(t, resp.GetFabricStatus().GetExtraStaticConfigs())
				return
			}
			var order []string
			for _, e := range resp.GetFabricStatus().GetExtraStaticConfigs() {
				order = append(order, e.GetConfigFileName()+" "+e.GetKey()+" "+e.GetValue())
			}
			require.Equal(t, []string{"fm_config a 0", "fm_config z 1", "sm_config b 2"}, order)
		})
	}
}

// All switches are asked at once: the status takes as long as the slowest.
func TestGetScaleUpFabricStatusAsksAllAtOnce(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	const n = 9
	began, release := make(chan struct{}, n), make(chan struct{})
	agents := h.switches(map[string]agent.QueryHandler{opFabricStatus: func(_ context.Context, q *agent.Query) *rackbusv1.NodeReply {
		began <- struct{}{}
		<-release
		return &rackbusv1.NodeReply{V: 1, SwitchResult: &rackbusv1.NodeReply_FabricStatus{FabricStatus: &rackbusv1.FabricSwitchStatus{
			Enabled: q.Target().GetNodeId() == "sw-5", ManagerStatus: "ok", Topology: "topo"}}}
	}})
	req := &rackmanager.GetScaleUpFabricStatusRequest{Nodes: set(), Domain: proto.String(" lab ")}
	for i := 1; i <= n; i++ {
		req.Nodes.Nodes = append(req.Nodes.Nodes, switchNode("r1", i))
	}
	go func() {
		for range n {
			<-began
		}
		close(release)
	}()
	resp, err := h.rm.GetScaleUpFabricStatus(t.Context(), req)
	require.NoError(t, err)
	requireSuccess(t, resp.GetStatus(), resp.GetErrorMessage())
	require.Equal(t, "topo", resp.GetFabricStatus().GetTopologyType())
	require.True(t, resp.GetFabricStatus().GetSwitches()[4].GetEnabled())
	require.Equal(t, "lab", agents.requests(opFabricStatus)[0].GetDomain())
	require.True(t, h.free("r1", "sw-1"), "a read takes no lock")

	none, err := h.rm.GetScaleUpFabricStatus(t.Context(), &rackmanager.GetScaleUpFabricStatusRequest{})
	require.NoError(t, err)
	requireFailure(t, none.GetStatus())
	require.Nil(t, none.GetFabricStatus())
	bad, err := h.rm.GetScaleUpFabricStatus(t.Context(), &rackmanager.GetScaleUpFabricStatusRequest{Nodes: set(compute("r1", "tray"))})
	require.NoError(t, err)
	requireFailure(t, bad.GetStatus())
	require.Contains(t, bad.GetFabricStatus().GetSwitches()[0].GetErrorMessage(), "is not a switch")
}
