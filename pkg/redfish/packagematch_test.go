// SPDX-License-Identifier: Apache-2.0

package redfish_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/redfish"
)

// inventory makes entries that all read "old".
func inventory(names ...string) []redfish.FirmwareItem {
	var items []redfish.FirmwareItem
	for _, n := range names {
		items = append(items, redfish.FirmwareItem{Name: n, URI: inventoryURI + "/" + n, Version: "old"})
	}
	return items
}

// pack makes a package of keys and versions in turn.
func pack(version string, keysAndVersions ...string) redfish.PackageVersions {
	p := redfish.PackageVersions{Version: version}
	for i := 0; i+1 < len(keysAndVersions); i += 2 {
		p.Components = append(p.Components, redfish.ParsePackageComponent(keysAndVersions[i], keysAndVersions[i+1]))
	}
	return p
}

const (
	hgxVersion = "GB200-P4975_0007_x"
	bmcVersion = "GB200-P4972_0007_x"
)

// expectations shows what is expected of which entry; ? stands for undecided.
func expectations(m redfish.PackageMatch) map[string]string {
	out := map[string]string{}
	for _, e := range m.Expected {
		out[e.Name] = e.Version
		if e.Unverified != "" {
			out[e.Name] = "?"
		}
	}
	return out
}

func TestPackageComponentKey(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]redfish.PackageComponent{
		"GPU":              {Name: "GPU"},
		"SMA:IO_Board":     {Name: "SMA", Type: "IO_Board"},
		"GPU,0xA1":         {Name: "GPU", SKU: "0xA1"},
		"SMA:IO_Board,0x7": {Name: "SMA", Type: "IO_Board", SKU: "0x7"},
		" GPU : x , 1 ":    {Name: "GPU", Type: "x", SKU: "1"},
		"":                 {},
	} {
		want.Version = "1.2"
		got := redfish.ParsePackageComponent(key, " 1.2 ")
		require.Equal(t, want, got)
		require.Equal(t, got, redfish.ParsePackageComponent(got.String(), "1.2"))
	}
}

func TestPackagesForTheBaseboard(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"HGX_x", "GB200-P4975_1", "GB300-P4059_1", "VR-P4109_1", "GB200-NVL4", "my-hmc"} {
		require.True(t, pack(version).ForBaseboard(), version)
	}
	for _, version := range []string{"GB200-P4972_1", "GB300-P4058_1", "VR-P4110_1", ""} {
		require.False(t, pack(version).ForBaseboard(), version)
	}
	require.True(t, pack("x", "HGX_FW_GPU_0", "1").ForBaseboard())
	require.True(t, pack("x", "HMC", "1").ForBaseboard())
}

