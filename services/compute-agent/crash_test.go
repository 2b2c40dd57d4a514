// SPDX-License-Identifier: Apache-2.0

package computeagent_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/redfishagent"
	"github.com/rackbus/rackbus/pkg/redfishagent/agenttest"
	"github.com/rackbus/rackbus/sim/bmc"
	"github.com/rackbus/rackbus/sim/faults"
	"github.com/rackbus/rackbus/sim/reqlog"
)

// The agent dies, and another one goes on: one upload, one AUX cycle, the right
// version.
func TestAgentDies(t *testing.T) {
	t.Parallel()
	type death struct {
		name  string
		point string
		n     int
		// epoch is who ended the job.
		epoch uint64
		// long leaves it to runs with -long.
		long bool
	}
	const in = redfishagent.FailInStage
	for _, tt := range []death{
		{name: "behind the claim", point: agent.FailAfterClaim, n: 1, epoch: 2},
		{name: "in the check", point: in + "check", n: 1, epoch: 2, long: true},
		{name: "before the upload", point: agent.FailAfterIntent, n: 1, epoch: 2},
		{name: "behind the upload", point: agent.FailAfterDeviceChange, n: 1, epoch: 2},
		{name: "in the installation", point: in + "install", n: 1, epoch: 2},
		{name: "before the activation", point: agent.FailAfterIntent, n: 2, epoch: 2, long: true},
		{name: "behind the AUX cycle", point: agent.FailAfterDeviceChange, n: 2, epoch: 2},
		{name: "while the BMC restarts", point: in + "activate_wait_bmc", n: 1, epoch: 2},
		{name: "before the host is on", point: in + "activate_keep_on", n: 1, epoch: 2, long: true},
		{name: "in the verification", point: in + "verify", n: 1, epoch: 2},
		{name: "behind the outcome", point: agent.FailAfterDone, n: 1, epoch: 1},
		{name: "behind the report", point: agent.FailBeforeAck, n: 1, epoch: 1},
	} {
		if tt.long && !*long {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, gb300)
			doomed := b.StartDoomed(tt.point, tt.n)
			id := b.Admit(b.node, activated(b.pldm("nvfw_P4972_9.fwpkg", "99.01", "BMC")))
			b.died(doomed, id)
			b.Start()
			j := b.Await(id)
			require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
			require.Equal(t, tt.epoch, j.Epoch)
			require.Len(t, b.uploads(), 1)
			require.Len(t, b.rack.Uploads(b.tray.ID()), 1)
			require.Equal(t, 1, b.posts(auxReset))
			require.Equal(t, "99.01", b.tray.Version("FW_BMC_0"))
			require.Equal(t, bmc.PowerOn, b.tray.PowerState())
			check := decode(t, j.ResultJSON)["post_activation_version_check"].(map[string]any)
			require.Equal(t, "matched", check["status"])
		})
	}
}

// What the next agent cannot find out it does not do again.
func TestOutcomeStaysUnknown(t *testing.T) {
	t.Parallel()
	t.Run("upload, and the BMC lost its tasks", func(t *testing.T) {
		b := newBench(t)
		first := b.Start()
		require.Equal(t, job.StateCompleted, b.run(update(b.raw("FW_CPLD_0", "cpld_1.bin"))).State)
		first.Stop()
		b.knobs(func(k *bmc.Knobs) { k.LoseTasksOnRestart = true })
		doomed := b.StartDoomed(agent.FailAfterDeviceChange, 1)
		id := b.Admit(b.node, activated(b.pldm("nvfw_P4972_9.fwpkg", "99.01", "BMC")))
		<-doomed.Dead()
		b.tray.Restart()
		b.Start()
		j := b.Await(id)
		require.Equal(t, job.StateFailed, j.State)
		require.Equal(t, job.FailureOutcomeUnknown, j.Failure.FailureCode, "%+v", j.Failure)
		require.Contains(t, j.Failure.Message, "interrupted during upload")
		require.Equal(t, "update", decode(t, j.ResultJSON)["phase"])
		require.Len(t, b.uploads(), 2, "one for each job")
		require.Zero(t, b.posts(auxReset))
	})
	t.Run("AUX cycle that changed nothing", func(t *testing.T) {
		b := newBench(t)
		b.knobs(func(k *bmc.Knobs) { k.VersionUnchanged, k.HideLastReset = true, true })
		doomed := b.StartDoomed(agent.FailAfterDeviceChange, 2)
		id := b.Admit(b.node, activated(b.pldm("nvfw_P4972_9.fwpkg", "99.01", "BMC")))
		<-doomed.Dead()
		b.Start()
		j := b.Await(id)
		require.Equal(t, job.StateFailed, j.State)
		require.Equal(t, job.FailureOutcomeUnknown, j.Failure.FailureCode, "%+v", j.Failure)
		require.Equal(t, "activation", decode(t, j.ResultJSON)["phase"])
		require.Equal(t, 1, b.posts(auxReset))
	})
}

