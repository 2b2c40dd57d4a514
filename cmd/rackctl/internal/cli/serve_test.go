// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/cmd/rackctl/internal/cli"
	"github.com/rackbus/rackbus/pkg/config"
	"github.com/rackbus/rackbus/pkg/porttest"
	"github.com/rackbus/rackbus/pkg/process"
	"github.com/rackbus/rackbus/services/standalone"
	"github.com/rackbus/rackbus/sim"
	"github.com/rackbus/rackbus/sim/bmc"
	"github.com/rackbus/rackbus/sim/firmwarepackage"
)

// patience bounds every wait for something that must happen.
const patience = 60 * time.Second

// site is `rackbus serve` in this process, with a simulated rack.
type site struct {
	t        *testing.T
	rack     *sim.Rack
	grpc     string
	keys     string
	firmware string
	// interrupts are what the person at the terminal types.
	interrupts chan os.Signal
}

func freePort(t *testing.T) string {
	t.Helper()
	return strconv.Itoa(porttest.Free(t, 1)[0])
}

func startSite(t *testing.T) *site {
	t.Helper()
	dir := t.TempDir()
	rack, err := sim.Start(t.Context(), sim.Options{Compute: 2, Timing: bmc.Timing{Task: 300 * time.Millisecond, BMCOutage: 100 * time.Millisecond}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, rack.Close()) })
	port, metrics := freePort(t), freePort(t)
	s := &site{
		t: t, rack: rack, grpc: "127.0.0.1:" + port, keys: filepath.Join(dir, "keys", "tls"), firmware: filepath.Join(dir, "firmware"),
		interrupts: make(chan os.Signal, 1),
	}
	require.NoError(t, os.MkdirAll(s.firmware, 0o700))
	p := standalone.Program()
	opts := config.Options{Process: p.Process, Optional: true, Set: []string{
		"standalone.data_dir=" + filepath.Join(dir, "data"), "workflows.firmware_dir=" + s.firmware, "agent.drain_timeout=5s",
		"api.drain_timeout=5s", "listen=127.0.0.1", "port=" + port, "metrics.listen=127.0.0.1", "metrics.port=" + metrics,
		"timing.scale=0.01", "console.listen=127.0.0.1", "console.port=" + freePort(t),
	}}
	p.Options(&opts)
	cfg, err := config.Load(opts)
	require.NoError(t, err)
	logs := io.Discard
	if os.Getenv("RACKBUS_TEST_LOG") != "" {
		logs = os.Stderr
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- process.Run(ctx, p, cfg, logs) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			require.NoError(t, err)
		case <-time.After(patience):
			t.Error("rackbus serve does not stop")
		}
	})
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Second}
	require.Eventually(t, func() bool {
		resp, err := client.Get("http://127.0.0.1:" + metrics + "/readyz")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	}, patience, 20*time.Millisecond)
	return s
}

func (s *site) run(args ...string) call { return s.runIn(func(*cli.Env) {}, args...) }

func (s *site) runIn(change func(*cli.Env), args ...string) call {
	s.t.Helper()
	vars := map[string]string{
		"RACKCTL_ADDRESS": s.grpc, "RACKCTL_CA": filepath.Join(s.keys, "ca.crt"), "RACKCTL_CERT": filepath.Join(s.keys, "client.crt"),
		"RACKCTL_KEY": filepath.Join(s.keys, "client.key"), "RACKCTL_SERVER_NAME": "localhost", "TRAY_PASSWORD": s.rack.Devices()[0].Password(),
	}
	return runIn(s.t, func(env *cli.Env) {
		env.Getenv = func(name string) string { return vars[name] }
		change(env)
	}, args...)
}

// ok runs a command that has to come about.
func (s *site) ok(args ...string) string {
	s.t.Helper()
	got := s.run(args...)
	require.Equal(s.t, cli.ExitOK, got.code, "rackctl %s: %s\n%s", strings.Join(args, " "), got.stderr, got.stdout)
	return got.stdout
}

// inventory is the simulated rack in a CSV file.
func (s *site) inventory() string {
	var out strings.Builder
	out.WriteString("rack,node,type,bmc_address,bmc_mac,bmc_port,bmc_user,bmc_password_env\n")
	for _, d := range s.rack.Devices() {
		fmt.Fprintf(&out, "lab,%s,%s,%s,%s,%d,%s,TRAY_PASSWORD\n", d.ID(), d.NodeType(), d.IP(), d.MAC(), d.Port(), d.Username())
	}
	path := filepath.Join(s.t.TempDir(), "nodes.csv")
	require.NoError(s.t, os.WriteFile(path, []byte(out.String()), 0o600))
	return path
}

