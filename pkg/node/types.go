// SPDX-License-Identifier: Apache-2.0

package node

// RackType is the kind of NVLink rack a node belongs to. A rack refuses nodes
// of another rack type.
type RackType string

// The supported rack types.
const (
	RackGB200   RackType = "NVL_GB200"
	RackGB300   RackType = "NVL_GB300"
	RackVRNVL72 RackType = "NVL_VRNVL72"
)

// Model returns the product name shown to people, or "" for an unknown type.
func (r RackType) Model() string {
	switch r {
	case RackGB200:
		return "GB200 NVL"
	case RackGB300:
		return "GB300 NVL"
	case RackVRNVL72:
		return "VR NVL72"
	default:
		return ""
	}
}

// Type describes one supported kind of node. Types are values of a fixed table
// and comparable with ==; the zero Type is no type.
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

// The node types. Numbers are those of the published rack_manager.NodeType.
var types = [...]Type{
	{"compute_gb200_nvidia", 1, "compute", "nvidia", "gb200", FamilyCompute, RackGB200, true},
	{"compute_gb200_wiwynn", 0, "compute", "wiwynn", "gb200", FamilyCompute, RackGB200, true},
	{"compute_gb300_nvidia", 5, "compute", "nvidia", "gb300", FamilyCompute, RackGB300, false},
	{"compute_gb300_lenovo", 9, "compute", "lenovo", "gb300", FamilyCompute, RackGB300, false},
	{"compute_gb300_supermicro", 0, "compute", "supermicro", "gb300", FamilyCompute, RackGB300, false},
	{"compute_vrnvl72_nvidia", 10, "compute", "nvidia", "vrnvl72", FamilyCompute, RackVRNVL72, false},
	{"switch_gb200_nvidia", 3, "switch", "nvidia", "gb200", FamilySwitch, RackGB200, false},
	{"switch_gb300_nvidia", 6, "switch", "nvidia", "gb300", FamilySwitch, RackGB300, false},
	{"switch_vrnvl72_nvidia", 11, "switch", "nvidia", "vrnvl72", FamilySwitch, RackVRNVL72, false},
	{"powershelf_gb200_liteon", 2, "power_shelf", "liteon", "gb200", FamilyPowerShelf, RackGB200, false},
	{"powershelf_gb200_delta", 4, "power_shelf", "delta", "gb200", FamilyPowerShelf, RackGB200, false},
	{"powershelf_gb300_liteon", 7, "power_shelf", "liteon", "gb300", FamilyPowerShelf, RackGB300, false},
	{"powershelf_gb300_delta", 8, "power_shelf", "delta", "gb300", FamilyPowerShelf, RackGB300, false},
}

// Types returns all supported types in a fixed order.
func Types() []Type { return append([]Type(nil), types[:]...) }

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
