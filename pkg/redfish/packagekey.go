// SPDX-License-Identifier: Apache-2.0

package redfish

import (
	"regexp"
	"strings"
)

// Packages and inventories name the same component in their own ways:
// HGX_FW_ERoT_CPU_0 is EROT to a package, HGX_FW_CPU_0 is SBIOS. A nameKey is
// what both come down to.
type nameKey struct {
	// text is the name in lower case without HGX_, HGX_FW_ and separators.
	text string
	// class stands for all names of one kind of device; empty for a name that has
	// none, which is then compared as text.
	class string
	// index is the number at the end, empty without one.
	index string
	// baseboard marks a name of the GPU baseboard.
	baseboard bool
	// translated says that a package's own word was replaced.
	translated bool
}

// sbios is the class of boot firmware, which inventories list as the CPU's.
const sbios = "sbios"

var nameIndex = regexp.MustCompile(`_(\d+)$`)

// qualifiers are words that tell components apart whose names else contain one
// another: an InfoROM of a GPU is no GPU firmware, and the AP configuration of an
// ERoT is not the ERoT's own.
func qualifiers() []string {
	return []string{"erot", "inforom", "sma", "driver", "cpld", "mcu", "nvme", "apcfg"}
}

// inventoryKey is the key of an inventory entry.
func inventoryKey(name string) nameKey {
	lower := strings.ToLower(name)
	k := nameKey{text: lower}
	if m := nameIndex.FindStringSubmatch(lower); m != nil {
		k.index = m[1]
	}
	for _, prefix := range []string{"hgx_fw_", "hgx_"} {
		if rest, ok := strings.CutPrefix(k.text, prefix); ok {
			// The manager of the baseboard is a BMC to the inventory, an HMC to
			// packages.
			k.text, k.baseboard = strings.ReplaceAll(rest, "bmc", "hmc"), true
			break
		}
	}
	k.class = classOf(k.text, k.baseboard)
	k.text = squeezeName(k.text)
	return k
}

// componentKey is the key of a package component.
func componentKey(name string, baseboard bool) nameKey {
	if baseboard && !isBaseboardEntry(name) {
		name = "HGX_" + name
	}
	k := inventoryKey(name)
	switch {
	case strings.Contains(k.text, "smr"):
		// Inventories list it as the FPGA.
		k.text, k.translated = "fpga"+k.index, true
	case strings.Contains(k.text, "cx9"):
		// Inventories list a ConnectX-9 as FW_CX_n.
		k.text, k.translated = "fwcx"+k.index, true
	}
	return k
}

func classOf(text string, baseboard bool) string {
	has := func(word string) bool { return strings.Contains(text, word) }
	switch {
	case has("erot"):
		return "erot"
	case has("gpu") && !has("inforom") && !has("sma"):
		return "gpu"
	case has("cpu"), has(sbios):
		return sbios
	case !baseboard && has("pcie"):
		return "pcieswitch"
	default:
		return ""
	}
}

func squeezeName(name string) string {
	return strings.Map(func(r rune) rune {
		if r == '_' || r == '-' || r == ' ' {
			return -1
		}
		return r
	}, name)
}

// How well a component's name fits that of an entry.
const (
	equalScore  = 1000
	withinScore = 500 // it lies in the entry's name; longer ones say more
	classScore  = 400
	lastScore   = 100
	// translatedCost is taken from a name that was translated.
	translatedCost = 1
)

// score says how well a package component fits an inventory entry, 0 not at all.
func (k nameKey) score(c nameKey) int {
	if c.text == "" || c.index != "" && k.index != "" && c.index != k.index {
		return 0
	}
	for _, word := range qualifiers() {
		if strings.Contains(k.text, word) != strings.Contains(c.text, word) {
			return 0
		}
	}
	score := 0
	switch {
	case c.text == k.text:
		score = equalScore
	case k.class != c.class:
		return 0
	case strings.Contains(k.text, c.text):
		score = withinScore + 2*len(c.text)
	case k.class == sbios, k.class != "" && c.text == k.class:
		score = classScore
	case k.index == "" && strings.HasSuffix(c.text, strings.TrimPrefix(k.text, "fw")+"0"):
		score = lastScore
	default:
		return 0
	}
	if c.translated {
		score -= translatedCost
	}
	return score
}

// typeFits: SMA and SBIOS images come in types, and a type belongs to the entries
// that bear it in their name. Of other components a type says nothing here.
func typeFits(c PackageComponent, entry nameKey) bool {
	if c.Type == "" || !strings.Contains(entry.text, "sma") && entry.class != sbios {
		return true
	}
	return strings.Contains(entry.text, squeezeName(strings.ToLower(c.Type)))
}
