// SPDX-License-Identifier: Apache-2.0

package crash_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/failpoint"
	"github.com/rackbus/rackbus/proto/rackmanager"
	"github.com/rackbus/rackbus/sim"
	"github.com/rackbus/rackbus/sim/bmc"
	"github.com/rackbus/rackbus/sim/reqlog"
	"github.com/rackbus/rackbus/test/cluster"
)

// pointCase is a death, or a freeze, at one place in the code while one tray is updated.
type pointCase struct {
	role   string
	point  string
	action string
	// hit is at which passing of the point it happens: a tray's upload comes first, its AUX power cycle second.
	hit string
}

func pointCases() []pointCase {
	a, j := cluster.RoleComputeAgent, cluster.RoleJobs
	return []pointCase{
		{a, agent.FailAfterClaim, failpoint.ActionKill, "@1"},
		{a, agent.FailAfterIntent, failpoint.ActionKill, "@1"},
		{a, agent.FailAfterIntent, failpoint.ActionKill, "@2"},
		{a, agent.FailAfterIntent, failpoint.ActionStop, "@1"},
		{a, agent.FailAfterIntent, failpoint.ActionStop, "@2"},
		{a, agent.FailAfterDeviceChange, failpoint.ActionKill, "@1"},
		{a, agent.FailAfterDeviceChange, failpoint.ActionKill, "@2"},
		{a, agent.FailAfterDone, failpoint.ActionKill, "@1"},
		{a, agent.FailBeforeAck, failpoint.ActionKill, "@1"},
		{j, "fold.before_commit", failpoint.ActionKill, "@1"},
		{j, "fold.before_commit", failpoint.ActionStop, "@1"},
		{j, "fold.after_commit", failpoint.ActionKill, "@1"},
	}
}

// TestPoints lets one replica die, or freeze, at each named point, and another take over. The update completes, the
// tray takes one upload and one power cycle, and a replica that wakes up afterwards changes nothing.
func TestPoints(t *testing.T) {
	t.Parallel()
	cases := pointCases()
	c := cluster.Start(t, cluster.Options{
		Replicas: 2,
		Racks: []sim.Options{{
			RackID: "points", Compute: len(cases), Timing: bmc.Timing{Task: 300 * time.Millisecond, BMCOutage: 100 * time.Millisecond},
		}},
		Settings: map[string]string{
			"timing.bus.session_ttl": `"3s"`, "timing.bus.session_renew": `"300ms"`, "timing.bus.session_margin": `"300ms"`,
			"timing.bus.ack_wait": `"2s"`, "timing.bus.work_interval": `"500ms"`, "timing.bus.nak_busy": `"200ms"`,
			"timing.bus.fold_ttl": `"2s"`, "timing.bus.fold_renew": `"300ms"`,
		},
	})
	c.WriteTrayPackage("points.fwpkg", "5.0.0")
	client := c.Client(0)
	created, err := client.CreateNodes(t.Context(), &rackmanager.CreateNodesRequest{Nodes: c.NodeSet(c.Racks[0])})
	require.NoError(t, err)
	require.Equal(t, rackmanager.ReturnCode_RETURN_CODE_SUCCESS, created.GetResponse().GetStatus())
	for i, tc := range cases {
		t.Run(tc.point+"="+tc.action+tc.hit, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			tc.run(ctx, t, c, client, c.Racks[0].Devices()[i])
		})
	}
	snapshot, err := c.Snapshot(t.Context())
	require.NoError(t, err)
	require.Empty(t, snapshot.Open())
	require.Empty(t, snapshot.Violations())
}

// gaveUp is what an agent logs when it has lost a job.
const gaveUp = "job left to its next owner"

func (tc pointCase) run(ctx context.Context, t *testing.T, c *cluster.Cluster, client *cluster.Client, tray *sim.Device) {
	victim, heir := c.Processes(tc.role)[0], c.Processes(tc.role)[1]
	heir.Kill()
	victim.Kill()
	victim.Setenv(failpoint.EnvVar + "=" + tc.point + "=" + tc.action + tc.hit)
	require.NoError(t, victim.Start())
	require.NoError(t, victim.WaitReady(ctx))
	resets := tray.Resets()
	started, err := client.UpdateFirmware(ctx, &rackmanager.UpdateFirmwareRequest{
		RackId: "points", NodeId: tray.ID(), Filename: "points.fwpkg", Activate: true,
	})
	require.NoError(t, err)
	id := started.GetJobId()
	require.NotEmpty(t, id, started.GetMessage())
	if tc.action == failpoint.ActionKill {
		require.Error(t, victim.WaitExit(ctx))
		require.NoError(t, ctx.Err(), "the point was never reached")
	} else {
		awaitFrozen(ctx, t, victim)
	}
	require.NoError(t, heir.Start())
	status, err := client.WaitJob(ctx, id)
	require.NoError(t, err)
	require.Equal(t, rackmanager.JobExecutionState_JOB_EXECUTION_STATE_COMPLETED, status.GetExecutionState(), "%v", status)
	if tc.action == failpoint.ActionStop {
		before := strings.Count(victim.Log().String(), gaveUp)
		require.NoError(t, victim.Resume())
		if tc.role == cluster.RoleComputeAgent {
			// It has noticed, and so had the time to do harm.
			require.NoError(t, victim.Log().Wait(ctx, gaveUp, before+1))
		}
	}
	victim.Setenv()
	require.NoError(t, victim.Start())
	require.NoError(t, victim.WaitReady(ctx))
	again, err := client.WaitJob(ctx, id)
	require.NoError(t, err)
	require.Equal(t, status.GetExecutionState(), again.GetExecutionState(), "terminal is final")

	ledger := cluster.Judge(c.Racks[0].Requests(tray.ID(), reqlog.Filter{Writes: true}))
	require.Empty(t, ledger.Stale)
	require.Empty(t, ledger.Overlaps)
	require.Equal(t, 1, ledger.Taken[id])
	require.Equal(t, 1, ledger.Answered[id])
	require.Equal(t, "5.0.0", tray.Version(cluster.TrayComponent))
	require.Equal(t, resets+1, tray.Resets(), "one AUX power cycle")
}

// awaitFrozen returns once a process has stopped itself.
func awaitFrozen(ctx context.Context, t *testing.T, p *cluster.Process) {
	t.Helper()
	for !p.Frozen() {
		require.NoError(t, ctx.Err(), "the point was never reached")
		wait(ctx, pollPause)
	}
}
