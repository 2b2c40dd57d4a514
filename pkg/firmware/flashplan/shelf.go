// SPDX-License-Identifier: Apache-2.0

package flashplan

import (
	"regexp"
	"slices"
	"strings"

	"github.com/rackbus/rackbus/pkg/firmware/flash"
	"github.com/rackbus/rackbus/pkg/product"
)

// powerUnit is the id of a LiteOn power unit.
var powerUnit = regexp.MustCompile(`^(?i:powerdevice)\d+$`)

// IsPowerUnit reports whether a component is the id of a LiteOn power unit.
func IsPowerUnit(component string) bool { return powerUnit.MatchString(component) }

// shelfItem: the package of a shelf says itself what it is for, the controller or
// the supplies; a component is needed only for one power unit, where a shelf has a
// collection of these.
func shelfItem(p product.Product, t Target) (Item, error) {
	key := t.Key
	if key == "" {
		key = t.Component
	}
	part, err := shelfPart(p, key)
	if err != nil {
		return Item{}, err
	}
	if part == "" && SupplyImage("", t.Component) {
		part = flash.PartSupplies
	}
	item := Item{Part: part, Supplies: part == flash.PartSupplies || part == "" && SupplyImage(t.BaseName())}
	if p.Redfish.PowerUnitsPath != "" && IsPowerUnit(t.Component) {
		item.Unit = strings.ToLower(t.Component)
	}
	return item, nil
}

// shelfPart is the part that the key of a firmware object means, LiteOnPMC for example,
// and empty for any other word.
func shelfPart(p product.Product, key string) (flash.ShelfPart, error) {
	word := strings.ReplaceAll(flash.KeyOf(key), "_", "")
	for _, brand := range product.Brands(product.PowerShelf) {
		end, ok := strings.CutPrefix(word, strings.ToUpper(brand))
		part := flash.ShelfPart(end)
		if !ok || part != flash.PartController && part != flash.PartSupplies {
			continue
		}
		if brand != p.Vendor.Brand {
			return "", flash.Invalid("%s takes %s packages, not %s", p.ID, p.Vendor.Brand, key)
		}
		return part, nil
	}
	return "", nil
}

// SupplyImage reports whether an image is for the supplies of a shelf and not for
// its controller, by the file's name or by the name of what it is for.
func SupplyImage(file string, names ...string) bool {
	file = strings.ToLower(file)
	if strings.HasPrefix(file, "sp-") || strings.Contains(file, "liteon-psu") || strings.Contains(file, "_psu") {
		return true
	}
	return slices.ContainsFunc(names, func(name string) bool {
		name = strings.ToLower(name)
		return slices.ContainsFunc([]string{"psu", "powerunit", "powerdevice"}, func(word string) bool { return strings.Contains(name, word) })
	})
}
