// SPDX-License-Identifier: Apache-2.0

package flashplan

import (
	"slices"
	"strings"

	"github.com/rackbus/rackbus/pkg/firmware/flash"
	"github.com/rackbus/rackbus/pkg/product"
)

// Plan arranges the packages of a request for a node type. Its errors are *Error.
func Plan(nodeType string, targets []Target, o Options) ([]Group, error) {
	groups, err := plan(nodeType, targets, o)
	if err != nil {
		return nil, errorOf(err)
	}
	return groups, nil
}

func plan(nodeType string, targets []Target, o Options) ([]Group, error) {
	p, ok := product.ByID(nodeType)
	if !ok {
		return nil, flash.Invalid("firmware updates of node type %s are not supported by this version", nodeType)
	}
	if len(targets) == 0 {
		return nil, flash.Invalid("the update names no firmware targets")
	}
	items := make([]Item, len(targets))
	for i, t := range targets {
		t.Component = strings.TrimSpace(t.Component)
		item, err := itemOf(p, t)
		if err != nil {
			return nil, err
		}
		item.Target, item.Index = t, i
		// The push to a shelf knows no such word; its images are sent as they are.
		items[i] = item.Forced(o.Force && p.Family != product.PowerShelf)
	}
	if err := checkInBand(p, items, o); err != nil {
		return nil, err
	}
	groups, err := arrange(p, items, o)
	if err != nil {
		return nil, err
	}
	nameGroups(groups)
	return groups, nil
}

// nameGroups leaves the only group without a name.
func nameGroups(groups []Group) {
	if len(groups) == 1 {
		groups[0].Name = ""
	}
}

// arrangeDefault is one group in the given order; images for network devices go
// first, in a group of their own.
func arrangeDefault(items []Item, o Options) ([]Group, error) {
	inBand := slices.DeleteFunc(slices.Clone(items), func(i Item) bool { return i.Device == "" })
	others := slices.DeleteFunc(slices.Clone(items), func(i Item) bool { return i.Device != "" })
	var groups []Group
	if len(inBand) > 0 {
		groups = append(groups, Group{Name: "in_band", Kind: InBand, Items: inBand, Activate: o.Activate})
	}
	if len(others) > 0 {
		groups = append(groups, Group{
			Name: "out_of_band", Kind: OutOfBand, Items: others, Activate: o.Activate, Note: orderNote(others),
		})
	}
	return groups, nil
}

// orderNote tells of a BMC package that stands before an HMC package.
func orderNote(items []Item) string {
	tray := false
	for _, i := range items {
		switch {
		case tray && i.Send.Baseboard && len(i.Send.Scope) == 0:
			return "the BMC package stands before the HMC package; the order of the request stands, although HMC before BMC is advised"
		case !i.Send.Baseboard && !i.Supplies && len(i.Send.Scope) == 0:
			tray = true
		}
	}
	return ""
}
