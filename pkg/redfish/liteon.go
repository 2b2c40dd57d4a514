// SPDX-License-Identifier: Apache-2.0

package redfish

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/stmcginnis/gofish/schemas"
)

// PowerUnit is a supply of a LiteOn shelf as its vendor collection shows it.
type PowerUnit struct {
	ID           string
	URI          string
	Model        string
	SerialNumber string
	// Version names the images of both banks, for example "0xf1 / 0xf1".
	Version string
	State   string
	Status  string
	// Progress is the percentage of a running update, -1 when not told.
	Progress int
}

// PowerUnitPhase is where a unit stands in an update.
type PowerUnitPhase string

// The phases.
const (
	PowerUnitUpdating PowerUnitPhase = "updating"
	PowerUnitDone     PowerUnitPhase = "done"
	PowerUnitFailed   PowerUnitPhase = "failed"
)

var (
	versionToken = regexp.MustCompile(`_([0-9A-Fa-f]{4})(?:_|\.)`)
	hexByte      = regexp.MustCompile(`(?i)0x([0-9a-f]{2})`)
)

// PowerUnitVersion finds the version an image file brings, in its name between
// underscores, for example F1F1. Empty when the name has none.
func PowerUnitVersion(fileName string) string {
	// The closing underscore may open the next token, so it is looked at twice.
	m := versionToken.FindStringSubmatch(strings.ReplaceAll(fileName, "_", "__"))
	if m == nil {
		return ""
	}
	return strings.ToUpper(m[1])
}

// AtVersion reports whether both banks of the unit hold a version such as F1F1.
func (u PowerUnit) AtVersion(version string) bool {
	if version == "" {
		return false
	}
	installed := u.Version
	if parts := hexByte.FindAllStringSubmatch(installed, -1); parts != nil {
		installed = ""
		for _, p := range parts {
			installed += p[1]
		}
	}
	return strings.EqualFold(installed, strings.TrimPrefix(version, "0x"))
}

// Phase judges the unit. With a target version it is done at that version and at
// rest; without, it is done at 0 or 100 %.
func (u PowerUnit) Phase(target string) PowerUnitPhase {
	words := strings.ToLower(u.State + " " + u.Status)
	for _, bad := range []string{"critical", "error", "exception", "failed", "failure", "cancelled", "canceled", "disabled", "warning"} {
		if strings.Contains(words, bad) {
			return PowerUnitFailed
		}
	}
	done := u.Progress == 0 || u.Progress == 100
	if target != "" {
		done = u.AtVersion(target) && u.Progress == 0
	}
	if done {
		return PowerUnitDone
	}
	return PowerUnitUpdating
}

// PowerUnits lists the units of the shelf, sorted by id. A unit that cannot be
// read fails the call.
func (c *Client) PowerUnits(ctx context.Context) ([]PowerUnit, error) {
	const op = "read power units"
	if c.profile.PowerUnitsPath == "" {
		return nil, invalid(op, "the product has no power unit collection")
	}
	list, err := c.collection(ctx, op, c.profile.PowerUnitsPath)
	if err != nil {
		return nil, err
	}
	var units []PowerUnit
	for _, member := range list.members {
		r, err := c.member(ctx, op, member)
		if err != nil {
			return nil, err
		}
		units = append(units, powerUnit(r))
	}
	slices.SortFunc(units, func(a, b PowerUnit) int { return strings.Compare(a.ID, b.ID) })
	return units, nil
}

// PowerUnit reads one unit by its id, for example powerdevice3.
func (c *Client) PowerUnit(ctx context.Context, id string) (PowerUnit, error) {
	const op = "read power unit"
	if c.profile.PowerUnitsPath == "" || !bareID.MatchString(id) {
		return PowerUnit{}, invalid(op, "no such power unit")
	}
	r, err := c.get(ctx, op, c.profile.PowerUnitsPath+"/"+id)
	if err != nil {
		return PowerUnit{}, err
	}
	return powerUnit(r), nil
}

// addPowerUnits completes an inventory with the units that it lacks or lists
// without a version. A shelf without the collection has none to add.
func (c *Client) addPowerUnits(ctx context.Context, op string, items []FirmwareItem) ([]FirmwareItem, []MemberError, error) {
	list, err := c.collection(ctx, op, c.profile.PowerUnitsPath)
	if err != nil {
		switch {
		case hopeless(ctx, err):
			return items, nil, err
		case CodeOf(err) == CodeNotFound:
			return items, nil, nil
		}
		return items, []MemberError{{URI: c.profile.PowerUnitsPath, Err: err}}, nil
	}
	var failed []MemberError
	for _, member := range list.members {
		at := slices.IndexFunc(items, func(i FirmwareItem) bool { return strings.EqualFold(i.Name, leaf(member)) })
		if at >= 0 && items[at].Version != "" {
			continue
		}
		r, err := c.member(ctx, op, member)
		switch {
		case err != nil && hopeless(ctx, err):
			return items, failed, err
		case err != nil:
			failed = append(failed, MemberError{URI: member, Err: err})
		case at >= 0:
			items[at].Version = powerUnit(r).Version
		default:
			items = append(items, powerUnit(r).item())
		}
	}
	return items, failed, nil
}

// item is the unit as an entry of the inventory.
func (u PowerUnit) item() FirmwareItem {
	item := FirmwareItem{Name: u.ID, URI: u.URI, Version: u.Version, Model: u.Model, Updateable: true, Health: "Unknown"}
	for _, health := range []schemas.Health{schemas.OKHealth, schemas.WarningHealth, schemas.CriticalHealth} {
		if strings.EqualFold(u.Status, string(health)) {
			item.Health = health
		}
	}
	return item
}

