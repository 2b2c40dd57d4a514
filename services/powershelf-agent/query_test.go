// SPDX-License-Identifier: Apache-2.0

package powershelfagent_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/redfish"
	"github.com/rackbus/rackbus/pkg/redfishagent"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/sim/bmc"
)

func operation(op redfish.PowerOp) func(*rackbusv1.NodeRequest) {
	return func(r *rackbusv1.NodeRequest) { r.PowerOperation = int32(op) }
}

func TestPowerQueries(t *testing.T) {
	b := newShelf(t)
	require.Equal(t, "ON", b.Ask(b.node, redfishagent.OpPowerGet).GetPowerState())
	const chassis = "/redfish/v1/Chassis/powershelf/Actions/"
	for _, step := range []struct {
		op     redfish.PowerOp
		action string
		want   string
	}{
		{redfish.PowerForceOff, "Chassis.ForceOff", "OFF"},
		{redfish.PowerOn, "Chassis.On", "ON"},
		{redfish.PowerOff, "Chassis.Reset", "OFF"},
		{redfish.PowerForceOn, "Chassis.On", "ON"},
	} {
		before := len(b.requests("POST", chassis+step.action))
		reply := b.Ask(b.node, redfishagent.OpPowerSet, operation(step.op))
		require.Nil(t, reply.GetError(), "%s", step.op)
		require.Len(t, b.requests("POST", chassis+step.action), before+1, "%s", step.op)
		require.Equal(t, step.want, b.Ask(b.node, redfishagent.OpPowerGet).GetPowerState(), "%s", step.op)
	}
}

func TestUnsupportedPowerOperation(t *testing.T) {
	b := newShelf(t)
	for _, op := range []redfish.PowerOp{redfish.PowerGracefulRestart, redfish.PowerForceRestart} {
		reply := b.Ask(b.node, redfishagent.OpPowerSet, operation(op))
		require.Equal(t, string(redfish.CodeInvalidArgument), reply.GetError().GetCode())
		require.Contains(t, reply.GetError().GetMessage(), "is not supported for powershelf power control")
	}
	require.Empty(t, b.requests("POST", ""), "nothing is sent")
	require.Equal(t, bmc.PowerOn, b.shelf.PowerState())
}

func TestInventoryAndDeviceInfo(t *testing.T) {
	b := newShelf(t)
	reply := b.Ask(b.node, redfishagent.OpFirmwareInventory)
	require.Nil(t, reply.GetError())
	require.Len(t, reply.GetFirmware(), len(b.shelf.Versions()))
	// A shelf has no place in the NVLink topology.
	reply = b.Ask(b.node, redfishagent.OpDeviceInfo)
	require.Nil(t, reply.GetError())
	require.Nil(t, reply.GetDeviceInfo())
}
