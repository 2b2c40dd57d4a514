// SPDX-License-Identifier: Apache-2.0

package redfish

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/stmcginnis/gofish/schemas"

	"github.com/rackbus/rackbus/pkg/product"
)

// Step is one part of an activation. A workflow checkpoints between steps.
type Step = product.Step

// The steps. What each does is told where product declares them.
const (
	StepForceOff     = product.StepForceOff
	StepWaitOff      = product.StepWaitOff
	StepPauseOff     = product.StepPauseOff
	StepAuxCycle     = product.StepAuxCycle
	StepAuxSettle    = product.StepAuxSettle
	StepWaitBMC      = product.StepWaitBMC
	StepPowerOn      = product.StepPowerOn
	StepWaitOn       = product.StepWaitOn
	StepKeepOn       = product.StepKeepOn
	StepManagerReset = product.StepManagerReset
	StepWaitManager  = product.StepWaitManager
)

// Activation is how new firmware comes into force on a product.
type Activation = product.Activation

// ActivationState is what one step leaves for a later one. It is plain data, to
// be kept in the checkpoint.
type ActivationState struct {
	// Force makes StepManagerReset a forced restart.
	Force bool `json:"force,omitempty"`
	// Manager is the manager before the last step that restarts it.
	Manager *ManagerState `json:"manager,omitempty"`
}

// PrepareStep reads what is needed to tell later whether a step that must not be
// repeated has happened. A workflow calls it before it records its intent; it
// does nothing for other steps.
func (c *Client) PrepareStep(ctx context.Context, step Step, state *ActivationState) error {
	if !step.Once() {
		return nil
	}
	r, _, err := c.manager(ctx, "prepare "+string(step))
	if r == nil {
		return err
	}
	before := managerState(r)
	state.Manager = &before
	return nil
}

// StepHappened tells, after a lost answer or a change of the worker, whether a
// prepared step has restarted the manager. False of a manager that told its starts
// means that there was none since; of any other, that nothing shows it.
func (c *Client) StepHappened(ctx context.Context, step Step, state *ActivationState) (bool, error) {
	if !step.Once() || state == nil || state.Manager == nil {
		return false, invalid("inspect "+string(step), "the step was not prepared")
	}
	return c.restartedSince(ctx, "inspect "+string(step), *state.Manager)
}

// ErrPowerState is wrapped when the host did not reach a power state in time.
var ErrPowerState = errors.New("the host did not reach the power state in time")

// RunStep performs one step.
func (c *Client) RunStep(ctx context.Context, step Step, state *ActivationState) error {
	if state == nil {
		state = &ActivationState{}
	}
	switch step {
	case StepForceOff:
		return c.powerStep(ctx, "power off for activation", schemas.ForceOffResetType)
	case StepWaitOff:
		return c.WaitPower(ctx, PowerStateOff, c.timing.PowerOffLimit)
	case StepPauseOff:
		return sleep(ctx, "pause after power off", c.timing.PowerOffSettle)
	case StepAuxCycle:
		return c.auxStep(ctx, state)
	case StepAuxSettle:
		return sleep(ctx, "settle after AUX cycle", c.timing.AuxSettle)
	case StepWaitBMC:
		return c.WaitBMC(ctx)
	case StepPowerOn:
		return c.powerStep(ctx, "power on after activation", schemas.OnResetType)
	case StepWaitOn:
		return c.WaitPower(ctx, PowerStateOn, c.timing.PowerOnLimit)
	case StepKeepOn:
		return c.keepOn(ctx)
	case StepManagerReset:
		manager, err := c.ResetManager(ctx, state.Force)
		state.Manager = &manager
		return err
	case StepWaitManager:
		if state.Manager == nil {
			return invalid("wait for manager", "the manager was not reset")
		}
		_, err := c.WaitManager(ctx, *state.Manager)
		return err
	default:
		return invalid("activate firmware", "unknown activation step "+string(step))
	}
}

