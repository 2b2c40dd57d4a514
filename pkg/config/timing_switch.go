// SPDX-License-Identifier: Apache-2.0

package config

import "time"

// SwitchTiming holds the waits of NVSwitch trays. The limits of uploads to
// `/host/nos-images` are in `[workflows]`.
type SwitchTiming struct {
	// Limit for one NVUE request.
	RequestTimeout time.Duration `koanf:"request_timeout" scale:"no"`
	// Limit for connecting to NVUE.
	ConnectTimeout time.Duration `koanf:"connect_timeout" scale:"no"`
	// Pause between two looks at a revision.
	RevisionPoll time.Duration `koanf:"revision_poll"`
	// Limit for a revision to be applied.
	RevisionLimit time.Duration `koanf:"revision_limit"`
	// Limit for the removal of a failed revision.
	DiscardTimeout time.Duration `koanf:"discard_timeout" scale:"no"`
	// Pause between two looks at an action.
	ActionPoll time.Duration `koanf:"action_poll"`
	// Limit for an action that names no other.
	ActionLimit time.Duration `koanf:"action_limit"`

	// Limit for connecting to SSH.
	SSHConnectTimeout time.Duration `koanf:"ssh_connect_timeout" scale:"no"`
	// Limit for an SSH login.
	SSHLoginTimeout time.Duration `koanf:"ssh_login_timeout" scale:"no"`
	// Limit for one command over SSH.
	SSHExecTimeout time.Duration `koanf:"ssh_exec_timeout" scale:"no"`
	// Limit for one upload of firmware or certificates.
	UploadTimeout time.Duration `koanf:"upload_timeout" scale:"no"`
	// How long an upload of firmware is tried again while SSH does not answer.
	UploadWindow time.Duration `koanf:"upload_window"`
	// Pause between two of these tries.
	UploadPause time.Duration `koanf:"upload_pause"`

	// Limit for reading the firmware inventory around an update.
	InventoryTimeout time.Duration `koanf:"inventory_timeout" scale:"no"`
	// Limit for the request that begins an installation, and for looks at it.
	InstallTimeout time.Duration `koanf:"install_timeout" scale:"no"`
	// Pause between two looks at the installation of firmware.
	InstallPoll time.Duration `koanf:"install_poll"`
	// Limit for the installation of one firmware target, restarts included.
	InstallLimit time.Duration `koanf:"install_limit"`
	// How long an installation of which no answer came may take to show.
	InstallSettle time.Duration `koanf:"install_settle"`
	// Reads of an action before it counts as unreadable.
	InstallReadAttempts int `koanf:"install_read_attempts"`
	// Pause between two of these reads.
	InstallReadPause time.Duration `koanf:"install_read_pause"`
	// Pause between two looks whether a switch is away or back.
	RebootPoll time.Duration `koanf:"reboot_poll"`
	// Limit for one of these looks.
	RebootProbeTimeout time.Duration `koanf:"reboot_probe_timeout" scale:"no"`
	// Limit for a restart during the installation of firmware.
	RebootLimit time.Duration `koanf:"reboot_limit"`
	// Limit for a restart during the installation of an image as firmware.
	ImageRebootLimit time.Duration `koanf:"image_reboot_limit"`
	// Limit for the copy of a package for all components at once (VR NVL72).
	BundleUploadTimeout time.Duration `koanf:"bundle_upload_timeout" scale:"no"`
	// Pause between two looks while a switch takes over such a package.
	FetchPoll time.Duration `koanf:"fetch_poll"`
	// Limit for taking it over.
	FetchLimit time.Duration `koanf:"fetch_limit"`
	// Pause between two looks at the settings of the ASIC firmware.
	ASICPoll time.Duration `koanf:"asic_poll"`
	// Limit for these settings to be applied.
	ASICLimit time.Duration `koanf:"asic_limit"`

	// Looks whether a switch has gone and come back after its power cycle.
	CycleProbes int `koanf:"cycle_probes"`
	// Limit for one of these looks.
	CycleProbeTimeout time.Duration `koanf:"cycle_probe_timeout" scale:"no"`
	// Pause between two of these looks.
	CyclePoll time.Duration `koanf:"cycle_poll"`
	// How long a switch is watched for the power cycle that an agent which died may have asked for.
	CycleSettle time.Duration `koanf:"cycle_settle"`
	// Pause between two reads of the power state after a power cycle through the BMC.
	BMCCyclePoll time.Duration `koanf:"bmc_cycle_poll"`
	// Limit for the power to read On after it.
	BMCCycleLimit time.Duration `koanf:"bmc_cycle_limit"`
	// Pause after that before the switch is used.
	BMCCycleGrace time.Duration `koanf:"bmc_cycle_grace"`
	// Pause between an activation and the first look at the versions.
	VerifyFirstDelay time.Duration `koanf:"verify_first_delay"`
	// Looks at the versions before an update counts as failed.
	VerifyAttempts int `koanf:"verify_attempts"`
	// Pause between two of these looks.
	VerifyInterval time.Duration `koanf:"verify_interval"`

	// Pause between two looks at the removal of an old image.
	UninstallPoll time.Duration `koanf:"uninstall_poll"`
	// Limit for the removal.
	UninstallLimit time.Duration `koanf:"uninstall_limit"`
	// Pause between two looks at the installation of an image.
	HandoffPoll time.Duration `koanf:"handoff_poll"`
	// Limit until the switch goes down for it.
	HandoffLimit time.Duration `koanf:"handoff_limit"`
	// Pause before the first look at the image that runs.
	SteadySettle time.Duration `koanf:"steady_settle"`
	// Pause between two looks.
	SteadyPoll time.Duration `koanf:"steady_poll"`
	// First window for the new image to run.
	SteadyFirst time.Duration `koanf:"steady_first"`
	// Second window.
	SteadySecond time.Duration `koanf:"steady_second"`
	// Third window, after which the update has failed.
	SteadyThird time.Duration `koanf:"steady_third"`
	// How long SSH of a new image may take to answer, so that its host key can be recorded.
	HostKeyLimit time.Duration `koanf:"host_key_limit"`

	// Pause before the first look whether a factory reset has begun.
	FactoryResetSettle time.Duration `koanf:"factory_reset_settle"`
	// Pause between two looks.
	FactoryResetPoll time.Duration `koanf:"factory_reset_poll"`
	// Limit for the switch to go down for the reset.
	FactoryResetDownLimit time.Duration `koanf:"factory_reset_down_limit"`
	// Limit for the reset as a whole.
	FactoryResetLimit time.Duration `koanf:"factory_reset_limit"`
	// Limit for the dialogue that replaces an expired password.
	PasswordDialogLimit time.Duration `koanf:"password_dialog_limit"`
	// Limit for a login with the new password.
	PasswordLoginTimeout time.Duration `koanf:"password_login_timeout" scale:"no"`
	// Pause between two of these logins.
	PasswordLoginPause time.Duration `koanf:"password_login_pause"`
	// Limit for the new password to be accepted.
	PasswordLoginLimit time.Duration `koanf:"password_login_limit"`
	// Pause between two commands that take mTLS away.
	UnsetPause time.Duration `koanf:"unset_pause"`
	// Pause after a certificate was given to an app of the cluster.
	BindSettle time.Duration `koanf:"bind_settle"`
	// Tries to say hello after a certificate was installed.
	HelloAttempts int `koanf:"hello_attempts"`
	// Pause between two of these tries.
	HelloInterval time.Duration `koanf:"hello_interval"`
	// Looks at the services of a switch until they show their new certificates.
	CertificateAttempts int `koanf:"certificate_attempts"`
	// Pause between two of these looks.
	CertificateInterval time.Duration `koanf:"certificate_interval"`
	// Pause between two looks while attestation evidence is made.
	EvidencePoll time.Duration `koanf:"evidence_poll"`
	// Limit for the evidence of one component.
	EvidenceLimit time.Duration `koanf:"evidence_limit"`
	// Limit for the evidence of all switches of a request.
	EvidenceTotal time.Duration `koanf:"evidence_total"`

	// Looks at a state of the fabric that was asked for.
	ConvergeAttempts int `koanf:"converge_attempts"`
	// Pause between two of these looks.
	ConvergeInterval time.Duration `koanf:"converge_interval"`
	// Looks whether the fabric controller is ready.
	ControllerReadyAttempts int `koanf:"controller_ready_attempts"`
	// Pause between two of these looks.
	ControllerReadyInterval time.Duration `koanf:"controller_ready_interval"`
	// Pause between two looks whether the fabric is configured.
	ControllerPoll time.Duration `koanf:"controller_poll"`
	// Limit for it; once more after a restart of the controller.
	ControllerLimit time.Duration `koanf:"controller_limit"`
	// Restarts of the controller that did not take its topology.
	SoftResets int `koanf:"soft_resets"`
	// Pause before each of them.
	SoftResetPause time.Duration `koanf:"soft_reset_pause"`
	// Limit for connecting to the controller or to gNMI.
	ControllerConnectTimeout time.Duration `koanf:"controller_connect_timeout" scale:"no"`
	// Limit for one call to them.
	ControllerCallTimeout time.Duration `koanf:"controller_call_timeout" scale:"no"`
	// Limit for a look whether the controller's port is open.
	PortProbeTimeout time.Duration `koanf:"port_probe_timeout" scale:"no"`
	// Tries to say hello to a controller that was just enabled (VR NVL72).
	FabricHelloAttempts int `koanf:"fabric_hello_attempts"`
	// Pause between two of these tries.
	FabricHelloInterval time.Duration `koanf:"fabric_hello_interval"`
	// Part of the time of a synchronous configuration that is kept for undoing it.
	FabricRollback time.Duration `koanf:"fabric_rollback"`
	// Part of the time of a reconciliation that is kept for restoring what was.
	FabricRestore time.Duration `koanf:"fabric_restore"`
	// How long an action on the controller of which no answer came may take to show.
	ActionSettle time.Duration `koanf:"action_settle"`
	// Pause between two looks at the reset of the controller.
	SDNResetPoll time.Duration `koanf:"sdn_reset_poll"`
	// Limit for the reset.
	SDNResetLimit time.Duration `koanf:"sdn_reset_limit"`
	// Looks in a row that have to show an idle controller when no progress was seen.
	SDNResetConfirmations int `koanf:"sdn_reset_confirmations"`
}
