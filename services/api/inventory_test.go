// SPDX-License-Identifier: Apache-2.0

package api

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/credentials"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

func TestCreateNodesRefusesNodeByNode(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register(compute("r1", "old"))
	edit := func(id string, change func(*rackmanager.NodeInfo)) *rackmanager.NodeInfo {
		n := compute("r1", id)
		change(n)
		return n
	}
	for name, c := range map[string]struct {
		node *rackmanager.NodeInfo
		text string
	}{
		"no bmc endpoint": {edit("a", func(n *rackmanager.NodeInfo) { n.BmcEndpoint = nil }), "missing BMC endpoint"},
		"no address":      {edit("a", func(n *rackmanager.NodeInfo) { n.BmcEndpoint.Interface.IpAddress = "" }), "missing BMC endpoint ip_address"},
		"no mac":          {edit("a", func(n *rackmanager.NodeInfo) { n.BmcEndpoint.Interface.MacAddress = "" }), "missing BMC endpoint mac_address"},
		"odd address":     {edit("a", func(n *rackmanager.NodeInfo) { n.BmcEndpoint.Interface.IpAddress = "http://x/y" }), "malformed BMC endpoint"},
		"port":            {edit("a", func(n *rackmanager.NodeInfo) { n.BmcEndpoint.Port = 70000 }), "port 70000 is out of range (must be 1-65535)"},
		"host port":       {edit("a", func(n *rackmanager.NodeInfo) { n.HostEndpoint = endpoint("10.0.0.2"); n.HostEndpoint.Port = 65536 }), "port 65536 is out of range"},
		"no credentials":  {edit("a", func(n *rackmanager.NodeInfo) { n.BmcEndpoint.Credentials = nil }), "create_compute: missing credentials for a (provide username/password)"},
		"blank password": {edit("a", func(n *rackmanager.NodeInfo) {
			n.BmcEndpoint.Credentials.GetUserPass().Password = " "
		}), "missing credentials for a"},
		"session token": {edit("a", func(n *rackmanager.NodeInfo) {
			n.BmcEndpoint.Credentials = &rackmanager.Credentials{Auth: &rackmanager.Credentials_SessionToken{SessionToken: "t"}}
		}), "BMC endpoint credentials use unsupported session_token auth; use user_pass credentials"},
		"no rack":     {edit("a", func(n *rackmanager.NodeInfo) { n.RackId = "" }), "rack ID cannot be empty"},
		"no node":     {edit("", func(*rackmanager.NodeInfo) {}), "missing node ID"},
		"long id":     {edit(strings.Repeat("x", 200), func(*rackmanager.NodeInfo) {}), "at most 128"},
		"exists":      {compute("r1", "old"), "node old already exists in rack r1"},
		"other racks": {typed("r1", "a", rackmanager.NodeType_COMPUTE_GB300_NVIDIA), "rack r1 already exists as type NVL_GB200 but was requested as NVL_GB300"},
		"profile": {edit("a", func(n *rackmanager.NodeInfo) {
			n.NodeDescriptor = &rackmanager.NodeDescriptor{Attributes: map[string]string{"inventory_profile": "other"}}
		}), `unknown inventory_profile "other"`},
		"blank profile": {edit("a", func(n *rackmanager.NodeInfo) {
			n.NodeDescriptor = &rackmanager.NodeDescriptor{Attributes: map[string]string{"inventory_profile": " "}}
		}), "inventory_profile must not be empty"},
	} {
		t.Run(name, func(t *testing.T) {
			// A good node beside the bad one is taken all the same.
			good := compute("r1", "good-"+strings.ReplaceAll(name, " ", "-"))
			resp, err := h.rm.CreateNodes(t.Context(), &rackmanager.CreateNodesRequest{Nodes: set(c.node, good)})
			require.NoError(t, err)
			requireFailure(t, resp.GetResponse().GetStatus())
			lines := strings.Split(resp.GetResponse().GetMessage(), "\n")
			require.Len(t, lines, 2)
			require.True(t, strings.HasPrefix(lines[0], c.node.GetNodeId()+": "), lines[0])
			require.Contains(t, lines[0], c.text)
			require.Equal(t, "1 added, 1 failed", lines[1])
			require.EqualValues(t, 1, resp.GetStats().GetSuccessfulNodes())
		})
	}
}

