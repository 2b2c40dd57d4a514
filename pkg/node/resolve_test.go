// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

func attrs(pairs ...string) *node.Descriptor {
	m := make(map[string]string)
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return &node.Descriptor{Attributes: m}
}

func TestTypeTable(t *testing.T) {
	families := map[node.Family]int{}
	ids, numbers := map[string]bool{}, map[int32]bool{}
	for _, typ := range node.Types() {
		families[typ.Family]++
		require.False(t, ids[typ.ID], "id %s twice", typ.ID)
		ids[typ.ID] = true
		if typ.Number != 0 {
			require.False(t, numbers[typ.Number], "number %d twice", typ.Number)
			numbers[typ.Number] = true
			got, ok := node.ByNumber(typ.Number)
			require.True(t, ok)
			require.Equal(t, typ, got)
		}
		got, ok := node.ByID(typ.ID)
		require.True(t, ok)
		require.Equal(t, typ, got)
		require.True(t, typ.Family.Valid())
		require.NotEmpty(t, typ.Rack.Model())
		require.Equal(t, strings.HasPrefix(typ.ID, "compute_gb200"), typ.InBand)
		require.Equal(t, string(typ.Family)+"_"+typ.ProductFamily+"_"+typ.Vendor, typ.ID)
	}
	require.Equal(t, map[node.Family]int{node.FamilyCompute: 6, node.FamilySwitch: 3, node.FamilyPowerShelf: 4}, families)
	require.Len(t, numbers, 11)
	_, ok := node.ByNumber(0)
	require.False(t, ok)
	_, ok = node.ByID("toaster")
	require.False(t, ok)
	require.False(t, node.FamilyRack.Valid(), "no hardware agent")
	require.True(t, node.FamilyRack.HasKeys())
	for _, f := range node.KeyFamilies() {
		require.True(t, f.HasKeys())
	}
	require.NotContains(t, node.Families(), node.FamilyRack)
	require.False(t, node.Family("x").HasKeys())
	require.Empty(t, node.RackType("NVL_X").Model())
}

// TestNumbers pins the published enum values.
func TestNumbers(t *testing.T) {
	want := map[string]int32{
		"compute_gb200_nvidia": 1, "powershelf_gb200_liteon": 2, "switch_gb200_nvidia": 3,
		"powershelf_gb200_delta": 4, "compute_gb300_nvidia": 5, "switch_gb300_nvidia": 6,
		"powershelf_gb300_liteon": 7, "powershelf_gb300_delta": 8, "compute_gb300_lenovo": 9,
		"compute_vrnvl72_nvidia": 10, "switch_vrnvl72_nvidia": 11,
		"compute_gb200_wiwynn": 0, "compute_gb300_supermicro": 0,
	}
	got := map[string]int32{}
	for _, typ := range node.Types() {
		got[typ.ID] = typ.Number
	}
	require.Equal(t, want, got)
}

// TestNumbersAreThePublishedOnes holds the table against the wire contract.
func TestNumbersAreThePublishedOnes(t *testing.T) {
	for number, name := range rackmanager.NodeType_name {
		if number == 0 {
			continue
		}
		typ, ok := node.ByNumber(number)
		require.True(t, ok, name)
		require.Equal(t, strings.ToLower(name), typ.ID)
	}
	require.Len(t, rackmanager.NodeType_name, 12)
}

func TestResolve(t *testing.T) {
	tests := []struct {
		name   string
		number int32
		d      *node.Descriptor
		want   string
		code   node.Code
		field  string
		text   string
	}{
		{name: "number", number: 6, want: "switch_gb300_nvidia"},
		{name: "number beats a broken descriptor", number: 1, d: attrs("colour", "green"), want: "compute_gb200_nvidia"},
		{name: "unknown number", number: 99, d: attrs("role", "compute", "vendor", "nvidia", "product_family", "gb200"),
			code: node.CodeUnknownType, field: "type", text: "unknown node type value 99"},
		{name: "negative number", number: -1, code: node.CodeUnknownType, text: "unknown node type value -1"},
		{name: "descriptor", d: attrs("role", "Power-Shelf", "vendor", "Lite-On", "product_family", " GB 300 "), want: "powershelf_gb300_liteon"},
		{name: "descriptor only type", d: attrs("role", "compute", "vendor", "SuperMicro", "product_family", "gb300"), want: "compute_gb300_supermicro"},
		{name: "underscore in family", d: attrs("role", "switch", "vendor", "NVIDIA", "product_family", "VR_NVL72"), want: "switch_vrnvl72_nvidia"},
		{name: "profile is allowed", d: attrs("role", "compute", "vendor", "wiwynn", "product_family", "gb200", "inventory_profile", "p"), want: "compute_gb200_wiwynn"},
		{name: "no descriptor", code: node.CodeDescriptorRequired, field: "node_descriptor",
			text: "node descriptor is required when node type is unspecified"},
		{name: "empty descriptor", d: &node.Descriptor{}, code: node.CodeAttributeMissing, field: "node_descriptor.role",
			text: "node descriptor is missing required attribute role"},
		{name: "first offender alphabetically", d: attrs("zone", "1", "Role", "compute", "bay", "2"),
			code: node.CodeAttributeNotSupported, field: "node_descriptor.Role", text: "node descriptor attribute Role is not supported"},
		{name: "blank vendor", d: attrs("role", "compute", "vendor", " \t", "product_family", ""),
			code: node.CodeAttributeMissing, field: "node_descriptor.vendor", text: "node descriptor is missing required attribute vendor"},
		{name: "missing product family", d: attrs("role", "compute", "vendor", "nvidia"),
			code: node.CodeAttributeMissing, field: "node_descriptor.product_family", text: "node descriptor is missing required attribute product_family"},
		{name: "no match", d: attrs("role", "Switch", "vendor", "Lite-On", "product_family", "GB_200"),
			code: node.CodeUnsupportedDescriptor, field: "node_descriptor",
			text: "unsupported node descriptor role=switch, vendor=liteon, product_family=gb200"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := node.Resolve(tt.number, tt.d)
			if tt.code == "" {
				require.NoError(t, err)
				require.Equal(t, tt.want, got.Type.ID)
				return
			}
			require.ErrorIs(t, err, &node.Error{Code: tt.code, Field: tt.field})
			require.EqualError(t, err, tt.text)
		})
	}
}