func TestMatchPackages(t *testing.T) {
	t.Parallel()
	tray := []string{"FW_BMC_0", "FW_ERoT_BMC_0", "HGX_FW_BMC_0", "HGX_FW_CPU_0", "HGX_FW_CPU_1", "HGX_FW_ERoT_BMC_0",
		"HGX_FW_ERoT_CPU_0", "HGX_FW_ERoT_FPGA_0", "HGX_FW_FPGA_0", "HGX_FW_GPU_0", "HGX_FW_GPU_1", "HGX_FW_CPLD_0",
		"HGX_InfoROM_GPU_0", "HGX_PCIeSwitchConfig_0", "FW_CPLD_0", "NIC_0", "UEFI"}
	for _, c := range []struct {
		name      string
		inventory []string
		packages  []redfish.PackageVersions
		want      map[string]string
		unmatched int
	}{
		{
			"baseboard package", tray,
			[]redfish.PackageVersions{pack(hgxVersion, "HMC", "h", "GPU", "g", "SBIOS", "s", "EROT", "e", "SMR", "f", "InfoROM", "i", "CPLD", "c", "PCIeSwitch", "p")},
			map[string]string{
				"HGX_FW_BMC_0": "h", "HGX_FW_CPU_0": "s", "HGX_FW_CPU_1": "s", "HGX_FW_ERoT_BMC_0": "e", "HGX_FW_ERoT_CPU_0": "e",
				"HGX_FW_ERoT_FPGA_0": "e", "HGX_FW_FPGA_0": "f", "HGX_FW_GPU_0": "g", "HGX_FW_GPU_1": "g", "HGX_FW_CPLD_0": "c",
				"HGX_InfoROM_GPU_0": "i", "HGX_PCIeSwitchConfig_0": "p",
			}, 0,
		},
		{
			"tray package leaves the baseboard alone", tray,
			[]redfish.PackageVersions{pack(bmcVersion, "BMC", "b", "EROT", "e", "CPLD", "c")},
			map[string]string{"FW_BMC_0": "b", "FW_ERoT_BMC_0": "e", "FW_CPLD_0": "c"}, 0,
		},
		{
			"both of a nested package", tray,
			[]redfish.PackageVersions{pack(hgxVersion, "HMC", "h"), pack(bmcVersion, "BMC", "b")},
			map[string]string{"HGX_FW_BMC_0": "h", "FW_BMC_0": "b"}, 0,
		},
		{
			"baseboard BMC is the HMC", tray, []redfish.PackageVersions{pack(hgxVersion, "BMC", "h")},
			map[string]string{"HGX_FW_BMC_0": "h"}, 0,
		},
		{
			"names of the inventory itself", tray,
			[]redfish.PackageVersions{pack(hgxVersion, "HGX_FW_GPU_0", "g0", "HGX_FW_GPU_1", "g1", "HGX_FW_ERoT_CPU_0", "e")},
			map[string]string{"HGX_FW_GPU_0": "g0", "HGX_FW_GPU_1": "g1", "HGX_FW_ERoT_CPU_0": "e"}, 0,
		},
		{
			"the longer name wins", tray, []redfish.PackageVersions{pack(hgxVersion, "EROT", "e", "EROT_CPU", "ec")},
			map[string]string{"HGX_FW_ERoT_BMC_0": "e", "HGX_FW_ERoT_CPU_0": "ec", "HGX_FW_ERoT_FPGA_0": "e"}, 0,
		},
		{
			"GPU firmware is no InfoROM", []string{"HGX_InfoROM_GPU_0"}, []redfish.PackageVersions{pack(hgxVersion, "GPU", "g")},
			map[string]string{}, 1,
		},
		{
			"FPGA before SMR", []string{"HGX_FW_FPGA_0"}, []redfish.PackageVersions{pack(hgxVersion, "SMR", "s", "FPGA", "f")},
			map[string]string{"HGX_FW_FPGA_0": "f"}, 1,
		},
		{
			"VR tray", []string{"FW_BMC_0", "FW_CX_0", "FW_CX_1", "FW_IO_Board_SMA_0", "FW_NVMe_E1S_0", "HGX_SBIOS_0"},
			[]redfish.PackageVersions{pack("VR-P4110_1", "BMC", "b", "CX9", "x", "SMA:IO_Board", "io", "SMA:PDB", "pdb", "NVMe_E1S", "n"), pack("VR-P4109_1", "CPU", "s")},
			map[string]string{"FW_BMC_0": "b", "FW_CX_0": "x", "FW_CX_1": "x", "FW_IO_Board_SMA_0": "io", "FW_NVMe_E1S_0": "n", "HGX_SBIOS_0": "s"}, 1,
		},
		{
			"SBIOS is not the CPU's where there is one", []string{"HGX_SBIOS_0", "HGX_FW_CPU_0"}, []redfish.PackageVersions{pack(hgxVersion, "SBIOS", "s")},
			map[string]string{"HGX_SBIOS_0": "s"}, 0,
		},
		{
			"SBIOS beside the CPU's", []string{"HGX_SBIOS_0", "HGX_FW_CPU_0"}, []redfish.PackageVersions{pack(hgxVersion, "SBIOS", "s", "CPU", "c")},
			map[string]string{"HGX_SBIOS_0": "s", "HGX_FW_CPU_0": "c"}, 0,
		},
		{
			"typed SBIOS", []string{"HGX_SBIOS_0", "HGX_SBIOS_1"}, []redfish.PackageVersions{pack(hgxVersion, "SBIOS", "s", "SBIOS:SBIOS_0", "own")},
			map[string]string{"HGX_SBIOS_0": "own", "HGX_SBIOS_1": "s"}, 0,
		},
		{
			"the configuration of a root of trust is not its firmware", []string{"FW_ERoT_AP_CFG_0", "FW_ERoT_BMC_0"}, []redfish.PackageVersions{pack(bmcVersion, "EROT", "e")},
			map[string]string{"FW_ERoT_BMC_0": "e"}, 0,
		},
		{
			"Delta shelf", []string{"FW_ERoT_BMC_0", "FW_PMC_primary", "FW_PSU_1", "FW_PSU_2"}, []redfish.PackageVersions{pack("1.1.2", "PMC", "1.1.2", "PSU", "01050105")},
			map[string]string{"FW_PMC_primary": "1.1.2", "FW_PSU_1": "01050105", "FW_PSU_2": "01050105"}, 0,
		},
		{
			"LiteOn shelf", []string{"mcu", "pmc_5c3f81d0"}, []redfish.PackageVersions{pack("", "PMC", "r1.3.9", "MCU", "2")},
			map[string]string{"pmc_5c3f81d0": "r1.3.9", "mcu": "2"}, 0,
		},
		{
			"an index tried at last", []string{"FW_LOGIC"}, []redfish.PackageVersions{pack(bmcVersion, "Tray_LOGIC_0", "l")},
			map[string]string{"FW_LOGIC": "l"}, 0,
		},
		{
			"a tree without HGX_ names", []string{"SMA_0", "SMA_1", "FW_BMC_0"}, []redfish.PackageVersions{pack(hgxVersion, "SMA", "s", "GPU", "g")},
			map[string]string{"SMA_0": "s", "SMA_1": "s"}, 1,
		},
		{
			"several versions and nothing that decides", []string{"HGX_FW_GPU_0"}, []redfish.PackageVersions{pack(hgxVersion, "GPU,1", "a", "GPU,2", "b")},
			map[string]string{"HGX_FW_GPU_0": "?"}, 0,
		},
		{
			"an entry of the baseboard that is away is not sought on the tray", []string{"FW_CPLD_0", "HGX_FW_BMC_0"}, []redfish.PackageVersions{pack(hgxVersion, "CPLD", "c")},
			map[string]string{}, 1,
		},
		{"nothing", tray, nil, map[string]string{}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := profile(t, gb200).MatchPackages(c.packages, inventory(c.inventory...), nil)
			require.Equal(t, c.want, expectations(m))
			require.Len(t, m.Unmatched, c.unmatched, "%v", m.Unmatched)
		})
	}
}

