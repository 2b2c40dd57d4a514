// SPDX-License-Identifier: Apache-2.0

package bmc

import (
	"fmt"
	"slices"
	"time"
)

const (
	systemURI    = systemsURI + "/System_0"
	baseboardURI = systemsURI + "/HGX_Baseboard_0"
	erotURI      = chassisURI + "/HGX_ERoT_BMC_0"
	hgxURI       = chassisURI + "/HGX_Chassis_0"
	auxResetURI  = chassisURI + "/BMC_0/Actions/Oem/NvidiaChassis.AuxPowerReset"

	gpus = 4
	cpus = 2
	cbcs = 4
)

// addCompute adds the tree of an NVIDIA GB200 or GB300 compute tray.
func (b *Blueprint) addCompute() {
	b.addComputeSystems()
	b.addComputeManagers()
	b.addComputeChassis()
}

func (b *Blueprint) addComputeSystems() {
	name := "GB200 NVL"
	if b.model == ComputeGB300 {
		name = "GB300 NVL"
	}
	b.collection(systemsURI, "ComputerSystemCollection", "Computer System Collection", systemURI, baseboardURI)
	b.live(systemURI, func(d *Device, _ time.Time) object {
		state := d.power
		if d.knobs.PowerReported != "" {
			state = d.knobs.PowerReported
		}
		return object{
			"@odata.type": "#ComputerSystem.v1_17_0.ComputerSystem", "Id": "System_0", "Name": "System_0",
			"SystemType": "Physical", "Manufacturer": "NVIDIA", "Model": name, "SerialNumber": d.cfg.Serial,
			"PowerState": state, "Status": healthy(), "Processors": link(systemURI + "/Processors"),
			"Links": object{"ManagedBy": []any{link(managersURI + "/BMC_0")}, "Chassis": []any{link(chassisURI + "/BMC_0")}},
			"Actions": object{"#ComputerSystem.Reset": object{
				"target": systemURI + "/Actions/ComputerSystem.Reset", "ResetType@Redfish.AllowableValues": resetTypes,
			}},
		}
	})
	b.action(systemURI+"/Actions/ComputerSystem.Reset", resetSystem)
	b.collection(systemURI+"/Processors", "ProcessorCollection", "Processor Collection")

	b.live(baseboardURI, func(d *Device, _ time.Time) object {
		return object{
			"@odata.type": "#ComputerSystem.v1_17_0.ComputerSystem", "Id": "HGX_Baseboard_0", "Name": "HGX_Baseboard_0",
			"SystemType": "Physical", "Manufacturer": "NVIDIA", "Model": name + " baseboard", "Status": healthy(),
			"PowerState": d.power, "Processors": link(baseboardURI + "/Processors"),
		}
	})
	var members []string
	for i := range cpus {
		uri := fmt.Sprintf("%s/Processors/CPU_%d", baseboardURI, i)
		members = append(members, uri)
		b.static(uri, object{
			"@odata.type": "#Processor.v1_13_0.Processor", "Id": fmt.Sprintf("CPU_%d", i), "Name": "Processor",
			"ProcessorType": "CPU", "Manufacturer": "NVIDIA", "Model": "Grace", "Status": healthy(),
		})
	}
	for i := range gpus {
		uri := fmt.Sprintf("%s/Processors/GPU_%d", baseboardURI, i)
		members = append(members, uri)
		b.live(uri, func(d *Device, _ time.Time) object { return d.gpu(i) })
	}
	b.collection(baseboardURI+"/Processors", "ProcessorCollection", "Processor Collection", members...)
}

func (d *Device) gpu(i int) object {
	return object{
		"@odata.type": "#Processor.v1_13_0.Processor", "Id": fmt.Sprintf("GPU_%d", i), "Name": "Processor",
		"ProcessorType": "GPU", "Manufacturer": "NVIDIA", "Status": healthy(),
		"FirmwareVersion": d.versionLocked(fmt.Sprintf("HGX_FW_GPU_%d", i)),
		"Links":           object{"Chassis": link(fmt.Sprintf("%s/HGX_GPU_%d", chassisURI, i))},
		"Oem": object{"Nvidia": object{
			"@odata.type": "#NvidiaProcessor.v1_0_0.NvidiaProcessor",
			"MNNVLinkTopology": object{
				"ChassisSerialNumber": d.cfg.ChassisSerial, "TraySlotNumber": d.cfg.Slot + 1, "TraySlotIndex": d.cfg.Slot,
			},
		}},
	}
}

func (b *Blueprint) addComputeManagers() {
	bmc, hmc := managersURI+"/BMC_0", managersURI+"/HGX_BMC_0"
	b.collection(managersURI, "ManagerCollection", "Manager Collection", bmc, hmc)
	for uri, firmware := range map[string]string{bmc: "FW_BMC_0", hmc: "HGX_FW_BMC_0"} {
		id := uri[len(managersURI)+1:]
		b.live(uri, func(d *Device, _ time.Time) object { return d.manager(uri, id, firmware) })
	}
	b.action(bmc+"/Actions/Manager.Reset", resetManager)
	// The HMC sits behind the tray BMC: its reset is not visible on the network.
	b.action(hmc+"/Actions/Manager.Reset", func(_ *Device, _ time.Time, body object) answer {
		if kind, err := textMember(body, "ResetType", managerResetTypes); err != nil {
			return badParameter(err, "Manager.Reset", "ResetType", kind)
		}
		return success()
	})
}

