// SPDX-License-Identifier: Apache-2.0

package redfishagent

import (
	"context"
	"errors"
	"fmt"
	"path"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/redfish"
)

// checkAttempts is how often the checks before an upload are tried while the
// device does not answer them.
const checkAttempts = 3

// check makes sure that the node can take the package, and finds out whether it
// needs it.
func (p *pkgStages) check(ctx context.Context) error {
	if p.i > 0 && p.u.state.Targets[p.i-1].Uploaded {
		if err := p.u.t.Sleep(ctx, p.u.d.opts.Timing.PackagePause); err != nil {
			return err
		}
	}
	img, err := p.u.d.images.open(ctx, p.target)
	if err != nil {
		return err
	}
	defer img.Close()
	content := p.read(img)
	s := p.state()
	*s = targetState{HMC: forHMC(p.target.GetComponent(), img.name, content)}
	if err := p.refuseSupplies(img, content); err != nil {
		return err
	}
	if err := p.preconditions(ctx); err != nil {
		return fail(phaseUpdate, p.label, err)
	}
	if err := p.compare(ctx, img, content); err != nil {
		return fail(phaseUpdate, p.label, again(err))
	}
	return p.save()
}

// refuseSupplies: supplies are flashed one by one, in a way of their own.
func (p *pkgStages) refuseSupplies(img *image, content *packageContent) error {
	if p.u.c.Profile().Kind != redfish.KindPowerShelf {
		return nil
	}
	if !redfish.IsPowerUnitPackage(path.Base(img.name), []string{p.target.GetComponent()}) && !content.forSupplies() {
		return nil
	}
	return agent.Fail(job.FailureInvalidArgument, phaseValidation,
		fmt.Sprintf("%s is an image for power supplies, which this release does not update", p.target.GetFile()), nil)
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
	return nil
}

// compare notes the versions before the upload, and whether the package has
// anything new for the device.
func (p *pkgStages) compare(ctx context.Context, img *image, content *packageContent) error {
	s := p.state()
	inventory, err := p.u.inventory(ctx)
	if err != nil {
		return err
	}
	s.VersionsBefore = versionsOf(inventory)
	want := expected(p.u.c.Profile(), p.target, img, content, inventory)
	s.Expected = want.versions
	report := redfish.CompareVersions(s.Expected, inventory)
	if want.complete && report.Status == redfish.VersionMatched && !p.u.cmd.GetForce() {
		s.Skipped = "already at the version of the package"
	}
	return nil
}

// inventory reads the installed firmware. Members that cannot be read are left
// out: components vanish while they restart.
func (u *update) inventory(ctx context.Context) (items []redfish.FirmwareItem, err error) {
	err = u.d.seats.seated(ctx, func() error {
		items, err = u.c.FirmwareInventory(ctx)
		return err
	})
	if err != nil && !errors.As(err, new(*redfish.InventoryError)) {
		return nil, err
	}
	return items, nil
}

func versionsOf(inventory []redfish.FirmwareItem) map[string]string {
	out := make(map[string]string, len(inventory))
	for _, item := range inventory {
		out[item.Name] = item.Version
	}
	return out
}

// changed reports whether any entry reads another version than before.
func changed(before map[string]string, inventory []redfish.FirmwareItem) bool {
	for _, item := range inventory {
		if version, known := before[item.Name]; known && version != item.Version {
			return true
		}
	}
	return false
}
