// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLinkKey(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	_, err := LoadLinkKey(dir)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NoError(t, EnsureLinkKey(dir))
	key, err := LoadLinkKey(dir)
	require.NoError(t, err)
	require.Len(t, key.Bytes(), 32)
	info, err := os.Stat(filepath.Join(dir, "link.key"))
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o600), info.Mode().Perm())

	require.NoError(t, EnsureLinkKey(dir))
	again, err := LoadLinkKey(dir)
	require.NoError(t, err)
	require.Equal(t, key.Bytes(), again.Bytes(), "a key that is there is kept")
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, left, 1)

	require.NoError(t, os.Chmod(filepath.Join(dir, "link.key"), 0o640))
	_, err = LoadLinkKey(dir)
	require.ErrorIs(t, err, ErrInsecureMode)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "link.key"), []byte("abcd"), 0o600))
	require.NoError(t, os.Chmod(filepath.Join(dir, "link.key"), 0o600))
	_, err = LoadLinkKey(dir)
	require.ErrorIs(t, err, ErrInvalidKey)
}
