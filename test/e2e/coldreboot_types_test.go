// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/proto/rackmanager"
	"github.com/rackbus/rackbus/sim"
	"github.com/rackbus/rackbus/sim/bmc"
	"github.com/rackbus/rackbus/sim/reqlog"
	"github.com/rackbus/rackbus/test/cluster"
)

// TestColdRebootOfEveryType takes a rack with a tray or shelf of every type down and up. The trays really lose their power while
// all shelves are off.
func TestColdRebootOfEveryType(t *testing.T) {
	t.Parallel()
	o := sim.Options{
		RackID: "cold", CoupledPower: true, Outage: bmc.OutageRefuse, Seed: 5,
		Timing: bmc.Timing{BMCOutage: 100 * time.Millisecond, Shutdown: 100 * time.Millisecond},
	}
	for _, typ := range mixedTypes() {
		o.NodeTypes = append(o.NodeTypes, sim.NodeTypeCount{Type: typ, Count: 1})
	}
	// At a scale of 0.01: floors of half a second, limits of a minute.
	c := cluster.Start(t, cluster.Options{Racks: []sim.Options{o}, Settings: map[string]string{
		"timing.cold_reboot.prestage_shutdown_poll_max": `"6000s"`, "timing.cold_reboot.discharge_floor": `"50s"`,
		"timing.cold_reboot.discharge_poll_max": `"6000s"`, "timing.cold_reboot.bmc_up_floor": `"50s"`,
		"timing.cold_reboot.bmc_up_poll_max": `"6000s"`, "timing.cold_reboot.compute_boot_wait": `"50s"`,
	}})
	s, rack := &scene{Cluster: c, Client: c.Client(0)}, c.Racks[0]
	nc, err := c.Bus()
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	switchAgent(t, nc, rack)
	nodes := c.NodeSet(rack)
	nodes.Nodes = append(nodes.Nodes, switchNode(rack.ID()))
	boots := map[*sim.Device]int{}
	for _, d := range rack.Devices() {
		boots[d] = d.Boots()
	}

	ctx := forRack(t)
	out, err := s.ExecuteColdReboot(ctx, &rackmanager.ExecuteColdRebootRequest{Nodes: nodes})
	require.NoError(t, err)
	require.Equal(t, success, out.GetResponse().GetStatus(), "%v", out.GetResponse())
	job, err := s.WaitJob(ctx, out.GetResponse().GetJobId())
	require.NoError(t, err)
	require.Equal(t, rackmanager.JobExecutionState_JOB_EXECUTION_STATE_COMPLETED, job.GetExecutionState(), "%v", job)

	var shelves []reqlog.Entry
	for _, d := range rack.Devices() {
		if d.Model().Shelf() {
			shelves = append(shelves, posts(rack, d)...)
		}
	}
	slices.SortFunc(shelves, func(a, b reqlog.Entry) int { return a.Time.Compare(b.Time) })
	for _, d := range rack.Devices() {
		t.Run(typeOf(d), func(t *testing.T) {
			require.Equal(t, bmc.PowerOn, d.PowerState())
			sent := posts(rack, d)
			require.Len(t, sent, 2, "one action down, one up")
			if d.Model().Shelf() {
				return
			}
			require.Greater(t, d.Boots(), boots[d])
			require.True(t, sent[0].End().Before(shelves[0].Time), "trays are shut down before any shelf is off")
			require.True(t, sent[1].Time.After(shelves[len(shelves)-1].End()), "trays are started when all shelves are on")
		})
	}
}

// posts are the actions that a device was asked for.
func posts(rack *sim.Rack, d *sim.Device) []reqlog.Entry {
	return rack.Requests(d.ID(), reqlog.Filter{Method: http.MethodPost})
}