func TestCreateNodesRefusesWholeRequests(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	resp, err := h.rm.CreateNodes(t.Context(), &rackmanager.CreateNodesRequest{})
	require.NoError(t, err)
	requireFailure(t, resp.GetResponse().GetStatus())
	require.Equal(t, "no nodes to create", resp.GetResponse().GetMessage())
	require.NotNil(t, resp.GetStats())

	bad := compute("r1", "a")
	bad.Type = nil
	for name, c := range map[string]struct {
		change func(n *rackmanager.NodeInfo)
		text   string
	}{
		"number":        {func(n *rackmanager.NodeInfo) { v := rackmanager.NodeType(77); n.Type = &v }, "unknown node type value 77"},
		"no descriptor": {func(*rackmanager.NodeInfo) {}, "node descriptor is required when node type is unspecified"},
		"attribute": {func(n *rackmanager.NodeInfo) {
			n.NodeDescriptor = &rackmanager.NodeDescriptor{Attributes: map[string]string{"colour": "red"}}
		}, "node descriptor attribute colour is not supported"},
		"no match": {func(n *rackmanager.NodeInfo) {
			n.NodeDescriptor = &rackmanager.NodeDescriptor{Attributes: map[string]string{
				"role": "compute", "vendor": "Acme", "product_family": "gb200"}}
		}, "unsupported node descriptor"},
	} {
		t.Run(name, func(t *testing.T) {
			n := proto.CloneOf(bad)
			c.change(n)
			_, err := h.rm.CreateNodes(t.Context(), &rackmanager.CreateNodesRequest{Nodes: set(compute("r1", "good"), n)})
			requireCode(t, err, codes.InvalidArgument, c.text)
		})
	}
	list, err := h.rm.ListNodeInventory(t.Context(), &rackmanager.ListNodeInventoryRequest{})
	require.NoError(t, err)
	require.Empty(t, list.GetNodes())
}

func TestInventoryNeverShowsCredentials(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	byDescriptor := compute("r1", "wiwynn")
	byDescriptor.Type = nil
	byDescriptor.NodeDescriptor = &rackmanager.NodeDescriptor{Attributes: map[string]string{
		"role": "Compute", "vendor": "Wi-Wynn", "product_family": "GB 200", "inventory_profile": "standard"}}
	sw := typed("r1", "switch/1", rackmanager.NodeType_SWITCH_GB200_NVIDIA)
	sw.HostEndpoint.Port = 22
	h.register(byDescriptor, sw, typed("r2", "shelf", rackmanager.NodeType_POWERSHELF_GB300_LITEON))

	list, err := h.rm.ListNodeInventory(t.Context(), &rackmanager.ListNodeInventoryRequest{})
	require.NoError(t, err)
	require.Len(t, list.GetNodes(), 3)
	require.NotContains(t, list.String(), plantedPassword)
	byID := make(map[string]*rackmanager.NodeInventoryInfo)
	for _, n := range list.GetNodes() {
		byID[n.GetNodeId()] = n
	}
	w := byID["wiwynn"]
	require.Equal(t, rackmanager.NodeType_NODE_TYPE_UNSPECIFIED, w.GetType())
	require.Equal(t, map[string]string{"role": "compute", "vendor": "wiwynn", "product_family": "gb200", "inventory_profile": "standard"},
		w.GetNodeDescriptor().GetAttributes())
	require.EqualValues(t, 443, w.GetPort())
	s := byID["switch/1"]
	require.Equal(t, "r1", s.GetRackId())
	require.Equal(t, []string{"10.0.1.1"}, s.GetHostIpAddresses())
	require.Equal(t, []string{"02:00:00:00:00:01"}, s.GetHostMacAddresses())

	stored, _, err := h.conn.Node(t.Context(), node.Ref{RackID: "r1", NodeID: "switch/1"})
	require.NoError(t, err)
	require.EqualValues(t, 443, stored.GetTarget().GetHost().GetPort(), "management goes to NVUE, not to SSH")
	raw, err := proto.Marshal(stored)
	require.NoError(t, err)
	require.NotContains(t, string(raw), plantedPassword)
	got, err := credentials.Open(h.openers[node.FamilySwitch], stored.GetTarget(), node.EndpointHost)
	require.NoError(t, err)
	require.Equal(t, plantedPassword, got.Password.Reveal())
	require.NotContains(t, h.log.String(), plantedPassword)

	racks, err := h.rm.ListRacks(t.Context(), &rackmanager.ListRacksRequest{})
	require.NoError(t, err)
	slices.Sort(racks.GetRackIds())
	require.Equal(t, []string{"r1", "r2"}, racks.GetRackIds())
}

