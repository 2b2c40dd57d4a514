// SPDX-License-Identifier: Apache-2.0

package bmc

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"time"
)

// updateService is the UpdateService document.
func (d *Device) updateService() object {
	doc := object{
		"@odata.type": "#UpdateService.v1_9_0.UpdateService", "Id": "UpdateService", "Name": "Update Service",
		"ServiceEnabled": !d.knobs.ServiceDisabled, "Status": object{"State": "Enabled"},
		"FirmwareInventory": link(inventoryURI),
	}
	if d.offers(PushOctet) {
		doc["HttpPushUri"] = pushURI
		options := object{"HttpPushUriApplyTime": object{"ApplyTime": d.applyTime}}
		doc["HttpPushUriOptions"] = options
		if d.blueprint.product.shelf == nil {
			options["ForceUpdate"] = d.pushForce
			doc["HttpPushUriTargets"] = append([]string{}, d.pushTargets...)
		}
	}
	if d.offers(PushMultipart) {
		doc["MultipartHttpPushUri"] = multipartURI
		doc["MaxImageSizeBytes"] = 4 << 30
	}
	if d.offers(PushSimple) {
		doc["Actions"] = object{"#UpdateService.SimpleUpdate": object{
			"target": simpleUpdateURI, "TransferProtocol@Redfish.AllowableValues": []string{"HTTP", "HTTPS"},
		}}
	}
	if add := d.blueprint.product.quirks.service; add != nil {
		add(d, doc)
	}
	return doc
}

// offers reports whether the device can be updated in a way.
func (d *Device) offers(way Push) bool {
	if len(d.knobs.Advertise) > 0 {
		return slices.Contains(d.knobs.Advertise, way)
	}
	return way == PushOctet || way == PushMultipart && d.blueprint.product.shelf == nil
}

// silently reports whether a PATCH is to have no effect.
func (d *Device) silently() bool { return spend(&d.knobs.SilentPatches) }

// pushPatch is what can be changed of the UpdateService: the apply time and, on trays, what plain pushes are for.
type pushPatch struct {
	HTTPPushURITargets *[]string `json:"HttpPushUriTargets"`
	HTTPPushURIOptions struct {
		ForceUpdate          *bool
		HTTPPushURIApplyTime struct{ ApplyTime *string } `json:"HttpPushUriApplyTime"`
	} `json:"HttpPushUriOptions"`
}

// patchUpdateService changes the push options, and what the product adds.
func patchUpdateService(d *Device, _ time.Time, body object) answer {
	if more := d.blueprint.product.quirks.patch; more != nil {
		if a, done := more(d, body); done {
			return a
		}
	}
	var wanted pushPatch
	raw, _ := json.Marshal(body) // it came as JSON
	strict := json.NewDecoder(bytes.NewReader(raw))
	strict.DisallowUnknownFields()
	err := strict.Decode(&wanted)
	value, force, targets := wanted.HTTPPushURIOptions.HTTPPushURIApplyTime.ApplyTime, wanted.HTTPPushURIOptions.ForceUpdate, wanted.HTTPPushURITargets
	aimed := force != nil || targets != nil
	switch {
	case err != nil, value == nil && !aimed, aimed && d.blueprint.product.shelf != nil:
		return refusal(http.StatusBadRequest, "PropertyUnknown", "Only the options of pushes can be changed.")
	case value != nil && *value != "Immediate" && *value != "OnReset":
		return refusal(http.StatusBadRequest, "PropertyValueNotInList",
			"The apply time is Immediate or OnReset.", *value, "ApplyTime")
	case value != nil && *value == d.applyTime && d.knobs.RefuseUnchangedPatch:
		return refusal(http.StatusBadRequest, "PatchValueAlreadyExists", "The property has this value already.",
			"ApplyTime", *value)
	case d.silently():
		return noContent()
	}
	if value != nil {
		d.applyTime = *value
	}
	if force != nil {
		d.pushForce = *force
	}
	if targets != nil {
		d.pushTargets = *targets
	}
	return noContent()
}

// aimPush gives an octet-stream push the targets and the force that were set for it.
func (d *Device) aimPush(u *upload) {
	d.lock()
	defer d.mu.Unlock()
	u.targets, u.force = slices.Clone(d.pushTargets), d.pushForce
}

// ApplyTime returns the apply time of pushes.
func (d *Device) ApplyTime() string {
	d.lock()
	defer d.mu.Unlock()
	return d.applyTime
}
