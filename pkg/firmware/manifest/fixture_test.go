// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/firmware/flash"
	"github.com/rackbus/rackbus/pkg/node"
)

// Short forms of the JSON of manifests.
type (
	js  = map[string]any
	arr = []any
)

// The node types.
const (
	nvidia200  = "compute_gb200_nvidia"
	wiwynn     = "compute_gb200_wiwynn"
	nvidia300  = "compute_gb300_nvidia"
	lenovo     = "compute_gb300_lenovo"
	supermicro = "compute_gb300_supermicro"
	vr72       = "compute_vrnvl72_nvidia"
	switch200  = "switch_gb200_nvidia"
	switch300  = "switch_gb300_nvidia"
	switchVR   = "switch_vrnvl72_nvidia"
	liteon200  = "powershelf_gb200_liteon"
	liteon300  = "powershelf_gb300_liteon"
	delta200   = "powershelf_gb200_delta"
	delta300   = "powershelf_gb300_delta"
)

const inventoryPath = flash.InventoryPath

const digest = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

// file is a location of a payload.
func file(url string) js { return js{"Location": url, "LocationType": "https", "Type": "Firmware"} }

// firmware is a component with files.
func firmware(name, version, channel string, locations ...any) js {
	return js{"Component": name, "Version": version, "Type": channel, "Locations": locations}
}

func with(o js, key string, value any) js {
	out := js{key: value}
	for k, v := range o {
		if k != key {
			out[k] = v
		}
	}
	return out
}

func board(role string, components ...any) js {
	return js{"Name": "board", "Type": role, "Components": js{"Firmware": components}}
}

func release(product string, boards ...any) js {
	return js{"ProductName": product, "Milestones": arr{js{"Name": "1.0", "BoardSKUs": boards}}}
}

func encode(t testing.TB, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	require.NoError(t, err)
	return data
}

func parse(t testing.TB, v any) *Manifest {
	t.Helper()
	m, err := Parse(encode(t, v))
	require.NoError(t, err)
	return m
}

func typeOf(t testing.TB, id string) node.Type {
	t.Helper()
	typ, ok := node.ByID(id)
	require.True(t, ok, id)
	return typ
}

func lookup(t testing.TB, m *Manifest) *Lookup {
	t.Helper()
	l, err := m.Lookup()
	require.NoError(t, err)
	return l
}

// told is a target in short: key, target, file.
func told(targets []Target) []string {
	var out []string
	for _, t := range targets {
		out = append(out, t.Key+" "+t.Component+" "+t.Path)
	}
	return out
}

// acme is the manifest of an invented product.
func acme() js {
	hmc := with(firmware("HMC", "4.2", "Prod",
		js{"Location": "https://files.example.invalid/acme/hmc_4.2.fwpkg", "LocationType": "HTTPS", "Type": "Firmware",
			"FileName": "hmc_4.2.fwpkg", "Sha256": digest},
		js{"Location": nil, "LocationType": "", "Type": "Certificate", "FileName": "hmc_4.2.corim"},
	), "SubComponents", arr{js{"Component": "EROT", "Version": "1.9"}, js{"Component": "", "Version": "1"}, js{"Component": "X"}})
	hmc["Bundle"] = "acme-hmc"
	return release("ACME72",
		board("Compute Node", hmc, firmware("CX7", "28.1", "Prod", js{"Location": "/srv/fw/cx7-28.1.bin", "LocationType": "file", "Type": "Binary"})),
		js{"Name": "tray-s", "Type": "Switch Tray", "Components": js{
			"Firmware": arr{firmware("SBIOS+EROT", "0.7", "Prod",
				js{"Location": "https://af.example.invalid/art/sbios_0.7.fwpkg", "LocationType": "artifactory", "Type": "Firmware"})},
			"Software": arr{js{"Component": "NVOS", "Version": "25.9.1", "Type": "Prod", "Locations": arr{
				js{"Location": "https://files.example.invalid/os/nvos-amd64-25.9.1.bin", "LocationType": "https", "PackageName": "acme-os"}}}},
		}})
}
