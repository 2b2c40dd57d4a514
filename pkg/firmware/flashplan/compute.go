// SPDX-License-Identifier: Apache-2.0

package flashplan

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

const (
	inventoryPath = "/redfish/v1/UpdateService/FirmwareInventory/"
	// baseboardPath is the update target of packages for the GPU baseboard.
	baseboardPath = "/redfish/v1/Chassis/HGX_Chassis_0"
)

// keyBMC and keyHMC are the packages of the tray and of its GPU baseboard.
const (
	keyBMC = "BMC"
	keyHMC = "HMC"
)

// members are the inventory entries of the logical components, all of them on
// the GPU baseboard.
func members() map[string]string {
	out := map[string]string{
		"HGX_BMC_0": "HGX_FW_BMC_0", "CPLD_0": "HGX_FW_CPLD_0", "EROT_BMC_0": "HGX_FW_ERoT_BMC_0",
		"PCIE_SWITCH_CONFIG_0": "HGX_PCIeSwitchConfig_0",
	}
	for i := range 2 {
		for key, member := range map[string]string{
			"CPU": "HGX_FW_CPU", "FPGA": "HGX_FW_FPGA", "EROT_CPU": "HGX_FW_ERoT_CPU", "EROT_FPGA": "HGX_FW_ERoT_FPGA",
		} {
			out[fmt.Sprintf("%s_%d", key, i)] = fmt.Sprintf("%s_%d", member, i)
		}
	}
	for i := range 4 {
		out[fmt.Sprintf("GPU_%d", i)] = fmt.Sprintf("HGX_FW_GPU_%d", i)
		out[fmt.Sprintf("INFOROM_GPU_%d", i)] = fmt.Sprintf("HGX_InfoROM_GPU_%d", i)
	}
	return out
}

// baseboardKeys are the logical components of trays that take the parts of a
// baseboard package one by one.
func baseboardKeys() []string {
	var keys []string
	for key := range members() {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// keyOf is the spelling of logical names: upper case, underscores.
func keyOf(component string) string {
	return strings.ToUpper(strings.ReplaceAll(strings.TrimSpace(component), "-", "_"))
}

// computeItem follows the rules of all trays: a URI is taken as it is, BMC means
// the tray's own package (no targets), HMC the GPU baseboard, other logical names
// their inventory entry, any other name an entry of that name; without a name the
// file's name decides.
func (r rule) computeItem(t Target) (Item, error) {
	key := keyOf(t.Component)
	switch {
	case t.Component == "" && keyOf(t.Key) == keyBMC:
		// A firmware object says by its key that the tray's own package is meant.
		return Item{}, nil
	case t.Component == "" && BaseboardPackage(t.BaseName()):
		return Item{Send: onBaseboard()}, nil
	case t.Component == "":
		baseboard := onBaseboard()
		return Item{baseboard: &baseboard}, nil
	case t.Component == baseboardPath, key == keyHMC:
		return Item{Send: onBaseboard()}, nil
	case strings.HasPrefix(t.Component, "/"):
		return Item{Send: at(t.Component)}, nil
	case key == keyBMC:
		return Item{}, nil
	}
	member, logical := members()[key]
	switch {
	case !logical:
		return Item{Send: at(inventoryPath + t.Component)}, nil
	case !slices.Contains(r.keys, key):
		return Item{}, invalid("%s takes the components BMC and HMC, not %s", r.nodeType, t.Component)
	default:
		return Item{Send: at(inventoryPath + member)}, nil
	}
}

func onBaseboard() Send { return Send{Targets: []string{baseboardPath}, Baseboard: true} }

// at sends a package to one resource.
func at(uri string) Send {
	s := Send{Targets: []string{uri}, Baseboard: OnBaseboard(path.Base(uri))}
	if strings.HasPrefix(uri, inventoryPath) {
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
