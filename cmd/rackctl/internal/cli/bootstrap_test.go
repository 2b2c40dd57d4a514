// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// runBootstrap runs one command line.
func runBootstrap(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = Main(Env{Stdout: &out, Stderr: &errs, Getenv: func(string) string { return "" }}, append([]string{"bootstrap"}, args...))
	return code, out.String(), errs.String()
}

// TestBootstrapAsDocumented runs the lines of docs/running.md and of the command's own help.
func TestBootstrapAsDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../../../docs/running.md")
	require.NoError(t, err)
	lines := 0
	for line := range strings.Lines(string(doc) + "\n" + strings.ReplaceAll(bootstrapExample, "\\\n", "") + "\n") {
		command, found := strings.CutPrefix(strings.TrimSpace(line), "rackctl bootstrap ")
		if !found {
			continue
		}
		lines++
		dir := t.TempDir()
		code, out, errs := runBootstrap(t, strings.Fields(strings.Replace(command, "--out site", "--out "+dir, 1))...)
		require.Equal(t, ExitOK, code, "%s: %s", command, errs)
		for _, place := range []string{"nats", "agent"} {
			require.Contains(t, out, place, command)
		}
		require.DirExists(t, filepath.Join(dir, "install"))
	}
	require.Equal(t, 6, lines)
}

// TestBootstrapAgain: it says what it has kept.
func TestBootstrapAgain(t *testing.T) {
	dir := t.TempDir()
	args := []string{"--out", dir, "--api-host", "localhost", "--nats-host", "localhost"}
	code, out, errs := runBootstrap(t, args...)
	require.Equal(t, ExitOK, code, errs)
	require.NotContains(t, out, "Kept")
	require.NotContains(t, out, "seed\n", "no secret is printed")

	config := filepath.Join(dir, "install", "api", "config.toml")
	require.NoError(t, os.WriteFile(config, nil, 0o600))
	code, out, errs = runBootstrap(t, args...)
	require.Equal(t, ExitOK, code, errs)
	require.Contains(t, out, "0 files and directories made.")
	require.Contains(t, out, config)
	text, err := os.ReadFile(config)
	require.NoError(t, err)
	require.Empty(t, text)
}

func TestBootstrapUsage(t *testing.T) {
	for _, args := range [][]string{
		{}, {"--out", "x"}, {"--out", "x", "--profile", "cluster", "--api-host", "a", "--nats-host", "n"}, {"--out", "x", "more"},
	} {
		code, _, errs := runBootstrap(t, args...)
		require.Equal(t, ExitUsage, code, "%v: %s", args, errs)
		require.NotEmpty(t, errs)
		require.NoDirExists(t, "x")
	}
}
