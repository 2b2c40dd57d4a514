// SPDX-License-Identifier: Apache-2.0

package redfishagent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/redfish"
)

// activationAttempts is how often a step of the activation that must not be
// repeated is tried while the device provably never got it.
const activationAttempts = 3

// activationState is what the activation has learned so far.
type activationState struct {
	// Device is what one step leaves for a later one.
	Device redfish.ActivationState `json:"device"`
	// Sent says that the step which must not be repeated is about to be sent.
	// Versions are those before it.
	Sent     bool              `json:"sent,omitempty"`
	Versions map[string]string `json:"versions,omitempty"`
	// SecondRound says that the host did not come on after the first round.
	SecondRound bool `json:"second_round,omitempty"`
}

// activationStep is one stage of an activation: steps up to and with one that
// must not be repeated, or a single one that may be.
type activationStep struct {
	g     *group
	u     *update
	steps []redfish.Step
	round int
	// last ends the round. mayRepeat says that another round follows when the
	// host does not come on.
	last, mayRepeat bool
}

// activation lists the steps of the product. Once the host is being taken down,
// the job is left only at the end: nobody is helped by a host that stays off.
// Products with a second round have its steps listed too; they are skipped when
// the host came on.
func (g *group) activation() []agent.Stage {
	u := g.u
	plan := u.c.Profile().Activation
	rounds := max(plan.Rounds, 1)
	steps := plan.Steps
	var stages []agent.Stage
	for round := 1; round <= rounds; round++ {
		if round > 1 {
			steps = steps[max(slices.Index(steps, plan.RepeatFrom), 0):]
		}
		groups := groupSteps(steps)
		for i, group := range groups {
			last := i == len(groups)-1
			a := &activationStep{g: g, u: u, steps: group, round: round, last: last, mayRepeat: last && round < rounds}
			stages = append(stages, a.stage())
		}
	}
	return stages
}

// groupSteps puts what leads to a step that must not be repeated into one group
// with it.
func groupSteps(steps []redfish.Step) [][]redfish.Step {
	var groups [][]redfish.Step
	for len(steps) > 0 {
		n := slices.IndexFunc(steps, redfish.Step.Once) + 1
		if n == 0 {
			n = 1
		}
		groups, steps = append(groups, steps[:n]), steps[n:]
	}
	return groups
}

// step is the one that the stage is named after.
func (a *activationStep) step() redfish.Step { return a.steps[len(a.steps)-1] }

