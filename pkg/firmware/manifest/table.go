// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"slices"
	"strings"

	"github.com/rackbus/rackbus/pkg/node"
)

// Role is the part a board plays in a rack, as manifests and lookup tables name it.
type Role string

// The roles.
const (
	RoleCompute    Role = "Compute Node"
	RoleSwitch     Role = "Switch Tray"
	RolePowerShelf Role = "Power Shelf"
)

// legacyVR is a role that older lookup tables have for the trays of VR NVL72.
const legacyVR Role = "VRNVL72 Compute Node"

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
func RoleOf(t node.Type) Role {
	switch t.Family {
	case node.FamilySwitch:
		return RoleSwitch
	case node.FamilyPowerShelf:
		return RolePowerShelf
	default:
		return RoleCompute
	}
}

// Names of components in manifests that rules ask for.
const (
	sourceHMC      = "HMC"
	sourceBMC      = "BMC"
	sourceBIOS     = "BIOS"
	sourceArm      = "BF3_BFB"
	sourceSwitchVR = "BMC+CPLD+SMA+ERoT+SBIOS"
)

// The node types, for the tables.
const (
	nvidia200  = "compute_gb200_nvidia"
	wiwynn     = "compute_gb200_wiwynn"
	nvidia300  = "compute_gb300_nvidia"
	lenovo     = "compute_gb300_lenovo"
	supermicro = "compute_gb300_supermicro"
	vr72       = "compute_vrnvl72_nvidia"
	switch200  = "switch_gb200_nvidia"
	switch300  = "switch_gb300_nvidia"
	switchVR   = "switch_vrnvl72_nvidia"
	liteon200  = "powershelf_gb200_liteon"
	liteon300  = "powershelf_gb300_liteon"
	delta200   = "powershelf_gb200_delta"
	delta300   = "powershelf_gb300_delta"
)

// Update targets of trays.
const (
	targetHGX      = "/redfish/v1/Chassis/HGX_Chassis_0"
	inventoryPath  = "/redfish/v1/UpdateService/FirmwareInventory/"
	targetBIOS     = "supermicro_bios"
	wholePackage   = ""
	targetSwitchVR = wholePackage
)

// mapping says where a component of a manifest goes on some node types.
type mapping struct {
	// source is the component's name in manifests, matched exactly.
	source string
	// key is the name that callers select by.
	key string
	// target is what the node's update is told; empty lets the package decide.
	target string
	// byDefault components are applied without being asked for.
	byDefault bool
	types     []string
	// several are the node types that take every package of the key, not just the
	// first.
	several []string
	// file, when set, is what the name of a file must be like.
	file *fileRule
	// installed are the inventory entries that show the component's version; one
	// that ends in '*' stands for all that begin so.
	installed []string
}

// fileRule tells files of one component apart by their names.
type fileRule struct{ suffix, contains string }

func (r *fileRule) fits(name string) bool {
	name = strings.ToLower(name)
	return r == nil || strings.HasSuffix(name, r.suffix) && strings.Contains(name, r.contains)
}

var (
	gb200     = []string{nvidia200, wiwynn}
	withParts = []string{nvidia200, wiwynn, nvidia300}
)

// part is a single component of the GPU baseboard's package. Such parts are
// installed only when they are asked for.
func part(key, inventory string) mapping {
	return mapping{
		source: sourceHMC, key: key, target: inventoryPath + inventory, types: withParts, installed: []string{inventory},
	}
}

// inBand is a network device that is flashed from the host operating system. The
// management controller does not list it.
func inBand(name string) mapping {
	return mapping{source: name, key: name, target: name, types: gb200, several: gb200}
}

// computeMappings is everything about compute trays. Rows stand in the order in
// which targets are flashed: the baseboard's package, its parts, network devices,
// and the tray's own controller last, because it restarts.
var computeMappings = []mapping{
	{source: sourceHMC, key: "HMC", target: targetHGX, byDefault: true,
		types: []string{nvidia200, wiwynn, nvidia300, lenovo, vr72}, several: []string{lenovo}, installed: []string{"HGX_FW_BMC_0"}},
	{source: sourceHMC, key: "HMC", target: targetHGX, byDefault: true,
		types: []string{supermicro}, file: &fileRule{".fwpkg", "nosbios"}, installed: []string{"HGX_FW_BMC_0"}},
	part("CPU_0", "HGX_FW_CPU_0"), part("CPU_1", "HGX_FW_CPU_1"),
	part("GPU_0", "HGX_FW_GPU_0"), part("GPU_1", "HGX_FW_GPU_1"), part("GPU_2", "HGX_FW_GPU_2"), part("GPU_3", "HGX_FW_GPU_3"),
	part("HGX_BMC_0", "HGX_FW_BMC_0"),
	part("FPGA_0", "HGX_FW_FPGA_0"), part("FPGA_1", "HGX_FW_FPGA_1"),
	part("CPLD_0", "HGX_FW_CPLD_0"),
	part("EROT_BMC_0", "HGX_FW_ERoT_BMC_0"),
	part("EROT_CPU_0", "HGX_FW_ERoT_CPU_0"), part("EROT_CPU_1", "HGX_FW_ERoT_CPU_1"),
	part("EROT_FPGA_0", "HGX_FW_ERoT_FPGA_0"), part("EROT_FPGA_1", "HGX_FW_ERoT_FPGA_1"),
	part("INFOROM_GPU_0", "HGX_InfoROM_GPU_0"), part("INFOROM_GPU_1", "HGX_InfoROM_GPU_1"),
	part("INFOROM_GPU_2", "HGX_InfoROM_GPU_2"), part("INFOROM_GPU_3", "HGX_InfoROM_GPU_3"),
	part("PCIE_SWITCH_CONFIG_0", "HGX_PCIeSwitchConfig_0"),
	inBand("CX7"), inBand("CX8"), inBand("BF3_NIC"),
	{source: sourceHMC, key: "BIOS", target: targetBIOS, byDefault: true,
		types: []string{supermicro}, file: &fileRule{".bin", "bios"}, installed: []string{"HGX_FW_CPU_0", "HGX_FW_CPU_1"}},
	{source: sourceBIOS, key: "BIOS", target: targetBIOS, byDefault: true,
		types: []string{supermicro}, file: &fileRule{".bin", "bios"}, installed: []string{"HGX_FW_CPU_0", "HGX_FW_CPU_1"}},
	{source: sourceBMC, key: "BMC", target: wholePackage, byDefault: true,
		types: []string{nvidia200, wiwynn, nvidia300, vr72}, several: []string{wiwynn}, installed: []string{"FW_BMC_0"}},
	{source: sourceBMC, key: "BMC", target: wholePackage, byDefault: true,
		types: []string{lenovo}, installed: []string{"BMC", "FW_BMC_0"}},
	{source: sourceBMC, key: "BMC", target: wholePackage, byDefault: true,
		types: []string{supermicro}, file: &fileRule{".bin", "obmc"}, installed: []string{"FW_BMC_0"}},
}

