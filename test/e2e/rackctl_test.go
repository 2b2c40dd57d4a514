// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bufio"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/certs"
	"github.com/rackbus/rackbus/sim/bmc"
	"github.com/rackbus/rackbus/sim/reqlog"
	"github.com/rackbus/rackbus/test/cluster"
)

// TestRackctl does with rackctl everything that it has a command for, through separate processes, and gets every command
// to fail once. Trays and switches are worked on at the same time.
func TestRackctl(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	if !t.Run("register", d.register) {
		return
	}
	t.Run("work", func(t *testing.T) {
		for name, parts := range map[string][]func(*testing.T){
			"surroundings": {d.contexts, d.access, d.nodes, d.localFiles},
			"trays":        {d.objects, d.power, d.applied, d.updates, d.validation, d.failedJob, d.rollout, d.stopped, d.interrupted},
			"switches":     {d.fabricSettings, d.fabricWork, d.switchFiles, d.switchResets},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				for _, part := range parts {
					part(t)
				}
			})
		}
	})
	if t.Failed() {
		return
	}
	t.Run("cold reboot", d.coldReboot)
	t.Run("refusals", d.refusals)
	t.Run("every command", d.everyCommand)
}

func (d *desk) register(t *testing.T) {
	d.ends(t, exitUsage, "nodes create")
	require.Contains(t, d.ok(t, "nodes create --dry-run -f rack.csv"), "created")
	require.Contains(t, d.ok(t, "nodes create -f rack.csv"), "6")
	require.Contains(t, d.ends(t, exitFailed, "nodes create -f rack.csv compute-0001").stderr, "compute-0001")
	require.Len(t, d.told(t, "nodes list --rack lab")["nodes"], 6)
	require.Contains(t, d.ok(t, "racks"), "lab")
	require.Contains(t, d.ok(t, "racks -o yaml"), "- lab")
}

func (d *desk) contexts(t *testing.T) {
	vars := []string{"RACKCTL_ADDRESS=", "RACKCTL_CA=", "RACKCTL_CERT=", "RACKCTL_KEY="}
	require.Equal(t, exitUsage, d.run(t, vars, "racks").code, "no server is known")
	address, _ := strings.CutPrefix(d.env[slices.IndexFunc(d.env, func(v string) bool { return strings.HasPrefix(v, "RACKCTL_ADDRESS=") })], "RACKCTL_ADDRESS=")
	set := []string{
		"context", "set", "lab", "--address", address, "--tls-ca", d.Certificate("ca.crt"), "--tls-cert", d.Certificate("client.crt"),
		"--tls-key", d.Certificate("client.key"), "--default-output", "json",
	}
	require.Equal(t, exitUsage, d.run(t, nil, "context", "set", "lab").code, "without an address")
	require.Equal(t, exitOK, d.run(t, nil, set...).code)
	require.Contains(t, d.run(t, vars, "racks").stdout, `"rack_ids"`, "the form of the context")
	require.Equal(t, exitOK, d.run(t, nil, "context", "set", "gone", "--address", "127.0.0.1:1").code)
	d.ok(t, "context use gone")
	d.ends(t, exitUsage, "context use nowhere")
	require.Contains(t, d.run(t, vars, "context", "show").stdout, "127.0.0.1:1")
	require.Contains(t, d.run(t, vars[:1], "racks").stderr, "127.0.0.1:1 cannot be reached")
	require.Equal(t, exitUnreachable, d.run(t, vars[:1], "racks").code)
	require.Equal(t, exitUsage, d.run(t, vars, "context", "show", "--context", "nowhere").code)
	require.Contains(t, d.run(t, vars, "--context", "lab", "racks", "-o", "table").stdout, "RACK")
	d.ok(t, "context list")
	d.ends(t, exitUsage, "context list -o text")
	d.ok(t, "context delete gone")
	d.ends(t, exitUsage, "context delete gone")
	d.ok(t, "context delete lab")
	d.ok(t, "version")
	d.ends(t, exitUnreachable, "version --address 127.0.0.1:1")
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		require.Contains(t, d.ok(t, "completion "+shell), "rackctl")
	}
	require.Contains(t, d.ok(t, "__complete power get", "lab/comp"), "lab/compute-0002")
	require.Contains(t, d.ok(t, "__complete nodes list --rack", ""), "lab")
}

