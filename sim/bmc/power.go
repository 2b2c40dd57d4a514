// SPDX-License-Identifier: Apache-2.0

package bmc

import (
	"fmt"
	"net/http"
	"slices"
	"time"
)

var (
	// resetTypes are what ComputerSystem.Reset takes.
	resetTypes = []string{
		"On", "ForceOn", "GracefulShutdown", "ForceOff", "PowerCycle", "GracefulRestart", "ForceRestart", "Nmi",
	}
	// managerResetTypes are what Manager.Reset takes.
	managerResetTypes = []string{"GracefulRestart", "ForceRestart", "PowerCycle"}
)

// resetSystem is ComputerSystem.Reset of the host.
func resetSystem(d *Device, now time.Time, body object) answer {
	kind, refused := d.resetType(body, "ComputerSystem.Reset", resetTypes, false)
	if refused != nil {
		return *refused
	}
	if d.knobs.PowerIgnored {
		return noContent()
	}
	switch kind {
	case "On", "ForceOn":
		if !spend(&d.knobs.PowerOnIgnored) {
			d.powerOn(now)
		}
	case "GracefulShutdown":
		if !spend(&d.knobs.PowerOffIgnored) {
			d.powerOff(now, d.cfg.Timing.Shutdown)
		}
	case "ForceOff":
		if !spend(&d.knobs.PowerOffIgnored) {
			d.powerOff(now, 0)
		}
	case "PowerCycle":
		d.powerOff(now, 0)
		d.powerOn(now)
	case "GracefulRestart", "ForceRestart":
		// A warm restart of a host that is off starts it, as on OpenBMC.
		if d.power == PowerOn {
			d.boots++
		}
		d.powerOn(now)
	}
	return noContent()
}

// spend counts a knob down and reports whether it was still up; a negative one stays.
func spend(n *int) bool {
	if *n == 0 {
		return false
	}
	if *n > 0 {
		*n--
	}
	return true
}

// resetType reads the ResetType of a reset action. A manager set to take none gets a graceful restart.
func (d *Device) resetType(body object, action string, usual []string, manager bool) (string, *answer) {
	if manager && d.knobs.ResetParameters == ResetParametersNone {
		for name := range body {
			a := refusal(http.StatusBadRequest, "ActionParameterUnknown", fmt.Sprintf("%s takes no %s.", action, name), action, name)
			return "", &a
		}
		return "GracefulRestart", nil
	}
	kind, err := textMember(body, "ResetType", d.resetValues(usual))
	if err != nil {
		a := badParameter(err, action, "ResetType", kind)
		return "", &a
	}
	return kind, nil
}

func (d *Device) resetValues(usual []string) []string {
	if len(d.knobs.AllowedResets) > 0 {
		return d.knobs.AllowedResets
	}
	return usual
}

// resetAction is a reset action as its resource shows it; owner is the resource.
func (d *Device) resetAction(target, owner string, usual []string) object {
	out := object{"target": target}
	switch d.knobs.ResetParameters {
	case ResetParametersListed:
		out["ResetType@Redfish.AllowableValues"] = d.resetValues(usual)
	case ResetParametersInfo:
		out["@Redfish.ActionInfo"] = owner + "/ResetActionInfo"
	case ResetParametersUntold, ResetParametersNone:
		// Nothing tells the values.
	}
	return out
}

// resetInfo adds the ActionInfo of a reset action.
func (b *Blueprint) resetInfo(owner string, usual []string) {
	b.live(owner+"/ResetActionInfo", func(d *Device, _ time.Time) object {
		return object{
			"@odata.type": "#ActionInfo.v1_2_0.ActionInfo", "Id": "ResetActionInfo", "Name": "Action Info",
			"Parameters": []any{object{
				"Name": "ResetType", "Required": true, "DataType": "String", "AllowableValues": d.resetValues(usual),
			}},
		}
	})
}

// powerOn brings the host up; coming from Off it is a power cycle for the components.
func (d *Device) powerOn(now time.Time) {
	if d.power != PowerOff {
		return
	}
	d.power = PowerPoweringOn
	d.boots++
	if !d.knobs.ActivationNeedsAUX {
		d.activate()
	}
	if d.knobs.PowerOnStuck {
		return
	}
	d.after(now, d.cfg.Timing.PowerOn, func(time.Time) {
		if d.power == PowerPoweringOn {
			d.power = PowerOn
		}
	})
}

func (d *Device) powerOff(now time.Time, takes time.Duration) {
	if d.power == PowerOff {
		return
	}
	d.power = PowerPoweringOff
	d.after(now, takes, func(time.Time) {
		if d.power == PowerPoweringOff {
			d.power = PowerOff
		}
	})
}

// resetAUX is NvidiaChassis.AuxPowerReset: it needs the host to be off and restarts everything, BMC included.
func resetAUX(d *Device, now time.Time, body object) answer {
	kind, err := textMember(body, "ResetType", []string{"AuxPowerCycle"})
	if err != nil {
		return badParameter(err, "NvidiaChassis.AuxPowerReset", "ResetType", kind)
	}
	if d.power != PowerOff {
		return refusal(http.StatusBadRequest, "ChassisPowerStateOffRequired",
			"The chassis has to be powered off for this action.", "BMC_0")
	}
	d.auxCycles++
	d.breakUpdates()
	d.activate()
	d.restartBMC(now, d.cfg.Timing.AUXOutage)
	return success()
}

// breakUpdates is a loss of power while components are written: their images are half, and show no version.
func (d *Device) breakUpdates() {
	for _, t := range d.tasks {
		if !t.ended.IsZero() || t.abandoned {
			continue
		}
		t.abandoned = true
		for name := range t.plan.versions {
			d.installLocked(name, "")
		}
	}
	d.tasks = slices.DeleteFunc(d.tasks, func(t *task) bool { return t.abandoned })
}

// resetManager is Manager.Reset. On shelves it activates the controllers' pending versions.
func resetManager(d *Device, now time.Time, body object) answer {
	if _, refused := d.resetType(body, "Manager.Reset", managerResetTypes, true); refused != nil {
		return *refused
	}
	if d.knobs.ManagerResetIgnored {
		return success()
	}
	if d.blueprint.product.shelf != nil {
		d.activate()
	}
	outage := d.cfg.Timing.BMCOutage
	if d.knobs.SilentManagerReset {
		outage = 0
	}
	d.restartBMC(now, outage)
	return success()
}

// activate turns pending versions into installed ones.
func (d *Device) activate() {
	pending := d.pending
	d.pending = nil
	d.bringUp(pending)
}

// bringUp installs versions, unless the device is set to drop them.
func (d *Device) bringUp(versions map[string]string) {
	if d.knobs.VersionUnchanged || len(versions) == 0 {
		return
	}
	for name, version := range versions {
		d.installLocked(name, version)
		if id, ok := d.knobs.Renames[name]; ok {
			if d.renamed == nil {
				d.renamed = map[string]string{}
			}
			d.renamed[name] = id
		}
	}
	if told := d.blueprint.product.quirks.activated; told != nil {
		told(d, versions)
	}
}