// switchMappings is everything about switch trays, in flash order per type.
var switchMappings = []mapping{
	switchPart("BMC+FPGA+EROT", "BMC", "bmc"),
	switchPart("BMC+FPGA+EROT", "FPGA", "fpga"),
	switchPart("BMC+FPGA+EROT", "EROT", "erot"),
	switchPart("CPLD", "CPLD", "cpld"),
	switchPart("SBIOS+EROT", "BIOS", "bios"),
	switchPartVR("BMC", "bmc"),
	switchPartVR("BIOS", "bios"),
	switchPartVR("SMA", "sma"),
	switchPartVR("EROT", "erot"),
	switchPartVR("CPLD", "cpld1"),
}

func switchPart(source, key, target string) mapping {
	return mapping{source: source, key: key, target: target, byDefault: true, types: []string{switch200, switch300}}
}

func switchPartVR(key, target string) mapping {
	return mapping{source: sourceSwitchVR, key: key, target: target, byDefault: true, types: []string{switchVR}}
}

// shelfMappings is everything about power shelves, in flash order.
var shelfMappings = []mapping{
	shelfPart("Delta-PMC", "DeltaPMC", []string{delta200, delta300}, "FW_PMC_primary"),
	shelfPart("LiteOn PMC", "LiteOnPMC", []string{liteon200, liteon300}, "pmc_*"),
	shelfPart("Delta-PSU", "DeltaPSU", []string{delta200, delta300}, "FW_PSU_*"),
	shelfPart("LiteOn PSU", "LiteOnPSU", []string{liteon200, liteon300}, "powerdevice*"),
}

func shelfPart(source, key string, types []string, installed string) mapping {
	return mapping{source: source, key: key, target: wholePackage, byDefault: true, types: types, installed: []string{installed}}
}

// mappings is the table of a role.
func mappings(r Role) []mapping {
	switch r {
	case RoleCompute, legacyVR:
		return computeMappings
	case RoleSwitch:
		return switchMappings
	case RolePowerShelf:
		return shelfMappings
	}
	return nil
}

// mappingsOf are the rows of a node type, in flash order.
func mappingsOf(t node.Type) []mapping {
	var out []mapping
	for _, m := range mappings(RoleOf(t)) {
		if slices.Contains(m.types, t.ID) {
			out = append(out, m)
		}
	}
	return out
}

// Keys are the names by which components of a node type can be selected, in flash
// order.
func Keys(t node.Type) []string {
	var keys []string
	for _, m := range mappingsOf(t) {
		if !slices.Contains(keys, m.key) {
			keys = append(keys, m.key)
		}
	}
	return keys
}

// takesSeveral reports whether the node type takes every package of the key.
func (m *mapping) takesSeveral(t node.Type) bool { return slices.Contains(m.several, t.ID) }

// isInBand reports whether a component is flashed from the host.
func isInBand(source string) bool {
	for i := range computeMappings {
		m := &computeMappings[i]
		if m.source == m.target && strings.EqualFold(m.source, source) {
			return true
		}
	}
	return false
}

// normalKeys are the keys of lookup tables in the order in which an entry's key is
// compared with them: a name stands before those that it begins with.
var normalKeys = []string{
	"BF3_NIC", "CX7", "CX8", "PCIE_SWITCH_CONFIG_0",
	"INFOROM_GPU_0", "INFOROM_GPU_1", "INFOROM_GPU_2", "INFOROM_GPU_3",
	"EROT_FPGA_0", "EROT_FPGA_1", "EROT_BMC_0", "EROT_CPU_0", "EROT_CPU_1", "HGX_BMC_0",
	"DeltaPMC", "DeltaPSU", "LiteOnPMC", "LiteOnPSU", "FPGA_0", "FPGA_1", "CPLD_0", "CPU_0", "CPU_1",
	"GPU_0", "GPU_1", "GPU_2", "GPU_3", "BMC", "HMC", "SMA", "FPGA", "EROT", "CPLD", "BIOS",
}

// NormalKey is the component name of a lookup table's key, such as HMC of
// HMC_prod_0001.
func NormalKey(entry string) string {
	for _, k := range normalKeys {
		if entry == k || strings.HasPrefix(entry, k+"_") {
			return k
		}
	}
	key, _, _ := strings.Cut(entry, "_")
	return key
}
