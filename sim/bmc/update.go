// SPDX-License-Identifier: Apache-2.0

package bmc

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/rackbus/rackbus/sim/firmwarepackage"
)

// updateService is the UpdateService document.
func (d *Device) updateService() object {
	doc := object{
		"@odata.type": "#UpdateService.v1_9_0.UpdateService", "Id": "UpdateService", "Name": "Update Service",
		"ServiceEnabled": !d.knobs.ServiceDisabled, "Status": object{"State": "Enabled"},
		"HttpPushUri":        pushURI,
		"HttpPushUriOptions": object{"HttpPushUriApplyTime": object{"ApplyTime": d.applyTime}},
		"FirmwareInventory":  link(inventoryURI),
	}
	if d.Model().Compute() {
		doc["MultipartHttpPushUri"] = multipartURI
		doc["MaxImageSizeBytes"] = 1 << 30
	}
	return doc
}

// inventoryEntry is the page of a component.
func (d *Device) inventoryEntry(c *component) object {
	doc := object{
		"@odata.type": "#SoftwareInventory.v1_4_0.SoftwareInventory", "Id": c.name, "Name": "Software Inventory",
		"Version": d.versionLocked(c.name), "Updateable": !c.fixed,
		"WriteProtected": slices.Contains(d.knobs.WriteProtected, c.name),
		"Status":         healthy(), "RelatedItem": []any{link(c.related)}, "RelatedItem@odata.count": 1,
	}
	if c.softwareID != "" {
		doc["SoftwareId"] = c.softwareID
	}
	return doc
}

// patchUpdateService takes HttpPushUriOptions.HttpPushUriApplyTime.ApplyTime and nothing else.
func patchUpdateService(d *Device, _ time.Time, body object) answer {
	options, _ := body["HttpPushUriOptions"].(object)
	applyTime, _ := options["HttpPushUriApplyTime"].(object)
	value, ok := applyTime["ApplyTime"].(string)
	if !ok || len(body) != 1 {
		return refusal(http.StatusBadRequest, "PropertyUnknown", "Only the apply time can be changed.")
	}
	if value != "Immediate" && value != "OnReset" {
		return refusal(http.StatusBadRequest, "PropertyValueNotInList",
			"The apply time is Immediate or OnReset.", value, "ApplyTime")
	}
	if value == d.applyTime && d.knobs.RefuseUnchangedPatch {
		return refusal(http.StatusBadRequest, "PatchValueAlreadyExists", "The property has this value already.",
			"ApplyTime", value)
	}
	d.applyTime = value
	return noContent()
}

// ApplyTime returns the apply time of pushes.
func (d *Device) ApplyTime() string {
	d.lock()
	defer d.mu.Unlock()
	return d.applyTime
}

// plan is what an upload is going to change.
type plan struct {
	versions  map[string]string
	hgx       bool
	immediate bool
	// restarts says that the controller restarts itself at the end.
	restarts bool
	handoff  Handoff
	// unlisted updates show on the pages of the power units only, not in the TaskService.
	unlisted bool
	// end replaces a good end, for uploads the device takes and then fails.
	end *ending
}

// hgxMarker is found in versions and file names of packages for the HMC.
var hgxMarker = regexp.MustCompile(`(?i)HGX|HMC|P?4059|P?4764|P?4974|P?4975|GB200-NVL4`)

// upload is a firmware file that has arrived whole.
type upload struct {
	file    firmwarepackage.File
	sum     string
	targets []string
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
	wanted, hgx, refused := d.targets(u)
	if refused != nil {
		return plan{}, refused
	}
	p := plan{versions: map[string]string{}, hgx: hgx}
	named := strings.HasPrefix(firstOf(u.targets), inventoryURI+"/")
	images := u.images()
	for _, image := range images {
		for _, c := range wanted {
			primary := image.Name == "" && (c.name == "FW_BMC_0" || c.name == "HGX_FW_BMC_0")
			if primary || c.takes(image.Name) || named && len(images) == 1 {
				p.versions[c.name] = image.Version
			}
		}
	}
	p.end = d.flaw(p)
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
		c := d.blueprint.index[strings.TrimPrefix(uri, inventoryURI+"/")]
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
	case "sbios":
		return "cpu" + name[len(stem):]
	case "smr":
		return "fpga" + name[len(stem):]
	}
	return name
}

// takes reports whether an image of this name is for the component.
func (c *component) takes(image string) bool {
	if strings.EqualFold(image, c.name) {
		return true
	}
	onlyHMC := strings.HasPrefix(strings.ToLower(image), "hgx_") || strings.EqualFold(image, "HMC")
	if image == "" || onlyHMC && c.scope != scopeHMC {
		return false
	}
	mine, theirs := canonical(c.name), canonical(image)
	if trailingIndex.MatchString(theirs) {
		return mine == theirs
	}
	squeeze := func(s string) string { return strings.ReplaceAll(trailingIndex.ReplaceAllString(s, ""), "_", "") }
	mine, theirs = squeeze(mine), squeeze(theirs)
	return mine == theirs || theirs == "erot" && strings.HasPrefix(mine, "erot")
}

// flaw returns how an update ends that the device accepts and cannot carry out.
func (d *Device) flaw(p plan) *ending {
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
		return &ending{state: taskException, status: "Critical", at: 50, percent: 50, messages: []Message{{
			ID: updateRegistry + "ApplyFailed", Text: "The component is write protected.", Severity: "Critical",
			Resolution: "Take the write protection off.",
		}}}
	}
	return nil
}

// supplyFile recognises raw supply images by name.
var supplyFile = regexp.MustCompile(`(?i)^sp-|liteon-psu|_psu`)

// planShelf decides what a push to a shelf changes. One names a supply, or is negative for any component.
func (d *Device) planShelf(u upload, one int) plan {
	p := plan{versions: map[string]string{}}
	supply := one >= 0
	for _, image := range u.images() {
		kind := image.Name + " " + u.file.Purpose
		if image.Name == "" {
			kind += " " + u.file.Name
		}
		kind = strings.ToLower(kind)
		switch {
		case one >= 0:
			p.versions[powerDevice(one)] = supplyVersion(u, image)
		case strings.Contains(kind, "psu") || strings.Contains(kind, "powerdevice") || supplyFile.MatchString(u.file.Name):
			supply = true
			for i := range supplies {
				p.versions[powerDevice(i)] = supplyVersion(u, image)
			}
		case strings.Contains(kind, "mcu") || strings.Contains(kind, "pldm"):
			p.versions["mcu"] = image.Version
		default:
			p.versions[controllerName] = image.Version
		}
	}
	p.immediate = supply || d.applyTime == "Immediate"
	p.restarts = p.immediate && !supply
	if !p.immediate {
		p.handoff = d.knobs.Handoff
	}
	p.end = d.flaw(p)
	return p
}

// supplyVersion shows four hex digits the way supplies do.
func supplyVersion(u upload, image firmwarepackage.Image) string {
	version := image.Version
	if token := firmwarepackage.SupplyVersion(u.file.Name); token != "" {
		version = token
	}
	if len(version) != 4 || strings.Trim(strings.ToLower(version), "0123456789abcdef") != "" {
		return version
	}
	version = strings.ToLower(version)
	return fmt.Sprintf("0x%s / 0x%s", version[:2], version[2:])
}
