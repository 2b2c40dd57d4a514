// SPDX-License-Identifier: Apache-2.0

package flashplan_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/firmware/flashplan"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
)

const (
	fi  = "/redfish/v1/UpdateService/FirmwareInventory/"
	hgx = "/redfish/v1/Chassis/HGX_Chassis_0"
)

func one(t *testing.T, nodeType string, target flashplan.Target) flashplan.Item {
	t.Helper()
	groups, err := flashplan.Plan(nodeType, []flashplan.Target{target}, flashplan.Options{Activate: true})
	require.NoError(t, err)
	require.Len(t, groups, 1)
	require.Len(t, groups[0].Items, 1)
	return groups[0].Items[0]
}

// Every compute and shelf type of the node table has a row, and no row is for
// anything else.
func TestEveryNodeTypeIsPlanned(t *testing.T) {
	var want []string
	for _, typ := range node.Types() {
		want = append(want, typ.ID)
		require.True(t, flashplan.Supported(typ.ID), typ.ID)
		_, err := flashplan.Plan(typ.ID, []flashplan.Target{{Component: "CX7", File: "cx7.bin"}}, flashplan.Options{Activate: true})
		if typ.InBand {
			require.NoError(t, err, typ.ID)
		} else if typ.Family == node.FamilyCompute {
			require.ErrorContains(t, err, "GB200 compute trays only", typ.ID)
		}
	}
	require.ElementsMatch(t, want, flashplan.NodeTypes())
	_, err := flashplan.Plan("compute_gb400_nvidia", []flashplan.Target{{File: "a"}}, flashplan.Options{})
	require.ErrorContains(t, err, "compute_gb400_nvidia are not supported by this version")
}

