// SPDX-License-Identifier: Apache-2.0

package config

import "time"

// Timing holds the waits, intervals and limits of all workflows. The defaults
// fit real hardware.
type Timing struct {
	// Factor on the waits, poll intervals and limits for hardware below, except limits for one request or transfer. Below 1 for checks against a simulated rack.
	Scale float64 `koanf:"scale"`

	Bus        BusTiming        `koanf:"bus"`
	Redfish    RedfishTiming    `koanf:"redfish"`
	InBand     InBandTiming     `koanf:"in_band"`
	Switch     SwitchTiming     `koanf:"switch"`
	ColdReboot ColdRebootTiming `koanf:"cold_reboot"`
}

// BusTiming holds leases and redelivery on the bus. Where the default is 0, the
// value depends on `bus.replicas`: the first number is for 1, the second for 3.
type BusTiming struct {
	// How long a silent agent keeps its jobs. 6s, 15s.
	SessionTTL time.Duration `koanf:"session_ttl"`
	// Pause between two signs of life of an agent. 1.5s, 2s.
	SessionRenew time.Duration `koanf:"session_renew"`
	// How long before its expiry an agent stops acting. 1s, 2s.
	SessionMargin time.Duration `koanf:"session_margin"`
	// How long a silent command stays with an agent. 6s, 12s.
	AckWait time.Duration `koanf:"ack_wait"`
	// Pause between two signs of work on a command. 2s, 4s.
	WorkInterval time.Duration `koanf:"work_interval"`
	// Pause before a command is offered again while its former agent may still live. 1s, 2s.
	NakBusy time.Duration `koanf:"nak_busy"`
	// How long a silent jobs service keeps a partition. 5s, 15s.
	FoldTTL time.Duration `koanf:"fold_ttl"`
	// Pause between two signs of life of a jobs service. 1s, 2s.
	FoldRenew time.Duration `koanf:"fold_renew"`
	// How long events are collected before they are committed to the records.
	FoldCommitInterval time.Duration `koanf:"fold_commit_interval"`
	// Least pause between two progress events of one job.
	ProgressInterval time.Duration `koanf:"progress_interval"`
	// How long a batch may stay half admitted before the jobs service closes it.
	AdmitTimeout time.Duration `koanf:"admit_timeout"`
}

