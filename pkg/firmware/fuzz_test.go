// SPDX-License-Identifier: Apache-2.0

package firmware_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/firmware"
)

// refused checks that an error tells a place inside the file.
func refused(t *testing.T, err error, size int64, others ...error) {
	t.Helper()
	for _, other := range others {
		if errors.Is(err, other) {
			return
		}
	}
	format := formatError(t, err)
	require.GreaterOrEqual(t, format.Offset, int64(0))
	if !strings.HasPrefix(format.Field, "component image ") { // those may be told to lie anywhere
		require.LessOrEqual(t, format.Offset, size)
	}
}

// FuzzPLDM: whatever the bytes, reading ends, every error tells its place, and
// what is read lies in the file.
func FuzzPLDM(f *testing.F) {
	for revision := 1; revision <= 4; revision++ {
		f.Add(tray(revision).build())
	}
	f.Add(bundle(one(2, "HGX", "HMC", "1", []byte("a")).build(), tray(4).build()).build())
	f.Fuzz(func(t *testing.T, raw []byte) {
		file, size := bytes.NewReader(raw), int64(len(raw))
		p, err := firmware.ReadPackage(file)
		if err != nil {
			refused(t, err, size, firmware.ErrNotPLDM)
			return
		}
		for _, r := range p.Records {
			for n, i := range r.Components {
				require.Less(t, i, len(p.Components))
				_, _ = r.Name(n), r.SKUOf(n)
			}
			for _, d := range r.Descriptors {
				_, _ = d.Name(), d.Value()
			}
		}
		if _, err := firmware.Verify(t.Context(), file, size); err != nil {
			refused(t, err, size)
		}
		images, err := firmware.Images(file, size)
		if err != nil {
			refused(t, err, size)
			return
		}
		for _, i := range images {
			require.LessOrEqual(t, i.End(), size)
			require.NoError(t, i.WriteTo(t.Context(), io.Discard, file))
		}
		if _, err := firmware.ExtractVME(t.Context(), file, size, io.Discard); err != nil {
			refused(t, err, size, firmware.ErrNoCPLD, firmware.ErrSeveralCPLDs)
		}
	})
}

// FuzzTar is the same for archives.
func FuzzTar(f *testing.F) {
	raw := archive(f, plain("image.bin", "x"), plain("MANIFEST", manifest))
	f.Add(raw)
	f.Add(old(bytes.Clone(raw), 0))
	f.Add(archive(f, plain("psu.bin", "x")))
	f.Fuzz(func(t *testing.T, raw []byte) {
		// Fuzzing would never find a checksum; renew it so that more is reached.
		if len(raw) >= 512 {
			raw = seal(bytes.Clone(raw), 0)
		}
		size := int64(len(raw))
		a, err := firmware.ReadArchive(bytes.NewReader(raw), size)
		if err != nil {
			refused(t, err, size, firmware.ErrNotArchive)
			return
		}
		require.NotEmpty(t, a.Version)
		for _, e := range a.Entries {
			require.LessOrEqual(t, e.End(), size)
			require.NotContains(t, "/"+e.Name+"/", "/../")
		}
	})
}
