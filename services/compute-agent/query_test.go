// SPDX-License-Identifier: Apache-2.0

package computeagent_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/redfish"
	"github.com/rackbus/rackbus/pkg/redfishagent"
	"github.com/rackbus/rackbus/pkg/redfishagent/agenttest"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/sim"
	"github.com/rackbus/rackbus/sim/bmc"
	"github.com/rackbus/rackbus/sim/faults"
)

func operation(op redfish.PowerOp) func(*rackbusv1.NodeRequest) {
	return func(r *rackbusv1.NodeRequest) { r.PowerOperation = int32(op) }
}

func TestPowerQueries(t *testing.T) {
	b := newTray(t)
	require.Equal(t, "ON", b.Ask(b.node, redfishagent.OpPowerGet).GetPowerState())
	for _, step := range []struct {
		op   redfish.PowerOp
		want string
	}{{redfish.PowerForceOff, "OFF"}, {redfish.PowerOn, "ON"}, {redfish.PowerOff, "OFF"}, {redfish.PowerForceOn, "ON"}} {
		reply := b.Ask(b.node, redfishagent.OpPowerSet, operation(step.op))
		require.Nil(t, reply.GetError(), "%s", step.op)
		require.Equal(t, step.want, b.Ask(b.node, redfishagent.OpPowerGet).GetPowerState(), "%s", step.op)
	}
}

func TestInventoryQuery(t *testing.T) {
	b := newTray(t)
	reply := b.Ask(b.node, redfishagent.OpFirmwareInventory)
	require.Nil(t, reply.GetError())
	require.Len(t, reply.GetFirmware(), len(b.tray.Versions()))
	for _, f := range reply.GetFirmware() {
		require.Equal(t, b.tray.Version(f.GetName()), f.GetVersion(), f.GetName())
		require.Equal(t, "/redfish/v1/UpdateService/FirmwareInventory/"+f.GetName(), f.GetTarget())
		require.Equal(t, "OK", f.GetHealth())
	}
}

func TestDeviceInfoQuery(t *testing.T) {
	b := newTray(t, func(o *sim.Options) { o.Compute = 3 })
	info := b.Ask(b.target(b.rack.Devices()[2]), redfishagent.OpDeviceInfo).GetDeviceInfo()
	require.NotEmpty(t, info.GetChassisSn())
	require.Equal(t, uint32(3), info.GetSlotNumber())
	require.Equal(t, uint32(2), info.GetTrayIndex())
}

func TestRefusedPowerIsToldAtOnce(t *testing.T) {
	b := newTray(t)
	_, err := b.rack.AddFault(faults.Rule{
		Selector: faults.Request("POST", "**/ComputerSystem.Reset"),
		Action: faults.Action{Status: &faults.Status{Code: 400, Body: []byte(
			`{"error":{"@Message.ExtendedInfo":[{"MessageId":"Base.1.18.ActionParameterNotSupported","Message":"Not with this board."}]}}`)}},
	})
	require.NoError(t, err)
	began := time.Now()
	reply := b.Ask(b.node, redfishagent.OpPowerSet, operation(redfish.PowerForceOff))
	require.Less(t, time.Since(began), agenttest.Timing().Redfish.PowerOffLimit)
	require.Equal(t, string(redfish.CodeInvalidArgument), reply.GetError().GetCode())
	require.Equal(t, "Base.1.18.ActionParameterNotSupported", reply.GetError().GetMessageId())
	require.Contains(t, reply.GetError().GetMessage(), "Not with this board.")
	require.Equal(t, 1, b.posts(hostReset), "a refusal is not repeated")
}

func TestRefusedQueries(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		spoil func(*testing.T, *bench)
		op    string
		want  redfish.ErrorCode
	}{
		"wrong credentials": {
			func(_ *testing.T, b *bench) { b.tray.SetAccount("admin", "another") }, redfishagent.OpPowerGet, redfish.CodeUnauthenticated,
		},
		"password expired": {
			func(_ *testing.T, b *bench) { b.knobs(func(k *bmc.Knobs) { k.PasswordExpired = true }) },
			redfishagent.OpFirmwareInventory, redfish.CodeForbidden,
		},
		"unreachable": {
			func(t *testing.T, b *bench) {
				_, err := b.rack.AddFault(faults.Rule{Action: faults.Action{Refuse: true}})
				require.NoError(t, err)
			}, redfishagent.OpPowerGet, agent.CodeUnreachable,
		},
		"not ready": {
			func(_ *testing.T, b *bench) { b.tray.SetReachable(false) }, redfishagent.OpFirmwareInventory, redfish.CodeUnavailable,
		},
		"other product": {
			func(_ *testing.T, b *bench) { b.node.NodeType = "switch_gb200_nvidia" }, redfishagent.OpPowerGet, redfish.CodeInvalidArgument,
		},
		"no credentials": {
			func(_ *testing.T, b *bench) { b.node.Bmc.Credentials = nil }, redfishagent.OpPowerGet, redfish.CodeInvalidArgument,
		},
		"unknown power operation": {
			func(*testing.T, *bench) {}, redfishagent.OpPowerSet, redfish.CodeInvalidArgument,
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newTray(t)
			tt.spoil(t, b)
			reply := b.Ask(b.node, tt.op)
			require.Equal(t, string(tt.want), reply.GetError().GetCode(), reply.GetError().GetMessage())
			require.NotContains(t, reply.String(), b.tray.Password())
		})
	}
}

// A change is not sent past the moment until which the caller holds the node.
func TestPowerIsNotSetPastTheDeadline(t *testing.T) {
	b := newTray(t)
	reply := b.Ask(b.node, redfishagent.OpPowerSet, operation(redfish.PowerForceOff), func(r *rackbusv1.NodeRequest) {
		r.Deadline = timestamppb.New(time.Now().Add(-time.Second))
	})
	require.NotNil(t, reply.GetError())
	require.Zero(t, b.posts(hostReset))
	require.Equal(t, bmc.PowerOn, b.tray.PowerState())
}