func TestSend(t *testing.T) {
	const gb200, gb300, lenovo, smc, vr = "compute_gb200_nvidia", "compute_gb300_nvidia", "compute_gb300_lenovo", "compute_gb300_supermicro", "compute_vrnvl72_nvidia"
	cpus := []string{fi + "HGX_FW_CPU_0", fi + "HGX_FW_CPU_1"}
	for _, tt := range []struct {
		typ, component, file string
		targets              []string
		scope                []string
		oem                  string
		baseboard, keep      bool
		lost                 string
	}{
		{typ: gb200, file: "nvfw_GB200-P4972_1.fwpkg"},
		{typ: gb200, component: "BMC", file: "anything"},
		{typ: gb200, component: "bmc", file: "nvfw_GB200-P4975_1.fwpkg"},
		{typ: gb200, file: "sub/nvfw_GB200-P4975_1.fwpkg", targets: []string{hgx}, baseboard: true},
		{typ: vr, file: "nvfw_VR-P4109_1.fwpkg", targets: []string{hgx}, baseboard: true},
		{typ: gb300, component: "HMC", file: "x", targets: []string{hgx}, baseboard: true},
		{typ: gb300, component: hgx, file: "x", targets: []string{hgx}, baseboard: true},
		{typ: gb300, component: "/redfish/v1/Chassis/Other", file: "x", targets: []string{"/redfish/v1/Chassis/Other"}},
		{typ: gb300, component: " erot-cpu-1 ", file: "x", targets: []string{fi + "HGX_FW_ERoT_CPU_1"}, scope: []string{fi + "HGX_FW_ERoT_CPU_1"}, baseboard: true},
		{typ: gb200, component: "CPU_0", file: "x", targets: []string{fi + "HGX_FW_CPU_0"}, scope: []string{fi + "HGX_FW_CPU_0"}, baseboard: true},
		{typ: gb200, component: "GPU_3", file: "x", targets: []string{fi + "HGX_FW_GPU_3"}, scope: []string{fi + "HGX_FW_GPU_3"}, baseboard: true},
		{typ: gb200, component: "HGX_BMC_0", file: "x", targets: []string{fi + "HGX_FW_BMC_0"}, scope: []string{fi + "HGX_FW_BMC_0"}, baseboard: true},
		{typ: gb200, component: "INFOROM_GPU_2", file: "x", targets: []string{fi + "HGX_InfoROM_GPU_2"}, scope: []string{fi + "HGX_InfoROM_GPU_2"}, baseboard: true},
		{typ: gb200, component: "PCIE_SWITCH_CONFIG_0", file: "x", targets: []string{fi + "HGX_PCIeSwitchConfig_0"}, scope: []string{fi + "HGX_PCIeSwitchConfig_0"}, baseboard: true},
		{typ: gb200, component: "FPGA_1", file: "x", targets: []string{fi + "HGX_FW_FPGA_1"}, scope: []string{fi + "HGX_FW_FPGA_1"}, baseboard: true},
		{typ: gb200, component: "CPLD_0", file: "x", targets: []string{fi + "HGX_FW_CPLD_0"}, scope: []string{fi + "HGX_FW_CPLD_0"}, baseboard: true},
		{typ: gb200, component: "EROT_FPGA_0", file: "x", targets: []string{fi + "HGX_FW_ERoT_FPGA_0"}, scope: []string{fi + "HGX_FW_ERoT_FPGA_0"}, baseboard: true},
		{typ: gb200, component: "EROT_BMC_0", file: "x", targets: []string{fi + "HGX_FW_ERoT_BMC_0"}, scope: []string{fi + "HGX_FW_ERoT_BMC_0"}, baseboard: true},
		{typ: vr, component: "FW_CX_0", file: "x", targets: []string{fi + "FW_CX_0"}, scope: []string{fi + "FW_CX_0"}},

		{typ: lenovo, component: "HMC", file: "x.fwpkg", oem: `{"ImageType":"PLDM","Platform":"HGX"}`, baseboard: true},
		{typ: lenovo, component: hgx, file: "x.fwpkg", oem: `{"ImageType":"PLDM","Platform":"HGX"}`, baseboard: true},
		{typ: lenovo, file: "nvfw_P4059_1.fwpkg", oem: `{"ImageType":"PLDM","Platform":"HGX"}`, baseboard: true},
		{typ: lenovo, component: "BMC", file: "x.fwpkg", targets: []string{fi + "BMC"}, scope: []string{fi + "BMC"}, oem: `{"ImageType":"BMC"}`, keep: true},
		{typ: lenovo, component: fi + "BMC", file: "x.HPM", targets: []string{fi + "BMC"}, scope: []string{fi + "BMC"}, oem: `{"ImageType":"HPM"}`, keep: true},
		{typ: lenovo, file: "tray.ima", targets: []string{fi + "BMC"}, scope: []string{fi + "BMC"}, oem: `{"ImageType":"BMC"}`, keep: true},
		{typ: lenovo, file: "tray.hpm", targets: []string{fi + "BMC"}, scope: []string{fi + "BMC"}, oem: `{"ImageType":"HPM"}`, keep: true},
		{typ: lenovo, file: "cpld.bin"},

		{typ: smc, component: "HMC", file: "GB300_NoSBIOS_1.fwpkg", targets: []string{hgx}, baseboard: true},
		{typ: smc, component: hgx, file: "nosbios.fwpkg", targets: []string{hgx}, baseboard: true},
		{typ: smc, component: "supermicro_bios", file: "BIOS_1.bin", targets: cpus, scope: cpus, baseboard: true},
		{typ: smc, component: "BIOS", file: "BIOS_1.bin", targets: cpus, scope: cpus, baseboard: true},
		{typ: smc, component: "BMC", file: "OBMC_1.bin", targets: []string{fi + "FW_BMC_0"}, scope: []string{fi + "FW_BMC_0"}, lost: fi + "FW_BMC_0"},
		{typ: smc, component: fi + "FW_BMC_0", file: "obmc_1.bin", targets: []string{fi + "FW_BMC_0"}, scope: []string{fi + "FW_BMC_0"}, lost: fi + "FW_BMC_0"},
		{typ: smc, file: "obmc_1.bin", targets: []string{fi + "FW_BMC_0"}, scope: []string{fi + "FW_BMC_0"}, lost: fi + "FW_BMC_0"},
	} {
		t.Run(tt.typ+"/"+tt.component+"/"+tt.file, func(t *testing.T) {
			item := one(t, tt.typ, flashplan.Target{Component: tt.component, File: tt.file})
			require.Equal(t, tt.targets, item.Send.Targets)
			require.Equal(t, tt.scope, item.Send.Scope)
			require.Equal(t, tt.oem, string(item.Send.OemParameters))
			require.Equal(t, tt.baseboard, item.Send.Baseboard)
			require.Equal(t, tt.keep, item.KeepConfiguration)
			require.Equal(t, tt.lost, item.LostTask)
		})
	}
}

