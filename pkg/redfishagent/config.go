// SPDX-License-Identifier: Apache-2.0

package redfishagent

import (
	"time"

	"github.com/rackbus/rackbus/pkg/config"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/redfish"
	"github.com/rackbus/rackbus/pkg/telemetry"
)

// FromConfig returns the options of a family's agent as configured.
func FromConfig(c *config.Config, family node.Family) Options {
	t := c.RedfishTiming()
	return Options{
		Pool:        redfish.NewPool(redfish.PoolOptions{Connect: t.ConnectTimeout, Handshake: t.ConnectTimeout}),
		FirmwareDir: c.Workflows.FirmwareDir,
		MaxUploads:  c.Agent.MaxUploads, MaxConnections: c.Agent.MaxConnections,
		Version: telemetry.Version(), Profiles: profilesOf(c),
		Timing: Timing{
			Redfish: redfishTiming(t),
			TaskPoll: redfish.PollOptions{
				Interval: t.TaskPollInterval, Limit: taskLimit(t, family), Tolerance: t.TaskTolerance,
				// A task that reads 404 is looked at again two poll intervals later.
				NotFoundInterval: 2 * t.TaskPollInterval, SuspendedGrace: t.SuspendedGrace,
			},
			VerifyFirstDelay: t.VerifyFirstDelay, VerifyInterval: t.VerifyInterval, VerifyAttempts: t.VerifyAttempts,
			UntrackedLimit: t.TaskTolerance,
			UploadAttempts: t.UploadAttempts, UploadPause: t.UploadPause, UploadSettle: t.UploadSettle,
			RestartSettle: t.RestartSettle, LostTaskWindow: t.LostTaskWindow, PackagePause: t.PackagePause,
			UnitSettle: t.PowerUnitSettle, UnitRetrySettle: t.PowerUnitRetrySettle, RecoveryGrace: t.RecoveryGrace,
		},
	}
}

func profilesOf(c *config.Config) map[string]InventoryProfile {
	out := make(map[string]InventoryProfile, len(c.Workflows.ExpectedInventoryProfiles))
	for name, p := range c.Workflows.ExpectedInventoryProfiles {
		out[name] = InventoryProfile{Names: p.APNames, FlintDevices: p.FlintDevices}
	}
	return out
}

func taskLimit(t config.RedfishTiming, family node.Family) time.Duration {
	if family == node.FamilyPowerShelf {
		return t.TaskLimitPowerShelf
	}
	return t.TaskLimitCompute
}

func redfishTiming(t config.RedfishTiming) redfish.Timing {
	return redfish.Timing{
		Request: t.RequestTimeout, Collection: t.CollectionTimeout,
		UploadTotal: t.UploadTimeout, UploadStall: t.UploadStall, UploadAnswer: t.UploadAnswer,
		PowerOnConflictInterval: t.PowerConflictInterval, DeviceInfo: t.DeviceInfoLimitCompute,
		InventoryInterval:   t.InventoryInterval,
		BackgroundCopyLimit: t.BackgroundCopyLimit, BackgroundCopyInterval: t.BackgroundCopyInterval,
		ReadyInterval: t.ReadyInterval, ReadyLimit: t.ReadyLimit,
		PowerUnitLimit: t.PowerUnitLimit, PowerUnitPoll: t.PowerUnitPoll,
		PowerUnitsLimit: t.PowerUnitsLimit, PowerUnitsInterval: t.PowerUnitsInterval, PowerUnitsPause: t.PowerUnitsPause,
		PreserveInterval: t.PreserveInterval, PreserveSettle: t.PreserveSettle,
		StepInterval: t.PowerCommandRetryInterval, PowerPoll: t.PowerPoll,
		PowerOffLimit: t.PowerOffWait, PowerOffSettle: t.OffSettleGB300, AuxSettle: t.AuxSettleGB200,
		PowerOnLimit: t.PowerOnWait, PowerOnLongLimit: t.PowerOnLimit, PowerOnRepeat: t.PowerOnRepeat,
		BMCProbe: t.BMCReturnPoll, BMCLimit: t.BMCReturnLimit,
		ManagerProbe: t.ManagerProbeInterval, ManagerLimit: t.ManagerReturnLimit,
		ManagerLostProbe: t.ManagerLostInterval, ManagerLostLimit: t.ManagerLostLimit,
		ManagerProbeTimeout: t.ManagerProbeTimeout, ManagerSteady: t.ManagerSteady,
	}
}
