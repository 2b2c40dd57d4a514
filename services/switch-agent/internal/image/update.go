// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/job"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/services/switch-agent/internal/device"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nvue"
	"github.com/rackbus/rackbus/services/switch-agent/internal/runbook"
	"github.com/rackbus/rackbus/services/switch-agent/internal/source"
)

// Dir is where switches look for images.
const Dir = "/host/nos-images"

// Names of the stages. Callers know them.
const (
	stageInspect = "inspect_state"
	stageCleanup = "cleanup_old_partition"
	stageStage   = "stage_image"
	stageTrigger = "trigger_install"
	stageHandoff = "wait_for_install_handoff"
	stageSteady  = "wait_for_target_steady_state"
)

// state is what an update has learned so far; it lies in the checkpoint.
type state struct {
	Before *nvue.ImageState `json:"before,omitempty"`
	After  *nvue.ImageState `json:"after,omitempty"`
	// UpToDate says that there is nothing to do.
	UpToDate bool `json:"up_to_date,omitempty"`

	// Uninstalling says that the removal of the old image may have been asked for;
	// UninstallID is its action.
	Uninstalling bool          `json:"uninstalling,omitempty"`
	UninstallID  nvue.ActionID `json:"uninstall_id,omitempty"`

	VisibleBefore bool    `json:"visible_before,omitempty"`
	VisibleAfter  bool    `json:"visible_after,omitempty"`
	Size          int64   `json:"size,omitempty"`
	Sent          bool    `json:"sent,omitempty"`
	Rate          float64 `json:"rate,omitempty"`

	// AtInstall is the image state right before the installation.
	AtInstall *nvue.ImageState `json:"at_install,omitempty"`
	InstallID nvue.ActionID    `json:"install_id,omitempty"`
	// Settled says that the pause before the first look is over, Recovered that the
	// expired password was replaced, KeyAccepted that the new host key is recorded.
	Settled     bool `json:"settled,omitempty"`
	Recovered   bool `json:"recovered,omitempty"`
	KeyAccepted bool `json:"key_accepted,omitempty"`

	// Details are what the result shows with the stages.
	Details map[string]json.RawMessage `json:"details,omitempty"`
}

// update is one update of one switch.
type update struct {
	u     *Updater
	t     *agent.Task
	sw    *device.Switch
	cmd   *rackbusv1.SwitchImageUpdate
	state state
}

// Update is the handler of image updates.
func (u *Updater) Update(ctx context.Context, t *agent.Task) (agent.Outcome, error) {
	w := &update{u: u, t: t, cmd: t.Command().GetSwitchImageUpdate()}
	err := w.run(ctx)
	if errors.Is(err, agent.ErrHandedOver) {
		return agent.Outcome{}, err
	}
	return agent.Outcome{Description: "Completed", ResultJSON: w.result(err)}, err
}

func (w *update) run(ctx context.Context) error {
	if w.cmd.GetImageFilename() == "" || w.cmd.GetTargetBuildId() == "" {
		return agent.Fail(job.FailureInvalidArgument, stageInspect, "the command names no image or no build", nil)
	}
	if err := source.CheckName(w.cmd.GetImageFilename()); err != nil {
		return agent.Fail(job.FailureInvalidArgument, stageInspect, err.Error(), err)
	}
	sw, err := w.u.opts.Devices.Open(w.t, "", w.t.Logger())
	if err != nil {
		return device.Failure(stageInspect, "", job.FailureInvalidArgument, err)
	}
	defer sw.Close()
	if !sw.HasHost() {
		return agent.Fail(job.FailureEndpointMissing, stageInspect, "the switch has no host endpoint", nil)
	}
	w.sw = sw
	if _, err := w.t.Load(&w.state); err != nil {
		return err
	}
	return runbook.Run(ctx, w.t, w.stages())
}

// triggerLimit is how long the switch is given to take the order; then it is looked
// at.
const triggerLimit = time.Minute

// cleanupAttempts is how often the old image is removed whose removal the switch has
// not begun although it was asked.
const cleanupAttempts = 2

