// SPDX-License-Identifier: Apache-2.0

package redfishagent

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/firmware/flash"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/redfish"
)

// checkAttempts is how often the checks before an upload are tried while the
// device does not answer them.
const checkAttempts = 3

// check makes sure that the node can take the package, and finds out whether it
// needs it.
func (p *pkgStages) check(ctx context.Context) error {
	if p.before != nil && p.before.Uploaded {
		if err := p.u.t.Sleep(ctx, p.u.d.opts.Timing.PackagePause); err != nil {
			return err
		}
	}
	img, err := p.u.open(ctx, p.item.Index)
	if err != nil {
		return err
	}
	defer img.Close()
	content, err := p.read(img)
	if err != nil {
		return err
	}
	s := p.state()
	item := p.item
	if content.forHMC() {
		item = item.ForBaseboard()
	}
	*s = targetState{HMC: item.Send.Baseboard}
	supplies, err := p.forSupplies(content)
	if err != nil {
		return err
	}
	if supplies && p.u.c.Profile().PowerUnitsPath != "" {
		s.Supplies = &suppliesState{Version: supplyVersion(img.name, content)}
	}
	for _, look := range []func() error{
		func() error { return again(p.expectedInventory(ctx)) },
		func() error { return p.preconditions(ctx) },
		func() error { return again(p.compare(ctx, content)) },
	} {
		if err := look(); err != nil {
			return fail(phaseUpdate, p.label, p.u.afterRecovery(err))
		}
	}
	return p.save()
}

// forSupplies reports whether the image is for the power supplies of a shelf. What the
// package says of itself weighs more than its file's name, and one that says something
// else than the request is not sent anywhere.
func (p *pkgStages) forSupplies(content *packageContent) (bool, error) {
	refuse := func(is, wants string) error {
		return agent.Fail(job.FailureInvalidArgument, phaseUpdate, fmt.Sprintf(
			"Upload failed for target %s: the package %s is for %s of a shelf by its own words, and the request means %s",
			p.label, path.Base(fileOf(p.target)), is, wants), nil)
	}
	switch {
	case p.u.c.Profile().Kind != redfish.KindPowerShelf:
		return false, nil
	case content.forController() && p.item.Part == flash.PartSupplies:
		return false, refuse("the controller", "the power supplies")
	case content.forController():
		return false, nil
	case content.forSupplies() && p.item.Part == flash.PartController:
		return false, refuse("power supplies", "the controller")
	}
	return p.item.Supplies || content.forSupplies(), nil
}

// expectedInventory makes sure that the node shows the firmware that its profile
// promises: a board that is missing would not be updated, and nobody would know.
func (p *pkgStages) expectedInventory(ctx context.Context) error {
	name := p.u.t.Target().GetInventoryProfile()
	if name == "" {
		return nil
	}
	profile, ok := p.u.d.opts.Profiles[name]
	if !ok {
		return agent.Fail(job.FailureInvalidArgument, phaseValidation,
			fmt.Sprintf("the configuration of the agent has no expected inventory profile %q", name), nil)
	}
	if len(profile.Names) == 0 {
		return nil
	}
	return p.u.c.ExpectedInventory(ctx, profile.Names)
}

func (p *pkgStages) preconditions(ctx context.Context) error {
	c, seats := p.u.c, p.u.d.seats
	if c.Profile().Kind == redfish.KindCompute {
		if err := seats.seated(ctx, func() error { return c.CheckWritable(ctx) }); err != nil {
			return err
		}
		waiting := func(incomplete map[string]string) {
			p.u.t.Progress(0, fmt.Sprintf("Waiting for %d background firmware copies", len(incomplete)))
		}
		if err := c.WaitBackgroundCopy(ctx, waiting); err != nil {
			return err
		}
	}
	task, running, err := c.RunningUpdateTask(ctx, p.state().HMC)
	if err != nil {
		return err
	}
	if running {
		return agent.Fail(job.FailureUpdateAlreadyRunning, phaseUpdate,
			fmt.Sprintf("the device already runs an update task: %s (state %s); wait for it or cancel it on the device", task.Ref, task.State), nil)
	}
	if p.g.plan.Activate {
		return p.u.undisturbed(ctx, phaseUpdate)
	}
	return nil
}

// undisturbed refuses to cut the power of a tray while one of its controllers, whichever
// it is, writes firmware for somebody else: that breaks the component.
func (u *update) undisturbed(ctx context.Context, phase string) error {
	if u.c.Profile().Kind != redfish.KindCompute {
		return nil
	}
	task, running, err := u.c.RunningUpdate(ctx)
	if err != nil || !running {
		return err
	}
	return agent.Fail(job.FailureUpdateAlreadyRunning, phase, fmt.Sprintf(
		"the device runs an update task: %s (state %s), which the power cycle would break; wait for it or cancel it on the device",
		task.Ref, task.State), nil)
}

