// SPDX-License-Identifier: Apache-2.0

package switchagent

import (
	"time"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/config"
	"github.com/rackbus/rackbus/pkg/diagnostics"
	"github.com/rackbus/rackbus/pkg/firmware/artifactcache"
	"github.com/rackbus/rackbus/pkg/firmware/catalog"
	"github.com/rackbus/rackbus/pkg/fleet"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/process"
	"github.com/rackbus/rackbus/pkg/redfish"
	"github.com/rackbus/rackbus/pkg/ssh"
	"github.com/rackbus/rackbus/pkg/switchtls"
	"github.com/rackbus/rackbus/pkg/telemetry"
	"github.com/rackbus/rackbus/services/switch-agent/internal/device"
	"github.com/rackbus/rackbus/services/switch-agent/internal/firmware"
	"github.com/rackbus/rackbus/services/switch-agent/internal/firstlogin"
	"github.com/rackbus/rackbus/services/switch-agent/internal/image"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nvue"
	"github.com/rackbus/rackbus/services/switch-agent/internal/upload"
)

// FromConfig returns the options of the agent as configured.
func FromConfig(env *process.Env, conn *bus.Conn) (Options, error) {
	c := env.Config
	seals, err := fleet.Opener(c, Family)
	if err != nil {
		return Options{}, err
	}
	path, err := c.KnownHosts()
	if err != nil {
		return Options{}, err
	}
	keys, err := ssh.OpenHostKeys(ssh.Policy(c.SSH.HostKeyPolicy), path, env.Log)
	if err != nil {
		return Options{}, err
	}
	t, r, ports := c.SwitchTiming(), c.RedfishTiming(), c.Switches.TestPorts
	return Options{
		Seals: seals,
		Device: device.Options{
			TLS: switchtls.NewStore(c.SwitchTLS()), NVUE: nvueTiming(t), SSH: sshTiming(t),
			HostKeys: keys, Legacy: c.LegacySSH(string(node.FamilySwitch)),
			Pool: redfish.NewPool(redfish.PoolOptions{Connect: r.ConnectTimeout, Handshake: r.ConnectTimeout}),
			Redfish: redfish.Timing{
				Request: r.RequestTimeout, Collection: r.CollectionTimeout, PowerOnConflictInterval: r.PowerConflictInterval,
			},
			Targets: node.TargetPolicy{AllowLoopback: c.Switches.AllowLoopbackTargets},
			Ports: device.Ports{
				SSH: ports.SSH, NMXController: ports.NMXController, NMXTelemetry: ports.NMXTelemetry, GNMI: ports.GNMI,
			},
			Version: telemetry.Version(),
		},
		FirmwareDir: c.Workflows.FirmwareDir,
		Artifacts: artifactcache.New(artifactcache.Options{
			Store: catalog.NewBus(conn, env.Log), FirmwareDir: c.Workflows.FirmwareDir,
			InStore:  c.Workflows.ArtifactStore == config.ArtifactStoreBus,
			MaxBytes: int64(c.Artifacts.CacheBytes), Silence: c.Artifacts.WaitTimeout, Logger: env.Log,
		}),
		MaxUploads:  c.Agent.MaxUploads,
		Timing:      t,
		ImageUpload: upload.Limits{Total: c.SFTPUploadTimeout(), Stall: c.SFTPStepTimeout()},
		GatewayID:   c.Switches.NMXGatewayID,
		Diagnostics: diagnostics.FromConfig(c, conn, env.Registry, string(Family)),
	}, nil
}

func nvueTiming(t config.SwitchTiming) nvue.Timing {
	return nvue.Timing{
		Request: t.RequestTimeout, Connect: t.ConnectTimeout, RevisionPoll: t.RevisionPoll, RevisionLimit: t.RevisionLimit,
		Discard: t.DiscardTimeout, ActionPoll: t.ActionPoll, ActionLimit: t.ActionLimit,
	}
}

func sshTiming(t config.SwitchTiming) ssh.Timing {
	return ssh.Timing{
		Connect: t.SSHConnectTimeout, Login: t.SSHLoginTimeout, Exec: t.SSHExecTimeout,
		Upload: t.UploadTimeout,
	}
}

func imageTiming(t config.SwitchTiming) image.Timing {
	return image.Timing{
		UninstallPoll: t.UninstallPoll, UninstallLimit: t.UninstallLimit,
		HandoffPoll: t.HandoffPoll, HandoffLimit: t.HandoffLimit,
		SteadySettle: t.SteadySettle, SteadyPoll: t.SteadyPoll,
		SteadyWindows: []time.Duration{t.SteadyFirst, t.SteadySecond, t.SteadyThird},
		HostKeyLimit:  t.HostKeyLimit,
		FirstLogin:    firstLoginTiming(t),
	}
}

func firstLoginTiming(t config.SwitchTiming) firstlogin.Timing {
	return firstlogin.Timing{
		Dialog: t.PasswordDialogLimit, Login: t.PasswordLoginTimeout, Pause: t.PasswordLoginPause, Limit: t.PasswordLoginLimit,
	}
}

func firmwareTiming(t config.SwitchTiming) firmware.Timing {
	return firmware.Timing{
		Inventory: t.InventoryTimeout, Install: t.InstallTimeout, InstallPoll: t.InstallPoll, InstallLimit: t.InstallLimit,
		ReadAttempts: t.InstallReadAttempts, ReadPause: t.InstallReadPause, InstallSettle: t.InstallSettle,
		RebootPoll: t.RebootPoll, RebootProbe: t.RebootProbeTimeout, RebootLimit: t.RebootLimit, ImageRebootLimit: t.ImageRebootLimit,
		FetchPoll: t.FetchPoll, FetchLimit: t.FetchLimit, ASICPoll: t.ASICPoll, ASICLimit: t.ASICLimit,
		CycleProbes: t.CycleProbes, CyclePoll: t.CyclePoll, CycleProbe: t.CycleProbeTimeout, CycleSettle: t.CycleSettle,
		BMCPoll: t.BMCCyclePoll, BMCLimit: t.BMCCycleLimit, BMCGrace: t.BMCCycleGrace,
		VerifyFirstDelay: t.VerifyFirstDelay, VerifyInterval: t.VerifyInterval, VerifyAttempts: t.VerifyAttempts,
	}
}

// firmwareLimits: uploads that are installed are tried again while SSH does not
// answer; the others once.
func firmwareLimits(t config.SwitchTiming, images upload.Limits) firmware.Limits {
	retried := func(l upload.Limits) upload.Limits {
		l.Window, l.Pause = t.UploadWindow, t.UploadPause
		return l
	}
	return firmware.Limits{
		Component: retried(upload.Limits{Total: t.UploadTimeout, Stall: images.Stall}),
		Bundle:    retried(upload.Limits{Total: t.BundleUploadTimeout, Stall: images.Stall}),
		Image:     retried(images),
		Push:      upload.Limits{Total: t.UploadTimeout, Stall: images.Stall},
	}
}
