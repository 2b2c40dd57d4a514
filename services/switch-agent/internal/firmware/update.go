// SPDX-License-Identifier: Apache-2.0

package firmware

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/redfish"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/services/switch-agent/internal/device"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nvue"
	"github.com/rackbus/rackbus/services/switch-agent/internal/runbook"
	"github.com/rackbus/rackbus/services/switch-agent/internal/source"
)

// state is what an update has learned so far; it lies in the checkpoint.
type state struct {
	Steps  []stepState `json:"steps"`
	Bundle bundleState `json:"bundle"`
	// ASICRevision is the staged change of the ASIC's settings.
	ASICRevision nvue.Revision          `json:"asic_revision,omitempty"`
	Cycle        cycleState             `json:"cycle"`
	Report       *redfish.VersionReport `json:"report,omitempty"`
}

// stepState is what an update has learned about one component.
type stepState struct {
	// Skipped is why nothing was sent, empty when it was.
	Skipped string `json:"skipped,omitempty"`
	// Expected is the version behind the activation, empty when nobody tells.
	Expected string `json:"expected,omitempty"`
	// Name is the file's name on the switch.
	Name     string `json:"name,omitempty"`
	Uploaded bool   `json:"uploaded,omitempty"`
	// Before is the component as the switch showed it right before the installation.
	Before json.RawMessage `json:"before,omitempty"`
	// Started says that the switch took the installation; InstallID is its action.
	Started   bool          `json:"started,omitempty"`
	InstallID nvue.ActionID `json:"install_id,omitempty"`
	Done      bool          `json:"done,omitempty"`
	// Summary is what the switch said at the end, or how its silence was judged.
	Summary string `json:"summary,omitempty"`
	// Failed is why the installation failed, Code its cause.
	Failed string          `json:"failed,omitempty"`
	Code   job.FailureCode `json:"code,omitempty"`
}

// installed reports whether the component has new firmware that waits to be
// activated.
func (s *stepState) installed() bool { return s.Done }

// over reports whether nothing is left to do for the component.
func (s *stepState) over() bool { return s.Skipped != "" || s.Done || s.Failed != "" }

// update is one firmware update of one switch.
type update struct {
	u     *Updater
	t     *agent.Task
	sw    *device.Switch
	cmd   *rackbusv1.FirmwareUpdate
	work  plan
	state state
	// current is the step that is worked on, for a failure's result.
	current *step
}

// Update is the handler of firmware updates.
func (u *Updater) Update(ctx context.Context, t *agent.Task) (agent.Outcome, error) {
	w := &update{u: u, t: t, cmd: t.Command().GetFirmwareUpdate()}
	err := w.run(ctx)
	switch {
	case errors.Is(err, agent.ErrHandedOver):
		return agent.Outcome{}, err
	case err != nil:
		return agent.Outcome{ResultJSON: w.failureResult(err)}, err
	default:
		return agent.Outcome{Description: "Completed", ResultJSON: w.successResult()}, nil
	}
}

func (u *update) run(ctx context.Context) error {
	sw, err := u.u.opts.Devices.Open(u.t, "", u.t.Logger())
	if err != nil {
		return fail(phaseValidation, "", err)
	}
	defer sw.Close()
	if !sw.HasHost() {
		return agent.Fail(job.FailureEndpointMissing, phaseValidation, "the switch has no host endpoint", nil)
	}
	u.sw = sw
	if u.work, err = u.plan(ctx); err != nil {
		return fail(phasePlanning, "", err)
	}
	found, err := u.t.Load(&u.state)
	if err != nil {
		return err
	}
	if n := len(u.work.steps); !found || len(u.state.Steps) != n {
		u.state = state{Steps: make([]stepState, n)}
	}
	return runbook.Run(ctx, u.t, u.stages())
}

func (u *update) stages() []agent.Stage {
	var stages []agent.Stage
	if u.hasArtifacts() {
		stages = append(stages, agent.Stage{
			Name: "artifacts", Description: "Stage 0: downloading firmware object artifacts",
			Resume: agent.Repeatable, Interruptible: true, Run: u.awaitArtifacts,
		})
	}
	stages = append(stages, agent.Stage{
		Name: "check", Description: "Reading the installed firmware",
		Resume: agent.Repeatable, Interruptible: true, Run: u.check,
	})
	if u.work.steps[0].image() {
		stages = append(stages, agent.Stage{
			Name: "asic", Description: "Letting the image bring the firmware of the ASIC",
			Resume: agent.Resumable, Interruptible: true, Run: u.followImage,
		})
	}
	if u.work.bundle {
		stages = append(stages, u.bundleStages()...)
	}
	for i := range u.work.steps {
		stages = append(stages, u.step(i).stages()...)
	}
	stages = append(stages, agent.Stage{
		Name: "outcome", Description: "Checking the installations", Resume: agent.Repeatable, Interruptible: true, Run: u.outcome,
	})
	if u.cmd.GetActivate() {
		stages = append(stages, u.activation()...)
	}
	return stages
}

