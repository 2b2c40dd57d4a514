// SPDX-License-Identifier: Apache-2.0

package bmc

import (
	"fmt"
	"strconv"
	"time"
)

const (
	deltaChassisURI  = chassisURI + "/chassis"
	deltaSuppliesURI = deltaChassisURI + "/PowerSubsystem/PowerSupplies"
	equipmentURI     = rootURI + "/PowerEquipment"
	deltaShelfURI    = equipmentURI + "/PowerShelves/1"
	deltaActionsURI  = deltaShelfURI + "/Oem/deltaenergysystems/Actions/"
	deltaController  = "FW_PMC_primary"
)

func deltaLayout() *shelfLayout {
	return &shelfLayout{
		controller: deltaController, supply: deltaSupply, restartsAt: 60, together: true, equipment: true,
		deviceUUID: "0b4e248c8bcf41379b99d0394c808ba5",
		// Both banks of a supply show without a gap: 0105 is "01050105".
		supplyVersion: func(version string) string {
			digits, ok := fourDigits(version)
			if !ok {
				return version
			}
			return digits + digits
		},
	}
}

func deltaSupply(i int) string { return fmt.Sprintf("FW_PSU_%d", i+1) }

func deltaComponents() []component {
	manager := managersURI + "/PMC_0"
	out := []component{
		{name: "FW_ERoT_BMC_0", scope: scopeController, related: manager, versions: erotReleases()},
		{name: deltaController, scope: scopeController, related: manager, versions: releases{"1.0.8", "1.1.0", "1.1.2"}},
		// The other bank keeps what it has.
		{name: "FW_PMC_alt", scope: scopeController, related: manager, versions: releases{"1.0.6", "1.0.8", "1.1.0"}},
	}
	for i := range supplies {
		out = append(out, component{
			name: deltaSupply(i), scope: scopeSupply, related: fmt.Sprintf("%s/%d", deltaSuppliesURI, i+1),
			versions: releases{"01030103", "01040104", "01050105"},
		})
	}
	return out
}

// addDelta adds the tree of a Delta power shelf.
func (b *Blueprint) addDelta() {
	manager := managersURI + "/PMC_0"
	b.collection(managersURI, "ManagerCollection", "Manager Collection", manager)
	b.manager(manager, deltaController, resetManager)
	b.addLogs(manager)

	b.collection(chassisURI, "ChassisCollection", "Chassis Collection", deltaChassisURI)
	b.live(deltaChassisURI, func(d *Device, _ time.Time) object {
		return object{
			"@odata.type": "#Chassis.v1_21_0.Chassis", "Id": "chassis", "Name": "chassis", "ChassisType": "Shelf",
			"Manufacturer": delta, "Model": b.product.model, "SerialNumber": d.cfg.Serial, "PowerState": d.shelfPower(),
			"Status": healthy(), "PowerSubsystem": link(deltaChassisURI + "/PowerSubsystem"),
			"Sensors": link(deltaChassisURI + "/Sensors"),
			"Oem":     object{"deltaenergysystems": object{}},
		}
	})
	b.addSensors(deltaChassisURI)
	b.static(deltaChassisURI+"/PowerSubsystem", object{
		"@odata.type": "#PowerSubsystem.v1_1_0.PowerSubsystem", "Id": "PowerSubsystem", "Name": "Power Subsystem",
		"Status": healthy(), "PowerSupplies": link(deltaSuppliesURI),
	})
	var members []string
	for i := range supplies {
		uri := fmt.Sprintf("%s/%d", deltaSuppliesURI, i+1)
		members = append(members, uri)
		b.live(uri, func(d *Device, _ time.Time) object {
			power := PowerOff
			if d.supplyOn[i] {
				power = PowerOn
			}
			return object{
				"@odata.type": "#PowerSupply.v1_5_0.PowerSupply", "Id": strconv.Itoa(i + 1), "Name": fmt.Sprintf("Power Supply %d", i+1),
				"Manufacturer": delta, "SerialNumber": d.supplySerial(i), "FirmwareVersion": d.versionLocked(deltaSupply(i)),
				"Status": healthy(), "Oem": object{"deltaenergysystems": object{"Power": power}},
			}
		})
	}
	b.collection(deltaSuppliesURI, "PowerSupplyCollection", "Power Supply Collection", members...)
	b.addDeltaEquipment()
}

// addDeltaEquipment adds the equipment tree, where the shelf has its power actions.
func (b *Blueprint) addDeltaEquipment() {
	b.static(equipmentURI, object{
		"@odata.type": "#PowerEquipment.v1_2_0.PowerEquipment", "Id": "PowerEquipment", "Name": "Power Equipment",
		"Status": healthy(), "PowerShelves": link(equipmentURI + "/PowerShelves"),
	})
	b.collection(equipmentURI+"/PowerShelves", "PowerDistributionCollection", "Power Shelf Collection", deltaShelfURI)
	on, off := deltaActionsURI+"PowerShelf.TurnOnPSUs", deltaActionsURI+"PowerShelf.TurnOffPSUs"
	b.live(deltaShelfURI, func(d *Device, _ time.Time) object {
		return object{
			"@odata.type": "#PowerDistribution.v1_3_0.PowerDistribution", "Id": "1", "Name": "Power Shelf",
			"EquipmentType": "PowerShelf", "Manufacturer": delta, "Model": b.product.model, "SerialNumber": d.cfg.Serial,
			"Status": healthy(), "Oem": object{"deltaenergysystems": object{"Actions": object{
				"#PowerShelf.TurnOnPSUs":  object{"target": on},
				"#PowerShelf.TurnOffPSUs": object{"target": off},
			}}},
		}
	})
	b.supplyPowerAction(on, true)
	b.supplyPowerAction(off, false)
}
