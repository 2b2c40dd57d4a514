// SPDX-License-Identifier: Apache-2.0

package firmwarefile

import (
	"context"
	"crypto/sha256"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func write(t *testing.T, path, content string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
}

func TestFind(t *testing.T) {
	base := t.TempDir()
	root, outer := filepath.Join(base, "firmware"), filepath.Join(base, "outside.pkg")
	write(t, filepath.Join(root, "a.pkg"), "content")
	write(t, filepath.Join(root, "sub", "b.pkg"), "b")
	write(t, filepath.Join(root, "empty.pkg"), "")
	write(t, outer, "x")
	write(t, filepath.Join(base, "firmware-2", "c.pkg"), "c")
	require.NoError(t, os.Symlink(filepath.Join(root, "a.pkg"), filepath.Join(root, "inside")))
	require.NoError(t, os.Symlink(outer, filepath.Join(root, "escape")))
	require.NoError(t, os.Symlink("nowhere", filepath.Join(root, "dangling")))
	link := filepath.Join(base, "link")
	require.NoError(t, os.Symlink(root, link))

	for _, dir := range []string{root, link} {
		d, err := Open(dir)
		require.NoError(t, err)
		t.Cleanup(d.Close)
		for name, want := range map[string]string{
			"a.pkg": "a.pkg", "sub/b.pkg": "sub/b.pkg", "sub/../a.pkg": "a.pkg", "./a.pkg": "a.pkg",
			"inside": "a.pkg", filepath.Join(dir, "a.pkg"): "a.pkg", filepath.Join(root, "a.pkg"): "a.pkg",
		} {
			f, err := d.Find(t.Context(), name)
			require.NoError(t, err, name)
			require.Equal(t, want, f.Path, name)
			require.NotZero(t, f.Size)
		}
		f, err := d.Find(t.Context(), "a.pkg")
		require.NoError(t, err)
		require.Equal(t, sha256.Sum256([]byte("content")), f.SHA256)
		for name, text := range map[string]string{
			"missing.pkg":         "firmware file not found: " + filepath.Join(dir, "missing.pkg"),
			"dangling":            "firmware file not found",
			"../outside.pkg":      "is outside firmware directory " + dir,
			"../nothing.pkg":      "is outside firmware directory",
			outer:                 "is outside firmware directory",
			"escape":              "is outside firmware directory",
			"../firmware-2/c.pkg": "is outside firmware directory",
			"sub":                 "is not a regular file",
			".":                   "is outside firmware directory",
			"":                    "is outside firmware directory",
			"empty.pkg":           "is empty",
			"a.pkg/x":             "cannot be resolved",
		} {
			_, err := d.Find(t.Context(), name)
			require.ErrorIs(t, err, ErrUnusable, name)
			require.ErrorContains(t, err, text, name)
		}
	}
	_, err := Open(filepath.Join(base, "nothing"))
	require.Error(t, err)
	_, err = Open(outer)
	require.ErrorContains(t, err, "is no directory")
}

func TestDigestFollowsTheFile(t *testing.T) {
	root := t.TempDir()
	path := filepath.Join(root, "a.pkg")
	write(t, path, "one")
	d, err := Open(root)
	require.NoError(t, err)
	defer d.Close()
	first, err := d.Find(t.Context(), "a.pkg")
	require.NoError(t, err)
	require.Len(t, d.digests, 1)

	write(t, path, "two")
	require.NoError(t, os.Chtimes(path, time.Now(), time.Now().Add(time.Minute)))
	second, err := d.Find(t.Context(), "a.pkg")
	require.NoError(t, err)
	require.NotEqual(t, first.SHA256, second.SHA256)
	require.Len(t, d.digests, 1)
}

// A caller that goes away leaves the work to those that come after.
func TestDigestSurvivesItsCaller(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, "a.pkg"), "content")
	d, err := Open(root)
	require.NoError(t, err)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err = d.Find(cancelled, "a.pkg"); err != nil { // it may have been quick enough
		require.ErrorIs(t, err, context.Canceled)
		require.NotErrorIs(t, err, ErrUnusable)
	}
	errs := make([]error, 20)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { _, errs[i] = d.Find(t.Context(), "a.pkg") })
	}
	wg.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	require.Len(t, d.digests, 1)

	d.Close()
	_, err = d.Find(t.Context(), "a.pkg")
	require.NoError(t, err, "what is known stays known")
	write(t, filepath.Join(root, "b.pkg"), "b")
	_, err = d.Find(t.Context(), "b.pkg")
	require.ErrorIs(t, err, context.Canceled)
}