func TestMatchedPackageIsComplete(t *testing.T) {
	t.Parallel()
	items := inventory("FW_BMC_0", "FW_CPLD_0")
	for keys, want := range map[[2]string]bool{
		{"BMC", "1"}: true, {"BMC", "N/A"}: false, {"BMC", ""}: false, {"Toaster", "1"}: false,
	} {
		m := profile(t, gb200).MatchPackages([]redfish.PackageVersions{pack(bmcVersion, keys[:]...)}, items, nil)
		require.Equal(t, want, m.Complete(), keys)
	}
	both := pack(bmcVersion, "BMC", "1", "Toaster", "1")
	require.False(t, profile(t, gb200).MatchPackages([]redfish.PackageVersions{both}, items, nil).Complete())
	require.True(t, profile(t, gb200).MatchPackages([]redfish.PackageVersions{both}, items, []string{inventoryURI + "/FW_BMC_0"}).Complete(),
		"in a scope the rest of the package does not count")
}

func TestMatchWithinAScope(t *testing.T) {
	t.Parallel()
	p := []redfish.PackageVersions{pack(hgxVersion, "SBIOS", "s", "GPU", "g")}
	items := inventory("HGX_FW_CPU_0", "HGX_FW_GPU_0")
	m := profile(t, gb200).MatchPackages(p, items, []string{inventoryURI + "/HGX_FW_CPU_0", inventoryURI + "/HGX_FW_CPU_1", inventoryURI + "/HGX_Toaster"})
	report := redfish.CompareVersions(m.Expected, items)
	require.Equal(t, redfish.VersionMismatch, report.Status)
	require.Equal(t, 3, report.Mismatches)
	require.EqualError(t, report.Err(), "HGX_FW_CPU_0: expected s, found old; HGX_FW_CPU_1: expected s, found none; HGX_Toaster: expected any version, found none")
}

