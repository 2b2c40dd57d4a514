// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/rackbus/rackbus/proto/rackmanager"
	"github.com/rackbus/rackbus/sim/bmc"
	"github.com/rackbus/rackbus/test/cluster"
)

// TestSeparateProcesses does a rack's everyday work through five processes. The parts build on each other.
func TestSeparateProcesses(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	for _, part := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"register", s.register},
		{"power state", s.powerState},
		{"device info", s.deviceInfo},
		{"firmware inventory", s.inventory},
		{"set power", s.setPower},
		{"update one tray", s.updateOne},
		{"watch and list", s.watch},
		{"update all trays", s.updateAll},
		{"update by node type", s.updateByType},
		{"shelf controller", s.updateShelf},
		{"up to date", s.upToDate},
		{"failing tray", s.failingTray},
		{"diagnose tray", s.diagnoseTray},
		{"busy node", s.busyNode},
		{"cancel", s.cancelAtSafePoint},
		{"update in waves", s.updateInWaves},
		{"bad requests", s.badRequests},
		{"ledger", s.ledger},
		{"stop", s.stop},
	} {
		if !t.Run(part.name, part.run) {
			return
		}
	}
}

func (s *scene) register(t *testing.T) {
	ctx := within(t)
	health, err := grpc_health_v1.NewHealthClient(s.Conn).Watch(ctx, &grpc_health_v1.HealthCheckRequest{})
	require.NoError(t, err)
	for serving := false; !serving; {
		h, err := health.Recv()
		require.NoError(t, err)
		serving = h.GetStatus() == grpc_health_v1.HealthCheckResponse_SERVING
	}
	for _, rack := range s.Racks {
		set := s.NodeSet(rack)
		out, err := s.CreateNodes(ctx, &rackmanager.CreateNodesRequest{Nodes: set})
		require.NoError(t, err)
		require.Equal(t, success, out.GetResponse().GetStatus(), out.GetResponse().GetMessage())
		require.EqualValues(t, len(set.GetNodes()), out.GetStats().GetTotalNodes())
		require.EqualValues(t, len(set.GetNodes()), out.GetStats().GetSuccessfulNodes())
	}
	again, err := s.CreateNodes(ctx, &rackmanager.CreateNodesRequest{Nodes: s.NodeSet(s.gb200, "compute-0001")})
	require.NoError(t, err)
	require.NotEqual(t, success, again.GetResponse().GetStatus(), "a node is registered once")
	require.NotEmpty(t, again.GetResponse().GetMessage())
}

func (s *scene) powerState(t *testing.T) {
	ctx := within(t)
	for _, rack := range s.Racks {
		for _, d := range rack.Devices() {
			out, err := s.GetPowerState(ctx, &rackmanager.GetPowerStateRequest{RackId: rack.ID(), NodeId: d.ID()})
			require.NoError(t, err)
			require.Equal(t, success, out.GetStatus(), d)
			require.Equal(t, "ON", out.GetPstate(), d)
		}
	}
	s.gb200.Device("compute-0002").SetPowerState(bmc.PowerOff)
	out, err := s.BatchGetPowerState(ctx, &rackmanager.BatchGetPowerStateRequest{Nodes: s.NodeSet(s.gb200)})
	require.NoError(t, err)
	requireBatch(t, out.GetResponse(), 6)
	states := map[string]string{}
	for _, n := range out.GetNodePowerStates() {
		states[n.GetNodeId()] = n.GetPstate()
	}
	require.Len(t, states, 6)
	require.Equal(t, "OFF", states["compute-0002"])
	require.Equal(t, "ON", states["compute-0001"])
	s.gb200.Device("compute-0002").SetPowerState(bmc.PowerOn)
}

// requireBatch checks the answer about a batch in which everything went well.
func requireBatch(t *testing.T, b *rackmanager.NodeBatchResponse, nodes int) {
	t.Helper()
	require.Equal(t, success, b.GetStatus(), "%v", b)
	require.EqualValues(t, nodes, b.GetStats().GetTotalNodes())
	require.EqualValues(t, nodes, b.GetStats().GetSuccessfulNodes())
	require.Zero(t, b.GetStats().GetFailedNodes())
	for _, r := range b.GetNodeResults() {
		require.Equal(t, success, r.GetStatus(), "%v", r)
		require.Empty(t, r.GetErrorMessage())
	}
}

func (s *scene) deviceInfo(t *testing.T) {
	ctx := within(t)
	for _, rack := range s.Racks {
		out, err := s.GetNodeDeviceInfo(ctx, &rackmanager.GetNodeDeviceInfoRequest{RackId: rack.ID(), NodeId: "compute-0002"})
		require.NoError(t, err)
		require.Equal(t, success, out.GetStatus(), out.GetMessage())
		require.Equal(t, "compute-0002", out.GetDeviceInfo().GetNodeId())
		require.NotZero(t, out.GetDeviceInfo().GetChassisSn())
		require.NotNil(t, out.GetDeviceInfo().SlotNumber)
	}
	out, err := s.BatchGetNodeDeviceInfo(ctx, &rackmanager.BatchGetNodeDeviceInfoRequest{
		Nodes: s.NodeSet(s.gb200, "compute-0001", "compute-0002", "compute-0003", "compute-0004"),
	})
	require.NoError(t, err)
	require.Equal(t, success, out.GetStatus(), out.GetMessage())
	require.Len(t, out.GetNodeDeviceDetails(), 4)
}

