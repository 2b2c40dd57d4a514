// SPDX-License-Identifier: Apache-2.0

package nvue

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
)

// Platform identifies the switch.
type Platform struct {
	ProductName  string
	PartNumber   string
	SerialNumber string
	Raw          json.RawMessage
}

// Platform reads what the switch is.
func (c *Client) Platform(ctx context.Context) (Platform, error) {
	raw, err := c.get(ctx, "read platform", resource("platform"))
	if err != nil {
		return Platform{}, err
	}
	return platform(raw), nil
}

func platform(raw json.RawMessage) Platform {
	d := asDocument(raw)
	p := Platform{ProductName: d.text("product-name"), PartNumber: d.text("part-number"), SerialNumber: d.text("serial-number"), Raw: raw}
	if name := strings.TrimSpace(p.ProductName); name == "" || name == "N/A" {
		if other := d.text("system-type"); other != "" {
			p.ProductName = other
		}
	}
	return p
}

// ChassisLocation is where the switch sits. A member is empty when the switch
// gave none, or one that is neither text nor number.
type ChassisLocation struct {
	ChassisSN  string
	SlotNumber string
	TopologyID string
	TrayIndex  string
	Raw        json.RawMessage
}

// Tray is the tray index as a number; ok is false when the switch gave none.
func (l ChassisLocation) Tray() (index uint32, ok bool) {
	i, err := strconv.ParseUint(strings.TrimSpace(l.TrayIndex), 10, 32)
	return uint32(i), err == nil
}

// ChassisLocation reads where the switch sits.
func (c *Client) ChassisLocation(ctx context.Context) (ChassisLocation, error) {
	raw, err := c.get(ctx, "read chassis location", resource("platform", "chassis-location"))
	if err != nil {
		return ChassisLocation{}, err
	}
	return chassisLocation(raw), nil
}

func chassisLocation(raw json.RawMessage) ChassisLocation {
	d := asDocument(raw)
	return ChassisLocation{
		ChassisSN: d.text("chassis-sn"), SlotNumber: d.text("slot-number"),
		TopologyID: d.text("topology-id"), TrayIndex: d.text("tray-index"), Raw: raw,
	}
}

// FirmwareVersion is one component of the firmware inventory.
type FirmwareVersion struct {
	Version string
	Health  string
	// Pending is the version that waits for a power cycle, empty for none.
	Pending string
	Raw     json.RawMessage
}

// Firmware reads the firmware inventory, keyed by component.
func (c *Client) Firmware(ctx context.Context) (map[string]FirmwareVersion, error) {
	const op = "read firmware inventory"
	path := resource("platform", "firmware")
	raw, err := c.get(ctx, op, path)
	if err != nil {
		return nil, err
	}
	d := asDocument(raw)
	if d == nil {
		return nil, &Error{Op: op, Method: http.MethodGet, Path: path, Code: ErrBadResponse, Sent: true, reason: "the answer is no object"}
	}
	return firmware(d), nil
}

func firmware(d document) map[string]FirmwareVersion {
	out := make(map[string]FirmwareVersion, len(d))
	for component, raw := range d {
		entry := asDocument(raw)
		health := entry.object("Status").text("Health")
		if health == "" {
			health = entry.text("Health")
		}
		pending := entry.text("pending-firmware")
		if pending == "N/A" {
			pending = ""
		}
		out[component] = FirmwareVersion{
			Version: entry.first("actual-firmware", "version", "Version"), Health: health, Pending: pending, Raw: raw,
		}
	}
	return out
}

// FirmwareComponent reads one component as the switch gives it.
func (c *Client) FirmwareComponent(ctx context.Context, component string) (json.RawMessage, error) {
	return c.get(ctx, "read firmware component", resource("platform", "firmware", component))
}

// FirmwareFiles reads the firmware files of a component as the switch gives them.
func (c *Client) FirmwareFiles(ctx context.Context, component string) (json.RawMessage, error) {
	return c.get(ctx, "list firmware files", resource("platform", "firmware", component, "files"))
}

// InstallFirmware installs a firmware file that lies on the switch. It never
// forces: that would reboot at once.
func InstallFirmware(component, file string) Action {
	return Action{what: "install firmware", path: resource("platform", "firmware", component, "files", file), verb: "install", params: forced{false}, named: true}
}

// FetchFirmware lets the switch take over a bundle from a URL, for example
// "file:///tmp/bundle.fwpkg".
func FetchFirmware(url string) Action {
	return Action{what: "fetch firmware bundle", path: resource("platform", "firmware"), verb: "fetch", params: remote{url}, named: true}
}

// InstallFirmwareBundle installs a bundle that was fetched, for all components at
// once.
func InstallFirmwareBundle(file string) Action {
	return Action{what: "install firmware bundle", path: resource("platform", "firmware", "files", file), verb: "install", params: forced{false}, named: true}
}

// The settings under which an image brings the firmware of the switch ASIC.
const (
	ASICAutoUpdate = enabled
	ASICSource     = "default"
)

// ASICFirmware is how the firmware of the switch ASIC is updated.
type ASICFirmware struct {
	AutoUpdate string
	Source     string
}

// FollowsImage reports whether the image brings the firmware of the ASIC.
func (a ASICFirmware) FollowsImage() bool {
	return a.AutoUpdate == ASICAutoUpdate && a.Source == ASICSource
}

// ASICFirmware reads how the firmware of the switch ASIC is updated.
func (c *Client) ASICFirmware(ctx context.Context) (ASICFirmware, error) {
	raw, err := c.get(ctx, "read asic firmware", resource("platform", "firmware", "ASIC"))
	if err != nil {
		return ASICFirmware{}, err
	}
	d := asDocument(raw)
	return ASICFirmware{AutoUpdate: d.layered("auto-update"), Source: d.layered("fw-source")}, nil
}

// SetASICFollowsImage lets the image bring the firmware of the ASIC.
func SetASICFollowsImage() Edit {
	return Edit{
		what: "asic firmware", method: http.MethodPatch, path: resource("platform", "firmware", "ASIC"),
		body: map[string]string{"auto-update": ASICAutoUpdate, "fw-source": ASICSource},
	}
}
