// SPDX-License-Identifier: Apache-2.0

package coldreboot

import (
	"context"
	"fmt"
	"time"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

// Names of the stages, which results publish.
const (
	stageShutdown   = "prestage_shutdown_compute"
	stageDown       = "prestage_verify_compute_down"
	stageShelvesOff = "power_off_shelves"
	stageDischarged = "verify_discharged"
	stageShelvesOn  = "power_on_shelves"
	stageBMCUp      = "verify_bmc_up"
	stageNVOS       = "verify_nvos_ready"
	stageComputeOn  = "power_on_compute"
	stageBoot       = "wait_compute_boot"
)

// step is a stage with the number that the runbook gives it. Steps 9 and 13 of the
// runbook are for people and have none.
type step struct {
	name, number, description string
	// waits says that the stage changes nothing and may be cut anywhere.
	waits bool
	run   func(ctx context.Context) error
}

func (s *sequence) steps() []step {
	return []step{
		{stageShutdown, "0", "Gracefully shutting down compute trays", false, s.shutDown},
		{stageDown, "0", "Waiting for compute trays to power down", true, s.gate(stageDown, func() gate {
			return gate{s.computes, s.timing.PrestageFloor, s.timing.PrestagePollMax, isOff}
		})},
		{stageShelvesOff, "1", "Powering off power shelves", false, s.power(stageShelvesOff, func() action {
			return action{s.shelves, rackmanager.PowerOperation_POWER_OPERATION_OFF, powerOff, s.timing.ActionSettle}
		})},
		{stageDischarged, "2-3", "Waiting for capacitor discharge (tray BMCs unreachable)", true, s.gate(stageDischarged, func() gate {
			return gate{s.trays(), s.timing.DischargeFloor, s.timing.DischargePollMax, isUnreachable}
		})},
		{stageShelvesOn, "4", "Powering on power shelves", false, s.power(stageShelvesOn, func() action {
			return action{s.shelves, rackmanager.PowerOperation_POWER_OPERATION_ON, powerOn, s.timing.ActionSettle}
		})},
		{stageBMCUp, "5-6", "Waiting for tray BMCs to become reachable", true, s.gate(stageBMCUp, func() gate {
			return gate{s.trays(), s.timing.BMCUpFloor, s.timing.BMCUpPollMax, isReachable}
		})},
		{stageNVOS, "7-8", "Waiting for switch NVOS readiness (nvue hello)", true, s.awaitNVOS},
		{stageComputeOn, "10", "Powering on compute nodes", false, s.power(stageComputeOn, func() action {
			return action{s.computes, rackmanager.PowerOperation_POWER_OPERATION_ON, powerOn, s.timing.ActionSettle}
		})},
		{stageBoot, "11-12", "Waiting for compute OS boot", true, s.awaitBoot},
	}
}

// shutDown makes sure that there is somebody to ask before it changes anything:
// a rack must not be taken down by a job that cannot bring it up again.
func (s *sequence) shutDown(ctx context.Context) error {
	if !s.memory.touched(stageShutdown) {
		if err := s.checkAgents(ctx); err != nil {
			return err
		}
	}
	return s.power(stageShutdown, func() action {
		// A host that has not gone down by then has not taken the request.
		return action{s.computes, rackmanager.PowerOperation_POWER_OPERATION_GRACEFUL_SHUTDOWN, powerOff, s.timing.PrestagePollMax}
	})(ctx)
}

// limit is how long a power stage may take until it can be left: while an agent acts
// for it, and devices of which no answer came may still do what they were told.
func (s *sequence) limit(st *step) time.Duration {
	switch {
	case st.waits:
		return 0
	case st.name == stageShutdown:
		return s.timing.ActionLimit + s.timing.PrestagePollMax
	default:
		return s.timing.ActionLimit + s.timing.ActionSettle
	}
}

// Point is the crash point at the begin of a stage.
func Point(stage string) string { return "coldreboot." + stage }

// StageNames returns the stages in their order.
func StageNames() []string {
	var names []string
	for _, st := range (&sequence{}).steps() {
		names = append(names, st.name)
	}
	return names
}

// stages are the steps as the runtime runs them. All of them leave a mark when
// they have ended: a gate must not be passed again once the stage behind it has
// begun, because what it looked for is not true any more then. Power stages are
// left only where no agent acts for them.
func (s *sequence) stages() []agent.Stage {
	steps := s.steps()
	out := make([]agent.Stage, len(steps))
	for i, st := range steps {
		text := fmt.Sprintf("Rack reboot step %s: %s", st.number, st.description)
		out[i] = agent.Stage{
			Name: st.name, Description: st.description, Text: text,
			Resume: agent.Resumable, Interruptible: st.waits, Limit: s.limit(&st), SwitchesPower: true,
			Run: func(ctx context.Context) error {
				s.t.Progress(100*i/len(steps), text)
				if err := s.t.Failpoint(Point(st.name)); err != nil {
					return err
				}
				return st.run(ctx)
			},
		}
	}
	return out
}
