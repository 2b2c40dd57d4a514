// SPDX-License-Identifier: Apache-2.0

package flash

import (
	"path"
	"slices"
	"strings"
)

// Places that packages are sent to. The firmware inventory's is that of DSP0266,
// the other one that of NVIDIA's reference firmware, which all vendors build on.
const (
	InventoryPath = "/redfish/v1/UpdateService/FirmwareInventory/"
	// BaseboardPath is the update target of packages for the GPU baseboard.
	BaseboardPath = "/redfish/v1/Chassis/HGX_Chassis_0"
)

// KeyBMC and KeyHMC are the packages of the tray and of its GPU baseboard.
const (
	KeyBMC = "BMC"
	KeyHMC = "HMC"
)

// KeyOf is the spelling of logical names: upper case, underscores.
func KeyOf(component string) string {
	return strings.ToUpper(strings.ReplaceAll(strings.TrimSpace(component), "-", "_"))
}

// ToBaseboard sends a package to the GPU baseboard.
func ToBaseboard() Send { return Send{Targets: []string{BaseboardPath}, Baseboard: true} }

// To sends a package to one resource.
func To(uri string) Send {
	s := Send{Targets: []string{uri}, Baseboard: OnBaseboard(path.Base(uri))}
	if strings.HasPrefix(uri, InventoryPath) {
		s.Scope = []string{uri}
	}
	return s
}

// OnBaseboard reports whether an inventory entry belongs to the GPU baseboard.
func OnBaseboard(entry string) bool { return strings.HasPrefix(strings.ToUpper(entry), "HGX_") }

// BaseboardPackage reports whether a file name or a package's version is that of
// a package for the GPU baseboard: NVIDIA's package numbers and board names.
func BaseboardPackage(name string) bool {
	upper := strings.ToUpper(name)
	return slices.ContainsFunc([]string{"P4059", "P4109", "P4764", "P4974", "P4975", "GB200-NVL4", "HGX", "HMC"},
		func(word string) bool { return strings.Contains(upper, word) })
}
