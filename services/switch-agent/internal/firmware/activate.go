// SPDX-License-Identifier: Apache-2.0

package firmware

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/redfish"
	"github.com/rackbus/rackbus/services/switch-agent/internal/device"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nvue"
)

// cycleState is what an update has learned about the power cycle that brings
// firmware into force.
type cycleState struct {
	// AskedAt is when the switch may have been asked, ActionID the action, Sent that
	// it took it.
	AskedAt time.Time `json:"asked_at,omitzero"`
	// Boot is the boot of the operating system before, empty where that cannot be read.
	Boot     string        `json:"boot,omitempty"`
	ActionID nvue.ActionID `json:"action_id,omitempty"`
	Sent     bool          `json:"sent,omitempty"`
	// Away says that the switch was seen down, Back that it is up again.
	Away bool `json:"away,omitempty"`
	Back bool `json:"back,omitempty"`
	// Fault is why the BMC had to do it.
	Fault string `json:"fault,omitempty"`
	// ByBMC says that it did, after Attempts reads of the power state.
	ByBMC    bool `json:"by_bmc,omitempty"`
	Attempts int  `json:"attempts,omitempty"`
}

func (c *cycleState) over() bool { return c.Back }

// activation are the stages that bring installed firmware into force.
func (u *update) activation() []agent.Stage {
	t := &u.u.opts.Timing
	return []agent.Stage{
		{
			Name: "activate", Description: "Power-cycling the switch",
			Resume: agent.Once, Prepare: u.activating(u.prepareCycle), Run: u.activating(u.cycle), Observe: u.observeCycle,
			Limit: t.Inventory, SwitchesPower: true,
		},
		{
			Name: "activate_wait", Description: "Waiting for the switch to restart",
			Resume: agent.Resumable, Run: u.activating(u.awaitCycle),
			Limit: time.Duration(t.CycleProbes) * (t.CyclePoll + t.CycleProbe), SwitchesPower: true,
		},
		{
			Name: "activate_bmc", Description: "Power-cycling the switch through its BMC",
			Resume: agent.Once, Run: u.recovering(u.cycleBMC), Limit: t.Inventory, SwitchesPower: true,
			// Whether the BMC took it shows in what follows: the power, and the versions.
			Observe: func(context.Context) (agent.Observation, error) { return agent.ObservedDone, nil },
		},
		{
			Name: "activate_bmc_wait", Description: "Waiting for the power of the switch",
			Resume: agent.Resumable, Run: u.recovering(u.awaitBMC), Limit: t.BMCLimit + t.BMCGrace, SwitchesPower: true,
		},
		{
			Name: "verify", Description: "Verifying activated firmware versions",
			Resume: agent.Repeatable, Interruptible: true, Run: u.activating(u.verify),
		},
	}
}

// activating skips a stage when nothing was installed.
func (u *update) activating(run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		u.current = nil
		if !u.applied() {
			return agent.Skip("nothing was installed")
		}
		return run(ctx)
	}
}

// recovering skips a stage unless the switch could not restart itself.
func (u *update) recovering(run func(context.Context) error) func(context.Context) error {
	return u.activating(func(ctx context.Context) error {
		if u.state.Cycle.Fault == "" {
			return agent.Skip("the switch restarted itself")
		}
		return run(ctx)
	})
}

func (u *update) prepareCycle(ctx context.Context) error {
	boot, err := u.boot(ctx)
	if err != nil {
		return err
	}
	u.state.Cycle = cycleState{AskedAt: time.Now().UTC(), Boot: boot}
	return u.save()
}

// boot names the present boot of the operating system, empty where SSH does not tell.
func (u *update) boot(ctx context.Context) (string, error) {
	boot, err := u.sw.BootID(ctx, u.sw.Login, 0)
	if err != nil && (device.Passes(err) || ctx.Err() != nil) {
		return "", err
	}
	if err != nil {
		u.t.Logger().Debug("boot of the switch not read", "op", "activate", "err", err)
	}
	return boot, nil
}

// cycle asks the switch to power-cycle itself.
func (u *update) cycle(ctx context.Context) error {
	c, err := u.client(ctx, u.u.opts.Timing.Inventory)
	if err == nil {
		var id nvue.ActionID
		if id, err = c.StartAction(ctx, nvue.PowerCycle()); err == nil {
			u.t.InFlight("power cycle, action " + string(id))
			if err := u.t.Failpoint(agent.FailAfterDeviceChange); err != nil {
				return err
			}
			u.state.Cycle.ActionID, u.state.Cycle.Sent = id, true
			return u.save()
		}
	}
	if device.Passes(err) || ctx.Err() != nil {
		return err
	}
	if nvue.OutcomeUnknown(err) {
		// It may be at it: that it goes down is waited for before anybody else does it.
		u.t.Logger().Warn("the switch did not answer to its power cycle", "op", "activate", "err", err)
		u.state.Cycle.Sent = true
		return u.save()
	}
	return u.resort(err)
}

// resort leaves the power cycle to the BMC, where that may help.
func (u *update) resort(err error) error {
	if _, ok := u.sw.BMC(); !ok || !nvue.Retryable(err) && !errors.Is(err, errNoCycle) {
		return fail(phaseActivation, "", err)
	}
	u.state.Cycle.Fault = err.Error()
	u.t.Logger().Warn("the switch cannot power-cycle itself, its BMC has to", "op", "activate", "err", err)
	return u.save()
}

