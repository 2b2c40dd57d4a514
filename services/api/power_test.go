// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/credentials"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

const opOn = rackmanager.PowerOperation_POWER_OPERATION_ON

func TestSetPowerStateChecksInOrder(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register(compute("r1", "a"))
	set := func(ctx context.Context, rack, id string, op rackmanager.PowerOperation) (*rackmanager.SetPowerStateResponse, string, error) {
		var trailer metadata.MD
		resp, err := h.rm.SetPowerState(ctx, &rackmanager.SetPowerStateRequest{RackId: rack, NodeId: id, Operation: op}, grpc.Trailer(&trailer))
		return resp, first(trailer, metaReason), err
	}
	for _, op := range []rackmanager.PowerOperation{0, 9, -1} {
		_, _, err := set(t.Context(), "r9", "", op)
		requireCode(t, err, codes.InvalidArgument, fmt.Sprintf("invalid operation: %d", op))
	}
	_, _, err := set(with(t.Context(), metaOnBusy, "force"), "r1", "a", opOn)
	requireCode(t, err, codes.PermissionDenied, "needs the role admin")

	for _, c := range []struct{ rack, id, reason string }{
		{"r9", "a", "rack not found: r9"},
		{"", "a", "rack not found"},
		{"r1", "z", "node not found: z"},
		{"r1", "", "node not found"},
		{"r1", "a", "no agent of the compute family is connected that serves power_set"},
	} {
		resp, reason, err := set(t.Context(), c.rack, c.id, opOn)
		require.NoError(t, err)
		requireFailure(t, resp.GetStatus())
		require.Contains(t, reason, c.reason)
	}
	held, err := h.conn.RackPower(t.Context(), "r1")
	require.ErrorIs(t, err, bus.ErrNotFound, "the guard is released: %v", held)

	h.powerAgents("ON")
	resp, reason, err := set(t.Context(), "r1", "a", opOn)
	require.NoError(t, err)
	requireSuccess(t, resp.GetStatus(), reason)
	require.Empty(t, reason)
	lock, err := h.conn.Lock(t.Context(), node.Ref{RackID: "r1", NodeID: "a"})
	require.NoError(t, err)
	require.True(t, lock.Free(time.Now()))
}

// While one power change runs, a second one on the rack and a deletion are
// refused, and no second call reaches the device.
func TestRackPowerGuard(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register(compute("r1", "a"), compute("r1", "b"))
	var calls atomic.Int32
	began, release := make(chan struct{}), make(chan struct{})
	h.agents(node.FamilyCompute, handlers{opPowerSet: func(_ context.Context, req *rackbusv1.NodeRequest) *rackbusv1.NodeReply {
		calls.Add(1)
		close(began)
		<-release
		return &rackbusv1.NodeReply{V: 1}
	}})
	done := make(chan *rackmanager.SetPowerStateResponse, 1)
	go func() {
		resp, _ := h.rm.SetPowerState(t.Context(), &rackmanager.SetPowerStateRequest{RackId: "r1", NodeId: "a", Operation: opOn})
		done <- resp
	}()
	<-began
	resp, err := h.rm.SetPowerState(t.Context(), &rackmanager.SetPowerStateRequest{RackId: "r1", NodeId: "b", Operation: opOn})
	require.NoError(t, err)
	requireFailure(t, resp.GetStatus())
	del, err := h.rm.DeleteNode(t.Context(), &rackmanager.DeleteNodeRequest{RackId: "r1", NodeId: "b"})
	require.NoError(t, err)
	require.Equal(t, "rack power operation in progress", del.GetResponse().GetMessage())

	// The node itself is locked too: neither a batch nor a job gets in.
	batch, err := h.rm.BatchSetPowerState(t.Context(), &rackmanager.BatchSetPowerStateRequest{Nodes: set(compute("r1", "a")), Operation: opOn})
	require.NoError(t, err)
	require.Contains(t, batch.GetResponse().GetNodeResults()[0].GetErrorMessage(), "already in progress")
	h.firmware("fw.pkg", "x")
	up, err := h.rm.UpdateFirmware(t.Context(), &rackmanager.UpdateFirmwareRequest{RackId: "r1", NodeId: "a", Filename: "fw.pkg"})
	require.NoError(t, err)
	require.Equal(t, rackmanager.FirmwareUpdateError_FIRMWARE_UPDATE_ERROR_UPDATE_IN_PROGRESS, up.GetErrorCode())
	require.Contains(t, up.GetMessage(), "power operation")
	close(release)
	require.Equal(t, rackmanager.ReturnCode_RETURN_CODE_SUCCESS, (<-done).GetStatus())
	require.EqualValues(t, 1, calls.Load())
}

