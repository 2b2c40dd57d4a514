// SPDX-License-Identifier: Apache-2.0

package api

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/rackbus/rackbus/pkg/admission"
	"github.com/rackbus/rackbus/pkg/credentials"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

func described(rack, id string, attributes map[string]string) *rackmanager.NodeInfo {
	return &rackmanager.NodeInfo{
		NodeId: id, RackId: rack, BmcEndpoint: endpoint("10.0.0.2"),
		NodeDescriptor: &rackmanager.NodeDescriptor{Attributes: attributes},
	}
}

// wholeRack has a node of each role, one of which only a descriptor can name.
func wholeRack(rack string) *rackmanager.NodeSet {
	return set(
		compute(rack, "tray-1"),
		described(rack, "tray-2", map[string]string{"role": "compute", "vendor": "Wiwynn", "product_family": "GB200"}),
		typed(rack, "shelf-1", rackmanager.NodeType_POWERSHELF_GB200_LITEON),
		typed(rack, "shelf-2", rackmanager.NodeType_POWERSHELF_GB200_DELTA),
		typed(rack, "switch-1", rackmanager.NodeType_SWITCH_GB200_NVIDIA),
	)
}

func (h *harness) coldReboot(req *rackmanager.ExecuteColdRebootRequest, pairs ...string) *rackmanager.NodeBatchResponse {
	h.t.Helper()
	resp, err := h.rm.ExecuteColdReboot(with(h.t.Context(), pairs...), req)
	require.NoError(h.t, err)
	return resp.GetResponse()
}

func requireStats(t *testing.T, total, failed uint32, resp *rackmanager.NodeBatchResponse) {
	t.Helper()
	require.Equal(t, total, resp.GetStats().GetTotalNodes())
	require.Equal(t, failed, resp.GetStats().GetFailedNodes())
	require.Equal(t, total-failed, resp.GetStats().GetSuccessfulNodes())
}

func TestColdRebootIsAdmitted(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	nodes := wholeRack("r1")
	nodes.Nodes = append(nodes.Nodes, compute("r1", "tray-1")) // dropped silently
	req := &rackmanager.ExecuteColdRebootRequest{
		Nodes: nodes, Domain: proto.String(" lab "), DischargeFloorSeconds: proto.Uint32(7), PollIntervalSeconds: proto.Uint32(0),
	}
	resp := h.coldReboot(req, metaIdempotencyKey, "k", metaJobName, "tuesday")
	requireSuccess(t, resp.GetStatus(), resp.GetMessage())
	require.Equal(t, "Cold reboot started for 5 nodes. Use GetJobStatus with response.job_id to track per-stage progress.", resp.GetMessage())
	require.Empty(t, resp.GetNodeResults())
	requireStats(t, 5, 0, resp)
	id := parseID(t, resp.GetJobId())
	rec, _, err := h.conn.Record(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, job.KindCoordinator, rec.Kind)
	require.Equal(t, "r1:cold-reboot", rec.NodeID)
	require.False(t, rec.RackPower, "the rack is not registered")

	again := h.coldReboot(req, metaIdempotencyKey, "k", metaJobName, "tuesday")
	require.Equal(t, resp.GetJobId(), again.GetJobId())
	requireStats(t, 5, 0, again)

	got, err := h.jobs.GetJob(t.Context(), &rackbusv1.GetJobRequest{JobId: resp.GetJobId()})
	require.NoError(t, err)
	require.Equal(t, []string{"tray-1", "tray-2", "shelf-1", "shelf-2", "switch-1"}, got.GetJob().GetReservedNodeIds())
	require.Equal(t, "tuesday", got.GetJob().GetName())

	cmd, _, err := h.conn.Command(t.Context(), node.FamilyRack, node.Ref{RackID: "r1", NodeID: "r1:cold-reboot"})
	require.NoError(t, err)
	require.NotContains(t, cmd.String(), plantedPassword)
	op := cmd.GetColdReboot()
	require.Equal(t, "lab", op.GetDomain())
	require.Equal(t, uint32(7), op.GetTiming().GetDischargeFloor())
	require.Len(t, op.GetNodes(), 5)
	require.Equal(t, "compute_gb200_wiwynn", op.GetNodes()[1].GetNodeType())
	require.Nil(t, op.GetNodes()[0].GetHost())
	for _, n := range op.GetNodes() {
		typ, ok := node.ByID(n.GetNodeType())
		require.True(t, ok)
		login, err := credentials.Open(h.openers[typ.Family], n, node.EndpointBMC)
		require.NoError(t, err)
		require.Equal(t, plantedPassword, login.Password.Reveal())
		_, err = credentials.Open(h.openers[node.FamilyRack], n, node.EndpointBMC)
		require.Error(t, err, "the coordinator cannot open credentials")
	}
	_, err = credentials.Open(h.openers[node.FamilySwitch], op.GetNodes()[4], node.EndpointHost)
	require.NoError(t, err)

	// Nobody else gets a node meanwhile, nor another sequence the rack.
	second := h.coldReboot(&rackmanager.ExecuteColdRebootRequest{Nodes: wholeRack("r1")})
	requireFailure(t, second.GetStatus())
	require.Equal(t, job.BusyText("r1", "tray-1", id), second.GetMessage())
	require.Empty(t, second.GetJobId())
	requireStats(t, 5, 5, second)
	h.powerAgents("ON")
	set, err := h.rm.BatchSetPowerState(t.Context(), &rackmanager.BatchSetPowerStateRequest{
		Nodes: &rackmanager.NodeSet{Nodes: wholeRack("r1").GetNodes()[:1]}, Operation: rackmanager.PowerOperation_POWER_OPERATION_ON,
	})
	require.NoError(t, err)
	require.Contains(t, set.GetResponse().GetNodeResults()[0].GetErrorMessage(), "already in progress")
}