// RedfishTiming holds the waits of compute trays and power shelves.
type RedfishTiming struct {
	// Limit for connecting, TLS included.
	ConnectTimeout time.Duration `koanf:"connect_timeout" scale:"no"`
	// Limit for one ordinary request.
	RequestTimeout time.Duration `koanf:"request_timeout" scale:"no"`
	// Limit for reading a collection or one of its members.
	CollectionTimeout time.Duration `koanf:"collection_timeout" scale:"no"`
	// Limit for one upload; more for images too large for it.
	UploadTimeout time.Duration `koanf:"upload_timeout" scale:"no"`
	// An upload of which no byte is taken for so long has failed.
	UploadStall time.Duration `koanf:"upload_stall" scale:"no"`
	// Limit for the answer after the last byte of an upload.
	UploadAnswer time.Duration `koanf:"upload_answer" scale:"no"`
	// Limit for the device info of a compute tray.
	DeviceInfoLimitCompute time.Duration `koanf:"device_info_limit_compute" scale:"no"`

	// Pause before a power-on that the device refused as conflicting is repeated.
	PowerConflictInterval time.Duration `koanf:"power_conflict_interval"`
	// Pause between two reads of the firmware inventory before an update.
	InventoryInterval time.Duration `koanf:"inventory_interval"`
	// Pause between two looks at the background copies of firmware.
	BackgroundCopyInterval time.Duration `koanf:"background_copy_interval"`
	// Limit for the wait for background copies.
	BackgroundCopyLimit time.Duration `koanf:"background_copy_limit"`
	// Pause between two looks at the update service.
	ReadyInterval time.Duration `koanf:"ready_interval"`
	// Limit for the wait for the update service.
	ReadyLimit time.Duration `koanf:"ready_limit"`
	// Uploads of one package before the update counts as failed.
	UploadAttempts int `koanf:"upload_attempts"`
	// Pause before an upload that the device refused as busy is repeated.
	UploadPause time.Duration `koanf:"upload_pause"`
	// How long a device is watched for the task of an upload whose answer was lost.
	UploadSettle time.Duration `koanf:"upload_settle"`
	// Pause between two packages for one node.
	PackagePause time.Duration `koanf:"package_pause"`
	// Pause between two polls of an update task.
	TaskPollInterval time.Duration `koanf:"task_poll_interval"`
	// Limit for an update task of a compute tray.
	TaskLimitCompute time.Duration `koanf:"task_limit_compute"`
	// Limit for an update task of a power shelf.
	TaskLimitPowerShelf time.Duration `koanf:"task_limit_powershelf"`
	// How long a task may be unreadable without a break.
	TaskTolerance time.Duration `koanf:"task_tolerance"`
	// How long a new version may take to show after the device has lost its task.
	LostTaskWindow time.Duration `koanf:"lost_task_window"`
	// How long a suspended task may stay so before it counts as waiting for somebody.
	SuspendedGrace time.Duration `koanf:"suspended_grace"`
	// Pause between two looks at a power unit under update.
	PowerUnitPoll time.Duration `koanf:"power_unit_poll"`
	// Limit for the update of one power unit.
	PowerUnitLimit time.Duration `koanf:"power_unit_limit"`
	// Pause between two checks of all power units after an update of all at once.
	PowerUnitsInterval time.Duration `koanf:"power_units_interval"`
	// Limit for these checks.
	PowerUnitsLimit time.Duration `koanf:"power_units_limit"`
	// Pause between two power units that are updated one by one.
	PowerUnitSettle time.Duration `koanf:"power_unit_settle"`
	// Pause before a second image for one of them.
	PowerUnitRetrySettle time.Duration `koanf:"power_unit_retry_settle"`
	// Pause before an image for all power units, which the shelf refused as busy, is sent again.
	PowerUnitsPause time.Duration `koanf:"power_units_pause"`
	// Pause before a BMC is told again to keep its configuration (Lenovo).
	PreserveInterval time.Duration `koanf:"preserve_interval"`
	// Pause before it is read back whether it will.
	PreserveSettle time.Duration `koanf:"preserve_settle"`

	// Pause before a power command of an activation is repeated.
	PowerCommandRetryInterval time.Duration `koanf:"power_command_retry_interval"`
	// Pause between two reads of the power state.
	PowerPoll time.Duration `koanf:"power_poll"`
	// Limit for a host to read Off.
	PowerOffWait time.Duration `koanf:"power_off_wait"`
	// Pause after a forced power-off that is not verified (GB300, VR NVL72).
	OffSettleGB300 time.Duration `koanf:"off_settle_gb300"`
	// Pause after an AUX power cycle that is not probed (GB200).
	AuxSettleGB200 time.Duration `koanf:"aux_settle_gb200"`
	// Limit for a host to read On after such an AUX cycle (GB200).
	PowerOnWait time.Duration `koanf:"power_on_wait"`
	// Limit for a host to read On where the command is repeated (GB300, VR NVL72).
	PowerOnLimit time.Duration `koanf:"power_on_limit"`
	// Pause before On is repeated while the host reads Off.
	PowerOnRepeat time.Duration `koanf:"power_on_repeat"`
	// Pause between two probes of a BMC after an AUX cycle.
	BMCReturnPoll time.Duration `koanf:"bmc_return_poll"`
	// Limit for a BMC to return after an AUX cycle.
	BMCReturnLimit time.Duration `koanf:"bmc_return_limit"`
	// Pause between two probes of a manager that accepted its reset.
	ManagerProbeInterval time.Duration `koanf:"manager_probe_interval"`
	// Limit for such a manager to return.
	ManagerReturnLimit time.Duration `koanf:"manager_return_limit"`
	// Pause between two probes of a manager whose answer to the reset was lost.
	ManagerLostInterval time.Duration `koanf:"manager_lost_interval"`
	// Limit for such a manager to return.
	ManagerLostLimit time.Duration `koanf:"manager_lost_limit"`
	// Limit for one such probe.
	ManagerProbeTimeout time.Duration `koanf:"manager_probe_timeout" scale:"no"`
	// How long a manager must answer without a gap to count as restarted unseen.
	ManagerSteady time.Duration `koanf:"manager_steady"`

	// Pause after a node that did not answer was brought back by an AUX cycle.
	RecoveryGrace time.Duration `koanf:"recovery_grace"`
	// How long a device is watched for the restart of an activation whose answer was lost.
	RestartSettle time.Duration `koanf:"restart_settle"`
	// Pause between an activation and the first look at the versions.
	VerifyFirstDelay time.Duration `koanf:"verify_first_delay"`
	// Looks at the versions before an update counts as failed.
	VerifyAttempts int `koanf:"verify_attempts"`
	// Pause between two of these looks.
	VerifyInterval time.Duration `koanf:"verify_interval"`
}

