// SPDX-License-Identifier: Apache-2.0

package redfishagent

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/redfish"
)

// recoveryState is the AUX cycle that is to bring back a node which does not
// answer.
type recoveryState struct {
	// Needed says that the node did not answer, with the words of the last try.
	Needed string `json:"needed,omitempty"`
	// Activation is the cycle itself.
	Activation activationState `json:"activation"`
	// Done says that the cycle has happened.
	Done bool `json:"done,omitempty"`
}

const textRecoveryFailed = "BMC aux powercycle recovery failed: "

// recoveryStages bring back a node whose BMC is there but does not serve its
// update service. They take the host down, so they are part only of updates whose
// caller has asked for an activation, which does the same; and they come before
// anything was sent, because an AUX cycle in the middle of a flash breaks the
// component.
func (u *update) recoveryStages() []agent.Stage {
	r := &recovery{u}
	cycle, rest := r.steps()
	return []agent.Stage{{
		Name: "recover", Description: "Making sure that the BMC answers",
		Resume: agent.Once, Prepare: r.prepare, Run: r.cycle, Observe: r.observe,
		Attempts: activationAttempts, Pause: u.d.opts.Timing.TaskPoll.Interval, Limit: u.stepsLimit(cycle),
		SwitchesPower: true,
	}, {
		Name: "recover_power", Description: "Waiting for the node after its recovery",
		Resume: agent.Resumable, Run: r.power, Limit: u.stepsLimit(rest) + u.d.opts.Timing.RecoveryGrace,
		SwitchesPower: true,
	}}
}

type recovery struct{ u *update }

// steps are those of the activation, split behind the one that happens once.
func (r *recovery) steps() (cycle, rest []redfish.Step) {
	steps := r.u.c.Profile().Activation.Steps
	n := slices.IndexFunc(steps, redfish.Step.Once) + 1
	return steps[:n], steps[n:]
}

// prepare skips the recovery unless the node cannot be reached for as long as a
// BMC may take to start.
func (r *recovery) prepare(ctx context.Context) error {
	u := r.u
	_, err := u.c.UpdateService(ctx)
	if curable(err) {
		u.t.Progress(0, "Waiting for the update service of the BMC")
		err = u.c.WaitReady(ctx)
	}
	if !curable(err) {
		// Other errors are told by the check, with its phase.
		return agent.Skip("no fault that an AUX power cycle may cure")
	}
	switch task, running, terr := u.c.RunningUpdate(ctx); {
	case terr != nil:
		return r.fail(terr)
	case running:
		// It may well be what keeps the BMC busy, and would be broken by the cycle.
		return agent.Skip(fmt.Sprintf("the device runs an update task: %s", task.Ref))
	}
	u.state.Recovery = recoveryState{Needed: err.Error()}
	if perr := u.c.PrepareStep(ctx, redfish.StepAuxCycle, &u.state.Recovery.Activation.Device); perr != nil && !transient(perr) {
		return r.fail(perr)
	}
	u.t.Logger().Warn("node does not answer, an AUX power cycle follows", "op", "recover", "err", err)
	return u.save()
}

// curable reports a BMC that is there and does not do its work. One that takes no
// connections takes no order for an AUX cycle either.
func curable(err error) bool { return unreachable(err) && !noConnection(err) }

// unreachable reports a node that refuses connections, does not answer in time or
// calls itself unavailable. A name that does not resolve is no fault of the node.
func unreachable(err error) bool {
	var device *redfish.Error
	if !errors.As(err, &device) {
		return false
	}
	switch device.Code {
	case redfish.CodeConnectionRefused, redfish.CodeTimeout, redfish.CodeUnavailable:
		return true
	default:
		return false
	}
}

// afterRecovery marks the fault of a node that stays unreachable although it was
// recovered.
func (u *update) afterRecovery(err error) error {
	if !u.state.Recovery.Done || !unreachable(err) {
		return err
	}
	return fmt.Errorf("%w (after BMC aux powercycle recovery)", err)
}

func (r *recovery) cycle(ctx context.Context) error {
	u := r.u
	cycle, _ := r.steps()
	s := &u.state.Recovery.Activation
	for _, step := range cycle {
		u.t.Progress(0, "Recovering the node: "+stepText(step))
		if step.Once() {
			s.Sent = true
			u.t.InFlight(stepText(step))
			if err := u.t.Save(ctx, u.state); err != nil {
				return err
			}
		}
		if err := u.c.RunStep(ctx, step, &s.Device); err != nil {
			return r.fail(tryAgain(err))
		}
	}
	if err := u.t.Failpoint(agent.FailAfterDeviceChange); err != nil {
		return err
	}
	u.state.Recovery.Done = true
	return u.save()
}

func (r *recovery) fail(err error) error {
	if passes(err) || errors.As(err, new(*agent.RetryError)) {
		return err
	}
	return fail(phaseUpdate, r.u.groups[0].plan.Items[0].Label(), fmt.Errorf("%s%w", textRecoveryFailed, err))
}

// observe looks whether the BMC has restarted since.
func (r *recovery) observe(ctx context.Context) (agent.Observation, error) {
	u := r.u
	s := &u.state.Recovery.Activation
	if !s.Sent {
		return agent.ObservedNotStarted, nil
	}
	seen, err := u.watchRestart(ctx, redfish.StepAuxCycle, s)
	if seen == agent.ObservedDone {
		u.state.Recovery.Done = true
		return seen, u.save()
	}
	return seen, err
}

// power brings the host on again.
func (r *recovery) power(ctx context.Context) error {
	u := r.u
	if !u.state.Recovery.Done {
		return agent.Skip("the node needed no recovery")
	}
	_, rest := r.steps()
	for _, step := range rest {
		u.t.Progress(0, "Recovering the node: "+stepText(step))
		if err := u.c.RunStep(ctx, step, &u.state.Recovery.Activation.Device); err != nil {
			return r.fail(err)
		}
	}
	return u.t.Sleep(ctx, u.d.opts.Timing.RecoveryGrace)
}

// EnsureOn switches the host on unless it reads On.
func (h hostPower) EnsureOn(ctx context.Context) error {
	read, err := h.u.c.PowerState(ctx)
	if err == nil && read.State == redfish.PowerStateOn {
		return nil
	}
	if err != nil && !transient(err) {
		return err
	}
	for _, step := range []redfish.Step{redfish.StepPowerOn, redfish.StepKeepOn} {
		if err := h.u.c.RunStep(ctx, step, nil); err != nil {
			return err
		}
	}
	return nil
}

// AuxCycle runs the steps of the product's activation.
func (h hostPower) AuxCycle(ctx context.Context) error {
	if err := h.u.undisturbed(ctx, phaseValidation); err != nil {
		return err
	}
	return h.u.c.Activate(ctx, &redfish.ActivationState{}, func(step redfish.Step, _ int) error {
		h.u.t.Progress(0, "Recovering the host: "+stepText(step))
		return nil
	})
}
