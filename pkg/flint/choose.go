// SPDX-License-Identifier: Apache-2.0

package flint

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Reasons that devices and images do not fit.
var (
	// ErrDevices says that other devices are there than should be.
	ErrDevices = errors.New("network devices are not as expected")
	// ErrIncompatible says that there is no single image for a device.
	ErrIncompatible = errors.New("incompatible firmware")
)

// Image is an image on the host.
type Image struct {
	// Component is the kind as the request names it, Kind the device's.
	Component string
	Kind      string
	// Name is the base name of the file.
	Name string
	Firmware
}

// Match is the image for a device.
type Match struct {
	Device Device
	Image  Image
}

// CheckDevices compares the devices that were found with the counts of a profile,
// of which only the kinds named are checked, and with the kinds that images were
// given for. A tray has either CX7 or CX8, so one of them may be missing when both
// were asked for.
func CheckDevices(found []Device, counts map[string]int, wanted []string) error {
	have := map[string]int{}
	for _, d := range found {
		have[d.Kind]++
	}
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		if have[kind] != counts[kind] {
			return fmt.Errorf("%w: %d of %s found, the profile says %d", ErrDevices, have[kind], kind, counts[kind])
		}
	}
	either := slices.Contains(wanted, KindCX7) && slices.Contains(wanted, KindCX8) && have[KindCX7]+have[KindCX8] > 0
	for _, kind := range wanted {
		if have[kind] > 0 || either && (kind == KindCX7 || kind == KindCX8) {
			continue
		}
		return fmt.Errorf("%w: no %s found", ErrDevices, kind)
	}
	return nil
}

// Choose finds the image for every device of a kind that images were given for:
// the one with its PSID. Several of one kind and PSID have to carry the same
// version; a form that flint reads best is then preferred, and a tie is an error.
func Choose(devices []Device, images []Image) ([]Match, error) {
	var out []Match
	for _, d := range devices {
		if !slices.ContainsFunc(images, func(i Image) bool { return i.Kind == d.Kind }) {
			continue
		}
		image, err := choose(d, images)
		if err != nil {
			return nil, err
		}
		out = append(out, Match{d, image})
	}
	return out, nil
}

func choose(d Device, images []Image) (Image, error) {
	var fitting []Image
	for _, i := range images {
		if i.Kind == d.Kind && i.PSID == d.PSID {
			fitting = append(fitting, i)
		}
	}
	if len(fitting) == 0 {
		return Image{}, fmt.Errorf("%w: no image for %s %s with PSID %s", ErrIncompatible, d.Kind, d.Path, d.PSID)
	}
	for _, i := range fitting[1:] {
		if i.Version != fitting[0].Version {
			return Image{}, fmt.Errorf("%w: %s (%s) and %s (%s) are both for %s with PSID %s",
				ErrIncompatible, fitting[0].Name, fitting[0].Version, i.Name, i.Version, d.Kind, d.PSID)
		}
	}
	slices.SortStableFunc(fitting, func(a, b Image) int { return rank(a.Name) - rank(b.Name) })
	if len(fitting) > 1 && rank(fitting[0].Name) == rank(fitting[1].Name) {
		return Image{}, fmt.Errorf("%w: %s and %s are equally good for %s with PSID %s",
			ErrIncompatible, fitting[0].Name, fitting[1].Name, d.Kind, d.PSID)
	}
	return fitting[0], nil
}

// rank orders the forms of one image, the preferred first.
func rank(name string) int {
	name = strings.ToLower(name)
	for i, suffix := range []string{".signed.reduced.bin", ".signed.pldm", ".bin"} {
		if strings.HasSuffix(name, suffix) {
			return i
		}
	}
	return 3
}
