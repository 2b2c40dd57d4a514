// SPDX-License-Identifier: Apache-2.0

package powershelfagent_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/firmware/flashplan"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/redfish"
	"github.com/rackbus/rackbus/pkg/redfishagent"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/sim/bmc"
	"github.com/rackbus/rackbus/sim/firmwarepackage"
)

// packages update everything of a shelf that images are for, and what it reads
// then.
func (b *bench) packages(nodeType string) (update *rackbusv1.FirmwareUpdate, versions map[string]string) {
	b.t.Helper()
	versions = map[string]string{}
	if strings.HasSuffix(nodeType, "_delta") {
		pldm, err := firmwarepackage.Build(firmwarepackage.DeltaController("1.9.9"))
		require.NoError(b.t, err)
		versions["FW_PMC_primary"] = "1.9.9"
		for i := range 6 {
			versions[fmt.Sprintf("FW_PSU_%d", i+1)] = "01090109"
		}
		return activated(b.File("", "delta_pmc.fwpkg", pldm), b.archive("delta_psu.tar", "DELTA-PSU", "0109")), versions
	}
	versions["pmc_5c3f81d0"] = "r1.9.9"
	for i := range 6 {
		versions[fmt.Sprintf("powerdevice%d", i)] = "0xf1 / 0xf1"
	}
	return activated(b.archive("obmc.tar", "OPENBMC", "r1.9.9"), b.supplyImage()), versions
}

// TestHardware is every operation of every power shelf; the table of the
// documentation names its tests.
func TestHardware(t *testing.T) {
	t.Parallel()
	powerOps := []struct {
		op redfish.PowerOp
		// want is the state afterwards, empty for what a shelf does not do.
		want string
	}{
		{redfish.PowerOff, "OFF"}, {redfish.PowerOn, "ON"}, {redfish.PowerReset, ""}, {redfish.PowerForceOff, "OFF"},
		{redfish.PowerForceOn, "ON"}, {redfish.PowerGracefulShutdown, ""}, {redfish.PowerGracefulRestart, ""},
		{redfish.PowerForceRestart, ""},
	}
	for _, nodeType := range flashplan.NodeTypes() {
		typ, ok := node.ByID(nodeType)
		require.True(t, ok)
		if typ.Family != node.FamilyPowerShelf {
			continue
		}
		t.Run(nodeType, func(t *testing.T) {
			b := newShelf(t, of(nodeType))
			t.Run("power_get", func(t *testing.T) {
				require.Equal(t, "ON", b.Ask(b.node, redfishagent.OpPowerGet).GetPowerState())
			})
			for _, p := range powerOps {
				t.Run("power_set_"+strings.ToLower(p.op.String()), func(t *testing.T) {
					sent := len(b.requests("POST", ""))
					reply := b.Ask(b.node, redfishagent.OpPowerSet, operation(p.op))
					if p.want == "" {
						require.Equal(t, string(redfish.CodeInvalidArgument), reply.GetError().GetCode())
						require.Contains(t, reply.GetError().GetMessage(), "is not supported for powershelf power control")
						require.Len(t, b.requests("POST", ""), sent, "nothing is sent")
						return
					}
					require.Nil(t, reply.GetError(), "%v", reply.GetError())
					require.Equal(t, p.want, b.Ask(b.node, redfishagent.OpPowerGet).GetPowerState())
				})
			}
			t.Run("device_info", func(t *testing.T) {
				reply := b.Ask(b.node, redfishagent.OpDeviceInfo)
				require.Nil(t, reply.GetError())
				require.Nil(t, reply.GetDeviceInfo(), "a shelf has no place in the NVLink topology")
			})
			t.Run("inventory", func(t *testing.T) {
				reply := b.Ask(b.node, redfishagent.OpFirmwareInventory)
				require.Nil(t, reply.GetError())
				require.Len(t, reply.GetFirmware(), len(b.shelf.Versions()))
				for _, f := range reply.GetFirmware() {
					require.Equal(t, b.shelf.Version(f.GetName()), f.GetVersion(), f.GetName())
				}
			})
			t.Run("update_activate_verify", func(t *testing.T) {
				update, versions := b.packages(nodeType)
				j := b.run(update)
				require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
				for name, version := range versions {
					require.Equal(t, version, b.shelf.Version(name), name)
				}
				require.Len(t, b.requests("POST", pushPath), 2)
				require.Len(t, b.requests("POST", "**/"+managerReset), 1)
				require.Equal(t, bmc.PowerOn, b.shelf.PowerState(), "power stays")
				result := decode(t, j.ResultJSON)
				require.Equal(t, "completed", result["status"])
				require.Equal(t, true, result["activated"])
				require.Equal(t, "matched", result["post_activation_version_check"].(map[string]any)["status"])
			})
		})
	}
}
