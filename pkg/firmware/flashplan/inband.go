// SPDX-License-Identifier: Apache-2.0

package flashplan

import (
	"regexp"
	"slices"
	"strings"

	"github.com/rackbus/rackbus/pkg/firmware/flash"
	"github.com/rackbus/rackbus/pkg/product"
)

// inBandDevices are the network devices that Flint flashes from the host, in every
// spelling that clients use. BF3_BFB is the operating system image of a data
// processing unit, which nothing here installs.
func inBandDevices() map[string]string {
	return map[string]string{
		"CX7": "cx7", "CONNECTX7": "cx7", "CX8": "cx8", "CONNECTX8": "cx8",
		"BF3": "bf3_nic", "BF3NIC": "bf3_nic", "BLUEFIELD3": "bf3_nic", "BF3BFB": "bf3_bfb",
	}
}

// inBandFile is the form of the names that are safe on the host.
var inBandFile = regexp.MustCompile(`^[A-Za-z0-9._-]+\.(?i:bin|pldm)$`)

func inBandItem(t Target) (Item, bool, error) {
	key := strings.ToUpper(strings.NewReplacer("-", "", "_", "", " ", "").Replace(t.Component))
	device, ok := inBandDevices()[key]
	switch {
	case !ok:
		return Item{}, false, nil
	case device == "bf3_bfb":
		return Item{}, false, flash.Precondition(
			"BF3_BFB installs an operating system, which is not supported; update BF3_NIC with a Flint image instead")
	default:
		return Item{Device: device}, true, nil
	}
}

// checkInBand refuses in-band images where they have no place.
func checkInBand(p product.Product, items []Item, o Options) error {
	inBand := slices.DeleteFunc(slices.Clone(items), func(i Item) bool { return i.Device == "" })
	switch {
	case len(inBand) == 0:
		return nil
	case !p.InBand:
		return flash.Invalid("in-band targets (CX7, CX8, BF3_NIC) exist on GB200 compute trays only, not on %s", p.ID)
	case len(inBand) < len(items) && !o.Mixed:
		return flash.Invalid("in-band targets cannot be mixed with other targets in one request")
	case !o.Activate:
		return flash.Precondition("in-band targets need activate, since their firmware is loaded by a power cycle only")
	}
	seen := map[string]bool{}
	for _, i := range inBand {
		name := i.BaseName()
		if !inBandFile.MatchString(name) {
			return flash.Invalid("the in-band image %s has to end in .bin or .pldm and to consist of letters, digits, dot, dash and underscore", name)
		}
		if seen[name] {
			return flash.Invalid("two in-band images are named %s; their names have to differ", name)
		}
		seen[name] = true
	}
	return nil
}
