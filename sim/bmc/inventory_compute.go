// SPDX-License-Identifier: Apache-2.0

package bmc

import (
	"fmt"
	"slices"
	"strings"
)

// gpuSKU is the SKU of the tray's GPUs; packages may carry images for several.
const gpuSKU = "0x4A350020"

func erotReleases() releases {
	return releases{"01.03.0250.0000_n04", "01.04.0008.0000_n04", "01.04.0031.0000_n04"}
}

func bmcPart(name, id, related string, versions releases) component {
	return component{name: name, scope: scopeBMC, softwareID: id, related: chassisURI + "/" + related, versions: versions}
}

func hmcPart(name, id, related string, versions releases) component {
	return component{name: name, scope: scopeHMC, softwareID: id, related: chassisURI + "/" + related, versions: versions}
}

// gb200Components is the inventory of an NVIDIA GB200 tray, on which the other trays build.
func gb200Components() []component {
	nic := bmcPart("NIC_0", "0x0070", "Chassis_0", releases{"28.41.1000", "28.42.1000", "28.43.2026"})
	uefi := bmcPart("UEFI", "", "HGX_CPU_0", releases{"gcid-37000121", "gcid-38250044", "gcid-39110907"})
	nic.fixed, uefi.fixed = true, true
	cpld := bmcPart("FW_CPLD_0", "0x0014", "CPLD_0", releases{"0x00 0x0b 0x03 0x02", "0x00 0x0b 0x03 0x03", "0x00 0x0b 0x03 0x04"})
	out := []component{
		bmcPart("FW_BMC_0", "0x0010", "BMC_0", releases{"GB200Nvl-25.02-7", "GB200Nvl-25.04-9", "GB200Nvl-25.06-2"}),
		cpld,
		bmcPart("FW_ERoT_BMC_0", "0xFF00", "BMC_0", erotReleases()),
		nic, uefi,
		hmcPart("HGX_FW_BMC_0", "0x0011", "HGX_Chassis_0", releases{"GB200Nvl-25.02-B", "GB200Nvl-25.04-C", "GB200Nvl-25.06-A"}),
		hmcPart("HGX_FW_CPLD_0", "0x0015", "HGX_Chassis_0", releases{"0.1A", "0.1C", "0.22"}),
		hmcPart("HGX_PCIeSwitchConfig_0", "0x0040", "HGX_Chassis_0", releases{"01161211", "01170112", "01170424"}),
		hmcPart("HGX_FW_ERoT_BMC_0", "0xFF01", "HGX_ERoT_BMC_0", erotReleases()),
	}
	for i := range cpus {
		cpu := fmt.Sprintf("HGX_CPU_%d", i)
		out = append(out,
			hmcPart(fmt.Sprintf("HGX_FW_CPU_%d", i), "0x0012", cpu, releases{"02.03.19", "02.04.07", "02.04.12"}),
			hmcPart(fmt.Sprintf("HGX_FW_ERoT_CPU_%d", i), "0xFF02", cpu, erotReleases()),
			hmcPart(fmt.Sprintf("HGX_FW_FPGA_%d", i), "0x0013", "HGX_Chassis_0", releases{"1.16", "1.18", "1.20"}),
			hmcPart(fmt.Sprintf("HGX_FW_ERoT_FPGA_%d", i), "0xFF03", "HGX_Chassis_0", erotReleases()),
		)
	}
	for i := range gpus {
		gpu := fmt.Sprintf("HGX_GPU_%d", i)
		firmware := hmcPart(fmt.Sprintf("HGX_FW_GPU_%d", i), "0x0020", gpu, releases{"97.00.52.00.02", "97.00.88.00.0F", "97.00.B9.00.69"})
		firmware.sku = gpuSKU
		out = append(out, firmware, hmcPart(fmt.Sprintf("HGX_InfoROM_GPU_%d", i), "0x0021", gpu,
			releases{"G548.0201.00.03", "G548.0201.00.05", "G548.0201.00.06"}))
	}
	return out
}

