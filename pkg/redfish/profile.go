// SPDX-License-Identifier: Apache-2.0

package redfish

import (
	"slices"
	"strings"

	"github.com/rackbus/rackbus/pkg/product"
)

// Kind is the family of a product.
type Kind string

// The kinds.
const (
	KindCompute    = Kind(product.Compute)
	KindPowerShelf = Kind(product.PowerShelf)
	// KindSwitch is the BMC of a switch, through which only its power is driven.
	KindSwitch = Kind(product.Switch)
)

// Profile is what this package has to know of a product. It is data: nothing in
// this package asks for a vendor's name.
type Profile struct {
	// NodeType is the type string of the product.
	NodeType string
	Kind     Kind
	product.Redfish
}

// Validate names what a profile lacks. A client is made only for a whole one.
func (p Profile) Validate() error {
	type field struct {
		name string
		set  bool
	}
	required := []field{{"NodeType", p.NodeType != ""}}
	require := func(name string, set bool) { required = append(required, field{name, set}) }
	if p.Kind != KindSwitch {
		required = append(required,
			field{"Update", p.Update != ""},
			field{"MultipartPath", p.MultipartPath != ""},
			field{"PushPath", p.PushPath != ""},
			field{"TaskLimit", p.TaskLimit > 0},
			field{"Activation", len(p.Activation.Steps) > 0},
		)
	}
	switch p.Kind {
	case KindSwitch:
		require("SystemID", p.SystemID != "")
	case KindCompute:
		require("SystemID", p.SystemID != "")
		require("BaseboardID", p.BaseboardID != "")
		require("BMCID", p.BMCID != "")
		require("WriteProtectPath", p.WriteProtectPath != "")
		require("HMCTarget", p.HMCTarget != "")
	case KindPowerShelf:
		require("ApplyTime", p.ApplyTime != "")
		require("UploadAnswer", p.UploadAnswer > 0)
	default:
		require("Kind", false)
	}
	switch p.Power {
	case product.PowerSystem, product.PowerSupplyActions:
	case product.PowerChassisActions:
		require("ChassisPrefix", p.ChassisPrefix != "")
	default:
		require("Power", false)
	}
	var lacking []string
	for _, field := range required {
		if !field.set {
			lacking = append(lacking, field.name)
		}
	}
	if len(lacking) > 0 {
		return invalid("configure BMC endpoint", "the product profile lacks "+strings.Join(lacking, ", "))
	}
	return nil
}

// LookupProfile returns the profile of a node type that is updated over Redfish.
func LookupProfile(nodeType string) (Profile, bool) {
	return profileOf(nodeType, KindCompute, KindPowerShelf)
}

// SwitchProfile returns the profile of a switch's BMC. It stands beside the
// others because a switch takes its updates through its own interface: a client
// made with it reads and switches the power of its system, and no more.
func SwitchProfile(nodeType string) (Profile, bool) { return profileOf(nodeType, KindSwitch) }

func profileOf(nodeType string, kinds ...Kind) (Profile, bool) {
	row, ok := product.ByID(nodeType)
	if !ok || !slices.Contains(kinds, Kind(row.Family)) {
		return Profile{}, false
	}
	return Profile{NodeType: row.ID, Kind: Kind(row.Family), Redfish: row.Redfish}, true
}

// NodeTypes lists the node types that LookupProfile has a profile for.
func NodeTypes() []string {
	var names []string
	for _, row := range product.All() {
		if row.Family != product.Switch {
			names = append(names, row.ID)
		}
	}
	return names
}
