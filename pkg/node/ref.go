// SPDX-License-Identifier: Apache-2.0

package node

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
	FamilyCompute    Family = "compute"
	FamilySwitch     Family = "switch"
	FamilyPowerShelf Family = "powershelf"
)

// Families returns all families in a fixed order.
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
