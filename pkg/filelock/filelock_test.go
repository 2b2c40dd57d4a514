// SPDX-License-Identifier: Apache-2.0

package filelock_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/filelock"
)

func TestTake(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, err := filelock.Take(path)
	require.NoError(t, err)

	_, err = filelock.Take(path)
	var held *filelock.HeldError
	require.ErrorAs(t, err, &held)
	require.Equal(t, filelock.HeldError{Path: path, PID: os.Getpid()}, *held)

	require.NoError(t, first.Close())
	second, err := filelock.Take(path)
	require.NoError(t, err, "it is free once it is closed, though the file is there")
	require.NoError(t, second.Close())
}

// The holder may not have noted itself yet.
func TestTakeFromAnUnknownHolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, err := filelock.Take(path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, first.Close()) })
	require.NoError(t, os.Truncate(path, 0))

	_, err = filelock.Take(path)
	var held *filelock.HeldError
	require.ErrorAs(t, err, &held)
	require.Empty(t, held.Holder())
}

func TestTakeWithoutTheDirectory(t *testing.T) {
	_, err := filelock.Take(filepath.Join(t.TempDir(), "missing", "lock"))
	require.ErrorIs(t, err, fs.ErrNotExist)
}