// A batch whose caller has gone ends the change that is under way, and begins no other.
func TestNothingIsBegunForACallerWhoHasGone(t *testing.T) {
	t.Parallel()
	h := newHarness(t, func(o *Options) { o.BatchParallelism = 1 })
	ctx, leave := context.WithCancel(t.Context())
	var calls atomic.Int32
	h.agents(node.FamilyCompute, handlers{opPowerSet: func(context.Context, *rackbusv1.NodeRequest) *rackbusv1.NodeReply {
		calls.Add(1)
		leave()
		return &rackbusv1.NodeReply{V: 1}
	}})
	resp, err := (&rackManager{Server: h.server}).BatchSetPowerState(ctx, &rackmanager.BatchSetPowerStateRequest{
		Nodes: set(compute("r1", "a"), compute("r1", "b"), compute("r1", "c")), Operation: opOn,
	})
	require.NoError(t, err)
	require.EqualValues(t, 1, calls.Load())
	results := resp.GetResponse().GetNodeResults()
	requireSuccess(t, results[0].GetStatus(), results[0].GetErrorMessage())
	require.Equal(t, textNotBegun, results[1].GetErrorMessage())
	require.Equal(t, textNotBegun, results[2].GetErrorMessage())
	for _, id := range []string{"a", "b"} {
		lock, err := h.conn.Lock(t.Context(), node.Ref{RackID: "r1", NodeID: id})
		require.NoError(t, err)
		require.True(t, lock.Free(time.Now()))
	}
}

// A change whose outcome is unknown keeps the node locked until past the deadline
// of the agent, whose clock may be behind.
func TestUnansweredChangeKeepsTheLock(t *testing.T) {
	t.Parallel()
	h := newHarness(t, func(o *Options) { o.Timing.PowerLimit = 1500 * time.Millisecond })
	h.register(compute("r1", "a"))
	release, asked := make(chan struct{}), make(chan time.Time, 1)
	h.agents(node.FamilyCompute, handlers{opPowerSet: func(_ context.Context, req *rackbusv1.NodeRequest) *rackbusv1.NodeReply {
		asked <- req.GetDeadline().AsTime()
		<-release
		return &rackbusv1.NodeReply{V: 1}
	}})
	t.Cleanup(func() { close(release) })
	resp, err := h.rm.BatchSetPowerState(t.Context(), &rackmanager.BatchSetPowerStateRequest{Nodes: set(compute("r1", "a")), Operation: opOn})
	require.NoError(t, err)
	require.Contains(t, resp.GetResponse().GetNodeResults()[0].GetErrorMessage(), "no answer within")
	lock, err := h.conn.Lock(t.Context(), node.Ref{RackID: "r1", NodeID: "a"})
	require.NoError(t, err)
	require.NotEmpty(t, lock.GetOperation())
	agentStops := <-asked
	require.False(t, lock.Free(agentStops.Add(time.Second)))
	require.GreaterOrEqual(t, lock.GetDeadline().AsTime().Sub(agentStops), 5*time.Second-time.Millisecond)
	require.False(t, lock.Free(lock.GetDeadline().AsTime().Add(-time.Millisecond)))
	require.True(t, lock.Free(lock.GetDeadline().AsTime()))
}