func TestCreateNodesInBulk(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	var nodes []*rackmanager.NodeInfo
	for i := range 1200 {
		nodes = append(nodes, compute("big", fmt.Sprintf("n%d", i)))
	}
	nodes = append(nodes, compute("big", "n7"))
	resp, err := h.rm.CreateNodes(t.Context(), &rackmanager.CreateNodesRequest{Nodes: set(nodes...)})
	require.NoError(t, err)
	requireFailure(t, resp.GetResponse().GetStatus())
	require.Equal(t, "n7: node n7 already exists in rack big\n1200 added, 1 failed", resp.GetResponse().GetMessage())
	list, err := h.rm.ListNodeInventory(t.Context(), &rackmanager.ListNodeInventoryRequest{})
	require.NoError(t, err)
	require.Len(t, list.GetNodes(), 1200)
}

func TestUpdateNodeReplacesOnlyWhatIsGiven(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register(compute("r1", "a"))
	ref := node.Ref{RackID: "r1", NodeID: "a"}
	update := func(info *rackmanager.NodeUpdateInfo) *rackmanager.OperationResponse {
		t.Helper()
		resp, err := h.rm.UpdateNode(t.Context(), &rackmanager.UpdateNodeRequest{RackId: "r1", NodeId: "a", UpdateInfo: info})
		require.NoError(t, err)
		return resp.GetResponse()
	}
	stored := func() *rackbusv1.NodeTarget {
		n, _, err := h.conn.Node(t.Context(), ref)
		require.NoError(t, err)
		return n.GetTarget()
	}
	before := stored()
	name := "bmc.example"
	resp := update(&rackmanager.NodeUpdateInfo{BmcEndpoint: &rackmanager.Endpoint{
		Interface: &rackmanager.NetworkInterface{IpAddress: "10.9.9.9", HostName: &name}}})
	requireSuccess(t, resp.GetStatus(), resp.GetMessage())
	after := stored()
	require.Equal(t, "10.9.9.9", after.GetBmc().GetAddress())
	require.Equal(t, name, after.GetBmc().GetHostName())
	require.Equal(t, before.GetBmc().GetMac(), after.GetBmc().GetMac())
	require.True(t, proto.Equal(before.GetBmc().GetCredentials(), after.GetBmc().GetCredentials()), "sealed credentials stay")
	got, err := credentials.Open(h.openers[node.FamilyCompute], after, node.EndpointBMC)
	require.NoError(t, err)
	require.Equal(t, plantedPassword, got.Password.Reveal())

	fresh := endpoint("")
	fresh.Interface = nil
	fresh.Credentials.GetUserPass().Password = "n3w"
	resp = update(&rackmanager.NodeUpdateInfo{BmcEndpoint: fresh})
	requireSuccess(t, resp.GetStatus(), resp.GetMessage())
	got, err = credentials.Open(h.openers[node.FamilyCompute], stored(), node.EndpointBMC)
	require.NoError(t, err)
	require.Equal(t, "n3w", got.Password.Reveal())
	require.Equal(t, "10.9.9.9", stored().GetBmc().GetAddress())
	require.Equal(t, name, stored().GetBmc().GetHostName(), "unset keeps the name")

	for text, info := range map[string]*rackmanager.NodeUpdateInfo{
		"nothing to update":                {},
		"port 70000 is out of range":       {BmcEndpoint: &rackmanager.Endpoint{Port: 70000}},
		"missing host endpoint ip_address": {HostEndpoint: &rackmanager.Endpoint{Port: 1}},
		"unsupported session_token auth": {BmcEndpoint: &rackmanager.Endpoint{Credentials: &rackmanager.Credentials{
			Auth: &rackmanager.Credentials_SessionToken{SessionToken: "x"}}}},
	} {
		resp := update(info)
		requireFailure(t, resp.GetStatus())
		require.Contains(t, resp.GetMessage(), text)
	}
	for text, req := range map[string]*rackmanager.UpdateNodeRequest{
		"rack not found: r9":          {RackId: "r9", NodeId: "a"},
		"node b not found in rack r1": {RackId: "r1", NodeId: "b"},
		"node  not found in rack r1":  {RackId: "r1"},
	} {
		resp, err := h.rm.UpdateNode(t.Context(), req)
		require.NoError(t, err)
		requireFailure(t, resp.GetResponse().GetStatus())
		require.Contains(t, resp.GetResponse().GetMessage(), text)
	}
}