// The BMC takes the AUX cycle and the agent dies; only while the next one looks
// does the BMC restart. It must not get a second one.
func TestAUXCycleThatBeginsLate(t *testing.T) {
	b := newBench(t, gb300)
	fault := func(rule faults.Rule) {
		_, err := b.rack.AddFault(rule)
		require.NoError(t, err)
	}
	lastReset := func(at string) {
		fault(faults.Rule{ID: "reset time", Selector: faults.Resource("/redfish/v1/Managers/BMC_0"), Action: faults.Action{
			JSONMerge: json.RawMessage(`{"LastResetTime":"` + at + `"}`)}})
	}
	lastReset("2026-01-01T00:00:00Z")
	fault(faults.Rule{Selector: faults.Request("POST", "**/NvidiaChassis.AuxPowerReset"), Remaining: 1,
		Action: faults.Action{Status: &faults.Status{Code: 204, Empty: true}}})
	doomed := b.StartDoomed(agent.FailAfterDeviceChange, 2)
	id := b.Admit(b.node, activated(b.pldm("nvfw_P4972_9.fwpkg", "99.01", "BMC")))
	<-doomed.Dead()
	looks := reqlog.Filter{Path: "/redfish/v1/Managers/BMC_0"}
	before := len(b.rack.Requests(b.tray.ID(), looks))
	b.Start(func(o *agenttest.AgentOptions) { o.Timing.RestartSettle = agenttest.Patience })
	ctx, cancel := context.WithTimeout(t.Context(), agenttest.Patience)
	defer cancel()
	_, err := b.rack.WaitRequests(ctx, b.tray.ID(), looks, before+3)
	require.NoError(t, err)
	lastReset("2026-01-01T00:01:00Z")
	b.tray.Restart()
	j := b.Await(id)
	require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
	require.Equal(t, 1, b.posts(auxReset))
}

// The first agent dies in the middle of the image: the device never got it whole.
func TestAgentDiesWhileItSends(t *testing.T) {
	b := newBench(t)
	b.knobs(func(k *bmc.Knobs) { k.UploadBytesPerSecond = 2 << 20 })
	doomed := b.Start(agenttest.Mortal)
	id := b.Admit(b.node, update(b.File("FW_BMC_0", "obmc_7.bin", make([]byte, 24<<20))))
	_, err := b.rack.WaitInFlight(t.Context(), b.tray.ID(), reqlog.Filter{Path: "**/update-multipart"})
	require.NoError(t, err)
	doomed.Kill()
	// Before the tray takes more at a time, it has seen the end of the first one.
	b.sent()
	b.knobs(func(k *bmc.Knobs) { k.UploadBytesPerSecond = 0 })
	b.Start()
	j := b.Await(id)
	require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
	require.Len(t, b.uploads(), 1, "one arrived whole")
	require.Len(t, b.rack.Uploads(b.tray.ID()), 2)
	require.Len(t, b.tray.Tasks(), 1)
}

// A drained agent hands its job over, and the device notices nothing.
func TestAgentIsDrained(t *testing.T) {
	t.Parallel()
	for _, stage := range []string{"check", "install", "activate_keep_on", "verify"} {
		t.Run(stage, func(t *testing.T) {
			b := newBench(t, gb300)
			first := b.StartLeaving(redfishagent.FailInStage+stage, 1)
			id := b.Admit(b.node, activated(b.pldm("nvfw_P4972_9.fwpkg", "99.01", "BMC")))
			b.died(first, id)
			first.Stop()
			b.Start()
			j := b.Await(id)
			require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
			require.Equal(t, uint64(2), j.Epoch)
			require.Equal(t, uint32(1), j.Attempt, "a hand-over is no failed attempt")
			require.Len(t, b.uploads(), 1)
			require.Equal(t, 1, b.posts(auxReset))
		})
	}
}

// The agent dies between packages; those that are in are not sent again.
func TestAgentDiesBetweenPackages(t *testing.T) {
	t.Parallel()
	for _, stage := range []string{"install_1", "check_2", "install_2"} {
		t.Run(stage, func(t *testing.T) {
			b := newBench(t)
			doomed := b.StartDoomed(redfishagent.FailInStage+stage, 1)
			id := b.Admit(b.node, activated(b.pldm("nvfw_P4975_9.fwpkg", "9.1", "HMC"), b.raw("FW_CPLD_0", "cpld_9.2.bin")))
			b.died(doomed, id)
			b.Start()
			j := b.Await(id)
			require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
			var files []string
			for _, u := range b.rack.Uploads(b.tray.ID()) {
				files = append(files, u.Upload.File)
			}
			require.Equal(t, []string{"nvfw_P4975_9.fwpkg", "cpld_9.2.bin"}, files)
			require.Equal(t, "9.1", b.tray.Version("HGX_FW_BMC_0"))
			require.Equal(t, "9.2", b.tray.Version("FW_CPLD_0"))
		})
	}
}
