// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/node"
)

func sorted(list []string) []string {
	out := slices.Clone(list)
	slices.Sort(out)
	return out
}

// gb200Release has everything that GB200 trays take.
func gb200Release() js {
	return release("GB200", board("Compute Node",
		firmware("BMC", "b1", "Prod", file("https://x/bmc.fwpkg"), file("https://x/bmc2.fwpkg")),
		firmware("BF3_NIC", "n1", "Prod", file("https://x/bf3.bin")),
		firmware("CX7", "c1", "Prod", file("https://x/cx7-a.bin"), file("https://x/cx7-b.bin")),
		firmware("HMC", "h1", "Prod", file("https://x/hmc.fwpkg"), file("https://x/hmc2.fwpkg")),
		firmware("HMC", "h0", "Dev", file("https://x/hmc-dev.fwpkg"))))
}

func TestTargetsOfNodeTypes(t *testing.T) {
	chassis := targetHGX
	gb200 := lookup(t, parse(t, gb200Release()))
	super := lookup(t, parse(t, release("GB300", board("Compute Node",
		firmware("BMC", "s1", "Prod", file("https://x/obmc_1.bin"), file("https://x/other.bin")),
		firmware("HMC", "s2", "Prod", file("https://x/NoSBIOS_1.fwpkg"), file("https://x/BIOS_1.bin"))))))
	shelves := lookup(t, parse(t, release("S", board("Power Shelf",
		firmware("LiteOn PSU", "1", "Prod", file("https://x/psu.tar")), firmware("LiteOn PMC", "2", "Prod", file("https://x/pmc.tar")),
		firmware("Delta-PSU", "3", "Prod", file("https://x/dpsu.tar")), firmware("Delta-PMC", "4", "Prod", file("https://x/dpmc.fwpkg"))))))
	switches := lookup(t, parse(t, release("SW", board("Switch Tray",
		firmware("SBIOS+EROT", "1", "Prod", file("https://x/bios.fwpkg")), firmware("CPLD", "1", "Prod", file("https://x/cpld.vme")),
		firmware("BMC+FPGA+EROT", "1", "Prod", file("https://x/bmc.fwpkg"))))))
	vr := lookup(t, parse(t, release("VR", board("Switch Tray", firmware(sourceSwitchVR, "1", "Prod", file("https://x/all.fwpkg"))))))
	all := func(id string) Selection { return Selection{Filters: map[node.Type][]string{typeOf(t, id): nil}} }
	named := func(id string, names ...string) Selection {
		return Selection{Filters: map[node.Type][]string{typeOf(t, id): names}}
	}
	for name, c := range map[string]struct {
		l    *Lookup
		id   string
		s    Selection
		want []string
	}{
		"defaults":      {gb200, nvidia200, Selection{}, []string{"HMC " + chassis + " prod/hmc.fwpkg", "BMC  prod/bmc.fwpkg"}},
		"other channel": {gb200, nvidia200, Selection{Names: []string{"hmc"}}, []string{"HMC " + chassis + " prod/hmc.fwpkg"}},
		"wiwynn":        {gb200, wiwynn, Selection{}, []string{"HMC " + chassis + " prod/hmc.fwpkg", "BMC  prod/bmc.fwpkg", "BMC  prod/bmc2.fwpkg"}},
		"lenovo":        {gb200, lenovo, Selection{}, []string{"HMC " + chassis + " prod/hmc.fwpkg", "HMC " + chassis + " prod/hmc2.fwpkg", "BMC  prod/bmc.fwpkg"}},
		"vr":            {gb200, vr72, Selection{}, []string{"HMC " + chassis + " prod/hmc.fwpkg", "BMC  prod/bmc.fwpkg"}},
		"one part":      {gb200, nvidia300, named(nvidia300, "cpu_0"), []string{"CPU_0 " + inventoryPath + "HGX_FW_CPU_0 prod/hmc.fwpkg"}},
		"by target":     {gb200, nvidia300, named(nvidia300, inventoryPath+"HGX_FW_GPU_1"), []string{"GPU_1 " + inventoryPath + "HGX_FW_GPU_1 prod/hmc.fwpkg"}},
		"network": {gb200, wiwynn, named(wiwynn, "CX7", "BF3_NIC"),
			[]string{"CX7 CX7 prod/cx7-a.bin", "CX7 CX7 prod/cx7-b.bin", "BF3_NIC BF3_NIC prod/bf3.bin"}},
		"supermicro":     {super, supermicro, Selection{}, []string{"HMC " + chassis + " prod/NoSBIOS_1.fwpkg", "BIOS supermicro_bios prod/BIOS_1.bin", "BMC  prod/obmc_1.bin"}},
		"liteon":         {shelves, liteon300, Selection{}, []string{"LiteOnPMC  prod/pmc.tar", "LiteOnPSU  prod/psu.tar"}},
		"delta":          {shelves, delta200, Selection{}, []string{"DeltaPMC  prod/dpmc.fwpkg", "DeltaPSU  prod/dpsu.tar"}},
		"delta source":   {shelves, delta200, Selection{Names: []string{"delta-psu"}}, []string{"DeltaPSU  prod/dpsu.tar"}},
		"switch":         {switches, switch300, Selection{}, []string{"BMC bmc prod/bmc.fwpkg", "FPGA fpga prod/bmc.fwpkg", "EROT erot prod/bmc.fwpkg", "CPLD cpld prod/cpld.vme", "BIOS bios prod/bios.fwpkg"}},
		"switch source":  {switches, switch200, named(switch200, "BMC+FPGA+EROT"), []string{"BMC bmc prod/bmc.fwpkg", "FPGA fpga prod/bmc.fwpkg", "EROT erot prod/bmc.fwpkg"}},
		"vr switch":      {vr, switchVR, all(switchVR), []string{sourceSwitchVR + "  prod/all.fwpkg"}},
		"vr switch part": {vr, switchVR, named(switchVR, "SMA"), []string{"SMA sma prod/all.fwpkg"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := c.l.Targets(typeOf(t, c.id), "PROD", c.s)
			require.NoError(t, err)
			require.Equal(t, c.want, told(got))
		})
	}

	// Everything of a tray, in the order of the table: the BMC last.
	got, err := gb200.Targets(typeOf(t, nvidia200), "prod", all(nvidia200))
	require.NoError(t, err)
	require.Len(t, got, 1+20+2+1+1)
	require.Equal(t, "HMC", got[0].Key)
	require.Equal(t, "CPU_0", got[1].Key)
	require.Equal(t, []string{"CX7", "CX7", "BF3_NIC", "BMC"}, []string{got[21].Key, got[22].Key, got[23].Key, got[24].Key})

	dev, err := gb200.Targets(typeOf(t, nvidia200), "dev", Selection{})
	require.NoError(t, err)
	require.Equal(t, []string{"HMC " + chassis + " dev/hmc-dev.fwpkg"}, told(dev))
	require.Equal(t, "h0", dev[0].Version)
}