func (w *update) stages() []agent.Stage {
	t := &w.u.opts.Timing
	return []agent.Stage{
		{
			Name: stageInspect, Description: "Reading the image state of the switch",
			Resume: agent.Repeatable, Interruptible: true, Run: w.told(stageInspect, job.FailurePreconditionFailed, w.inspect),
		},
		{
			Name: stageCleanup, Description: "Cleaning the unused image partition",
			Resume: agent.Once, Prepare: w.needed(w.prepareCleanup),
			Run: w.told(stageCleanup, job.FailureTaskException, w.uninstall), Observe: w.observeCleanup,
			Attempts: cleanupAttempts, Limit: t.UninstallLimit,
		},
		{
			Name: stageStage, Description: "Staging the image on the switch",
			Resume: agent.Repeatable, Interruptible: true, Run: w.needed(w.told(stageStage, job.FailureUploadFailed, w.stage)),
		},
		{
			Name: stageTrigger, Description: "Triggering the image installation",
			Resume: agent.Once, Prepare: w.needed(w.told(stageTrigger, job.FailurePreconditionFailed, w.prepareInstall)),
			Run: w.told(stageTrigger, job.FailureTaskException, w.install), Observe: w.observeInstall, Limit: triggerLimit,
		},
		{
			Name: stageHandoff, Description: "Waiting for the switch to reboot into the image",
			Resume: agent.Resumable, Run: w.needed(w.told(stageHandoff, job.FailureTaskException, w.awaitHandoff)),
			Limit: t.HandoffLimit,
		},
		{
			Name: stageSteady, Description: "Waiting for the target image to run",
			Resume: agent.Resumable, Run: w.needed(w.told(stageSteady, job.FailureSwitchNotReady, w.awaitSteady)),
			Limit: t.steadyLimit(),
		},
	}
}

// needed skips a stage of a switch that has the image already.
func (w *update) needed(run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if w.state.UpToDate {
			return agent.Skip("the switch runs the image already")
		}
		return run(ctx)
	}
}

// told notes the error of a stage for the result, and gives it the form in which
// the record tells it. Callers know failures of these stages as "other".
func (w *update) told(stage string, fallback job.FailureCode, run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		err := device.Failure(stage, "", fallback, run(ctx))
		var f *agent.FailureError
		if errors.As(err, &f) {
			f.Failure.Code, f.Failure.Phase = job.CodeOther, stage
			w.note(stage, map[string]any{"error": f.Failure.Message})
		}
		return err
	}
}

// note adds to the details of a stage; the next checkpoint takes them along.
func (w *update) note(stage string, details map[string]any) {
	all := map[string]any{}
	if have := w.state.Details[stage]; len(have) > 0 {
		_ = json.Unmarshal(have, &all) // own words
	}
	for key, value := range details {
		all[key] = value
	}
	raw, err := json.Marshal(all)
	if err != nil {
		w.t.Logger().Error("stage details not kept", "op", stage, "err", err)
		return
	}
	if w.state.Details == nil {
		w.state.Details = map[string]json.RawMessage{}
	}
	w.state.Details[stage] = raw
	if err := w.t.Set(w.state); err != nil {
		w.t.Logger().Error("stage details not kept", "op", stage, "err", err)
	}
}

// look reads the image state, on connections that are protected as configured.
func (w *update) look(ctx context.Context) (nvue.ImageState, error) {
	if err := w.sw.Initialize(ctx); err != nil {
		return nvue.ImageState{}, err
	}
	return w.sw.NVUE.Image(ctx)
}

// lookAttempts is how often the image state is read before anything was done.
const lookAttempts = 3

// lookPatiently does so several times while the switch does not answer.
func (w *update) lookPatiently(ctx context.Context) (nvue.ImageState, error) {
	for attempt := 1; ; attempt++ {
		now, err := w.look(ctx)
		if err == nil || attempt >= lookAttempts || !nvue.Retryable(err) || device.Passes(err) {
			return now, err
		}
		if err := w.t.Sleep(ctx, w.u.opts.Timing.HandoffPoll); err != nil {
			return now, err
		}
	}
}

// ref is the image as the command names it.
func (w *update) ref() source.Ref {
	return source.Ref{File: w.cmd.GetFile(), Artifact: w.cmd.GetArtifact(), Size: w.cmd.GetSizeBytes(), SHA256: w.cmd.GetSha256()}
}

func (w *update) open(ctx context.Context) (*source.File, error) {
	return w.u.opts.Files.Open(ctx, w.ref(), func(done, total int64) {
		if total > 0 {
			w.t.Progress(0, fmt.Sprintf("Waiting for the image to be downloaded: %d%%", 100*done/total))
		}
	})
}

// inspect finds out whether there is anything to do, and whether it can be done.
func (w *update) inspect(ctx context.Context) error {
	now, err := w.lookPatiently(ctx)
	if err != nil {
		return err
	}
	w.state.Before = &now
	w.note(stageInspect, imageDetails(now))
	if w.runs(now) {
		w.state.UpToDate, w.state.After = true, &now
		return w.t.Set(w.state)
	}
	f, err := w.open(ctx)
	if err != nil {
		return err
	}
	defer f.Close()
	w.state.Size = f.Size()
	return w.t.Set(w.state)
}

// runs reports whether the image runs, and will after a reboot.
func (w *update) runs(s nvue.ImageState) bool {
	want := w.cmd.GetTargetBuildId()
	return s.CurrentBuild == want && s.NextBuild == want
}