// save puts the update's state where the next checkpoint takes it from.
func (u *update) save() error { return u.t.Set(u.state) }

// client is the NVUE client for slow calls, protected as configured.
func (u *update) client(ctx context.Context, limit time.Duration) (*nvue.Client, error) {
	if err := u.sw.Initialize(ctx); err != nil {
		return nil, err
	}
	return u.sw.NVUE.WithRequestLimit(limit), nil
}

func (u *update) inventory(ctx context.Context) (Inventory, error) {
	c, err := u.client(ctx, u.u.opts.Timing.Inventory)
	if err != nil {
		return Inventory{}, err
	}
	return ReadInventory(ctx, c)
}

func (u *update) open(ctx context.Context, t *rackbusv1.FirmwareUpdateTarget) (*source.File, error) {
	return u.u.opts.Files.Open(ctx, refOf(t), func(done, total int64) {
		if total > 0 {
			u.t.Progress(int(100*done/total), "Stage 0: downloading firmware object artifacts: "+baseOf(t))
		}
	})
}

func (u *update) hasArtifacts() bool {
	for _, t := range u.cmd.GetTargets() {
		if t.GetArtifact() != nil {
			return true
		}
	}
	return false
}

func (u *update) awaitArtifacts(ctx context.Context) error {
	for _, t := range u.cmd.GetTargets() {
		f, err := u.open(ctx, t)
		if err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	return nil
}

// check notes what each component should read behind the activation, and leaves
// out those that read so already.
func (u *update) check(ctx context.Context) error {
	var inventory Inventory
	err := u.patiently(ctx, func(ctx context.Context) (err error) {
		inventory, err = u.inventory(ctx)
		return err
	})
	if err != nil {
		return fail(phaseValidation, "", err)
	}
	for i, step := range u.work.steps {
		st := &u.state.Steps[i]
		if st.Expected, err = u.expected(ctx, step); err != nil {
			return err
		}
		have, found := inventory.Components[step.target]
		if !found && !step.image() {
			if err := u.exists(ctx, step.target); err != nil {
				return fail(phaseValidation, "", err)
			}
		}
		installed := have.Version
		if step.image() {
			installed = inventory.Image.CurrentBuild
			if inventory.Image.NextBuild != installed {
				installed = ""
			}
		}
		if st.Expected != "" && installed == st.Expected && !u.cmd.GetForce() {
			st.Skipped = alreadyInstalled
		}
	}
	return u.save()
}

// exists refuses a component that the switch does not have before a file is sent
// for it. Not all that can be updated is in the inventory.
func (u *update) exists(ctx context.Context, target string) error {
	c, err := u.client(ctx, u.u.opts.Timing.Inventory)
	if err != nil {
		return err
	}
	_, err = c.FirmwareComponent(ctx, target)
	if errors.Is(err, nvue.ErrNotFound) {
		return agent.Fail(job.FailureTargetNotFound, phaseValidation, fmt.Sprintf("the switch has no component %s", target), err)
	}
	return err
}

const alreadyInstalled = "already at the version of the package"

// expected is the version that the request or the file promises.
func (u *update) expected(ctx context.Context, s step) (string, error) {
	t := u.cmd.GetTargets()[s.index]
	if s.image() {
		return imageBuild(baseOf(t)), nil
	}
	if t.GetExpectedVersion() != "" && t.GetComponent() != "" {
		return t.GetExpectedVersion(), nil
	}
	f, err := u.open(ctx, t)
	if err != nil {
		return "", err
	}
	defer f.Close()
	return versionIn(f, f.Size(), s.target), nil
}

// outcome ends an update of which a component failed, now that the others are in.
func (u *update) outcome(context.Context) error {
	for i := range u.state.Steps {
		if st := &u.state.Steps[i]; st.Failed != "" {
			u.current = &u.work.steps[i]
			return u.stepFailure(i)
		}
	}
	return nil
}

// applied reports whether anything was installed.
func (u *update) applied() bool {
	for i := range u.state.Steps {
		if u.state.Steps[i].installed() {
			return true
		}
	}
	return false
}