// The spare bank of Wiwynn's BMC never tells a version, that of Delta's controller
// keeps what it has.
func TestSilentEntriesAreNotCompared(t *testing.T) {
	t.Parallel()
	banks := []redfish.PackageVersions{pack("1.1.2", "PMC", "1.1.2")}
	require.Equal(t, map[string]string{"FW_PMC_primary": "1.1.2"},
		expectations(profile(t, delta).MatchPackages(banks, inventory("FW_PMC_primary", "FW_PMC_alt"), nil)))

	items := inventory("FW_BMC_0", "FW_BMC_1")
	items[0].Version, items[1].Version = "25.06-2_NV_WW_02", ""
	p := []redfish.PackageVersions{pack(bmcVersion, "BMC", "25.06-2_NV_WW_02")}
	m := profile(t, wiwynn).MatchPackages(p, items, nil)
	require.Equal(t, redfish.VersionMatched, redfish.CompareVersions(m.Expected, items).Status)
	m = profile(t, gb200).MatchPackages(p, items, nil)
	require.Equal(t, redfish.VersionMismatch, redfish.CompareVersions(m.Expected, items).Status, "elsewhere a lost version is a fault")
}

func TestRenamedEntriesAreFollowed_E24(t *testing.T) {
	t.Parallel()
	for before, after := range map[string]string{
		"HGX_FW_BMC_0": "FW_BMC_0", "FW_BMC_0": "HGX_FW_BMC_0", "HGX_FW_GPU_0": "HGX_GPU_0", "HGX_SBIOS_0": "SBIOS_0",
	} {
		p := pack(hgxVersion, "HMC", "new", "GPU", "new", "SBIOS", "new")
		if before == "FW_BMC_0" {
			p = pack(bmcVersion, "BMC", "new")
		}
		m := profile(t, gb200).MatchPackages([]redfish.PackageVersions{p}, inventory(before), nil)
		renamed := inventory(after)
		require.Equal(t, redfish.VersionMismatch, redfish.CompareVersions(m.Expected, renamed).Status, before)
		renamed[0].Version = "new"
		require.Equal(t, redfish.VersionMatched, redfish.CompareVersions(m.Expected, renamed).Status, before)
	}
	// While both are there, one is not taken for the other when it is away.
	m := profile(t, gb200).MatchPackages([]redfish.PackageVersions{pack(hgxVersion, "HMC", "new")}, inventory("HGX_FW_BMC_0", "FW_BMC_0"), nil)
	other := inventory("FW_BMC_0")
	other[0].Version = "new"
	require.Equal(t, redfish.VersionMismatch, redfish.CompareVersions(m.Expected, other).Status)
}

