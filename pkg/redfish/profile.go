// SPDX-License-Identifier: Apache-2.0

package redfish

import (
	"strings"
	"time"
)

// Kind is the family of a product.
type Kind string

// The kinds.
const (
	KindCompute    Kind = "compute"
	KindPowerShelf Kind = "powershelf"
	// KindSwitch is the BMC of a switch, through which only its power is driven.
	KindSwitch Kind = "switch"
)

// PowerStyle says how power is read and switched.
type PowerStyle string

// The power styles.
const (
	// PowerSystem resets the host's ComputerSystem.
	PowerSystem PowerStyle = "system"
	// PowerChassisActions uses the On/Off/ForceOff or Reset actions of the shelf
	// chassis and reads the state of its supplies.
	PowerChassisActions PowerStyle = "chassis_actions"
	// PowerSupplyActions switches the supplies of a shelf by vendor actions of its
	// PowerShelf resource; see delta.go.
	PowerSupplyActions PowerStyle = "supply_actions"
)

// UpdateFlavour says how images get onto the device.
type UpdateFlavour string

// The update flavours.
const (
	// UpdateMultipart prefers the multipart push.
	UpdateMultipart UpdateFlavour = "multipart"
	// UpdatePush prefers the plain HttpPushUri.
	UpdatePush UpdateFlavour = "push"
)

// ConfigurationKeeping says how a BMC is told to keep its configuration when its
// own firmware is replaced.
type ConfigurationKeeping string

// The ways of keeping. The zero value stands for a BMC that keeps it unasked.
const (
	// KeepAMI sets the flags of AMI's OEM part of the update service; see
	// lenovo.go.
	KeepAMI ConfigurationKeeping = "ami"
)

// Profile holds what differs between products. It is data: nothing in this
// package asks for a vendor's name.
type Profile struct {
	// NodeType is the type string of the product.
	NodeType string
	Kind     Kind

	// SystemID is the host's ComputerSystem, BaseboardID the GPU baseboard's.
	SystemID    string
	BaseboardID string
	// BMCID is the manager of the tray. Empty means the first manager that can be
	// reset.
	BMCID string
	// ChassisPrefix, lower case, begins the id of the chassis of a shelf with
	// PowerChassisActions.
	ChassisPrefix string
	// WriteProtectPath is the chassis that tells of the hardware write protect.
	WriteProtectPath string
	// HMCTarget is the update target of baseboard packages.
	HMCTarget string

	Power  PowerStyle
	Update UpdateFlavour
	// MultipartPath and PushPath are used when the device advertises no update
	// URI at all.
	MultipartPath string
	PushPath      string
	// ApplyTime is set before an update; empty leaves the device's setting.
	ApplyTime string
	// UploadAnswer, when set, replaces Timing.UploadAnswer: a controller that
	// hands an OnReset image over may never answer, and then its new handoff task
	// is what tells.
	UploadAnswer time.Duration
	// TaskLimit bounds the polling of an update task.
	TaskLimit time.Duration
	// PowerUnitsPath is the vendor's collection of power units, if it has one.
	PowerUnitsPath string
	// Keep says how the BMC is told to keep its configuration.
	Keep ConfigurationKeeping
	// Silent are the inventory entries that do not tell what an update has
	// brought, such as the spare bank of a BMC. They are not compared with packages.
	Silent []string

	Activation Activation
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
	case PowerSystem, PowerSupplyActions:
	case PowerChassisActions:
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

// LookupProfile returns the profile of a node type.
func LookupProfile(nodeType string) (Profile, bool) {
	for _, p := range profiles() {
		if p.NodeType == nodeType {
			return p, true
		}
	}
	return Profile{}, false
}

// NodeTypes lists the node types that have a profile.
func NodeTypes() []string {
	var names []string
	for _, p := range profiles() {
		names = append(names, p.NodeType)
	}
	return names
}
