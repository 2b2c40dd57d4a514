// SPDX-License-Identifier: Apache-2.0

package config

import (
	"time"

	"github.com/rackbus/rackbus/pkg/switchtls"
)

func defaultSwitchTiming() SwitchTiming {
	t := SwitchTiming{
		RequestTimeout: 30 * time.Second,
		ConnectTimeout: 10 * time.Second,
		RevisionPoll:   time.Second,
		RevisionLimit:  time.Minute,
		DiscardTimeout: 10 * time.Second,
		ActionPoll:     time.Second,
		ActionLimit:    time.Minute,

		SSHConnectTimeout: 30 * time.Second,
		SSHLoginTimeout:   30 * time.Second,
		SSHExecTimeout:    30 * time.Second,
		UploadTimeout:     30 * time.Minute,
		UploadWindow:      670 * time.Second,
		UploadPause:       10 * time.Second,

		InventoryTimeout:    2 * time.Minute,
		InstallTimeout:      20 * time.Minute,
		InstallPoll:         20 * time.Second,
		InstallLimit:        time.Hour,
		InstallSettle:       10 * time.Minute,
		InstallReadAttempts: 3,
		InstallReadPause:    5 * time.Second,
		RebootPoll:          30 * time.Second,
		RebootProbeTimeout:  30 * time.Second,
		RebootLimit:         4 * time.Minute,
		ImageRebootLimit:    30 * time.Minute,
		BundleUploadTimeout: 5 * time.Minute,
		FetchPoll:           5 * time.Second,
		FetchLimit:          10 * time.Minute,
		ASICPoll:            10 * time.Second,
		ASICLimit:           2 * time.Minute,

		CycleProbes:       45,
		CycleProbeTimeout: 5 * time.Second,
		CyclePoll:         15 * time.Second,
		CycleSettle:       time.Minute,
		BMCCyclePoll:      15 * time.Second,
		BMCCycleLimit:     10 * time.Minute,
		BMCCycleGrace:     30 * time.Second,
		VerifyFirstDelay:  time.Minute,
		VerifyAttempts:    5,
		VerifyInterval:    time.Minute,

		UninstallPoll:  5 * time.Second,
		UninstallLimit: 5 * time.Minute,
		HandoffPoll:    5 * time.Second,
		HandoffLimit:   10 * time.Minute,
		SteadySettle:   30 * time.Second,
		SteadyPoll:     10 * time.Second,
		SteadyFirst:    5 * time.Minute,
		SteadySecond:   10 * time.Minute,
		SteadyThird:    15 * time.Minute,
		HostKeyLimit:   2 * time.Minute,

		FactoryResetSettle:    5 * time.Second,
		FactoryResetPoll:      5 * time.Second,
		FactoryResetDownLimit: 5 * time.Minute,
		FactoryResetLimit:     30 * time.Minute,
		PasswordDialogLimit:   90 * time.Second,
		PasswordLoginTimeout:  5 * time.Second,
		PasswordLoginPause:    5 * time.Second,
		PasswordLoginLimit:    time.Minute,
		UnsetPause:            300 * time.Millisecond,
		BindSettle:            5 * time.Second,
		HelloAttempts:         5,
		HelloInterval:         6 * time.Second,
		CertificateAttempts:   3,
		CertificateInterval:   5 * time.Second,
		EvidencePoll:          time.Second,
		EvidenceLimit:         time.Minute,
		EvidenceTotal:         15 * time.Minute,
	}
	addFabricTiming(&t)
	return t
}

// addFabricTiming sets the waits for the controller of the NVLink fabric.
func addFabricTiming(t *SwitchTiming) {
	t.ConvergeAttempts = 4
	t.ConvergeInterval = 30 * time.Second
	t.ControllerReadyAttempts = 7
	t.ControllerReadyInterval = 10 * time.Second
	t.ControllerPoll = 5 * time.Second
	t.ControllerLimit = 3 * time.Minute
	t.SoftResets = 2
	t.SoftResetPause = 2 * time.Second
	t.ControllerConnectTimeout = 30 * time.Second
	t.ControllerCallTimeout = 30 * time.Second
	t.PortProbeTimeout = 10 * time.Second
	t.FabricHelloAttempts = 7
	t.FabricHelloInterval = 10 * time.Second
	t.FabricRollback = 20 * time.Second
	t.FabricRestore = 10 * time.Minute
	t.ActionSettle = time.Minute
	t.SDNResetPoll = 5 * time.Second
	t.SDNResetLimit = 2 * time.Minute
	t.SDNResetConfirmations = 3
}

// SwitchTiming returns the waits of switches with the scale applied.
func (c *Config) SwitchTiming() SwitchTiming { return scaled(c.Timing.Switch, c.Timing.Scale) }

// SwitchTLS returns the settings for the TLS material of switches.
func (c *Config) SwitchTLS() switchtls.Settings {
	s := &c.Switches
	return switchtls.Settings{
		InstalledRoot: s.SwitchCertRoot, ClientRoot: s.ClientTLSRoot, DefaultDomain: s.DefaultSwitchDomain,
		DNSDomain: s.DNSDomain, Insecure: s.InsecureSwitch,
	}
}
