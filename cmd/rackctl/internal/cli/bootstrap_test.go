// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
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
	dir := ""
	for line := range strings.Lines(string(doc) + "\n" + strings.ReplaceAll(bootstrapExample, "\\\n", "") + "\n") {
		command, found := strings.CutPrefix(strings.TrimSpace(line), "rackctl bootstrap ")
		if !found {
			continue
		}
		lines++
		if !strings.Contains(command, "--profile leaf") { // a leaf site goes with the hub above
			dir = t.TempDir()
		}
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

// TestBootstrapAtOnce: a second run says that there is one.
func TestBootstrapAtOnce(t *testing.T) {
	dir := t.TempDir()
	args := []string{"--out", dir, "--api-host", "localhost", "--nats-host", "localhost"}
	code, _, errs := runBootstrap(t, args...)
	require.Equal(t, ExitOK, code, errs)
	held, err := os.Open(filepath.Join(dir, "secrets", ".lock"))
	require.NoError(t, err)
	defer held.Close()
	require.NoError(t, syscall.Flock(int(held.Fd()), syscall.LOCK_EX|syscall.LOCK_NB))
	code, out, errs := runBootstrap(t, args...)
	require.Equal(t, ExitFailed, code, errs)
	require.Empty(t, out)
	require.Contains(t, errs, "another run is at work in "+dir)
}

func TestBootstrapUsage(t *testing.T) {
	for _, args := range [][]string{
		{}, {"--out", "x"}, {"--out", "x", "--profile", "cluster", "--api-host", "a", "--nats-host", "n"}, {"--out", "x", "more"},
		{"--out", "x", "--profile", "leaf", "--site", "b", "--nats-host", "n", "--hub-host", "h"},
	} {
		code, _, errs := runBootstrap(t, args...)
		require.Equal(t, ExitUsage, code, "%v: %s", args, errs)
		require.NotEmpty(t, errs)
		require.NoDirExists(t, "x")
	}
}
