// SPDX-License-Identifier: Apache-2.0

package product

// deltaController is that of Delta's shelves.
func deltaController() Redfish {
	r := shelfController()
	r.Power = PowerSupplyActions
	// The other bank of the controller keeps the version it has.
	return r.silent("FW_PMC_alt")
}

// deltaShelf are the components of Delta's shelves.
func deltaShelf() []Component {
	return []Component{shelfPart("Delta-PMC", "DeltaPMC", "FW_PMC_primary"), shelfPart("Delta-PSU", "DeltaPSU", "FW_PSU_*")}
}