func (d *desk) access(t *testing.T) {
	require.Equal(t, "ROLE_ADMIN", d.told(t, "whoami")["role"])
	viewer := []string{"RACKCTL_CERT=" + d.Certificate("nats.crt"), "RACKCTL_KEY=" + d.Certificate("nats.key")}
	require.Contains(t, d.run(t, viewer, "whoami").stdout, "viewer")
	for _, line := range []string{"audit list", "power on lab/compute-0001", "nodes delete lab/compute-0001 --yes", "validate -f rack.csv compute-0001"} {
		got := d.run(t, viewer, strings.Fields(line)...)
		require.Equal(t, exitRefused, got.code, "%s: %s", line, got.stderr)
		require.Contains(t, got.stderr, "viewer", line)
	}
	audit := d.told(t, "audit list --rpc CreateNodes")
	require.NotEmpty(t, audit["records"])
	require.Contains(t, d.ok(t, "audit list"), "CreateNodes")

	stranger, err := certs.NewCA()
	require.NoError(t, err)
	cert, key, err := stranger.Issue(certs.Leaf{Role: "client"})
	require.NoError(t, err)
	require.NoError(t, certs.WritePair(d.dir, "stranger", cert, key))
	got := d.run(t, []string{"RACKCTL_CERT=stranger.crt", "RACKCTL_KEY=stranger.key"}, "whoami")
	require.Equal(t, exitUnreachable, got.code, got.stderr)
	require.Contains(t, got.stderr, "certificate")
}

func (d *desk) nodes(t *testing.T) {
	require.Contains(t, d.ok(t, "nodes get lab/compute-0001 --device"), "Slot")
	d.ends(t, exitNotFound, "nodes get lab/compute-0009")
	require.Contains(t, d.ok(t, "nodes update -f rack.csv --dry-run"), "updated")
	d.ok(t, "nodes update -f rack.csv powershelf-0001")
	spare := filepath.Join(d.dir, "spare.yaml")
	require.NoError(t, os.WriteFile(spare, []byte("nodes:\n- {rack: lab, node: spare, type: compute_gb200_nvidia, "+
		"bmc: {address: 192.0.2.9, mac: '02:00:00:00:00:99', user: admin, password: pw}}\n"), 0o600))
	d.ends(t, exitNotFound, "nodes update -f spare.yaml")
	d.ok(t, "nodes create -f spare.yaml")
	d.ok(t, "nodes delete lab/spare --dry-run")
	d.ends(t, exitUsage, "nodes delete lab/spare")
	require.Contains(t, d.ok(t, "nodes delete lab/spare --yes"), "removed")
	d.ends(t, exitNotFound, "nodes delete lab/spare --yes")
	d.ends(t, exitUsage, "nodes list more")
}

func (d *desk) localFiles(t *testing.T) {
	testdata, err := filepath.Abs(filepath.Join("..", "..", "cmd", "rackctl", "internal", "cli", "testdata"))
	require.NoError(t, err)
	require.Contains(t, d.ok(t, "firmware inspect", filepath.Join(testdata, "tray.fwpkg")), "Package GB200-P4972")
	d.ends(t, exitFailed, "firmware inspect nothing.fwpkg")
	d.ok(t, "firmware extract-vme", filepath.Join(testdata, "bundle.fwpkg"))
	d.ends(t, exitFailed, "firmware extract-vme", filepath.Join(testdata, "tray.fwpkg"))
	site := "bootstrap --out site --api-host localhost --nats-host localhost"
	d.ok(t, site)
	d.ok(t, site+" --profile leaf --site b --hub-host localhost")
	d.ends(t, exitUsage, "bootstrap --out other --profile leaf --site b --nats-host localhost --hub-host localhost")
}

