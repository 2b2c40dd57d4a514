// SPDX-License-Identifier: Apache-2.0

package diagnostics

import "slices"

// Rules is the table of known faults, in the order in which they are looked for:
// what a device says of its own hardware first, then of its firmware and of an
// update, then how our job ended, and at last whether all is well.
func Rules() []Rule {
	return slices.Concat(hardwareRules(), firmwareRules(), switchRules(), ironicRules(), historyRules(), generalRules())
}

// Where the collectors of Redfish devices put what the rules look at.
const (
	fileLogs     = "logs/*.json"
	eachEntry    = "entries.*"
	createdEntry = "Created"
)

// powerTaken is what devices log when somebody takes their power away, and no fault
// when that was our own job.
var powerTaken = []string{
	"SystemPowerLost", "PowerSupplyPowerLost", "SensorThresholdCriticalLowGoingLow", "ReadingBelowLowerCriticalThreshold",
}

// logged matches a recent log entry by the key of its message.
func logged(keys ...string) Match {
	return Match{
		File: fileLogs, Each: eachEntry, Recent: createdEntry, DeviceClock: true, Ours: powerTaken,
		Where: []Condition{{"MessageId", Message, keys}},
		Tell:  []string{"Message", "MessageId"},
	}
}

// hardwareRules go by the keys of the OpenBMC registry and of the DMTF registries
// ResourceEvent, Environmental and SensorEvent.
func hardwareRules() []Rule {
	return []Rule{
		{
			Signature: "CPU_THERMAL_TRIP", Severity: SeverityCritical,
			Summary: "A processor or memory module has switched itself off because it was too hot",
			Advice:  "Check coolant flow, cold plates and fans of the tray before it is switched on again.",
			Any:     []Match{logged("CPUThermalTrip", "MemoryThermTrip", "VoltageRegulatorOverheated", "ComponentOverTemperature")},
		},
		{
			Signature: "POWER_SUPPLY_FAULT", Severity: SeverityCritical,
			Summary: "A power supply has failed or lost its input",
			Advice:  "Check the feed of the power shelf and exchange the supply that is named; then repeat the job.",
			Any: []Match{
				logged("PowerSupplyFailed", "PowerSupplyPowerLost", "PowerSupplyPowerGoodFailed", "PowerSupplyFanFailed",
					"PowerSupplyConfigurationError"),
				{
					File: "power_supplies.json", Each: "resources.*", Tell: []string{"uri"},
					Where: []Condition{{"body.Status.Health", Is, []string{"Critical"}}},
				},
			},
		},
		{
			Signature: "POWER_SEQUENCE_FAULT", Severity: SeverityCritical,
			Summary: "The node's power did not come up or go down as it should",
			Advice:  "Cycle the AUX power of the tray once; if it comes again, have the board examined.",
			Any:     []Match{logged("SystemPowerGoodFailed", "SystemPowerOnFailed", "SystemPowerOffFailed", "SystemPowerLost")},
		},
		{
			Signature: "COOLING_FAULT", Severity: SeverityCritical,
			Summary: "A fan has failed, or the cooling is not redundant any more",
			Advice:  "Exchange the fan that is named.",
			Any:     []Match{logged("FanFailed", "FanRemoved", "FanRedundancyLost", "FanGroupCritical")},
		},
		{
			Signature: "LEAK_DETECTED", Severity: SeverityCritical,
			Summary: "A leak detector has responded",
			Advice:  "Switch the tray off, close its coolant valves, and look for the leak.",
			Any: []Match{
				logged("LeakDetectedCritical", "LeakDetectedWarning", "LeakDetectionCritical"),
				{
					File: "chassis.json", Each: "resources.*", Tell: []string{"uri"},
					Where: []Condition{{"body.DetectorState", Is, []string{"Critical", "Warning"}}},
				},
			},
		},
		{
			Signature: "MEMORY_UNCORRECTABLE_ERROR", Severity: SeverityCritical,
			Summary: "Memory had an error that could not be corrected",
			Advice:  "Exchange the module or tray that is named.",
			Any:     []Match{logged("MemoryECCUncorrectable", "MemoryParityNotRecoverable")},
		},
		{
			Signature: "PROCESSOR_FAULT", Severity: SeverityCritical,
			Summary: "A processor has reported a fatal error",
			Advice:  "Collect the processor's crash dump from the management controller and have the tray examined.",
			Any:     []Match{logged("CPUError", "IERR", "CPUMismatch", "InvalidUPI")},
		},
		{
			Signature: "MANAGER_FIRMWARE_PANIC", Severity: SeverityCritical,
			Summary: "The firmware of the management controller has crashed",
			Advice:  "Update or reinstall the firmware of the management controller; repeat the job after it has settled.",
			Any: []Match{logged("BMCKernelPanic", "BMCFirmwarePanicReason", "BMCFirmwareResiliencyError",
				"BMCFirmwareRecoveryReason")},
		},
		{
			Signature: "SENSOR_CRITICAL", Severity: SeverityCritical,
			Summary: "A sensor is beyond its critical threshold",
			Advice:  "Check what the sensor measures, cooling and feed first.",
			Any: []Match{
				{
					File: "sensors.json", Each: "resources.*", Tell: []string{"body.Name", "uri"},
					Where: []Condition{{"body.Status.Health", Is, []string{"Critical"}}},
				},
				logged("SensorThresholdCriticalHighGoingHigh", "SensorThresholdCriticalLowGoingLow", "ReadingCritical",
					"ReadingAboveUpperCriticalThreshold", "ReadingBelowLowerCriticalThreshold"),
			},
		},
	}
}

