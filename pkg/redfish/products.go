// SPDX-License-Identifier: Apache-2.0

package redfish

import "time"

// profiles is the table of products: one row per node type. What two products
// share is written once; a row names only what is its own.
func profiles() []Profile {
	return append(trays(), shelves()...)
}

// trays are the compute trays. Their ids and update ways are those of NVIDIA's
// reference firmware, which all vendors build on.
func trays() []Profile {
	tray := Profile{
		Kind:             KindCompute,
		SystemID:         "System_0",
		BaseboardID:      "HGX_Baseboard_0",
		BMCID:            "BMC_0",
		WriteProtectPath: rootPath + "/Chassis/Chassis_0",
		HMCTarget:        rootPath + "/Chassis/HGX_Chassis_0",
		Power:            PowerSystem,
		Update:           UpdateMultipart,
		MultipartPath:    updatePath + "/update-multipart",
		PushPath:         updatePath + "/update",
		TaskLimit:        90 * time.Minute,
	}
	gb200, gb300 := tray, tray
	gb200.Activation = activationSettledAux()
	gb300.Activation = activationProbedAux()

	wiwynn := gb200.named("compute_gb200_wiwynn")
	// The spare bank of its BMC is listed without a version.
	wiwynn.Silent = []string{"FW_BMC_1"}
	lenovo := gb300.named("compute_gb300_lenovo")
	lenovo.Keep = KeepAMI
	return []Profile{
		gb200.named("compute_gb200_nvidia"),
		wiwynn,
		gb300.named("compute_gb300_nvidia"),
		lenovo,
		gb300.named("compute_gb300_supermicro"),
		gb300.named("compute_vrnvl72_nvidia"),
	}
}

// shelves are the power shelves.
func shelves() []Profile {
	shelf := Profile{
		Kind:          KindPowerShelf,
		Update:        UpdatePush,
		MultipartPath: updatePath + "/update-multipart",
		PushPath:      updatePath + "/update",
		ApplyTime:     string(ShelfApplyTime),
		UploadAnswer:  60 * time.Second,
		TaskLimit:     60 * time.Minute,
		Activation:    activationManagerReset(),
	}
	liteon, delta := shelf, shelf
	liteon.Power, liteon.ChassisPrefix = PowerChassisActions, "powershelf"
	liteon.PowerUnitsPath = liteonUnitsPath
	delta.Power = PowerSupplyActions
	// The other bank of its controller keeps the version it has.
	delta.Silent = []string{"FW_PMC_alt"}
	return []Profile{
		liteon.named("powershelf_gb200_liteon"),
		liteon.named("powershelf_gb300_liteon"),
		delta.named("powershelf_gb200_delta"),
		delta.named("powershelf_gb300_delta"),
	}
}

func (p Profile) named(nodeType string) Profile {
	p.NodeType = nodeType
	return p
}
