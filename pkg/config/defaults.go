// SPDX-License-Identifier: Apache-2.0

package config

import (
	"time"

	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
)

// DefaultPath is where the file is looked for when none is named.
const DefaultPath = "/etc/rackbus/config.toml"

// Default returns the configuration of an empty file. It is not valid for a
// process with a gRPC listener, which needs certificates.
func Default() *Config {
	families := make([]string, 0, len(node.Families()))
	for _, f := range node.Families() {
		families = append(families, string(f))
	}
	deadlines := make(map[string]time.Duration)
	for _, info := range job.Types() {
		deadlines[string(info.Type)] = info.RunLimit
	}
	return &Config{
		Port:     8801,
		Listen:   "0.0.0.0",
		Metrics:  Metrics{Port: 8802},
		Switches: Switches{NMXGatewayID: "rack-manager-grpc-client"},
		Workflows: Workflows{
			FirmwareDir:              "firmware",
			ArtifactStore:            ArtifactStoreDir,
			SFTPUploadTimeoutSeconds: 3600,
			SFTPStepTimeoutSeconds:   30,
			MaxTrackedJobs:           10_000,
			TerminalJobTTLSeconds:    86_400,
		},
		Artifacts: defaultArtifacts(),
		Auth:      defaultAuth(),
		Console:   defaultConsole(),

		Diagnostics: defaultDiagnostics(),
		Tracing:     defaultTracing(),

		Logging: Logging{LogLevel: "info", Format: "logfmt"},
		Bus: Bus{
			URLs:           []string{"nats://127.0.0.1:4222"},
			Replicas:       1,
			ConnectTimeout: 5 * time.Second,
			RequestTimeout: 5 * time.Second,
		},
		API: API{
			BatchParallelism: 64,
			DrainTimeout:     30 * time.Second,
			MaxRequestBytes:  17 << 20,
			KeepaliveMinTime: 5 * time.Second,
		},
		Jobs: Jobs{
			OnBusy:           map[string]string{onBusyDefault: onBusyRefuse},
			QueueDeadline:    time.Hour,
			ParkedDeadline:   24 * time.Hour,
			RolloutDeadline:  168 * time.Hour,
			RunDeadline:      deadlines,
			MaxParkedPerNode: 8,
		},
		Agent: Agent{
			MaxInFlight:    10_000,
			MaxUploads:     64,
			MaxStuck:       8,
			MaxConnections: 1024,
			DrainTimeout:   30 * time.Second,
			Families:       families,
			ImageListen:    ":8804",
		},
		SSH: SSH{HostKeyPolicy: hostKeysTrustOnFirstUse, LegacyFamilies: []string{}},
		Validation: Validation{
			Command:           []string{},
			OverrideArguments: []string{"--config-override", overridePlaceholder},
			ReleaseCommand:    []string{},
			WorkDir:           "/var/lib/rackbus/validation",
			Limit:             8 * time.Hour,
			ReleaseLimit:      5 * time.Minute,
			LastReleaseLimit:  time.Minute,
			ReleaseRetry:      30 * time.Second,
			KillGrace:         10 * time.Second,
			MaxOutputBytes:    64 << 10,
			MaxRunning:        16,
		},
		Standalone: Standalone{DataDir: "/var/lib/rackbus/data"},
		Timing:     defaultTiming(),
	}
}

func defaultTiming() Timing {
	return Timing{
		Scale: 1,
		Bus: BusTiming{
			FoldCommitInterval: 50 * time.Millisecond,
			ProgressInterval:   5 * time.Second,
			AdmitTimeout:       time.Minute,
		},
		Redfish: defaultRedfishTiming(),
		InBand: InBandTiming{
			ConnectTimeout: 10 * time.Second,
			ProbeTimeout:   30 * time.Second,
			ReadyInterval:  15 * time.Second,
			ReadyAttempts:  25,
			ReadyLimit:     6 * time.Minute,
			QueryTimeout:   time.Minute,
			UploadTimeout:  5 * time.Minute,
			UploadStall:    30 * time.Second,
			FlashTimeout:   20 * time.Minute,
			FlashPoll:      5 * time.Second,
			VerifyAttempts: 5,
			VerifyInterval: 15 * time.Second,
		},
		Switch:     defaultSwitchTiming(),
		ColdReboot: defaultColdRebootTiming(),
	}
}

