// SPDX-License-Identifier: Apache-2.0

package bmc

import (
	"fmt"
	"strings"
)

// Models returns all models.
func Models() []Model {
	var out []Model
	for i := range products() {
		out = append(out, Model(i+1))
	}
	return out
}

// ModelOf returns the model of a node type, written as in "compute_gb200_nvidia", in any case.
func ModelOf(nodeType string) (Model, bool) {
	for i, p := range products() {
		if strings.EqualFold(p.nodeType, strings.TrimSpace(nodeType)) {
			return Model(i + 1), true
		}
	}
	return 0, false
}

func (m Model) product() product {
	table := products()
	if m < 1 || int(m) > len(table) {
		return product{nodeType: fmt.Sprintf("model(%d)", int(m))}
	}
	return table[m-1]
}

// NodeType returns the node type in the form of the contract's NodeType values, for example
// "COMPUTE_GB200_NVIDIA". Types that have no value there, see DescriptorOnly, have their name in the same form.
func (m Model) NodeType() string { return strings.ToUpper(m.product().nodeType) }

// DescriptorOnly reports whether a request can name the type by a descriptor only.
func (m Model) DescriptorOnly() bool { return m.product().descriptorOnly }

// Descriptor returns the attributes of the type's node descriptor: role, vendor and product_family.
func (m Model) Descriptor() map[string]string {
	p := m.product()
	return map[string]string{"role": p.role, "vendor": p.vendor, "product_family": p.family}
}

// Compute reports whether the model is a compute tray.
func (m Model) Compute() bool { return m.product().shelf == nil && m.product().build != nil }

// Shelf reports whether the model is a power shelf.
func (m Model) Shelf() bool { return m.product().shelf != nil }

// scope says which package can carry a component and what activates it.
type scope int

const (
	scopeBMC scope = iota
	scopeHMC
	scopeController
	scopeSupply
)

// Releases is how many firmware releases a device can start with.
const Releases = 3

// releases are the versions a component starts with, one for each of the releases a device can be of.
type releases = [Releases]string

// component is one entry of the firmware inventory.
type component struct {
	name       string
	scope      scope
	softwareID string
	related    string
	// sku tells components apart that share a name: an image that carries a SKU is only for components of it.
	sku string
	// bootApart says that SBIOS images are for entries of that name, not for the CPUs.
	bootApart bool
	fixed     bool
	versions  releases
}
