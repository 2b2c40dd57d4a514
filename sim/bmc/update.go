// SPDX-License-Identifier: Apache-2.0

package bmc

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/rackbus/rackbus/sim/firmwarepackage"
)

// plan is what an upload is going to change.
type plan struct {
	versions  map[string]string
	hgx       bool
	immediate bool
	// restartsAt is the percentage at which the controller restarts itself, 0 for never.
	restartsAt int
	// forgotten tasks are gone after that restart.
	forgotten bool
	handoff   Handoff
	// supply says that the update is one of supplies; failing and unchanged are those that do not take it.
	supply             bool
	failing, unchanged []string
	// unlisted updates show on the pages of the power units only, not in the TaskService.
	unlisted bool
	// end replaces a good end, for uploads the device takes and then fails.
	end *ending
}

// hgxMarker is found in versions and file names of packages for the HMC.
var hgxMarker = regexp.MustCompile(`(?i)HGX|HMC|P?4059|P?4109|P?4764|P?4974|P?4975|GB200-NVL4`)

// upload is a firmware file that has arrived whole.
type upload struct {
	file firmwarepackage.File
	sum  string
	// given is the file name the client gave.
	given   string
	targets []string
	force   bool
	oem     []byte
}

// images returns the file's images; a file without named ones is one image without a name.
func (u upload) images() []firmwarepackage.Image {
	if len(u.file.Images) > 0 {
		return u.file.Images
	}
	version := u.file.Version
	if version == "" {
		version = "raw-" + u.sum[:8]
	}
	return []firmwarepackage.Image{{Version: version}}
}

// planCompute decides what an upload to a compute tray changes.
func (d *Device) planCompute(u upload) (plan, *answer) {
	quirks := d.blueprint.product.quirks
	if quirks.admit != nil {
		if refused := quirks.admit(d, &u); refused != nil {
			return plan{}, refused
		}
	}
	wanted, hgx, refused := d.targets(u)
	if refused != nil {
		return plan{}, refused
	}
	p := plan{versions: map[string]string{}, hgx: hgx, immediate: d.knobs.Immediate}
	own := cmp.Or(quirks.bmcEntry, "FW_BMC_0")
	named := strings.HasPrefix(firstOf(u.targets), inventoryURI+"/")
	images := u.images()
	for _, image := range images {
		for _, c := range wanted {
			primary := image.Name == "" && (c.name == own || c.name == "HGX_FW_BMC_0")
			if primary || c.takes(image) || named && len(images) == 1 {
				p.versions[c.name] = image.Version
			}
		}
	}
	if quirks.shape != nil {
		quirks.shape(d, u, &p)
	}
	p.end = d.flaw(u, p)
	return p, nil
}

