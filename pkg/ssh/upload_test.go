// SPDX-License-Identifier: Apache-2.0

package ssh_test

import (
	"bytes"
	"context"
	"io"
	"io/fs"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/ssh"
	"github.com/rackbus/rackbus/pkg/ssh/sshtest"
)

func TestUpload(t *testing.T) {
	t.Parallel()
	s := sshtest.StartOpenSSH(t, sshtest.Options{})
	c := dialOpenSSH(t, s, s.Port())
	src, data := tempFile(t, 3<<20+17)

	t.Run("replaces in one step", func(t *testing.T) {
		path := newPath(t)
		require.NoError(t, os.WriteFile(path, []byte("older"), 0o600))
		require.NoError(t, os.WriteFile(ssh.TempPath(path), make([]byte, 9<<20), 0o600))
		done, err := c.Upload(t.Context(), ssh.Upload{Source: src, Path: path, Mode: 0o640, Verify: true})
		require.NoError(t, err)
		require.Equal(t, ssh.Uploaded{Sent: int64(len(data))}, done)
		require.True(t, bytes.Equal(data, readFile(t, path)))
		require.NoFileExists(t, ssh.TempPath(path))
		info, err := c.Stat(t.Context(), path)
		require.NoError(t, err)
		require.Equal(t, int64(len(data)), info.Size())
		require.EqualValues(t, 0o640, info.Mode().Perm())
	})
	t.Run("empty file", func(t *testing.T) {
		path := newPath(t)
		_, err := c.Upload(t.Context(), ssh.Upload{Source: io.NewSectionReader(bytes.NewReader(nil), 0, 0), Path: path, Verify: true})
		require.NoError(t, err)
		require.Empty(t, readFile(t, path))
	})
	t.Run("missing directory", func(t *testing.T) {
		_, err := c.Upload(t.Context(), ssh.Upload{Source: src, Path: newPath(t) + "/no/where"})
		require.True(t, ssh.IsKind(err, ssh.KindFile), "%v", err)
		require.ErrorIs(t, err, fs.ErrNotExist)
	})
	t.Run("source shorter than it says", func(t *testing.T) {
		path := newPath(t)
		short := io.NewSectionReader(bytes.NewReader(data[:100]), 0, 200)
		_, err := c.Upload(t.Context(), ssh.Upload{Source: short, Path: path})
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		require.NoFileExists(t, path)
		require.NoFileExists(t, ssh.TempPath(path))
	})
	t.Run("cancelled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		stop := sync.OnceFunc(cancel)
		_, err := c.Upload(ctx, ssh.Upload{Source: src, Path: newPath(t), Progress: func(int64, int64) { stop() }})
		require.ErrorIs(t, err, context.Canceled)
		require.NoError(t, c.Remove(t.Context(), newPath(t)), "the connection stands")
	})
	t.Run("stat and remove", func(t *testing.T) {
		path := newPath(t)
		_, err := c.Stat(t.Context(), path)
		require.ErrorIs(t, err, fs.ErrNotExist)
		require.NoError(t, c.Remove(t.Context(), path))
		require.NoError(t, os.WriteFile(path, nil, 0o600))
		require.NoError(t, c.Remove(t.Context(), path))
		require.NoFileExists(t, path)
	})
}

func TestUploadResumes(t *testing.T) {
	t.Parallel()
	s := sshtest.StartOpenSSH(t, sshtest.Options{})
	c := dialOpenSSH(t, s, s.Port())
	src, data := tempFile(t, 8<<20)
	up := func(path string) (ssh.Uploaded, error) {
		return c.Upload(t.Context(), ssh.Upload{Source: src, Path: path, Resume: true, Verify: true})
	}
	for _, tt := range []struct {
		name string
		// part is what an earlier try has left.
		part []byte
		want ssh.Uploaded
	}{
		{"nothing", nil, ssh.Uploaded{Sent: 8 << 20}},
		{"half", data[:4<<20], ssh.Uploaded{Sent: 6 << 20, Resumed: 2 << 20}},
		{"all, not renamed", data, ssh.Uploaded{Sent: 2 << 20, Resumed: 6 << 20}},
		{"less than what may have holes", data[:1<<20], ssh.Uploaded{Sent: 8 << 20}},
		{"of another file", make([]byte, 4<<20), ssh.Uploaded{Sent: 8 << 20}},
		{"longer", append(bytes.Clone(data), 1, 2, 3), ssh.Uploaded{Sent: 2 << 20, Resumed: 6 << 20}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := newPath(t)
			if tt.part != nil {
				require.NoError(t, os.WriteFile(ssh.TempPath(path), tt.part, 0o600))
			}
			done, err := up(path)
			require.NoError(t, err)
			require.Equal(t, tt.want, done)
			require.True(t, bytes.Equal(data, readFile(t, path)))

			done, err = up(path)
			require.NoError(t, err)
			require.Equal(t, ssh.Uploaded{Unchanged: true}, done)
		})
	}
	t.Run("same size, other content", func(t *testing.T) {
		path := newPath(t)
		require.NoError(t, os.WriteFile(path, make([]byte, len(data)), 0o600))
		done, err := up(path)
		require.NoError(t, err)
		require.False(t, done.Unchanged)
		require.True(t, bytes.Equal(data, readFile(t, path)))
	})
}
