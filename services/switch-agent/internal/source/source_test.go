// SPDX-License-Identifier: Apache-2.0

package source_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/firmware/artifactcache"
	"github.com/rackbus/rackbus/pkg/job"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/services/switch-agent/internal/source"
)

var content = strings.Repeat("0123456789abcdef", 100)

// shelf is a catalogue with one file.
type shelf struct {
	file artifactcache.File
	err  error
}

func (s shelf) Wait(ctx context.Context, _ *rackbusv1.ArtifactRef, progress func(done, total int64)) (artifactcache.File, error) {
	progress(1, 2)
	if err := ctx.Err(); err != nil {
		return artifactcache.File{}, err
	}
	return s.file, s.err
}

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	outside := filepath.Join(t.TempDir(), "secret")
	for name, text := range map[string]string{filepath.Join(dir, "fw.bin"): content, filepath.Join(dir, "small"): "x", outside: content} {
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	}
	require.NoError(t, os.Symlink(outside, filepath.Join(dir, "link")))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "folder"), 0o700))
	sum := sha256.Sum256([]byte(content))
	files := source.New(dir, nil)

	f, err := files.Open(t.Context(), source.Ref{File: "fw.bin", Size: int64(len(content)), SHA256: sum[:]}, nil)
	require.NoError(t, err)
	defer f.Close()
	require.Equal(t, "fw.bin", f.Base)
	require.EqualValues(t, len(content), f.Size())
	got, err := io.ReadAll(io.NewSectionReader(f, 0, f.Size()))
	require.NoError(t, err)
	require.Equal(t, content, string(got))

	for name, tt := range map[string]struct {
		ref  source.Ref
		code job.FailureCode
	}{
		"missing":     {source.Ref{File: "none"}, job.FailureFileNotFound},
		"outside":     {source.Ref{File: "../secret"}, job.FailureFileUnreadable},
		"link":        {source.Ref{File: "link"}, job.FailureFileUnreadable},
		"folder":      {source.Ref{File: "folder"}, job.FailureFileUnreadable},
		"small":       {source.Ref{File: "small"}, job.FailureInvalidArgument},
		"other size":  {source.Ref{File: "fw.bin", Size: 5}, job.FailureFileChanged},
		"other sum":   {source.Ref{File: "fw.bin", SHA256: make([]byte, 32)}, job.FailureFileChanged},
		"no artifact": {source.Ref{Artifact: &rackbusv1.ArtifactRef{}}, job.FailureAgentNotEquipped},
	} {
		_, err := files.Open(t.Context(), tt.ref, nil)
		var f *agent.FailureError
		require.ErrorAs(t, err, &f, name)
		require.Equal(t, tt.code, f.Failure.FailureCode, "%s: %v", name, err)
	}
}

func TestOpenFromTheCatalogue(t *testing.T) {
	path := filepath.Join(t.TempDir(), "3f2a")
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	sum := sha256.Sum256([]byte(content))
	ref := source.Ref{Artifact: &rackbusv1.ArtifactRef{Cache: "c", Path: "prod/fw.bin"}, SHA256: sum[:]}
	good := shelf{file: artifactcache.File{Path: path, Size: int64(len(content)), SHA256: sum}}
	told := false
	f, err := source.New("", good).Open(t.Context(), ref, func(int64, int64) { told = true })
	require.NoError(t, err)
	require.NoError(t, f.Close())
	require.Equal(t, "fw.bin", f.Base, "not the name in the cache")
	require.True(t, told)

	other := good
	other.file.SHA256[0]++
	short := good
	short.file.Size++
	for name, tt := range map[string]struct {
		shelf shelf
		code  job.FailureCode
	}{
		"failed":     {shelf{err: errors.New("404")}, job.FailureArtifactDownloadFailed},
		"other file": {other, job.FailureFileChanged},
		"short":      {short, job.FailureFileChanged},
		"gone":       {shelf{file: artifactcache.File{Path: path + "x", SHA256: sum}}, job.FailureFileUnreadable},
	} {
		_, err := source.New("", tt.shelf).Open(t.Context(), ref, func(int64, int64) {})
		var f *agent.FailureError
		require.ErrorAs(t, err, &f, name)
		require.Equal(t, tt.code, f.Failure.FailureCode, "%s: %v", name, err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(agent.ErrCancelled)
	_, err = source.New("", good).Open(ctx, ref, func(int64, int64) {})
	require.ErrorIs(t, err, agent.ErrCancelled)
}

func TestCheckName(t *testing.T) {
	for _, name := range []string{"a", "nvos-amd64-25.02.4440.bin", "A_b-1.fwpkg"} {
		require.NoError(t, source.CheckName(name))
	}
	for _, name := range []string{"", ".a", "..", "a/b", "a b", "a'b", "a\n", "ä", "a;b", "a\\b"} {
		require.ErrorIs(t, source.CheckName(name), source.ErrName, "%q", name)
	}
}
