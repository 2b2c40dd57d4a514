// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/rackbus/rackbus/pkg/bus/bustest"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

// A stream that has gone is told as such, and the same call works once it is there again.
func TestC2StreamIsRemoved(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.admit("r1", 1)
	raw, err := bustest.Open(h.broker.URL())
	require.NoError(t, err)
	t.Cleanup(raw.Close)
	require.NoError(t, raw.DropStream(t.Context(), "KV_rb"))
	_, err = h.rm.BatchUpdateFirmware(t.Context(), updateOf(compute("r1", "n0")))
	requireCode(t, err, codes.Unavailable, "")
	// What the jobs service does as soon as it notices.
	require.NoError(t, h.conn.Provision(t.Context()))
	_, children := h.admit("r1", 1)
	require.Equal(t, children[0].String(), h.command(node.FamilyCompute, children[0].String()).GetJobId())
	require.NotContains(t, h.log.String(), "panic")
}

// padded makes a manifest of a size.
func padded(t *testing.T, product string, size int) string {
	t.Helper()
	config := mixed(t, product)
	const frame = `"Padding":"",`
	return strings.Replace(config, `"ProductName"`, `"Padding":"`+strings.Repeat("x", size-len(config)-len(frame))+`","ProductName"`, 1)
}

// Manifests of any published size are taken, and what goes over the bus to an agent stays small.
func TestC6LargeManifestsStayOutOfCommands(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	for size, n := range map[string]int{"2MiB": 2 << 20, "16MiB": 16 << 20} {
		config := padded(t, "P"+size, n)
		require.Len(t, config, n)
		resp, err := h.rm.ApplyFirmwareObject(t.Context(), &rackmanager.ApplyFirmwareObjectRequest{
			RackId: "r1", ConfigJson: config, FirmwareType: "prod", HardwareType: "gb200", Nodes: set(compute("r1", size)),
		})
		require.NoError(t, err)
		require.Len(t, resp.GetJobs(), 1, "%v", resp.GetResponse())
		r, _, err := h.conn.Record(t.Context(), parseID(t, resp.GetJobs()[0].GetJobId()))
		require.NoError(t, err)
		require.Equal(t, job.StateQueued, r.State, "%+v", r.Failure)
	}
	for _, f := range []node.Family{node.FamilyCompute, node.FamilyRack} {
		for _, cmd := range h.commands(f, 2) {
			require.Less(t, proto.Size(cmd), 64<<10)
		}
	}
}

// What is beyond the limit is refused before it gets near the bus, which goes on.
func TestC7HugeRequestsNeverReachTheBus(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	_, err := h.rm.AddFirmwareObject(t.Context(), &rackmanager.AddFirmwareObjectRequest{ConfigJson: padded(t, "HUGE", 33<<20), HardwareType: "gb200"})
	requireCode(t, err, codes.ResourceExhausted, fmt.Sprint(17<<20))
	require.NoError(t, h.conn.Provision(t.Context()))
	h.admit("r1", 1)
	require.Equal(t, "AFTER_1.0", h.add(mixed(t, "AFTER"), "gb200", false).GetId())
}

// updateOf asks for an update of trays.
func updateOf(nodes ...*rackmanager.NodeInfo) *rackmanager.BatchUpdateFirmwareRequest {
	return &rackmanager.BatchUpdateFirmwareRequest{
		Nodes: set(nodes...), FirmwareTargets: map[int32]*rackmanager.FirmwareTargetList{
			1: {Targets: []*rackmanager.FirmwareTarget{{Filename: "fw.pkg"}}},
		},
	}
}