func powerUnit(r *resource) PowerUnit {
	u := PowerUnit{
		ID: r.text("Id"), URI: r.path, Model: r.text("Model"), SerialNumber: r.text("SerialNumber"),
		Version: r.text("Version"), State: r.text("state"), Status: r.text("status"), Progress: -1,
	}
	if u.ID == "" {
		u.ID = leaf(r.path)
	}
	if p, ok := r.number("updateProgress"); ok {
		u.Progress = int(p)
	}
	return u
}

// PushPowerUnit sends an image to one unit, by the number in its id. The unit
// itself is what is polled afterwards.
func (c *Client) PushPowerUnit(ctx context.Context, id string, u UploadRequest) error {
	const op = "upload power unit firmware"
	number := strings.TrimLeft(id, "abcdefghijklmnopqrstuvwxyz")
	if c.profile.PowerUnitsPath == "" || number == "" || strings.Trim(number, "0123456789") != "" {
		return invalid(op, "no such power unit")
	}
	header := http.Header{}
	header.Set("LiteonPowerDeviceId", number)
	path := c.profile.PowerUnitsPath + "/Actions/UpdateService/"
	result, err := c.upload(ctx, op, &UpdateService{}, u, path, rawBody(u), header)
	if err != nil && !errors.Is(err, ErrAcceptedWithoutTask) {
		return err
	}
	// It answers {"Result":"success"}; there is no task.
	if result.Result != "" && !strings.EqualFold(result.Result, "success") {
		return fault(op, CodeInternal, "the shelf did not take the image for %s: it answers Result %q", id, result.Result)
	}
	return nil
}

// PushPowerUnits sends an image to one unit, by its id, or with an empty unit to
// all at once. Then the shelf updates them under one task, named in the result; a
// zero task says that only the units can tell. A shelf that refuses the push to
// all as busy is asked again; one whose answer was lost is not, since it may have
// begun: its error says OutcomeUnknown.
func (c *Client) PushPowerUnits(ctx context.Context, unit string, u UploadRequest) (UploadResult, error) {
	const op = "upload power unit firmware"
	if unit != "" {
		return UploadResult{}, c.PushPowerUnit(ctx, unit, u)
	}
	if c.profile.PowerUnitsPath == "" {
		return UploadResult{}, invalid(op, "the product has no power unit collection")
	}
	for attempt := 1; ; attempt++ {
		result, err := c.pushAllUnits(ctx, u)
		e, failed := asError(err)
		if !failed || hopeless(ctx, err) || !e.Transient() || e.OutcomeUnknown() || attempt >= c.timing.PowerUnitsAttempts {
			return result, err
		}
		c.log.Info("image for all power units not taken, trying again",
			slog.String("op", op), slog.Int("attempt", attempt), slog.String("err", err.Error()))
		if err := sleep(ctx, op, pause(c.timing.PowerUnitsPause, err)); err != nil {
			return UploadResult{}, err
		}
	}
}

func (c *Client) pushAllUnits(ctx context.Context, u UploadRequest) (UploadResult, error) {
	s, err := c.UpdateService(ctx)
	if err != nil {
		return UploadResult{}, err
	}
	result, err := c.UploadPush(ctx, s, u)
	if errors.Is(err, ErrAcceptedWithoutTask) {
		return result, nil
	}
	return result, err
}

// WaitPowerUnit polls a unit until its update has ended. target is the version
// to be reached, empty when unknown.
func (c *Client) WaitPowerUnit(ctx context.Context, id, target string, progress func(percent int, message string)) (PowerUnit, error) {
	const op = "wait for power unit"
	end := within(c.timing.PowerUnitLimit)
	for {
		unit, err := c.PowerUnit(ctx, id)
		switch {
		case err != nil && (hopeless(ctx, err) || !transient(err)):
			return unit, err
		case err == nil:
			if progress != nil {
				progress(unit.Progress, strings.TrimSpace(unit.State+" "+unit.Status))
			}
			switch unit.Phase(target) {
			case PowerUnitDone:
				return unit, nil
			case PowerUnitUpdating:
				// Looked at again after the pause.
			case PowerUnitFailed:
				return unit, fault(op, CodeInternal, "power unit %s reports state %q, status %q", id, unit.State, unit.Status)
			}
		}
		wait := pause(c.timing.PowerUnitPoll, err)
		if end.passedAfter(wait) {
			return unit, &Error{Op: op, Code: CodeTimeout, reason: "power unit " + id + " did not finish its update", cause: err}
		}
		if err := sleep(ctx, op, wait); err != nil {
			return unit, err
		}
	}
}

// ValidatePowerUnits waits until every unit is done and gives those that are not
// when the time is over, with an error.
func (c *Client) ValidatePowerUnits(ctx context.Context, target string) ([]PowerUnit, error) {
	const op = "validate power units"
	end := within(c.timing.PowerUnitsLimit)
	for {
		units, err := c.PowerUnits(ctx)
		if err != nil && hopeless(ctx, err) {
			return nil, err
		}
		bad := slices.DeleteFunc(slices.Clone(units), func(u PowerUnit) bool { return u.Phase(target) == PowerUnitDone })
		if err == nil && len(units) > 0 && len(bad) == 0 {
			return nil, nil
		}
		wait := pause(c.timing.PowerUnitsInterval, err)
		if end.passedAfter(wait) {
			return bad, &Error{Op: op, Code: CodeTimeout, reason: "not all power units finished their update", cause: err}
		}
		if err := sleep(ctx, op, wait); err != nil {
			return bad, err
		}
	}
}

// ShelfApplyTime is the apply time shelves are updated with.
const ShelfApplyTime = schemas.OnResetOperationApplyTime
