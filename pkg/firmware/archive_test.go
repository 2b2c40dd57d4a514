// SPDX-License-Identifier: Apache-2.0

package firmware_test

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/firmware"
)

const manifest = "purpose=xyz.openbmc_project.Software.Version.VersionPurpose.BMC\nversion=r1.3.9\nmodel=PMC\nKeyType=x\n"

type file struct {
	header tar.Header
	body   string
}

// archive writes a tar in ustar, or for names and links that this has no room
// for, in pax.
func archive(t testing.TB, files ...file) []byte {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range files {
		f.header.Size, f.header.Mode = int64(len(f.body)), 0o644
		require.NoError(t, w.WriteHeader(&f.header))
		_, err := io.WriteString(w, f.body)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return out.Bytes()
}

func plain(name, body string) file { return file{tar.Header{Name: name, Typeflag: tar.TypeReg}, body} }

// seal renews the checksum of the header at an offset.
func seal(raw []byte, at int) []byte {
	copy(raw[at+148:], "        ")
	sum := 0
	for _, b := range raw[at : at+512] {
		sum += int(b)
	}
	copy(raw[at+148:], fmt.Sprintf("%06o\x00 ", sum))
	return raw
}

// old makes a V7 archive: no magic word, nothing behind the link name.
func old(raw []byte, at int) []byte {
	clear(raw[at+257 : at+512])
	raw[at+156] = 0
	return seal(raw, at)
}

func read(raw []byte) (*firmware.Archive, error) {
	return firmware.ReadArchive(bytes.NewReader(raw), int64(len(raw)))
}

func TestReadArchive(t *testing.T) {
	body := strings.Repeat("x", 700)
	raw := archive(t, plain("image.bin", body), plain("MANIFEST", manifest))
	for name, raw := range map[string][]byte{
		"ustar": raw, "V7": old(bytes.Clone(raw), 0),
		"in a folder": archive(t, file{tar.Header{Name: "fw/", Typeflag: tar.TypeDir}, ""}, plain("fw/image.bin", body), plain("./MANIFEST", manifest)),
	} {
		a, err := read(raw)
		require.NoError(t, err, name)
		require.True(t, a.Manifest)
		require.Equal(t, firmware.PurposeBMC, a.Purpose)
		require.Equal(t, "r1.3.9", a.Version)
		require.Equal(t, "PMC", a.Model)
		require.Len(t, a.Entries, 2)
		require.Equal(t, body, content(raw, a.Entries[0].Section))
	}
}

func TestPurposes(t *testing.T) {
	for text, want := range map[string]firmware.Purpose{
		"PSU": firmware.PurposePSU, "a.VersionPurpose.PSU": firmware.PurposePSU, "mcu": firmware.PurposeMCU,
		"PLDM": firmware.PurposeMCU, "OpenBMC": firmware.PurposeBMC, "x.BMC": firmware.PurposeBMC,
	} {
		a, err := read(archive(t, plain("MANIFEST", "purpose="+text+"\nversion=1\nmodel=m")))
		require.NoError(t, err, text)
		require.Equal(t, want, a.Purpose, text)
	}
}

func TestArchiveWithoutManifest(t *testing.T) {
	a, err := read(archive(t, plain("psu.bin", "x")))
	require.NoError(t, err)
	require.Equal(t, &firmware.Archive{
		Purpose: firmware.PurposePSU, Version: "N/A", Model: "PowerShelf", Entries: a.Entries,
	}, a)
}

func TestRefusedArchives(t *testing.T) {
	good := archive(t, plain("image.bin", "x"), plain("MANIFEST", manifest))
	change := func(f func(raw []byte)) []byte {
		raw := bytes.Clone(good)
		f(raw)
		return raw
	}
	text := func(m string) []byte { return archive(t, plain("MANIFEST", m)) }
	for name, tt := range map[string]struct {
		raw  []byte
		at   int64
		text string
	}{
		"symbolic link": {archive(t, file{tar.Header{Name: "a", Linkname: "b", Typeflag: tar.TypeSymlink}, ""}), 156, "only files and folders"},
		"hard link":     {archive(t, file{tar.Header{Name: "a", Linkname: "b", Typeflag: tar.TypeLink}, ""}), 156, "only files and folders"},
		"pax":           {archive(t, plain(strings.Repeat("n", 300), "x")), 156, "only files and folders"},
		"absolute":      {archive(t, plain("/etc/passwd", "x")), 0, "not relative"},
		"leads out":     {archive(t, plain("fw/../../x", "x")), 0, "leads out"},
		"checksum":      {change(func(raw []byte) { raw[1024]++ }), 1024 + 148, "checksum"},
		"size":          {change(func(raw []byte) { copy(raw[124:], "zzzz"); seal(raw, 0) }), 124, "no octal number"},
		"too long":      {change(func(raw []byte) { copy(raw[124:], "77777777777"); seal(raw, 0) }), 124, "the file at"},
		"no end":        {good[:2048], 2048, "unexpected EOF"},
		"cut header":    {good[:1100], 1024, "unexpected EOF"},
		"no version":    {text("purpose=PSU\nmodel=m"), 512, "names no version"},
		"no purpose":    {text("version=1\nmodel=m"), 512, "names no purpose"},
		"no model":      {text("version=1\npurpose=PSU"), 512, "names no model"},
		"purpose":       {text("version=1\npurpose=tea\nmodel=m"), 522, "unknown purpose"},
		"large":         {text(strings.Repeat("#", 70_000)), 512, "at most"},
		"two":           {archive(t, plain("MANIFEST", manifest), plain("a/MANIFEST", manifest)), 1024, "a second MANIFEST"},
	} {
		_, err := read(tt.raw)
		format := formatError(t, err)
		require.Equal(t, tt.at, format.Offset, "%s: %v", name, err)
		require.ErrorContains(t, err, tt.text, name)
	}
	for _, raw := range [][]byte{nil, []byte("raw"), make([]byte, 2048), tray(1).build()} {
		_, err := read(raw)
		require.ErrorIs(t, err, firmware.ErrNotArchive)
	}
}

func TestFormatOf(t *testing.T) {
	for want, raw := range map[firmware.Format][]byte{
		firmware.FormatPLDM: tray(3).build(), firmware.FormatTar: archive(t, plain("a", "b")), firmware.FormatRaw: []byte("short"),
	} {
		got, err := firmware.FormatOf(bytes.NewReader(raw))
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}