// A node that is being powered off is refused with the reason, the others go on, and whatever waits has a deadline.
func TestK6NodeBeingPoweredOffIsRefused(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register(compute("r1", "off"), compute("r1", "on"))
	began, held := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(held) })
	t.Cleanup(release)
	h.agents(node.FamilyCompute, handlers{opPowerSet: func(context.Context, *rackbusv1.NodeRequest) *rackbusv1.NodeReply {
		close(began)
		<-held
		return &rackbusv1.NodeReply{V: 1}
	}})
	done := make(chan error, 1)
	go func() {
		_, err := h.rm.SetPowerState(t.Context(), &rackmanager.SetPowerStateRequest{
			RackId: "r1", NodeId: "off", Operation: rackmanager.PowerOperation_POWER_OPERATION_OFF})
		done <- err
	}()
	<-began
	h.firmware("fw.pkg", "firmware")
	resp, err := h.rm.BatchUpdateFirmware(t.Context(), updateOf(compute("r1", "off"), compute("r1", "on")))
	require.NoError(t, err)
	release()
	require.NoError(t, <-done)
	requireFailure(t, resp.GetResponse().GetStatus())
	require.Contains(t, messages(resp.GetResponse())["off"], "power operation")
	require.Len(t, resp.GetJobs(), 1)
	require.Equal(t, "on", resp.GetJobs()[0].GetNodeId())
	for _, id := range []string{resp.GetResponse().GetJobId(), resp.GetJobs()[0].GetJobId()} {
		r, _, err := h.conn.Record(t.Context(), parseID(t, id))
		require.NoError(t, err)
		require.True(t, r.Deadline.After(time.Now()), "%+v", r)
	}
}

// What no agent can take is refused when it is asked for: node by node, or as a whole where the request says nothing
// that a program of this release knows. Nothing is stored that would wait for ever.
func TestK9UnknownKindsAreRefusedAtOnce(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.firmware("fw.pkg", "firmware")
	ask := func(nodes ...*rackmanager.NodeInfo) (*rackmanager.BatchUpdateFirmwareResponse, error) {
		return h.rm.BatchUpdateFirmware(t.Context(), updateOf(nodes...))
	}
	_, err := ask(compute("r1", "known"), typed("r1", "odd", rackmanager.NodeType(999)))
	requireCode(t, err, codes.InvalidArgument, "unknown node type value 999")
	none := func() {
		t.Helper()
		n, err := h.conn.CountRecords(t.Context())
		require.NoError(t, err)
		require.Zero(t, n)
	}
	none()
	other := typed("r1", "shelf", rackmanager.NodeType_POWERSHELF_GB200_LITEON)
	resp, err := ask(compute("r1", "known"), other)
	require.NoError(t, err)
	requireFailure(t, resp.GetResponse().GetStatus())
	require.NotEmpty(t, messages(resp.GetResponse())["shelf"])
	require.Empty(t, messages(resp.GetResponse())["known"])
	require.Len(t, resp.GetJobs(), 1)
	require.Equal(t, "known", resp.GetJobs()[0].GetNodeId())
}

// Every job of a node stays known, whatever kind comes after it.
func TestK10JobsOfANodeStandBesideEachOther(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register(compute("r1", "n0"))
	_, updates := h.admit("r1", 1)
	h.fold(updates[0], started(), finished(job.StateFailed))
	resp, err := h.diagnose(job.ID{}, "n0")
	require.NoError(t, err)
	require.Empty(t, resp.GetRefusedNodes())
	examined := parseID(t, resp.GetJobId()).Child(1)
	for id, want := range map[job.ID]rackmanager.JobExecutionState{
		updates[0]: rackmanager.JobExecutionState_JOB_EXECUTION_STATE_FAILED, examined: rackmanager.JobExecutionState_JOB_EXECUTION_STATE_QUEUED,
	} {
		read, err := h.rm.GetJobStatus(t.Context(), &rackmanager.GetJobStatusRequest{JobId: id.String()})
		require.NoError(t, err)
		require.Equal(t, want, read.GetJobStates()[0].GetExecutionState())
	}
	require.Eventually(t, func() bool {
		list, err := h.jobs.ListJobs(t.Context(), &rackbusv1.ListJobsRequest{Filter: &rackbusv1.JobFilter{RackId: "r1", NodeId: "n0"}})
		require.NoError(t, err)
		var types []string
		for _, j := range list.GetJobs() {
			types = append(types, j.GetType())
		}
		return len(types) == 2 && types[0] == string(job.TypeNodeDiagnostics) && types[1] == string(job.TypeFirmwareUpdate)
	}, 20*time.Second, 5*time.Millisecond)
}