// objects: the release is fetched, compared and frozen.
func (d *desk) objects(t *testing.T) {
	require.NoError(t, os.WriteFile(filepath.Join(d.dir, "release.json"), []byte(d.release.config), 0o600))
	d.ends(t, exitUsage, "firmware object add release.json")
	d.ok(t, "firmware object add release.json --hardware mixed --default")
	d.await(t, "firmware object status "+d.release.id, func(status map[string]any) bool {
		return status["object"].(map[string]any)["available"] == true
	})
	require.Contains(t, d.ok(t, "firmware object status", d.release.id), "files are there")
	for _, verb := range []string{"status", "get", "set-default", "retry", "delete --yes"} {
		d.ends(t, exitNotFound, "firmware object "+verb+" NOTHING_1.0")
	}
	require.Contains(t, d.ok(t, "firmware object list --hardware mixed"), d.release.id)
	d.ends(t, exitUsage, "firmware object list more")
	require.Contains(t, d.ok(t, "firmware object get", d.release.id), "switch image")
	d.ok(t, "firmware object set-default", d.release.id)
	require.Contains(t, d.ends(t, exitFailed, "firmware object retry", d.release.id).stderr, "available already")
	d.fetchAgain(t)
	require.Contains(t, d.ok(t, "firmware inventory lab/compute-0001"), cluster.TrayComponent)
	d.ends(t, exitNotFound, "firmware inventory lab/compute-0009")

	differing := d.ends(t, exitFailed, "firmware compare -f rack.csv compute-0001 --object", d.release.id)
	require.Contains(t, differing.stdout, "mismatched")
	require.Contains(t, d.ok(t, "firmware apply --dry-run --hardware mixed -f rack.csv compute-0001"), "mismatched")
	plan := d.told(t, "firmware plan check -f rack.csv compute-0001 --object", d.release.id)["plan"].(map[string]any)["snapshot_id"].(string)
	d.ends(t, exitUsage, "firmware plan check -f rack.csv")
	require.Contains(t, d.ok(t, "firmware plan get", plan), "compute-0001")
	d.ends(t, exitNotFound, "firmware plan get 00000000-0000-0000-0000-000000000000")
	d.ok(t, "firmware plan apply --wait -f rack.csv compute-0001 --plan", plan)
	d.ends(t, exitFailed, "firmware plan apply -f rack.csv compute-0002 --plan", plan)
	d.ok(t, "firmware compare -f rack.csv compute-0001 --object", d.release.id)
}

// fetchAgain: a file that was not there is fetched once it is.
func (d *desk) fetchAgain(t *testing.T) {
	const late, id = "late.fwpkg", "LATE72_1.0"
	manifest := strings.NewReplacer("LOCATION", d.files.URL(late)).Replace(`{"ProductName": "LATE72", "Milestones": [{"Name": "1.0", "BoardSKUs": [
  {"Name": "tray", "Type": "Compute Node", "Components": {"Firmware": [{"Component": "HMC", "Version": "1", "Type": "Prod", "Locations": [
    {"Location": "LOCATION", "LocationType": "https", "Type": "Firmware"}]}]}}]}]}`)
	require.NoError(t, os.WriteFile(filepath.Join(d.dir, "late.json"), []byte(manifest), 0o600))
	d.ok(t, "firmware object add late.json --hardware late")
	d.await(t, "firmware object status "+id, func(status map[string]any) bool { return status["artifacts_failed"] == 1.0 })
	d.await(t, "job list --active --node firmware/"+id, func(list map[string]any) bool { return len(list["jobs"].([]any)) == 0 })
	require.Contains(t, d.ok(t, "firmware object status "+id), "failed")
	d.files.Put(late, pldm(t, "late", "1", "HMC"))
	require.Contains(t, d.ok(t, "firmware object retry --wait "+id), "completed")
	d.ok(t, "firmware object delete --yes "+id)
}

// power: every verb does what it says, and is refused where there is nothing to do it to.
func (d *desk) power(t *testing.T) {
	tray := d.rack.Device("compute-0002")
	for _, verb := range []string{"cycle", "restart", "force-restart", "shutdown", "on", "off", "force-on", "force-off"} {
		require.Contains(t, d.ok(t, "power "+verb+" lab/compute-0002"), "accepted", verb)
		d.ends(t, exitNotFound, "power "+verb+" lab/compute-0009")
	}
	require.Equal(t, bmc.PowerOff, tray.PowerState())
	require.Contains(t, d.ok(t, "power get --rack lab --all"), "OFF")
	d.ends(t, exitNotFound, "power get lab/compute-0009")
	d.ends(t, exitUsage, "power cycle --rack lab compute-0001 compute-0002")
	d.ok(t, "power on --rack lab --all --type compute_gb200_nvidia")
	require.Equal(t, bmc.PowerOn, tray.PowerState())
}

func (d *desk) applied(t *testing.T) {
	d.ends(t, exitUsage, "firmware apply -f rack.csv")
	d.ends(t, exitUsage, "firmware apply -f rack.csv compute-0002 --object "+d.release.id, "--rollout", "wave=none")
	out := d.ok(t, "firmware apply --wait --rack lab compute-0002 --user admin --object "+d.release.id, "--name", "two words", "--rollout", "wave=1")
	require.Contains(t, out, "two words")
	require.Contains(t, d.ok(t, "firmware history --rack lab"), d.release.id)
	d.ends(t, exitUsage, "firmware history more")
}