// A day's work against the real services.
func TestAgainstRackbus(t *testing.T) {
	s := startSite(t)
	file, tray := s.inventory(), "lab/"+s.rack.Devices()[0].ID()
	require.Contains(t, s.ok("nodes", "create", "-f", file, "--dry-run"), "created")
	require.Contains(t, s.ok("nodes", "create", "-f", file), "2 added")
	require.Contains(t, s.ok("nodes", "update", "-f", file, "--dry-run"), "updated")
	require.Regexp(t, `lab +GB200 +2 +0 +0`, s.ok("racks"))
	require.Contains(t, s.ok("power", "get", "--rack", "lab", "--all"), "ON")
	require.Contains(t, s.ok("firmware", "inventory", tray, "--component", "FW_BMC_0"), s.rack.Devices()[0].Version("FW_BMC_0"))
	require.Contains(t, s.ok("whoami"), "operator")
	require.Contains(t, s.ok("version"), "server")

	content, err := firmwarepackage.Build(firmwarepackage.Spec{Version: "P4972_9", Components: []firmwarepackage.Component{
		{Name: "FW_BMC_0", Version: "99.01", Payload: bytes.Repeat([]byte("image"), 1000)},
	}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(s.firmware, "nvfw_P4972_9.fwpkg"), content, 0o600))
	got := s.run("firmware", "update", "nvfw_P4972_9.fwpkg", "--rack", "lab", "--type", "compute_gb200_nvidia", "--name", "November BMCs",
		"--wait", "-o", "json")
	require.Equal(t, cli.ExitOK, got.code, "%s\n%s", got.stderr, got.stdout)
	require.Equal(t, "99.01", s.rack.Devices()[1].Version("FW_BMC_0"))
	require.Contains(t, got.stderr, tray+" completed")
	var end struct {
		Job struct {
			ID    string `json:"job_id"`
			Name  string `json:"name"`
			State string `json:"state"`
		} `json:"job"`
		Children []struct {
			ID string `json:"job_id"`
		} `json:"children"`
	}
	require.NoError(t, json.Unmarshal([]byte(got.stdout), &end))
	require.Equal(t, []string{"November BMCs", "JOB_STATE_COMPLETED"}, []string{end.Job.Name, end.Job.State})
	require.Len(t, end.Children, 2)

	require.Contains(t, s.ok("job", "list", "--name", "November BMCs"), end.Job.ID)
	require.Contains(t, s.ok("job", "watch", end.Job.ID), "2/2 completed")
	require.Contains(t, s.ok("job", "events", end.Children[0].ID), "finished")
	require.Contains(t, s.ok("__complete", "job", "get", ""), end.Job.ID)
	got = s.run("job", "cancel", end.Job.ID)
	require.Equal(t, cli.ExitFailed, got.code, "it has ended")
	require.Contains(t, got.stderr, "ended already")
	require.Equal(t, cli.ExitNotFound, s.run("job", "get", batchID).code)
	got = s.run("audit", "list")
	require.Equal(t, cli.ExitRefused, got.code, "that is for admins")
	require.Contains(t, got.stderr, "needs the role admin")

	s.evidence(tray)
	s.interrupted()
}

// evidence collects diagnostics of a tray and downloads the bundle.
func (s *site) evidence(tray string) {
	dir := s.t.TempDir()
	got := s.run("diag", tray, "--download", dir)
	require.Equal(s.t, cli.ExitOK, got.code, "%s\n%s", got.stderr, got.stdout)
	bundles, err := filepath.Glob(filepath.Join(dir, "lab-*"))
	require.NoError(s.t, err)
	require.Len(s.t, bundles, 1)
}

// interrupted stops waiting for a job by Ctrl-C, then cancels it.
func (s *site) interrupted() {
	t := s.t
	for _, d := range s.rack.Devices() {
		d.UpdateKnobs(func(k *bmc.Knobs) { k.TaskStuckAt = 40 })
	}
	seen := &watched{see: func(text string) {
		if strings.Contains(text, "running") {
			select {
			case s.interrupts <- os.Interrupt:
			default:
			}
		}
	}}
	got := s.runIn(func(env *cli.Env) {
		env.Stderr = seen
		env.Signals = func() (<-chan os.Signal, func()) { return s.interrupts, func() {} }
	}, "firmware", "update", "nvfw_P4972_9.fwpkg", "--node", "lab/"+s.rack.Devices()[0].ID(), "--force", "--wait")
	require.Equal(t, cli.ExitInterrupted, got.code, seen.String())
	_, rest, found := strings.Cut(seen.String(), "rackctl job cancel ")
	require.True(t, found, seen.String())
	id := strings.TrimSpace(strings.Split(rest, "\n")[0])
	require.Contains(t, s.ok("job", "list", "--active"), id)
	got = s.run("job", "cancel", id, "--wait", "--terminate", "-y", "--reason", "test")
	require.Equal(t, cli.ExitOK, got.code, got.stderr)
	require.Contains(t, got.stdout, "terminated")
}
