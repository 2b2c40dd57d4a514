// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"context"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/rackbus/rackbus/cmd/rackctl/internal/cli"
	"github.com/rackbus/rackbus/pkg/certs"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

// Every way a call can fail has its exit code, and words that tell what to do.
func TestCallErrors(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for _, tt := range []struct {
		code codes.Code
		exit int
		says string
	}{
		{codes.Unavailable, cli.ExitUnreachable, "that the server runs"},
		{codes.Unimplemented, cli.ExitUnsupported, "has no ListRacks"},
		{codes.PermissionDenied, cli.ExitRefused, "ListRacks was refused: the server's words"},
		{codes.Unauthenticated, cli.ExitRefused, "rackctl whoami"},
		{codes.DeadlineExceeded, cli.ExitUnknown, "look before you try again"},
		{codes.NotFound, cli.ExitNotFound, "the server's words"},
		{codes.InvalidArgument, cli.ExitUsage, "--help"},
		{codes.FailedPrecondition, cli.ExitFailed, "the server's words"},
		{codes.AlreadyExists, cli.ExitFailed, "the server's words"},
		{codes.ResourceExhausted, cli.ExitFailed, "the server's words"},
		{codes.Internal, cli.ExitFailed, "the server's words"},
	} {
		l.fails("ListRacks", tt.code, "the server's words\x1b[2J")
		got := l.run("racks")
		require.Equal(t, tt.exit, got.code, tt.code)
		require.Contains(t, got.stderr, tt.says, tt.code)
		require.NotContains(t, got.stderr, "\x1b")
		require.Empty(t, got.stdout)
	}
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.on("ListRacks", func(ctx context.Context, _ proto.Message) (proto.Message, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	got := l.run("racks", "--timeout", "20ms")
	require.Equal(t, cli.ExitUnknown, got.code, got.stderr)
	require.Contains(t, got.stderr, "--timeout")
}

func TestConnections(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.says("GetVersion", &rackmanager.GetVersionResponse{Version: "v9"})
	got := l.run("version", "-o", "json")
	require.Equal(t, cli.ExitOK, got.code, got.stderr)
	require.Contains(t, got.stdout, `"server": "v9"`)

	closed, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	got = l.run("version", "--address", closed.Addr().String())
	require.Equal(t, cli.ExitUnreachable, got.code)
	require.Contains(t, got.stderr, closed.Addr().String())
	require.Equal(t, cli.ExitOK, l.run("version", "--client", "--address", closed.Addr().String()).code)

	got = l.run("version", "--tls-server-name", "another.name")
	require.Equal(t, cli.ExitUnreachable, got.code)
	require.Contains(t, got.stderr, "another.name")

	other, err := certs.NewCA()
	require.NoError(t, err)
	got = l.run("version", "--tls-ca", l.write("other.crt", other.PEM()))
	require.Equal(t, cli.ExitUnreachable, got.code, "a server of another CA gets no word")

	require.NoError(t, os.Chmod(l.path("me.key"), 0o644))
	got = l.run("version")
	require.Equal(t, cli.ExitUsage, got.code)
	require.Contains(t, got.stderr, "chmod 600")

	for _, drop := range []string{"RACKCTL_CA", "RACKCTL_CERT", "RACKCTL_KEY"} {
		got = l.runIn(with(map[string]string{drop: ""}), "version")
		require.Equal(t, cli.ExitUsage, got.code, drop)
		require.Contains(t, got.stderr, "mutual TLS")
	}
	got = run(t, "racks")
	require.Equal(t, cli.ExitUsage, got.code)
	require.Contains(t, got.stderr, "rackctl context set")
}

// Plaintext takes two switches, as on the side of servers.
func TestPlaintext(t *testing.T) {
	t.Parallel()
	got := run(t, "racks", "--address", "127.0.0.1:1", "--insecure")
	require.Equal(t, cli.ExitUsage, got.code)
	require.Contains(t, got.stderr, "RACKBUS_ALLOW_INSECURE=1")
	got = runIn(t, func(env *cli.Env) {
		env.Getenv = func(name string) string { return map[string]string{"RACKBUS_ALLOW_INSECURE": "1"}[name] }
	}, "racks", "--address", "127.0.0.1:1", "--insecure", "--timeout", "5s")
	require.Equal(t, cli.ExitUnreachable, got.code, got.stderr)
}

func TestContexts(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.says("ListRacks", &rackmanager.ListRacksResponse{RackIds: []string{"lab"}})
	l.says("ListNodeInventory", registered())
	home := t.TempDir()
	bare := func(env *cli.Env) {
		env.Getenv = func(name string) string { return map[string]string{"HOME": home}[name] }
	}
	do := func(line string, args ...string) call {
		return runIn(t, bare, append(strings.Fields(line), args...)...)
	}

	got := do("context list")
	require.Equal(t, cli.ExitOK, got.code)
	require.Contains(t, got.stderr, "no context")
	require.Equal(t, cli.ExitUsage, do("context set lab").code, "an address is needed")
	got = do("context set lab --default-output json", "--address", l.addr, "--tls-ca", l.path("ca.crt"), "--tls-cert", l.path("me.crt"), "--tls-key", l.path("me.key"))
	require.Equal(t, cli.ExitOK, got.code, got.stderr)
	require.Equal(t, cli.ExitOK, do("context set away --address away.example").code)
	file := home + "/.config/rackctl/config.yaml"
	info, err := os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	got = do("racks")
	require.Equal(t, cli.ExitOK, got.code, got.stderr)
	require.Contains(t, got.stdout, `"rack_ids"`, "the context's form of output")
	require.Contains(t, do("racks -o table").stdout, "GB200", "flags outrank it")
	got = do("context list -o table")
	require.Contains(t, got.stdout, "*  lab")
	require.Contains(t, do("context show --context away -o table").stdout, "away.example:8801", "the port is that of Rackbus")

	require.Equal(t, cli.ExitOK, do("context use away").code)
	got = do("racks")
	require.Equal(t, cli.ExitUsage, got.code)
	require.Contains(t, got.stderr, "away.example:8801 needs mutual TLS")
	require.Equal(t, cli.ExitOK, do("racks --context lab").code)
	got = do("racks --context nowhere")
	require.Equal(t, cli.ExitUsage, got.code)
	require.Contains(t, got.stderr, "away, lab")
	require.Contains(t, do("__complete context use", "").stdout, "away\nlab\n")
	require.Equal(t, cli.ExitOK, do("context delete away").code)
	require.Equal(t, cli.ExitUsage, do("context use away").code)

	// The environment outranks the context, flags outrank both.
	got = runIn(t, func(env *cli.Env) {
		bare(env)
		with(map[string]string{"RACKCTL_ADDRESS": "env.example:1", "RACKCTL_CONTEXT": "lab"})(env)
	}, "context", "show", "-o", "table", "--tls-server-name", "flag.example")
	require.Contains(t, got.stdout, "env.example:1")
	require.Contains(t, got.stdout, "flag.example")

	require.NoError(t, os.Chmod(file, 0o666))
	got = do("racks --context lab")
	require.Equal(t, cli.ExitUsage, got.code)
	require.Contains(t, got.stderr, "others can change")
	require.NoError(t, os.Chmod(file, 0o600))
	require.NoError(t, os.WriteFile(file, []byte("contexts: {lab: {hostname: x}}"), 0o600))
	got = do("racks")
	require.Equal(t, cli.ExitUsage, got.code)
	require.Contains(t, got.stderr, "hostname")
	require.Equal(t, cli.ExitUsage, do("racks --config /nowhere/config.yaml").code)
}

// Paths of a configuration are relative to its folder.
func TestContextPaths(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.says("ListRacks", &rackmanager.ListRacksResponse{RackIds: []string{"lab"}})
	config := l.write("config.yaml", []byte("current: lab\ncontexts:\n  lab: {address: '"+l.addr+"', ca: ca.crt, cert: me.crt, key: me.key}\n"))
	got := run(t, "racks", "--config", config, "-o", "json")
	require.Equal(t, cli.ExitOK, got.code, got.stderr)
	other := runIn(t, with(map[string]string{"RACKCTL_CONFIG": config}), "racks", "-o", "yaml")
	require.Equal(t, "rack_ids:\n- lab\n", other.stdout)
}

func TestCompletion(t *testing.T) {
	t.Parallel()
	l := furnished(t)
	for _, shell := range []string{"bash", "zsh", "fish"} {
		got := run(t, "completion", shell)
		require.Equal(t, cli.ExitOK, got.code)
		require.Contains(t, got.stdout, "rackctl")
		require.Contains(t, got.stdout, "__complete")
	}
	for _, tt := range []struct {
		line string
		want []string
	}{
		{"power on --rack", []string{"lab", "row2"}},
		{"power on", []string{"lab/tray-01", "row2/tray-01"}},
		{"power on --rack row2", []string{"tray-01"}},
		{"job watch", []string{batchID + "\tfirmware_update running November BMCs"}},
		{"job list --state", []string{"timed_out"}},
		{"firmware apply --object", []string{"ACME72_9.1.0"}},
		{"switch certificate --service", []string{"nvue-api"}},
		{"job list -o", []string{"wide", "yaml"}},
	} {
		got := l.run(append(append([]string{"__complete"}, strings.Fields(tt.line)...), "")...)
		require.Equal(t, cli.ExitOK, got.code, tt.line)
		for _, w := range tt.want {
			require.Contains(t, got.stdout, w+"\n", tt.line)
		}
		require.Contains(t, got.stdout, ":4\n", "no file names: %s", tt.line)
	}
	require.NotContains(t, l.run("__complete", "power", "on", "row").stdout, "lab")

	// A shell is not kept waiting.
	l.on("ListRacks", func(ctx context.Context, _ proto.Message) (proto.Message, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	got := l.runIn(func(env *cli.Env) { env.Timing.Completion = 10 * time.Millisecond }, "__complete", "power", "on", "--rack", "")
	require.Equal(t, ":4\n", got.stdout)
}
