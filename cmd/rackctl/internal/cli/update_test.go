// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/cmd/rackctl/internal/cli"
	"github.com/rackbus/rackbus/pkg/redfishagent"
	"github.com/rackbus/rackbus/pkg/redfishagent/agenttest"
	"github.com/rackbus/rackbus/sim"
	"github.com/rackbus/rackbus/sim/bmc"
	"github.com/rackbus/rackbus/sim/faults"
	"github.com/rackbus/rackbus/sim/firmwarepackage"
	"github.com/rackbus/rackbus/sim/reqlog"
)

// bench is a simulated device with an engineer in front of it.
type bench struct {
	t    *testing.T
	rack *sim.Rack
	tray *sim.Device
	dir  string
	// signals are what the engineer types.
	signals chan os.Signal
	// watch sees standard error as it is written.
	watch  func(line string)
	redraw bool
}

func newBench(t *testing.T, change ...func(*sim.Options)) *bench {
	t.Helper()
	o := sim.Options{Compute: 1, Timing: bmc.Timing{Task: 60 * time.Millisecond, BMCOutage: 100 * time.Millisecond}}
	for _, c := range change {
		c(&o)
	}
	rack, err := sim.Start(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, rack.Close()) })
	return &bench{t: t, rack: rack, tray: rack.Devices()[0], dir: t.TempDir(), signals: make(chan os.Signal, 2)}
}

// pldm writes a package of one version for the named components.
func (b *bench) pldm(name, version string, components ...string) string {
	b.t.Helper()
	spec := firmwarepackage.Spec{Version: name}
	for _, c := range components {
		spec.Components = append(spec.Components, firmwarepackage.Component{Name: c, Version: version})
	}
	content, err := firmwarepackage.Build(spec)
	require.NoError(b.t, err)
	return b.file(name, content)
}

func (b *bench) file(name string, content []byte) string {
	b.t.Helper()
	path := filepath.Join(b.dir, name)
	require.NoError(b.t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(b.t, os.WriteFile(path, content, 0o600))
	return path
}

// watched is a buffer that shows what is written to it.
type watched struct {
	mu  sync.Mutex
	buf bytes.Buffer
	see func(string)
}

func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.see != nil {
		w.see(string(p))
	}
	return w.buf.Write(p)
}

func (w *watched) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.String()
}

// installing reports whether a line tells that the device works on the image.
// The newest picture counts: the first of these two may have been passed over.
func installing(line string) bool {
	return strings.Contains(line, "Running firmware workflow") || strings.Contains(line, "Polling firmware task")
}

// update runs an update of the bench's device.
func (b *bench) update(args ...string) call { return b.updateIn(func(*cli.Env) {}, args...) }

func (b *bench) updateIn(change func(*cli.Env), args ...string) call {
	b.t.Helper()
	stderr := &watched{see: b.watch}
	args = append([]string{"firmware", "update", "--direct", "--bmc", b.tray.Addr(), "--type", b.tray.NodeType(), "--user", b.tray.Username()}, args...)
	got := runIn(b.t, func(env *cli.Env) {
		env.Stderr, env.Redraw = stderr, b.redraw
		env.Getenv = func(name string) string {
			require.Equal(b.t, "RACKCTL_BMC_PASSWORD", name)
			return b.tray.Password()
		}
		env.Signals = func() (<-chan os.Signal, func()) { return b.signals, func() {} }
		env.Devices = func(o *redfishagent.Options) { o.Timing = agenttest.Timing() }
		change(env)
	}, args...)
	got.stderr = stderr.String()
	require.NotContains(b.t, got.stderr+got.stdout, b.tray.Password())
	return got
}

// uploads counts the images that arrived whole.
func (b *bench) uploads() int {
	n := 0
	for _, u := range b.rack.Uploads(b.tray.ID()) {
		if u.Upload.Task != "" {
			n++
		}
	}
	return n
}

func (b *bench) decode(text string) (v struct {
	State   string
	Failure struct {
		Code string `json:"failure_code"`
	}
	Stages []struct{ Name, Status string }
	Result map[string]any
}) {
	b.t.Helper()
	require.NoError(b.t, json.Unmarshal([]byte(text), &v), text)
	return v
}