// InBandTiming holds the waits for the host operating systems of compute trays,
// from which network devices are flashed.
type InBandTiming struct {
	// Limit for connecting to SSH.
	ConnectTimeout time.Duration `koanf:"connect_timeout" scale:"no"`
	// Limit for one look whether the host has booted.
	ProbeTimeout time.Duration `koanf:"probe_timeout" scale:"no"`
	// Pause between two looks.
	ReadyInterval time.Duration `koanf:"ready_interval"`
	// Looks before the host counts as not ready.
	ReadyAttempts int `koanf:"ready_attempts"`
	// Limit for all of them.
	ReadyLimit time.Duration `koanf:"ready_limit"`
	// Limit for a command that reads.
	QueryTimeout time.Duration `koanf:"query_timeout" scale:"no"`
	// Limit for the copy of one image.
	UploadTimeout time.Duration `koanf:"upload_timeout" scale:"no"`
	// A copy without any progress for so long has failed.
	UploadStall time.Duration `koanf:"upload_stall" scale:"no"`
	// Limit for flashing one device.
	FlashTimeout time.Duration `koanf:"flash_timeout" scale:"no"`
	// Pause between two looks whether a flash of an agent that died is still running.
	FlashPoll time.Duration `koanf:"flash_poll"`
	// Looks at the versions before an update counts as failed.
	VerifyAttempts int `koanf:"verify_attempts"`
	// Pause between two of these looks.
	VerifyInterval time.Duration `koanf:"verify_interval"`
}

// ColdRebootTiming holds the waits of a rack's cold reboot. A request may
// replace the pauses and poll limits.
type ColdRebootTiming struct {
	// Pause before the first look whether the compute trays are down.
	PrestageShutdownFloor time.Duration `koanf:"prestage_shutdown_floor"`
	// Limit for the compute trays to go down.
	PrestageShutdownPollMax time.Duration `koanf:"prestage_shutdown_poll_max"`
	// Pause before the first look whether the trays are discharged.
	DischargeFloor time.Duration `koanf:"discharge_floor"`
	// Limit for the BMCs to become unreachable.
	DischargePollMax time.Duration `koanf:"discharge_poll_max"`
	// Pause before the first look whether the BMCs are back.
	BMCUpFloor time.Duration `koanf:"bmc_up_floor"`
	// Limit for the BMCs to become reachable.
	BMCUpPollMax time.Duration `koanf:"bmc_up_poll_max"`
	// First pause between tries to reach NVOS; it doubles with each.
	NVOSHelloBackoff time.Duration `koanf:"nvos_hello_backoff"`
	// Wait for the compute trays to boot.
	ComputeBootWait time.Duration `koanf:"compute_boot_wait"`
	// Pause between two looks.
	PollInterval time.Duration `koanf:"poll_interval"`
	// Limit for one power action. No request replaces this and the following two.
	ActionLimit time.Duration `koanf:"action_limit" scale:"no"`
	// Limit for one look at a node.
	ProbeLimit time.Duration `koanf:"probe_limit" scale:"no"`
	// How long a power action of which no answer came may take to show in the power state.
	ActionSettle time.Duration `koanf:"action_settle"`
}
