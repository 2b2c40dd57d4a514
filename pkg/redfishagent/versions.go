// SPDX-License-Identifier: Apache-2.0

package redfishagent

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/rackbus/rackbus/pkg/redfish"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// wantedVersions are what the inventory should read once a package is in force.
type wantedVersions struct {
	versions []redfish.ExpectedVersion
	// complete says that they stand for everything the package brings, so that a
	// device which has them all needs nothing of it.
	complete bool
}

// expected is what the inventory should read once the package is in force, as
// far as the request or the package tells. A package that tells nothing gives
// nothing comparable.
func expected(profile redfish.Profile, target *rackbusv1.FirmwareUpdateTarget, img *image, content *packageContent,
	inventory []redfish.FirmwareItem,
) wantedVersions {
	hmc := forHMC(target.GetComponent(), img.name, content)
	entries, named := inScope(profile, target.GetComponent(), hmc, inventory)
	if v := target.GetExpectedVersion(); v != "" && target.GetComponent() != "" {
		name := path.Base(target.GetComponent())
		if w := match(entries, []packageImage{{name: name, version: v}}); w.complete {
			return w
		}
		if target.GetComponent() != profile.HMCTarget {
			// Not there yet, or never: a mismatch either way.
			return wantedVersions{versions: []redfish.ExpectedVersion{{Name: name, Version: v}}}
		}
	}
	if content == nil {
		return wantedVersions{}
	}
	if named && len(content.images) == 1 {
		return wantedVersions{
			versions: []redfish.ExpectedVersion{wanted(entries[0], content.images[0].version)}, complete: true,
		}
	}
	return match(entries, content.images)
}

func wanted(item redfish.FirmwareItem, version string) redfish.ExpectedVersion {
	e := redfish.ExpectedVersion{Name: item.Name, Version: version}
	// Some releases rename the entries of the baseboard.
	if rest, ok := strings.CutPrefix(item.Name, "HGX_"); ok {
		e.Aliases = []string{rest}
	}
	return e
}

// forHMC reports whether the controller of the GPU baseboard installs a package:
// by its target, else by the file name, the package's version and its images.
func forHMC(component, file string, content *packageContent) bool {
	switch {
	case strings.EqualFold(component, "HMC"):
		return true
	case strings.EqualFold(component, "BMC"):
		return false
	case component != "":
		return onBaseboard(path.Base(component))
	}
	return redfish.IsHMCPackage(file) || content.forHMC()
}

// onBaseboard reports whether an inventory entry belongs to the GPU baseboard.
func onBaseboard(name string) bool { return strings.HasPrefix(strings.ToUpper(name), "HGX_") }

// inScope gives the entries that a package may change; named says that they are
// the one which the request names.
func inScope(profile redfish.Profile, component string, hmc bool, inventory []redfish.FirmwareItem) (entries []redfish.FirmwareItem, named bool) {
	if profile.Kind == redfish.KindPowerShelf {
		return inventory, false
	}
	for _, item := range inventory {
		if component != "" && (strings.EqualFold(item.Name, component) || strings.EqualFold(item.URI, component)) {
			return []redfish.FirmwareItem{item}, true
		}
		if onBaseboard(item.Name) == hmc {
			entries = append(entries, item)
		}
	}
	return entries, false
}

// match gives each image's version to the entries it is for. An entry that
// several images with different versions are for stays unverified: which one it
// gets depends on the board.
func match(entries []redfish.FirmwareItem, images []packageImage) wantedVersions {
	out := wantedVersions{complete: len(images) > 0}
	used := make([]bool, len(images))
	for _, item := range entries {
		versions := map[string]bool{}
		for _, loose := range []bool{false, true} {
			for i, image := range images {
				if isFor(image.name, item.Name, loose) {
					versions[image.version], used[i] = true, true
				}
			}
			if len(versions) > 0 {
				break
			}
		}
		switch len(versions) {
		case 0:
		case 1:
			for v := range versions {
				out.versions = append(out.versions, wanted(item, v))
				out.complete = out.complete && v != ""
			}
		default:
			out.complete = false
		}
	}
	if slices.Contains(used, false) {
		out.complete = false
	}
	return out
}

var trailingIndex = regexp.MustCompile(`_\d+$`)

// isFor reports whether an image of a package is for an inventory entry: it has
// its name, or loosely that name without HGX_, FW_ and the index.
func isFor(image, entry string, loose bool) bool {
	if strings.EqualFold(image, entry) {
		return image != ""
	}
	onlyHMC := onBaseboard(image) || strings.EqualFold(image, "HMC")
	if !loose || image == "" || onlyHMC && !onBaseboard(entry) {
		return false
	}
	of, to := plainName(image), plainName(entry)
	if of == to {
		return true
	}
	if trailingIndex.MatchString(of) {
		return false
	}
	// Shelves put a hash behind the name of their controller.
	if strings.HasPrefix(to, "pmc_") && of == "pmc" {
		return true
	}
	of, to = squeeze(of), squeeze(to)
	return of == to || of == "erot" && strings.HasPrefix(to, "erot")
}

// plainName is a name without what packages and inventories put in front of it;
// controllers, boot firmware and FPGAs have two names each.
func plainName(name string) string {
	name = strings.ToLower(name)
	for _, prefix := range []string{"hgx_fw_", "hgx_", "fw_"} {
		if rest, ok := strings.CutPrefix(name, prefix); ok {
			name = rest
			break
		}
	}
	stem := trailingIndex.ReplaceAllString(name, "")
	for _, same := range [][2]string{{"hmc", "bmc"}, {"sbios", "cpu"}, {"smr", "fpga"}} {
		if stem == same[0] {
			return same[1] + name[len(stem):]
		}
	}
	return name
}

func squeeze(name string) string {
	return strings.ReplaceAll(trailingIndex.ReplaceAllString(name, ""), "_", "")
}
