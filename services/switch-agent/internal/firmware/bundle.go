// SPDX-License-Identifier: Apache-2.0

package firmware

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/firmware/flashplan"
	"github.com/rackbus/rackbus/services/switch-agent/internal/device"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nvue"
	"github.com/rackbus/rackbus/services/switch-agent/internal/upload"
)

// bundleState is what an update has learned about a package that is installed for
// all components at once.
type bundleState struct {
	// Fallback is why the components are updated one by one after all.
	Fallback string `json:"fallback,omitempty"`
	Name     string `json:"name,omitempty"`
	// Before are the components right before the installation.
	Before    map[string]json.RawMessage `json:"before,omitempty"`
	Started   bool                       `json:"started,omitempty"`
	InstallID nvue.ActionID              `json:"install_id,omitempty"`
}

// bundleStages install one package for all components. Whatever fails before the
// switch has begun makes the components go one by one.
func (u *update) bundleStages() []agent.Stage {
	return []agent.Stage{
		{
			Name: "bundle_upload", Description: "Uploading the package for all components",
			Resume: agent.Repeatable, Interruptible: true, Run: u.bundled(u.uploadBundle),
		},
		{
			Name: "bundle_fetch", Description: "Letting the switch take over the package",
			Resume: agent.Repeatable, Interruptible: true, Run: u.bundled(u.fetchBundle),
		},
		{
			Name: "bundle_install", Description: "Installing the package for all components",
			Resume: agent.Once, Prepare: u.bundled(u.prepareBundle), Run: u.bundled(u.installBundle), Observe: u.observeBundle,
			Limit: u.u.opts.Timing.Install,
		},
		{
			Name: "bundle_monitor", Description: "Running firmware workflow for all components",
			Resume: agent.Resumable, Run: u.bundled(u.monitorBundle), Limit: u.u.opts.Timing.InstallLimit,
		},
	}
}

// bundled skips what is not needed.
func (u *update) bundled(run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if u.state.Bundle.Fallback != "" {
			return agent.Skip("one by one: " + u.state.Bundle.Fallback)
		}
		for i := range u.state.Steps {
			if !u.state.Steps[i].over() {
				return run(ctx)
			}
		}
		return agent.Skip("nothing is left to install")
	}
}

// fallBack notes why the package is not installed at once, unless the job has to
// stop.
func (u *update) fallBack(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil || device.Passes(err) {
		return err
	}
	u.state.Bundle.Fallback = err.Error()
	u.t.Logger().Warn("package not installed at once, the components go one by one", "op", "bundle", "err", err)
	return u.save()
}

func (u *update) uploadBundle(ctx context.Context) error {
	f, err := u.open(ctx, u.cmd.GetTargets()[u.work.steps[0].index])
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = u.u.opts.Uploads.Send(ctx, u.sw, upload.File{
		Source: f, Dir: bundleDir, Name: f.Base, MakeDir: true,
		Progress: func(sent, total int64) {
			u.t.Progress(int(100*sent/max(total, 1)), "Uploading the package for all components")
		},
	}, u.u.opts.Limits.Bundle)
	if err != nil {
		return u.fallBack(ctx, err)
	}
	u.state.Bundle.Name = f.Base
	return u.save()
}

// fetchBundle makes the switch read the package from its own disk.
func (u *update) fetchBundle(ctx context.Context) error {
	t := &u.u.opts.Timing
	c, err := u.client(ctx, t.Install)
	if err != nil {
		return u.fallBack(ctx, err)
	}
	id, err := c.StartAction(ctx, nvue.FetchFirmware("file://"+bundleDir+"/"+u.state.Bundle.Name))
	if err == nil && id != "" {
		_, err = c.AwaitAction(ctx, id, nvue.StrictActions(), nvue.ActionWait{Interval: t.FetchPoll, Limit: t.FetchLimit})
	}
	return u.fallBack(ctx, err)
}

func (u *update) prepareBundle(ctx context.Context) error {
	var before map[string]json.RawMessage
	err := u.patiently(ctx, func(ctx context.Context) (err error) {
		before, err = u.showAll(ctx)
		return err
	})
	if err != nil {
		return fail(phaseUpdate, bundleLabel, err)
	}
	u.state.Bundle.Before = before
	return u.save()
}

const bundleLabel = "all components"

func (u *update) showAll(ctx context.Context) (map[string]json.RawMessage, error) {
	c, err := u.client(ctx, u.u.opts.Timing.RebootProbe)
	if err != nil {
		return nil, err
	}
	all, err := c.Firmware(ctx)
	if err != nil {
		return nil, err
	}
	out := map[string]json.RawMessage{}
	for _, target := range flashplan.SwitchBundle() {
		out[target] = all[target].Raw
	}
	return out, nil
}

func (u *update) bundleChanged(ctx context.Context) (bool, error) {
	now, err := u.showAll(ctx)
	if err != nil {
		return false, err
	}
	for target, before := range u.state.Bundle.Before {
		if string(now[target]) != string(before) {
			return true, nil
		}
	}
	return false, nil
}

func (u *update) installBundle(ctx context.Context) error {
	c, err := u.client(ctx, u.u.opts.Timing.Install)
	if err != nil {
		return u.fallBack(ctx, err)
	}
	id, err := c.StartAction(ctx, nvue.InstallFirmwareBundle(u.state.Bundle.Name))
	if err != nil {
		return u.fallBack(ctx, device.Uncertain(err))
	}
	u.t.InFlight("action " + string(id))
	if err := u.t.Failpoint(agent.FailAfterDeviceChange); err != nil {
		return err
	}
	u.state.Bundle.Started, u.state.Bundle.InstallID = true, id
	return u.save()
}

func (u *update) observeBundle(ctx context.Context) (agent.Observation, error) {
	if u.state.Bundle.Started || u.state.Bundle.Fallback != "" {
		return agent.ObservedDone, nil
	}
	shown, err := u.appears(ctx, u.bundleChanged)
	switch {
	case err != nil:
		return agent.ObservedUnknown, err
	case shown:
		u.state.Bundle.Started = true
		return agent.ObservedDone, u.save()
	default:
		return agent.ObservedNotStarted, nil
	}
}

// monitorBundle follows the installation. From here on there is no way back to one
// by one: the switch is at it.
func (u *update) monitorBundle(ctx context.Context) error {
	summary, err := u.follow(ctx, installation{
		id: u.state.Bundle.InstallID, label: bundleLabel, changed: u.bundleChanged, reboot: u.u.opts.Timing.RebootLimit,
	})
	if err != nil {
		var f *agent.FailureError
		if told := fail(phasePoll, bundleLabel, err); !errors.As(told, &f) {
			return told
		}
		for i := range u.state.Steps {
			if st := &u.state.Steps[i]; !st.over() {
				st.Failed, st.Code = f.Failure.Message, f.Failure.FailureCode
			}
		}
		return u.save()
	}
	for i := range u.state.Steps {
		if st := &u.state.Steps[i]; !st.over() {
			st.Done, st.Summary, st.InstallID = true, fmt.Sprintf("with the package for all components: %s", summary), u.state.Bundle.InstallID
		}
	}
	return u.save()
}