// A firmware object names a tray's own package by its key alone, whatever the file
// is called.
func TestKeyNamesThePackage(t *testing.T) {
	lenovo := one(t, "compute_gb300_lenovo", flashplan.Target{Key: "BMC", File: "prod/bmc_9.bin"})
	require.Equal(t, []string{fi + "BMC"}, lenovo.Send.Targets)
	require.JSONEq(t, `{"ImageType":"BMC"}`, string(lenovo.Send.OemParameters))
	require.True(t, lenovo.KeepConfiguration)

	tray := one(t, "compute_gb200_nvidia", flashplan.Target{Key: "BMC", File: "prod/bmc_for_HGX_tray.fwpkg"})
	require.Equal(t, flashplan.Send{}, tray.Send)
	require.Equal(t, tray.Send, tray.ForBaseboard().Send, "the key weighs more than the content")
}

// A forced update names its targets all the same, also when only the package tells
// where it belongs.
func TestForceKeepsTargets(t *testing.T) {
	groups, err := flashplan.Plan("compute_gb200_nvidia", []flashplan.Target{{File: "HGX.fwpkg"}, {File: "tray.fwpkg"}},
		flashplan.Options{Force: true})
	require.NoError(t, err)
	items := groups[0].Items
	require.Equal(t, flashplan.Send{Targets: []string{hgx}, Force: true, Baseboard: true}, items[0].Send)
	require.Equal(t, flashplan.Send{Force: true}, items[1].Send)
	require.Equal(t, items[0].Send, items[1].ForBaseboard().Send, "its content may say that it is for the baseboard")
	require.Equal(t, flashplan.Send{Force: true}, items[1].Send, "the item itself stays")

	named := one(t, "compute_gb200_nvidia", flashplan.Target{Component: "BMC", File: "x"})
	require.Equal(t, named.Send, named.ForBaseboard().Send, "the words of a request weigh more")
	lenovo := one(t, "compute_gb300_lenovo", flashplan.Target{File: "x.fwpkg"})
	require.JSONEq(t, `{"ImageType":"PLDM","Platform":"HGX"}`, string(lenovo.ForBaseboard().Send.OemParameters))
}

func TestShelves(t *testing.T) {
	for _, tt := range []struct {
		typ      string
		target   flashplan.Target
		supplies bool
		unit     string
	}{
		{"powershelf_gb200_liteon", flashplan.Target{File: "openbmc_r1.tar"}, false, ""},
		{"powershelf_gb300_liteon", flashplan.Target{File: "sp-2552_F1F1_.bin"}, true, ""},
		{"powershelf_gb300_liteon", flashplan.Target{File: "LiteOn-PSU.bin"}, true, ""},
		{"powershelf_gb300_delta", flashplan.Target{File: "x_psu.tar"}, true, ""},
		{"powershelf_gb200_liteon", flashplan.Target{Component: "powerdevice3", File: "fw.bin"}, true, "powerdevice3"},
		{"powershelf_gb200_delta", flashplan.Target{Component: "powerdevice3", File: "fw.bin"}, true, ""},
		{"powershelf_gb200_liteon", flashplan.Target{Key: "LiteOnPSU", File: "fw.tar"}, true, ""},
		{"powershelf_gb200_liteon", flashplan.Target{Key: "LITEON_PMC", File: "x_psu.tar"}, false, ""},
		{"powershelf_gb200_delta", flashplan.Target{Key: "delta-psu", File: "fw.tar"}, true, ""},
	} {
		item := one(t, tt.typ, tt.target)
		require.Equal(t, tt.supplies, item.Supplies, "%+v", tt.target)
		require.Equal(t, tt.unit, item.Unit, "%+v", tt.target)
		require.Empty(t, item.Send.Targets)
	}
}

