// SPDX-License-Identifier: Apache-2.0

package redfishagent

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/firmware/flashplan"
	"github.com/rackbus/rackbus/pkg/redfish"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// updateState is what an update has learned so far; it lies in the checkpoint.
type updateState struct {
	// Targets are the packages in the order of the request.
	Targets []targetState `json:"targets"`
	// Groups are those of the plan.
	Groups []groupState `json:"groups,omitempty"`
	// Recovery is the AUX cycle for a node that did not answer.
	Recovery recoveryState `json:"recovery"`
	// InBand is what the run of the in-band group keeps.
	InBand json.RawMessage `json:"in_band,omitempty"`
}

// targetState is what an update has learned about one package.
type targetState struct {
	// Skipped is why nothing was sent, empty when it was.
	Skipped string `json:"skipped,omitempty"`
	// HMC says that the controller of the GPU baseboard installs the package.
	HMC bool `json:"hmc,omitempty"`
	// Supplies is what is known of an image for LiteOn power units; nil for others.
	Supplies *suppliesState `json:"supplies,omitempty"`
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
	// Summary is what the device's task said at its end, Rescue how an update was
	// judged whose task was lost.
	Summary string      `json:"summary,omitempty"`
	Rescue  *taskRescue `json:"rescue,omitempty"`
}

// update is one firmware update of one node.
type update struct {
	d      *Devices
	t      *agent.Task
	c      *redfish.Client
	cmd    *rackbusv1.FirmwareUpdate
	groups []*group
	state  updateState
	// current is the package that is worked on, for a failure's result.
	current *rackbusv1.FirmwareUpdateTarget
	// withdrawn takes back the image that is on offer to the device.
	withdrawn func()
	// uploading says that this update has one of the agent's upload slots.
	uploading bool
}

// UpdateFirmware is the handler of firmware updates.
func (d *Devices) UpdateFirmware(ctx context.Context, t *agent.Task) (agent.Outcome, error) {
	u := &update{d: d, t: t, cmd: t.Command().GetFirmwareUpdate()}
	defer u.endUpload()
	defer u.withdraw()
	if err := u.run(ctx); err != nil {
		u.nameComponent(err)
		return agent.Outcome{ResultJSON: u.failureResult(err)}, err
	}
	return agent.Outcome{Description: "Completed", ResultJSON: u.successResult()}, nil
}

func (u *update) run(ctx context.Context) error {
	var err error
	if u.c, err = u.d.client(u.t, u.d.userAgent(u.t), u.t.Logger()); err != nil {
		return fail(phaseValidation, "", err)
	}
	plan, err := u.plan()
	if err != nil {
		return err
	}
	found, err := u.t.Load(&u.state)
	if err != nil {
		return err
	}
	if n := len(u.cmd.GetTargets()); !found || len(u.state.Targets) != n {
		u.state = updateState{Targets: make([]targetState, n)}
	}
	if len(u.state.Groups) != len(plan) {
		u.state.Groups = make([]groupState, len(plan))
	}
	if err := u.arrange(plan); err != nil {
		return err
	}
	return u.t.RunStages(ctx, u.stages())
}

// plan arranges the packages. What it refuses was refused when the job was
// submitted, unless another version had accepted it.
func (u *update) plan() ([]flashplan.Group, error) {
	var targets []flashplan.Target
	for _, t := range u.cmd.GetTargets() {
		targets = append(targets, flashplan.Target{
			Component: t.GetComponent(), Key: t.GetKey(), File: fileOf(t), ExpectedVersion: t.GetExpectedVersion(),
		})
	}
	plan, err := flashplan.Plan(u.c.Profile().NodeType, targets, flashplan.Options{
		Activate: u.cmd.GetActivate(), Mixed: u.cmd.GetMixed(), Force: u.cmd.GetForce(),
	})
	var refused *flashplan.Error
	if errors.As(err, &refused) {
		return nil, agent.Fail(refused.Code, phasePlanning, refused.Error(), err)
	}
	return plan, err
}

// arrange makes the groups of the plan into work.
func (u *update) arrange(plan []flashplan.Group) error {
	n := 0
	for i := range plan {
		g := &group{u: u, plan: plan[i], i: i, first: n}
		n += len(plan[i].Items)
		if plan[i].Note != "" {
			u.t.Logger().Info("order of the packages", "op", "plan", "note", plan[i].Note)
		}
		if plan[i].Kind == flashplan.InBand {
			if err := g.beginInBand(); err != nil {
				return err
			}
		}
		u.groups = append(u.groups, g)
	}
	return nil
}

// stages is the runbook: each package is checked, sent and waited for; at the end
// of its group the new firmware is brought into force, and compared with what was
// sent.
func (u *update) stages() []agent.Stage {
	var stages []agent.Stage
	if u.hasArtifacts() {
		stages = append(stages, u.artifactStage())
	}
	if u.cmd.GetActivate() && u.c.Profile().Kind == redfish.KindCompute {
		stages = append(stages, u.recoveryStages()...)
	}
	for _, g := range u.groups {
		stages = append(stages, g.stages()...)
	}
	for i := range stages {
		stages[i].Run = u.breakable(stages[i].Name, stages[i].Run)
	}
	return stages
}

// FailInStage begins the name of the failpoint in front of a stage's work, which
// ends with the stage's name: for a change that happens once, it is behind the
// recorded intent.
const FailInStage = "redfishagent.stage."

// breakable lets a crash test end the process where a stage begins its work.
func (u *update) breakable(name string, run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := u.t.Failpoint(FailInStage + name); err != nil {
			return err
		}
		return run(ctx)
	}
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

// save puts the update's state where the next checkpoint takes it from.
func (u *update) save() error { return u.t.Set(u.state) }
