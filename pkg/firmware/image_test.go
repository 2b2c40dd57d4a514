// SPDX-License-Identifier: Apache-2.0

package firmware_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/firmware"
)

func images(t *testing.T, raw []byte) []firmware.Image {
	t.Helper()
	out, err := firmware.Images(bytes.NewReader(raw), int64(len(raw)))
	require.NoError(t, err)
	return out
}

func TestNestedPackages(t *testing.T) {
	hgx := one(2, "GB200-P4975", "HMC", "9.1", []byte("hmc image")).build()
	dgx := tray(4).build()
	raw := bundle(hgx, dgx).build()

	var versions []string
	var paths [][]int
	for part, err := range firmware.Packages(bytes.NewReader(raw), int64(len(raw))) {
		require.NoError(t, err)
		versions = append(versions, part.Package.Version)
		paths = append(paths, part.Path)
		inner := io.NewSectionReader(bytes.NewReader(raw), part.Offset, part.Size)
		_, err := firmware.Verify(t.Context(), inner, part.Size)
		require.NoError(t, err)
	}
	require.Equal(t, []string{"BUNDLE-1", "GB200-P4975", "GB200-P4972"}, versions)
	require.Equal(t, [][]int{nil, {0}, {1}}, paths)

	got := images(t, raw)
	require.Len(t, got, 4)
	require.Equal(t, "HMC", got[0].Name)
	require.Equal(t, "0x12", got[0].SKU)
	require.Equal(t, []int{0}, got[0].Path)
	body, err := io.ReadAll(got[0].Open(bytes.NewReader(raw)))
	require.NoError(t, err)
	require.Equal(t, "hmc image", string(body))
	require.Equal(t, "EROT", got[2].Name)
	require.Equal(t, "GB200-P4972", got[2].Package)
	body, err = io.ReadAll(got[2].Open(bytes.NewReader(raw)))
	require.NoError(t, err)
	require.Equal(t, "ROOT", string(body))
}

func TestImagesThatNoRecordNames(t *testing.T) {
	s := one(1, "v", "BMC", "1", []byte("a"))
	s.images = append(s.images, image{"2", []byte("b")})
	got := images(t, s.build())
	require.Len(t, got, 2)
	require.Equal(t, "BMC", got[0].Name)
	require.Empty(t, got[1].Name)
	require.Equal(t, "2", got[1].Version)
}

// An error inside a nested package tells the place in the file.
func TestNestedErrorsHaveFileOffsets(t *testing.T) {
	inner := one(1, "v", "BMC", "1", []byte("a")).build()
	at := int64(len(bundle(inner).build()) - len(inner))
	broken := bytes.Clone(inner)
	broken[32] = 65
	raw := bundle(broken).build()
	_, err := firmware.Images(bytes.NewReader(raw), int64(len(raw)))
	require.Equal(t, at+32, formatError(t, err).Offset)
}

func TestNestingIsBounded(t *testing.T) {
	raw := one(1, "v", "BMC", "1", []byte("a")).build()
	for range 4 {
		raw = bundle(raw).build()
	}
	_, err := firmware.Images(bytes.NewReader(raw), int64(len(raw)))
	require.ErrorIs(t, err, firmware.ErrNesting)
}

func TestExtractVME(t *testing.T) {
	cpld := one(1, "P4978", "CPLD", "0.22/b", []byte("cpld image")).build()
	for name, raw := range map[string][]byte{"plain": cpld, "nested": bundle(tray(1).build(), cpld).build()} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			vme, err := firmware.ExtractVME(t.Context(), bytes.NewReader(raw), int64(len(raw)), &out)
			require.NoError(t, err)
			require.Equal(t, "cpld image", out.String())
			require.Equal(t, sha256.Sum256([]byte("cpld image")), vme.SHA256)
			require.Regexp(t, `^CPLD_0\.22-b_[0-9a-f]{8}_image\.vme$`, vme.FileName)
		})
	}
	extract := func(raw []byte) error {
		_, err := firmware.ExtractVME(t.Context(), bytes.NewReader(raw), int64(len(raw)), io.Discard)
		return err
	}
	require.ErrorIs(t, extract(tray(1).build()), firmware.ErrNoCPLD)
	other := one(1, "P4978", "CPLD1", "0.23", []byte("another one")).build()
	require.ErrorIs(t, extract(bundle(cpld, other).build()), firmware.ErrSeveralCPLDs)
	full := errors.New("disk full")
	_, err := firmware.ExtractVME(t.Context(), bytes.NewReader(cpld), int64(len(cpld)), brokenWriter{full})
	require.ErrorIs(t, err, full)
}

type brokenWriter struct{ err error }

func (w brokenWriter) Write([]byte) (int, error) { return 0, w.err }
