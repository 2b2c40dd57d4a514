// SPDX-License-Identifier: Apache-2.0

package node

import (
	"slices"

	"github.com/rackbus/rackbus/pkg/product"
)

// RackType is the kind of NVLink rack a node belongs to. A rack refuses nodes
// of another rack type.
type RackType string

// The supported rack types.
const (
	RackGB200   = RackType(product.RackGB200)
	RackGB300   = RackType(product.RackGB300)
	RackVRNVL72 = RackType(product.RackVRNVL72)
)

// Model returns the product name shown to people, or "" for an unknown type.
func (r RackType) Model() string {
	for _, p := range product.All() {
		if RackType(p.Generation.Rack) == r {
			return p.Generation.Model
		}
	}
	return ""
}

// Type describes one supported kind of node. Types are values of a fixed table,
// that of pkg/product, and comparable with ==; the zero Type is no type.
type Type struct {
	// ID is the stable name, for example "compute_gb200_nvidia".
	ID string
	// Number is the rack_manager.NodeType value, or 0 for a type that requests
	// can only name by descriptor.
	Number int32
	// Role, Vendor and ProductFamily are the canonical descriptor attributes.
	Role          string
	Vendor        string
	ProductFamily string
	Family        Family
	Rack          RackType
	// InBand is true where some components are flashed with Flint over SSH on
	// the host operating system.
	InBand bool
}

// types are the rows of the product table as nodes see them.
var types = typesOf(product.All())

func typesOf(products []product.Product) []Type {
	var all []Type
	for _, p := range products {
		all = append(all, Type{
			ID: p.ID, Number: p.Number, Role: p.Family.Role(), Vendor: p.Vendor.ID, ProductFamily: p.Generation.ID,
			Family: Family(p.Family), Rack: RackType(p.Generation.Rack), InBand: p.InBand,
		})
	}
	return all
}

// Types returns all supported types in a fixed order.
func Types() []Type { return slices.Clone(types) }

// ByID returns the type with the given stable name.
func ByID(id string) (Type, bool) {
	for _, t := range types {
		if t.ID == id {
			return t, true
		}
	}
	return Type{}, false
}

// ByNumber returns the type with the given rack_manager.NodeType value. Zero
// (UNSPECIFIED) is no type.
func ByNumber(n int32) (Type, bool) {
	if n == 0 {
		return Type{}, false
	}
	for _, t := range types {
		if t.Number == n {
			return t, true
		}
	}
	return Type{}, false
}

// DescriptorOnly reports whether requests can name t only by descriptor.
func (t Type) DescriptorOnly() bool { return t.Number == 0 }

// Descriptor returns the canonical descriptor attributes of t in a new map.
func (t Type) Descriptor() map[string]string {
	return map[string]string{
		AttrRole:          t.Role,
		AttrVendor:        t.Vendor,
		AttrProductFamily: t.ProductFamily,
	}
}

// String returns the stable name.
func (t Type) String() string { return t.ID }
