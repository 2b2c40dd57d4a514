// SPDX-License-Identifier: Apache-2.0

package redfish

import "slices"

// switchTypes are the node types whose BMC SwitchProfile knows.
var switchTypes = [...]string{"switch_gb200_nvidia", "switch_gb300_nvidia", "switch_vrnvl72_nvidia"}

// SwitchProfile returns the profile of a switch's BMC. It stands beside the
// others because a switch takes its updates through its own interface: a client
// made with it reads and switches the power of System_0, and no more.
func SwitchProfile(nodeType string) (Profile, bool) {
	if !slices.Contains(switchTypes[:], nodeType) {
		return Profile{}, false
	}
	return Profile{NodeType: nodeType, Kind: KindSwitch, SystemID: "System_0", Power: PowerSystem}, true
}
