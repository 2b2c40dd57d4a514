// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/node"
)

func sub(name, version, sku string) js {
	s := js{"Component": name, "Version": version}
	if sku != "" {
		s["SKUID"] = sku
	}
	return s
}

func short(lines []Comparison) []string {
	var out []string
	for _, l := range lines {
		out = append(out, fmt.Sprintf("%s %s %q %q %d", l.Component, l.Installed, l.InstalledVersion, l.ProposedVersion, l.Status))
	}
	return out
}

func TestCompare(t *testing.T) {
	hmc := with(firmware("HMC", "h2", "Prod"), "SubComponents", arr{
		sub("EROT", "e2", ""), sub("GPU", "g2", "0x10"), sub("GPU", "g3", "0x11"), sub("CPU", "c2", "")})
	trays := parse(t, release("G", board("Compute Node", hmc, firmware("BMC", "b2", "Prod"), firmware("CX7", "28", "Prod"))))
	installed := []Installed{
		{"FW_BMC_0", " B2 ", ""}, {"FW_ERoT_BMC_0", "e9", ""}, {"HGX_FW_BMC_0", "h2", ""}, {"HGX_FW_ERoT_BMC_0", "e2", ""},
		{"HGX_FW_ERoT_CPU_0", "e1", ""}, {"HGX_FW_GPU_0", "g3", "0X11"}, {"HGX_FW_GPU_1", "g1", "0x10"}, {"HGX_FW_CPU_0", "", ""},
	}
	only := func(id string, names ...string) Selection {
		return Selection{Filters: map[node.Type][]string{typeOf(t, id): names}}
	}
	for name, c := range map[string]struct {
		m         *Manifest
		id        string
		s         Selection
		installed []Installed
		want      []string
		matches   bool
	}{
		"package and its parts": {trays, nvidia200, Selection{}, installed, []string{
			`HMC HGX_FW_BMC_0 "h2" "h2" 1`, `EROT HGX_FW_ERoT_BMC_0 "e2" "e2" 1`, `EROT HGX_FW_ERoT_CPU_0 "e1" "e2" 2`,
			`GPU HGX_FW_GPU_0 "g3" "g3" 1`, `GPU HGX_FW_GPU_1 "g1" "g2" 2`, `CPU HGX_FW_CPU_0 "" "c2" 4`, `BMC FW_BMC_0 " B2 " "b2" 1`}, false},
		"one part":        {trays, nvidia200, only(nvidia200, "GPU_0"), installed, []string{`GPU HGX_FW_GPU_0 "g3" "g3" 1`}, true},
		"part unknown":    {trays, nvidia200, only(nvidia200, "FPGA_0"), []Installed{{"HGX_FW_FPGA_0", "1", ""}}, []string{`HMC HGX_FW_FPGA_0 "1" "" 4`}, false},
		"part missing":    {trays, nvidia200, only(nvidia200, "FPGA_0"), installed, []string{`HMC  "" "" 3`}, false},
		"part without id": {trays, nvidia200, only(nvidia200, "GPU_0"), []Installed{{"HGX_FW_GPU_0", "g3", ""}}, []string{`GPU HGX_FW_GPU_0 "g3" "" 4`}, false},
		"bmc only":        {trays, nvidia200, only(nvidia200, "BMC"), installed, []string{`BMC FW_BMC_0 " B2 " "b2" 1`}, true},
		"bmc missing":     {trays, nvidia200, only(nvidia200, "BMC"), nil, []string{`BMC  "" "b2" 3`}, false},
		"in-band":         {trays, nvidia200, only(nvidia200, "CX7"), installed, []string{`CX7  "" "28" 4`}, false},
		"in-band listed":  {trays, nvidia200, only(nvidia200, "CX7"), []Installed{{"FW_CX7_0", "28", ""}}, []string{`CX7 FW_CX7_0 "28" "28" 1`}, true},
		"lenovo":          {trays, lenovo, only(lenovo, "BMC"), []Installed{{"BMC", "b2", ""}}, []string{`BMC BMC "b2" "b2" 1`}, true},
		"no version": {parse(t, release("G", board("Compute Node", firmware("BMC", "", "Prod")))), nvidia300, Selection{},
			[]Installed{{"FW_BMC_0", "1", ""}}, []string{`BMC FW_BMC_0 "1" "" 4`}, false},
		"sub of the whole": {parse(t, release("G", board("Compute Node", with(firmware("HMC", "bundle-7", "Prod"), "SubComponents", arr{sub("HMC", "h7", "")})))),
			nvidia300, Selection{}, []Installed{{"HGX_FW_BMC_0", "h7", ""}}, []string{`HMC HGX_FW_BMC_0 "h7" "h7" 1`}, true},
		"supermicro": {parse(t, release("G", board("Compute Node",
			firmware("HMC", "h", "Prod", file("https://x/nosbios.fwpkg")), firmware("BIOS", "3.1", "Prod", file("https://x/bios.bin"))))), supermicro, Selection{},
			[]Installed{{"HGX_FW_BMC_0", "h", ""}, {"HGX_FW_CPU_0", "3.1", ""}, {"HGX_FW_CPU_1", "3.0", ""}},
			[]string{`HMC HGX_FW_BMC_0 "h" "h" 1`, `BIOS HGX_FW_CPU_0 "3.1" "3.1" 1`, `BIOS HGX_FW_CPU_1 "3.0" "3.1" 2`}, false},
		"liteon": {parse(t, release("S", board("Power Shelf", firmware("LiteOn PSU", "0xf1 / 0xf1", "Prod"), firmware("LiteOn PMC", "r1", "Prod")))), liteon200, Selection{},
			[]Installed{{"mcu", "0", ""}, {"pmc_ab12", "r1", ""}, {"powerdevice0", "0xf1 / 0xf1", ""}, {"powerdevice1", "0xf0 / 0xf0", ""}},
			[]string{`LiteOn PMC pmc_ab12 "r1" "r1" 1`, `LiteOn PSU powerdevice0 "0xf1 / 0xf1" "0xf1 / 0xf1" 1`, `LiteOn PSU powerdevice1 "0xf0 / 0xf0" "0xf1 / 0xf1" 2`}, false},
		"switch, parts without versions": {parse(t, release("X", board("Switch Tray", firmware("BMC+FPGA+EROT", "88.1", "Prod"), firmware("SBIOS+EROT", "0.7", "Prod")))),
			"switch_gb200_nvidia", Selection{},
			[]Installed{{"BMC", "88.1", ""}, {"FPGA", "3", ""}, {"EROT", "2", ""}, {"BIOS", "0.7", ""}},
			[]string{`BMC+FPGA+EROT BMC "88.1" "88.1" 1`, `BMC+FPGA+EROT FPGA "3" "" 4`, `BMC+FPGA+EROT EROT "2" "" 4`, `SBIOS+EROT BIOS "0.7" "0.7" 1`}, false},
		"delta": {parse(t, release("S", board("Power Shelf", firmware("Delta-PMC", "p2", "Prod")))), delta300, Selection{},
			[]Installed{{"FW_PMC_primary", "p2", ""}, {"FW_PMC_alt", "p1", ""}}, []string{`Delta-PMC FW_PMC_primary "p2" "p2" 1`}, true},
	} {
		t.Run(name, func(t *testing.T) {
			proposals, err := c.m.Proposals(typeOf(t, c.id), "prod", c.s)
			require.NoError(t, err)
			lines, matches := Compare(proposals, c.installed)
			require.Equal(t, c.want, short(lines))
			require.Equal(t, c.matches, matches)
			for _, l := range lines {
				require.Equal(t, l.Status == Matched, l.Reason == "", "every line that does not match says why")
			}
		})
	}
	_, err := trays.Proposals(typeOf(t, delta200), "prod", Selection{})
	require.ErrorIs(t, err, &Error{Kind: KindTargets})
	_, err = trays.Proposals(typeOf(t, nvidia200), "dev", Selection{})
	require.ErrorIs(t, err, &Error{Kind: KindTargets})
	_, err = trays.Proposals(typeOf(t, nvidia200), "prod", only(nvidia200, "BF3_BFB"))
	require.ErrorIs(t, err, &Error{Kind: KindSelection})
	lines, matches := Compare(nil, installed)
	require.Empty(t, lines)
	require.False(t, matches, "nothing compared is nothing matched")
}