func TestResolvedDescriptor(t *testing.T) {
	tests := []struct {
		name   string
		number int32
		d      *node.Descriptor
		want   *node.Descriptor
	}{
		{"enum type drops it", 1, attrs("role", "x"), nil},
		{"enum type found by descriptor drops it", 0, attrs("role", "compute", "vendor", "nvidia", "product_family", "gb200"), nil},
		{"profile survives beside an enum type", 1, attrs("inventory_profile", " p1 "), attrs("inventory_profile", "p1")},
		{"blank profile survives", 1, attrs("inventory_profile", "  "), attrs("inventory_profile", "")},
		{"descriptor-only type is canonical", 0, attrs("role", "COMPUTE", "vendor", "Wi-Wynn", "product_family", "GB-200", "inventory_profile", "p"),
			attrs("role", "compute", "vendor", "wiwynn", "product_family", "gb200", "inventory_profile", "p")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := node.Resolve(tt.number, tt.d)
			require.NoError(t, err)
			require.Equal(t, tt.want, got.Descriptor())
		})
	}
}

func TestProfileCheck(t *testing.T) {
	known := func(name string) bool { return name == "Gold" }
	require.NoError(t, node.Profile{}.Check(known))
	require.NoError(t, node.Profile{Set: true, Name: "Gold"}.Check(known))
	require.EqualError(t, node.Profile{Set: true}.Check(known), "inventory_profile must not be empty")
	err := node.Profile{Set: true, Name: "gold"}.Check(known)
	require.EqualError(t, err, `unknown inventory_profile "gold"`)
	require.ErrorIs(t, err, &node.Error{Code: node.CodeProfileUnknown})
}

func TestFoldByType(t *testing.T) {
	nvidia := attrs("role", "compute", "vendor", "nvidia", "product_family", "gb200")
	wiwynn := attrs("role", "compute", "vendor", "wiwynn", "product_family", "gb200")
	type entry = node.Described[string]

	got, err := node.FoldByType(map[int32]string{1: "typed", 3: "switch"},
		[]entry{{nvidia, "described"}, {wiwynn, "wiwynn"}})
	require.NoError(t, err)
	byID := map[string]string{}
	for typ, v := range got {
		byID[typ.ID] = v
	}
	require.Equal(t, map[string]string{"compute_gb200_nvidia": "typed", "switch_gb200_nvidia": "switch", "compute_gb200_wiwynn": "wiwynn"}, byID)

	_, err = node.FoldByType(nil, []entry{{nvidia, "a"}, {attrs("role", "Compute", "vendor", "NVIDIA", "product_family", "GB-200"), "b"}})
	require.EqualError(t, err, "multiple node descriptors resolve to node type compute_gb200_nvidia")
	_, err = node.FoldByType(map[int32]string{0: "x"}, nil)
	require.EqualError(t, err, "unknown node type value 0")
	_, err = node.FoldByType(map[int32]string{40: "x", 31: "y"}, nil)
	require.EqualError(t, err, "unknown node type value 31")
	_, err = node.FoldByType(nil, []entry{{nil, "x"}})
	require.ErrorIs(t, err, &node.Error{Code: node.CodeDescriptorRequired})
}

// TestNormalizeProperties: normalising is idempotent, and however a person
// spells the attributes of a type (case, spaces, '-', '_'), the type is found.
func TestNormalizeProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.String().Draw(t, "any")
		once := node.Normalize(s)
		require.Equal(t, once, node.Normalize(once))
		require.NotContains(t, once, "-")
		require.NotContains(t, once, "_")
	})
	rapid.Check(t, func(t *rapid.T) {
		typ := rapid.SampledFrom(node.Types()).Draw(t, "type")
		spell := func(label, word string) string {
			var b strings.Builder
			for _, r := range word {
				b.WriteString(rapid.SampledFrom([]string{"", "", "-", "_", " "}).Draw(t, label+" separator"))
				if rapid.Bool().Draw(t, label+" upper") {
					b.WriteString(strings.ToUpper(string(r)))
				} else {
					b.WriteRune(r)
				}
			}
			return " " + b.String() + "\t"
		}
		got, err := node.Resolve(0, attrs("role", spell("role", typ.Role),
			"vendor", spell("vendor", typ.Vendor), "product_family", spell("family", typ.ProductFamily)))
		require.NoError(t, err)
		require.Equal(t, typ, got.Type)
	})
}
