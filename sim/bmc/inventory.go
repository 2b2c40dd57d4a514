// SPDX-License-Identifier: Apache-2.0

package bmc

import (
	"slices"
	"strings"
)

// inventory is the FirmwareInventory collection.
func (d *Device) inventory() object {
	var members []string
	var embedded []any
	for i := range d.blueprint.components {
		c := &d.blueprint.components[i]
		if !d.listed(c.name) {
			continue
		}
		uri := inventoryURI + "/" + d.shownAs(c.name)
		members = append(members, uri)
		if d.knobs.EmbeddedInventory == EmbeddedAll || d.knobs.EmbeddedInventory == EmbeddedHalf && i%2 == 0 {
			embedded = append(embedded, object{"DataSourceUri": uri, "Name": d.shownAs(c.name), "Version": d.versionLocked(c.name)})
		}
	}
	doc := collection("SoftwareInventoryCollection", "Software Inventory Collection", members)
	if embedded != nil {
		doc["Oem"] = object{"Nvidia": object{"FirmwareInventory": embedded}}
	}
	return doc
}

// inventoryEntry is the page of a component.
func (d *Device) inventoryEntry(c *component) object {
	doc := object{
		"@odata.type": "#SoftwareInventory.v1_4_0.SoftwareInventory", "Id": d.shownAs(c.name), "Name": "Software Inventory",
		"Version": d.versionLocked(c.name), "Updateable": !c.fixed,
		"WriteProtected": slices.Contains(d.knobs.WriteProtected, c.name),
		"Status":         healthy(), "RelatedItem": []any{link(c.related)}, "RelatedItem@odata.count": 1,
	}
	if c.softwareID != "" {
		doc["SoftwareId"] = c.softwareID
	}
	return doc
}

// shownAs is the id an entry goes by.
func (d *Device) shownAs(name string) string {
	if id, ok := d.renamed[name]; ok {
		return id
	}
	return name
}

// ownName is the entry that goes by an id, in the blueprint's terms.
func (d *Device) ownName(id string) string {
	for name, shown := range d.renamed {
		if shown == id {
			return name
		}
	}
	return id
}

// listed reports whether an entry is to be seen: hidden ones, and those whose id another one took, are not.
func (d *Device) listed(name string) bool {
	return !slices.Contains(d.knobs.Hidden, name) && d.ownName(d.shownAs(name)) == name
}

// inventoryPath turns the URI of an inventory entry that goes by another id into its own. The second result is
// false for an entry that is not there.
func (d *Device) inventoryPath(path string) (string, bool) {
	id, ok := strings.CutPrefix(path, inventoryURI+"/")
	if !ok || len(d.renamed) == 0 && len(d.knobs.Hidden) == 0 {
		return path, true
	}
	name := d.ownName(id)
	return inventoryURI + "/" + name, d.shownAs(name) == id && d.listed(name)
}
