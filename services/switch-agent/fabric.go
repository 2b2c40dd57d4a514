// SPDX-License-Identifier: Apache-2.0

package switchagent

import (
	"context"
	"log/slog"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/config"
	"github.com/rackbus/rackbus/pkg/credentials"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/seal"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/services/switch-agent/internal/device"
	"github.com/rackbus/rackbus/services/switch-agent/internal/fabric"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nmxc"
)

// peer is a switch that a job names, which need not be the job's own node.
type peer struct {
	target *rackbusv1.NodeTarget
	seals  *seal.Opener
	guard  agent.Guard
}

func (p peer) Target() *rackbusv1.NodeTarget { return p.target }

func (p peer) Credentials(kind node.EndpointKind) (node.Credentials, error) {
	return credentials.Open(p.seals, p.target, kind)
}

func (p peer) Guard() agent.Guard { return p.guard }

// openPeer opens one of the switches of a fabric.
func (s *Switches) openPeer(guard agent.Guard, target *rackbusv1.NodeTarget, domain string, log *slog.Logger) (fabric.Switch, error) {
	sw, err := s.devices.Open(peer{target, s.opts.Seals, guard}, domain, log)
	if err != nil {
		return nil, err
	}
	return s.inFabric(sw), nil
}

// inFabric is an opened switch with its controller.
func (s *Switches) inFabric(sw *device.Switch) fabric.Switch {
	return fabric.On(sw, fabric.ControllerOptions{TLS: s.devices.TLS(), Gateway: s.opts.GatewayID, Timing: nmxcTiming(s.opts.Timing)})
}

func (s *Switches) cluster(sw *device.Switch) *fabric.Cluster {
	return fabric.NewCluster(s.inFabric(sw), fabricTiming(s.opts.Timing))
}

// fabricQuery opens the switch for an operation of the fabric, whose reply tells
// all else.
func (s *Switches) fabricQuery(run fabric.Operation) agent.QueryHandler {
	return s.query(func(ctx context.Context, sw *device.Switch, req *rackbusv1.NodeRequest) (*rackbusv1.NodeReply, error) {
		return run(ctx, s.inFabric(sw), req), nil
	})
}

func nmxcTiming(t config.SwitchTiming) nmxc.Timing {
	return nmxc.Timing{Connect: t.ControllerConnectTimeout, Call: t.ControllerCallTimeout, Probe: t.PortProbeTimeout}
}

func fabricTiming(t config.SwitchTiming) fabric.Timing {
	return fabric.Timing{
		Converge:          fabric.Look{Times: t.ConvergeAttempts, Pause: t.ConvergeInterval},
		Ready:             fabric.Look{Times: t.ControllerReadyAttempts, Pause: t.ControllerReadyInterval},
		Greet:             fabric.Look{Times: t.HelloAttempts, Pause: t.HelloInterval},
		GreetStarting:     fabric.Look{Times: t.FabricHelloAttempts, Pause: t.FabricHelloInterval},
		CertificateSettle: t.BindSettle, CommandGap: t.UnsetPause, Probe: t.PortProbeTimeout,
		SoftResets: t.SoftResets, SoftResetPause: t.SoftResetPause,
		Configured: t.ControllerLimit, ConfiguredPoll: t.ControllerPoll,
		Rollback: t.FabricRollback, Restore: t.FabricRestore, Show: t.ActionSettle,
		SDNLimit: t.SDNResetLimit, SDNPoll: t.SDNResetPoll, SDNConfirm: t.SDNResetConfirmations,
	}
}
