// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/sim"
	"github.com/rackbus/rackbus/sim/artifacts"
	"github.com/rackbus/rackbus/sim/bmc"
	"github.com/rackbus/rackbus/sim/nvswitch"
	"github.com/rackbus/rackbus/test/cluster"
)

// The exit codes of docs/rackctl.md.
const (
	exitOK = iota
	exitFailed
	exitUsage
	exitUnknown
	exitNotFound
	exitRefused
	exitUnreachable
	exitJob
	exitInterrupted = 130
)

// desk is where somebody sits who has rackctl and a rack behind a cluster.
type desk struct {
	*cluster.Cluster
	rack    *sim.Rack
	files   *artifacts.Server
	release release
	// program is rackctl, dir what the person has on disk.
	program, dir string
	env          []string
	// inventory is the file with all nodes.
	inventory string

	mu sync.Mutex
	// used are the exit codes that each command has ended with.
	used map[string][]int
}

// The switch image that the release brings, and one that lies on the server's host.
const (
	releaseImage = "nvos-amd64-25.02.4440.bin"
	servedImage  = "nvos-amd64-25.02.5550.bin"
)

func newDesk(t *testing.T) *desk {
	t.Helper()
	files, roots := startArtifacts(t)
	dir := t.TempDir()
	validator := filepath.Join(dir, "validator")
	require.NoError(t, os.WriteFile(validator, []byte("#!/bin/sh\ntest \"$1\" != compute-0002 && echo '{\"passed\": true}'\n"), 0o700))
	settings := artifactSettings(roots)
	for key, value := range map[string]string{
		"auth.admins": `["spiffe://rackbus/client"]`, "auth.viewers": `["spiffe://rackbus/nats"]`,
		"validation.command": fmt.Sprintf("[%q, \"{node_id}\"]", validator), "validation.work_dir": fmt.Sprintf("%q", dir),
		"timing.cold_reboot.prestage_shutdown_poll_max": `"6000s"`, "timing.cold_reboot.discharge_poll_max": `"6000s"`,
		"timing.cold_reboot.bmc_up_poll_max": `"6000s"`, "timing.cold_reboot.discharge_floor": `"30s"`,
		"timing.cold_reboot.bmc_up_floor": `"30s"`, "timing.cold_reboot.compute_boot_wait": `"30s"`,
	} {
		settings[key] = value
	}
	c := cluster.Start(t, cluster.Options{Settings: settings, Racks: []sim.Options{{
		RackID: "lab", Compute: 3, PowerShelves: 1, Switches: 2, Seed: 6, CoupledPower: true, Outage: bmc.OutageRefuse, SwitchUsername: switchUser, SwitchPassword: "sw-pw",
		Timing: bmc.Timing{Task: 300 * time.Millisecond, BMCOutage: 200 * time.Millisecond, Shutdown: 100 * time.Millisecond},
	}}})
	d := &desk{Cluster: c, rack: c.Racks[0], files: files, program: buildRackctl(t), dir: dir, used: map[string][]int{}}
	d.release = d.newRelease(t)
	d.WriteFirmware(servedImage, nvswitch.ImageContent("25.02.5550", 1<<20))
	d.WriteTrayPackage("tray.fwpkg", "1.0.1")
	d.inventory = filepath.Join(dir, "rack.csv")
	d.writeInventory(t, "sw-pw")
	d.env = []string{
		"HOME=" + dir, "PATH=" + os.Getenv("PATH"), "TZ=UTC", "RACKCTL_ADDRESS=" + strings.TrimPrefix(c.Client(0).Conn.Target(), "dns:///"),
		"RACKCTL_CA=" + c.Certificate("ca.crt"), "RACKCTL_CERT=" + c.Certificate("client.crt"), "RACKCTL_KEY=" + c.Certificate("client.key"),
		"RACKCTL_BMC_PASSWORD=" + d.rack.Devices()[0].Password(),
	}
	return d
}

// buildRackctl returns the program, built unless RACKBUS_BIN has it.
func buildRackctl(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv(cluster.BinEnv); dir != "" {
		return filepath.Join(dir, "rackctl")
	}
	path := filepath.Join(t.TempDir(), "rackctl")
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-ldflags=-s -w", "-o", path, "github.com/rackbus/rackbus/cmd/rackctl")
	build.Dir = filepath.Join("..", "..")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return path
}

