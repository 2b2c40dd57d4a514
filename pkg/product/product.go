// SPDX-License-Identifier: Apache-2.0

package product

import (
	"slices"
	"strings"

	"github.com/rackbus/rackbus/pkg/firmware/flash"
)

// Family is the fleet of agents that drives a product.
type Family string

// The families.
const (
	Compute    Family = "compute"
	Switch     Family = "switch"
	PowerShelf Family = "powershelf"
)

// Role is the family as descriptors of nodes have it.
func (f Family) Role() string {
	if f == PowerShelf {
		return "power_shelf"
	}
	return string(f)
}

// Rack is the kind of NVLink rack that a product is for.
type Rack string

// The kinds of racks.
const (
	RackGB200   Rack = "NVL_GB200"
	RackGB300   Rack = "NVL_GB300"
	RackVRNVL72 Rack = "NVL_VRNVL72"
)

// Generation is a product family, such as gb200, and the racks it goes into.
type Generation struct {
	// ID is the product family in descriptors and in names of node types.
	ID   string
	Rack Rack
	// Model is the rack's name for people.
	Model string
}

// Vendor makes products.
type Vendor struct {
	// ID is the vendor in descriptors and in names of node types.
	ID string
	// Brand is the vendor as people write it. Keys of shelf packages begin with it.
	Brand string
}

// Product is a row of the table: all that makes nodes of one type what they are.
// What is zero needs no words: most products have no quirks.
type Product struct {
	// ID is the node type, made of family, generation and vendor.
	ID string
	// Number is the rack_manager.NodeType value, or 0 for a type that requests
	// can only name by descriptor.
	Number     int32
	Family     Family
	Generation Generation
	Vendor     Vendor
	// InBand is true where network devices are flashed with Flint over SSH on the
	// host operating system.
	InBand bool
	// Redfish is how the management controller is driven.
	Redfish Redfish
	// Flash is where sending packages leaves the ways of the family.
	Flash flash.Rule
	// Components are what it takes of manifests, in the order of flashing.
	Components []Component
	// Bundle says that one package brings all components, and is installed at once
	// when none of them is left out.
	Bundle bool
	// OlderRole is what lookup tables of earlier releases may have in place of the
	// family's role; empty mostly.
	OlderRole string
}

// Title names the product for people, for example "Supermicro GB300".
func (p Product) Title() string { return p.Vendor.Brand + " " + strings.ToUpper(p.Generation.ID) }

// All returns the table in a fixed order.
func All() []Product { return slices.Clone(table) }

// ByID returns the product of a node type.
func ByID(id string) (Product, bool) {
	at := slices.IndexFunc(table, func(p Product) bool { return p.ID == id })
	if at < 0 {
		return Product{}, false
	}
	return table[at], true
}

// Brands are the vendors of a family as people write them, each once.
func Brands(f Family) []string {
	var brands []string
	for _, p := range table {
		if p.Family == f && !slices.Contains(brands, p.Vendor.Brand) {
			brands = append(brands, p.Vendor.Brand)
		}
	}
	return brands
}