func TestUpdate(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	got := b.update(b.pldm("nvfw_P4972_9.fwpkg", "99.01", "BMC"))
	require.Equal(t, cli.ExitOK, got.code, got.stderr)
	require.Equal(t, "99.01", b.tray.Version("FW_BMC_0"))
	require.Equal(t, 1, b.uploads())
	require.Contains(t, got.stdout, "completed after")
	require.Contains(t, got.stdout, "FW_BMC_0: 99.01, package has 99.01: matched")
	require.Contains(t, got.stderr, "Uploading target 1/1: package-derived\n")
	require.NotContains(t, got.stderr, "\x1b", "plain lines when it is no terminal")
	agents := b.rack.Requests(b.tray.ID(), reqlog.Filter{Method: "POST"})
	require.NotEmpty(t, agents)

	again := b.update("-o", "json", filepath.Join(b.dir, "nvfw_P4972_9.fwpkg"))
	require.Equal(t, cli.ExitOK, again.code, again.stderr)
	result := b.decode(again.stdout)
	require.Equal(t, "completed", result.State)
	require.Equal(t, "already_up_to_date", result.Result["status"])
	require.Equal(t, 1, b.uploads(), "there was nothing to do")
}

func TestUpdateOnTerminal(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.redraw = true
	got := b.update("--no-activate", "--force", b.pldm("nvfw_P4972_9.fwpkg", "99.01", "BMC"))
	require.Equal(t, cli.ExitOK, got.code, got.stderr)
	require.Contains(t, got.stderr, "\r\x1b[KUploading target 1/1")
	require.True(t, strings.HasSuffix(got.stderr, "\n"))
	require.Contains(t, got.stdout, "not activated")
	require.NotEqual(t, "99.01", b.tray.Version("FW_BMC_0"))
}

// Files in different folders, each for a component of its own.
func TestUpdateOfSeveralFiles(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	first := b.file("a/cpld_9.2.bin", firmwarepackage.Raw("cpld_9.2.bin", 4096))
	second := b.file("b/c/obmc_9.3.bin", firmwarepackage.Raw("obmc_9.3.bin", 4096))
	link := filepath.Join(b.dir, "link.bin")
	require.NoError(t, os.Symlink(second, link))
	got := b.update("-v", first, link, "--component", "FW_CPLD_0", "--component", "FW_BMC_0")
	require.Equal(t, cli.ExitOK, got.code, got.stderr)
	require.Equal(t, 2, b.uploads())
	require.Equal(t, "9.2", b.tray.Version("FW_CPLD_0"))
	require.Equal(t, "9.3", b.tray.Version("FW_BMC_0"))
	require.Contains(t, got.stderr, "job finished", "-v logs")
}

func TestUpdateOfShelf(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(o *sim.Options) { o.Compute, o.PowerShelves = 0, 1 })
	content, err := firmwarepackage.ShelfArchive("BMC", "r9.9", "PMC", []byte("image"))
	require.NoError(t, err)
	got := b.update(b.file("pmc_r9.9.tar", content))
	require.Equal(t, cli.ExitOK, got.code, got.stderr)
	require.Len(t, b.rack.Uploads(b.tray.ID()), 1)
}

func TestUpdateFails(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, err := b.rack.AddFault(faults.Rule{
		Selector: faults.Request("POST", "**/update-multipart"),
		Action: faults.Action{Status: &faults.Status{Code: 400, Body: []byte(
			`{"error":{"@Message.ExtendedInfo":[{"MessageId":"Update.1.0.BadImage","Message":"The image is for another board."}]}}`)}},
	})
	require.NoError(t, err)
	got := b.update("-o", "json", b.pldm("nvfw_P4972_9.fwpkg", "99.01", "BMC"))
	require.Equal(t, cli.ExitFailed, got.code)
	require.Contains(t, got.stderr, "The image is for another board.", "the device's own words")
	require.Equal(t, "failed", b.decode(got.stdout).State)
}