// Activate runs all steps of the product, with its extra rounds. before, when
// set, is called ahead of each step and may stop the activation; it is where a
// caller without checkpoints of its own reports progress.
func (c *Client) Activate(ctx context.Context, state *ActivationState, before func(Step, int) error) error {
	if state == nil {
		state = &ActivationState{}
	}
	plan := c.profile.Activation
	from := 0
	for round := 1; ; round++ {
		var err error
		for i := from; i < len(plan.Steps); i++ {
			step := plan.Steps[i]
			if before != nil {
				if err := before(step, round); err != nil {
					return err
				}
			}
			if err = c.RunStep(ctx, step, state); err != nil {
				break
			}
		}
		if err == nil || !errors.Is(err, ErrPowerState) || round >= plan.Rounds {
			return err
		}
		if from = indexOf(plan.Steps, plan.RepeatFrom); from < 0 {
			return err
		}
		c.log.Warn("host did not come on, next round", slog.Int("attempt", round), slog.String("err", err.Error()))
	}
}

func indexOf(steps []Step, step Step) int {
	for i, s := range steps {
		if s == step {
			return i
		}
	}
	return -1
}

// powerStep sends a ResetType, and again while the BMC cannot take it, or refuses it for
// a transition that is under way. ForceOff and On say what shall be, so repeating one
// whose answer was lost is harmless. A refusal is returned at once, unless the host is
// there already: after a change of the worker it often is, and some BMCs refuse what
// changes nothing.
func (c *Client) powerStep(ctx context.Context, op string, resetType schemas.ResetType) error {
	for attempt := 1; ; attempt++ {
		err := c.resetSystem(ctx, resetType)
		if err == nil || hopeless(ctx, err) {
			return err
		}
		if status := statusOf(err); status >= http.StatusBadRequest && status < http.StatusInternalServerError && c.isThere(ctx, resetType) {
			c.log.Info("power command refused by a host that is there already", slog.String("op", op), slog.String("err", err.Error()))
			return nil
		}
		// A power-on that meets a transition was repeated already.
		passing := transient(err) || resetType == schemas.ForceOffResetType && refusedInTransition(err)
		if !passing || attempt >= c.timing.StepAttempts {
			return err
		}
		c.log.Info("power command not taken, trying again", slog.String("op", op), slog.Int("attempt", attempt), slog.String("err", err.Error()))
		if err := sleep(ctx, op, pause(c.timing.StepInterval, err)); err != nil {
			return err
		}
	}
}

// isThere reports whether the host is in the state that a power command leads to.
func (c *Client) isThere(ctx context.Context, resetType schemas.ResetType) bool {
	want := PowerStateOn
	if resetType == schemas.ForceOffResetType {
		want = PowerStateOff
	}
	read, err := c.PowerState(ctx)
	return err == nil && read.State == want
}

// AuxCycle cuts and restores the standby power of a tray. The host has to be
// off: NVIDIA BMCs refuse it otherwise (ChassisPowerStateOffRequired), which is
// returned at once as CodeFailedPrecondition.
func (c *Client) AuxCycle(ctx context.Context) error {
	const op = "AUX power cycle"
	list, err := c.collection(ctx, op, rootPath+"/Chassis")
	if err != nil {
		return err
	}
	slices.SortStableFunc(list.members, func(a, b string) int { return rank(a, c.profile.BMCID) - rank(b, c.profile.BMCID) })
	var skipped error
	for _, path := range list.members {
		chassis, err := c.member(ctx, op, path)
		if err != nil {
			if hopeless(ctx, err) {
				return err
			}
			skipped = first(skipped, err)
			continue
		}
		aux, err := c.action(op, chassis, "#NvidiaChassis.AuxPowerReset")
		if err != nil {
			if !errors.Is(err, ErrNoAction) {
				skipped = first(skipped, err)
			}
			continue
		}
		return c.post(ctx, op, aux.target, map[string]string{"ResetType": "AuxPowerCycle"})
	}
	if skipped != nil {
		return skipped
	}
	return &Error{Op: op, Code: CodeFailedPrecondition, reason: "no chassis offers an AUX power cycle", cause: ErrNoAction}
}

