// SPDX-License-Identifier: Apache-2.0

package computeagent_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/redfishagent"
	"github.com/rackbus/rackbus/pkg/redfishagent/agenttest"
	"github.com/rackbus/rackbus/sim"
	"github.com/rackbus/rackbus/sim/bmc"
	"github.com/rackbus/rackbus/sim/faults"
	"github.com/rackbus/rackbus/sim/reqlog"
)

// hung makes the update service unavailable until the tray gets an AUX cycle.
func (b *bench) hung() {
	b.t.Helper()
	id, err := b.rack.AddFault(faults.Rule{
		Selector: faults.Resource("/redfish/v1/UpdateService"), Action: faults.Action{Status: &faults.Status{Code: 503}},
	})
	require.NoError(b.t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if _, err := b.rack.WaitRequests(b.t.Context(), b.tray.ID(), reqlog.Filter{Path: "**/" + auxReset, Method: "POST"}, 1); err == nil {
			b.rack.RemoveFault(id)
		}
	}()
	b.t.Cleanup(func() { <-done })
}

// impatient agents give a BMC little time to become ready.
func impatient(o *agenttest.AgentOptions) { o.Timing.Redfish.ReadyLimit = 100 * time.Millisecond }

// A BMC that is there but does not serve its update service gets one AUX cycle,
// before anything is sent, where the update would take the host down anyway.
func TestUnreachableNodeIsRecovered(t *testing.T) {
	t.Parallel()
	for model, option := range map[string]func(*sim.Options){"GB200": func(*sim.Options) {}, "GB300": gb300} {
		t.Run(model, func(t *testing.T) {
			b := newBench(t, option)
			b.hung()
			b.Start(impatient)
			j := b.run(activated(b.pldm("nvfw_P4972_9.fwpkg", "99.01", "BMC")))
			require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
			require.Equal(t, job.StageCompleted, j.Stage("recover").Status)
			require.Equal(t, job.StageCompleted, j.Stage("recover_power").Status)
			require.Equal(t, 2, b.posts(auxReset), "one for the recovery, one for the activation")
			require.Equal(t, "99.01", b.tray.Version("FW_BMC_0"))
			require.Equal(t, bmc.PowerOn, b.tray.PowerState())
		})
	}
}

func TestRecoveryThatDoesNotHelp(t *testing.T) {
	t.Parallel()
	t.Run("still hung", func(t *testing.T) {
		b := newBench(t, gb300)
		_, err := b.rack.AddFault(faults.Rule{
			Selector: faults.Resource("/redfish/v1/UpdateService"), Action: faults.Action{Status: &faults.Status{Code: 503}},
		})
		require.NoError(t, err)
		b.Start(impatient)
		j := b.run(activated(b.pldm("nvfw_P4972_9.fwpkg", "99.01", "BMC")))
		require.Equal(t, job.StateFailed, j.State)
		require.Contains(t, j.Failure.Message, "(after BMC aux powercycle recovery)")
		require.Equal(t, 1, b.posts(auxReset), "once and not again")
		require.Equal(t, bmc.PowerOn, b.tray.PowerState(), "the host is on again")
		require.Empty(t, b.files())
	})
	t.Run("the cycle is refused", func(t *testing.T) {
		b := newBench(t, gb300)
		b.hung()
		_, err := b.rack.AddFault(faults.Rule{
			Selector: faults.Request("POST", "**/"+auxReset), Action: faults.Action{Status: &faults.Status{Code: 400}},
		})
		require.NoError(t, err)
		b.Start(impatient)
		j := b.run(activated(b.pldm("nvfw_P4972_9.fwpkg", "99.01", "BMC")))
		require.Equal(t, job.StateFailed, j.State)
		require.Contains(t, j.Failure.Message, "BMC aux powercycle recovery failed: ")
		require.Equal(t, "update", decode(t, j.ResultJSON)["phase"])
	})
	// Through a BMC that takes no connections nothing can be cycled.
	t.Run("no connections", func(t *testing.T) {
		b := newBench(t)
		b.Start(func(o *agenttest.AgentOptions) { o.Timing.Redfish.ReadyLimit = agenttest.Patience })
		_, err := b.rack.AddFault(faults.Rule{Action: faults.Action{Refuse: true}})
		require.NoError(t, err)
		began := time.Now()
		j := b.run(activated(b.pldm("nvfw_P4972_9.fwpkg", "99.01", "BMC")))
		require.Equal(t, job.StateFailed, j.State)
		require.Equal(t, job.FailureBMCUnreachable, j.Failure.FailureCode)
		require.Equal(t, job.StageSkipped, j.Stage("recover").Status)
		require.Equal(t, job.StageFailed, j.Stage("check").Status)
		require.Less(t, time.Since(began), agenttest.Patience, "it is told at once")
	})
	t.Run("nobody asked for an activation", func(t *testing.T) {
		b := newBench(t)
		b.hung()
		b.Start(impatient)
		j := b.run(update(b.pldm("nvfw_P4972_9.fwpkg", "99.01", "BMC")))
		require.Equal(t, job.StateFailed, j.State)
		require.Zero(t, b.posts(auxReset)+b.posts(hostReset), "the host is not touched")
		require.NotContains(t, j.StageNames(), "recover")
		// The waiter of the fault ends with it.
		b.rack.ClearFaults()
	})
	t.Run("credentials refused", func(t *testing.T) {
		b := newBench(t)
		b.Start(impatient)
		b.tray.SetAccount("admin", "another")
		j := b.run(activated(b.pldm("nvfw_P4972_9.fwpkg", "99.01", "BMC")))
		require.Equal(t, job.FailureBMCAuthFailed, j.Failure.FailureCode)
		require.Equal(t, job.StageSkipped, j.Stage("recover").Status)
		require.Zero(t, b.posts(auxReset))
	})
}

func TestAgentDiesWhileItRecovers(t *testing.T) {
	t.Parallel()
	for name, point := range map[string]string{
		"before the cycle": redfishagent.FailInStage + "recover", "behind the cycle": agent.FailAfterDeviceChange,
		"before the host is on": redfishagent.FailInStage + "recover_power",
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, gb300)
			b.hung()
			doomed := b.StartDoomed(point, 1, impatient)
			id := b.Admit(b.node, activated(b.pldm("nvfw_P4972_9.fwpkg", "99.01", "BMC")))
			b.died(doomed, id)
			b.Start()
			j := b.Await(id)
			require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
			require.Equal(t, 2, b.posts(auxReset))
			require.Equal(t, bmc.PowerOn, b.tray.PowerState())
		})
	}
}