func defaultRedfishTiming() RedfishTiming {
	return RedfishTiming{
		ConnectTimeout:         10 * time.Second,
		RequestTimeout:         30 * time.Second,
		CollectionTimeout:      2 * time.Minute,
		UploadTimeout:          15 * time.Minute,
		UploadStall:            time.Minute,
		UploadAnswer:           5 * time.Minute,
		DeviceInfoLimitCompute: 5 * time.Minute,

		PowerConflictInterval:  10 * time.Second,
		InventoryInterval:      30 * time.Second,
		BackgroundCopyInterval: 10 * time.Second,
		BackgroundCopyLimit:    15 * time.Minute,
		ReadyInterval:          5 * time.Second,
		ReadyLimit:             5 * time.Minute,
		UploadAttempts:         5,
		UploadPause:            30 * time.Second,
		UploadSettle:           30 * time.Second,
		PackagePause:           30 * time.Second,
		TaskPollInterval:       5 * time.Second,
		TaskLimitCompute:       90 * time.Minute,
		TaskLimitPowerShelf:    time.Hour,
		TaskTolerance:          15 * time.Minute,
		LostTaskWindow:         5 * time.Minute,
		SuspendedGrace:         5 * time.Minute,
		PowerUnitPoll:          5 * time.Second,
		PowerUnitLimit:         30 * time.Minute,
		PowerUnitsInterval:     15 * time.Second,
		PowerUnitsLimit:        5 * time.Minute,
		PowerUnitSettle:        30 * time.Second,
		PowerUnitRetrySettle:   time.Minute,
		PowerUnitsPause:        10 * time.Second,
		PreserveInterval:       10 * time.Second,
		PreserveSettle:         time.Second,

		PowerCommandRetryInterval: time.Minute,
		PowerPoll:                 5 * time.Second,
		PowerOffWait:              time.Minute,
		OffSettleGB300:            20 * time.Second,
		AuxSettleGB200:            3 * time.Minute,
		PowerOnWait:               time.Minute,
		PowerOnLimit:              5 * time.Minute,
		PowerOnRepeat:             time.Minute,
		BMCReturnPoll:             5 * time.Second,
		BMCReturnLimit:            5 * time.Minute,
		ManagerProbeInterval:      15 * time.Second,
		ManagerReturnLimit:        1785 * time.Second,
		ManagerLostInterval:       5 * time.Second,
		ManagerLostLimit:          2 * time.Minute,
		ManagerProbeTimeout:       5 * time.Second,
		ManagerSteady:             3 * time.Minute,
		RecoveryGrace:             30 * time.Second,
		RestartSettle:             time.Minute,

		VerifyFirstDelay: time.Minute,
		VerifyAttempts:   5,
		VerifyInterval:   time.Minute,
	}
}

func defaultColdRebootTiming() ColdRebootTiming {
	return ColdRebootTiming{
		PrestageShutdownPollMax: 5 * time.Minute,
		DischargeFloor:          3 * time.Minute,
		DischargePollMax:        10 * time.Minute,
		BMCUpFloor:              2 * time.Minute,
		BMCUpPollMax:            10 * time.Minute,
		NVOSHelloBackoff:        30 * time.Second,
		ComputeBootWait:         5 * time.Minute,
		PollInterval:            15 * time.Second,
		ActionLimit:             time.Minute,
		ProbeLimit:              30 * time.Second,
		ActionSettle:            time.Minute,
	}
}

// busTimingFor returns the measured leases for one broker or three. A cluster
// needs longer ones: losing a stream leader stops writes for 5 to 10 s.
func busTimingFor(replicas int) BusTiming {
	if replicas > 1 {
		return BusTiming{
			SessionTTL: 15 * time.Second, SessionRenew: 2 * time.Second, SessionMargin: 2 * time.Second,
			AckWait: 12 * time.Second, WorkInterval: 4 * time.Second, NakBusy: 2 * time.Second,
			FoldTTL: 15 * time.Second, FoldRenew: 2 * time.Second,
		}
	}
	return BusTiming{
		SessionTTL: 6 * time.Second, SessionRenew: 1500 * time.Millisecond, SessionMargin: time.Second,
		AckWait: 6 * time.Second, WorkInterval: 2 * time.Second, NakBusy: time.Second,
		FoldTTL: 5 * time.Second, FoldRenew: time.Second,
	}
}
