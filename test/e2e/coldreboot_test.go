// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
	"github.com/rackbus/rackbus/sim"
	"github.com/rackbus/rackbus/sim/bmc"
	"github.com/rackbus/rackbus/sim/reqlog"
	"github.com/rackbus/rackbus/test/cluster"
)

// switchNode is a switch that nobody simulates: switchAgent answers for it.
func switchNode(rackID string) *rackmanager.NodeInfo {
	endpoint := func(ip string) *rackmanager.Endpoint {
		return &rackmanager.Endpoint{
			Interface: &rackmanager.NetworkInterface{IpAddress: ip, MacAddress: "02:00:00:00:00:07"},
			Credentials: &rackmanager.Credentials{Auth: &rackmanager.Credentials_UserPass{
				UserPass: &rackmanager.UsernamePassword{Username: "admin", Password: "switch-pw"},
			}},
		}
	}
	return &rackmanager.NodeInfo{
		NodeId: "switch-1", RackId: rackID, Type: rackmanager.NodeType_SWITCH_GB200_NVIDIA.Enum(),
		BmcEndpoint: endpoint("192.0.2.7"), HostEndpoint: endpoint("192.0.2.8"),
	}
}

// switchAgent answers the requests of the switch family: a switch is reachable while
// a shelf is on.
func switchAgent(t *testing.T, nc *nats.Conn, rack *sim.Rack) {
	t.Helper()
	lit := func() bool {
		for _, d := range rack.Devices() {
			if d.Model().Shelf() && d.PowerState() == bmc.PowerOn {
				return true
			}
		}
		return false
	}
	for _, op := range []string{"power_get", "nvos_hello"} {
		_, err := nc.QueueSubscribe("rb.req.switch."+op, "switch", func(m *nats.Msg) {
			reply := &rackbusv1.NodeReply{V: 1, PowerState: "ON"}
			if !lit() {
				reply = &rackbusv1.NodeReply{V: 1, Error: &rackbusv1.NodeError{Code: "unreachable", Message: "no route to host"}}
			}
			data, err := proto.Marshal(reply)
			if err == nil {
				err = m.Respond(data)
			}
			if err != nil {
				t.Errorf("switch agent: %v", err)
			}
		})
		require.NoError(t, err)
	}
	require.NoError(t, nc.Flush())
}

// TestColdReboot takes a rack down and up through the published API, while the
// process that drives it is killed in the dark.
func TestColdReboot(t *testing.T) {
	t.Parallel()
	// The dark lasts for three seconds, a hundredth of this, so that the test gets there in time.
	c := cluster.Start(t, cluster.Options{Settings: map[string]string{"timing.cold_reboot.discharge_floor": `"5m"`}, Racks: []sim.Options{{
		RackID: "r1", Compute: 2, NodeTypes: []sim.NodeTypeCount{
			{Type: "compute_gb200_wiwynn", Count: 1}, {Type: "powershelf_gb200_liteon", Count: 1}, {Type: "powershelf_gb200_delta", Count: 1},
		},
		CoupledPower: true, Outage: bmc.OutageRefuse,
		Timing: bmc.Timing{BMCOutage: 200 * time.Millisecond, Shutdown: 300 * time.Millisecond},
	}}})
	rack, client := c.Racks[0], c.Client(0)
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	nc, err := c.Bus()
	require.NoError(t, err)
	defer nc.Close()
	switchAgent(t, nc, rack)

	nodes := c.NodeSet(rack)
	nodes.Nodes = append(nodes.Nodes, switchNode(rack.ID()))
	created, err := client.CreateNodes(ctx, &rackmanager.CreateNodesRequest{Nodes: nodes})
	require.NoError(t, err)
	require.Equal(t, success, created.GetResponse().GetStatus(), created.GetResponse().GetMessage())
	started, err := client.ExecuteColdReboot(ctx, &rackmanager.ExecuteColdRebootRequest{Nodes: nodes})
	require.NoError(t, err)
	require.Equal(t, success, started.GetResponse().GetStatus(), started.GetResponse().GetMessage())
	id := started.GetResponse().GetJobId()

	_, err = client.PollJob(ctx, id, func(s *rackmanager.JobStatus) bool {
		return s.GetStateDescription() == "Rack reboot step 2-3: Waiting for capacitor discharge (tray BMCs unreachable)"
	})
	require.NoError(t, err)
	power, err := client.SetPowerState(ctx, &rackmanager.SetPowerStateRequest{
		RackId: rack.ID(), NodeId: "compute-0001", Operation: rackmanager.PowerOperation_POWER_OPERATION_ON,
	})
	require.NoError(t, err)
	require.NotEqual(t, success, power.GetStatus(), "the rack is not to be touched")
	jobs := c.Processes(cluster.RoleJobs)[0]
	jobs.Kill()
	require.NoError(t, jobs.Start())

	status, err := client.WaitJob(ctx, id)
	require.NoError(t, err)
	require.Equal(t, rackmanager.JobExecutionState_JOB_EXECUTION_STATE_COMPLETED, status.GetExecutionState(), "%v", status)
	require.Equal(t, "Cold reboot completed", status.GetStateDescription())
	for _, d := range rack.Devices() {
		require.Equal(t, bmc.PowerOn, d.PowerState(), d.ID())
		require.Len(t, rack.Requests(d.ID(), reqlog.Filter{Method: http.MethodPost}), 2, "%s: off once and on once", d.ID())
	}
	job, err := client.Jobs.GetJob(ctx, &rackbusv1.GetJobRequest{JobId: id})
	require.NoError(t, err)
	require.Len(t, job.GetJob().GetReservedNodeIds(), 6)
	for _, stage := range job.GetJob().GetStages() {
		require.Equal(t, rackbusv1.StageStatus_STAGE_STATUS_COMPLETED, stage.GetStatus(), stage.GetName())
	}
	removed, err := client.DeleteNode(ctx, &rackmanager.DeleteNodeRequest{RackId: rack.ID(), NodeId: "switch-1"})
	require.NoError(t, err)
	require.Equal(t, success, removed.GetResponse().GetStatus(), "everything is free again: %s", removed.GetResponse().GetMessage())
}