func firstOf(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

// targets returns the components an upload may change and whether they are the HMC's.
func (d *Device) targets(u upload) ([]*component, bool, *answer) {
	hgx := hgxMarker.MatchString(u.file.Version) || hgxMarker.MatchString(u.file.Name) ||
		slices.ContainsFunc(u.file.Images, func(i firmwarepackage.Image) bool { return hgxMarker.MatchString(i.Name) })
	if len(u.targets) == 0 {
		return d.scoped(hgx), hgx, nil
	}
	var out []*component
	for _, uri := range u.targets {
		if uri == hgxURI {
			out = append(out, d.scoped(true)...)
			continue
		}
		c := d.blueprint.index[d.ownName(strings.TrimPrefix(uri, inventoryURI+"/"))]
		if c == nil || c.fixed {
			a := refusal(http.StatusBadRequest, "ResourceMissingAtURI", fmt.Sprintf("%s cannot be updated.", uri), uri)
			return nil, false, &a
		}
		out = append(out, c)
	}
	return out, out[0].scope == scopeHMC, nil
}

func (d *Device) scoped(hgx bool) []*component {
	var out []*component
	for i := range d.blueprint.components {
		c := &d.blueprint.components[i]
		if !c.fixed && (c.scope == scopeHMC) == hgx {
			out = append(out, c)
		}
	}
	return out
}

var trailingIndex = regexp.MustCompile(`_\d+$`)

// canonical brings names of images and components to one form, with the index still on it.
func canonical(name string) string {
	name = strings.ToLower(name)
	for _, prefix := range []string{"hgx_fw_", "hgx_", "fw_"} {
		if rest, ok := strings.CutPrefix(name, prefix); ok {
			name = rest
			break
		}
	}
	switch stem := trailingIndex.ReplaceAllString(name, ""); stem {
	case "hmc":
		return "bmc" + name[len(stem):]
	case "cx9":
		return "cx" + name[len(stem):]
	case "smr":
		return "fpga" + name[len(stem):]
	}
	return name
}

// takes reports whether an image of this name is for the component.
func (c *component) takes(of firmwarepackage.Image) bool {
	image := of.Name
	if strings.EqualFold(image, c.name) {
		return true
	}
	onlyHMC := strings.HasPrefix(strings.ToLower(image), "hgx_") || strings.EqualFold(image, "HMC")
	if image == "" || onlyHMC && c.scope != scopeHMC {
		return false
	}
	mine, theirs := canonical(c.name), canonical(image)
	if !c.bootApart {
		// Where the boot firmware has no entry of its own, it is the CPU's.
		theirs = strings.Replace(theirs, "sbios", "cpu", 1)
	}
	if trailingIndex.MatchString(theirs) {
		return mine == theirs
	}
	if c.sku != "" && !of.ForSKU(c.sku) {
		return false
	}
	squeeze := func(s string) string { return strings.ReplaceAll(trailingIndex.ReplaceAllString(s, ""), "_", "") }
	mine, theirs = squeeze(mine), squeeze(theirs)
	return mine == theirs || theirs == "erot" && strings.HasPrefix(mine, "erot") && !strings.HasPrefix(mine, "erotapcfg")
}

// flaw returns how an update ends that the device accepts and cannot carry out.
func (d *Device) flaw(u upload, p plan) *ending {
	protected := d.knobs.HardwareWriteProtect
	for name := range p.versions {
		protected = protected || slices.Contains(d.knobs.WriteProtected, name)
	}
	switch {
	case len(p.versions) == 0:
		return &ending{state: taskCompleted, status: "Warning", at: 50, percent: 100, messages: []Message{{
			ID: updateRegistry + "NoTargetsDetermined", Text: "The update found no matching devices.", Severity: "Warning",
			Resolution: "Use a package for this device.",
		}}}
	case protected:
		return broken("The component is write protected.", "Take the write protection off.")
	case !u.force && slices.ContainsFunc(u.file.Images, func(i firmwarepackage.Image) bool { return i.Stamp < d.knobs.ComparisonStamp }):
		return broken("Component comparison stamp is lower than the firmware component comparison stamp in the FD.",
			"Force the update to go back to an older image.")
	case !u.force && d.knobs.SameVersion == SameVersionSkips && d.installedAlready(p):
		return &ending{state: taskCompleted, status: "OK", at: 10, percent: 100, messages: []Message{{
			ID: "NvidiaUpdate.1.0.ComponentUpdateSkipped", Severity: "OK",
			Text: "The component has this image already and was skipped.", Args: slices.Sorted(maps.Keys(p.versions)),
		}}}
	}
	return nil
}

// broken is the end of an update that failed in the middle.
func broken(text, resolution string) *ending {
	return &ending{state: taskException, status: "Critical", at: 50, percent: 50, messages: []Message{{
		ID: updateRegistry + "ApplyFailed", Text: text, Severity: "Critical", Resolution: resolution,
	}}}
}

// installedAlready reports whether a plan brings only versions that are there.
func (d *Device) installedAlready(p plan) bool {
	for name, version := range p.versions {
		if d.versionLocked(name) != version {
			return false
		}
	}
	return len(p.versions) > 0
}
