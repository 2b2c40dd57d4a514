// SPDX-License-Identifier: Apache-2.0

package node

import "github.com/rackbus/rackbus/pkg/product"

// Ref is the exact identity of a node. Both ids are opaque: they are compared
// byte by byte and handed back to clients unchanged.
type Ref struct {
	RackID string
	NodeID string
}

// String returns "rack/node" for logs and messages. It is not a key: ids may
// themselves contain a slash.
func (r Ref) String() string { return r.RackID + "/" + r.NodeID }

// Family is the fleet of agents that drives a node.
type Family string

// The families of hardware agents.
const (
	FamilyCompute    = Family(product.Compute)
	FamilySwitch     = Family(product.Switch)
	FamilyPowerShelf = Family(product.PowerShelf)
)

// FamilyRack is the family of the jobs that drive a whole rack or none of its
// nodes: coordinators and downloads. The jobs service works on them; it opens
// secrets of their requests, and never the credentials of a node.
const FamilyRack Family = "rack"

// KeyFamilies returns every family that has key pairs of its own: those of
// hardware agents, and FamilyRack.
func KeyFamilies() []Family { return append(Families(), FamilyRack) }

// HasKeys reports whether f is one of KeyFamilies.
func (f Family) HasKeys() bool { return f.Valid() || f == FamilyRack }

// Families returns all families of hardware agents in a fixed order.
func Families() []Family {
	return []Family{FamilyCompute, FamilySwitch, FamilyPowerShelf}
}

// Valid reports whether f names a family of hardware agents.
func (f Family) Valid() bool {
	switch f {
	case FamilyCompute, FamilySwitch, FamilyPowerShelf:
		return true
	default:
		return false
	}
}