// taskMessage matches a message of a task that did not end well, by its key.
func taskMessage(keys ...string) Match {
	return Match{
		File: "tasks.json", Each: "resources.*", Recent: "body.EndTime", DeviceClock: true,
		Where: []Condition{
			{"body.Messages.*.MessageId", Message, keys},
			{"body.TaskStatus", IsNot, []string{"OK"}},
		},
		Tell: []string{"uri"},
	}
}

// taskRunning matches a task that has not ended; begun leads to the start of those that
// began during the failed job.
func taskRunning(begun string) Match {
	return Match{
		File: "tasks.json", Each: "resources.*", Begun: begun, DeviceClock: true, Tell: []string{"uri"},
		Where: []Condition{{"body.TaskState", Is, []string{"New", "Starting", "Running", "Pending", "Service"}}},
	}
}

// firmwareRules go by the DMTF registry Update and by members of NVIDIA's chassis.
func firmwareRules() []Rule {
	return []Rule{
		{
			Signature: "WRITE_PROTECTED", Severity: SeverityWarning,
			Summary: "Flash of the node is write protected",
			Advice:  "Take the write protection off (jumper or HardwareWriteProtectEnable) and repeat the update.",
			Any: []Match{
				{
					File: "chassis.json", Each: "resources.*", Tell: []string{"uri"},
					Where: []Condition{{"body.Oem.Nvidia.HardwareWriteProtectEnable", Is, []string{"true"}}},
				},
				{
					File: "firmware.json", Each: "resources.*", Tell: []string{"uri"},
					Where: []Condition{{"body.WriteProtected", Is, []string{"true"}}, {"body.Updateable", Is, []string{"true"}}},
				},
			},
		},
		{
			Signature: "FIRMWARE_VERIFICATION_FAILED", Severity: SeverityCritical,
			Summary: "The device refused an image because it did not pass verification",
			Advice:  "Check that the package is the one for this product and signed for it; do not force it.",
			Any:     []Match{taskMessage("VerificationFailed"), logged("VerificationFailed", "GeneralFirmwareSecurityViolation")},
		},
		{
			Signature: "FIRMWARE_TRANSFER_FAILED", Severity: SeverityWarning,
			Summary: "An image did not reach the component it was for",
			Advice:  "Repeat the update; if it fails again, cycle the AUX power of the tray before.",
			Any:     []Match{taskMessage("TransferFailed"), logged("TransferFailed")},
		},
		{
			Signature: "FIRMWARE_APPLY_FAILED", Severity: SeverityCritical,
			Summary: "A component did not take an image",
			Advice:  "Read the messages of the task in tasks.json; cycle the AUX power of the tray and repeat the update.",
			Any:     []Match{taskMessage("ApplyFailed"), logged("ApplyFailed", "FirmwareUpdateFailed")},
		},
		{
			Signature: "FIRMWARE_ACTIVATION_FAILED", Severity: SeverityCritical,
			Summary: "New firmware was written but did not come into force",
			Advice:  "Activate it once more; compare firmware.json with the versions of the package.",
			Any:     []Match{taskMessage("ActivateFailed"), logged("ActivateFailed")},
		},
		{
			Signature: "BACKGROUND_COPY_PENDING", Severity: SeverityInfo,
			Summary: "The node is still copying an earlier image to its second flash",
			Advice:  "Wait until BackgroundCopyStatus reads Completed, then repeat the update.",
			Any: []Match{{
				File: "chassis.json", Each: "resources.*", Tell: []string{"uri"},
				Where: []Condition{{"body.Oem.Nvidia.BackgroundCopyStatus", Is, []string{"InProgress", "Pending"}}},
			}},
		},
		{
			Signature: "UPDATE_LEFT_RUNNING", Severity: SeverityWarning,
			Summary: "An update that began during the job still runs on the node",
			Advice:  "Wait until the task has ended, compare firmware.json with what the job was to reach, then repeat the job.",
			Any:     []Match{taskRunning("body.StartTime")},
		},
		{
			Signature: "FOREIGN_UPDATE_RUNNING", Severity: SeverityInfo,
			Summary: "The node is busy with an update that this job did not start",
			Advice:  "Wait until the task has ended, then repeat the job.",
			Any:     []Match{taskRunning("")},
		},
		{
			Signature: "DEVICE_TASK_FAILED", Severity: SeverityWarning,
			Summary: "A task of the device ended unsuccessfully",
			Advice:  "Read the task's messages in tasks.json.",
			Any: []Match{{
				File: "tasks.json", Each: "resources.*", Recent: "body.EndTime", DeviceClock: true, Tell: []string{"uri"},
				Where: []Condition{{"body.TaskState", Is, []string{"Exception", "Killed", "Interrupted"}}},
			}},
		},
	}
}