type shape struct {
	name     string
	files    string
	activate bool
	restarts bool
}

func shapes(groups []flashplan.Group) []shape {
	var out []shape
	for _, g := range groups {
		var files []string
		for _, i := range g.Items {
			files = append(files, i.File)
		}
		out = append(out, shape{g.Name, strings.Join(files, " "), g.Activate, g.Restarts})
	}
	return out
}

func TestGroups(t *testing.T) {
	bmc, hmc := flashplan.Target{Component: "BMC", File: "obmc.bin"}, flashplan.Target{Component: "HMC", File: "nosbios.fwpkg"}
	bios := flashplan.Target{Component: "supermicro_bios", File: "bios.bin"}
	cx7, bf3 := flashplan.Target{Component: "ConnectX-7", File: "cx7.bin"}, flashplan.Target{Component: "BF3_NIC", File: "bf3.pldm"}
	for _, tt := range []struct {
		name    string
		typ     string
		targets []flashplan.Target
		options flashplan.Options
		want    []shape
	}{
		{"given order", "compute_gb200_nvidia", []flashplan.Target{bmc, hmc}, flashplan.Options{Activate: true},
			[]shape{{"", "obmc.bin nosbios.fwpkg", true, false}}},
		{"shelf without activation", "powershelf_gb200_delta", []flashplan.Target{{File: "a"}, {File: "b"}}, flashplan.Options{},
			[]shape{{"", "a b", false, false}}},
		{"only in-band", "compute_gb200_wiwynn", []flashplan.Target{cx7, bf3}, flashplan.Options{Activate: true},
			[]shape{{"", "cx7.bin bf3.pldm", true, false}}},
		{"in-band first", "compute_gb200_nvidia", []flashplan.Target{hmc, cx7, bmc, bf3}, flashplan.Options{Activate: true, Mixed: true},
			[]shape{{"in_band", "cx7.bin bf3.pldm", true, false}, {"out_of_band", "nosbios.fwpkg obmc.bin", true, false}}},
		{"supermicro order", "compute_gb300_supermicro", []flashplan.Target{bmc, bios, hmc}, flashplan.Options{Activate: true},
			[]shape{{"hmc", "nosbios.fwpkg", true, false}, {"bios", "bios.bin", true, false}, {"bmc", "obmc.bin", false, true}}},
		{"supermicro without activation", "compute_gb300_supermicro", []flashplan.Target{bmc, hmc}, flashplan.Options{},
			[]shape{{"hmc", "nosbios.fwpkg", false, false}, {"bmc", "obmc.bin", false, true}}},
		{"supermicro BMC alone", "compute_gb300_supermicro", []flashplan.Target{bmc}, flashplan.Options{Activate: true},
			[]shape{{"", "obmc.bin", false, true}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			groups, err := flashplan.Plan(tt.typ, tt.targets, tt.options)
			require.NoError(t, err)
			require.Equal(t, tt.want, shapes(groups))
			seen := map[int]bool{}
			for _, g := range groups {
				require.Equal(t, g.Activate || g.Restarts, g.Verified())
				for _, i := range g.Items {
					require.Equal(t, strings.TrimSpace(tt.targets[i.Index].Component), i.Component)
					seen[i.Index] = true
				}
			}
			require.Len(t, seen, len(tt.targets), "every package is planned once")
		})
	}
}

func TestOrderIsNoted(t *testing.T) {
	plan := func(targets ...flashplan.Target) string {
		groups, err := flashplan.Plan("compute_gb300_nvidia", targets, flashplan.Options{})
		require.NoError(t, err)
		return groups[0].Note
	}
	bmc, hmc := flashplan.Target{File: "P4058.fwpkg"}, flashplan.Target{File: "P4059.fwpkg"}
	require.Contains(t, plan(bmc, hmc), "the order of the request stands")
	require.Contains(t, plan(flashplan.Target{Component: "BMC", File: "x"}, hmc), "HMC before BMC")
	require.Empty(t, plan(hmc, bmc))
	require.Empty(t, plan(bmc, flashplan.Target{Component: "CPU_0", File: "x"}), "a part of the baseboard is no HMC package")
}

