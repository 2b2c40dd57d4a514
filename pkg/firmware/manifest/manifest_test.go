// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/node"
)

func TestInventedProduct(t *testing.T) {
	m := parse(t, acme())
	require.Equal(t, "ACME72_1.0", m.ID())
	require.NoError(t, m.Check())
	l := lookup(t, m)
	devices := l.Devices[RoleCompute]
	require.Len(t, devices, 1+20+1+1, "the package, its parts, the boot firmware of one type, a network device")
	hmc := devices["HMC_prod_0001"]
	require.Equal(t, "prod/hmc_4.2.fwpkg", hmc.Filename)
	require.Equal(t, "acme-hmc", hmc.Bundle)
	require.Equal(t, "4.2", *hmc.Version)
	require.Equal(t, []Subcomponent{{Component: "EROT", Version: "1.9"}}, hmc.Subcomponents)
	require.Equal(t, inventoryPath+"HGX_FW_GPU_3", devices["GPU_3_prod_0001"].Target)
	require.Equal(t, "CX7", devices["CX7_prod_0001"].Target)
	require.Equal(t, "bios", l.Devices[RoleSwitch]["BIOS_prod_0001"].Target)
	require.Equal(t, Image{
		Component: "NVOS", PackageName: "acme-os", Version: "25.9.1", ImageFilename: "nvos-amd64-25.9.1.bin",
		LocationType: "https", FirmwareType: "prod", Required: true,
	}, l.Images[RoleSwitch]["NVOS_prod"])
	require.NotContains(t, l.Devices, RolePowerShelf)

	artifacts, err := m.Artifacts()
	require.NoError(t, err)
	want, err := hex.DecodeString(digest)
	require.NoError(t, err)
	require.Equal(t, []Artifact{
		{Path: "prod/cx7-28.1.bin", Location: "/srv/fw/cx7-28.1.bin", LocationType: "file", Component: "CX7", Required: true},
		{Path: "prod/hmc_4.2.fwpkg", Location: "https://files.example.invalid/acme/hmc_4.2.fwpkg", LocationType: "HTTPS",
			Component: "HMC", Required: true, WantSHA256: want},
		{Path: "prod/nvos-amd64-25.9.1.bin", Location: "https://files.example.invalid/os/nvos-amd64-25.9.1.bin", LocationType: "https",
			Component: "NVOS", Required: true},
		{Path: "prod/sbios_0.7.fwpkg", Location: "https://af.example.invalid/art/sbios_0.7.fwpkg", LocationType: "artifactory",
			Component: "SBIOS+EROT", Required: true},
	}, artifacts)

	data, err := l.Encode()
	require.NoError(t, err)
	again, err := DecodeLookup(data)
	require.NoError(t, err)
	require.Equal(t, l, again)
	require.Contains(t, string(data), `"subcomponents":[{"component":"EROT","version":"1.9","skuid":null}]`)
	require.Contains(t, string(data), `"switch_system_images":{"Switch Tray":{"NVOS_prod":{`)
}

