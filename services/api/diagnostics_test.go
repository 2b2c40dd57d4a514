// SPDX-License-Identifier: Apache-2.0

package api

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/rackbus/rackbus/pkg/diagnostics"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

func (h *harness) diagnose(about job.ID, nodes ...string) (*rackbusv1.StartNodeDiagnosticsResponse, error) {
	req := &rackbusv1.StartNodeDiagnosticsRequest{}
	if !about.IsZero() {
		req.AboutJobId = about.String()
	}
	for _, id := range nodes {
		req.Nodes = append(req.Nodes, &rackbusv1.DiagnosedNode{RackId: "r1", NodeId: id})
	}
	return h.jobs.StartNodeDiagnostics(h.t.Context(), req)
}

// publish stores what an agent tells of a job, for its history.
func (h *harness) publish(id job.ID, events ...job.Event) {
	h.t.Helper()
	for _, e := range events {
		e.ID, e.RackID, e.NodeID, e.Type, e.At = id, "r1", "n0", job.TypeFirmwareUpdate, time.Now()
		require.NoError(h.t, h.conn.PublishEvent(h.t.Context(), &e))
	}
}

// TestDiagnoseFailedChildren looks into a batch: the nodes of the children that did
// not complete are examined, each with the history of its child.
func TestDiagnoseFailedChildren(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register(compute("r1", "n0"), compute("r1", "n1"))
	parent, children := h.admit("r1", 3)
	h.publish(children[0], started(), finished(job.StateFailed))
	h.fold(children[0], started(), finished(job.StateFailed))
	h.fold(children[1], started(), finished(job.StateCompleted))
	h.fold(children[2], started(), finished(job.StateFailed)) // its node is not registered

	resp, err := h.diagnose(parent)
	require.NoError(t, err)
	require.Len(t, resp.GetRefusedNodes(), 1)
	require.Equal(t, "n2", resp.GetRefusedNodes()[0].GetNodeId())
	require.Contains(t, resp.GetRefusedNodes()[0].GetMessage(), "registered")
	id := parseID(t, resp.GetJobId())
	r, _, err := h.conn.Record(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, job.KindParent, r.Kind)
	require.Equal(t, parent, r.About)
	require.Equal(t, uint32(1), r.Total)
	child, _, err := h.conn.Record(t.Context(), id.Child(1))
	require.NoError(t, err)
	require.Equal(t, job.TypeNodeDiagnostics, child.Type)
	require.Equal(t, "n0", child.NodeID)
	require.Equal(t, children[0], child.About)

	cmd := h.commands(node.FamilyCompute, 3)["n0"]
	require.Equal(t, child.ID.String(), cmd.GetJobId())
	order := cmd.GetNodeDiagnosis()
	require.Equal(t, children[0].String(), order.GetAboutJobId())
	newest := order.GetHistory()[len(order.GetHistory())-1]
	require.Equal(t, string(job.FailureTaskException), newest.GetFailure().GetFailureCode())
	require.NotNil(t, cmd.GetTarget().GetBmc().GetCredentials(), "the registered credentials go along, sealed")

	require.Eventually(t, func() bool {
		list, err := h.jobs.ListJobs(t.Context(), &rackbusv1.ListJobsRequest{Filter: &rackbusv1.JobFilter{AboutJobId: children[0].String()}})
		require.NoError(t, err)
		return len(list.GetJobs()) == 1 && list.GetJobs()[0].GetJobId() == child.ID.String() &&
			list.GetJobs()[0].GetAboutJobId() == children[0].String()
	}, 20*time.Second, 5*time.Millisecond)
}

