// SPDX-License-Identifier: Apache-2.0

package firmware_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/firmware"
)

var uuids = []string{
	"f018878ccb7d49439800a02f059aca02", "1244d2648d7d4718a030fc8a56587d5a",
	"3119ce2fe80a4a99af6d46f8b121f6bf", "7b291c996db64208801b02026e463c78",
}

// le writes values little-endian; strings as they are.
func le(values ...any) []byte {
	var out []byte
	for _, v := range values {
		switch v := v.(type) {
		case string:
			out = append(out, v...)
		case []byte:
			out = append(out, v...)
		case uint8:
			out = append(out, v)
		case uint16:
			out = binary.LittleEndian.AppendUint16(out, v)
		case uint32:
			out = binary.LittleEndian.AppendUint32(out, v)
		default:
			panic("unknown type")
		}
	}
	return out
}

func prefixed(body []byte) []byte { return le(uint16(len(body)+2), body) }

// build writes a package of a revision with two records and two images.
func build(revision int) []byte {
	id, _ := hex.DecodeString(uuids[revision-1])
	stamp := le(uint16(60), []byte{0, 0, 0}, uint8(5), uint8(4), uint8(3), uint8(2), uint8(1), uint16(2026), uint8(0))
	manifest := []byte{}
	var manifestData string
	if revision >= 4 {
		manifest, manifestData = le(uint32(3)), "man"
	}
	vendor := le(uint8(1), uint8(5), "APSKU", []byte{0xde, 0xad})
	record := func(mask uint8, set string) []byte {
		return prefixed(le(uint8(2), uint32(1), uint8(1), uint8(len(set)), uint16(4), manifest, mask, set,
			uint16(2), uint16(16), bytes.Repeat([]byte{0xab}, 16),
			uint16(0xFFFF), uint16(len(vendor)), vendor, "data", manifestData))
	}
	out := le(id, uint8(revision), uint16(0), stamp, uint16(8), uint8(1), uint8(11), "GB200-P4972", uint8(2),
		record(0b11, "BMC,EROT"), record(0b10, "BMC"))
	if revision >= 2 {
		out = append(out, le(uint8(1), prefixed([]byte("whatever")))...)
	}
	out = append(out, le(uint16(2))...)
	for i, version := range []string{"25.06-2", "01.03"} {
		out = append(out, le(uint16(0x000A), uint16(i+1), uint32(7), uint16(1), uint16(8), uint32(500), uint32(4), uint8(1), uint8(len(version)), version)...)
		if revision >= 3 {
			out = append(out, le(uint32(6), "opaque")...)
		}
	}
	out = append(out, le(uint32(0))...)
	if revision >= 4 {
		out = append(out, le(uint32(0))...)
	}
	return out
}

func TestReadPackageOfEveryRevision(t *testing.T) {
	for revision := 1; revision <= 4; revision++ {
		raw := append(build(revision), "FWFW"...)
		p, err := firmware.ReadPackage(iotest.OneByteReader(bytes.NewReader(raw)))
		require.NoError(t, err, revision)
		require.Equal(t, revision, p.Revision)
		require.Equal(t, "GB200-P4972", p.Version)
		require.Equal(t, time.Date(2026, 1, 2, 2, 4, 5, 0, time.UTC), p.Released)
		require.Len(t, p.Records, 2)
		require.Equal(t, []int{0, 1}, p.Records[0].Components)
		require.Equal(t, []int{1}, p.Records[1].Components)
		require.Equal(t, "EROT", p.Records[0].Name(1))
		require.Empty(t, p.Records[1].Name(1))
		require.Equal(t, "0xdead", p.Records[0].SKU())
		require.Equal(t, firmware.DescriptorUUID, p.Records[0].Descriptors[0].Type)
		require.Equal(t, "APSKU", p.Records[0].Descriptors[1].Title)
		require.Len(t, p.Components, 2)
		require.Equal(t, firmware.Component{Classification: 10, Identifier: 2, ComparisonStamp: 7, Options: 1, ActivationMethod: 8,
			Offset: 500, Size: 4, Version: "01.03"}, p.Components[1])
		require.NoError(t, p.CheckSize(504))
		require.ErrorIs(t, p.CheckSize(503), io.ErrUnexpectedEOF)
	}
}

func TestEveryTruncationIsRefusedWithItsOffset(t *testing.T) {
	for revision := 1; revision <= 4; revision++ {
		raw := build(revision)
		for n := range raw {
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
		raw := build(1)
		f(raw)
		return raw
	}
	// The first record begins at 48, its bitmap at 59, its first descriptor at 68.
	for field, raw := range map[string][]byte{
		"component bitmap length":      change(func(raw []byte) { raw[32] = 65 }),
		"header size":                  change(func(raw []byte) { raw[17] = 40 }),
		"component bitmap of record 0": change(func(raw []byte) { raw[59] = 0b100 }),
		"device record 0 length":       change(func(raw []byte) { raw[48], raw[49] = 1, 0 }),
		"set version":                  change(func(raw []byte) { raw[48] = 14 }),
		"descriptor 0":                 change(func(raw []byte) { raw[68], raw[69] = 0xFF, 0xFF }),
	} {
		_, err := firmware.ReadPackage(bytes.NewReader(raw))
		format, is := errors.AsType[*firmware.FormatError](err)
		require.True(t, is, "%s: %v", field, err)
		require.Equal(t, field, format.Field)
		require.ErrorContains(t, err, field)
	}
	_, err := firmware.ReadPackage(bytes.NewReader(make([]byte, 64)))
	require.ErrorIs(t, err, firmware.ErrNotPLDM)
	broken := errors.New("disk")
	_, err = firmware.ReadPackage(iotest.ErrReader(broken))
	require.ErrorIs(t, err, broken)
}

func FuzzReadPackage(f *testing.F) {
	for revision := 1; revision <= 4; revision++ {
		f.Add(build(revision))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		p, err := firmware.ReadPackage(bytes.NewReader(raw))
		if err != nil {
			return
		}
		for _, r := range p.Records {
			for n, i := range r.Components {
				require.Less(t, i, len(p.Components))
				_ = r.Name(n)
			}
			_ = r.SKU()
		}
	})
}
