// SPDX-License-Identifier: Apache-2.0

package redfishagent

import (
	"context"
	"errors"
	"fmt"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/redfish"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// updateState is what an update has learned so far; it lies in the checkpoint.
type updateState struct {
	Targets []targetState `json:"targets"`
	// Activation is what one activation step leaves for a later one.
	Activation redfish.ActivationState `json:"activation"`
	// SecondRound says that the host did not come on after the first activation.
	SecondRound bool `json:"second_round,omitempty"`
	Activated   bool `json:"activated,omitempty"`
	// Report is the last comparison of versions after the activation.
	Report *redfish.VersionReport `json:"report,omitempty"`
}

// targetState is what an update has learned about one package.
type targetState struct {
	// Skipped is why nothing was sent, empty when it was.
	Skipped string `json:"skipped,omitempty"`
	// TasksBefore and HandoffsBefore are the device's tasks before the upload:
	// whoever takes over finds the new one by them.
	TasksBefore    []string          `json:"tasks_before,omitempty"`
	HandoffsBefore []redfish.TaskRef `json:"handoffs_before,omitempty"`
	// VersionsBefore are the installed versions by inventory name.
	VersionsBefore map[string]string         `json:"versions_before,omitempty"`
	Expected       []redfish.ExpectedVersion `json:"expected,omitempty"`
	Task           redfish.TaskRef           `json:"task"`
	// Untracked says that the device took the image without naming a task.
	Untracked bool   `json:"untracked,omitempty"`
	Uploaded  bool   `json:"uploaded,omitempty"`
	Done      bool   `json:"done,omitempty"`
	Summary   string `json:"summary,omitempty"`
}

// update is one firmware update of one node.
type update struct {
	d     *Devices
	t     *agent.Task
	c     *redfish.Client
	cmd   *rackbusv1.FirmwareUpdate
	state updateState
	// current is the package that is worked on, for a failure's result.
	current *rackbusv1.FirmwareUpdateTarget
}

// UpdateFirmware is the handler of firmware updates.
func (d *Devices) UpdateFirmware(ctx context.Context, t *agent.Task) (agent.Outcome, error) {
	cmd := t.Command().GetFirmwareUpdate()
	if len(cmd.GetTargets()) == 0 {
		return agent.Outcome{}, agent.Fail(job.FailureInvalidArgument, "planning", "the command names no firmware targets", nil)
	}
	c, err := d.client(t, d.userAgent(t), t.Logger())
	if err != nil {
		return agent.Outcome{}, fail(phaseValidation, "", err)
	}
	u := &update{d: d, t: t, c: c, cmd: cmd}
	found, err := t.Load(&u.state)
	if err != nil {
		return agent.Outcome{}, err
	}
	if !found || len(u.state.Targets) != len(cmd.GetTargets()) {
		u.state = updateState{Targets: make([]targetState, len(cmd.GetTargets()))}
	}
	if err := t.RunStages(ctx, u.stages()); err != nil {
		return agent.Outcome{ResultJSON: u.failureResult(err)}, err
	}
	return agent.Outcome{Description: "Completed", ResultJSON: u.successResult()}, nil
}

// stages is the runbook: each package is checked, sent and waited for; then the
// new firmware is brought into force once, and compared with what was sent.
func (u *update) stages() []agent.Stage {
	var stages []agent.Stage
	n := len(u.cmd.GetTargets())
	for i := range u.cmd.GetTargets() {
		p := u.pkg(i, n)
		stages = append(stages,
			agent.Stage{
				Name: p.stage("check"), Description: fmt.Sprintf("Checking the node for target %d/%d: %s", i+1, n, p.label),
				Resume: agent.Repeatable, Interruptible: true, Run: p.check,
			},
			agent.Stage{
				Name: p.stage("upload"), Description: fmt.Sprintf("Uploading target %d/%d: %s", i+1, n, p.label),
				Resume: agent.Once, Run: p.upload, Observe: p.observe,
			},
			agent.Stage{
				Name: p.stage("install"), Description: "Running firmware workflow for target " + p.label,
				Resume: agent.Resumable, Run: p.install,
			})
	}
	if !u.cmd.GetActivate() {
		return stages
	}
	stages = append(stages, u.activation()...)
	if u.c.Profile().Kind == redfish.KindCompute {
		stages = append(stages, agent.Stage{
			Name: "verify", Description: "Verifying activated firmware versions",
			Resume: agent.Repeatable, Interruptible: true, Run: u.verify,
		})
	}
	return stages
}

// activation is one stage for each step of the product. Products with a second
// round have its steps listed too; they are skipped when the host came on.
func (u *update) activation() []agent.Stage {
	plan := u.c.Profile().Activation
	var stages []agent.Stage
	for round := 1; round <= max(plan.Rounds, 1); round++ {
		from := round == 1
		for i, step := range plan.Steps {
			from = from || step == plan.RepeatFrom
			if !from {
				continue
			}
			last := i == len(plan.Steps)-1
			stages = append(stages, u.activationStage(step, round, last && round < plan.Rounds, last))
		}
	}
	return stages
}

func (u *update) activationStage(step redfish.Step, round int, mayRepeat, last bool) agent.Stage {
	name := "activate_" + string(step)
	if round > 1 {
		name = fmt.Sprintf("%s_%d", name, round)
	}
	s := agent.Stage{
		Name: name, Description: "Activating firmware: " + stepText(step),
		Run: func(ctx context.Context) error { return u.runStep(ctx, step, round, mayRepeat, last) },
	}
	if step.Once() {
		s.Resume = agent.Once
		s.Prepare = func(ctx context.Context) error { return u.prepareStep(ctx, step, round) }
		s.Observe = func(ctx context.Context) (agent.Observation, error) { return u.observeStep(ctx, step) }
	}
	return s
}

func (u *update) runStep(ctx context.Context, step redfish.Step, round int, mayRepeat, last bool) error {
	if skip := u.skipActivation(round); skip != nil {
		return skip
	}
	err := u.c.RunStep(ctx, step, &u.state.Activation)
	if mayRepeat && errors.Is(err, redfish.ErrPowerState) {
		u.t.Logger().Warn("host did not come on, another round follows", "op", string(step), "err", err)
		u.state.SecondRound = true
		return u.t.Save(ctx, u.state)
	}
	if err != nil {
		return fail(phaseActivation, "", uncertain(err))
	}
	u.state.Activated = u.state.Activated || last
	return u.t.Set(u.state)
}

// skipActivation says why a step has nothing to do.
func (u *update) skipActivation(round int) error {
	if !u.applied() {
		return agent.Skip("nothing was installed")
	}
	if round > 1 && !u.state.SecondRound {
		return agent.Skip("the host came on in the first round")
	}
	return nil
}

// prepareStep reads what is needed to tell later whether the step has happened,
// before the intent is recorded.
func (u *update) prepareStep(ctx context.Context, step redfish.Step, round int) error {
	if skip := u.skipActivation(round); skip != nil {
		return skip
	}
	u.state.Activation = redfish.ActivationState{}
	if err := u.c.PrepareStep(ctx, step, &u.state.Activation); err != nil {
		return fail(phaseActivation, "", err)
	}
	return u.t.Set(u.state)
}

// observeStep: a restart of the manager proves that the step has happened, and
// a manager that tells its restarts proves that it has not.
func (u *update) observeStep(ctx context.Context, step redfish.Step) (agent.Observation, error) {
	happened, err := u.c.StepHappened(ctx, step, &u.state.Activation)
	switch before := u.state.Activation.Manager; {
	case err != nil:
		return agent.ObservedUnknown, fail(phaseActivation, "", err)
	case happened:
		return agent.ObservedDone, nil
	case before.LastResetTime != "" || before.UptimeSeconds >= 0:
		return agent.ObservedNotStarted, nil
	default:
		return agent.ObservedUnknown, nil
	}
}

// applied reports whether any package was sent.
func (u *update) applied() bool {
	for _, s := range u.state.Targets {
		if s.Uploaded {
			return true
		}
	}
	return false
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
