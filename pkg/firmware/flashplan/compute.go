// SPDX-License-Identifier: Apache-2.0

package flashplan

import (
	"slices"
	"strings"

	"github.com/rackbus/rackbus/pkg/firmware/flash"
	"github.com/rackbus/rackbus/pkg/product"
)

// computeItem follows the rules of all trays: a URI is taken as it is, BMC means
// the tray's own package (no targets), HMC the GPU baseboard, other logical names
// their inventory entry, any other name an entry of that name; without a name the
// file's name decides.
func computeItem(p product.Product, t Target) (Item, error) {
	key := flash.KeyOf(t.Component)
	switch {
	case t.Component == "" && flash.KeyOf(t.Key) == flash.KeyBMC:
		// A firmware object says by its key that the tray's own package is meant.
		return Item{}, nil
	case t.Component == "" && flash.BaseboardPackage(t.BaseName()):
		return Item{Send: flash.ToBaseboard()}, nil
	case t.Component == "":
		return flash.ByContent(flash.ToBaseboard()), nil
	case t.Component == flash.BaseboardPath, key == flash.KeyHMC:
		return Item{Send: flash.ToBaseboard()}, nil
	case strings.HasPrefix(t.Component, "/"):
		return Item{Send: flash.To(t.Component)}, nil
	case key == flash.KeyBMC:
		return Item{}, nil
	}
	parts := product.Parts()
	at := slices.IndexFunc(parts, func(part product.Part) bool { return part.Key == key })
	switch {
	case at < 0:
		return Item{Send: flash.To(flash.InventoryPath + t.Component)}, nil
	case !slices.ContainsFunc(p.Components, func(c product.Component) bool { return c.Key == key }):
		return Item{}, flash.Invalid("%s takes the components BMC and HMC, not %s", p.ID, t.Component)
	default:
		return Item{Send: flash.To(flash.InventoryPath + parts[at].Entry)}, nil
	}
}
