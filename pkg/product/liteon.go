// SPDX-License-Identifier: Apache-2.0

package product

// liteonController is that of LiteOn's shelves, which have a collection of power
// units of their own; seen on PF-1333-7R.
func liteonController() Redfish {
	r := shelfController()
	r.Power, r.ChassisPrefix = PowerChassisActions, "powershelf"
	r.PowerUnitsPath = rootPath + "/Chassis/powershelf/Power/Oem/LiteOn/PowerUnits"
	// What follows is a hash, as OpenBMC makes it of a version.
	r.Renamed = []string{"pmc_"}
	return r
}

// liteonShelf are the components of LiteOn's shelves.
func liteonShelf() []Component {
	return []Component{shelfPart("LiteOn PMC", "LiteOnPMC", "pmc_*"), shelfPart("LiteOn PSU", "LiteOnPSU", "powerdevice*")}
}
