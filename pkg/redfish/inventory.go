// SPDX-License-Identifier: Apache-2.0

package redfish

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/stmcginnis/gofish/schemas"
)

// FirmwareType is a rough kind of firmware, guessed from names. The numbers are
// those of the published API.
type FirmwareType int

// The firmware types.
const (
	FirmwareUnknown FirmwareType = iota
	FirmwareBMC
	FirmwareBIOS
	FirmwareCPLD
	FirmwareFPGA
	FirmwareNIC
	FirmwareHBA
	FirmwareHMC
)

// FirmwareItem is one entry of the firmware inventory.
type FirmwareItem struct {
	Name       string
	URI        string
	Version    string
	SoftwareID string
	SKU        string
	Updateable bool
	// WriteProtected is nil when the device does not say.
	WriteProtected *bool
	// Health is "Unknown" when the device does not say.
	Health schemas.Health
	Type   FirmwareType
	// Model is that of the device the image runs on. The inventory itself tells it
	// only of power units; Client.Identify fills it in for others.
	Model string
	// RelatedItems are the resources the image runs on.
	RelatedItems []string
}

// MemberError is one inventory member that could not be read.
type MemberError struct {
	URI string
	Err error
}

// InventoryError says which members are missing from an inventory.
type InventoryError struct {
	Members []MemberError
}

// Error names the members.
func (e *InventoryError) Error() string {
	var parts []string
	for _, m := range e.Members {
		parts = append(parts, fmt.Sprintf("%s: %v", leaf(m.URI), m.Err))
	}
	return fmt.Sprintf("%d firmware inventory member(s) could not be read: %s", len(e.Members), clip(strings.Join(parts, "; ")))
}

// Unwrap gives the errors of the members.
func (e *InventoryError) Unwrap() []error {
	var errs []error
	for _, m := range e.Members {
		errs = append(errs, m.Err)
	}
	return errs
}

// ErrEmptyInventory is wrapped when a device lists no firmware at all.
var ErrEmptyInventory = errors.New("the firmware inventory is empty")

// FirmwareInventory reads all members of the firmware inventory, and the power
// units of shelves that list theirs elsewhere. When some could not be read it
// returns the others together with an *InventoryError. Rejected credentials and
// the end of ctx end the walk.
func (c *Client) FirmwareInventory(ctx context.Context) ([]FirmwareItem, error) {
	const op = "read firmware inventory"
	list, err := c.collection(ctx, op, updatePath+"/FirmwareInventory")
	if err != nil {
		return nil, err
	}
	items, failed, err := c.inventoryMembers(ctx, op, list)
	if err != nil {
		return items, err
	}
	if c.profile.PowerUnitsPath != "" {
		var missing []MemberError
		if items, missing, err = c.addPowerUnits(ctx, op, items); err != nil {
			return items, err
		}
		failed = append(failed, missing...)
	}
	switch {
	case len(failed) > 0:
		return items, &InventoryError{Members: failed}
	case len(items) == 0:
		return nil, &Error{Op: op, Path: list.path, Code: CodeUnavailable, cause: ErrEmptyInventory}
	}
	return items, nil
}

// inventoryMembers takes the members from the list embedded in the collection
// when that has all of them. Else it reads them one by one, and the list fills
// the gaps.
func (c *Client) inventoryMembers(ctx context.Context, op string, list *collection) (items []FirmwareItem, failed []MemberError, err error) {
	embedded := embeddedVersions(list)
	complete := len(embedded) > 0
	for _, member := range list.members {
		if _, ok := embedded[strings.ToLower(leaf(member))]; !ok {
			complete = false
		}
	}
	for _, member := range list.members {
		cover, covered := embedded[strings.ToLower(leaf(member))]
		if complete {
			items = append(items, embeddedItem(cover, member))
			continue
		}
		r, err := c.member(ctx, op, member)
		switch {
		case err == nil:
			items = append(items, firmwareItem(r.document, member))
		case hopeless(ctx, err):
			return items, failed, err
		case covered:
			items = append(items, embeddedItem(cover, member))
		default:
			failed = append(failed, MemberError{URI: member, Err: err})
		}
	}
	return items, failed, nil
}

// embeddedEntries is the list some vendors put into the collection itself.
func embeddedEntries(list *collection) []document {
	var out []document
	oem := list.object("Oem")
	for vendor := range oem {
		for _, raw := range oem.object(vendor).list("FirmwareInventory") {
			if d, err := parseDocument(raw); err == nil && embeddedName(d) != "" {
				out = append(out, d)
			}
		}
	}
	return out
}

// embeddedName is the member that an embedded entry stands for.
func embeddedName(d document) string {
	if name := leaf(d.link("DataSourceUri")); name != "" {
		return name
	}
	return d.text("Name")
}

// embeddedVersions gives the embedded entries that tell a version, by lower-case
// member name.
func embeddedVersions(list *collection) map[string]document {
	out := map[string]document{}
	for _, d := range embeddedEntries(list) {
		if d.has("Version") {
			out[strings.ToLower(embeddedName(d))] = d
		}
	}
	return out
}

// embeddedItem: an entry has no id of its own; its Name may be one for people.
func embeddedItem(d document, member string) FirmwareItem {
	item := firmwareItem(d, member)
	if !d.has("Id") {
		item.Name = leaf(member)
	}
	return item
}

func firmwareItem(d document, uri string) FirmwareItem {
	item := FirmwareItem{
		Name:         d.text("Id"),
		URI:          uri,
		Version:      d.text("Version"),
		SoftwareID:   d.text("SoftwareId"),
		SKU:          d.text("SKU"),
		Health:       schemas.Health(d.object("Status").text("Health")),
		RelatedItems: d.links("RelatedItem"),
	}
	if item.Name == "" {
		item.Name = d.text("Name")
	}
	if item.Name == "" {
		item.Name = leaf(uri)
	}
	if item.Health == "" {
		item.Health = "Unknown"
	}
	item.Updateable, _ = d.flag("Updateable")
	if protected, ok := d.flag("WriteProtected"); ok {
		item.WriteProtected = &protected
	}
	item.Type = firmwareTypeOf(item.Name + " " + item.SoftwareID + " " + item.URI)
	return item
}

// firmwareTypeOf searches for the first of these words, in this order. It is the
// published rule, although "hgx" then never wins over "bmc".
func firmwareTypeOf(text string) FirmwareType {
	text = strings.ToLower(text)
	for _, rule := range []struct {
		words []string
		kind  FirmwareType
	}{
		{[]string{"bmc"}, FirmwareBMC},
		{[]string{"bios", "uefi", "sbios"}, FirmwareBIOS},
		{[]string{"cpld"}, FirmwareCPLD},
		{[]string{"fpga", "smr"}, FirmwareFPGA},
		{[]string{"nic"}, FirmwareNIC},
		{[]string{"hba"}, FirmwareHBA},
		{[]string{"hmc", "hgx"}, FirmwareHMC},
	} {
		for _, word := range rule.words {
			if strings.Contains(text, word) {
				return rule.kind
			}
		}
	}
	return FirmwareUnknown
}
