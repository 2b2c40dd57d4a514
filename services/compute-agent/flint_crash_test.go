// SPDX-License-Identifier: Apache-2.0

package computeagent_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/redfishagent"
	"github.com/rackbus/rackbus/pkg/redfishagent/agenttest"
	"github.com/rackbus/rackbus/sim/host"
)

// The agent dies, with -long in every stage; another one ends the job. No device is flashed
// twice, and the tray gets the one AUX cycle of its activation.
func TestFlintAgentDies(t *testing.T) {
	type death struct {
		point string
		n     int
		// command is one during which the agent is killed.
		command string
		aux     int
		faults  func(*hostBench) host.Faults
		// long leaves it to runs with -long.
		long bool
	}
	hidden := func(h *hostBench) host.Faults {
		return host.Faults{Hidden: h.host.Paths()[2:], HiddenUntilAUX: true}
	}
	for name, tt := range map[string]death{
		"in the discovery":           {command: "--yes query", aux: 1, long: true},
		"behind the recovery":        {point: agent.FailAfterDeviceChange, n: 1, aux: 2, faults: hidden},
		"while images are read":      {command: "flint -i", aux: 1, long: true},
		"before the flash":           {point: agent.FailAfterIntent, n: 1, aux: 1, long: true},
		"while devices are flashed":  {command: " b 2>/dev/null", aux: 1},
		"behind the first device":    {point: agent.FailAfterDeviceChange, n: 1, aux: 1},
		"behind the last device":     {point: agent.FailAfterDeviceChange, n: 3, aux: 1, long: true},
		"while images are removed":   {command: "rm -rf", aux: 1, long: true},
		"while the host starts":      {point: redfishagent.FailInStage + "host_ready", n: 1, aux: 1, long: true},
		"while versions are checked": {point: redfishagent.FailInStage + "verify", n: 1, aux: 1},
	} {
		if tt.long && !*long {
			continue
		}
		t.Run(name, func(t *testing.T) {
			h := newHostBench(t, func(o *host.Options) { o.Flash = 100 * time.Millisecond })
			h.node.InventoryProfile = "full"
			if tt.faults != nil {
				h.host.SetFaults(tt.faults(h))
			}
			var id job.ID
			if tt.point != "" {
				doomed := h.StartDoomed(tt.point, tt.n, h.inBand)
				id = h.Admit(h.node, h.nics())
				h.died(doomed, id)
			} else {
				h.host.SetFaults(host.Faults{Commands: []host.CommandFault{{Match: tt.command, Remaining: 1, Delay: time.Second}}})
				doomed := h.start(agenttest.Mortal)
				id = h.Admit(h.node, h.nics())
				ctx, cancel := context.WithTimeout(t.Context(), agenttest.Patience)
				defer cancel()
				require.NoError(t, h.host.WaitRunning(ctx, tt.command))
				doomed.Kill()
			}
			h.start()
			j := h.Await(id)
			require.Equal(t, uint64(2), j.Epoch)
			h.requireFlashed(j)
			require.Equal(t, tt.aux, h.posts(auxReset))
		})
	}
}

// A job that is asked to stop leaves no image behind, and no half written device.
func TestFlintCancel(t *testing.T) {
	for _, tt := range []struct {
		command string
		flashes []int
	}{
		{"--yes query", []int{0, 0, 0}},
		{"flint -i", []int{0, 0, 0}},
		{" b 2>/dev/null", []int{1, 1, 1}},
	} {
		t.Run(strings.TrimSpace(tt.command), func(t *testing.T) {
			h := newHostBench(t, func(o *host.Options) { o.Flash = 300 * time.Millisecond })
			h.host.SetFaults(host.Faults{Commands: []host.CommandFault{{Match: tt.command, Remaining: 1, Delay: 300 * time.Millisecond}}})
			h.start()
			id := h.Admit(h.node, h.nics())
			ctx, cancel := context.WithTimeout(t.Context(), agenttest.Patience)
			defer cancel()
			require.NoError(t, h.host.WaitRunning(ctx, tt.command))
			h.Cancel(id, job.CancelGraceful)
			j := h.Await(id)
			require.Equal(t, job.StateCancelled, j.State, "%+v", j.Failure)
			require.Equal(t, tt.flashes, h.flashes())
			require.Empty(t, h.host.Files())
			require.Zero(t, h.posts(auxReset))
		})
	}
	t.Run("terminated", func(t *testing.T) {
		h := newHostBench(t, func(o *host.Options) { o.Flash = 300 * time.Millisecond })
		h.start()
		id := h.Admit(h.node, h.nics())
		ctx, cancel := context.WithTimeout(t.Context(), agenttest.Patience)
		defer cancel()
		require.NoError(t, h.host.WaitRunning(ctx, " b 2>/dev/null"))
		h.Cancel(id, job.CancelTerminate)
		j := h.Await(id)
		require.Equal(t, job.StateTerminated, j.State, "%+v", j.Failure)

		// The host goes on writing. The next job neither disturbs that nor writes again,
		// and brings the versions into force.
		h.host.SetFaults(host.Faults{ShowRunning: true})
		h.requireFlashed(h.run(h.nics()))
		require.Equal(t, 1, h.posts(auxReset), "no recovery in the middle of a flash")
	})
}