// auxStep cycles and, when the answer was lost because the BMC lost its power
// first, waits for proof of it.
func (c *Client) auxStep(ctx context.Context, state *ActivationState) error {
	if state.Manager == nil {
		err := c.PrepareStep(ctx, StepAuxCycle, state)
		if err != nil && hopeless(ctx, err) {
			return err
		}
		if err != nil {
			// Without it a lost answer stays unknown; the cycle itself is possible.
			state.Manager = &ManagerState{UptimeSeconds: -1}
		}
	}
	err := c.AuxCycle(ctx)
	if !lost(ctx, err) {
		return err
	}
	c.log.Info("answer to the AUX cycle was lost", slog.String("err", err.Error()))
	_, waitErr := c.waitRestart(ctx, "wait for compute BMC after AUX cycle", *state.Manager, c.timing.BMCProbe, c.timing.BMCLimit)
	if waitErr != nil && !hopeless(ctx, waitErr) {
		return err
	}
	return waitErr
}

// lost reports a change whose answer never came.
func lost(ctx context.Context, err error) bool {
	e, ok := asError(err)
	return ok && e.Status == 0 && e.OutcomeUnknown() && !hopeless(ctx, err)
}

// WaitPower waits until the host reads a state. Reads that fail are repeated.
func (c *Client) WaitPower(ctx context.Context, want PowerState, limit time.Duration) error {
	return c.waitPower(ctx, want, limit, nil)
}

// keepOn waits for On and repeats the command while the host reads Off.
func (c *Client) keepOn(ctx context.Context) error {
	repeat := within(c.timing.PowerOnRepeat)
	return c.waitPower(ctx, PowerStateOn, c.timing.PowerOnLongLimit, func(read PowerReading) error {
		if read.State != PowerStateOff || repeat.left() > 0 {
			return nil
		}
		repeat = within(c.timing.PowerOnRepeat)
		err := c.resetSystem(ctx, schemas.OnResetType)
		if err != nil && (hopeless(ctx, err) || !transient(err)) {
			return err
		}
		return nil
	})
}

func (c *Client) waitPower(ctx context.Context, want PowerState, limit time.Duration, each func(PowerReading) error) error {
	const op = "wait for power state"
	end := within(limit)
	for {
		read, err := c.PowerState(ctx)
		switch {
		case err != nil && hopeless(ctx, err):
			return err
		case err == nil && read.State == want:
			return nil
		case err == nil && each != nil:
			if err := each(read); err != nil {
				return err
			}
		}
		wait := pause(c.timing.PowerPoll, err)
		if end.passedAfter(wait) {
			e := fault(op, CodeTimeout, "wanted %s within %s, last read %s %s", want, limit, read.State, read.Raw)
			e.cause = ErrPowerState
			if err != nil {
				e.cause = errors.Join(ErrPowerState, err)
			}
			return e
		}
		if err := sleep(ctx, op, wait); err != nil {
			return err
		}
	}
}

// WaitBMC waits until the BMC serves its root again.
func (c *Client) WaitBMC(ctx context.Context) error {
	const op = "wait for compute BMC after activation"
	end := within(c.timing.BMCLimit)
	for {
		if err := sleep(ctx, op, c.timing.BMCProbe); err != nil {
			return err
		}
		_, err := c.get(ctx, op, rootPath)
		if err == nil || hopeless(ctx, err) {
			return err
		}
		if end.passedAfter(c.timing.BMCProbe) {
			return &Error{Op: op, Code: CodeTimeout, reason: "the BMC did not come back", cause: err}
		}
	}
}