func TestSupermicroExpectsAVersion(t *testing.T) {
	tray := func(components ...any) *Lookup {
		return lookup(t, parse(t, release("G", board("Compute Node", components...))))
	}
	typ := typeOf(t, supermicro)
	got, err := tray(firmware("BMC", " 1.2 ", "Prod", file("https://x/obmc.bin"))).Targets(typ, "prod", Selection{})
	require.NoError(t, err)
	require.Equal(t, "1.2", got[0].ExpectedVersion)
	_, err = tray(firmware("BMC", "", "Prod", file("https://x/obmc.bin"))).Targets(typ, "prod", Selection{})
	require.ErrorContains(t, err, "Supermicro GB300 BMC target obmc.bin is missing its firmware manifest version")
	_, err = tray(firmware("BMC", "1", "Prod", file("https://x/obmc.bin"), file("https://x/obmc.bin"))).Targets(typ, "prod", Selection{})
	require.ErrorContains(t, err, "matches multiple firmware manifest lookup entries")
}

// A board's two components for the BIOS keep both their entries.
func TestTwoSourcesOfOneTarget(t *testing.T) {
	for _, order := range [][]any{
		{firmware("BIOS", "b", "Prod", file("https://x/bios.bin")), firmware("HMC", "h", "Prod", file("https://x/nosbios.fwpkg"))},
		{firmware("HMC", "h", "Prod", file("https://x/nosbios.fwpkg")), firmware("BIOS", "b", "Prod", file("https://x/bios.bin"))},
	} {
		l := lookup(t, parse(t, release("G", board("Compute Node", order...))))
		got, err := l.Targets(typeOf(t, supermicro), "prod", Selection{})
		require.NoError(t, err)
		require.Equal(t, []string{"HMC " + targetHGX + " prod/nosbios.fwpkg", "BIOS supermicro_bios prod/bios.bin"}, told(got))
	}
	// Two entries of one name and number: the last one counts.
	l := lookup(t, parse(t, release("G", board("Compute Node",
		firmware("BMC", "1", "Prod", file("https://x/a.bin")), firmware("BMC", "2", "Prod", file("https://x/b.bin"))))))
	require.Equal(t, "2", *l.Devices[RoleCompute]["BMC_prod_0001"].Version)
}

