// SPDX-License-Identifier: Apache-2.0

package product

import "time"

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
	// PowerShelf resource, as Delta's do.
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
	// KeepAMI sets the flags of AMI's OEM part of the update service.
	KeepAMI ConfigurationKeeping = "ami"
)

// Redfish is how the management controller of a product is driven.
type Redfish struct {
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
	// UploadAnswer, when set, replaces the usual wait for the answer to an upload:
	// a controller that hands an OnReset image over may never answer, and then its
	// new handoff task is what tells.
	UploadAnswer time.Duration
	// TaskLimit bounds the polling of an update task.
	TaskLimit time.Duration
	// PowerUnitsPath is the vendor's collection of power units, if it has one. Its
	// units can be updated one by one.
	PowerUnitsPath string
	// Keep says how the BMC is told to keep its configuration.
	Keep ConfigurationKeeping
	// Silent are the inventory entries that do not tell what an update has
	// brought, such as the spare bank of a BMC. They are not compared with packages.
	Silent []string
	// Renamed are beginnings of the names of inventory entries that are named anew with
	// every version, because their ids are made of it.
	Renamed []string

	Activation Activation
}

// silent is the same with entries that do not tell what an update has brought.
func (r Redfish) silent(entries ...string) Redfish {
	r.Silent = entries
	return r
}

// keeping is the same with a BMC that has to be told to keep its configuration.
func (r Redfish) keeping(how ConfigurationKeeping) Redfish {
	r.Keep = how
	return r
}

// Step is one part of an activation. A workflow checkpoints between steps.
type Step string

// The steps.
const (
	// StepForceOff sends ForceOff to the host. Repeatable.
	StepForceOff Step = "force_off"
	// StepWaitOff waits until the host reads Off. Repeatable.
	StepWaitOff Step = "wait_off"
	// StepPauseOff waits a while in place of StepWaitOff. Repeatable.
	StepPauseOff Step = "pause_off"
	// StepAuxCycle cuts and restores the standby power of the tray. Once.
	StepAuxCycle Step = "aux_cycle"
	// StepAuxSettle waits out the AUX cycle. Repeatable.
	StepAuxSettle Step = "aux_settle"
	// StepWaitBMC waits until the BMC answers again. Repeatable.
	StepWaitBMC Step = "wait_bmc"
	// StepPowerOn sends On to the host. Repeatable.
	StepPowerOn Step = "power_on"
	// StepWaitOn waits until the host reads On. Repeatable.
	StepWaitOn Step = "wait_on"
	// StepKeepOn waits for On and sends On again while the host reads Off.
	// Repeatable.
	StepKeepOn Step = "keep_on"
	// StepManagerReset restarts the controller of a shelf. Once.
	StepManagerReset Step = "manager_reset"
	// StepWaitManager waits until that restart is over. Repeatable.
	StepWaitManager Step = "wait_manager"
)

// Once reports whether a step must not be repeated when its outcome is unknown.
// All others may be run again.
func (s Step) Once() bool { return s == StepAuxCycle || s == StepManagerReset }

// Activation is how new firmware comes into force on a product.
type Activation struct {
	Steps []Step
	// When the last step fails by its time limit, the steps from RepeatFrom are
	// run again, until Rounds rounds are over. Rounds 0 means 1.
	RepeatFrom Step
	Rounds     int
}