func TestSKUDecidesBetweenLikeDevices(t *testing.T) {
	t.Parallel()
	const gpu3 = "/redfish/v1/Systems/HGX_Baseboard_0/Processors/GPU_3"
	const gpu0, gpu1, gpu2 = chassisURI + "/HGX_GPU_0", "/redfish/v1/Systems/HGX_Baseboard_0/Processors/GPU_1", chassisURI + "/HGX_GPU_2"
	b := newBMC(t)
	b.on(gpu0, ok(`{"SKU":"0x00A1"}`))
	b.on(gpu1, ok(`{"Model":"x","Links":{"Chassis":{"@odata.id":"`+chassisURI+`/HGX_GPU_1"}}}`))
	b.on(chassisURI+"/HGX_GPU_1", ok(`{"SKU":"b2"}`))
	b.on(gpu2, ok(`{"SKU":"c3"}`))
	b.on(gpu3, ok(`{"Model":"GB200 186GB"}`))
	b.on(chassisURI+"/CPLD_0", ok(`{"Model":"P4972","SKU":null}`))
	b.on(chassisURI+"/IO_Board_SMA_0", ok(`{"SKU":"0x11"}`))
	b.on("/drive", ok(`{"Model":"E1S-15T"}`))
	items := inventory("HGX_FW_GPU_0", "HGX_FW_GPU_1", "HGX_FW_GPU_2", "HGX_FW_GPU_3", "FW_CPLD_0", "FW_IO_Board_SMA_0", "FW_NVMe_E1S_0", "HGX_FW_CPU_0", "FW_BMC_0")
	for i, related := range []string{gpu0, gpu1, gpu2, gpu3} {
		items[i].RelatedItems = []string{related}
	}
	items[6].RelatedItems = []string{"/drive"}
	packages := []redfish.PackageVersions{
		pack(hgxVersion, "GPU,0xA1", "ga", "GPU,0xB2", "gb", "SBIOS", "s"),
		pack(bmcVersion, "BMC", "b", "CPLD,P4971", "c1", "CPLD,P4972", "c2", "SMA,0x0011", "s1", "SMA,0x0012", "s2", "NVMe_E1S,E1S-7T", "n7", "NVMe_E1S,E1S-15T", "n15"),
	}
	c := b.client(gb200)
	m, err := c.MatchPackages(t.Context(), packages, items, nil)
	require.NoError(t, err)
	require.Equal(t, map[string]string{
		"HGX_FW_GPU_0": "ga", "HGX_FW_GPU_1": "gb", "HGX_FW_GPU_2": "?", "HGX_FW_GPU_3": "?",
		"FW_CPLD_0": "c2", "FW_IO_Board_SMA_0": "s1", "FW_NVMe_E1S_0": "n15", "HGX_FW_CPU_0": "s", "FW_BMC_0": "b",
	}, expectations(m))
	require.False(t, m.Complete())
	reasons := map[string]string{}
	for _, c := range redfish.CompareVersions(m.Expected, items).Components {
		reasons[c.Name] = c.Reason
	}
	require.Contains(t, reasons["HGX_FW_GPU_2"], "no image for its SKU c3")
	require.Contains(t, reasons["HGX_FW_GPU_3"], "SKU does not tell")
	require.Empty(t, items[0].SKU, "the caller's inventory is left alone")

	// Without SKUs in the package none is read.
	before := len(b.requests("GET", "/"))
	_, err = c.MatchPackages(t.Context(), []redfish.PackageVersions{pack(hgxVersion, "GPU", "g")}, items, nil)
	require.NoError(t, err)
	require.Len(t, b.requests("GET", "/"), before)

	b.on(gpu0, reply(401, ""))
	_, err = c.MatchPackages(t.Context(), packages, items, nil)
	require.True(t, asError(t, err).CredentialFault())
}

func TestSKUOfTheInventoryItselfDecides(t *testing.T) {
	t.Parallel()
	for sku, want := range map[string]string{"0x00a1": "ga", "B2": "gb"} {
		for _, set := range []func(*redfish.FirmwareItem){
			func(i *redfish.FirmwareItem) { i.SKU = sku },
			func(i *redfish.FirmwareItem) { i.SoftwareID = sku },
		} {
			items := inventory("HGX_FW_GPU_0")
			set(&items[0])
			m := profile(t, gb200).MatchPackages([]redfish.PackageVersions{pack(hgxVersion, "GPU,0xA1", "ga", "GPU,0xB2", "gb")}, items, nil)
			require.Equal(t, want, expectations(m)["HGX_FW_GPU_0"], fmt.Sprint(sku))
		}
	}
}