func (d *Device) manager(uri, id, firmware string) object {
	return object{
		"@odata.type": "#Manager.v1_14_0.Manager", "Id": id, "Name": id, "ManagerType": "BMC",
		"FirmwareVersion": d.versionLocked(firmware), "PowerState": "On", "Status": healthy(),
		"Links": object{"ActiveSoftwareImage": link(inventoryURI + "/" + firmware)},
		"Actions": object{"#Manager.Reset": object{
			"target": uri + "/Actions/Manager.Reset", "ResetType@Redfish.AllowableValues": managerResetTypes,
		}},
	}
}

func (b *Blueprint) addComputeChassis() {
	members := []string{chassisURI + "/BMC_0", chassisURI + "/Chassis_0", hgxURI, erotURI}
	b.static(members[0], object{
		"@odata.type": "#Chassis.v1_21_0.Chassis", "Id": "BMC_0", "Name": "BMC_0", "ChassisType": "Component",
		"Manufacturer": "NVIDIA", "Status": healthy(),
		"Links": object{"ManagedBy": []any{link(managersURI + "/BMC_0")}, "ComputerSystems": []any{link(systemURI)}},
		"Actions": object{"Oem": object{"#NvidiaChassis.AuxPowerReset": object{
			"target": auxResetURI, "@Redfish.ActionInfo": chassisURI + "/BMC_0/Oem/Nvidia/AuxPowerResetActionInfo",
		}}},
	})
	b.actionInfo(chassisURI+"/BMC_0/Oem/Nvidia/AuxPowerResetActionInfo", "ResetType", "AuxPowerCycle")
	b.action(auxResetURI, resetAUX)
	b.live(members[1], func(d *Device, _ time.Time) object {
		return object{
			"@odata.type": "#Chassis.v1_21_0.Chassis", "Id": "Chassis_0", "Name": "Chassis_0", "ChassisType": "RackMount",
			"Manufacturer": "NVIDIA", "SerialNumber": d.cfg.Serial, "PowerState": d.power, "Status": healthy(),
			"Oem": object{"Nvidia": object{
				"@odata.type":                "#NvidiaChassis.v1_4_0.NvidiaChassis",
				"HardwareWriteProtectEnable": d.knobs.HardwareWriteProtect,
			}},
		}
	})
	b.static(hgxURI, plainChassis("HGX_Chassis_0", "Module"))
	b.live(erotURI, func(d *Device, now time.Time) object {
		status := "Completed"
		if d.copyForever || d.copyingTill.After(now) {
			status = "InProgress"
		}
		doc := plainChassis("HGX_ERoT_BMC_0", "Component")
		doc["Oem"] = object{"Nvidia": object{
			"@odata.type":                    "#NvidiaChassis.v1_0_0.NvidiaChassis",
			"AutomaticBackgroundCopyEnabled": true, "BackgroundCopyStatus": status,
		}}
		return doc
	})
	for i := range cbcs {
		id := fmt.Sprintf("CBC_%d", i)
		members = append(members, chassisURI+"/"+id)
		b.live(chassisURI+"/"+id, func(d *Device, _ time.Time) object {
			doc := plainChassis(id, "Component")
			doc["Oem"] = object{"Nvidia": object{
				"@odata.type":               "#NvidiaChassis.v1_4_0.NvidiaCBCChassis",
				"ChassisPhysicalSlotNumber": d.cfg.Slot + 1, "ComputeTrayIndex": d.cfg.Slot,
				"RevisionId": 2, "TopologyId": 128,
			}}
			return doc
		})
	}
	var parts []string
	for i := range cpus {
		parts = append(parts, fmt.Sprintf("HGX_CPU_%d", i))
	}
	for i := range gpus {
		parts = append(parts, fmt.Sprintf("HGX_GPU_%d", i))
	}
	for _, id := range parts {
		members = append(members, chassisURI+"/"+id)
		doc := plainChassis(id, "Component")
		doc["SKU"] = "0x" + fmt.Sprintf("%08X", 0x4A350000+len(members))
		b.static(chassisURI+"/"+id, doc)
	}
	slices.Sort(members)
	b.collection(chassisURI, "ChassisCollection", "Chassis Collection", members...)
}

func plainChassis(id, kind string) object {
	return object{
		"@odata.type": "#Chassis.v1_21_0.Chassis", "Id": id, "Name": id, "ChassisType": kind,
		"Manufacturer": "NVIDIA", "Status": healthy(),
	}
}

// actionInfo adds the description of an action with one parameter.
func (b *Blueprint) actionInfo(uri, parameter string, values ...string) {
	b.static(uri, object{
		"@odata.type": "#ActionInfo.v1_2_0.ActionInfo", "Id": uri[len(uri)-len("ActionInfo"):], "Name": "Action Info",
		"Parameters": []any{object{
			"Name": parameter, "Required": true, "DataType": "String", "AllowableValues": values,
		}},
	})
}