func (d *desk) updates(t *testing.T) {
	out := d.ok(t, "firmware update tray.fwpkg --wait --node lab/compute-0003")
	require.Contains(t, out, "completed")
	require.Equal(t, "1.0.1", d.rack.Device("compute-0003").Version(cluster.TrayComponent))
	refused := d.ends(t, exitFailed, "firmware update absent.fwpkg --node lab/compute-0003")
	require.Contains(t, refused.stderr, "absent.fwpkg")
	d.ends(t, exitUsage, "firmware update tray.fwpkg")
	id := d.job(t, "firmware update tray.fwpkg --rack lab --type compute_gb200_nvidia --force --idempotency-key once")
	require.Equal(t, id, d.job(t, "firmware update tray.fwpkg --rack lab --type compute_gb200_nvidia --force --idempotency-key once"))
	watched := d.ends(t, exitOK, "job watch", id)
	require.Contains(t, watched.stdout, "lab/compute-0001")
	require.Contains(t, watched.stderr, "job completed")
	require.Contains(t, d.ok(t, "job list --rack lab"), id)
	d.ends(t, exitUsage, "job list --state odd")
	require.Contains(t, d.ok(t, "job get", id), "Children")
	require.NotEmpty(t, d.told(t, "job events", id)["events"])
	for _, verb := range []string{"get", "watch", "events", "evidence", "cancel", "pause", "resume", "abort"} {
		d.ends(t, exitNotFound, "job "+verb+" 00000000-0000-0000-0000-000000000000")
	}
}

func (d *desk) validation(t *testing.T) {
	require.Contains(t, d.ok(t, "validate --wait -f rack.csv compute-0001"), "completed")
	d.ends(t, exitJob, "validate --wait -f rack.csv compute-0002")
	d.ends(t, exitUsage, "validate")
}

// failedJob: the reason of the device is told, looked into, and kept.
func (d *desk) failedJob(t *testing.T) {
	tray := d.rack.Device("compute-0003")
	refuseImages(tray)
	got := d.ends(t, exitJob, "firmware update tray.fwpkg --force --wait --node lab/compute-0003")
	require.Contains(t, got.stderr, "could not be verified")
	tray.UpdateKnobs(func(k *bmc.Knobs) { k.TaskEnd = nil })
	jobs := d.told(t, "job list --state failed --node lab/compute-0003")["jobs"].([]any)
	id := jobs[0].(map[string]any)["job_id"].(string)
	d.ends(t, exitJob, "job watch", id)
	d.ends(t, exitNotFound, "job evidence", id)
	d.ok(t, "diag --download bundles --job", id)
	bundles, err := filepath.Glob(filepath.Join(d.dir, "bundles", "lab-compute-0003-*.tar.gz"))
	require.NoError(t, err)
	require.Len(t, bundles, 1)
	raw, err := os.ReadFile(bundles[0])
	require.NoError(t, err)
	require.Contains(t, entries(t, raw), "manifest.json")
	d.ok(t, "job evidence -O again.tar.gz", id)
	d.ends(t, exitFailed, "job evidence -O again.tar.gz", id)
	require.Contains(t, d.ok(t, "job evidence --link", id), "https://")
	d.ends(t, exitUsage, "diag")
}

// rollout: it is held, goes on, and is aborted.
func (d *desk) rollout(t *testing.T) {
	start := func(key string) string {
		return d.job(t, "firmware update tray.fwpkg --force --rack lab --type compute_gb200_nvidia --idempotency-key "+key, "--rollout", "wave=1; confirm")
	}
	wave := -1.0
	held := func(id string) {
		d.await(t, "job get "+id, func(answer map[string]any) bool {
			r := answer["job"].(map[string]any)["rollout"].(map[string]any)
			if r["state"] != "ROLLOUT_STATE_HELD" || r["wave"].(float64) <= wave {
				return false
			}
			wave = r["wave"].(float64)
			return true
		})
	}
	id := start("first")
	d.ok(t, "job pause", id, "--reason", "look first")
	held(id)
	d.ok(t, "job resume", id)
	held(id)
	d.ok(t, "job abort", id, "--reason", "enough")
	end := d.ends(t, exitJob, "job watch", id)
	require.Contains(t, end.stdout, "enough")
}

