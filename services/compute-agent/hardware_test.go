// SPDX-License-Identifier: Apache-2.0

package computeagent_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/firmware/flashplan"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/redfish"
	"github.com/rackbus/rackbus/pkg/redfishagent"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/sim"
	"github.com/rackbus/rackbus/sim/bmc"
)

// of makes the tray one of a node type.
func of(nodeType string) func(*sim.Options) {
	return func(o *sim.Options) { o.Compute, o.NodeTypes = 0, []sim.NodeTypeCount{{Type: nodeType, Count: 1}} }
}

const inventoryPath = "/redfish/v1/UpdateService/FirmwareInventory/"

// set is the packages that update every controller of a tray.
type set struct {
	update   *rackbusv1.FirmwareUpdate
	versions map[string]string
	// activations are how often the tray is taken down, files the uploads in order.
	activations int
	files       []string
}

// packages are those of a node type, all with an activation.
func (b *bench) packages(nodeType string) set {
	b.t.Helper()
	hmc := b.pldm("nvfw_P4059_9.fwpkg", "9.1", "HMC", "GPU")
	hmc.Component = "HMC"
	s := set{
		update:      activated(hmc, b.pldm("nvfw_P4058_9.fwpkg", "9.2", "BMC")),
		versions:    map[string]string{"HGX_FW_BMC_0": "9.1", "HGX_FW_GPU_3": "9.1", "FW_BMC_0": "9.2"},
		activations: 1, files: []string{"nvfw_P4059_9.fwpkg", "nvfw_P4058_9.fwpkg"},
	}
	switch nodeType {
	case "compute_gb300_lenovo":
		s.update.Targets[1] = b.raw("BMC", "lenovo_9.2.ima")
		s.update.Targets[1].ExpectedVersion = "9.2"
		s.versions = map[string]string{"HGX_FW_BMC_0": "9.1", "BMC": "9.2"}
		s.files[1] = "lenovo_9.2.ima"
	case "compute_gb300_supermicro":
		s = b.supermicro()
	}
	return s
}

// supermicro are the three files of a Supermicro tray, in the wrong order.
func (b *bench) supermicro() set {
	bmcFile, bios, hmc := b.raw("", "obmc_9.2.bin"), b.raw("supermicro_bios", "bios_9.3.bin"), b.pldm("GB300_nosbios_9.fwpkg", "9.1", "HMC", "GPU")
	bmcFile.ExpectedVersion, hmc.Component = "9.2", "HMC"
	return set{
		update: activated(bmcFile, bios, hmc),
		versions: map[string]string{
			"HGX_FW_BMC_0": "9.1", "HGX_FW_GPU_3": "9.1", "HGX_FW_CPU_0": "9.3", "HGX_FW_CPU_1": "9.3", "FW_BMC_0": "9.2",
		},
		activations: 2, files: []string{"GB300_nosbios_9.fwpkg", "bios_9.3.bin", "obmc_9.2.bin"},
	}
}

// files names the images that arrived whole, in their order.
func (b *bench) files() []string {
	var files []string
	for _, u := range b.rack.Uploads(b.tray.ID()) {
		files = append(files, u.Upload.File)
	}
	return files
}

// TestHardware is every operation of every compute tray; the table of the
// documentation names its tests.
func TestHardware(t *testing.T) {
	t.Parallel()
	powerOps := []struct {
		op   redfish.PowerOp
		want string
	}{
		{redfish.PowerOff, "OFF"}, {redfish.PowerOn, "ON"}, {redfish.PowerReset, "ON"}, {redfish.PowerForceOff, "OFF"},
		{redfish.PowerForceOn, "ON"}, {redfish.PowerGracefulShutdown, "OFF"}, {redfish.PowerGracefulRestart, ""},
		{redfish.PowerForceRestart, ""},
	}
	for _, nodeType := range flashplan.NodeTypes() {
		typ, ok := node.ByID(nodeType)
		require.True(t, ok)
		if typ.Family != node.FamilyCompute {
			continue
		}
		t.Run(nodeType, func(t *testing.T) {
			b := newTray(t, of(nodeType))
			t.Run("power_get", func(t *testing.T) {
				require.Equal(t, "ON", b.Ask(b.node, redfishagent.OpPowerGet).GetPowerState())
			})
			for _, p := range powerOps {
				t.Run("power_set_"+strings.ToLower(p.op.String()), func(t *testing.T) {
					before := b.posts(hostReset)
					reply := b.Ask(b.node, redfishagent.OpPowerSet, operation(p.op))
					require.Nil(t, reply.GetError(), "%v", reply.GetError())
					require.Equal(t, before+1, b.posts(hostReset))
					if p.want != "" {
						require.Equal(t, p.want, b.Ask(b.node, redfishagent.OpPowerGet).GetPowerState())
					}
				})
			}
			t.Run("device_info", func(t *testing.T) {
				info := b.Ask(b.node, redfishagent.OpDeviceInfo).GetDeviceInfo()
				require.NotEmpty(t, info.GetChassisSn())
				require.EqualValues(t, 1, info.GetSlotNumber())
			})
			t.Run("inventory", func(t *testing.T) {
				reply := b.Ask(b.node, redfishagent.OpFirmwareInventory)
				require.Nil(t, reply.GetError())
				require.Len(t, reply.GetFirmware(), len(b.tray.Versions()))
				for _, f := range reply.GetFirmware() {
					require.Equal(t, b.tray.Version(f.GetName()), f.GetVersion(), f.GetName())
				}
			})
			t.Run("update_activate_verify", func(t *testing.T) { b.updateAll(t, b.packages(nodeType)) })
		})
	}
}

// updateAll runs a set of packages and looks at everything that has to come of it.
func (b *bench) updateAll(t *testing.T, s set) {
	cycles := b.posts(auxReset)
	j := b.run(s.update)
	require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
	require.Equal(t, s.files, b.files())
	require.Equal(t, s.activations, b.posts(auxReset)-cycles)
	for name, version := range s.versions {
		require.Equal(t, version, b.tray.Version(name), name)
	}
	require.Equal(t, bmc.PowerOn, b.tray.PowerState())
	result := decode(t, j.ResultJSON)
	require.Equal(t, "completed", result["status"])
	require.Equal(t, true, result["activated"])
	require.InDelta(t, len(s.files), result["targets_completed"], 0)
	check := result["post_activation_version_check"].(map[string]any)
	if stages, several := check["stages"].([]any); several {
		for _, one := range stages {
			require.Contains(t, []any{"matched", "unverified"}, one.(map[string]any)["status"], "%v", one)
		}
		return
	}
	require.Equal(t, "matched", check["status"])
}
