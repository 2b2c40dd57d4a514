// SPDX-License-Identifier: Apache-2.0

package bmc

import (
	"fmt"
	"net/http"
	"strconv"
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

func liteOnLayout() *shelfLayout {
	return &shelfLayout{
		controller: controllerName, mcu: "mcu", supply: powerDevice, restartsAt: 100, system: true,
		// Both banks of a supply show: F1F1 is "0xf1 / 0xf1".
		supplyVersion: func(version string) string {
			digits, ok := fourDigits(version)
			if !ok {
				return version
			}
			return fmt.Sprintf("0x%s / 0x%s", digits[:2], digits[2:])
		},
	}
}

func powerDevice(i int) string { return fmt.Sprintf("powerdevice%d", i) }

func liteOnComponents() []component {
	out := []component{
		{name: "mcu", scope: scopeController, related: shelfURI, versions: releases{"1.0.4", "1.0.6", "1.1.0"}},
		{name: controllerName, scope: scopeController, related: managersURI + "/bmc", versions: releases{"r1.3.5", "r1.3.7", "r1.3.9"}},
	}
	for i := range supplies {
		out = append(out, component{
			name: powerDevice(i), scope: scopeSupply, related: fmt.Sprintf("%s/%d", suppliesURI, i),
			versions: releases{"0xe8 / 0xe8", "0xec / 0xec", "0xf0 / 0xf0"},
		})
	}
	return out
}

// addLiteOn adds the tree of a LiteOn power shelf.
func (b *Blueprint) addLiteOn() {
	manager := managersURI + "/bmc"
	b.collection(managersURI, "ManagerCollection", "Manager Collection", manager)
	b.manager(manager, controllerName, resetManager)
	b.addLogs(manager)

	b.collection(systemsURI, "ComputerSystemCollection", "Computer System Collection", systemsURI+"/system")
	b.static(systemsURI+"/system", object{
		"@odata.type": "#ComputerSystem.v1_17_0.ComputerSystem", "Id": "system", "Name": "system",
		"SystemType": "Physical", "PowerState": "On", "Status": healthy(),
	})

	b.collection(chassisURI, "ChassisCollection", "Chassis Collection", shelfURI)
	b.live(shelfURI, func(d *Device, _ time.Time) object { return d.shelfChassis() })
	b.addSensors(shelfURI)
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
				"@odata.type": "#PowerSupply.v1_5_0.PowerSupply", "Id": strconv.Itoa(i), "Name": powerDevice(i),
				"Manufacturer": liteOn, "Model": "PS-2552-9L", "PowerState": d.supplyOn[i],
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
	actions := object{}
	for _, name := range []string{"Chassis.On", "Chassis.ForceOff", "Chassis.Reset"} {
		if name != "Chassis.Reset" && d.knobs.ChassisResetOnly {
			continue
		}
		actions["#"+name] = object{
			"target":              shelfURI + "/Actions/" + name,
			"@Redfish.ActionInfo": shelfURI + "/" + name[len("Chassis."):] + "ActionInfo",
		}
	}
	return object{
		"@odata.type": "#Chassis.v1_21_0.Chassis", "Id": "powershelf", "Name": "powershelf", "ChassisType": "Shelf",
		"Manufacturer": liteOn, "Model": d.blueprint.product.model, "SerialNumber": d.cfg.Serial,
		"PowerState": d.shelfPower(), "Status": healthy(), "PowerSubsystem": link(shelfURI + "/PowerSubsystem"),
		"Sensors": link(shelfURI + "/Sensors"),
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
		d.switchSupplies(kind == "On")
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

// receiveUnitPush takes a LiteOn supply push: for one supply with the header LiteonPowerDeviceId, else for all.
func (d *Device) receiveUnitPush(r *http.Request) answer {
	one := -1
	if id := r.Header.Get("LiteonPowerDeviceId"); id != "" {
		n, err := strconv.Atoi(id)
		if err != nil || n < 0 || n >= supplies {
			return refusal(http.StatusBadRequest, "ActionParameterValueError", "There is no such power device.", id)
		}
		one = n
	}
	return d.push(r, func(u upload) (plan, *answer) {
		if one < 0 && d.knobs.RejectAllSupplies {
			a := refuseAllSupplies()
			return plan{}, &a
		}
		u.file.Purpose = "PSU"
		p := d.planShelf(u, one)
		p.unlisted = true
		return p, nil
	})
}
