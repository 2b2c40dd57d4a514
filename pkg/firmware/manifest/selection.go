// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"slices"
	"strings"

	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/product"
)

// Selection is which components of which node types a request wants. The zero
// Selection wants what is applied by default.
type Selection struct {
	// Filters are the names by node type; a type without names takes every
	// component. When any are set, types that are not listed take no part.
	Filters map[node.Type][]string
	// Names are components for all types, for requests of older clients. They
	// count only without Filters.
	Names []string
}

// Includes reports whether nodes of the type take part at all.
func (s Selection) Includes(t node.Type) bool {
	_, listed := s.Filters[t]
	return len(s.Filters) == 0 || listed
}

// Check refuses names that stand for what cannot be installed.
func (s Selection) Check(types []node.Type) error {
	for _, t := range types {
		names, _ := s.names(t)
		for _, name := range names {
			if t.InBand && strings.EqualFold(strings.TrimSpace(name), sourceArm) {
				return errorf(KindSelection,
					"BF3_BFB and Arm OS installation are not supported; select BF3_NIC with a Flint-compatible firmware image")
			}
		}
	}
	return nil
}

// names returns the names wanted of a type, and whether there is a choice at all.
func (s Selection) names(t node.Type) (names []string, chosen bool) {
	if len(s.Filters) > 0 {
		return s.Filters[t], true
	}
	return s.Names, len(s.Names) > 0
}

// selects reports whether a component is wanted on nodes of the type.
func (s Selection) selects(t node.Type, c *product.Component) bool {
	if !s.Includes(t) {
		return false
	}
	names, chosen := s.names(t)
	switch {
	case !chosen:
		return c.ByDefault
	case len(names) == 0:
		return true
	}
	return slices.ContainsFunc(names, func(name string) bool {
		name = strings.TrimSpace(name)
		switch {
		case name == "":
			return false // it would name every whole package
		case strings.EqualFold(name, c.Key), strings.EqualFold(name, c.Target):
			return true
		}
		return c.ByDefault && strings.EqualFold(name, c.Source)
	})
}