func TestGetPowerState(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register(compute("r1", "a"), typed("r1", "s", rackmanager.NodeType_SWITCH_GB200_NVIDIA))
	h.agents(node.FamilyCompute, handlers{opPowerGet: func(_ context.Context, req *rackbusv1.NodeRequest) *rackbusv1.NodeReply {
		require.NotNil(t, req.GetDeadline())
		login, err := credentials.Open(h.openers[node.FamilyCompute], req.GetTarget(), node.EndpointBMC)
		if err != nil || login.Password.Reveal() != plantedPassword {
			return refusing("cannot log in")(nil, req)
		}
		return &rackbusv1.NodeReply{V: 1, PowerState: "OFF"}
	}})
	get := func(rack, id string) *rackmanager.GetPowerStateResponse {
		resp, err := h.rm.GetPowerState(t.Context(), &rackmanager.GetPowerStateRequest{RackId: rack, NodeId: id})
		require.NoError(t, err)
		require.Equal(t, rack, resp.GetRackId())
		require.Equal(t, id, resp.GetNodeId())
		return resp
	}
	resp := get("r1", "a")
	requireSuccess(t, resp.GetStatus(), "")
	require.Equal(t, "OFF", resp.GetPstate())
	for _, c := range [][2]string{{"r9", "a"}, {"r1", "z"}, {"r1", "s"}} {
		resp := get(c[0], c[1])
		requireFailure(t, resp.GetStatus())
		require.Empty(t, resp.GetPstate())
	}
}

func TestPowerBatches(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	get := func(nodes *rackmanager.NodeSet) *rackmanager.BatchGetPowerStateResponse {
		t.Helper()
		resp, err := h.rm.BatchGetPowerState(t.Context(), &rackmanager.BatchGetPowerStateRequest{Nodes: nodes})
		require.NoError(t, err)
		return resp
	}
	empty := get(nil).GetResponse()
	requireFailure(t, empty.GetStatus())
	require.Equal(t, "No nodes specified in request", empty.GetMessage())
	require.NotNil(t, empty.GetStats())
	setEmpty, err := h.rm.BatchSetPowerState(t.Context(), &rackmanager.BatchSetPowerStateRequest{})
	require.NoError(t, err, "an empty set comes before the operation")
	require.Equal(t, "No nodes specified in request", setEmpty.GetResponse().GetMessage())
	_, err = h.rm.BatchSetPowerState(t.Context(), &rackmanager.BatchSetPowerStateRequest{Nodes: set(compute("r", "a"))})
	requireCode(t, err, codes.InvalidArgument, "invalid operation: 0")
	unknown := rackmanager.NodeType(50)
	_, err = h.rm.BatchGetPowerState(t.Context(), &rackmanager.BatchGetPowerStateRequest{Nodes: set(&rackmanager.NodeInfo{Type: &unknown})})
	requireCode(t, err, codes.InvalidArgument, "unknown node type value 50")

	h.powerAgents("ON")
	good := compute("r1", "a")
	sw := typed("r1", "s", rackmanager.NodeType_SWITCH_GB200_NVIDIA)
	sw.BmcEndpoint.Interface.MacAddress = ""
	sw.HostEndpoint = nil // power goes through the BMC alone
	noLogin := compute("r1", "b")
	noLogin.BmcEndpoint.Credentials = nil
	noIP := typed("r1", "c", rackmanager.NodeType_SWITCH_GB200_NVIDIA)
	noIP.BmcEndpoint = nil
	noMAC := compute("r1", "d")
	noMAC.BmcEndpoint.Interface.MacAddress = ""

	resp := get(set(good, sw, good))
	requireSuccess(t, resp.GetResponse().GetStatus(), resp.GetResponse().GetMessage())
	require.Equal(t, "Power state queried for 3/3 nodes", resp.GetResponse().GetMessage())
	require.Len(t, resp.GetNodePowerStates(), 3, "each occurrence is read")
	for _, r := range resp.GetResponse().GetNodeResults() {
		require.Empty(t, r.GetErrorMessage())
	}

	resp = get(set(good, noLogin, noIP, noMAC))
	requireFailure(t, resp.GetResponse().GetStatus())
	require.Equal(t, "Power state query completed with 1 successes and 3 failures out of 4 nodes", resp.GetResponse().GetMessage())
	require.Len(t, resp.GetNodePowerStates(), 1)
	var texts []string
	for _, r := range resp.GetResponse().GetNodeResults() {
		texts = append(texts, r.GetErrorMessage())
	}
	require.Equal(t, []string{"", "Missing BMC credentials for node b", "Missing BMC IP address for node c",
		"missing BMC endpoint mac_address"}, texts)
	require.EqualValues(t, 3, resp.GetResponse().GetStats().GetFailedNodes())

	changed, err := h.rm.BatchSetPowerState(t.Context(), &rackmanager.BatchSetPowerStateRequest{Nodes: set(good, good, sw), Operation: opOn})
	require.NoError(t, err)
	requireSuccess(t, changed.GetResponse().GetStatus(), changed.GetResponse().String())
	require.Equal(t, "Power operation completed for 3/3 nodes", changed.GetResponse().GetMessage())
	require.Empty(t, changed.GetResponse().GetJobId())
}