// TestColdRebootKeepsARegisteredRack also from power operations and removals.
func TestColdRebootKeepsARegisteredRack(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.powerAgents("ON")
	h.register(wholeRack("r1").GetNodes()...)
	resp := h.coldReboot(&rackmanager.ExecuteColdRebootRequest{Nodes: wholeRack("r1")})
	requireSuccess(t, resp.GetStatus(), resp.GetMessage())
	rec, _, err := h.conn.Record(t.Context(), parseID(t, resp.GetJobId()))
	require.NoError(t, err)
	require.True(t, rec.RackPower)

	power, err := h.rm.SetPowerState(t.Context(), &rackmanager.SetPowerStateRequest{
		RackId: "r1", NodeId: "tray-1", Operation: rackmanager.PowerOperation_POWER_OPERATION_ON,
	})
	require.NoError(t, err)
	requireFailure(t, power.GetStatus())
	removed, err := h.rm.DeleteNode(t.Context(), &rackmanager.DeleteNodeRequest{RackId: "r1", NodeId: "tray-1"})
	require.NoError(t, err)
	require.Equal(t, "rack power operation in progress", removed.GetResponse().GetMessage())

	second := h.coldReboot(&rackmanager.ExecuteColdRebootRequest{Nodes: wholeRack("r1")})
	require.Equal(t, "rack r1 is busy with another power operation", second.GetMessage())
	requireStats(t, 5, 5, second)
}

