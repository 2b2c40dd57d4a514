// SPDX-License-Identifier: Apache-2.0

package bmc

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	systemURI    = systemsURI + "/System_0"
	baseboardURI = systemsURI + "/HGX_Baseboard_0"
	erotURI      = chassisURI + "/HGX_ERoT_BMC_0"
	hgxURI       = chassisURI + "/HGX_Chassis_0"
	auxResetURI  = chassisURI + "/BMC_0/Actions/Oem/NvidiaChassis.AuxPowerReset"

	// cpuSKU and partSKU are the SKUs of CPUs and of parts that tell none in the table.
	cpuSKU  = "0x4A350010"
	partSKU = "0x4A360001"

	gpus = 4
	cpus = 2
	cbcs = 4
)

// addCompute adds the tree of a compute tray.
func (b *Blueprint) addCompute() {
	b.addComputeSystems()
	b.addComputeManagers()
	b.addComputeChassis()
}

func (b *Blueprint) addComputeSystems() {
	maker, name := b.product.manufacturer, b.product.model
	systems := []string{systemURI, baseboardURI}
	if b.product.quirks.baseboardFirst {
		slices.Reverse(systems)
	}
	b.collection(systemsURI, "ComputerSystemCollection", "Computer System Collection", systems...)
	b.live(systemURI, func(d *Device, _ time.Time) object {
		state := d.power
		if d.knobs.PowerReported != "" {
			state = d.knobs.PowerReported
		}
		return object{
			"@odata.type": "#ComputerSystem.v1_17_0.ComputerSystem", "Id": "System_0", "Name": "System_0",
			"SystemType": "Physical", "Manufacturer": maker, "Model": name, "SerialNumber": d.cfg.Serial,
			"PowerState": state, "Status": healthy(), "Processors": link(systemURI + "/Processors"),
			"LogServices": link(systemURI + "/LogServices"),
			"Links":       object{"ManagedBy": []any{link(managersURI + "/BMC_0")}, "Chassis": []any{link(chassisURI + "/BMC_0")}},
			"Actions":     object{"#ComputerSystem.Reset": d.resetAction(systemURI+"/Actions/ComputerSystem.Reset", systemURI, resetTypes)},
		}
	})
	b.addLogs(systemURI)
	b.action(systemURI+"/Actions/ComputerSystem.Reset", resetSystem)
	b.resetInfo(systemURI, resetTypes)
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
	own := cmp.Or(b.product.quirks.bmcEntry, "FW_BMC_0")
	b.manager(bmc, own, resetManager)
	// The HMC sits behind the tray BMC: its reset is not visible on the network.
	b.manager(hmc, "HGX_FW_BMC_0", func(d *Device, _ time.Time, body object) answer {
		if _, refused := d.resetType(body, "Manager.Reset", managerResetTypes, true); refused != nil {
			return *refused
		}
		return success()
	})
}

// manager adds a manager with its reset; firmware is the inventory entry of its image.
func (b *Blueprint) manager(uri, firmware string, reset func(*Device, time.Time, object) answer) {
	id := uri[len(managersURI)+1:]
	b.live(uri, func(d *Device, _ time.Time) object {
		doc := object{
			"@odata.type": "#Manager.v1_14_0.Manager", "Id": id, "Name": id, "ManagerType": "BMC",
			"FirmwareVersion": d.versionLocked(firmware), "PowerState": "On", "Status": healthy(),
			"Links":   object{"ActiveSoftwareImage": link(inventoryURI + "/" + d.shownAs(firmware))},
			"Actions": object{"#Manager.Reset": d.resetAction(uri+"/Actions/Manager.Reset", uri, managerResetTypes)},
		}
		if b.tree[uri+"/LogServices"] != nil {
			doc["LogServices"] = link(uri + "/LogServices")
		}
		if !d.knobs.HideLastReset {
			doc["LastResetTime"] = d.startedAt.UTC().Format(time.RFC3339Nano)
		}
		return doc
	})
	b.action(uri+"/Actions/Manager.Reset", reset)
	b.at(uri + "/Actions/Manager.Reset").bare = func(d *Device) bool { return d.knobs.ResetParameters == ResetParametersNone }
	b.resetInfo(uri, managerResetTypes)
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
			"Manufacturer": b.product.manufacturer, "SerialNumber": d.cfg.Serial, "PowerState": d.power, "Status": healthy(),
			"Sensors": link(chassisURI + "/Chassis_0/Sensors"),
			"Oem": object{"Nvidia": object{
				"@odata.type":                "#NvidiaChassis.v1_4_0.NvidiaChassis",
				"HardwareWriteProtectEnable": d.knobs.HardwareWriteProtect,
			}},
		}
	})
	b.addSensors(chassisURI + "/Chassis_0")
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
		doc["SKU"] = cpuSKU
		if strings.HasPrefix(id, "HGX_GPU_") {
			doc["SKU"] = gpuSKU
		}
		b.static(chassisURI+"/"+id, doc)
	}
	members = append(members, b.addPartChassis()...)
	slices.Sort(members)
	b.collection(chassisURI, "ChassisCollection", "Chassis Collection", members...)
}

// addPartChassis adds the chassis and drives of components that tell their SKU or model there: for FW_CPLD_0 the
// chassis CPLD_0. It returns the chassis.
func (b *Blueprint) addPartChassis() []string {
	var chassis, drives []string
	for _, c := range b.components {
		id, part := strings.CutPrefix(c.related, chassisURI+"/")
		switch {
		case strings.HasPrefix(c.related, systemURI+"/Storage/"):
			drives = append(drives, c.related)
			name := c.related[strings.LastIndexByte(c.related, '/')+1:]
			b.static(c.related, object{
				"@odata.type": "#Drive.v1_17_0.Drive", "Id": name, "Name": name, "MediaType": "SSD", "Protocol": "NVMe",
				"Model": c.sku, "Status": healthy(),
			})
		case part && b.tree[c.related] == nil:
			chassis = append(chassis, c.related)
			doc := plainChassis(id, "Component")
			doc["SKU"], doc["Model"] = cmp.Or(c.sku, partSKU), id
			b.static(c.related, doc)
		}
	}
	if len(drives) > 0 {
		storage := systemURI + "/Storage"
		b.collection(storage, "StorageCollection", "Storage Collection", storage+"/1")
		links := make([]any, len(drives))
		for i, uri := range drives {
			links[i] = link(uri)
		}
		b.static(storage+"/1", object{
			"@odata.type": "#Storage.v1_15_0.Storage", "Id": "1", "Name": "Storage", "Drives": links,
			"Drives@odata.count": len(links), "Status": healthy(),
		})
	}
	return chassis
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
