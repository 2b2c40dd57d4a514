// SPDX-License-Identifier: Apache-2.0

package flashplan

import (
	"slices"
	"strings"
)

// Supermicro's GB300 tray brings the baseboard package without the host's boot
// firmware (nosbios), the boot firmware and the BMC as three files. Each has to be
// in force before the next one; the BMC restarts itself and forgets its task.
const (
	supermicroBIOSTarget   = "supermicro_bios"
	supermicroBMC          = inventoryPath + "FW_BMC_0"
	supermicroVerification = "supermicro_firmware_manifest_version"
)

// supermicroPart is one of the three files, in their order.
type supermicroPart struct {
	name string
	// suffix and word are in the lower-case base name of the file.
	suffix, word string
	item         func() Item
	// named reports whether a component means this part.
	named func(component, key string) bool
}

func supermicroParts() []supermicroPart {
	return []supermicroPart{
		{
			name: "hmc", suffix: ".fwpkg", word: "nosbios",
			item:  func() Item { return Item{Send: onBaseboard()} },
			named: func(component, key string) bool { return key == keyHMC || component == baseboardPath },
		}, {
			name: "bios", suffix: ".bin", word: "bios",
			item: func() Item {
				cpus := []string{inventoryPath + "HGX_FW_CPU_0", inventoryPath + "HGX_FW_CPU_1"}
				return Item{Send: Send{Targets: cpus, Scope: cpus, Baseboard: true}}
			},
			named: func(component, key string) bool {
				return strings.EqualFold(component, supermicroBIOSTarget) || key == "BIOS"
			},
		}, {
			name: "bmc", suffix: ".bin", word: "obmc",
			item: func() Item {
				return Item{Send: Send{Targets: []string{supermicroBMC}, Scope: []string{supermicroBMC}}, LostTask: supermicroBMC}
			},
			named: func(component, key string) bool { return key == keyBMC || component == supermicroBMC },
		},
	}
}

func (p supermicroPart) takes(file string) bool {
	file = strings.ToLower(file)
	return strings.HasSuffix(file, p.suffix) && strings.Contains(file, p.word)
}

// partOf is the index of the part that a target means: by its component, without
// one only the BMC, by its file.
func partOf(t Target) int {
	parts := supermicroParts()
	if t.Component == "" {
		return slices.IndexFunc(parts, func(p supermicroPart) bool { return p.name == "bmc" && p.takes(t.BaseName()) })
	}
	return slices.IndexFunc(parts, func(p supermicroPart) bool { return p.named(t.Component, keyOf(t.Component)) })
}

func supermicro(t Target) (Item, bool, error) {
	at := partOf(t)
	if at < 0 {
		component := t.Component
		if component == "" {
			component = "<empty>"
		}
		return Item{}, false, invalid("a Supermicro GB300 tray takes the targets HMC, %s and BMC, not %s with the file %s",
			supermicroBIOSTarget, component, t.BaseName())
	}
	part := supermicroParts()[at]
	if !part.takes(t.BaseName()) {
		return Item{}, false, invalid("the file %s does not fit the %s target of a Supermicro GB300 tray, whose files end in %s and have %q in their name",
			t.BaseName(), part.name, part.suffix, part.word)
	}
	return part.item(), true, nil
}

// arrangeSupermicro puts the parts into their order, each in force before the next.
func arrangeSupermicro(items []Item, o Options) ([]Group, error) {
	var groups []Group
	for at, part := range supermicroParts() {
		of := slices.DeleteFunc(slices.Clone(items), func(i Item) bool { return partOf(i.Target) != at })
		if len(of) == 0 {
			continue
		}
		g := Group{Name: part.name, Kind: OutOfBand, Items: of, Activate: o.Activate, Verification: supermicroVerification}
		if part.name == "bmc" {
			g.Activate, g.Restarts = false, true
		}
		groups = append(groups, g)
	}
	if len(groups) > 1 && groups[0].Name == "hmc" && groups[1].Name == "bios" && !o.Activate {
		return nil, precondition("the HMC and BIOS packages of a Supermicro GB300 tray need activate, " +
			"since the first has to be in force before the second is sent")
	}
	return groups, nil
}
