// SPDX-License-Identifier: Apache-2.0

package bmc

import (
	"net/http"
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
	kind, err := textMember(body, "ResetType", resetTypes)
	if err != nil {
		return badParameter(err, "ComputerSystem.Reset", "ResetType", kind)
	}
	if d.knobs.PowerIgnored {
		return noContent()
	}
	switch kind {
	case "On", "ForceOn":
		d.powerOn(now)
	case "GracefulShutdown":
		d.powerOff(now, d.cfg.Timing.Shutdown)
	case "ForceOff":
		d.powerOff(now, 0)
	case "PowerCycle":
		d.powerOff(now, 0)
		d.powerOn(now)
	case "GracefulRestart", "ForceRestart":
		// A warm restart of a host that is off starts it, as on OpenBMC.
		d.powerOn(now)
	}
	return noContent()
}

// powerOn brings the host up; coming from Off it is a power cycle for the components.
func (d *Device) powerOn(now time.Time) {
	if d.power != PowerOff {
		return
	}
	d.power = PowerPoweringOn
	d.after(now, d.cfg.Timing.PowerOn, func(time.Time) {
		if d.power == PowerPoweringOn {
			d.power = PowerOn
		}
	})
	if !d.knobs.ActivationNeedsAUX {
		d.activate()
	}
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
	d.activate()
	d.restartBMC(now, d.cfg.Timing.AUXOutage)
	return success()
}

// resetManager is Manager.Reset. On shelves it activates the controllers' pending versions.
func resetManager(d *Device, now time.Time, body object) answer {
	kind, err := textMember(body, "ResetType", managerResetTypes)
	if err != nil {
		return badParameter(err, "Manager.Reset", "ResetType", kind)
	}
	if d.Model().Shelf() {
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
	for name, version := range d.pending {
		delete(d.pending, name)
		if !d.knobs.VersionUnchanged {
			d.installLocked(name, version)
		}
	}
}