func TestBatchPowerIsRefusedBesideAJob(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.powerAgents("ON")
	_, children := h.admit("r1", 1)
	resp, err := h.rm.BatchSetPowerState(t.Context(), &rackmanager.BatchSetPowerStateRequest{
		Nodes: set(compute("r1", "n0"), compute("r1", "free")), Operation: opOn})
	require.NoError(t, err)
	results := resp.GetResponse().GetNodeResults()
	require.Contains(t, results[0].GetErrorMessage(), children[0].String())
	require.Empty(t, results[1].GetErrorMessage())
	read, err := h.rm.BatchGetPowerState(t.Context(), &rackmanager.BatchGetPowerStateRequest{Nodes: set(compute("r1", "n0"))})
	require.NoError(t, err)
	requireSuccess(t, read.GetResponse().GetStatus(), "reads never wait for jobs")
}

// Nodes of a batch are asked at the same time, as many as the limit allows.
func TestBatchRunsInParallel(t *testing.T) {
	t.Parallel()
	const nodes, limit = 40, 8
	h := newHarness(t, func(o *Options) { o.BatchParallelism = limit })
	var running, most atomic.Int32
	gate := make(chan struct{})
	open := sync.OnceFunc(func() { close(gate) })
	h.agents(node.FamilyCompute, handlers{opPowerGet: func(context.Context, *rackbusv1.NodeRequest) *rackbusv1.NodeReply {
		now := running.Add(1)
		defer running.Add(-1)
		for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
		}
		if now == limit {
			open()
		}
		<-gate
		return &rackbusv1.NodeReply{V: 1, PowerState: "ON"}
	}})
	batch := &rackmanager.NodeSet{}
	for i := range nodes {
		batch.Nodes = append(batch.Nodes, compute("r1", fmt.Sprintf("n%d", i)))
	}
	resp, err := h.rm.BatchGetPowerState(t.Context(), &rackmanager.BatchGetPowerStateRequest{Nodes: batch})
	require.NoError(t, err)
	requireSuccess(t, resp.GetResponse().GetStatus(), resp.GetResponse().GetMessage())
	require.EqualValues(t, limit, most.Load())
	for i, s := range resp.GetNodePowerStates() {
		require.Equal(t, fmt.Sprintf("n%d", i), s.GetNodeId(), "request order")
	}
}
