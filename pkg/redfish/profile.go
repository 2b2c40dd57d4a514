// SPDX-License-Identifier: Apache-2.0

package redfish

import "time"

// Kind is the family of a product.
type Kind string

// The kinds.
const (
	KindCompute    Kind = "compute"
	KindPowerShelf Kind = "powershelf"
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

// Profile holds what differs between products. It is data: nothing in this
// package asks for a vendor's name.
type Profile struct {
	// NodeType is the type string of the product.
	NodeType string
	Kind     Kind

	// SystemID is the host's ComputerSystem, BaseboardID the GPU baseboard's.
	SystemID    string
	BaseboardID string
	// BMCID and HMCID are the managers of the tray and of its GPU baseboard. An
	// empty BMCID means the first manager that can be reset.
	BMCID string
	HMCID string
	// ChassisPrefix, lower case, begins the id of the chassis of a shelf.
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

	Activation Activation
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

// profiles is the table of products.
func profiles() []Profile {
	tray := Profile{
		Kind:             KindCompute,
		SystemID:         "System_0",
		BaseboardID:      "HGX_Baseboard_0",
		BMCID:            "BMC_0",
		HMCID:            "HGX_BMC_0",
		WriteProtectPath: rootPath + "/Chassis/Chassis_0",
		HMCTarget:        rootPath + "/Chassis/HGX_Chassis_0",
		Power:            PowerSystem,
		Update:           UpdateMultipart,
		MultipartPath:    updatePath + "/update-multipart",
		PushPath:         updatePath + "/update",
		TaskLimit:        90 * time.Minute,
	}
	gb200, gb300 := tray, tray
	gb200.NodeType, gb200.Activation = "compute_gb200_nvidia", activationSettledAux()
	gb300.NodeType, gb300.Activation = "compute_gb300_nvidia", activationProbedAux()

	liteon := Profile{
		Kind:           KindPowerShelf,
		ChassisPrefix:  "powershelf",
		Power:          PowerChassisActions,
		Update:         UpdatePush,
		MultipartPath:  updatePath + "/update-multipart",
		PushPath:       updatePath + "/update",
		ApplyTime:      "OnReset",
		UploadAnswer:   60 * time.Second,
		TaskLimit:      60 * time.Minute,
		PowerUnitsPath: rootPath + "/Chassis/powershelf/Power/Oem/LiteOn/PowerUnits",
		Activation:     activationManagerReset(),
	}
	liteon200, liteon300 := liteon, liteon
	liteon200.NodeType, liteon300.NodeType = "powershelf_gb200_liteon", "powershelf_gb300_liteon"
	return []Profile{gb200, gb300, liteon200, liteon300}
}
