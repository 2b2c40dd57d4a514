// SPDX-License-Identifier: Apache-2.0

package bmc

import (
	"fmt"
	"net/http"
	"time"
)

const (
	shelfURI      = chassisURI + "/powershelf"
	suppliesURI   = shelfURI + "/PowerSubsystem/PowerSupplies"
	unitsURI      = shelfURI + "/Power/Oem/LiteOn/PowerUnits"
	unitUpdateURI = unitsURI + "/Actions/UpdateService"
	// controllerName is the inventory name of the shelf's controller; the suffix is a hash on real shelves.
	controllerName = "pmc_5c3f81d0"
)

// unit is what the LiteOn power unit pages show of a supply's update.
type unit struct {
	update *task
	failed bool
}

// addShelf adds the tree of a LiteOn power shelf.
func (b *Blueprint) addShelf() {
	manager := managersURI + "/bmc"
	b.collection(managersURI, "ManagerCollection", "Manager Collection", manager)
	b.live(manager, func(d *Device, _ time.Time) object { return d.manager(manager, "bmc", controllerName) })
	b.action(manager+"/Actions/Manager.Reset", resetManager)

	b.collection(systemsURI, "ComputerSystemCollection", "Computer System Collection", systemsURI+"/system")
	b.static(systemsURI+"/system", object{
		"@odata.type": "#ComputerSystem.v1_17_0.ComputerSystem", "Id": "system", "Name": "system",
		"SystemType": "Physical", "PowerState": "On", "Status": healthy(),
	})

	b.collection(chassisURI, "ChassisCollection", "Chassis Collection", shelfURI)
	b.live(shelfURI, func(d *Device, _ time.Time) object { return d.shelfChassis() })
	b.shelfAction("Chassis.On", "OnType", "On")
	b.shelfAction("Chassis.ForceOff", "ForceOffType", "ForceOff")
	b.shelfAction("Chassis.Reset", "ResetType", "On", "ForceOff", "GracefulShutdown")

	b.static(shelfURI+"/PowerSubsystem", object{
		"@odata.type": "#PowerSubsystem.v1_1_0.PowerSubsystem", "Id": "PowerSubsystem", "Name": "Power Subsystem",
		"Status": healthy(), "PowerSupplies": link(suppliesURI),
	})
	var members, units []string
	for i := range supplies {
		uri := fmt.Sprintf("%s/%d", suppliesURI, i)
		members = append(members, uri)
		b.live(uri, func(d *Device, _ time.Time) object {
			return object{
				"@odata.type": "#PowerSupply.v1_5_0.PowerSupply", "Id": fmt.Sprint(i), "Name": powerDevice(i),
				"Manufacturer": "LITE-ON TECHNOLOGY CORP.", "Model": "PS-2552-9L", "PowerState": d.supplyOn[i],
				"SerialNumber": d.supplySerial(i), "FirmwareVersion": d.versionLocked(powerDevice(i)), "Status": healthy(),
			}
		})
		unit := unitsURI + "/" + powerDevice(i)
		units = append(units, unit)
		b.live(unit, func(d *Device, now time.Time) object { return d.powerUnit(i, now) })
	}
	b.collection(suppliesURI, "PowerSupplyCollection", "Power Supply Collection", members...)
	b.collection(unitsURI, "PowerUnitCollection", "Power Unit Collection", units...)
	b.at(unitUpdateURI).receive = (*Device).receiveUnitPush
}

func (d *Device) supplySerial(i int) string { return fmt.Sprintf("%sP%d", d.cfg.Serial, i) }

func (d *Device) shelfChassis() object {
	state := PowerOn
	for _, on := range d.supplyOn {
		if !on {
			state = PowerOff
		}
	}
	actions := object{}
	for _, name := range []string{"Chassis.On", "Chassis.ForceOff", "Chassis.Reset"} {
		actions["#"+name] = object{
			"target":              shelfURI + "/Actions/" + name,
			"@Redfish.ActionInfo": shelfURI + "/" + name[len("Chassis."):] + "ActionInfo",
		}
	}
	return object{
		"@odata.type": "#Chassis.v1_21_0.Chassis", "Id": "powershelf", "Name": "powershelf", "ChassisType": "Shelf",
		"Manufacturer": "LITE-ON TECHNOLOGY CORP.", "Model": "PF-1333-7R", "SerialNumber": d.cfg.Serial,
		"PowerState": state, "Status": healthy(), "PowerSubsystem": link(shelfURI + "/PowerSubsystem"),
		"Actions": actions,
	}
}

// shelfAction adds a chassis action with its ActionInfo; it switches all supplies.
func (b *Blueprint) shelfAction(name, parameter string, values ...string) {
	b.actionInfo(shelfURI+"/"+name[len("Chassis."):]+"ActionInfo", parameter, values...)
	b.action(shelfURI+"/Actions/"+name, func(d *Device, _ time.Time, body object) answer {
		kind, err := textMember(body, parameter, values)
		if err != nil {
			return badParameter(err, name, parameter, kind)
		}
		if d.knobs.PowerIgnored {
			return success()
		}
		for i := range d.supplyOn {
			d.supplyOn[i] = kind == "On"
		}
		return success()
	})
}

// powerUnit is the LiteOn page of one supply, polled during its update.
func (d *Device) powerUnit(i int, now time.Time) object {
	state, status, progress := "Enabled", "OK", 0
	u := d.units[i]
	if u.update != nil && u.update.state == taskRunning {
		state, progress = "Updating", u.update.progress(now)
	}
	if u.failed {
		status = "Failed"
	}
	return object{
		"Id": powerDevice(i), "Name": powerDevice(i), "Model": "PS-2552-9L", "SerialNumber": d.supplySerial(i),
		"Version": d.versionLocked(powerDevice(i)), "state": state, "status": status, "updateProgress": progress,
	}
}

// refuseAllSupplies is the answer to a push for all supplies when the knob says so.
func refuseAllSupplies() answer {
	return refusal(http.StatusInternalServerError, "InternalError", "Power units cannot be updated together.")
}
