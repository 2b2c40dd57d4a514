// SPDX-License-Identifier: Apache-2.0

package firmware_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/firmware"
)

func TestReadPackageOfEveryRevision(t *testing.T) {
	for revision := 1; revision <= 4; revision++ {
		raw := tray(revision).build()
		p, err := firmware.ReadPackage(iotest.OneByteReader(bytes.NewReader(raw)))
		require.NoError(t, err, revision)
		require.Equal(t, revision, p.Revision)
		require.Equal(t, "GB200-P4972", p.Version)
		require.Equal(t, time.Date(2026, 1, 2, 2, 4, 5, 0, time.UTC), p.Released)
		require.Equal(t, int64(p.HeaderSize), p.HeaderEnd)
		require.True(t, p.HeaderChecksum.Valid())
		require.Len(t, p.Records, 2)
		require.Equal(t, []int{0, 1}, p.Records[0].Components)
		require.Equal(t, []int{1}, p.Records[1].Components)
		require.Equal(t, "EROT", p.Records[0].Name(1))
		require.Empty(t, p.Records[1].Name(1))
		require.Equal(t, "0xdead", p.Records[0].SKU())
		require.Equal(t, "0xdead", p.Records[0].SKUOf(0))
		require.Equal(t, "0x4935", p.Records[0].SKUOf(1), "a root of trust has a SKU of its own")
		require.Equal(t, "0x01", p.Records[1].SKU())
		require.Equal(t, "data", content(raw, p.Records[0].PackageData))
		require.Len(t, p.Components, 2)
		second := p.Components[1]
		require.Equal(t, "ROOT", content(raw, second.Section()))
		require.Equal(t, uint16(2), second.Identifier)
		require.Equal(t, uint32(7), second.ComparisonStamp)
		require.Equal(t, "01.03", second.Version)
		require.Equal(t, revision >= 3, content(raw, second.Opaque) == "opaque")
		require.Equal(t, revision >= 4, content(raw, p.Records[0].Manifest) == "manifest")
		require.NoError(t, p.CheckSize(int64(len(raw))))
		require.ErrorIs(t, p.CheckSize(int64(len(raw)-1)), io.ErrUnexpectedEOF)
	}
}

func content(raw []byte, s firmware.Section) string { return string(raw[s.Offset:s.End()]) }

func TestDownstreamRecords(t *testing.T) {
	for revision := 2; revision <= 4; revision++ {
		raw := tray(revision).build()
		p, err := firmware.ReadPackage(bytes.NewReader(raw))
		require.NoError(t, err)
		require.Len(t, p.Downstream, 2)
		first, second := p.Downstream[0], p.Downstream[1]
		require.Equal(t, "1.0", first.MinVersion)
		require.NotNil(t, first.MinStamp)
		require.Equal(t, uint32(9), *first.MinStamp)
		require.Equal(t, []int{0}, first.Components)
		require.Equal(t, "dd", content(raw, first.PackageData))
		require.Equal(t, "0x10de", first.Descriptors[0].Value())
		require.Equal(t, "PCI device", first.Descriptors[1].Name())
		require.Nil(t, second.MinStamp)
		require.Equal(t, "MODEL-X", second.Descriptors[0].Value())
	}
}

func TestDescriptors(t *testing.T) {
	for _, tt := range []struct {
		d           firmware.Descriptor
		name, value string
	}{
		{firmware.Descriptor{Type: 0x0000, Data: []byte{0xde, 0x10}}, "PCI vendor", "0x10de"},
		{firmware.Descriptor{Type: 0x0001, Data: []byte{0x47, 0x16, 0, 0}}, "IANA enterprise", "5703"},
		{firmware.Descriptor{Type: 0x0001, Data: []byte{0x47}}, "IANA enterprise", "0x47"},
		{firmware.Descriptor{Type: 0x0002, Data: bytes.Repeat([]byte{0xab}, 16)}, "UUID", "abababab-abab-abab-abab-abababababab"},
		{firmware.Descriptor{Type: 0x0003, Data: []byte("NVD")}, "PnP vendor", "NVD"},
		{firmware.Descriptor{Type: 0x0004, Data: []byte("NVDA")}, "ACPI vendor", "NVDA"},
		{firmware.Descriptor{Type: 0x0005, Data: []byte{0x48, 0xb0, 0x2d}}, "IEEE company", "0x48b02d"},
		{firmware.Descriptor{Type: 0x0006, Data: []byte("NVIDIA  ")}, "SCSI vendor", "NVIDIA"},
		{firmware.Descriptor{Type: 0x0100, Data: []byte{0x41, 0x29}}, "PCI device", "0x2941"},
		{firmware.Descriptor{Type: 0x0101, Data: []byte{1, 0}}, "PCI subsystem vendor", "0x0001"},
		{firmware.Descriptor{Type: 0x0102, Data: []byte{2, 0}}, "PCI subsystem", "0x0002"},
		{firmware.Descriptor{Type: 0x0103, Data: []byte{0xa1}}, "PCI revision", "0xa1"},
		{firmware.Descriptor{Type: 0x0106, Data: []byte("P4972\x00")}, "model", "P4972"},
		{firmware.Descriptor{Type: 0x0106, Data: []byte{1, 2}}, "model", "0x0102"},
		{firmware.Descriptor{Type: 0xFFFF, Title: "APSKU", Data: []byte{0xde, 0xad}}, "APSKU", "0xdead"},
		{firmware.Descriptor{Type: 0x4242, Data: []byte{7}}, "type 0x4242", "0x07"},
	} {
		require.Equal(t, tt.name, tt.d.Name())
		require.Equal(t, tt.value, tt.d.Value())
	}
}

