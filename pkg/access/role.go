// SPDX-License-Identifier: Apache-2.0

package access

import "fmt"

// Role is what a caller may do; a greater one includes the lesser. The values are
// those of rackbus.v1.Role.
type Role uint8

// The roles.
const (
	// None may do nothing but ask for the health of the service.
	None Role = iota
	// Viewer may read.
	Viewer
	// Operator may change hardware, jobs and inventory.
	Operator
	// Admin may do everything.
	Admin

	roleCount
)

var roleNames = [roleCount]string{None: "none", Viewer: "viewer", Operator: "operator", Admin: "admin"}

// String returns the name that the configuration uses.
func (r Role) String() string {
	if r < roleCount {
		return roleNames[r]
	}
	return fmt.Sprintf("role(%d)", uint8(r))
}

// Allows tells whether the role is enough for what needs least.
func (r Role) Allows(least Role) bool { return r < roleCount && r >= least }

// ParseRole reads the name of a role.
func ParseRole(name string) (Role, error) {
	for r, n := range roleNames {
		if n == name {
			return Role(r), nil
		}
	}
	return None, fmt.Errorf("%q is no role; use none, viewer, operator or admin", name)
}
