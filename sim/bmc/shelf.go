// SPDX-License-Identifier: Apache-2.0

package bmc

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/rackbus/rackbus/sim/firmwarepackage"
)

// supplies is how many power supplies a shelf has.
const supplies = 6

// shelfLayout says how a shelf names its parts and what its controller does in an update.
type shelfLayout struct {
	// controller is the inventory entry that controller images change, mcu that of MCU images, "" without one.
	controller, mcu string
	// supply is the inventory entry of a supply, from 0.
	supply func(int) string
	// supplyVersion is how a supply shows the version of an image.
	supplyVersion func(version string) string
	// restartsAt is the percentage at which the controller restarts itself in an update under Immediate.
	restartsAt int
	// deviceUUID is the first descriptor of controller packages; they carry their version as the package version.
	deviceUUID string
	// together makes the update of all supplies fail when one does.
	together bool
	// system and equipment say which of Systems and PowerEquipment the service root has.
	system, equipment bool
}

// unit is what becomes of one supply in an update.
type unit struct {
	update *task
	failed bool
}

// switchSupplies switches all supplies, unless the shelf is set to ignore that.
func (d *Device) switchSupplies(on bool) {
	if d.knobs.PowerIgnored {
		return
	}
	for i := range d.supplyOn {
		d.supplyOn[i] = on
	}
}

// supplyFile recognises raw supply images by name.
var supplyFile = regexp.MustCompile(`(?i)^sp-|liteon-psu|_psu`)

// planShelf decides what a push to a shelf changes. One names a supply, or is negative for any component.
func (d *Device) planShelf(u upload, one int) plan {
	layout := d.blueprint.product.shelf
	p := plan{versions: map[string]string{}}
	supply := one >= 0
	for _, image := range u.images() {
		kind := image.Name + " " + u.file.Purpose
		if image.Name == "" {
			kind += " " + u.file.Name
		}
		kind = strings.ToLower(kind)
		switch {
		case one >= 0:
			p.versions[layout.supply(one)] = layout.shownVersion(u, image)
		case layout.deviceUUID != "" && u.file.DeviceUUID == layout.deviceUUID:
			p.versions[layout.controller] = u.file.Version
		case strings.Contains(kind, "psu") || strings.Contains(kind, "powerdevice") || supplyFile.MatchString(u.file.Name):
			supply = true
			for i := range supplies {
				p.versions[layout.supply(i)] = layout.shownVersion(u, image)
			}
		case layout.mcu != "" && (strings.Contains(kind, "mcu") || strings.Contains(kind, "pldm")):
			p.versions[layout.mcu] = image.Version
		default:
			p.versions[layout.controller] = image.Version
		}
	}
	p.supply = supply
	p.immediate = supply || d.applyTime == "Immediate" || d.knobs.Immediate
	if p.immediate && !supply {
		p.restartsAt = layout.restartsAt
	}
	if !p.immediate {
		p.handoff = d.knobs.Handoff
	}
	p.end = d.flaw(u, p)
	return p
}

// spareSupplies marks in a plan that is about to start the supplies whose updates are set to fail or to change nothing.
func (d *Device) spareSupplies(p *plan) {
	layout := d.blueprint.product.shelf
	if layout == nil {
		return
	}
	for i := range supplies {
		name := layout.supply(i)
		if _, hit := p.versions[name]; !hit {
			continue
		}
		if left := d.knobs.SupplyFailures[name]; left != 0 {
			d.knobs.SupplyFailures = counted(d.knobs.SupplyFailures, name)
			p.failing = append(p.failing, name)
			continue
		}
		if slices.Contains(d.knobs.SuppliesUnchanged, name) {
			p.unchanged = append(p.unchanged, name)
		}
	}
	if layout.together && len(p.failing) > 0 {
		p.end = broken("A supply did not take its image.", "Repeat the update.")
	}
}

// counted returns a copy of counters with one counted down; negative ones stay.
func counted(counters map[string]int, name string) map[string]int {
	out := map[string]int{}
	for key, n := range counters {
		if key == name && n > 0 {
			n--
		}
		if n != 0 {
			out[key] = n
		}
	}
	return out
}

// shownVersion is the version of a supply image the way the supplies show it.
func (l *shelfLayout) shownVersion(u upload, image firmwarepackage.Image) string {
	version := image.Version
	if token := firmwarepackage.SupplyVersion(u.file.Name); token != "" {
		version = token
	}
	return l.supplyVersion(version)
}

// fourDigits reports whether a version is four hex digits, and gives them in lower case.
func fourDigits(version string) (string, bool) {
	version = strings.ToLower(version)
	return version, len(version) == 4 && strings.Trim(version, "0123456789abcdef") == ""
}

// supplyPowerAction adds an action without parameters that switches all supplies.
func (b *Blueprint) supplyPowerAction(uri string, on bool) {
	b.action(uri, func(d *Device, _ time.Time, _ object) answer {
		d.switchSupplies(on)
		return success()
	})
	b.at(uri).bare = func(*Device) bool { return true }
}

// refuseAllSupplies is the answer to a push for all supplies when the knob says so.
func refuseAllSupplies() answer {
	return refusal(http.StatusInternalServerError, "InternalError", "Power units cannot be updated together.")
}