func TestColdRebootIsRefused(t *testing.T) {
	t.Parallel()
	h := newHarness(t, func(o *Options) { o.Admission.MaxTrackedJobs = 1 })
	noCredentials := wholeRack("r1")
	noCredentials.Nodes[2].BmcEndpoint.Credentials = nil
	noHost, badHost, loopback, noLogin := wholeRack("r1"), wholeRack("r1"), wholeRack("r1"), wholeRack("r1")
	noHost.Nodes[4].HostEndpoint = nil
	badHost.Nodes[4].HostEndpoint.Interface.IpAddress = "switch.example"
	loopback.Nodes[4].HostEndpoint.Interface.IpAddress = "::ffff:127.0.0.1"
	noLogin.Nodes[4].HostEndpoint.Credentials = nil
	unknown := wholeRack("r1")
	unknown.Nodes[0].Type, unknown.Nodes[1].NodeDescriptor = rackmanager.NodeType(99).Enum(), nil
	two := wholeRack("r2")
	two.Nodes = append(two.Nodes, compute("r10", "x"), compute("r1", "x"))
	without := func(i ...int) *rackmanager.NodeSet {
		s := &rackmanager.NodeSet{}
		for _, n := range i {
			s.Nodes = append(s.Nodes, wholeRack("r1").GetNodes()[n])
		}
		return s
	}
	const unprepared = "one or more devices could not be prepared for cold reboot"
	for name, c := range map[string]struct {
		req     *rackmanager.ExecuteColdRebootRequest
		message string
		total   uint32
		nodes   map[string]string
	}{
		"no nodes": {&rackmanager.ExecuteColdRebootRequest{}, "nodes is required and must contain at least one device", 0, nil},
		"three racks": {
			&rackmanager.ExecuteColdRebootRequest{Nodes: two},
			"cold reboot must target a single rack, but devices span 3 racks: r1, r10, r2", 7, nil,
		},
		"unknown types": {&rackmanager.ExecuteColdRebootRequest{Nodes: unknown}, unprepared, 5, map[string]string{
			"tray-1": "unknown or unsupported node type: unknown node type value 99",
			"tray-2": "unknown or unsupported node type: node descriptor is required when node type is unspecified",
		}},
		"no credentials": {&rackmanager.ExecuteColdRebootRequest{Nodes: noCredentials}, unprepared, 5, map[string]string{
			"shelf-1": "Missing BMC credentials for node shelf-1",
		}},
		"switch without host": {&rackmanager.ExecuteColdRebootRequest{Nodes: noHost}, unprepared, 5, map[string]string{
			"switch-1": "missing host endpoint",
		}},
		"switch without login": {&rackmanager.ExecuteColdRebootRequest{Nodes: noLogin}, unprepared, 5, map[string]string{
			"switch-1": "Missing host credentials for node switch-1",
		}},
		"switch by name": {&rackmanager.ExecuteColdRebootRequest{Nodes: badHost}, unprepared, 5, map[string]string{
			"switch-1": "switch target host must be a valid IP address: switch.example",
		}},
		"switch on loopback": {&rackmanager.ExecuteColdRebootRequest{Nodes: loopback}, unprepared, 5, map[string]string{
			"switch-1": "switch target host is not allowed: ::ffff:127.0.0.1",
		}},
		"no shelf":   {&rackmanager.ExecuteColdRebootRequest{Nodes: without(0)}, "cold reboot requires at least one power shelf in the device list", 1, nil},
		"no compute": {&rackmanager.ExecuteColdRebootRequest{Nodes: without(2, 4)}, "cold reboot requires at least one compute node in the device list", 2, nil},
		"no switch":  {&rackmanager.ExecuteColdRebootRequest{Nodes: without(0, 2)}, "cold reboot requires at least one switch in the device list", 2, nil},
		"waits without end": {
			&rackmanager.ExecuteColdRebootRequest{Nodes: wholeRack("r1"), ComputeBootWaitSeconds: proto.Uint32(1 << 31), NvosHelloBackoffSeconds: proto.Uint32(1 << 31)},
			"the waits of the request add up to 720h0m0s, which is more than 72h0m0s", 5, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			resp := h.coldReboot(c.req)
			requireFailure(t, resp.GetStatus())
			require.Equal(t, c.message, resp.GetMessage())
			require.Empty(t, resp.GetJobId())
			requireStats(t, c.total, c.total, resp)
			got := make(map[string]string)
			for _, r := range resp.GetNodeResults() {
				requireFailure(t, r.GetStatus())
				got[r.GetNodeId()] = r.GetErrorMessage()
			}
			if c.nodes == nil {
				c.nodes = map[string]string{}
			}
			require.Equal(t, c.nodes, got)
			tracked, _, err := h.conn.Capacity(t.Context())
			require.NoError(t, err)
			require.Zero(t, tracked)
		})
	}
	_, err := h.rm.ExecuteColdReboot(with(t.Context(), metaOnBusy, "queue"), &rackmanager.ExecuteColdRebootRequest{Nodes: wholeRack("r1")})
	requireCode(t, err, codes.InvalidArgument, "cannot wait for busy nodes")
	resp := h.coldReboot(&rackmanager.ExecuteColdRebootRequest{Nodes: wholeRack("r1")})
	requireSuccess(t, resp.GetStatus(), resp.GetMessage())
	resp = h.coldReboot(&rackmanager.ExecuteColdRebootRequest{Nodes: wholeRack("r2")})
	require.Contains(t, resp.GetMessage(), "1 of at most 1", "a sequence counts as one job")
	requireStats(t, 5, 5, resp)
}

// TestLongColdRebootMayRunLong: a request with long waits gets the time for them.
func TestLongColdRebootMayRunLong(t *testing.T) {
	t.Parallel()
	h := newHarness(t, func(o *Options) {
		o.Admission = admission.Options{RunLimits: map[job.Type]time.Duration{job.TypeColdRebootSequence: time.Hour}}
	})
	for rack, c := range map[string]struct {
		wait uint32
		want int64
	}{"short": {0, 3600}, "long": {36_000, 39_600}} {
		resp := h.coldReboot(&rackmanager.ExecuteColdRebootRequest{Nodes: wholeRack(rack), ComputeBootWaitSeconds: proto.Uint32(c.wait)})
		requireSuccess(t, resp.GetStatus(), resp.GetMessage())
		cmd, _, err := h.conn.Command(t.Context(), node.FamilyRack, node.Ref{RackID: rack, NodeID: rack + ":cold-reboot"})
		require.NoError(t, err)
		require.Equal(t, c.want, cmd.GetRunLimitSeconds())
	}
}