func (a *activationStep) stage() agent.Stage {
	name := a.g.named("activate") + "_" + string(a.step())
	if a.round > 1 {
		name = fmt.Sprintf("%s_%d", name, a.round)
	}
	var texts []string
	for _, s := range a.steps {
		if text := stepText(s); !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	s := agent.Stage{
		Name: name, Description: "Activating firmware: " + strings.Join(texts, ", "),
		Resume: agent.Resumable, Run: a.run, Limit: a.u.stepsLimit(a.steps), SwitchesPower: true,
	}
	if a.step().Once() {
		s.Resume, s.Prepare, s.Run, s.Observe = agent.Once, a.prepare, a.runOnce, a.observe
		s.Attempts, s.Pause = activationAttempts, a.u.d.opts.Timing.TaskPoll.Interval
	}
	return s
}

func (a *activationStep) state() *activationState { return &a.g.state().Activation }

// skip says why the stage has nothing to do.
func (a *activationStep) skip() error {
	if !a.g.applied() {
		return agent.Skip("nothing was installed")
	}
	if a.round > 1 && !a.state().SecondRound {
		return agent.Skip("the host came on in the first round")
	}
	return nil
}

func (a *activationStep) run(ctx context.Context) error {
	if skip := a.skip(); skip != nil {
		return skip
	}
	u := a.u
	u.current = nil
	err := u.c.RunStep(ctx, a.step(), &a.state().Device)
	if a.mayRepeat && errors.Is(err, redfish.ErrPowerState) {
		u.t.Logger().Warn("host did not come on, another round follows", "op", string(a.step()), "err", err)
		a.state().SecondRound = true
		return u.save()
	}
	if err != nil {
		return fail(phaseActivation, "", err)
	}
	a.g.state().Activated = a.g.state().Activated || a.last
	return u.save()
}

// prepare reads what is needed to tell later whether the step has happened,
// before the intent is recorded.
func (a *activationStep) prepare(ctx context.Context) error {
	if skip := a.skip(); skip != nil {
		return skip
	}
	u := a.u
	u.current = nil
	if a.g.inBand != nil {
		// Packages have looked for it before they were sent.
		if err := u.undisturbed(ctx, phaseActivation); err != nil {
			return fail(phaseActivation, "", err)
		}
	}
	inventory, err := u.inventory(ctx)
	if err != nil && !transient(err) {
		return fail(phaseActivation, "", err)
	}
	*a.state() = activationState{SecondRound: a.state().SecondRound, Versions: versionsOf(inventory)}
	a.state().Device.Force = u.cmd.GetForce()
	if err := u.c.PrepareStep(ctx, a.step(), &a.state().Device); err != nil && !transient(err) {
		return fail(phaseActivation, "", err)
	}
	return u.save()
}

// runOnce does the steps that lead to the one that must not be repeated, and
// notes that it comes now.
func (a *activationStep) runOnce(ctx context.Context) error {
	u := a.u
	for _, step := range a.steps[:len(a.steps)-1] {
		u.t.Progress(0, "Activating firmware: "+stepText(step))
		if err := u.c.RunStep(ctx, step, &a.state().Device); err != nil {
			return fail(phaseActivation, "", err)
		}
	}
	u.t.Progress(0, "Activating firmware: "+stepText(a.step()))
	a.state().Sent = true
	u.t.InFlight(stepText(a.step()))
	if err := u.t.Save(ctx, u.state); err != nil {
		return err
	}
	if err := u.c.RunStep(ctx, a.step(), &a.state().Device); err != nil {
		return fail(phaseActivation, "", tryAgain(err))
	}
	if err := u.t.Failpoint(agent.FailAfterDeviceChange); err != nil {
		return err
	}
	a.g.state().Activated = a.g.state().Activated || a.last
	return u.save()
}

// observe watches for proof that the step has happened.
func (a *activationStep) observe(ctx context.Context) (agent.Observation, error) {
	a.u.current = nil
	if !a.state().Sent {
		return agent.ObservedNotStarted, nil
	}
	seen, err := a.u.watchRestart(ctx, a.step(), a.state())
	if seen == agent.ObservedDone {
		a.g.state().Activated = a.g.state().Activated || a.last
		return seen, a.u.save()
	}
	return seen, err
}

// watchRestart watches for proof that a step has happened: a device that accepted
// it may begin some time later, and must not get it twice.
func (u *update) watchRestart(ctx context.Context, step redfish.Step, state *activationState) (agent.Observation, error) {
	timing := &u.d.opts.Timing
	end := time.Now().Add(timing.RestartSettle)
	for {
		last := !time.Now().Before(end)
		seen, err := u.lookForRestart(ctx, step, state)
		if last || err != nil || seen == agent.ObservedDone {
			return seen, err
		}
		if err := u.t.Sleep(ctx, timing.TaskPoll.Interval); err != nil {
			return agent.ObservedUnknown, err
		}
	}
}

// lookForRestart looks for a restart of the manager, or versions that have come
// into force. A manager that tells its restarts also proves that there was none.
func (u *update) lookForRestart(ctx context.Context, step redfish.Step, state *activationState) (agent.Observation, error) {
	if err := u.c.WaitReady(ctx); err != nil {
		return agent.ObservedUnknown, fail(phaseActivation, "", err)
	}
	inventory, err := u.inventory(ctx)
	if err != nil {
		return agent.ObservedUnknown, fail(phaseActivation, "", again(err))
	}
	happened := changed(state.Versions, inventory, "")
	before := state.Device.Manager
	if before != nil && !happened {
		if happened, err = u.c.StepHappened(ctx, step, &state.Device); err != nil {
			return agent.ObservedUnknown, fail(phaseActivation, "", again(err))
		}
	}
	switch {
	case happened:
		if before != nil {
			// The next step need not wait for a restart that is over.
			before.Accepted = true
		}
		return agent.ObservedDone, nil
	case before != nil && (before.LastResetTime != "" || before.UptimeSeconds >= 0):
		return agent.ObservedNotStarted, nil
	default:
		return agent.ObservedUnknown, nil
	}
}

func stepText(s redfish.Step) string {
	switch s {
	case redfish.StepForceOff:
		return "power off the host"
	case redfish.StepWaitOff, redfish.StepPauseOff:
		return "wait until the host is off"
	case redfish.StepAuxCycle:
		return "AUX power cycle"
	case redfish.StepAuxSettle, redfish.StepWaitBMC:
		return "wait for the BMC"
	case redfish.StepPowerOn:
		return "power on the host"
	case redfish.StepWaitOn, redfish.StepKeepOn:
		return "wait until the host is on"
	case redfish.StepManagerReset:
		return "restart the controller"
	case redfish.StepWaitManager:
		return "wait for the controller"
	default:
		return string(s)
	}
}