// The device forgets the task when it restarts, and nothing shows that it took
// the image: nobody knows.
func TestUpdateOutcomeUnknown(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.tray.SetKnobs(bmc.Knobs{RestartDuringUpdate: &bmc.UpdateRestart{LoseTask: true, Outcome: bmc.RestartAbandons}})
	got := b.update("-o", "json", b.pldm("nvfw_P4972_9.fwpkg", "99.01", "BMC"))
	require.Equal(t, cli.ExitUnknown, got.code, got.stderr)
	require.Equal(t, "TASK_LOST", b.decode(got.stdout).Failure.Code)
}

// The first request to stop waits for a safe point: the device works on the image.
func TestUpdateStopped(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	// The task cannot be read before the request has arrived.
	id, err := b.rack.AddFault(faults.Rule{
		Selector: faults.Request("GET", "**/TaskService/Tasks/*"),
		Action:   faults.Action{Status: &faults.Status{Code: 503}},
	})
	require.NoError(t, err)
	sent := sync.OnceFunc(func() { b.signals <- os.Interrupt })
	b.watch = func(line string) {
		switch {
		case installing(line):
			sent()
		case strings.Contains(line, "stopping at"):
			b.rack.RemoveFault(id)
		}
	}
	got := b.update("-o", "json", b.pldm("nvfw_P4972_9.fwpkg", "99.01", "BMC"))
	require.Equal(t, cli.ExitFailed, got.code, got.stderr)
	require.Contains(t, got.stderr, "stopping at the next point")
	result := b.decode(got.stdout)
	require.Equal(t, "cancelled", result.State)
	require.Equal(t, "completed", result.Stages[2].Status, "the device was through with the image")
	require.NotEqual(t, "completed", result.Stages[len(result.Stages)-1].Status)
}

func TestUpdateCut(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(o *sim.Options) { o.Timing.Task = time.Hour })
	b.watch = func(line string) {
		switch {
		case installing(line) && len(b.signals) == 0:
			b.signals <- os.Interrupt
		case strings.Contains(line, "stopping at"):
			b.signals <- os.Interrupt
		}
	}
	got := b.update(b.pldm("nvfw_P4972_9.fwpkg", "99.01", "BMC"))
	require.Equal(t, cli.ExitUnknown, got.code, got.stderr)
	require.Contains(t, got.stderr, "hardware state unknown")
}

// An update whose terminal is lost goes on with its state file, and nothing is
// sent twice.
func TestUpdateTakenUpAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(o *sim.Options) { o.Timing.Task = 2 * time.Second })
	hangup := sync.OnceFunc(func() { b.signals <- syscall.SIGHUP })
	b.watch = func(line string) {
		if installing(line) {
			hangup()
		}
	}
	state := filepath.Join(b.dir, "state.json")
	args := []string{"--state", state, b.pldm("nvfw_P4972_9.fwpkg", "99.01", "BMC")}
	got := b.update(args...)
	require.Equal(t, cli.ExitUnknown, got.code, got.stderr)
	require.Contains(t, got.stderr, "takes it up again")
	kept, err := os.ReadFile(state)
	require.NoError(t, err)
	require.NotContains(t, string(kept), b.tray.Password())

	other := b.update("--force", args[0], args[1], args[2])
	require.Equal(t, cli.ExitUsage, other.code)
	require.Contains(t, other.stderr, "another command")

	got = b.update(args...)
	require.Equal(t, cli.ExitOK, got.code, got.stderr)
	require.Equal(t, 1, b.uploads())
	require.Equal(t, "99.01", b.tray.Version("FW_BMC_0"))
	require.NoFileExists(t, state)
}