func TestDeleteNode(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register(compute("r1", "a"), compute("r1", "b"))
	ref := node.Ref{RackID: "r1", NodeID: "a"}
	del := func(rack, id string) *rackmanager.OperationResponse {
		t.Helper()
		resp, err := h.rm.DeleteNode(t.Context(), &rackmanager.DeleteNodeRequest{RackId: rack, NodeId: id})
		require.NoError(t, err)
		return resp.GetResponse()
	}
	require.Equal(t, "rack not found: r9", del("r9", "a").GetMessage())
	require.Equal(t, "node z not found in rack r1", del("r1", "z").GetMessage())

	guard, err := h.conn.TakeRackPower(t.Context(), "r1", &rackbusv1.RackPower{
		V: 1, Holder: "x", Deadline: timestamppb.New(time.Now().Add(time.Minute))}, time.Minute)
	require.NoError(t, err)
	require.Equal(t, "rack power operation in progress", del("r1", "a").GetMessage())
	require.NoError(t, h.conn.ReleaseRackPower(t.Context(), guard))

	h.firmware("fw.pkg", "x")
	up, err := h.rm.UpdateFirmware(t.Context(), &rackmanager.UpdateFirmwareRequest{RackId: "r1", NodeId: "a", Filename: "fw.pkg"})
	require.NoError(t, err)
	requireSuccess(t, up.GetStatus(), up.GetMessage())
	require.Contains(t, del("r1", "a").GetMessage(), up.GetJobId())
	h.fold(parseID(t, up.GetJobId()), started(), finished(job.StateCompleted))

	rack, rev, err := h.conn.Rack(t.Context(), "r1")
	require.NoError(t, err)
	rack.PowerOnOrder = []*rackbusv1.PowerOnStep{{NodeId: "a"}}
	require.NoError(t, h.conn.ReplaceRack(t.Context(), rack, rev))
	resp := del("r1", "a")
	requireSuccess(t, resp.GetStatus(), resp.GetMessage())
	require.Equal(t, "node a removed", resp.GetMessage())
	_, _, err = h.conn.Node(t.Context(), ref)
	require.ErrorIs(t, err, bus.ErrNotFound)
	rack, _, err = h.conn.Rack(t.Context(), "r1")
	require.NoError(t, err)
	require.Empty(t, rack.GetPowerOnOrder())

	h.register(compute("r1", "a")) // its id is free again
}
