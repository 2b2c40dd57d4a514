// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/product"
)

// checkMeaning requires what holds for every manifest that is read.
func checkMeaning(t require.TestingT, data []byte) {
	m, err := Parse(data)
	if err != nil {
		require.ErrorAs(t, err, new(*Error))
		return
	}
	require.NoError(t, CheckID(m.ID()))
	if err := m.Check(); err != nil {
		require.ErrorAs(t, err, new(*Error))
		return
	}
	artifacts, err := m.Artifacts()
	require.NoError(t, err)
	paths := make(map[string]bool)
	for _, a := range artifacts {
		require.NoError(t, checkPath(a.Path))
		require.False(t, paths[a.Path], "one file, one path")
		paths[a.Path] = true
	}
	l, err := m.Lookup()
	require.NoError(t, err)
	if l == nil {
		return
	}
	stored, err := l.Encode()
	require.NoError(t, err)
	again, err := DecodeLookup(stored)
	require.NoError(t, err)
	for _, typ := range node.Types() {
		everything := Selection{Filters: map[node.Type][]string{typ: nil}}
		targets, err := l.Targets(typ, "prod", everything)
		if err != nil {
			require.ErrorAs(t, err, new(*Error))
			continue
		}
		for _, target := range targets {
			require.True(t, paths[target.Path], "a target's file is fetched: %s", target.Path)
		}
		// What is stored means the same, and so does the manifest by itself.
		back, err := again.Targets(typ, "prod", everything)
		require.NoError(t, err)
		require.Equal(t, targets, back)
		some, err := m.Select([]node.Type{typ}, "prod", everything)
		require.NoError(t, err)
		inline, err := some.devices().Targets(typ, "prod", everything)
		require.NoError(t, err)
		require.Equal(t, keysOf(targets), keysOf(inline))
		require.Equal(t, told(targets)[0], told(inline)[0])
	}
}

func keysOf(targets []Target) []string {
	var keys []string
	for _, t := range targets {
		keys = append(keys, t.Key)
	}
	return keys
}

func checkPath(path string) error {
	dir, base, ok := strings.Cut(path, "/")
	if !ok || !validFileName(base) || dir == "" || dir[0] == '.' || strings.Contains(base, "/") {
		return fmt.Errorf("path %q leaves its cache", path)
	}
	return nil
}

func FuzzManifest(f *testing.F) {
	for _, seed := range []any{
		acme(), gb200Release(), release("VR-NVL72", board("Switch Tray", firmware(sourceSwitchVR, "1", "", file("https://x/a.fwpkg")))),
		release("P", images(nvos(image("https://x/nvos.bin")))), release(".."), js{}, arr{},
		release("P", board("PowerShelf", firmware("Delta-PSU", "1", "..", file("https://x/..%2f/a.bin?x=1")))),
	} {
		f.Add(encode(f, seed))
	}
	f.Add([]byte(`{"ProductName":"P","Milestones":[{"Name":"1","BoardSKUs":[{"Type":"Compute Node","Components":{"Firmware":[{"Component":"BMC","Type":"Prod","Locations":[{"Type":"Firmware","Location":"/a/b.bin"},7,null]}]}}]}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<16 {
			t.Skip()
		}
		checkMeaning(t, data)
	})
}

func FuzzLookup(f *testing.F) {
	f.Add([]byte(`{"devices":{"Compute Node":{"BMC_prod_0001":{"filename":"prod/b.fwpkg","target":"","component":"BMC","firmware_type":"prod","version":null}}}}`))
	f.Add([]byte(`{"devices":{"Switch Tray":null},"switch_system_images":{"Switch Tray":{"NVOS_prod":{}}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		l, err := DecodeLookup(data)
		if err != nil {
			return
		}
		for _, typ := range node.Types() {
			_, err := l.Targets(typ, "prod", Selection{})
			var refused *Error
			if err != nil && !errors.As(err, &refused) {
				t.Fatalf("%v", err)
			}
		}
		l.Offers()
		l.OfferedImages()
	})
}

// TestAnyManifest draws manifests of the right shape.
func TestAnyManifest(t *testing.T) {
	var sources []string
	for _, p := range product.All() {
		for _, c := range p.Components {
			if !slices.Contains(sources, c.Source) {
				sources = append(sources, c.Source)
			}
		}
	}
	sources = append(sources, "Novel")
	rapid.Check(t, func(rt *rapid.T) {
		var boards arr
		for range rapid.IntRange(0, 3).Draw(rt, "boards") {
			var components arr
			for range rapid.IntRange(0, 4).Draw(rt, "components") {
				var files arr
				for range rapid.IntRange(0, 3).Draw(rt, "files") {
					name := rapid.SampledFrom([]string{"a.bin", "nosbios.fwpkg", "bios.bin", "obmc.bin", "b.pldm", "x%20y.bin", ""}).Draw(rt, "name")
					files = append(files, js{
						"Location": "https://files.invalid/" + name, "LocationType": "https",
						"Type": rapid.SampledFrom([]string{"Firmware", "Binary", "Misc"}).Draw(rt, "type"),
					})
				}
				components = append(components, firmware(rapid.SampledFrom(sources).Draw(rt, "source"),
					rapid.StringMatching(`[0-9]{0,2}`).Draw(rt, "version"), rapid.SampledFrom([]string{"Prod", "Dev", ""}).Draw(rt, "channel"), files...))
			}
			boards = append(boards, board(rapid.SampledFrom([]string{"Compute Node", "Switch Tray", "Power Shelf", "Rack"}).Draw(rt, "role"), components...))
		}
		name := rapid.SampledFrom([]string{"GB200", "VR-NVL72"}).Draw(rt, "product")
		checkMeaning(rt, encode(t, release(name, boards...)))
	})
}
