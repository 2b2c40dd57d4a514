// SPDX-License-Identifier: Apache-2.0

package console_test

import (
	"context"
	"encoding/json"
	"flag"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc/metadata"

	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
	"github.com/rackbus/rackbus/sim"
	"github.com/rackbus/rackbus/sim/bmc"
	"github.com/rackbus/rackbus/sim/faults"
	"github.com/rackbus/rackbus/test/cluster"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var update = flag.Bool("update", false, "make the screenshots of docs/console.md anew")

// images is where the screenshots of the documentation lie.
const images = "../../docs/images"

const (
	rackA, rackB = "row1-rack01", "row1-rack02"
	// idle has no update, failing has one that fails.
	idle, failing = "compute-0001", "compute-0011"
	// taskTime is long enough to see a batch work, waveTime to see a wave.
	taskTime, waveTime = 50 * time.Second, 5 * time.Second
	patience           = 6 * time.Minute
)

// failure makes the update task of a tray end badly.
func failure(t *testing.T) faults.Rule {
	var rule faults.Rule
	require.NoError(t, json.Unmarshal([]byte(`{
		"id": "failing", "device": "`+failing+`",
		"selector": {"path": "/redfish/v1/TaskService/Tasks/*", "method": "GET"},
		"action": {"JsonMerge": {
			"TaskState": "Exception", "TaskStatus": "Critical", "PercentComplete": 40,
			"Messages": [{
				"MessageId": "Update.1.0.TransferFailed", "MessageSeverity": "Critical",
				"Message": "Transfer of image 'BMC' failed.", "Resolution": "Check the flash of the component and retry the update."
			}]
		}}}`), &rule))
	return rule
}

// site is a cluster with a browser in front.
type site struct {
	*cluster.Cluster
	*cluster.Client
	t   *testing.T
	ctx context.Context
}

// TestConsole goes through the console as an operator would: open the racks, watch a
// batch live, filter the list, cancel a job, compare the end with what GetJob tells.
func TestConsole(t *testing.T) {
	needBrowser(t)
	timing := func(task time.Duration) bmc.Timing { return bmc.Timing{Task: task, BMCOutage: 200 * time.Millisecond} }
	c := cluster.Start(t, cluster.Options{
		Racks: []sim.Options{
			{RackID: rackA, Compute: 18, PowerShelves: 8, Timing: timing(taskTime), Seed: 1, Faults: []faults.Rule{failure(t)}},
			{RackID: rackB, Compute: 4, PowerShelves: 2, Timing: timing(waveTime), Seed: 2, ComputeGeneration: sim.GB300, ShelfGeneration: sim.GB300},
		},
		Settings: map[string]string{
			"auth.viewers": `["cn:jobs"]`, "timing.bus.progress_interval": `"300ms"`,
			"timing.redfish.task_poll_interval": `"25s"`, // of real racks; a hundredth of it here
		},
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	s := &site{Cluster: c, Client: c.Client(0), t: t, ctx: ctx}
	for _, rack := range c.Racks {
		_, err := s.CreateNodes(ctx, &rackmanager.CreateNodesRequest{Nodes: c.NodeSet(rack)})
		require.NoError(t, err)
	}
	c.WriteTrayPackage("tray.fwpkg", "2.0.0")

	shots := ""
	if *update {
		var err error
		shots, err = filepath.Abs(images)
		require.NoError(t, err)
	}
	b := openBrowser(t, map[string]any{
		"url": c.ConsoleURL(0), "cert": c.Certificate("client.crt"), "key": c.Certificate("client.key"),
		"viewerCert": c.Certificate("jobs.crt"), "viewerKey": c.Certificate("jobs.key"),
		"rack": rackA, "nodes": 18 + 8, "idle": idle, "failing": failing, "shots": shots,
	}, c.Certificate("ca.crt"))

	b.await("opened")
	batch, name := s.startBatch()
	b.tell(map[string]any{"batch": batch, "name": name, "job": s.childOf(batch, "compute-0005"), "plain": s.childOf(batch, "compute-0006")})
	b.await("cancelled")
	s.awaitEnd(batch)
	b.tell(s.expected(batch))
	b.await("compared")

	rollout := s.startRollout()
	b.tell(map[string]any{"rollout": rollout})
	b.await("resumed")
	require.EqualValues(t, 2, s.job(rollout).GetRollout().GetWave())
	b.tell(map[string]any{})
	b.await("aborted")
	s.awaitEnd(rollout)
	b.tell(map[string]any{})
	b.await("done")
}

// startBatch updates all trays of the first rack but one.
func (s *site) startBatch() (id, name string) {
	s.t.Helper()
	set := s.NodeSet(s.Racks[0])
	set.Nodes = slices.DeleteFunc(set.Nodes, func(n *rackmanager.NodeInfo) bool {
		return n.GetNodeId() == idle || !strings.HasPrefix(n.GetNodeId(), "compute-")
	})
	require.Len(s.t, set.GetNodes(), 17)
	ctx := metadata.AppendToOutgoingContext(s.ctx, "rackbus-job-name", "weekly firmware, row 1")
	return s.submit(ctx, set, rackmanager.NodeType_COMPUTE_GB200_NVIDIA), "weekly firmware, row 1"
}

// startRollout updates the trays of the second rack one after the other, each when
// somebody says so.
func (s *site) startRollout() string {
	s.t.Helper()
	set := s.NodeSet(s.Racks[1])
	set.Nodes = slices.DeleteFunc(set.Nodes, func(n *rackmanager.NodeInfo) bool { return !strings.HasPrefix(n.GetNodeId(), "compute-") })
	ctx := metadata.AppendToOutgoingContext(s.ctx, "rackbus-rollout", "wave=1; confirm")
	id := s.submit(ctx, set, rackmanager.NodeType_COMPUTE_GB300_NVIDIA)
	return id
}

func (s *site) submit(ctx context.Context, set *rackmanager.NodeSet, kind rackmanager.NodeType) string {
	s.t.Helper()
	out, err := s.BatchUpdateFirmware(ctx, &rackmanager.BatchUpdateFirmwareRequest{
		Nodes: set, Activate: true,
		FirmwareTargets: map[int32]*rackmanager.FirmwareTargetList{
			int32(kind): {Targets: []*rackmanager.FirmwareTarget{{Filename: "tray.fwpkg"}}},
		},
	})
	require.NoError(s.t, err)
	require.Equal(s.t, rackmanager.ReturnCode_RETURN_CODE_SUCCESS, out.GetResponse().GetStatus(), out.GetResponse().GetMessage())
	return out.GetResponse().GetJobId()
}

func (s *site) job(id string) *rackbusv1.Job { return s.get(id).GetJob() }

func (s *site) get(id string) *rackbusv1.GetJobResponse {
	s.t.Helper()
	resp, err := s.Jobs.GetJob(s.ctx, &rackbusv1.GetJobRequest{JobId: id, IncludeChildren: true})
	require.NoError(s.t, err)
	return resp
}

func (s *site) childOf(id, node string) string {
	s.t.Helper()
	for _, child := range s.get(id).GetChildren() {
		if child.GetNodeId() == node {
			return child.GetJobId()
		}
	}
	require.Fail(s.t, "no child", node)
	return ""
}

func (s *site) awaitEnd(id string) {
	s.t.Helper()
	_, err := s.WaitJob(s.ctx, id)
	require.NoError(s.t, err)
}

// expected is what GetJob tells of a batch that has ended, as pages show it.
func (s *site) expected(id string) map[string]any {
	s.t.Helper()
	resp := s.get(id)
	label := func(state rackbusv1.JobState) string {
		return strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(state.String(), "JOB_STATE_")), "_", " ")
	}
	children, nodes := map[string]any{}, map[string]string{}
	for _, child := range resp.GetChildren() {
		children[child.GetJobId()] = map[string]string{
			"node": child.GetNodeId(), "state": label(child.GetState()), "code": child.GetFailure().GetFailureCode(),
			"description": child.GetStateDescription(),
		}
		nodes[child.GetNodeId()] = map[string]string{"completed": "ok", "failed": "failed", "cancelled": "no history"}[label(child.GetState())]
	}
	nodes[idle] = "no history"
	for _, node := range []string{"compute-0005", "compute-0006"} {
		require.Equal(s.t, "no history", nodes[node], "cancelled as asked: %v", children)
	}
	require.Equal(s.t, "failed", nodes[failing])
	require.Equal(s.t, rackbusv1.JobState_JOB_STATE_PARTIALLY_FAILED, resp.GetJob().GetState())
	n := resp.GetJob().GetChildren()
	return map[string]any{
		"state": label(resp.GetJob().GetState()), "description": resp.GetJob().GetStateDescription(),
		"counts":   map[string]uint32{"completed": n.GetCompleted(), "failed": n.GetFailed(), "cancelled": n.GetCancelled()},
		"children": children, "nodes": nodes, "failed": s.childOf(id, failing),
	}
}
