// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/cmd/rackctl/internal/cli"
	"github.com/rackbus/rackbus/pkg/flint"
	"github.com/rackbus/rackbus/pkg/redfishagent"
	"github.com/rackbus/rackbus/pkg/redfishagent/agenttest"
	"github.com/rackbus/rackbus/pkg/ssh"
	"github.com/rackbus/rackbus/sim"
	"github.com/rackbus/rackbus/sim/host"
)

// Network devices are flashed from the tray's operating system, beside a package for
// its BMC, with a login of their own.
func TestUpdateInBand(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	var server *host.Server
	b := newBench(t, func(o *sim.Options) {
		o.HostEndpoint = func(tray *sim.Device) (*sim.HostEndpoint, error) {
			var err error
			server, err = host.Start(host.Options{Machine: tray, Boot: 30 * time.Millisecond, Flash: 30 * time.Millisecond, Poll: 5 * time.Millisecond})
			if err != nil {
				return nil, err
			}
			t.Cleanup(func() { require.NoError(t, server.Close()) })
			return &sim.HostEndpoint{Address: server.Address(), Port: server.Port(), Username: server.Username(), Password: server.Password()}, nil
		}
	})
	nic := b.file("cx7.signed.reduced.bin", host.BuildImage("MT_0000001069", "28.40.2000", 300<<10))
	bmc := b.pldm("nvfw_P4972_9.fwpkg", "99.01", "BMC")
	known := filepath.Join(home, ".ssh", "known_hosts")
	lan := func(env *cli.Env) {
		env.Getenv = func(name string) string {
			return map[string]string{"RACKCTL_BMC_PASSWORD": b.tray.Password(), "RACKCTL_HOST_PASSWORD": server.Password()}[name]
		}
		env.Devices = func(o *redfishagent.Options) {
			require.NotNil(t, o.InBand)
			keys, err := ssh.OpenHostKeys(ssh.PolicyTrustOnFirstUse, known, slog.New(slog.DiscardHandler))
			require.NoError(t, err)
			o.Timing = agenttest.Timing()
			o.InBand, err = flint.New(flint.Options{HostKeys: keys, Timing: flint.Timing{ReadyInterval: 20 * time.Millisecond, ReadyAttempts: 200}})
			require.NoError(t, err)
		}
	}
	got := b.updateIn(lan, nic, bmc, "--component", "CX7", "--component", "BMC", "-o", "json",
		"--host", net.JoinHostPort(server.Address(), fmt.Sprint(server.Port())), "--host-user", server.Username())
	require.Equal(t, cli.ExitOK, got.code, got.stderr)
	require.NotContains(t, got.stderr+got.stdout, server.Password())
	require.Equal(t, 1, b.uploads())
	flashed := 0
	for _, path := range server.Paths() {
		flashed += server.Flashes(path)
	}
	require.Equal(t, 2, flashed, "both devices of that kind")
	require.FileExists(t, known)
}

func TestUpdateInBandUsage(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	image := filepath.Join(t.TempDir(), "cx7.bin")
	require.NoError(t, os.WriteFile(image, []byte("image"), 0o600))
	for want, args := range map[string][]string{
		"are not flashed from its operating system":           {"--type", "compute_gb300_nvidia", "--host", "h"},
		`--host "https://h" is not HOST`:                      {"--type", "compute_gb200_nvidia", "--host", "https://h"},
		"cannot both be standard input":                       {"--type", "compute_gb200_nvidia", "--host", "h", "--password-file", "-", "--host-password-file", "-"},
		"give --host-password-file or set RACKCTL_HOST_PASSW": {"--type", "compute_gb200_nvidia", "--host", "h", "--password-file", image},
		"use --host-password-file":                            {"--type", "compute_gb200_nvidia", "--host", "h", "--password-file", image, "--host-password", "x"},
	} {
		got := run(t, append([]string{"firmware", "update", image, "--direct", "--bmc", "127.0.0.1"}, args...)...)
		require.Equal(t, cli.ExitUsage, got.code, "%s: %s", want, got.stderr)
		require.Contains(t, got.stderr, want)
	}
}