func TestShelvesListedWithTrays(t *testing.T) {
	l := lookup(t, parse(t, release("G", board("compute tray ", firmware("Delta-PMC", "1", "Prod", file("https://x/p.fwpkg"))))))
	got, err := l.Targets(typeOf(t, delta200), "prod", Selection{})
	require.NoError(t, err)
	require.Equal(t, []string{"DeltaPMC  prod/p.fwpkg"}, told(got))
}

func TestLegacyRole(t *testing.T) {
	l, err := DecodeLookup([]byte(`{"devices":{"VRNVL72 Compute Node":{"BMC_prod_0001":{"filename":"prod/b.fwpkg","target":"","component":"BMC","firmware_type":"prod","version":"1"}}}}`))
	require.NoError(t, err)
	got, err := l.Targets(typeOf(t, vr72), "prod", Selection{})
	require.NoError(t, err)
	require.Equal(t, []string{"BMC  prod/b.fwpkg"}, told(got))
	_, err = l.Targets(typeOf(t, nvidia200), "prod", Selection{})
	require.Error(t, err)
	offers := l.Offers()
	require.Len(t, offers, 1)
	require.Equal(t, RoleCompute, offers[0].Role)
}

func TestResolve(t *testing.T) {
	l := lookup(t, parse(t, gb200Release()))
	tray, shelf := typeOf(t, nvidia200), typeOf(t, delta200)
	got, err := l.Resolve([]node.Type{tray, shelf}, "prod", Selection{Filters: map[node.Type][]string{tray: {"HMC"}}})
	require.NoError(t, err)
	require.Len(t, got, 1, "a type without a filter takes no part")
	_, err = l.Resolve([]node.Type{tray, shelf}, "prod", Selection{})
	require.ErrorIs(t, err, &Error{Kind: KindTargets})
	require.ErrorContains(t, err, "no matching firmware found in config for Power Shelf (powershelf_gb200_delta)")
	_, err = l.Resolve([]node.Type{shelf}, "prod", Selection{Filters: map[node.Type][]string{tray: nil}})
	require.ErrorIs(t, err, &Error{Kind: KindNoTargets})
	require.ErrorContains(t, err, "powershelf_gb200_delta")
	_, err = l.Resolve([]node.Type{tray}, "", Selection{})
	require.ErrorIs(t, err, &Error{Kind: KindTargets})
	_, err = l.Resolve([]node.Type{tray}, "prod", Selection{Filters: map[node.Type][]string{tray: {" "}}})
	require.ErrorIs(t, err, &Error{Kind: KindTargets}, "a blank name selects nothing")
	for _, s := range []Selection{{Names: []string{"bf3_bfb"}}, {Filters: map[node.Type][]string{tray: {"BF3_BFB"}}}} {
		_, err = l.Resolve([]node.Type{tray}, "prod", s)
		require.ErrorIs(t, err, &Error{Kind: KindSelection})
		require.ErrorContains(t, err, "select BF3_NIC")
	}
	require.NoError(t, Selection{Names: []string{"BF3_BFB"}}.Check([]node.Type{shelf}))
}