func TestEveryTruncationIsRefusedWithItsOffset(t *testing.T) {
	for revision := 1; revision <= 4; revision++ {
		raw := tray(revision).build()
		p, err := firmware.ReadPackage(bytes.NewReader(raw))
		require.NoError(t, err)
		for n := range raw[:p.HeaderEnd] {
			_, err := firmware.ReadPackage(bytes.NewReader(raw[:n]))
			if n < 16 {
				require.ErrorIs(t, err, firmware.ErrNotPLDM)
				continue
			}
			require.ErrorIs(t, err, io.ErrUnexpectedEOF, n)
			format, is := errors.AsType[*firmware.FormatError](err)
			require.True(t, is)
			require.LessOrEqual(t, format.Offset, int64(n))
		}
	}
}

func TestRefusedPackages(t *testing.T) {
	change := func(f func(raw []byte)) []byte {
		raw := tray(1).build()
		f(raw)
		return raw
	}
	// The first record begins at 48, its bitmap at 59, its first descriptor at 68.
	for field, tt := range map[string]struct {
		raw []byte
		at  int64
	}{
		"component bitmap length":      {change(func(raw []byte) { raw[32] = 65 }), 32},
		"header size":                  {change(func(raw []byte) { raw[17], raw[18] = 40, 0 }), 17},
		"component bitmap of record 0": {change(func(raw []byte) { raw[59] = 0b100 }), 59},
		"device record 0 length":       {change(func(raw []byte) { raw[48], raw[49] = 1, 0 }), 48},
		"set version":                  {change(func(raw []byte) { raw[48] = 14 }), 60},
		"descriptor 0":                 {change(func(raw []byte) { raw[68], raw[69] = 0xFF, 0xFF }), 72},
	} {
		_, err := firmware.ReadPackage(bytes.NewReader(tt.raw))
		format, is := errors.AsType[*firmware.FormatError](err)
		require.True(t, is, "%s: %v", field, err)
		require.Equal(t, field, format.Field)
		require.Equal(t, tt.at, format.Offset, field)
		require.ErrorContains(t, err, field)
	}
	_, err := firmware.ReadPackage(bytes.NewReader(make([]byte, 64)))
	require.ErrorIs(t, err, firmware.ErrNotPLDM)
	broken := errors.New("disk")
	_, err = firmware.ReadPackage(iotest.ErrReader(broken))
	require.ErrorIs(t, err, broken)
}

// A downstream record whose bitmap names an image that is not there.
func TestDownstreamBitmap(t *testing.T) {
	s := tray(2)
	s.downstream[1].mask = 0b1000
	_, err := firmware.ReadPackage(bytes.NewReader(s.build()))
	require.ErrorContains(t, err, "component bitmap of downstream record 1: names image 3 of 2")
}

// A header tells its size in 16 bits. One that goes on beyond that is refused, before
// what it lists is in memory: some tools leave the size out.
func TestHeaderIsBounded(t *testing.T) {
	s := one(1, "v", "BMC", "1", []byte("a"))
	for range 300 {
		s.images = append(s.images, image{strings.Repeat("v", 255), []byte("x")})
	}
	raw := s.build()
	raw[17], raw[18] = 0, 0
	_, err := firmware.ReadPackage(bytes.NewReader(raw))
	format, is := errors.AsType[*firmware.FormatError](err)
	require.True(t, is, "%v", err)
	require.ErrorContains(t, err, "a header has at most 65535 bytes")
	require.LessOrEqual(t, format.Offset, int64(65535))

	// Data that is passed over takes no memory; a header with it is longer by that.
	_, err = firmware.ReadPackage(bytes.NewReader(tray(4).build()))
	require.NoError(t, err)
}