// TestDiagnoseNamedNodes examines nodes by their names, with and without a job.
func TestDiagnoseNamedNodes(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register(compute("r1", "n0"), compute("r1", "n1"))
	resp, err := h.diagnose(job.ID{}, "n0", "n1", "n0", "nobody")
	require.NoError(t, err)
	require.Len(t, resp.GetRefusedNodes(), 1)
	first := parseID(t, resp.GetJobId())
	r, _, err := h.conn.Record(t.Context(), first)
	require.NoError(t, err)
	require.Equal(t, uint32(2), r.Total)
	require.Equal(t, "r1", r.RackID)

	resp, err = h.diagnose(job.ID{}, "n0")
	require.NoError(t, err)
	require.Contains(t, resp.GetRefusedNodes()[0].GetMessage(), first.Child(1).String(), "a busy node names its holder")

	_, err = h.diagnose(first)
	requireCode(t, err, codes.InvalidArgument, "is a diagnosis itself")
	_, err = h.diagnose(job.ID{})
	requireCode(t, err, codes.InvalidArgument, "name nodes")
	_, err = h.jobs.StartNodeDiagnostics(t.Context(), &rackbusv1.StartNodeDiagnosticsRequest{AboutJobId: "x"})
	requireCode(t, err, codes.NotFound, "not found")
	_, err = h.diagnose(job.ID{}, "")
	requireCode(t, err, codes.InvalidArgument, "missing node ID")
}

// TestDiagnoseOnceByKey starts one diagnosis however often it is asked for.
func TestDiagnoseOnceByKey(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register(compute("r1", "n0"))
	req := &rackbusv1.StartNodeDiagnosticsRequest{Nodes: []*rackbusv1.DiagnosedNode{{RackId: "r1", NodeId: "n0"}}}
	var ids [2]string
	for i := range ids {
		resp, err := h.jobs.StartNodeDiagnostics(with(t.Context(), metaIdempotencyKey, "k"), req)
		require.NoError(t, err)
		require.Empty(t, resp.GetRefusedNodes())
		ids[i] = resp.GetJobId()
	}
	require.Equal(t, ids[0], ids[1])
}

// TestHistoryKeepsTheNewest cuts a long history at its beginning.
func TestHistoryKeepsTheNewest(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register(compute("r1", "n0"))
	_, children := h.admit("r1", 1)
	var told []job.Event
	for i := range 60 {
		told = append(told, job.Event{Kind: job.EventProgress, Epoch: 1, N: uint64(i + 2), Description: fmt.Sprintf("step %d %s", i, strings.Repeat("of a long way ", 70))})
	}
	last := finished(job.StateFailed)
	last.N = 999
	h.publish(children[0], append(told, last)...)
	h.fold(children[0], started(), finished(job.StateFailed))
	_, err := h.diagnose(children[0])
	require.NoError(t, err)
	order := h.commands(node.FamilyCompute, 1)["n0"].GetNodeDiagnosis()
	require.NotZero(t, order.GetHistoryOmitted())
	require.LessOrEqual(t, proto.Size(order), diagnostics.MaxHistory+4<<10)
	newest := order.GetHistory()[len(order.GetHistory())-1]
	require.Equal(t, "finished", newest.GetKind())
}

// TestDiagnoseEveryFamily sends each node to the agents that can examine it, with
// all logins that they need.
func TestDiagnoseEveryFamily(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register(compute("r1", "tray"), typed("r1", "shelf", rackmanager.NodeType_POWERSHELF_GB200_LITEON),
		typed("r1", "switch", rackmanager.NodeType_SWITCH_GB200_NVIDIA))
	resp, err := h.diagnose(job.ID{}, "tray", "shelf", "switch")
	require.NoError(t, err)
	require.Empty(t, resp.GetRefusedNodes())
	for id, family := range map[string]node.Family{
		"tray": node.FamilyCompute, "shelf": node.FamilyPowerShelf, "switch": node.FamilySwitch,
	} {
		cmd := h.commands(family, 1)[id]
		require.NotNil(t, cmd.GetNodeDiagnosis(), id)
		require.NotNil(t, cmd.GetTarget().GetBmc().GetCredentials(), id)
		require.Equal(t, family == node.FamilySwitch, cmd.GetTarget().GetHost().GetCredentials() != nil, id)
	}
}