func TestParseRules(t *testing.T) {
	product := func(boards ...any) js { return release("P", boards...) }
	milestone := func(m any) js { return js{"ProductName": "P", "Milestones": arr{m}} }
	for name, c := range map[string]struct {
		in   any
		kind Kind
		text string
	}{
		"no product":       {js{"Milestones": arr{}}, KindIdentity, "config_json.ProductName is required"},
		"product type":     {js{"ProductName": 7, "Milestones": arr{}}, KindIdentity, "config_json.ProductName is required"},
		"keys are exact":   {js{"productname": "P"}, KindIdentity, "config_json.ProductName is required"},
		"no milestones":    {js{"ProductName": "P"}, KindIdentity, "JSON must contain 'Milestones' array"},
		"two milestones":   {js{"ProductName": "P", "Milestones": arr{js{}, js{}}}, KindIdentity, "exactly one milestone; found 2"},
		"no name":          {milestone(js{"BoardSKUs": arr{}}), KindIdentity, "Milestones[0].Name is required"},
		"milestone type":   {milestone("x"), KindIdentity, "Milestones[0].Name is required"},
		"slash in the id":  {release("P/Q"), KindIdentity, TextUnsafeID},
		"backslash":        {release(`P\Q`), KindIdentity, TextUnsafeID},
		"control in id":    {release("P\nQ"), KindIdentity, TextUnsafeID},
		"long id":          {release(strings.Repeat("x", 300)), KindIdentity, TextUnsafeID},
		"no boards":        {milestone(js{"Name": "1"}), KindFirmware, "Milestones[0] must contain 'BoardSKUs' array"},
		"no channel":       {product(board("Compute Node", firmware("BMC", "1", "", file("https://x/a.bin")))), KindFirmware, "firmware component 'BMC' for board 'board' at Milestones[0].BoardSKUs[0].Components.Firmware[0] is missing Type"},
		"unnamed board":    {product(js{"Components": js{"Firmware": arr{firmware("BMC", "1", "", file("https://x/a.bin"))}}}), KindFirmware, "for board 'unknown board'"},
		"null location":    {product(board("x", firmware("BMC", "1", "Prod", js{"Location": nil, "Type": "firmware"}))), KindFirmware, "has Type \"Firmware\" but missing Location"},
		"bad digest":       {product(board("x", firmware("BMC", "1", "Prod", with(file("https://x/a.bin"), "Sha256", "12")))), KindDigest, "invalid Sha256 for component BMC (Milestones[0].BoardSKUs[0].Components.Firmware[0].Locations[0]): expected 64 hex characters"},
		"unusable name":    {product(board("x", firmware("BMC", "1", "Prod", file("https://x/a%20b.bin")))), KindFirmware, "a file name that cannot be stored"},
		"directory":        {product(board("x", firmware("BMC", "1", "Prod", file("https://x/dir/")))), KindFirmware, "a file name that cannot be stored"},
		"two of one name":  {product(board("x", firmware("BMC", "1", "Prod", file("https://x/a.bin")), firmware("HMC", "1", "Prod", file("https://y/a.bin")))), KindFirmware, "different files of the same name: prod/a.bin"},
		"same, two sums":   {product(board("x", firmware("BMC", "1", "Prod", with(file("https://x/a.bin"), "Sha256", digest)), firmware("HMC", "1", "Prod", with(file("https://x/a.bin"), "Sha256", strings.Repeat("0", 64))))), KindFirmware, "different files of the same name"},
		"image version":    {product(images(js{"Component": "NVOS", "Type": "Prod"})), KindImage, "invalid switch system image data: Milestones[0].BoardSKUs[0].Components.Software[0].Version is required"},
		"image channel":    {product(images(js{"Component": "NVOS", "Version": "1"})), KindImage, ".Type is required"},
		"image locations":  {product(images(nvos())), KindImage, ".Locations is required"},
		"image null":       {product(images(nvos(js{"Location": nil}))), KindImage, "switch system image 'NVOS' (prod) is missing Location"},
		"image no bin":     {product(images(nvos(js{"Location": "https://x/nvos.iso"}))), KindImage, "must include an NVOS .bin image location"},
		"image tie":        {product(images(nvos(image("https://x/nvos-1.bin"), image("https://x/nvos-2.bin")))), KindImage, "multiple NVOS .bin image candidates"},
		"image transport":  {product(images(nvos(js{"Location": "https://x/nvos.bin"}))), KindImage, "LocationType is required"},
		"image bad digest": {product(images(nvos(with(image("https://x/nvos.bin"), "Sha256", "zz")))), KindDigest, "invalid Sha256 for switch system image P: expected 64 hex characters"},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := Parse(encode(t, c.in))
			if err == nil {
				err = m.Check()
			}
			require.ErrorIs(t, err, &Error{Kind: c.kind})
			require.ErrorContains(t, err, c.text)
		})
	}
	for name, text := range map[string]string{
		"empty": "", "syntax": "{", "array": "[]", "two": "{} {}", "large": `{"x":"` + strings.Repeat("x", MaxBytes) + `"}`,
	} {
		_, err := Parse([]byte(text))
		require.ErrorIs(t, err, &Error{Kind: KindSyntax}, name)
		require.ErrorContains(t, err, "invalid config_json: ", name)
	}
}

