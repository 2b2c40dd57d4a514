// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/rackbus/rackbus/cmd/rackctl/internal/cli"
)

var update = flag.Bool("update", false, "write the golden files")

// envAsProgram makes the test binary rackctl itself.
const envAsProgram = "RACKCTL_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(envAsProgram) != "" {
		os.Exit(cli.Main(cli.Terminal(), os.Args[1:]))
	}
	// Golden files have one time zone, which is read when the first time is formatted.
	if err := os.Setenv("TZ", "UTC"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// call is one command line and what it has said.
type call struct {
	code           int
	stdout, stderr string
}

// run runs a command line in this process.
func run(t *testing.T, args ...string) call { return runIn(t, func(*cli.Env) {}, args...) }

func runIn(t *testing.T, change func(*cli.Env), args ...string) call {
	t.Helper()
	var stdout, stderr bytes.Buffer
	env := cli.Env{
		Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr, Getenv: func(string) string { return "" },
		Signals: func() (<-chan os.Signal, func()) { return nil, func() {} },
	}
	change(&env)
	code := cli.Main(env, args)
	return call{code, stdout.String(), stderr.String()}
}

// golden compares with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ line, want string }{
		{"nonsense", "unknown command"},
		{"firmware nonsense", "unknown command"},
		{"firmware inspect", "accepts 1 arg"},
		{"firmware inspect --nonsense x", "unknown flag"},
		{"job list -o xml", "unknown form of output"},
		{"firmware inspect -o xml testdata/tray.fwpkg", "unknown form of output"},
		{"firmware update", "requires at least 1 arg"},
	} {
		got := run(t, strings.Fields(tt.line)...)
		require.Equal(t, cli.ExitUsage, got.code, tt.line)
		require.Contains(t, got.stderr, tt.want)
		require.Contains(t, got.stderr, "--help")
		require.Empty(t, got.stdout)
	}
}

func TestHelpAndCompletion(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"--help":                          "firmware",
		"":                                "Usage",
		"firmware":                        "inspect",
		"firmware update --help":          "Exit codes",
		"firmware inspect --help":         "Exit codes",
		"completion bash":                 "rackctl",
		"--version":                       "",
		"__complete firmware inspect -o ": "yaml",
		"__complete firmware update --type compute_gb200": "compute_gb200_nvidia",
	} {
		args := strings.Fields(line)
		if strings.HasSuffix(line, " ") {
			args = append(args, "")
		}
		got := run(t, args...)
		require.Equal(t, cli.ExitOK, got.code, "%s: %s", line, got.stderr)
		require.Contains(t, got.stdout, want, line)
	}
	require.NotContains(t, run(t, "firmware", "update", "--help").stdout, "--password ", "the refused flag is not shown")
}
