// SPDX-License-Identifier: Apache-2.0

package bmc

import "fmt"

// Model is a kind of device.
type Model int

// The models that can be simulated.
const (
	ComputeGB200 Model = iota + 1
	ComputeGB300
	ShelfGB200LiteOn
	ShelfGB300LiteOn
)

// NodeType returns the name of the model's NodeType in the rack manager contract.
func (m Model) NodeType() string {
	switch m {
	case ComputeGB200:
		return "COMPUTE_GB200_NVIDIA"
	case ComputeGB300:
		return "COMPUTE_GB300_NVIDIA"
	case ShelfGB200LiteOn:
		return "POWERSHELF_GB200_LITEON"
	case ShelfGB300LiteOn:
		return "POWERSHELF_GB300_LITEON"
	}
	return fmt.Sprintf("Model(%d)", int(m))
}

// Compute reports whether the model is a compute tray.
func (m Model) Compute() bool { return m == ComputeGB200 || m == ComputeGB300 }

// Shelf reports whether the model is a power shelf.
func (m Model) Shelf() bool { return m == ShelfGB200LiteOn || m == ShelfGB300LiteOn }

// scope says which package can carry a component and what activates it.
type scope int

const (
	scopeBMC scope = iota
	scopeHMC
	scopeController
	scopeSupply
)

// component is one entry of the firmware inventory.
type component struct {
	name       string
	scope      scope
	softwareID string
	related    string
	fixed      bool
	// versions are what devices start with, one for each of the releases a device can be of.
	versions [Releases]string
}

// Releases is how many firmware releases a device can start with.
const Releases = 3

// supplies is how many power supplies a shelf has.
const supplies = 6

func (m Model) components() []component {
	if m.Shelf() {
		return shelfComponents()
	}
	out := computeComponents()
	if m == ComputeGB300 {
		for i := range 2 {
			out = append(out, component{
				name: fmt.Sprintf("SMA_%d", i), scope: scopeBMC, softwareID: "0x0060",
				related: chassisURI + "/Chassis_0", versions: [Releases]string{"1.02", "1.04", "1.05"},
			})
		}
		for i := range 4 {
			out = append(out, component{
				name: fmt.Sprintf("HGX_SXM_MCU_%d", i), scope: scopeHMC, softwareID: "0x0061",
				related:  fmt.Sprintf("%s/HGX_GPU_%d", chassisURI, i),
				versions: [Releases]string{"0.09", "0.11", "0.12"},
			})
		}
	}
	for i := range out {
		// GB300 trays name their controller releases after the platform.
		if m == ComputeGB300 && (out[i].name == "FW_BMC_0" || out[i].name == "HGX_FW_BMC_0") {
			for r, v := range out[i].versions {
				out[i].versions[r] = "GB300" + v[len("GB200"):]
			}
		}
	}
	return out
}

func computeComponents() []component {
	erot := [Releases]string{"01.03.0250.0000_n04", "01.04.0008.0000_n04", "01.04.0031.0000_n04"}
	out := []component{
		{name: "FW_BMC_0", scope: scopeBMC, softwareID: "0x0010", related: chassisURI + "/BMC_0",
			versions: [Releases]string{"GB200Nvl-25.02-7", "GB200Nvl-25.04-9", "GB200Nvl-25.06-2"}},
		{name: "FW_CPLD_0", scope: scopeBMC, softwareID: "0x0014", related: chassisURI + "/Chassis_0",
			versions: [Releases]string{"0x00 0x0b 0x03 0x02", "0x00 0x0b 0x03 0x03", "0x00 0x0b 0x03 0x04"}},
		{name: "FW_ERoT_BMC_0", scope: scopeBMC, softwareID: "0xFF00", related: chassisURI + "/BMC_0", versions: erot},
		{name: "NIC_0", scope: scopeBMC, softwareID: "0x0070", related: chassisURI + "/Chassis_0", fixed: true,
			versions: [Releases]string{"28.41.1000", "28.42.1000", "28.43.2026"}},
		{name: "UEFI", scope: scopeBMC, related: chassisURI + "/HGX_CPU_0", fixed: true,
			versions: [Releases]string{"gcid-37000121", "gcid-38250044", "gcid-39110907"}},
		{name: "HGX_FW_BMC_0", scope: scopeHMC, softwareID: "0x0011", related: chassisURI + "/HGX_Chassis_0",
			versions: [Releases]string{"GB200Nvl-25.02-B", "GB200Nvl-25.04-C", "GB200Nvl-25.06-A"}},
		{name: "HGX_FW_CPLD_0", scope: scopeHMC, softwareID: "0x0015", related: chassisURI + "/HGX_Chassis_0",
			versions: [Releases]string{"0.1A", "0.1C", "0.22"}},
		{name: "HGX_PCIeSwitchConfig_0", scope: scopeHMC, softwareID: "0x0040", related: chassisURI + "/HGX_Chassis_0",
			versions: [Releases]string{"01161211", "01170112", "01170424"}},
		{name: "HGX_FW_ERoT_BMC_0", scope: scopeHMC, softwareID: "0xFF01", related: erotURI, versions: erot},
	}
	for i := range 2 {
		cpu := fmt.Sprintf("%s/HGX_CPU_%d", chassisURI, i)
		out = append(out,
			component{name: fmt.Sprintf("HGX_FW_CPU_%d", i), scope: scopeHMC, softwareID: "0x0012", related: cpu,
				versions: [Releases]string{"02.03.19", "02.04.07", "02.04.12"}},
			component{name: fmt.Sprintf("HGX_FW_ERoT_CPU_%d", i), scope: scopeHMC, softwareID: "0xFF02", related: cpu,
				versions: erot},
			component{name: fmt.Sprintf("HGX_FW_FPGA_%d", i), scope: scopeHMC, softwareID: "0x0013",
				related: chassisURI + "/HGX_Chassis_0", versions: [Releases]string{"1.16", "1.18", "1.20"}},
			component{name: fmt.Sprintf("HGX_FW_ERoT_FPGA_%d", i), scope: scopeHMC, softwareID: "0xFF03",
				related: chassisURI + "/HGX_Chassis_0", versions: erot},
		)
	}
	for i := range 4 {
		gpu := fmt.Sprintf("%s/HGX_GPU_%d", chassisURI, i)
		out = append(out,
			component{name: fmt.Sprintf("HGX_FW_GPU_%d", i), scope: scopeHMC, softwareID: "0x0020", related: gpu,
				versions: [Releases]string{"97.00.52.00.02", "97.00.88.00.0F", "97.00.B9.00.69"}},
			component{name: fmt.Sprintf("HGX_InfoROM_GPU_%d", i), scope: scopeHMC, softwareID: "0x0021", related: gpu,
				versions: [Releases]string{"G548.0201.00.03", "G548.0201.00.05", "G548.0201.00.06"}},
		)
	}
	return out
}

func shelfComponents() []component {
	out := []component{
		{name: "mcu", scope: scopeController, related: shelfURI, versions: [Releases]string{"1.0.4", "1.0.6", "1.1.0"}},
		{name: controllerName, scope: scopeController, related: managersURI + "/bmc",
			versions: [Releases]string{"r1.3.5", "r1.3.7", "r1.3.9"}},
	}
	for i := range supplies {
		out = append(out, component{
			name: powerDevice(i), scope: scopeSupply, related: fmt.Sprintf("%s/%d", suppliesURI, i),
			versions: [Releases]string{"0xe8 / 0xe8", "0xec / 0xec", "0xf0 / 0xf0"},
		})
	}
	return out
}

func powerDevice(i int) string { return fmt.Sprintf("powerdevice%d", i) }