// compare notes the versions before the upload, and whether the package has
// anything new for the device.
func (p *pkgStages) compare(ctx context.Context, content *packageContent) error {
	s := p.state()
	inventory, missing, err := p.u.wholeInventory(ctx)
	if err != nil {
		return err
	}
	if len(missing) == 0 {
		if err := p.lacksTarget(inventory); err != nil {
			return err
		}
	}
	s.VersionsBefore = versionsOf(inventory)
	if s.Supplies != nil {
		return p.compareSupplies(ctx)
	}
	want, err := p.expected(ctx, content, inventory)
	if err != nil {
		return err
	}
	s.Expected = want.versions
	report := redfish.CompareVersions(s.Expected, inventory)
	if !want.complete || report.Status != redfish.VersionMatched || p.u.cmd.GetForce() {
		return nil
	}
	if len(missing) > 0 {
		// One of those that could not be read may be what the package is for.
		all, err := p.expected(ctx, content, append(slices.Clone(inventory), missing...))
		if err != nil || len(all.versions) > len(want.versions) {
			return err
		}
	}
	s.Skipped = alreadyInstalled
	return nil
}

const alreadyInstalled = "already at the version of the package"

// lacksTarget refuses an inventory entry that the node does not have, before the
// image is sent and not after.
func (p *pkgStages) lacksTarget(inventory []redfish.FirmwareItem) error {
	for _, uri := range p.send().Scope {
		name := path.Base(uri)
		has := slices.ContainsFunc(inventory, func(i redfish.FirmwareItem) bool {
			return strings.EqualFold(i.Name, name) || strings.EqualFold(i.URI, uri)
		})
		if !has {
			return agent.Fail(job.FailureTargetNotFound, phaseUpdate,
				fmt.Sprintf("the node has no firmware inventory entry %s, which target %s names", name, p.label), nil)
		}
	}
	return nil
}

// preserve makes a BMC keep its settings while its own firmware is replaced.
func (p *pkgStages) preserve(ctx context.Context) error {
	if s := p.state(); s.Skipped != "" {
		return agent.Skip(s.Skipped)
	}
	return fail(phaseUpdate, p.label, p.u.c.PreserveConfiguration(ctx))
}

// inventory reads the installed firmware. Members that cannot be read are left
// out: components vanish while they restart.
func (u *update) inventory(ctx context.Context) ([]redfish.FirmwareItem, error) {
	items, _, err := u.readInventory(ctx)
	return items, err
}

// wholeInventory reads the installed firmware, again while members are missing: what
// is not seen before an update is not verified behind it. It also gives the names of
// those that stay missing.
func (u *update) wholeInventory(ctx context.Context) (items, missing []redfish.FirmwareItem, err error) {
	for attempt := 1; ; attempt++ {
		items, missing, err = u.readInventory(ctx)
		if err != nil || len(missing) == 0 || attempt >= checkAttempts {
			return items, missing, err
		}
		if err := u.t.Sleep(ctx, u.d.opts.Timing.TaskPoll.Interval); err != nil {
			return nil, nil, err
		}
	}
}

// readInventory also gives the names of the members that could not be read.
func (u *update) readInventory(ctx context.Context) (items, missing []redfish.FirmwareItem, err error) {
	err = u.d.seats.seated(ctx, func() error {
		items, err = u.c.FirmwareInventory(ctx)
		return err
	})
	var incomplete *redfish.InventoryError
	if err != nil && !errors.As(err, &incomplete) {
		return nil, nil, err
	}
	if incomplete != nil {
		for _, m := range incomplete.Members {
			missing = append(missing, redfish.FirmwareItem{Name: path.Base(m.URI), URI: m.URI})
		}
	}
	return items, missing, nil
}

func versionsOf(inventory []redfish.FirmwareItem) map[string]string {
	out := make(map[string]string, len(inventory))
	for _, item := range inventory {
		out[item.Name] = item.Version
	}
	return out
}

// inventoryOf is an inventory of noted versions.
func inventoryOf(versions map[string]string) []redfish.FirmwareItem {
	out := make([]redfish.FirmwareItem, 0, len(versions))
	for name, version := range versions {
		out = append(out, redfish.FirmwareItem{Name: name, Version: version})
	}
	return out
}

// changed reports whether any entry reads another version than before, or with an
// entry named, whether that one does. Entries without a version, then or now, tell
// nothing: so read components whose host is off.
func changed(before map[string]string, inventory []redfish.FirmwareItem, entry string) bool {
	for _, item := range inventory {
		if entry != "" && !strings.EqualFold(item.Name, path.Base(entry)) {
			continue
		}
		if version := before[item.Name]; redfish.KnownVersion(version) && redfish.KnownVersion(item.Version) && version != item.Version {
			return true
		}
	}
	return false
}