func TestSelect(t *testing.T) {
	in := gb200Release()
	boards := in["Milestones"].(arr)[0].(js)["BoardSKUs"].(arr)
	in["Milestones"].(arr)[0].(js)["BoardSKUs"] = append(boards,
		board("Switch Tray", firmware("CPLD", "1", "", file("https://x/cpld.vme"))), // broken, but of no concern
		board("Power Shelf", firmware("Delta-PMC", "1", "Prod", with(file("https://x/p.bin"), "Sha256", "no"))))
	m := parse(t, in)
	require.Error(t, m.Check())
	tray, second := typeOf(t, nvidia200), typeOf(t, wiwynn)
	some, err := m.Select([]node.Type{tray}, "Prod", Selection{})
	require.NoError(t, err)
	paths := func(m *Manifest) []string {
		all, err := m.Artifacts()
		require.NoError(t, err)
		var out []string
		for _, a := range all {
			out = append(out, a.Path)
		}
		return out
	}
	require.Equal(t, []string{"prod/bmc.fwpkg", "prod/hmc.fwpkg"}, paths(some))
	some, err = m.Select([]node.Type{tray, second}, "prod", Selection{})
	require.NoError(t, err)
	require.Equal(t, []string{"prod/bmc.fwpkg", "prod/bmc2.fwpkg", "prod/hmc.fwpkg"}, paths(some))
	targets, err := lookup(t, some).Targets(tray, "prod", Selection{})
	require.NoError(t, err)
	needed, err := some.ArtifactsFor(targets)
	require.NoError(t, err)
	require.Len(t, needed, 2)

	_, err = m.Select([]node.Type{typeOf(t, delta200)}, "prod", Selection{})
	require.ErrorIs(t, err, &Error{Kind: KindDigest}, "digests are checked before anything is fetched")
	_, err = m.Select([]node.Type{typeOf(t, switch200)}, "prod", Selection{})
	require.ErrorIs(t, err, &Error{Kind: KindFirmware})
	none, err := m.Select([]node.Type{tray}, "prod", Selection{Filters: map[node.Type][]string{second: nil}})
	require.NoError(t, err)
	require.Empty(t, none.Boards)

	// A file that cannot be kept is skipped as long as there is another.
	odd := parse(t, release("G", board("Compute Node", firmware("BMC", "1", "Prod", file("https://x/a%20b.fwpkg"), file("https://x/b.fwpkg")))))
	some, err = odd.Select([]node.Type{tray}, "prod", Selection{})
	require.NoError(t, err)
	require.Equal(t, []string{"prod/b.fwpkg"}, paths(some))
}

func TestOffers(t *testing.T) {
	l := lookup(t, parse(t, acme()))
	offers := l.Offers()
	var types []string
	for _, o := range offers {
		types = append(types, o.Type.ID)
	}
	require.Equal(t, []string{nvidia200, wiwynn, nvidia300, lenovo, vr72, switch200, switch300}, types)
	require.True(t, slices.IsSortedFunc(offers[0].Components, func(a, b OfferedComponent) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	}))
	hmc := offers[3].Components[0]
	require.Equal(t, OfferedComponent{
		Name: "HMC", Version: "4.2", Bundle: "acme-hmc", Source: "HMC", Subcomponents: []Subcomponent{{Component: "EROT", Version: "1.9"}},
		Artifacts: []OfferedArtifact{{FirmwareType: "prod", Filename: "prod/hmc_4.2.fwpkg", Target: targetHGX, Bundle: "acme-hmc"}},
	}, hmc)

	vr := lookup(t, parse(t, release("VR", board("Switch Tray",
		firmware(sourceSwitchVR, "1", "Prod", file("https://x/all.fwpkg")), firmware(sourceSwitchVR, "2", "Dev", file("https://x/dev.fwpkg"))))))
	offers = vr.Offers()
	require.Len(t, offers, 1)
	require.Equal(t, []string{sourceSwitchVR, sourceSwitchVR}, []string{offers[0].Components[0].Name, offers[0].Components[1].Name},
		"the whole package, under a name that selects it")
}