// gb300Components adds what GB300 trays have; their controllers name releases after the platform.
func gb300Components() []component {
	out := renameReleases(gb200Components(), "GB300")
	for i := range 2 {
		out = append(out, bmcPart(fmt.Sprintf("SMA_%d", i), "0x0060", fmt.Sprintf("SMA_%d", i), releases{"1.02", "1.04", "1.05"}))
	}
	for i := range gpus {
		out = append(out, hmcPart(fmt.Sprintf("HGX_SXM_MCU_%d", i), "0x0061", fmt.Sprintf("HGX_GPU_%d", i), releases{"0.09", "0.11", "0.12"}))
	}
	return out
}

// vrComponents is the inventory of a VR NVL72 tray. Its system management agents and drives are of two kinds each,
// so that only the SKU tells which image is for which.
func vrComponents() []component {
	out := renameReleases(gb200Components(), "VR")
	for i := range 4 {
		out = append(out, bmcPart(fmt.Sprintf("FW_CX_%d", i), "0x0071", fmt.Sprintf("CX_%d", i), releases{"40.45.1020", "40.46.1006", "40.47.0088"}))
		drive := bmcPart(fmt.Sprintf("FW_NVMe_E1S_%d", i), "0x0080", "", releases{"GDC5602Q", "GDC5702Q", "GDC5902Q"})
		drive.related, drive.sku = driveURI(i), driveModels[i%len(driveModels)]
		out = append(out, drive)
	}
	for i := range 2 {
		sma := bmcPart(fmt.Sprintf("FW_IO_Board_SMA_%d", i), "0x0062", fmt.Sprintf("IO_Board_SMA_%d", i), releases{"2.00", "2.03", "2.04"})
		sma.sku = fmt.Sprintf("0x4A3600%02X", 0x10+i)
		out = append(out, sma,
			hmcPart(fmt.Sprintf("HGX_SBIOS_%d", i), "0x0022", fmt.Sprintf("HGX_CPU_%d", i), releases{"00.91.02", "00.92.00", "00.93.07"}))
	}
	for i := range out {
		out[i].bootApart = true
	}
	return out
}

// driveModels are the models of the E1.S drives, in turn.
var driveModels = [...]string{"MZTL63T8HFLT", "SSDPFVNQ038T"}

func driveURI(i int) string { return fmt.Sprintf("%s/Storage/1/Drives/NVMe_E1S_%d", systemURI, i) }

func renameReleases(list []component, platform string) []component {
	for i := range list {
		for r, v := range list[i].versions {
			if rest, ok := strings.CutPrefix(v, "GB200Nvl"); ok {
				list[i].versions[r] = platform + "Nvl" + rest
			}
		}
	}
	return list
}

// wiwynnComponents adds the second BMC slot, which shows no version, and what else Wiwynn trays list.
func wiwynnComponents() []component {
	out := gb200Components()
	out[indexOf(out, "FW_BMC_0")].versions = releases{"25.02-7_NV_WW_01", "25.04-9_NV_WW_01", "25.06-2_NV_WW_02"}
	second := bmcPart("FW_BMC_1", "0x0010", "BMC_0", releases{})
	second.fixed = true
	tpm := bmcPart("TPM_Firmware", "", "Chassis_0", releases{"15.22", "15.23", "15.23"})
	tpm.fixed = true
	return append(out, second, bmcPart("FW_ERoT_AP_CFG_0", "0xFF04", "BMC_0", releases{"0x0101", "0x0102", "0x0103"}), tpm)
}

// lenovoComponents has the entry BMC where other trays have FW_BMC_0.
func lenovoComponents() []component {
	out := gb300Components()
	own := &out[indexOf(out, "FW_BMC_0")]
	own.name, own.versions = lenovoBMC, releases{"2.40.0", "2.90.0", "3.00.0"}
	return out
}

func indexOf(list []component, name string) int {
	return slices.IndexFunc(list, func(c component) bool { return c.name == name })
}