func TestRefusals(t *testing.T) {
	const smc = "compute_gb300_supermicro"
	two := func(a, b string) []flashplan.Target {
		return []flashplan.Target{{Component: a, File: a + ".bin"}, {Component: b, File: b + ".bin"}}
	}
	for _, tt := range []struct {
		name    string
		typ     string
		targets []flashplan.Target
		options flashplan.Options
		code    job.FailureCode
		text    string
	}{
		{"no target", "compute_gb200_nvidia", nil, flashplan.Options{}, job.FailureInvalidArgument, "names no firmware targets"},
		{"unknown type", "toaster", two("a", "b"), flashplan.Options{}, job.FailureInvalidArgument, "toaster"},
		{"arm image", "compute_gb200_nvidia", two("BF3_BFB", "b"), flashplan.Options{}, job.FailurePreconditionFailed, "BF3_BFB installs"},
		{"in-band elsewhere", "compute_gb300_nvidia", two("CX8", "CX7"), flashplan.Options{Activate: true}, job.FailureInvalidArgument, "not on compute_gb300_nvidia"},
		{"mixed", "compute_gb200_nvidia", two("CX7", "BMC"), flashplan.Options{Activate: true}, job.FailureInvalidArgument, "cannot be mixed"},
		{"mixed and inactive", "compute_gb200_nvidia", two("CX7", "BMC"), flashplan.Options{Mixed: true}, job.FailurePreconditionFailed, "need activate"},
		{"in-band inactive", "compute_gb200_nvidia", two("CX7", "BF3"), flashplan.Options{}, job.FailurePreconditionFailed, "need activate"},
		{"in-band name", "compute_gb200_nvidia", []flashplan.Target{{Component: "CX7", File: "a b.bin"}}, flashplan.Options{Activate: true},
			job.FailureInvalidArgument, ".bin or .pldm"},
		{"in-band names twice", "compute_gb200_nvidia", []flashplan.Target{{Component: "CX7", File: "x/a.bin"}, {Component: "CX8", File: "y/a.bin"}},
			flashplan.Options{Activate: true}, job.FailureInvalidArgument, "names have to differ"},
		{"key of another type", "compute_vrnvl72_nvidia", two("CPU_0", "BMC"), flashplan.Options{}, job.FailureInvalidArgument, "takes the components BMC and HMC"},
		{"key lenovo lacks", "compute_gb300_lenovo", two("GPU_0", "BMC"), flashplan.Options{}, job.FailureInvalidArgument, "not GPU_0"},
		{"supermicro component", smc, two("CPLD_0", "BMC"), flashplan.Options{}, job.FailureInvalidArgument, "takes the targets HMC"},
		{"supermicro empty", smc, []flashplan.Target{{File: "nosbios.fwpkg"}}, flashplan.Options{}, job.FailureInvalidArgument, "<empty>"},
		{"supermicro file", smc, []flashplan.Target{{Component: "HMC", File: "sbios.fwpkg"}}, flashplan.Options{}, job.FailureInvalidArgument, "does not fit the hmc target"},
		{"supermicro inactive", smc, []flashplan.Target{{Component: "HMC", File: "nosbios.fwpkg"}, {Component: "BIOS", File: "bios.bin"}},
			flashplan.Options{}, job.FailurePreconditionFailed, "need activate"},
		{"other vendor", "powershelf_gb200_liteon", []flashplan.Target{{Key: "DeltaPMC", File: "a"}}, flashplan.Options{}, job.FailureInvalidArgument, "takes LiteOn packages"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := flashplan.Plan(tt.typ, tt.targets, tt.options)
			var refused *flashplan.Error
			require.ErrorAs(t, err, &refused)
			require.Equal(t, tt.code, refused.Code)
			require.ErrorContains(t, err, tt.text)
		})
	}
}

func TestLabels(t *testing.T) {
	require.Equal(t, "package-derived", flashplan.Target{}.Label())
	require.Equal(t, "BMC", flashplan.Target{Component: "BMC"}.Label())
	require.Equal(t, "b.bin", flashplan.Target{File: "a/b.bin"}.BaseName())
}
