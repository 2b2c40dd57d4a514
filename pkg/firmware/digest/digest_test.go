// SPDX-License-Identifier: Apache-2.0

package digest_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/firmware/digest"
)

// TestAFileIsReadOnce changes a file behind the back of its time and size: the digest
// is the one that was taken first, until one of them differs.
func TestAFileIsReadOnce(t *testing.T) {
	var files digest.Files
	path := filepath.Join(t.TempDir(), "bmc.bin")
	at := time.Unix(1_800_000_000, 0)
	sum := func(content string, modified time.Time) [sha256.Size]byte {
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		require.NoError(t, os.Chtimes(path, modified, modified))
		f, err := os.Open(path)
		require.NoError(t, err)
		defer f.Close()
		got, err := files.Sum(t.Context(), f)
		require.NoError(t, err)
		return got
	}
	require.Equal(t, sha256.Sum256([]byte("one")), sum("one", at))
	require.Equal(t, sha256.Sum256([]byte("one")), sum("two", at))
	require.Equal(t, sha256.Sum256([]byte("two")), sum("two", at.Add(time.Second)))
	require.Equal(t, sha256.Sum256([]byte("longer")), sum("longer", at))
}

// TestWhatCannotBeReadIsTriedAgain opens a file that only can be written at first.
func TestWhatCannotBeReadIsTriedAgain(t *testing.T) {
	var files digest.Files
	path := filepath.Join(t.TempDir(), "bmc.bin")
	require.NoError(t, os.WriteFile(path, []byte("one"), 0o600))
	blind, err := os.OpenFile(path, os.O_WRONLY, 0)
	require.NoError(t, err)
	defer blind.Close()
	_, err = files.Sum(t.Context(), blind)
	require.Error(t, err)
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	got, err := files.Sum(t.Context(), f)
	require.NoError(t, err)
	require.Equal(t, sha256.Sum256([]byte("one")), got)

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = files.Sum(ended, f)
	require.ErrorIs(t, err, context.Canceled)
}

// TestManyFiles: however many there were, each has its own digest.
func TestManyFiles(t *testing.T) {
	var files digest.Files
	dir := t.TempDir()
	for i := range 600 {
		content := fmt.Sprint(i % 300)
		path := filepath.Join(dir, content)
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		f, err := os.Open(path)
		require.NoError(t, err)
		got, err := files.Sum(t.Context(), f)
		require.NoError(t, f.Close())
		require.NoError(t, err)
		require.Equal(t, sha256.Sum256([]byte(content)), got)
	}
}
