// SPDX-License-Identifier: Apache-2.0

package flashplan

import "github.com/rackbus/rackbus/pkg/product"

// Supported reports whether the type's firmware can be updated by this version.
func Supported(nodeType string) bool {
	_, ok := product.ByID(nodeType)
	return ok
}

// NodeTypes lists the types whose firmware can be updated.
func NodeTypes() []string {
	var names []string
	for _, p := range product.All() {
		names = append(names, p.ID)
	}
	return names
}

// itemOf plans one package: the product's own rule is asked first, then that of
// its family.
func itemOf(p product.Product, t Target) (Item, error) {
	if p.Family == product.Compute {
		if item, ok, err := inBandItem(t); ok || err != nil {
			return item, err
		}
	}
	if p.Flash.Item != nil {
		if item, ok, err := p.Flash.Item(t); ok || err != nil {
			return item, err
		}
	}
	switch p.Family {
	case product.PowerShelf:
		return shelfItem(p, t)
	case product.Switch:
		return switchItem(t)
	default:
		return computeItem(p, t)
	}
}

// arrange makes the groups, by the product's own rule or that of its family.
func arrange(p product.Product, items []Item, o Options) ([]Group, error) {
	switch {
	case p.Flash.Arrange != nil:
		return p.Flash.Arrange(items, o)
	case p.Family == product.Switch:
		return arrangeSwitch(items, o)
	default:
		return arrangeDefault(items, o)
	}
}
