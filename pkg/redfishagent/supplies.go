// SPDX-License-Identifier: Apache-2.0

package redfishagent

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/redfish"
)

// suppliesState is what an update knows of an image for LiteOn power units. The
// shelf is offered it for all of them at once; if it does not take it, or the
// units do not get there, they are updated one by one.
type suppliesState struct {
	// Version is what every unit should read, four hex digits; empty when unknown.
	Version string `json:"version,omitempty"`
	// Serial is why the units are updated one by one, empty while they are not.
	Serial string `json:"serial,omitempty"`
	// Pushes counts the tries with all units at once.
	Pushes int `json:"pushes,omitempty"`
	// Units are those of the serial way, in their order.
	Units []unitState `json:"units,omitempty"`
}

// serialTaskID stands for the units' updates in the result.
const serialTaskID = "liteon-psu-serial-complete"

var hexVersion = regexp.MustCompile(`^[0-9A-Fa-f]{4}$`)

// supplyVersion is the version an image for power units brings: by the file's
// name, else by what the package says.
func supplyVersion(file string, content *packageContent) string {
	if version := redfish.PowerUnitVersion(file); version != "" {
		return version
	}
	if content == nil {
		return ""
	}
	for _, p := range content.packages {
		for _, i := range p.Components {
			if hexVersion.MatchString(i.Version) {
				return i.Version
			}
		}
	}
	return ""
}

// compareSupplies finds out whether any unit needs the image.
func (p *pkgStages) compareSupplies(ctx context.Context) error {
	s := p.state()
	units, err := p.units(ctx)
	if err != nil {
		return err
	}
	if p.item.Unit != "" {
		s.Supplies.Serial = "the request names one power supply"
	}
	lacking := slices.ContainsFunc(units, func(u redfish.PowerUnit) bool { return !u.AtVersion(s.Supplies.Version) })
	if !lacking && !p.u.cmd.GetForce() {
		s.Skipped = alreadyInstalled
	}
	return nil
}

// units are the power units that the package is for.
func (p *pkgStages) units(ctx context.Context) ([]redfish.PowerUnit, error) {
	if p.item.Unit == "" {
		return p.u.c.PowerUnits(ctx)
	}
	unit, err := p.u.c.PowerUnit(ctx, p.item.Unit)
	return []redfish.PowerUnit{unit}, err
}

// pushSupplies offers the image for all units at once. A shelf that does not take
// it gets it for one unit after the other.
func (p *pkgStages) pushSupplies(ctx context.Context, img *image) error {
	s := p.state().Supplies
	if s.Serial != "" {
		return agent.Skip(s.Serial)
	}
	if err := p.setApplyTime(ctx); err != nil {
		return fail(phaseUpdate, p.label, tryAgain(err))
	}
	s.Pushes++
	if err := p.u.t.Save(ctx, p.u.state); err != nil {
		return err
	}
	result, err := p.u.c.PushPowerUnits(ctx, "", p.request(img))
	var device *redfish.Error
	switch {
	case err == nil:
		p.tracked(result.Task)
		p.state().Untracked = result.Task.IsZero()
		return p.uploaded()
	case !errors.As(err, &device), passes(err), ctx.Err() != nil, rejected(err):
		return fail(phaseUpdate, p.label, err)
	case device.OutcomeUnknown():
		return agent.Unknown(err)
	default:
		return p.goSerial("the shelf did not take the image for all power supplies: " + err.Error())
	}
}

// rejected reports a device that refuses whoever asks.
func rejected(err error) bool {
	code := redfish.CodeOf(err)
	return code == redfish.CodeUnauthenticated || code == redfish.CodeForbidden
}

// goSerial leaves the rest to the stage that updates one unit after the other.
func (p *pkgStages) goSerial(why string) error {
	p.u.t.Logger().Warn("power supplies are updated one by one", "op", "upload", "reason", why)
	p.state().Supplies.Serial = why
	return p.save()
}