func TestUpdatePasswords(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	image := b.pldm("nvfw_P4972_9.fwpkg", b.tray.Version("FW_BMC_0"), "BMC")
	file := b.file("password", []byte(b.tray.Password()+"\r\nsecond line\n"))
	require.Equal(t, cli.ExitOK, b.update(image, "--password-file", file).code)

	require.NoError(t, os.Chmod(file, 0o644))
	got := b.update(image, "--password-file", file)
	require.Equal(t, cli.ExitOK, got.code)
	require.Contains(t, got.stderr, "others can read")

	none := func(env *cli.Env) { env.Getenv = func(string) string { return "" } }
	got = b.updateIn(func(env *cli.Env) {
		none(env)
		env.Stdin = strings.NewReader(b.tray.Password() + "\n")
	}, image, "--password-file", "-")
	require.Equal(t, cli.ExitOK, got.code, got.stderr)

	prompt := ""
	got = b.updateIn(func(env *cli.Env) {
		none(env)
		env.Ask = func(p string) ([]byte, error) { prompt = p; return []byte(b.tray.Password()), nil }
	}, image)
	require.Equal(t, cli.ExitOK, got.code, got.stderr)
	require.Equal(t, "Password of admin at the management controller: ", prompt)

	got = b.updateIn(none, image)
	require.Equal(t, cli.ExitUsage, got.code)
	require.Contains(t, got.stderr, "no password")

	got = b.update(image, "--password", "planted-secret")
	require.Equal(t, cli.ExitUsage, got.code)
	require.Contains(t, got.stderr, "--password-file")
	require.NotContains(t, got.stderr, "planted-secret")

	got = b.updateIn(func(env *cli.Env) { env.Getenv = func(string) string { return "wrong" } }, image)
	require.Equal(t, cli.ExitFailed, got.code)
	require.Contains(t, got.stderr, "BMC_AUTH_FAILED")
}

func TestUpdateVerifiesCertificate(t *testing.T) {
	t.Parallel()
	b, other := newBench(t), newBench(t)
	image := b.pldm("nvfw_P4972_9.fwpkg", b.tray.Version("FW_BMC_0"), "BMC")
	ca := func(name string, r *sim.Rack) string {
		return b.file(name, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.Certificate().Raw}))
	}
	got := b.update(image, "--ca", ca("own.pem", b.rack))
	require.Equal(t, cli.ExitOK, got.code, got.stderr)
	got = b.update(image, "--ca", ca("other.pem", other.rack))
	require.Equal(t, cli.ExitFailed, got.code)
	require.Contains(t, got.stderr, "certificate")
	got = b.update(image, "--ca", ca("own.pem", b.rack), "--tls-name", "another.name")
	require.Equal(t, cli.ExitFailed, got.code)
}

func TestUpdateUsage(t *testing.T) {
	t.Parallel()
	image := filepath.Join("testdata", "tray.fwpkg")
	empty := filepath.Join(t.TempDir(), "empty.bin")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	direct := []string{"--direct", "--bmc", "127.0.0.1", "--type", "compute_gb200_nvidia"}
	for want, args := range map[string][]string{
		"give --direct":                 {image, "--bmc", "x", "--type", "compute_gb200_nvidia"},
		"which nodes?":                  {image},
		"needs --bmc":                   {image, "--direct", "--type", "compute_gb200_nvidia"},
		"once for each file":            append([]string{image, "--component", "A", "--component", "B"}, direct...),
		"unknown node type":             {image, "--direct", "--bmc", "x", "--type", "compute_gb999_acme"},
		"is not HOST":                   {image, "--direct", "--bmc", "https://x", "--type", "compute_gb200_nvidia"},
		"no such file":                  append([]string{"testdata/nothing"}, direct...),
		"is empty":                      append([]string{empty}, direct...),
		"--tls-name needs --ca":         append([]string{image, "--tls-name", "n"}, direct...),
		"no certificate in PEM form":    append([]string{image, "--ca", image}, direct...),
		"unknown form of output":        append([]string{image, "-o", "xml"}, direct...),
		"output \"yaml\" with --direct": append([]string{image, "-o", "yaml"}, direct...),
		"there are compute_gb200":       {image, "--direct", "--bmc", "x", "--type", "switch_gb200_nvidia"},
	} {
		got := run(t, append([]string{"firmware", "update"}, args...)...)
		require.Equal(t, cli.ExitUsage, got.code, want)
		require.Contains(t, got.stderr, want)
	}
}