// newRelease is a release for all nodes of the rack, the switches too.
func (d *desk) newRelease(t *testing.T) release {
	t.Helper()
	r := newRelease(t, d.files, 1)
	d.files.Put(releaseImage, nvswitch.ImageContent("25.02.4440", 1<<20))
	var m map[string]any
	require.NoError(t, json.Unmarshal([]byte(r.config), &m))
	milestone := m["Milestones"].([]any)[0].(map[string]any)
	milestone["BoardSKUs"] = append(milestone["BoardSKUs"].([]any), map[string]any{
		"Name": "switch", "Type": "Switch Tray", "Components": map[string]any{"Software": []any{map[string]any{
			"Component": "NVOS", "Version": "25.02.4440", "Type": "Prod", "Locations": []any{
				map[string]any{"Location": d.files.URL(releaseImage), "LocationType": "https", "PackageName": "nvos"},
			},
		}}},
	})
	text, err := json.Marshal(m)
	require.NoError(t, err)
	r.config = string(text)
	return r
}

// writeInventory describes the rack as somebody would who knows all passwords.
func (d *desk) writeInventory(t *testing.T, switchPassword string) {
	t.Helper()
	var text bytes.Buffer
	w := csv.NewWriter(&text)
	rows := [][]string{strings.Split("rack,node,type,bmc_address,bmc_mac,bmc_port,bmc_user,bmc_password,host_address,host_mac,host_port,host_user,host_password", ",")}
	for _, n := range d.rack.Inventory() {
		row := append([]string{n.Rack, n.Node, n.Type}, columnsOf(n.BMC)...)
		if n.Host == nil {
			rows = append(rows, append(row, make([]string, 5)...))
			continue
		}
		host := *n.Host
		host.Credentials.UserPass.Password = switchPassword
		rows = append(rows, append(row, columnsOf(host)...))
	}
	require.NoError(t, w.WriteAll(rows))
	require.NoError(t, os.WriteFile(d.inventory, text.Bytes(), 0o600))
}

// columnsOf are those of one endpoint.
func columnsOf(e sim.Endpoint) []string {
	return []string{e.Interface.IPAddress, e.Interface.MACAddress, fmt.Sprint(e.Port), e.Credentials.UserPass.Username, e.Credentials.UserPass.Password}
}

// said is what a command line has come to.
type said struct {
	code           int
	stdout, stderr string
}

// command is a command line that has not begun.
func (d *desk) command(ctx context.Context, vars []string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, d.program, args...)
	cmd.Dir, cmd.Env = d.dir, append(slices.Clone(d.env), vars...)
	return cmd
}

// run runs a command line as a script does: nobody is there to be asked, and nothing is a terminal.
func (d *desk) run(t *testing.T, vars []string, args ...string) said {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := d.command(ctx, vars, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	start := time.Now()
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	code := cmd.ProcessState.ExitCode()
	t.Logf("%5.2fs %3d rackctl %s", time.Since(start).Seconds(), code, strings.Join(args, " "))
	d.note(code, args)
	return said{code, stdout.String(), stderr.String()}
}

func (d *desk) note(code int, args []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	line := strings.Join(args, " ")
	d.used[line] = append(d.used[line], code)
}

// ok runs a command line that has to come about.
func (d *desk) ok(t *testing.T, line string, more ...string) string {
	t.Helper()
	return d.ends(t, exitOK, line, more...).stdout
}

// ends runs a command line that has to end in a way. More arguments may have spaces.
func (d *desk) ends(t *testing.T, code int, line string, more ...string) said {
	t.Helper()
	args := append(strings.Fields(line), more...)
	got := d.run(t, nil, args...)
	require.Equal(t, code, got.code, "rackctl %s\n%s%s", strings.Join(args, " "), got.stdout, got.stderr)
	if code != exitOK {
		require.True(t, strings.HasPrefix(got.stderr, "rackctl: ") || strings.Contains(got.stderr, "\nrackctl: "), got.stderr)
	}
	return got
}

// told is the answer of a command as programs read it.
func (d *desk) told(t *testing.T, line string, more ...string) map[string]any {
	t.Helper()
	return result(t, d.ok(t, line, append(more, "-o", "json")...))
}

// job starts a job and returns its id.
func (d *desk) job(t *testing.T, line string, more ...string) string {
	t.Helper()
	id := strings.TrimSpace(d.ok(t, line, more...))
	require.Regexp(t, `^[0-9a-f-]{36}$`, id)
	return id
}

// await repeats a command until its answer is as wanted.
func (d *desk) await(t *testing.T, line string, wanted func(map[string]any) bool) {
	t.Helper()
	ctx := within(t)
	for {
		answer := d.told(t, line)
		if wanted(answer) {
			return
		}
		require.NoError(t, ctx.Err(), "%v", answer)
	}
}
