// SPDX-License-Identifier: Apache-2.0

package product

import (
	"fmt"
	"slices"
	"time"

	"github.com/rackbus/rackbus/pkg/firmware/flash"
)

const (
	rootPath   = "/redfish/v1"
	updatePath = rootPath + "/UpdateService"
)

// trayBMC is the BMC of a compute tray. Its ids and update ways are those of
// NVIDIA's reference firmware, which all vendors build on.
func trayBMC(a Activation) Redfish {
	return Redfish{
		SystemID:         "System_0",
		BaseboardID:      "HGX_Baseboard_0",
		BMCID:            "BMC_0",
		WriteProtectPath: rootPath + "/Chassis/Chassis_0",
		HMCTarget:        flash.BaseboardPath,
		Power:            PowerSystem,
		Update:           UpdateMultipart,
		MultipartPath:    updatePath + "/update-multipart",
		PushPath:         updatePath + "/update",
		TaskLimit:        90 * time.Minute,
		Activation:       a,
	}
}

// settledAux: the host is seen off, the AUX cycle is waited out; a host that does
// not come on gets a second AUX cycle.
func settledAux() Activation {
	return Activation{
		Steps:      []Step{StepForceOff, StepWaitOff, StepAuxCycle, StepAuxSettle, StepPowerOn, StepWaitOn},
		RepeatFrom: StepAuxCycle,
		Rounds:     2,
	}
}

// probedAux: the BMC is probed after the AUX cycle, On is repeated.
func probedAux() Activation {
	return Activation{Steps: []Step{StepForceOff, StepPauseOff, StepAuxCycle, StepWaitBMC, StepPowerOn, StepKeepOn}}
}

// SourceHMC and SourceBMC are the packages of the GPU baseboard and of the tray in
// manifests.
const (
	SourceHMC = "HMC"
	SourceBMC = "BMC"
)

// baseboard is the package of the GPU baseboard.
func baseboard() Component {
	return Component{
		Source: SourceHMC, Key: flash.KeyHMC, Target: flash.BaseboardPath, ByDefault: true, Installed: []string{"HGX_FW_BMC_0"},
	}
}

// trayPackage is the package of the tray's own controller. It is flashed last,
// because the controller restarts.
func trayPackage() Component {
	return Component{Source: SourceBMC, Key: flash.KeyBMC, ByDefault: true, Installed: []string{"FW_BMC_0"}}
}

// Part is a logical component of the GPU baseboard and its inventory entry.
type Part struct{ Key, Entry string }

// Parts are all parts of the GPU baseboard that requests can name one by one, in
// the order of flashing. A product takes those that are among its components.
func Parts() []Part {
	var parts []Part
	add := func(count int, key, entry string) {
		for i := range count {
			parts = append(parts, Part{fmt.Sprintf("%s_%d", key, i), fmt.Sprintf("%s_%d", entry, i)})
		}
	}
	add(2, "CPU", "HGX_FW_CPU")
	add(4, "GPU", "HGX_FW_GPU")
	add(1, "HGX_BMC", "HGX_FW_BMC")
	add(2, "FPGA", "HGX_FW_FPGA")
	add(1, "CPLD", "HGX_FW_CPLD")
	add(1, "EROT_BMC", "HGX_FW_ERoT_BMC")
	add(2, "EROT_CPU", "HGX_FW_ERoT_CPU")
	add(2, "EROT_FPGA", "HGX_FW_ERoT_FPGA")
	add(4, "INFOROM_GPU", "HGX_InfoROM_GPU")
	add(1, "PCIE_SWITCH_CONFIG", "HGX_PCIeSwitchConfig")
	return parts
}

// baseboardParts are the single components of the GPU baseboard's package. They
// are installed only when they are asked for.
func baseboardParts() []Component {
	var out []Component
	for _, p := range Parts() {
		out = append(out, Component{
			Source: SourceHMC, Key: p.Key, Target: flash.InventoryPath + p.Entry, Installed: []string{p.Entry},
		})
	}
	return out
}

// networkDevices are flashed from the host operating system, behind the baseboard
// and before the tray's controller.
func networkDevices() []Component {
	var out []Component
	for _, name := range []string{"CX7", "CX8", "BF3_NIC"} {
		out = append(out, Component{Source: name, Key: name, Target: name, Several: true, InBand: true})
	}
	return out
}

// gb200Tray are the components of GB200 trays.
func gb200Tray(bmc Component) []Component {
	return slices.Concat([]Component{baseboard()}, baseboardParts(), networkDevices(), []Component{bmc})
}

// gb300Tray are the components of NVIDIA's GB300 tray.
func gb300Tray() []Component {
	return slices.Concat([]Component{baseboard()}, baseboardParts(), []Component{trayPackage()})
}
