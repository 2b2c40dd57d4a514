// SPDX-License-Identifier: Apache-2.0

package bmc

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// lenovoBMC is the inventory entry of the BMC of Lenovo trays.
const lenovoBMC = "BMC"

// factoryPassword is what the account has after a BMC lost its configuration.
const factoryPassword = "factory-default"

// preserveKeys are the parts of its configuration that an AMI BMC can keep over an update of itself.
func preserveKeys() []string {
	return []string{
		"Syslog", "NTP", "Network", "Authentication", "EXTLOG", "FRU", "IPMI", "KVM", "REDFISH", "SEL", "SNMP", "SSH", "WEB", "SDR",
	}
}

// lenovoQuirks: the systems come in reverse order, uploads need an OEM part, and a new BMC image wipes whatever of
// the configuration UpdateService was not told to keep.
func lenovoQuirks() quirks {
	return quirks{
		baseboardFirst: true, bmcEntry: lenovoBMC, ifMatch: IfMatchRequired,
		service: func(d *Device, doc object) {
			keep := object{}
			for _, key := range preserveKeys() {
				keep[key] = d.preserve[key]
			}
			doc["Oem"] = object{"AMIUpdateService": object{
				"@odata.type": "#AMIUpdateService.v1_0_0.AMIUpdateService", "PreserveConfiguration": keep,
			}}
		},
		patch: patchPreserve, admit: admitLenovo,
		activated: func(d *Device, versions map[string]string) {
			if _, own := versions[lenovoBMC]; own && !d.preserve["Authentication"] {
				d.cfg.Password = factoryPassword
			}
		},
	}
}

// patchPreserve takes Oem.AMIUpdateService.PreserveConfiguration.
func patchPreserve(d *Device, body object) (answer, bool) {
	oem, _ := body["Oem"].(object)
	ami, _ := oem["AMIUpdateService"].(object)
	wanted, ok := ami["PreserveConfiguration"].(object)
	if !ok {
		return answer{}, false
	}
	next := maps.Clone(d.preserve)
	if next == nil {
		next = map[string]bool{}
	}
	for key, value := range wanted {
		on, isBool := value.(bool)
		if !isBool || !slices.Contains(preserveKeys(), key) {
			return *refused("The preserved configuration has no such member.", key), true
		}
		next[key] = on
	}
	if d.silently() {
		return noContent(), true
	}
	d.preserve = next
	return noContent(), true
}

// admitLenovo checks the OEM part: HGX packages have none of the Targets of other trays, BMC images name their entry.
func admitLenovo(_ *Device, u *upload) *answer {
	var oem struct{ ImageType, Platform string }
	if len(u.oem) == 0 || json.Unmarshal(u.oem, &oem) != nil {
		return refused("The update needs OemParameters.", "OemParameters")
	}
	ownURI := inventoryURI + "/" + lenovoBMC
	hpm := strings.HasSuffix(strings.ToLower(u.given), ".hpm")
	switch {
	case oem.ImageType == "PLDM" && oem.Platform == "HGX":
		if len(u.targets) > 0 {
			return refused("HGX packages take no targets.", "Targets")
		}
		u.targets = []string{hgxURI}
	case oem.ImageType == "BMC" && !hpm, oem.ImageType == "HPM" && hpm:
		if len(u.targets) != 1 || u.targets[0] != ownURI {
			return refused("BMC images have the BMC as their one target.", "Targets")
		}
	default:
		return refused("The image type does not fit the image.", oem.ImageType)
	}
	return nil
}

// PreservedConfiguration returns what a Lenovo tray keeps over an update of its BMC, nil for nothing.
func (d *Device) PreservedConfiguration() map[string]bool {
	d.lock()
	defer d.mu.Unlock()
	return maps.Clone(d.preserve)
}