// goesDown watches for a power cycle that may have been asked for.
func (u *update) goesDown(ctx context.Context) (bool, error) {
	t := &u.u.opts.Timing
	for end := time.Now().Add(t.CycleSettle); ; {
		if err := u.probe(ctx, t.CycleProbe); err != nil {
			if !passing(err) {
				return false, err
			}
			return true, nil
		}
		if !time.Now().Before(end) {
			return false, nil
		}
		if err := u.t.Sleep(ctx, t.CyclePoll); err != nil {
			return false, err
		}
	}
}

// observeCycle finds out whether an interrupted activation has asked the switch: it
// goes down, was booted since, or is up again with the new versions. A switch that
// was not booted was never asked; where that cannot be told, neither was one that
// had no time for a restart in between.
func (u *update) observeCycle(ctx context.Context) (agent.Observation, error) {
	c := &u.state.Cycle
	if c.Sent || c.Fault != "" {
		return agent.ObservedDone, nil
	}
	fresh := time.Since(c.AskedAt) < u.u.opts.Timing.CycleSettle
	down, err := u.goesDown(ctx)
	if err != nil {
		return agent.ObservedUnknown, err
	}
	if down {
		return u.wasCycled()
	}
	booted, told, err := u.booted(ctx)
	switch {
	case err != nil:
		return agent.ObservedUnknown, err
	case booted:
		return u.wasCycled()
	case told:
		return agent.ObservedNotStarted, nil
	}
	report, err := u.compare(ctx)
	switch {
	case err != nil:
		return agent.ObservedUnknown, err
	case report.Status == redfish.VersionMatched:
		return u.wasCycled()
	case fresh:
		return agent.ObservedNotStarted, nil
	default:
		return agent.ObservedUnknown, nil
	}
}

func (u *update) wasCycled() (agent.Observation, error) {
	u.state.Cycle.Sent, u.state.Cycle.Away = true, true
	return agent.ObservedDone, u.save()
}

// booted reports whether the switch was booted since the activation began; told says
// that both boots could be read.
func (u *update) booted(ctx context.Context) (booted, told bool, err error) {
	before := u.state.Cycle.Boot
	if before == "" {
		return false, false, nil
	}
	now, err := u.boot(ctx)
	told = now != ""
	return told && now != before, told, err
}

// awaitCycle waits until the switch was away and is back.
func (u *update) awaitCycle(ctx context.Context) error {
	c, t := &u.state.Cycle, &u.u.opts.Timing
	if c.Fault != "" {
		return agent.Skip("the switch could not be asked: " + c.Fault)
	}
	for range t.CycleProbes {
		if err := u.lookAtCycle(ctx); err != nil {
			return err
		}
		err := u.probe(ctx, t.CycleProbe)
		switch {
		case err == nil && c.Away:
			c.Back = true
			return u.save()
		case err != nil && !passing(err):
			return fail(phaseActivation, "", err)
		case err != nil && !c.Away:
			c.Away = true
			if err := u.t.Save(ctx, u.state); err != nil {
				return err
			}
		}
		if err := u.t.Sleep(ctx, t.CyclePoll); err != nil {
			return err
		}
	}
	text := fmt.Sprintf("it answered all of %d probes", t.CycleProbes)
	if c.Away {
		text = fmt.Sprintf("it was away and did not answer within %d probes", t.CycleProbes)
	}
	return u.resort(noCycle("%s", text))
}

// lookAtCycle reads the action of the power cycle while the switch was not seen away:
// it forgets its actions when it restarts, so that a restart shows which no probe has
// met. Without an action the boot tells.
func (u *update) lookAtCycle(ctx context.Context) error {
	c := &u.state.Cycle
	if c.Away {
		return nil
	}
	if c.ActionID == "" {
		booted, _, err := u.booted(ctx)
		c.Away = booted
		return err
	}
	status, err := u.readOnce(ctx, c.ActionID)
	switch {
	case err == nil && status.Verdict == nvue.ActionFailed:
		return fail(phaseActivation, "", fmt.Errorf("the switch refuses its power cycle: %s (state %s)", orNone(status.Text()), status.State))
	case errors.Is(err, nvue.ErrActionGone):
		c.Away = true
	case err != nil && !passing(err):
		return fail(phaseActivation, "", err)
	}
	return nil
}

// cycleBMC power-cycles the switch from outside.
func (u *update) cycleBMC(ctx context.Context) error {
	bmc, _ := u.sw.BMC()
	u.t.Describe("Power-cycling the switch through its BMC")
	if err := bmc.Power(ctx, redfish.PowerReset); err != nil {
		return fail(phaseActivation, "", device.Uncertain(err))
	}
	if err := u.t.Failpoint(agent.FailAfterDeviceChange); err != nil {
		return err
	}
	u.state.Cycle.ByBMC = true
	return u.save()
}

func (u *update) awaitBMC(ctx context.Context) error {
	bmc, _ := u.sw.BMC()
	c, t := &u.state.Cycle, &u.u.opts.Timing
	c.ByBMC = true
	for end := time.Now().Add(t.BMCLimit); ; {
		c.Attempts++
		reading, err := bmc.PowerState(ctx)
		if err == nil && reading.State == redfish.PowerStateOn {
			break
		}
		if device.Passes(err) || ctx.Err() != nil {
			return err
		}
		if !time.Now().Before(end) {
			return fail(phaseActivation, "", errors.Join(fmt.Errorf("the power of the switch did not read On within %s, last %s", t.BMCLimit, reading.State), err))
		}
		if err := u.t.Sleep(ctx, t.BMCPoll); err != nil {
			return err
		}
	}
	if err := u.t.Sleep(ctx, t.BMCGrace); err != nil {
		return err
	}
	c.Back = true
	return u.save()
}