func (s *scene) inventory(t *testing.T) {
	ctx := within(t)
	for _, rack := range s.Racks {
		for _, d := range rack.Devices() {
			out, err := s.GetNodeFirmwareInventory(ctx, &rackmanager.GetNodeFirmwareInventoryRequest{RackId: rack.ID(), NodeId: d.ID()})
			require.NoError(t, err)
			require.Equal(t, success, out.GetStatus(), d)
			listed := map[string]string{}
			for _, f := range out.GetFirmwareList() {
				listed[f.GetName()] = f.GetVersion()
			}
			component := cluster.TrayComponent
			if d.Model().Shelf() {
				component = cluster.ShelfComponent
			}
			require.Equal(t, d.Version(component), listed[component], "%s: %v", d, listed)
		}
	}
	batch, err := s.BatchGetFirmwareInventory(ctx, &rackmanager.BatchGetFirmwareInventoryRequest{Nodes: s.NodeSet(s.gb300)})
	require.NoError(t, err)
	requireBatch(t, batch.GetResponse(), 3)
	require.Len(t, batch.GetNodes(), 3)
	all, err := s.GetRackFirmwareInventory(ctx, &rackmanager.GetRackFirmwareInventoryRequest{RackId: s.gb200.ID()})
	require.NoError(t, err)
	require.Equal(t, success, all.GetStatus())
}

func (s *scene) setPower(t *testing.T) {
	ctx := within(t)
	set := s.NodeSet(s.gb200, "compute-0001", "compute-0003")
	for _, step := range []struct {
		operation rackmanager.PowerOperation
		state     string
	}{
		{rackmanager.PowerOperation_POWER_OPERATION_FORCE_OFF, bmc.PowerOff},
		{rackmanager.PowerOperation_POWER_OPERATION_ON, bmc.PowerOn},
	} {
		out, err := s.BatchSetPowerState(ctx, &rackmanager.BatchSetPowerStateRequest{Nodes: set, Operation: step.operation})
		require.NoError(t, err)
		requireBatch(t, out.GetResponse(), 2)
		for i, d := range s.gb200.Devices()[:4] {
			want := bmc.PowerOn
			if i == 0 || i == 2 {
				want = step.state
			}
			require.Equal(t, want, d.PowerState(), d)
		}
	}
	one, err := s.SetPowerState(ctx, &rackmanager.SetPowerStateRequest{
		RackId: s.gb300.ID(), NodeId: "compute-0001", Operation: rackmanager.PowerOperation_POWER_OPERATION_FORCE_OFF,
	})
	require.NoError(t, err)
	require.Equal(t, success, one.GetStatus())
	require.Equal(t, bmc.PowerOff, s.gb300.Device("compute-0001").PowerState())
	s.gb300.Device("compute-0001").SetPowerState(bmc.PowerOn)
}

func (s *scene) badRequests(t *testing.T) {
	ctx := within(t)
	_, err := s.GetJobStatus(ctx, &rackmanager.GetJobStatusRequest{})
	require.Equal(t, codes.InvalidArgument, status.Code(err), "%v", err)
	_, err = s.GetJobStatus(ctx, &rackmanager.GetJobStatusRequest{JobId: "no-such-job"})
	require.Equal(t, codes.NotFound, status.Code(err), "%v", err)
	require.ErrorContains(t, err, "no-such-job")
	for _, bad := range []struct{ node, file, says string }{
		{"compute-0099", "tray-3.fwpkg", "compute-0099"},
		{"compute-0001", "missing.fwpkg", "missing.fwpkg"},
		{"compute-0001", "../config.toml", "config.toml"},
	} {
		out, err := s.UpdateFirmware(ctx, &rackmanager.UpdateFirmwareRequest{RackId: s.gb200.ID(), NodeId: bad.node, Filename: bad.file})
		told := fmt.Sprint(err, out.GetMessage())
		require.False(t, err == nil && out.GetStatus() == success, "%v was accepted", bad)
		require.Contains(t, told, bad.says)
		require.Empty(t, out.GetJobId())
	}
}

// ledger: after all this work, no device has seen a write of a hold that had passed to another.
func (s *scene) ledger(t *testing.T) {
	l := cluster.Judge(s.Writes())
	require.Empty(t, l.Stale)
	require.Empty(t, l.Overlaps)
	for job, n := range l.Taken {
		require.Equal(t, 1, n, "uploads of job %s", job)
	}
	snapshot, err := s.Snapshot(within(t))
	require.NoError(t, err)
	require.Empty(t, snapshot.Open())
	require.Empty(t, snapshot.Violations())
	t.Logf("%d writes of jobs, %d of power operations, %d uploads, %d records", l.Writes, l.Unsigned, len(l.Taken), len(snapshot.Records))
}

// stop: every process ends with 0 upon SIGTERM.
func (s *scene) stop(t *testing.T) {
	ctx := within(t)
	for _, role := range []string{cluster.RoleAPI, cluster.RoleComputeAgent, cluster.RolePowerShelfAgent, cluster.RoleJobs} {
		for _, p := range s.Processes(role) {
			require.NoError(t, p.Stop(ctx))
		}
	}
}
