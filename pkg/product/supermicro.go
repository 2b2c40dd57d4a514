// SPDX-License-Identifier: Apache-2.0

package product

import (
	"slices"
	"strings"

	"github.com/rackbus/rackbus/pkg/firmware/flash"
)

// Supermicro's GB300 tray brings the baseboard package without the host's boot
// firmware (nosbios), the boot firmware and the BMC as three files. Each has to be
// in force before the next one; the BMC restarts itself and forgets its task.
const (
	supermicroBIOSTarget   = "supermicro_bios"
	supermicroBMC          = flash.InventoryPath + "FW_BMC_0"
	supermicroVerification = "supermicro_firmware_manifest_version"
)

// The three files.
func supermicroHMCFile() flash.File  { return flash.File{Suffix: ".fwpkg", Word: "nosbios"} }
func supermicroBIOSFile() flash.File { return flash.File{Suffix: ".bin", Word: "bios"} }
func supermicroBMCFile() flash.File  { return flash.File{Suffix: ".bin", Word: "obmc"} }

// supermicroTray are its components. The boot firmware is listed with the
// baseboard's package or by itself.
func supermicroTray() []Component {
	bios := Component{
		Source: SourceHMC, Key: "BIOS", Target: supermicroBIOSTarget, ByDefault: true,
		File: supermicroBIOSFile(), Installed: []string{"HGX_FW_CPU_0", "HGX_FW_CPU_1"},
	}
	alone := bios
	alone.Source = "BIOS"
	bmc := trayPackage().inFiles(supermicroBMCFile())
	bmc.ForgetsTask = true
	return []Component{baseboard().inFiles(supermicroHMCFile()), bios, alone, bmc}
}

// supermicroPart is one of the three files, in their order.
type supermicroPart struct {
	name string
	file flash.File
	item func() flash.Item
	// named reports whether a component means this part.
	named func(component, key string) bool
}

func supermicroParts() []supermicroPart {
	return []supermicroPart{
		{
			name: "hmc", file: supermicroHMCFile(),
			item:  func() flash.Item { return flash.Item{Send: flash.ToBaseboard()} },
			named: func(component, key string) bool { return key == flash.KeyHMC || component == flash.BaseboardPath },
		}, {
			name: "bios", file: supermicroBIOSFile(),
			item: func() flash.Item {
				cpus := []string{flash.InventoryPath + "HGX_FW_CPU_0", flash.InventoryPath + "HGX_FW_CPU_1"}
				return flash.Item{Send: flash.Send{Targets: cpus, Scope: cpus, Baseboard: true}}
			},
			named: func(component, key string) bool {
				return strings.EqualFold(component, supermicroBIOSTarget) || key == "BIOS"
			},
		}, {
			name: "bmc", file: supermicroBMCFile(),
			item:  func() flash.Item { return flash.Item{Send: flash.To(supermicroBMC), LostTask: supermicroBMC} },
			named: func(component, key string) bool { return key == flash.KeyBMC || component == supermicroBMC },
		},
	}
}

// supermicroPartOf is the index of the part that a target means: by its component,
// without one only the BMC, by its file.
func supermicroPartOf(t flash.Target) int {
	parts := supermicroParts()
	if t.Component == "" {
		return slices.IndexFunc(parts, func(p supermicroPart) bool { return p.name == "bmc" && p.file.Fits(t.BaseName()) })
	}
	return slices.IndexFunc(parts, func(p supermicroPart) bool { return p.named(t.Component, flash.KeyOf(t.Component)) })
}

func supermicroItem(t flash.Target) (flash.Item, bool, error) {
	at := supermicroPartOf(t)
	if at < 0 {
		component := t.Component
		if component == "" {
			component = "<empty>"
		}
		return flash.Item{}, false, flash.Invalid("a Supermicro GB300 tray takes the targets HMC, %s and BMC, not %s with the file %s",
			supermicroBIOSTarget, component, t.BaseName())
	}
	part := supermicroParts()[at]
	if !part.file.Fits(t.BaseName()) {
		return flash.Item{}, false, flash.Invalid(
			"the file %s does not fit the %s target of a Supermicro GB300 tray, whose files end in %s and have %q in their name",
			t.BaseName(), part.name, part.file.Suffix, part.file.Word)
	}
	return part.item(), true, nil
}

// supermicroGroups puts the parts into their order, each in force before the next.
func supermicroGroups(items []flash.Item, o flash.Options) ([]flash.Group, error) {
	var groups []flash.Group
	for at, part := range supermicroParts() {
		of := slices.DeleteFunc(slices.Clone(items), func(i flash.Item) bool { return supermicroPartOf(i.Target) != at })
		if len(of) == 0 {
			continue
		}
		g := flash.Group{Name: part.name, Kind: flash.OutOfBand, Items: of, Activate: o.Activate, Verification: supermicroVerification}
		if part.name == "bmc" {
			g.Activate, g.Restarts = false, true
		}
		groups = append(groups, g)
	}
	if len(groups) > 1 && groups[0].Name == "hmc" && groups[1].Name == "bios" && !o.Activate {
		return nil, flash.Precondition("the HMC and BIOS packages of a Supermicro GB300 tray need activate, " +
			"since the first has to be in force before the second is sent")
	}
	return groups, nil
}
