// SPDX-License-Identifier: Apache-2.0

package switchagent_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/services/switch-agent/internal/crashtest"
	"github.com/rackbus/rackbus/services/switch-agent/internal/runbook"
	"github.com/rackbus/rackbus/sim/nvswitch"
	"github.com/rackbus/rackbus/sim/reqlog"
)

// The agent dies in every stage; the next one ends the job, with one installation
// of each component and one power cycle.
func TestFirmwareAgentDies(t *testing.T) {
	t.Parallel()
	const changes = 3 // two installations and the power cycle
	all := slices.Concat(
		crashtest.Times(agent.FailAfterClaim, 1),
		crashtest.Times(agent.FailAfterIntent, changes), crashtest.Times(agent.FailAfterDeviceChange, changes),
		crashtest.Times(agent.FailAfterDone, 1), crashtest.Times(agent.FailBeforeAck, 1),
		crashtest.InStages(runbook.FailInStage, "check", "upload_1", "install_1", "monitor_1", "upload_2", "install_2", "monitor_2",
			"outcome", "activate", "activate_wait", "verify"),
	)
	for _, d := range crashtest.Pick(all,
		crashtest.Death{Point: agent.FailAfterIntent, N: 1}, crashtest.Death{Point: agent.FailAfterIntent, N: changes},
		crashtest.Death{Point: agent.FailAfterDeviceChange, N: 2},
		crashtest.Death{Point: runbook.FailInStage + "upload_2", N: 1}, crashtest.Death{Point: runbook.FailInStage + "activate_wait", N: 1},
	) {
		t.Run(d.String(), func(t *testing.T) {
			b := newBench(t)
			doomed := b.doomed(d.Point, d.N)
			id := b.Admit(b.node, activated(b.pldm("", "nvfw_9.fwpkg", "9.9", "BIOS", "EROT")))
			b.died(doomed, id)
			b.start(nil)
			j := b.Await(id)
			require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
			require.Equal(t, 2, b.actions("@install"))
			require.Equal(t, 1, b.actions("@power-cycle"))
			require.Equal(t, 1, b.sw.Reboots())
			require.Equal(t, "9.9", b.sw.Version("BIOS"))
			require.Equal(t, "9.9", b.sw.Version("EROT"))
			require.Len(t, b.puts(), 2)
		})
	}
}

func TestBundleAgentDies(t *testing.T) {
	t.Parallel()
	all := slices.Concat(crashtest.Times(agent.FailAfterIntent, 1), crashtest.Times(agent.FailAfterDeviceChange, 1),
		crashtest.InStages(runbook.FailInStage, "bundle_upload", "bundle_fetch", "bundle_install", "bundle_monitor"))
	for _, d := range crashtest.Pick(all, crashtest.Death{Point: agent.FailAfterDeviceChange, N: 1}) {
		t.Run(d.String(), func(t *testing.T) {
			b := newBench(t, func(o *nvswitch.Options) { o.Model = nvswitch.VRNVL72 })
			doomed := b.doomed(d.Point, d.N)
			id := b.Admit(b.node, activated(b.pldm("", "nvfw_vr.fwpkg", "9.9", "BMC", "BIOS", "SMA", "EROT", "CPLD1")))
			b.died(doomed, id)
			b.start(nil)
			j := b.Await(id)
			require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
			require.Equal(t, 1, b.actions("@install"))
			require.Equal(t, 1, b.actions("@power-cycle"))
			require.Equal(t, "9.9", b.sw.Version("SMA"))
		})
	}
}

// The agent dies while the BMC has to restart the switch.
func TestBMCCycleAgentDies(t *testing.T) {
	t.Parallel()
	// Behind the installation and the power cycle that had no effect.
	behind := crashtest.Death{Point: agent.FailAfterDeviceChange, N: 3}
	all := append(crashtest.InStages(runbook.FailInStage, "activate_bmc", "activate_bmc_wait"), behind)
	for _, d := range crashtest.Pick(all, behind) {
		t.Run(d.String(), func(t *testing.T) {
			b := newBench(t, func(o *nvswitch.Options) {
				o.Knobs.Actions = []nvswitch.ActionRule{{Verb: "@power-cycle", NoEffect: true}}
			})
			b.node, b.timing.CycleProbes = b.target(true), 5
			b.timing.VerifyAttempts, b.timing.VerifyInterval = 40, 50*time.Millisecond
			doomed := b.doomed(d.Point, d.N)
			id := b.Admit(b.node, activated(b.pldm("bmc", "nvfw_9.fwpkg", "9.9", "BMC")))
			b.died(doomed, id)
			b.start(nil)
			j := b.Await(id)
			cycles := len(b.sw.Requests(reqlog.Filter{Protocol: reqlog.Redfish, Method: "POST"}))
			require.LessOrEqual(t, cycles, 1)
			if cycles == 0 {
				// It was never asked, and nobody asks again blindly: the versions tell.
				require.Equal(t, job.FailureVersionMismatch, j.Failure.FailureCode, "%+v", j.Failure)
				return
			}
			require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
			require.Equal(t, "9.9", b.sw.Version("BMC"))
		})
	}
}

// The agent dies behind the power cycle and misses all of it, and the versions stay
// the old ones: the boot tells that the switch was cycled, which is not done again.
func TestMissedCycleIsNotRepeated(t *testing.T) {
	b := newBench(t, func(o *nvswitch.Options) { o.Knobs.FirmwareUnchanged = true })
	b.timing.VerifyAttempts = 3
	doomed := b.doomed(agent.FailAfterDeviceChange, 2)
	id := b.Admit(b.node, activated(b.pldm("bmc", "nvfw_9.fwpkg", "9.9", "BMC")))
	b.died(doomed, id)
	b.until("the restart", func() bool { return b.sw.Reboots() == 1 && b.sw.Up() })
	b.start(nil)
	j := b.Await(id)
	require.Equal(t, job.FailureVersionMismatch, j.Failure.FailureCode, "%+v", j.Failure)
	require.Equal(t, 1, b.actions("@power-cycle"))
	require.Equal(t, 1, b.sw.Reboots())
}
