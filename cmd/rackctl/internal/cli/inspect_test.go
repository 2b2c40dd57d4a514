// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/cmd/rackctl/internal/cli"
)

func TestInspect(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"tray.fwpkg", "bundle.fwpkg", "shelf.tar"} {
		for _, form := range []string{"table", "json", "yaml"} {
			got := run(t, "firmware", "inspect", "-o", form, filepath.Join("testdata", file))
			require.Equal(t, cli.ExitOK, got.code, got.stderr)
			require.Empty(t, got.stderr)
			golden(t, file+"."+form, got.stdout)
		}
	}
}

func TestInspectHeaders(t *testing.T) {
	t.Parallel()
	got := run(t, "firmware", "inspect", "-o", "json", "--headers", "testdata/tray.fwpkg")
	require.Equal(t, cli.ExitOK, got.code)
	require.NotContains(t, got.stdout, "sha256")
	require.Contains(t, got.stdout, `"payload_checksum": "not verified"`)
}

// damaged writes a copy of a file that is changed.
func damaged(t *testing.T, name string, change func([]byte) []byte) string {
	raw, err := os.ReadFile(filepath.Join("testdata", name))
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, change(raw), 0o600))
	return path
}

func TestInspectDamage(t *testing.T) {
	t.Parallel()
	last := func(raw []byte) []byte { raw[len(raw)-1]++; return raw }
	for _, tt := range []struct {
		name, path string
		code       int
		stderr     string
		// shown says that the file is shown all the same.
		shown bool
	}{
		{"payload", damaged(t, "tray.fwpkg", last), cli.ExitFailed, "payload checksum", true},
		{"header", damaged(t, "tray.fwpkg", func(raw []byte) []byte { raw[36]++; return raw }), cli.ExitFailed, "header checksum", true},
		{"cut", damaged(t, "tray.fwpkg", func(raw []byte) []byte { return raw[:100] }), cli.ExitFailed, "offset", false},
		{"cut archive", damaged(t, "shelf.tar", func(raw []byte) []byte { return raw[:700] }), cli.ExitFailed, "offset", false},
		{"missing", "testdata/nothing", cli.ExitFailed, "no such file", false},
		{"folder", "testdata", cli.ExitFailed, "no regular file", false},
		{"raw", damaged(t, "tray.fwpkg", func([]byte) []byte { return []byte("raw image") }), cli.ExitUnknown, "neither", true},
	} {
		got := run(t, "firmware", "inspect", "-o", "json", tt.path)
		require.Equal(t, tt.code, got.code, tt.name)
		require.Contains(t, got.stderr, tt.stderr, tt.name)
		require.Equal(t, tt.shown, json.Valid([]byte(got.stdout)), tt.name)
	}
	// Offsets in nested packages are those of the file; the outer package is shown.
	path := damaged(t, "bundle.fwpkg", func(raw []byte) []byte { return append(raw[:len(raw)-30], make([]byte, 30)...) })
	got := run(t, "firmware", "inspect", path)
	require.Equal(t, cli.ExitFailed, got.code)
	require.Contains(t, got.stdout, "BUNDLE-1")
}

// Texts of a package do nothing to a terminal.
func TestInspectHostileTexts(t *testing.T) {
	t.Parallel()
	path := damaged(t, "tray.fwpkg", func(raw []byte) []byte { copy(raw[36:], "\x1b[2J\x07"); return raw })
	got := run(t, "firmware", "inspect", path)
	require.NotContains(t, got.stdout, "\x1b")
	require.Contains(t, got.stdout, "\uFFFD[2J")
}

func TestExtractVME(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	got := run(t, "firmware", "extract-vme", "-d", dir, "testdata/bundle.fwpkg")
	require.Equal(t, cli.ExitOK, got.code, got.stderr)
	names, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, names, 1)
	path := filepath.Join(dir, names[0].Name())
	require.Equal(t, path+"\n", got.stdout)
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "cpld image", string(content))

	got = run(t, "firmware", "extract-vme", "-d", dir, "testdata/bundle.fwpkg")
	require.Equal(t, cli.ExitFailed, got.code, "it is not replaced")
	require.Contains(t, got.stderr, "exists")
	got = run(t, "firmware", "extract-vme", "-d", dir, "testdata/tray.fwpkg")
	require.Equal(t, cli.ExitFailed, got.code)
	require.Contains(t, got.stderr, "no CPLD image")
	names, err = os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, names, 1, "nothing half is left")
}
