// SPDX-License-Identifier: Apache-2.0

package firmwarepackage

import (
	"encoding/binary"
	"hash/crc32"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestBuildLayout(t *testing.T) {
	b, err := Build(Spec{
		Version: "GB200-P4972_7", Released: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC),
		Components: []Component{
			{Name: "BMC", Version: "1.2.3", Payload: []byte("FWFW"), Stamp: 9},
			{Name: "ERoT", Version: "n04", SKU: []byte{0x81, 0x36, 0x35, 0x4A}},
		},
	})
	require.NoError(t, err)
	require.Equal(t, "f018878ccb7d49439800a02f059aca02", strings.ToLower(hexOf(b[:16])))
	require.Equal(t, byte(1), b[16])
	size := int(binary.LittleEndian.Uint16(b[17:]))
	require.Equal(t, []byte{7, 6, 5, 4, 3, 0xEA, 0x07}, b[19+5:19+12])
	require.Equal(t, uint16(8), binary.LittleEndian.Uint16(b[32:]))
	require.Equal(t, []byte{1, 13}, b[34:36])
	require.Equal(t, "GB200-P4972_7", string(b[36:49]))
	require.Equal(t, byte(2), b[49], "device records")

	require.Equal(t, crc32.ChecksumIEEE(b[:size-4]), binary.LittleEndian.Uint32(b[size-4:]))
	require.Equal(t, "FWFW", string(b[size:size+4]), "payloads follow the header")
	// The first image: 22 bytes and version before the second one's, 4 bytes of checksum at the end.
	table := size - 4 - (22 + 3) - (22 + 5)
	require.Equal(t, uint16(2), binary.LittleEndian.Uint16(b[table-2:]))
	require.Equal(t, uint32(9), binary.LittleEndian.Uint32(b[table+4:]))
	require.Equal(t, uint32(size), binary.LittleEndian.Uint32(b[table+12:]), "offset from the package's start")
	require.Equal(t, uint32(4), binary.LittleEndian.Uint32(b[table+16:]))
	require.Equal(t, uint32(size+4), binary.LittleEndian.Uint32(b[table+27+12:]))
}

func hexOf(b []byte) string {
	const digits = "0123456789abcdef"
	var out strings.Builder
	for _, c := range b {
		out.WriteByte(digits[c>>4])
		out.WriteByte(digits[c&15])
	}
	return out.String()
}

func TestParseHeader(t *testing.T) {
	many := make([]Component, 64)
	for i := range many {
		many[i] = Component{Name: string(rune('a'+i%26)) + string(rune('a'+i/26)), Version: strings.Repeat("v", i)}
	}
	tests := []struct {
		name string
		spec Spec
	}{
		{"one", Spec{Version: "p", Components: many[:1]}},
		{"nine need two bitmap bytes", Spec{Version: "p", Components: many[:9]}},
		{"most", Spec{Version: "p", Components: many}},
		{"combined record", Spec{Version: "p", Components: many, Combined: true}},
		{"no version", Spec{Components: many[:2], Combined: true}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b, err := Build(tt.spec)
			require.NoError(t, err)
			h, err := ParseHeader(b)
			require.NoError(t, err)
			require.True(t, h.ChecksumOK)
			require.Equal(t, tt.spec.Version, h.Version)
			require.Len(t, h.Images, len(tt.spec.Components))
			for i, c := range tt.spec.Components {
				require.Equal(t, Image{Name: c.Name, Version: c.Version}, h.Images[i])
			}

			size := binary.LittleEndian.Uint16(b[17:])
			for cut := range int(size) {
				_, err := ParseHeader(b[:cut])
				require.ErrorIs(t, err, ErrNotPackage, "cut at %d", cut)
			}
			b[40] ^= 1
			if h, err := ParseHeader(b); err == nil {
				require.False(t, h.ChecksumOK)
			}
		})
	}
}

func TestBuildRefuses(t *testing.T) {
	long := strings.Repeat("x", 256)
	for name, spec := range map[string]Spec{
		"nothing":       {},
		"too many":      {Components: make([]Component, 65)},
		"long version":  {Version: long, Components: []Component{{Name: "a"}}},
		"no name":       {Components: []Component{{Version: "1"}}},
		"comma":         {Components: []Component{{Name: "a,b"}}},
		"long name":     {Components: []Component{{Name: long}}},
		"long together": {Combined: true, Components: []Component{{Name: long[:200]}, {Name: long[:100]}}},
	} {
		_, err := Build(spec)
		require.ErrorIs(t, err, ErrInvalidSpec, name)
	}
}

func FuzzIdentify(f *testing.F) {
	b, err := Build(Spec{Version: "p", Components: []Component{{Name: "BMC", Version: "1"}}})
	require.NoError(f, err)
	f.Add(b)
	for revision := 2; revision <= 4; revision++ {
		b, err := Build(full(revision))
		require.NoError(f, err)
		f.Add(b[:1000])
	}
	f.Add(Raw("a_1.bin", 100))
	f.Fuzz(func(_ *testing.T, b []byte) { Identify(b, "x_1.bin") })
}

func TestIdentify(t *testing.T) {
	archive, err := ShelfArchive("LITEON-PSU", "F1F1", "PF-1333-7R", []byte("image"))
	require.NoError(t, err)
	plain, err := Build(Spec{Version: "p", Components: []Component{{Name: "BMC", Version: "1"}}})
	require.NoError(t, err)
	tests := []struct {
		name    string
		content []byte
		file    string
		want    File
	}{
		{"PLDM", plain, "a_9.bin", File{Form: FormPLDM, Name: "a_9.bin", Version: "p", Images: []Image{{Name: "BMC", Version: "1"}}}},
		{"archive", archive, "x.tar", File{Form: FormArchive, Name: "x.tar", Version: "F1F1", Purpose: "LITEON-PSU"}},
		{"raw by content", Raw("psu_F1F1.bin", 500), "other_2.bin", File{Name: "psu_F1F1.bin", Version: "F1F1"}},
		{"raw by name", []byte("x"), "obmc_25.06-2.bin", File{Name: "obmc_25.06-2.bin", Version: "25.06-2"}},
		{"unknown", nil, "image", File{Name: "image"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { require.Equal(t, tt.want, Identify(tt.content, tt.file)) })
	}
	require.Len(t, Raw("a_1.bin", 5000), 5000)
	require.Equal(t, "A1B2", SupplyVersion("sp-x_a1b2_y.bin"))
	require.Empty(t, SupplyVersion("liteon-psu_12.bin"))
}
