// SPDX-License-Identifier: Apache-2.0

package firmware_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/firmware"
)

func verify(t *testing.T, raw []byte) (*firmware.Package, error) {
	return firmware.Verify(t.Context(), bytes.NewReader(raw), int64(len(raw)))
}

// formatError is err as one that tells where.
func formatError(t *testing.T, err error) *firmware.FormatError {
	t.Helper()
	format, is := errors.AsType[*firmware.FormatError](err)
	require.True(t, is, "%v", err)
	return format
}

func TestVerify(t *testing.T) {
	for revision := 1; revision <= 4; revision++ {
		raw := tray(revision).build()
		p, err := verify(t, raw)
		require.NoError(t, err)
		require.Equal(t, revision, p.Revision)

		// Any byte of the header that still parses is found by its checksum.
		broken := bytes.Clone(raw)
		broken[36]++ // of the package version
		_, err = verify(t, broken)
		require.ErrorIs(t, err, firmware.ErrChecksum)
		require.Equal(t, "header checksum", formatError(t, err).Field)

		_, err = verify(t, raw[:len(raw)-1])
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)

		broken = bytes.Clone(raw)
		broken[len(broken)-1]++ // of the last image
		_, err = verify(t, broken)
		if revision < 4 {
			require.NoError(t, err, "these revisions leave their images unprotected")
			continue
		}
		require.ErrorIs(t, err, firmware.ErrChecksum)
		require.Equal(t, "payload checksum", formatError(t, err).Field)
		require.Equal(t, p.HeaderEnd-4, formatError(t, err).Offset)
	}
	_, err := verify(t, []byte("a raw image of any kind"))
	require.ErrorIs(t, err, firmware.ErrNotPLDM)
}

func TestVerifyWithSignature(t *testing.T) {
	s := tray(4)
	s.signature = "signature"
	raw := s.build()
	_, err := verify(t, raw)
	require.NoError(t, err, "the checksum ends with the images")
	p, err := firmware.ReadPackage(bytes.NewReader(raw))
	require.NoError(t, err)
	binary.LittleEndian.PutUint32(raw[p.HeaderEnd-4:], crc32.ChecksumIEEE(raw[p.HeaderEnd:]))
	_, err = verify(t, raw)
	require.NoError(t, err, "the checksum ends with the file")
}

// A header that says another size than it has, or an image that lies in it.
func TestVerifyPlaces(t *testing.T) {
	raw := tray(1).build()
	raw[17]++
	_, err := verify(t, raw)
	require.Equal(t, "header size", formatError(t, err).Field)

	p, err := verify(t, tray(1).build())
	require.NoError(t, err)
	p.Components[0].Offset = 30
	require.Equal(t, "component image 0", formatError(t, p.CheckSize(10_000)).Field)
}

func TestVerifyEndsWithContext(t *testing.T) {
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	raw := tray(4).build()
	_, err := firmware.Verify(ctx, bytes.NewReader(raw), int64(len(raw)))
	require.ErrorIs(t, err, cause)
}

// zeros is a file that is zeros behind its head. It notes the largest read.
type zeros struct {
	head    []byte
	size    int64
	largest int
}

func (z *zeros) ReadAt(p []byte, at int64) (int, error) {
	z.largest = max(z.largest, len(p))
	if at >= z.size {
		return 0, io.EOF
	}
	n := int(min(int64(len(p)), z.size-at))
	clear(p[:n])
	if at < int64(len(z.head)) {
		copy(p[:n], z.head[at:])
	}
	return n, nil
}

// A large image is read in small pieces.
func TestLargeImagesAreStreamed(t *testing.T) {
	const size = 64 << 20
	s := one(4, "P4972", "BMC", "1", make([]byte, size))
	raw := s.build()
	file := &zeros{head: raw[:len(raw)-size], size: int64(len(raw))}
	p, err := firmware.Verify(t.Context(), file, file.size)
	require.NoError(t, err)
	sum, err := firmware.Digest(t.Context(), file, p.Components[0].Section())
	require.NoError(t, err)
	require.Equal(t, sha256.Sum256(raw[len(raw)-size:]), sum)
	require.LessOrEqual(t, file.largest, 1<<20)
}
