// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"strings"

	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/product"
)

// Role is the part a board plays in a rack, as manifests and lookup tables name it.
type Role string

// The roles.
const (
	RoleCompute    Role = "Compute Node"
	RoleSwitch     Role = "Switch Tray"
	RolePowerShelf Role = "Power Shelf"
)

// roleOf finds the role of a board type, "" when it has none.
func roleOf(boardType string) Role {
	switch strings.ToLower(strings.TrimSpace(boardType)) {
	case "compute tray", "compute node":
		return RoleCompute
	case "switch tray":
		return RoleSwitch
	case "powershelf", "power shelf":
		return RolePowerShelf
	}
	return ""
}

// lookupRoles are the roles for which a board's components are looked up: shelves
// may be listed with the trays they feed.
func (r Role) lookupRoles() []Role {
	if r == RoleCompute {
		return []Role{RoleCompute, RolePowerShelf}
	}
	if r == "" {
		return nil
	}
	return []Role{r}
}

// RoleOf is the role whose components nodes of a type take.
func RoleOf(t node.Type) Role { return roleOfFamily(product.Family(t.Family)) }

func roleOfFamily(f product.Family) Role {
	switch f {
	case product.Switch:
		return RoleSwitch
	case product.PowerShelf:
		return RolePowerShelf
	default:
		return RoleCompute
	}
}
