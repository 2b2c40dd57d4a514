// SPDX-License-Identifier: Apache-2.0

package redfishagent

import (
	"context"
	"fmt"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/redfish"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// updateState is what an update has learned so far; it lies in the checkpoint.
type updateState struct {
	Targets    []targetState   `json:"targets"`
	Activation activationState `json:"activation"`
	Activated  bool            `json:"activated,omitempty"`
	// Report is the last comparison of versions after the activation.
	Report *redfish.VersionReport `json:"report,omitempty"`
}

// targetState is what an update has learned about one package.
type targetState struct {
	// Skipped is why nothing was sent, empty when it was.
	Skipped string `json:"skipped,omitempty"`
	// HMC says that the controller of the GPU baseboard installs the package.
	HMC bool `json:"hmc,omitempty"`
	// TasksBefore and HandoffsBefore are the device's tasks before the upload:
	// whoever takes over finds the new one by them.
	TasksBefore    []string          `json:"tasks_before,omitempty"`
	HandoffsBefore []redfish.TaskRef `json:"handoffs_before,omitempty"`
	// Manager is the controller before the upload: one that has restarted since
	// may have forgotten a task.
	Manager redfish.ActivationState `json:"manager"`
	// VersionsBefore are the installed versions by inventory name.
	VersionsBefore map[string]string         `json:"versions_before,omitempty"`
	Expected       []redfish.ExpectedVersion `json:"expected,omitempty"`
	Task           redfish.TaskRef           `json:"task"`
	// Untracked says that the device took the image without naming a task.
	Untracked bool `json:"untracked,omitempty"`
	Uploaded  bool `json:"uploaded,omitempty"`
	Done      bool `json:"done,omitempty"`
	// Summary is what the device's task said at its end.
	Summary string `json:"summary,omitempty"`
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
	// uploading says that this update has one of the agent's upload slots.
	uploading bool
}

// UpdateFirmware is the handler of firmware updates.
func (d *Devices) UpdateFirmware(ctx context.Context, t *agent.Task) (agent.Outcome, error) {
	u := &update{d: d, t: t, cmd: t.Command().GetFirmwareUpdate()}
	defer u.endUpload()
	if err := u.run(ctx); err != nil {
		return agent.Outcome{ResultJSON: u.failureResult(err)}, err
	}
	return agent.Outcome{Description: "Completed", ResultJSON: u.successResult()}, nil
}

func (u *update) run(ctx context.Context) error {
	targets := u.cmd.GetTargets()
	if len(targets) == 0 {
		return agent.Fail(job.FailureInvalidArgument, phasePlanning, "the command names no firmware targets", nil)
	}
	var err error
	if u.c, err = u.d.client(u.t, u.d.userAgent(u.t), u.t.Logger()); err != nil {
		return fail(phaseValidation, "", err)
	}
	found, err := u.t.Load(&u.state)
	if err != nil {
		return err
	}
	if !found || len(u.state.Targets) != len(targets) {
		u.state = updateState{Targets: make([]targetState, len(targets))}
	}
	return u.t.RunStages(ctx, u.stages())
}

// stages is the runbook: each package is checked, sent and waited for; then the
// new firmware is brought into force once, and compared with what was sent.
func (u *update) stages() []agent.Stage {
	var stages []agent.Stage
	for i := range u.cmd.GetTargets() {
		stages = append(stages, u.pkg(i).stages()...)
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

// applied reports whether any package was sent.
func (u *update) applied() bool {
	for _, s := range u.state.Targets {
		if s.Uploaded {
			return true
		}
	}
	return false
}

// beginUpload waits for one of the agent's upload slots.
func (u *update) beginUpload(ctx context.Context) error {
	if u.uploading {
		return nil
	}
	select {
	case u.d.uploads <- struct{}{}:
		u.uploading = true
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (u *update) endUpload() {
	if u.uploading {
		u.uploading = false
		<-u.d.uploads
	}
}

// packageLabel stands for a package that finds its components itself.
const packageLabel = "package-derived"

// pkgStages are the stages of one package of an update.
type pkgStages struct {
	u      *update
	i, n   int
	target *rackbusv1.FirmwareUpdateTarget
	label  string
}

func (u *update) pkg(i int) *pkgStages {
	targets := u.cmd.GetTargets()
	label := targets[i].GetComponent()
	if label == "" {
		label = packageLabel
	}
	return &pkgStages{u: u, i: i, n: len(targets), target: targets[i], label: label}
}

func (p *pkgStages) stages() []agent.Stage {
	t := p.u.d.opts.Timing
	of := fmt.Sprintf("target %d/%d: %s", p.i+1, p.n, p.label)
	return []agent.Stage{
		{
			Name: p.name("check"), Description: "Checking the node for " + of,
			Resume: agent.Repeatable, Interruptible: true, Run: p.working(p.check),
			Attempts: checkAttempts, Pause: t.TaskPoll.Interval,
		}, {
			Name: p.name("upload"), Description: "Uploading " + of,
			Resume: agent.Once, Prepare: p.working(p.prepare), Run: p.working(p.upload), Observe: p.observe,
			Attempts: t.UploadAttempts, Pause: t.UploadPause,
		}, {
			Name: p.name("install"), Description: "Running firmware workflow for target " + p.label,
			Resume: agent.Resumable, Run: p.working(p.install),
		},
	}
}

// name numbers a stage when there are several packages.
func (p *pkgStages) name(stage string) string {
	if p.n == 1 {
		return stage
	}
	return fmt.Sprintf("%s_%d", stage, p.i+1)
}

// working notes which package a stage is about.
func (p *pkgStages) working(run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		p.u.current = p.target
		return run(ctx)
	}
}

func (p *pkgStages) state() *targetState { return &p.u.state.Targets[p.i] }

// save puts the update's state where the next checkpoint takes it from.
func (p *pkgStages) save() error { return p.u.t.Set(p.u.state) }