// stopped: a job that is asked to stop, and one that is cut.
func (d *desk) stopped(t *testing.T) {
	tray := d.rack.Device("compute-0001")
	tray.UpdateKnobs(func(k *bmc.Knobs) { k.BackgroundCopy = -1 })
	id := d.job(t, "firmware update tray.fwpkg --force --node lab/compute-0001")
	d.ends(t, exitUsage, "job cancel --terminate", id)
	require.Contains(t, d.ok(t, "job cancel --wait", id), "cancelled")
	d.ends(t, exitJob, "job watch", id)
	busy := d.job(t, "firmware update tray.fwpkg --force --node lab/compute-0001")
	refused := d.ends(t, exitFailed, "firmware update tray.fwpkg --node lab/compute-0001")
	require.Contains(t, refused.stderr, busy)
	require.Contains(t, d.ends(t, exitFailed, "power off lab/compute-0001").stdout, busy)
	require.Contains(t, d.ok(t, "power force-restart --on-busy force lab/compute-0001"), "accepted")
	d.ok(t, "job cancel --wait --terminate --yes", busy)
	d.ends(t, exitUnknown, "job watch", busy)
	tray.UpdateKnobs(func(k *bmc.Knobs) { k.BackgroundCopy = 0 })
}

// interrupted: Ctrl-C ends the watch and not the job.
func (d *desk) interrupted(t *testing.T) {
	ctx := within(t)
	tray := d.rack.Device("compute-0002")
	tray.UpdateKnobs(func(k *bmc.Knobs) { k.BackgroundCopy = -1 })
	id := d.job(t, "firmware update tray.fwpkg --force --node lab/compute-0002")
	_, err := d.rack.WaitRequests(ctx, tray.ID(), reqlog.Filter{}, 1)
	require.NoError(t, err)
	watch := d.command(ctx, nil, "job", "watch", id)
	told, err := watch.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, watch.Start())
	lines := bufio.NewScanner(told)
	require.True(t, lines.Scan(), "it has begun")
	require.NoError(t, watch.Process.Signal(syscall.SIGINT))
	text := ""
	for lines.Scan() {
		text += lines.Text() + "\n"
	}
	require.Error(t, watch.Wait())
	require.Equal(t, exitInterrupted, watch.ProcessState.ExitCode())
	require.Contains(t, text, "rackctl job cancel "+id)
	require.Contains(t, d.ok(t, "job list --active"), id)
	tray.UpdateKnobs(func(k *bmc.Knobs) { k.BackgroundCopy = 0 })
	d.ok(t, "job watch", id)
}

// coldReboot leaves out the switch that has been given back to its maker.
func (d *desk) coldReboot(t *testing.T) {
	d.ends(t, exitUsage, "reboot -f rack.csv")
	boots := d.rack.Device("compute-0001").Boots()
	require.Contains(t, d.ok(t, "reboot --wait --yes -f rack.csv compute-0001 compute-0002 compute-0003 powershelf-0001 "+primary), "completed")
	require.Greater(t, d.rack.Device("compute-0001").Boots(), boots)
}

// refusals: what must not be done to the last object of the catalogue is done last.
func (d *desk) refusals(t *testing.T) {
	d.ends(t, exitUsage, "firmware object delete", d.release.id)
	d.ok(t, "firmware object delete --yes", d.release.id)
	d.ends(t, exitNotFound, "firmware apply -f rack.csv compute-0001 --object", d.release.id)
	for _, line := range []string{"racks", "audit list", "job list", "whoami", "power get lab/compute-0001"} {
		d.ends(t, exitUnreachable, line+" --address 127.0.0.1:1")
	}
}

// everyCommand: no command was forgotten above.
func (d *desk) everyCommand(t *testing.T) {
	for _, name := range d.commandNames(t) {
		codes := map[int]bool{}
		for line, ends := range d.used {
			if strings.HasPrefix(line+" ", name+" ") && !strings.HasSuffix(line, "--help") {
				for _, code := range ends {
					codes[code] = true
				}
			}
		}
		require.True(t, codes[exitOK], "rackctl %s has not succeeded: %v", name, slices.Collect(maps.Keys(codes)))
		delete(codes, exitOK)
		if !strings.HasPrefix(name, "completion ") {
			require.NotEmpty(t, codes, "rackctl %s has not failed", name)
		}
	}
}

// commandNames are all commands that hold no others, as the help lists them.
func (d *desk) commandNames(t *testing.T, path ...string) (names []string) {
	help := d.ok(t, strings.Join(path, " ")+" --help")
	_, list, group := strings.Cut(help, "\nAvailable Commands:\n")
	if !group {
		return []string{strings.Join(path, " ")}
	}
	list, _, _ = strings.Cut(list, "\n\n")
	for line := range strings.Lines(list) {
		name := strings.Fields(line)[0]
		if name == "help" {
			continue
		}
		names = append(names, d.commandNames(t, append(slices.Clone(path), name)...)...)
	}
	return names
}
