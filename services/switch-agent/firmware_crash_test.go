// SPDX-License-Identifier: Apache-2.0

package switchagent_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/services/switch-agent/internal/runbook"
	"github.com/rackbus/rackbus/sim/nvswitch"
	"github.com/rackbus/rackbus/sim/reqlog"
)

// The agent dies in every stage; the next one ends the job, with one installation
// of each component and one power cycle.
func TestFirmwareAgentDies(t *testing.T) {
	t.Parallel()
	type death struct {
		point string
		n     int
	}
	deaths := []death{
		{agent.FailAfterClaim, 1}, {agent.FailAfterIntent, 1}, {agent.FailAfterIntent, 2}, {agent.FailAfterIntent, 3},
		{agent.FailAfterDeviceChange, 1}, {agent.FailAfterDeviceChange, 2}, {agent.FailAfterDeviceChange, 3},
		{agent.FailAfterDone, 1}, {agent.FailBeforeAck, 1},
	}
	for _, s := range []string{"check", "upload_1", "install_1", "monitor_1", "upload_2", "install_2", "monitor_2", "outcome", "activate", "activate_wait", "verify"} {
		deaths = append(deaths, death{runbook.FailInStage + s, 1})
	}
	for _, d := range deaths {
		t.Run(d.point+"#"+string(rune('0'+d.n)), func(t *testing.T) {
			b := newBench(t)
			doomed := b.doomed(d.point, d.n)
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
	deaths := map[string]int{agent.FailAfterIntent: 1, agent.FailAfterDeviceChange: 1}
	for _, s := range []string{"bundle_upload", "bundle_fetch", "bundle_install", "bundle_monitor"} {
		deaths[runbook.FailInStage+s] = 1
	}
	for point, n := range deaths {
		t.Run(point, func(t *testing.T) {
			b := newBench(t, func(o *nvswitch.Options) { o.Model = nvswitch.VRNVL72 })
			doomed := b.doomed(point, n)
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
	for point, n := range map[string]int{
		runbook.FailInStage + "activate_bmc": 1, runbook.FailInStage + "activate_bmc_wait": 1,
		// Behind the installation and the power cycle that had no effect.
		agent.FailAfterDeviceChange: 3,
	} {
		t.Run(point, func(t *testing.T) {
			b := newBench(t, func(o *nvswitch.Options) {
				o.Knobs.Actions = []nvswitch.ActionRule{{Verb: "@power-cycle", NoEffect: true}}
			})
			b.node, b.timing.CycleProbes = b.target(true), 5
			b.timing.VerifyAttempts, b.timing.VerifyInterval = 40, 50*time.Millisecond
			doomed := b.doomed(point, n)
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
