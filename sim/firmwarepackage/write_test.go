// SPDX-License-Identifier: Apache-2.0

package firmwarepackage

import (
	"archive/tar"
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// full is a package that uses everything its revision has.
func full(revision int) Spec {
	stamp := uint32(7)
	s := Spec{
		Revision: revision, Version: "GB200-P4975_9",
		Components: []Component{
			{Name: "HMC", Version: "1", Payload: []byte("first image"), Stamp: 5},
			{Name: "ERoT", Version: "22", Size: 70_000, Options: 1, Activation: 2},
			{Name: "GPU", Version: "333"},
		},
		Records: []Record{
			{Components: []int{0, 2}, Flags: 1, PackageData: []byte("package data"), Descriptors: []Descriptor{
				{Type: DescriptorUUID, Data: bytes.Repeat([]byte{0xAB}, 16)},
				{Type: DescriptorVendor, Title: "APSKU", Data: []byte{1, 2, 3, 4}},
			}},
			{Components: []int{1}, SetVersion: "ERoT"},
		},
	}
	if revision >= 2 {
		s.Downstream = []Downstream{{
			Components: []int{1}, MinVersion: "0.9", MinStamp: &stamp, PackageData: []byte("down"),
			Descriptors: []Descriptor{{Type: DescriptorIANA, Data: []byte{1, 0, 0, 0}}},
		}, {Descriptors: []Descriptor{{Type: DescriptorIANA, Data: []byte{2, 0, 0, 0}}}}}
	}
	if revision >= 3 {
		s.Components[1].Opaque = []byte("opaque")
	}
	if revision >= 4 {
		s.Records[0].ReferenceManifest = []byte("manifest")
		s.Downstream[0].ReferenceManifest = []byte("downstream manifest")
	}
	return s
}

func TestRevisions(t *testing.T) {
	for revision := 1; revision <= 4; revision++ {
		b, err := Build(full(revision))
		require.NoError(t, err)
		h, err := ParseHeader(b)
		require.NoError(t, err, revision)
		require.Equal(t, Header{
			Version: "GB200-P4975_9", Revision: revision, DeviceUUID: strings.Repeat("ab", 16), Images: []Image{
				{Name: "HMC", Version: "1", SKU: "01020304", Stamp: 5}, {Name: "GPU", Version: "333", SKU: "01020304"},
				{Name: "ERoT", Version: "22"},
			}, ChecksumOK: true,
		}, h)
		require.Equal(t, byte(revision), b[16])
		size := int(binary.LittleEndian.Uint16(b[17:]))
		require.Equal(t, "first image", string(b[size:size+11]))
		require.Len(t, b, size+11+70_000+len("GPU 333\n"))
		if revision == 4 {
			require.Equal(t, crc32.ChecksumIEEE(b[:size-8]), binary.LittleEndian.Uint32(b[size-8:]))
			require.Equal(t, crc32.ChecksumIEEE(b[size:]), binary.LittleEndian.Uint32(b[size-4:]))
		} else {
			require.Equal(t, crc32.ChecksumIEEE(b[:size-4]), binary.LittleEndian.Uint32(b[size-4:]))
		}
		for cut := range size - 4 {
			_, err := ParseHeader(b[:cut])
			require.ErrorIs(t, err, ErrNotPackage, "cut at %d", cut)
		}
	}
}

func TestRevisionRules(t *testing.T) {
	plain := []Component{{Name: "a"}}
	for name, spec := range map[string]Spec{
		"no such revision":   {Revision: 5, Components: plain},
		"downstream in 1":    {Components: plain, Downstream: []Downstream{{}}},
		"opaque in 2":        {Revision: 2, Components: []Component{{Name: "a", Opaque: []byte{1}}}},
		"manifest in 3":      {Revision: 3, Components: plain, Records: []Record{{ReferenceManifest: []byte{1}}}},
		"no such component":  {Components: plain, Records: []Record{{Components: []int{1}}}},
		"header too large":   {Components: plain, Records: []Record{{PackageData: make([]byte, 40_000)}, {PackageData: make([]byte, 40_000)}}},
		"more than 4 GiB":    {Components: []Component{{Name: "a", Size: 1 << 32}}},
		"nested one invalid": {Components: []Component{{Name: "a", Nested: &Spec{}}}},
	} {
		_, err := Write(io.Discard, spec)
		require.ErrorIs(t, err, ErrInvalidSpec, name)
	}
}

// counter counts what it is given and keeps nothing.
type counter struct{ n int64 }

func (c *counter) Write(b []byte) (int, error) {
	c.n += int64(len(b))
	return len(b), nil
}

func TestLargePackage(t *testing.T) {
	const size = 64 << 20
	var out counter
	n, err := Write(&out, Spec{Version: "big", Components: []Component{{Name: "BMC", Version: "1", Size: size}}})
	require.NoError(t, err)
	require.Equal(t, out.n, n)
	require.Greater(t, n, int64(size))

	path := filepath.Join(t.TempDir(), "p.fwpkg")
	n, err = WriteFile(path, full(4))
	require.NoError(t, err)
	onDisk, err := os.ReadFile(path)
	require.NoError(t, err)
	inMemory, err := Build(full(4))
	require.NoError(t, err)
	require.Equal(t, inMemory, onDisk)
	require.Len(t, onDisk, int(n))
}

func TestBundle(t *testing.T) {
	hgx, err := Product("P4975", "1")
	require.NoError(t, err)
	dgx, err := Product("P4972", "1")
	require.NoError(t, err)
	b, err := Build(Bundle("bundle", hgx, dgx))
	require.NoError(t, err)
	size := int(binary.LittleEndian.Uint16(b[17:]))
	inner, err := ParseHeader(b[size:])
	require.NoError(t, err)
	require.Equal(t, "GB200-P4975_1", inner.Version)
	want, err := Build(dgx)
	require.NoError(t, err)
	require.True(t, bytes.HasSuffix(b, want))
}

func TestProducts(t *testing.T) {
	for _, number := range []string{"P4972", "P4975", "P4058", "P4059", "P4110", "P4109"} {
		s, err := Product(number, "25.09")
		require.NoError(t, err)
		require.Contains(t, s.Version, number)
		require.Contains(t, FileName(number, "25.09"), s.Version)
		_, err = Build(s)
		require.NoError(t, err)
	}
	_, err := Product("P1", "1")
	require.ErrorIs(t, err, ErrInvalidSpec)
	b, err := Build(DeltaController("1.2.0"))
	require.NoError(t, err)
	f := Identify(b, "")
	require.Equal(t, "0b4e248c8bcf41379b99d0394c808ba5", f.DeviceUUID)
	require.Equal(t, "1.2.0", f.Version)
}

func TestForSKU(t *testing.T) {
	for _, tt := range []struct {
		image, sku string
		want       bool
	}{
		{"", "0x4A350020", true}, {"4a350020", "0x4A350020", true}, {"2000354a", "0x4A350020", true},
		{"4a350021", "0x4A350020", false}, {"41", "A", true}, {"41", "B", false}, {"x", "B", false},
	} {
		require.Equal(t, tt.want, Image{SKU: tt.image}.ForSKU(tt.sku), "%+v", tt)
	}
}

func TestArchives(t *testing.T) {
	for _, v7 := range []bool{false, true} {
		var out bytes.Buffer
		require.NoError(t, WriteArchive(&out, Archive{
			Purpose: "LITEON-PSU", Version: "F1F1", Model: "PF-1333-7R", V7: v7, Entries: []Entry{
				{Name: "image.bin", Size: 100_000}, {Name: "../up", Type: tar.TypeSymlink, Link: "/etc/passwd"},
			},
		}))
		require.Equal(t, !v7, bytes.Contains(out.Bytes(), []byte("ustar")))
		require.Equal(t, File{Form: FormArchive, Name: "x", Version: "F1F1", Purpose: "LITEON-PSU"}, Identify(out.Bytes(), "x"))
		r := tar.NewReader(&out)
		var names []string
		for {
			h, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
			names = append(names, h.Name+h.Linkname)
			n, err := io.Copy(io.Discard, r)
			require.NoError(t, err)
			require.Equal(t, h.Size, n)
		}
		require.Equal(t, []string{"MANIFEST", "image.bin", "../up/etc/passwd"}, names)
	}
	var out bytes.Buffer
	require.NoError(t, WriteArchive(&out, Archive{NoManifest: true, Entries: []Entry{{Name: "sp-x_F1F1_.bin", Data: []byte("x")}}}))
	require.Equal(t, FormRaw, Identify(out.Bytes(), "x").Form)
}