func images(entries ...any) js {
	return js{"Name": "s", "Type": "Switch Tray", "Components": js{"Software": entries}}
}

func nvos(locations ...any) js {
	return js{"Component": "NVOS", "Version": "25.1.1", "Type": "Prod", "Locations": locations}
}

func image(url string) js { return js{"Location": url, "LocationType": "https"} }

func TestPayloads(t *testing.T) {
	for name, c := range map[string]struct {
		component string
		location  js
		kept      bool
	}{
		"firmware":           {"BMC", js{"Type": "firmware", "Location": "https://x/a.bin"}, true},
		"binary":             {"BMC", js{"Type": " Binary ", "Location": "https://x/a.bin"}, true},
		"blank type":         {"BMC", js{"Type": " ", "Location": "https://x/a.bin"}, false},
		"certificate":        {"BMC", js{"Type": "Certificate", "Location": "https://x/a.bin"}, false},
		"recovery":           {"BMC", js{"Type": "Firmware-Recovery", "Location": "https://x/a.bin"}, false},
		"arm system":         {"BF3_BFB", js{"Type": "Firmware", "Location": "https://x/a.bin"}, false},
		"flint bin":          {"cx7", js{"Type": "Binary", "Location": "https://x/a.BIN"}, true},
		"flint pldm":         {"BF3_NIC", js{"Type": "Binary", "Location": "https://x/a.pldm"}, true},
		"flint package":      {"CX8", js{"Type": "Binary", "Location": "https://x/a.fwpkg"}, false},
		"flint name differs": {"CX8", js{"Type": "Binary", "Location": "https://x/a.fwpkg", "FileName": "a.bin"}, false},
		"flint name":         {"CX8", js{"Type": "Binary", "Location": "https://x/a.bin", "FileName": "a.zip"}, false},
		"flint without":      {"CX8", js{"Type": "Binary"}, true},
		"flint only name":    {"CX8", js{"Type": "Binary", "FileName": "x.zip"}, false},
	} {
		m := parse(t, release("P", board("Compute Node", firmware(c.component, "1", "Prod", c.location))))
		require.Equal(t, c.kept, len(m.Boards[0].Firmware[0].payloads()) == 1, name)
	}
}

func TestFileNames(t *testing.T) {
	for in, want := range map[string]string{
		"https://h/a/b.fwpkg":         "b.fwpkg",
		"https://h/a/b.fwpkg?x=/y#/z": "b.fwpkg",
		"https://h/a/b%20.bin":        "",
		"https://h/a/":                "",
		"https://h":                   "",
		"https://h?x=/evil.bin":       "",
		"/srv/fw/b.bin":               "b.bin",
		`C:\fw\b.bin`:                 "b.bin",
		"/srv/.hidden":                "",
		"b.bin":                       "b.bin",
		"file:///srv/b.bin":           "b.bin",
		"/srv/..":                     "",
	} {
		l := Location{Location: in}
		require.Equal(t, want, l.file(), in)
	}
	for in, want := range map[string]string{"Prod": "prod", " Dev-1 ": "dev-1", "": "prod", ".": "prod", "..": "prod", ".x": "_x", "a/../b": "a_.._b", "é": "__"} {
		require.Equal(t, want, typeDirectory(in), in)
	}
	for in, want := range map[string]string{
		"https://u:p@h/a.bin?token=x#y": "https://h/a.bin", "/srv/a.bin": "/srv/a.bin", "https://h/a b.bin": "https://h/a%20b.bin",
		"https://u:p@h:bad port/a": "(unreadable URL)",
	} {
		require.Equal(t, want, Redact(in), in)
	}
}

