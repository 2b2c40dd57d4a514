// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	shippedfiles "github.com/rackbus/rackbus/deploy"
	"github.com/rackbus/rackbus/pkg/bootstrap"
	"github.com/rackbus/rackbus/services/standalone"
	"github.com/rackbus/rackbus/test/cluster"
)

const unitsDir = "../../deploy/systemd"

// unit is what a unit file sets, by section and name.
type unit map[string][]string

func readUnit(t *testing.T, path string) unit {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	out, section := unit{}, ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		switch name, value, assigned := strings.Cut(line, "="); {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "["):
			section = strings.Trim(line, "[]")
		case !assigned:
			t.Fatalf("%s: %q", path, line)
		default:
			out[section+"."+name] = append(out[section+"."+name], value)
		}
	}
	return out
}

func (u unit) one(t *testing.T, name string) string {
	t.Helper()
	require.Len(t, u[name], 1, name)
	return u[name][0]
}

func units(t *testing.T) map[string]unit {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(unitsDir, "*.service"))
	require.NoError(t, err)
	require.Len(t, paths, 7)
	out := map[string]unit{}
	for _, path := range paths {
		out[strings.TrimSuffix(filepath.Base(path), ".service")] = readUnit(t, path)
	}
	return out
}

// siteForUnits is a site whose files lie in dir where they would lie in /etc/rackbus.
func siteForUnits(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	_, err := bootstrap.Run(bootstrap.Options{
		Dir: dir, Profile: bootstrap.Single, APIHosts: []string{"127.0.0.1"}, NATSHosts: []string{"127.0.0.1"},
		InstallDir: filepath.Join(dir, "install"), NATSDir: filepath.Join(dir, "store"), Files: shippedfiles.Files,
	})
	require.NoError(t, err)
	return filepath.Join(dir, "install")
}

// TestUnitsAreHardened: no unit lacks a limit that the others have.
func TestUnitsAreHardened(t *testing.T) {
	users, err := os.ReadFile(filepath.Join(unitsDir, "sysusers.conf"))
	require.NoError(t, err)
	for name, u := range units(t) {
		for _, yes := range []string{
			"NoNewPrivileges", "ProtectHome", "PrivateTmp", "PrivateDevices", "PrivateUsers", "ProtectClock", "ProtectControlGroups",
			"ProtectHostname", "ProtectKernelLogs", "ProtectKernelModules", "ProtectKernelTunables", "LockPersonality",
			"MemoryDenyWriteExecute", "RestrictNamespaces", "RestrictRealtime", "RestrictSUIDSGID",
		} {
			require.Equal(t, "yes", u.one(t, "Service."+yes), "%s: %s", name, yes)
		}
		require.Equal(t, "strict", u.one(t, "Service.ProtectSystem"), name)
		require.Empty(t, u.one(t, "Service.CapabilityBoundingSet"), name)
		require.Equal(t, "on-failure", u.one(t, "Service.Restart"), name)
		require.Equal(t, "SIGTERM", u.one(t, "Service.KillSignal"), name)
		require.NotEmpty(t, u.one(t, "Service.LimitNOFILE"), name)
		require.Contains(t, string(users), "\nu "+u.one(t, "Service.User")+" ", name)
		if name != "rackbus" { // the others see their own directory only
			require.Equal(t, "/etc/rackbus:ro", u.one(t, "Service.TemporaryFileSystem"), name)
			require.Equal(t, "/etc/rackbus/"+strings.TrimPrefix(name, "rackbus-"), u.one(t, "Service.BindReadOnlyPaths"), name)
		}
	}
}

// TestUnitsStart: each unit's command line is one that its program takes, with the files that bootstrap has written, and
// what it drains ends before systemd kills it.
func TestUnitsStart(t *testing.T) {
	bin := cluster.Programs(t)
	install := siteForUnits(t)
	drain := regexp.MustCompile(`(?m)^(drain_timeout|last_release_limit) = "(\w+)"$`)
	for name, u := range units(t) {
		if name == "rackbus-nats" {
			continue
		}
		args := strings.Fields(strings.ReplaceAll(u.one(t, "Service.ExecStart"), "/etc/rackbus", install))
		require.Equal(t, "/usr/local/bin", filepath.Dir(args[0]))
		args = append(args, "--print-config")
		var out, errs bytes.Buffer
		if name == "rackbus" {
			require.Zero(t, standalone.Main(args[1:], &out, &errs), errs.String())
		} else {
			cmd := exec.CommandContext(t.Context(), filepath.Join(bin, filepath.Base(args[0])), args[1:]...)
			cmd.Stdout, cmd.Stderr = &out, &errs
			require.NoError(t, cmd.Run(), "%s: %s", name, errs.String())
		}
		limit, err := time.ParseDuration(u.one(t, "Service.TimeoutStopSec"))
		require.NoError(t, err)
		needed := time.Duration(0)
		for _, found := range drain.FindAllStringSubmatch(out.String(), -1) {
			d, err := time.ParseDuration(found[2])
			require.NoError(t, err)
			validates := name == "rackbus" || name == "rackbus-compute-agent"
			if found[1] == "drain_timeout" || validates {
				needed = max(needed, d)
			}
		}
		require.NotZero(t, needed, name)
		require.Greater(t, limit, needed, name)
	}
}

// TestNATSUnitStarts: nats-server takes the configuration that nats.env names.
func TestNATSUnitStarts(t *testing.T) {
	bin := cluster.Programs(t)
	install := siteForUnits(t)
	u := readUnit(t, filepath.Join(unitsDir, "rackbus-nats.service"))
	env, err := os.ReadFile(strings.ReplaceAll(u.one(t, "Service.EnvironmentFile"), "/etc/rackbus", install))
	require.NoError(t, err)
	vars := strings.Split(strings.TrimSpace(string(env)), "\n")[1:]
	conf := ""
	for _, v := range vars {
		if value, found := strings.CutPrefix(v, "RB_NATS_CONF="); found {
			conf = value
		}
	}
	args := strings.Fields(strings.ReplaceAll(u.one(t, "Service.ExecStart"), "${RB_NATS_CONF}", conf))
	require.Equal(t, "/usr/local/bin/nats-server", args[0])
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "nats-server"), append(args[1:], "-t")...)
	cmd.Env = slices.Concat(os.Environ(), vars)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// TestSystemdTakesTheUnits asks systemd itself, where it is installed.
func TestSystemdTakesTheUnits(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed")
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\n"), 0o755))
	args := []string{"verify", "--man=no"}
	for name := range units(t) {
		text, err := os.ReadFile(filepath.Join(unitsDir, name+".service"))
		require.NoError(t, err)
		text = regexp.MustCompile(`/usr/local/bin/[a-z-]+`).ReplaceAll(text, []byte(program))
		path := filepath.Join(dir, name+".service")
		require.NoError(t, os.WriteFile(path, text, 0o644))
		args = append(args, path)
	}
	out, err := exec.CommandContext(t.Context(), analyze, args...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Empty(t, string(out))
}
