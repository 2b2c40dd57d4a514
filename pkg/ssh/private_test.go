// SPDX-License-Identifier: Apache-2.0

package ssh_test

import (
	"io/fs"
	"os"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/ssh"
	"github.com/rackbus/rackbus/pkg/ssh/sshtest"
)

// A private file is private from its first byte on.
func TestPrivateUpload(t *testing.T) {
	t.Parallel()
	s := sshtest.StartOpenSSH(t, sshtest.Options{})
	c := dialOpenSSH(t, s, s.Port())
	source, content := tempFile(t, 1<<20)
	path := newPath(t)
	var seen atomic.Uint32
	_, err := c.Upload(t.Context(), ssh.Upload{Source: source, Path: path, Mode: 0o400, Progress: func(int64, int64) {
		if info, err := os.Stat(ssh.TempPath(path)); err == nil {
			seen.Store(uint32(info.Mode().Perm()))
		}
	}})
	require.NoError(t, err)
	require.EqualValues(t, 0o600, seen.Load())
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o400), info.Mode().Perm())
	require.Equal(t, content, readFile(t, path))
}