func TestProductDefaults(t *testing.T) {
	nameless := js{"Location": "https://x/bmc.fwpkg", "LocationType": "https", "FileName": "bmc.fwpkg"}
	in := release("vr-nvl72",
		board("Compute Tray", firmware("BMC", "1", "", nameless), firmware("HMC", "1", "", file("https://x/hmc.fwpkg"))),
		board("Switch Tray", firmware("BMC+CPLD+SMA+ERoT+SBIOS", "1", "", file("https://x/sw.fwpkg"))))
	m := parse(t, in)
	require.NoError(t, m.Check())
	l := lookup(t, m)
	require.Contains(t, l.Devices[RoleCompute], "BMC_prod_0001")
	require.Len(t, l.Devices[RoleSwitch], 5)

	// Elsewhere, nothing is filled in.
	in["ProductName"] = "GB200"
	require.ErrorIs(t, parse(t, in).Check(), &Error{Kind: KindFirmware})
}

func TestImageChoice(t *testing.T) {
	m := parse(t, release("P", images(
		nvos(js{"Location": "https://x/notes%20nvos.pdf"}, image("https://x/extra.bin"), with(image("https://x/amd64/sys.bin"), "Name", "nvos"),
			js{"Location": "https://x/doc.txt", "PackageName": "pkg"}),
		nvos(image("https://x/later.bin")),
		with(nvos(with(image("https://x/dev.bin"), "Required", false)), "Type", "Dev"))))
	got, err := m.Images()
	require.NoError(t, err)
	require.Len(t, got, 2)
	require.Equal(t, "sys.bin", got[0].FileName)
	require.Equal(t, "pkg", got[0].PackageName)
	require.True(t, got[0].Required)
	require.Equal(t, "dev", got[1].FirmwareType)
	require.False(t, got[1].Required)
	l := lookup(t, m)
	one, ok := l.Image("DEV")
	require.True(t, ok)
	require.Equal(t, "dev/dev.bin", one.Path())
	_, ok = l.Image("test")
	require.False(t, ok)
	require.Empty(t, Image{ImageFilename: "../x"}.Path())
	require.Len(t, l.OfferedImages(), 2)
}

func TestNothingOffered(t *testing.T) {
	m := parse(t, release("P", board("Rack", firmware("BMC", "1", "Prod", file("https://x/a.bin")))))
	require.Nil(t, lookup(t, m))
	var none *Lookup
	require.Empty(t, none.Offers())
	_, err := none.Targets(typeOf(t, nvidia200), "prod", Selection{})
	require.ErrorIs(t, err, &Error{Kind: KindTargets})
	l, err := DecodeLookup([]byte("null"))
	require.NoError(t, err)
	require.Nil(t, l)
	_, err = DecodeLookup([]byte("{"))
	require.Error(t, err)
}

// Every node type takes something, and every key of it is one that lookup tables know.
func TestTablesAreComplete(t *testing.T) {
	for _, typ := range node.Types() {
		keys := Keys(typ)
		require.NotEmpty(t, keys, typ)
		for _, key := range keys {
			require.Equal(t, key, NormalKey(key+"_prod_0001"), "%s of %s", key, typ)
		}
	}
	require.Equal(t, "Novel", NormalKey("Novel_prod_0001"))
	require.Equal(t, []string{"BMC", "HMC"}, sorted(Keys(typeOf(t, lenovo))))
	require.Equal(t, []string{"BIOS", "BMC", "HMC"}, sorted(Keys(typeOf(t, supermicro))))
	require.Equal(t, []string{"DeltaPMC", "DeltaPSU"}, sorted(Keys(typeOf(t, delta300))))
}
