// SPDX-License-Identifier: Apache-2.0

package flashplan

import (
	"regexp"
	"slices"
	"strings"

	"github.com/rackbus/rackbus/pkg/firmware/flash"
	"github.com/rackbus/rackbus/pkg/product"
)

// switchWord is what the resources of components are named with.
var switchWord = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// SwitchTarget is the resource that a component of a switch is updated through:
// BMC, FPGA, EROT, CPLD1, BIOS, or the name in capitals for any other. Its errors
// are *Error.
func SwitchTarget(component string) (string, error) {
	word := strings.ToUpper(strings.TrimSpace(component))
	switch word {
	case "SMR":
		return "FPGA", nil
	case "SBIOS":
		return "BIOS", nil
	case "CPLD", "CPLD1", "CPLD2", "CPLD3", "CPLD4":
		return "CPLD1", nil
	}
	if !switchWord.MatchString(word) {
		return "", errorOf(flash.Invalid("%q names no component of a switch", component))
	}
	return word, nil
}

// SwitchBundle are the targets of a VR NVL72 switch in their order. A package that
// brings them all is installed at once.
func SwitchBundle() []string { return []string{"BMC", "BIOS", "SMA", "EROT", "CPLD1"} }

// TakesBundle reports whether a node type installs SwitchBundle at once.
func TakesBundle(nodeType string) bool {
	p, ok := product.ByID(nodeType)
	return ok && p.Bundle
}

// IsSwitchImage reports whether a file is an operating system image of a switch.
func IsSwitchImage(file string) bool {
	name := strings.ToLower(Target{File: file}.BaseName())
	return strings.HasSuffix(name, ".bin") && strings.Contains(name, "nvos")
}

// switchItem: the agent of switches finds out how a file is sent. Here only what
// makes no sense is refused.
func switchItem(t Target) (Item, error) {
	if t.Component == "" || IsSwitchImage(t.File) {
		return Item{}, nil
	}
	_, err := SwitchTarget(t.Component)
	return Item{}, err
}

// arrangeSwitch keeps the order of the request. An image of the operating system
// brings much of the firmware itself, and so stands alone.
func arrangeSwitch(items []Item, o Options) ([]Group, error) {
	if len(items) > 1 && slices.ContainsFunc(items, func(i Item) bool { return IsSwitchImage(i.File) }) {
		return nil, flash.Invalid("an operating system image of a switch is installed by itself, not together with other firmware")
	}
	return []Group{{Name: "switch", Kind: OutOfBand, Items: items, Activate: o.Activate}}, nil
}