// observeSupplies looks for what an interrupted push to all units has left: a
// task, or units at work or done. Units at rest prove that it has not begun, and
// after several tries the serial way is gone, which looks at each unit.
func (p *pkgStages) observeSupplies(ctx context.Context) (agent.Observation, error) {
	s := p.state()
	if s.Supplies.Serial != "" {
		return agent.ObservedDone, nil
	}
	task, err := p.adopt(ctx)
	if err != nil {
		return agent.ObservedUnknown, fail(phaseUpdate, p.label, again(err))
	}
	units, err := p.units(ctx)
	if err != nil {
		return agent.ObservedUnknown, fail(phaseUpdate, p.label, again(err))
	}
	begun := slices.ContainsFunc(units, func(u redfish.PowerUnit) bool {
		// A version that it had before proves nothing of a forced image.
		arrived := u.AtVersion(s.Supplies.Version) && !(redfish.PowerUnit{Version: s.VersionsBefore[u.ID]}).AtVersion(s.Supplies.Version)
		return u.Progress > 0 || arrived || changed(s.VersionsBefore, []redfish.FirmwareItem{{Name: u.ID, Version: u.Version}}, "")
	})
	switch {
	case !task.IsZero(), begun:
		p.tracked(task)
		s.Untracked, s.Uploaded = task.IsZero(), true
		return agent.ObservedDone, p.save()
	case s.Supplies.Pushes >= p.u.d.opts.Timing.SupplyPushes:
		return agent.ObservedDone, p.goSerial("the answer to the image for all power supplies was lost several times")
	default:
		return agent.ObservedNotStarted, nil
	}
}

// installSupplies follows the update of all units and makes sure that each has
// got there.
func (p *pkgStages) installSupplies(ctx context.Context) error {
	s := p.state()
	if s.Supplies.Serial != "" {
		return agent.Skip(s.Supplies.Serial)
	}
	told := "the power supplies tell their progress themselves"
	if !s.Untracked {
		result, err := p.u.c.WaitTask(ctx, s.Task, p.pollOptions())
		if err != nil {
			return fail(phasePoll, p.label, err)
		}
		if result.Outcome == redfish.TaskEndedBadly || result.Outcome == redfish.TaskLimitPassed {
			if err := p.awaitRest(ctx); err != nil {
				return fail(phasePoll, p.label, err)
			}
			return p.goSerial(fmt.Sprintf("the update of all power supplies ended badly: %v", result.Err))
		}
		told = result.Task.Text
	}
	bad, err := p.validate(ctx)
	switch at := slices.IndexFunc(bad, writing); {
	case err != nil && len(bad) == 0:
		return fail(phasePoll, p.label, err)
	case at >= 0:
		return fail(phasePoll, p.label, &unitError{bad[at].ID, reasonUnitTimeout, err})
	case err != nil:
		return p.goSerial(fmt.Sprintf("not every power supply took the image: %s", unitNames(bad)))
	}
	return p.finish(told)
}

// writing reports a unit that is in the middle of an update. Another image now would
// do harm.
func writing(u redfish.PowerUnit) bool { return u.Progress > 0 && u.Progress < 100 }

// awaitRest waits until no unit is in the middle of an update: a shelf's task may end
// before its units do.
func (p *pkgStages) awaitRest(ctx context.Context) error {
	end := p.u.d.opts.Timing.untracked()
	for {
		units, err := p.u.c.PowerUnits(ctx)
		at := slices.IndexFunc(units, writing)
		switch {
		case err != nil && !transient(err):
			return err
		case err == nil && at < 0:
			return nil
		case end() && err != nil:
			return err
		case end():
			return &unitError{units[at].ID, reasonUnitTimeout, errors.New("it is still being updated, and gets no other image meanwhile")}
		}
		p.u.t.Progress(0, "Waiting until no power supply is being updated for target "+p.label)
		if err := p.u.t.Sleep(ctx, p.u.d.opts.Timing.TaskPoll.Interval); err != nil {
			return err
		}
	}
}

// validate waits until every unit is done. While one is at work, and no task says
// how long that takes, it goes on for as long as a unit may take.
func (p *pkgStages) validate(ctx context.Context) ([]redfish.PowerUnit, error) {
	end := p.u.d.opts.Timing.untracked()
	for {
		p.u.t.Progress(100, "Validating the power supplies for target "+p.label)
		bad, err := p.u.c.ValidatePowerUnits(ctx, p.state().Supplies.Version)
		working := slices.ContainsFunc(bad, func(u redfish.PowerUnit) bool { return u.Progress > 0 })
		if err == nil || !working || end() {
			return bad, err
		}
	}
}

func unitNames(units []redfish.PowerUnit) string {
	text := ""
	for i, u := range units {
		if i > 0 {
			text += "; "
		}
		text += fmt.Sprintf("%s reads version %q, state %q, status %q", u.ID, u.Version, u.State, u.Status)
	}
	return text
}
