// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/rackbus/rackbus/sim"
)

// asRacksim makes the test binary be racksim, so that the tests signal a real process.
const asRacksim = "RACKSIM_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asRacksim) != "" {
		os.Exit(Main(os.Args[1:], os.Stdout, os.Stderr))
	}
	goleak.VerifyTestMain(m)
}

// process is a racksim process that has said ready.
type process struct {
	cmd    *exec.Cmd
	nodes  sim.NodeSet
	stderr bytes.Buffer
}

func startProcess(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(os.Args[0], args...)}
	p.cmd.Env = append(os.Environ(), asRacksim+"=1")
	p.cmd.Stderr = &p.stderr
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	var doc strings.Builder
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if lines.Text() == "ready" {
			require.NoError(t, json.Unmarshal([]byte(doc.String()), &p.nodes))
			return p
		}
		doc.WriteString(lines.Text())
	}
	require.Fail(t, "racksim ended before it was ready", p.stderr.String())
	return nil
}

func (p *process) get(t *testing.T, n sim.Node, path string) int {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	e := n.BMCEndpoint
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("https://%s:%d%s", e.Interface.IPAddress, e.Port, path), nil)
	require.NoError(t, err)
	r.SetBasicAuth(e.Credentials.UserPass.Username, e.Credentials.UserPass.Password)
	res, err := transport.RoundTrip(r)
	require.NoError(t, err)
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	require.NoError(t, err)
	return res.StatusCode
}

func TestProcess(t *testing.T) {
	for _, signal := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
		t.Run(signal.String(), func(t *testing.T) {
			dir := t.TempDir()
			requests, rules := filepath.Join(dir, "requests"), filepath.Join(dir, "faults")
			require.NoError(t, os.WriteFile(rules, []byte(
				`[{"selector":{"odata_id":"/redfish/v1/Managers"},"action":{"status":503}}]`), 0o600))
			p := startProcess(t, "--compute", "2", "--powershelves", "1", "--switches", "0", "--rack", "r9",
				"--listen", "127.0.0.1", "--port-base", "0", "--requests", requests, "--faults", rules, "--seed", "3",
				"--type-compute", "gb300", "--type-powershelf", "gb300",
				"--node-type", "powershelf_gb300_delta=1", "--node-type", "compute_gb300_supermicro=2")
			require.Len(t, p.nodes.Nodes, 6)
			super := p.nodes.Nodes[3]
			require.Empty(t, super.Type)
			require.Equal(t, map[string]string{"role": "compute", "vendor": "supermicro", "product_family": "gb300"}, super.NodeDescriptor.Attributes)
			require.Equal(t, 200, p.get(t, super, "/redfish/v1/Systems"))
			require.Equal(t, "POWERSHELF_GB300_DELTA", p.nodes.Nodes[5].Type)
			p.nodes.Nodes = slices.Delete(p.nodes.Nodes, 2, 4)
			require.Equal(t, "COMPUTE_GB300_NVIDIA", p.nodes.Nodes[0].Type)
			require.Equal(t, "POWERSHELF_GB300_LITEON", p.nodes.Nodes[2].Type)
			require.Equal(t, "r9", p.nodes.Nodes[2].RackID)
			require.Equal(t, 200, p.get(t, p.nodes.Nodes[0], "/redfish/v1/Systems"))
			require.Equal(t, 503, p.get(t, p.nodes.Nodes[2], "/redfish/v1/Managers"))

			require.NoError(t, p.cmd.Process.Signal(signal))
			require.NoError(t, p.cmd.Wait(), p.stderr.String())
			raw, err := os.ReadFile(requests)
			require.NoError(t, err)
			require.Equal(t, 3, bytes.Count(raw, []byte("\n")))
			require.Contains(t, string(raw), `"device":"powershelf-0001"`)
		})
	}
}

func TestSwitches(t *testing.T) {
	p := startProcess(t, "--switches", "1", "--node-type", "switch_vrnvl72_nvidia=1",
		"--switch-ports", "nvue=0,ssh=0,nmxc=0,telemetry=0,gnmi=0,bmc=0")
	require.Len(t, p.nodes.Nodes, 2)
	require.Equal(t, "SWITCH_GB200_NVIDIA", p.nodes.Nodes[0].Type)
	require.Equal(t, "SWITCH_VRNVL72_NVIDIA", p.nodes.Nodes[1].Type)
	require.Equal(t, "127.2.0.2", p.nodes.Nodes[1].HostEndpoint.Interface.IPAddress)
	require.Equal(t, p.nodes.Nodes[0].HostEndpoint.Port, p.nodes.Nodes[1].HostEndpoint.Port)
	require.Equal(t, 200, p.get(t, p.nodes.Nodes[1], "/redfish/v1/Systems/System_0"))
	require.NoError(t, p.cmd.Process.Signal(os.Interrupt))
	require.NoError(t, p.cmd.Wait())
	require.Contains(t, p.stderr.String(), "gnmi=")
}

// TestInventory reads the file by the columns that rackctl knows.
func TestInventory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rack.csv")
	require.NoError(t, os.WriteFile(path, nil, 0o644)) // others could read what was there
	p := startProcess(t, "--compute", "1", "--node-type", "compute_gb300_lenovo=1", "--switches", "1", "--rack", "lab",
		"--inventory", path, "--switch-ports", "nvue=0,ssh=0,nmxc=0,telemetry=0,gnmi=0,bmc=0")
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	require.NoError(t, err)
	require.Len(t, rows, 4)
	require.Equal(t, []string{"rack", "node", "type", "bmc_address"}, rows[0][:4])
	tray := p.nodes.Nodes[0].BMCEndpoint
	require.Equal(t, []string{
		"lab", "compute-0001", "compute_gb200_nvidia", "127.0.0.1", tray.Interface.MACAddress, strconv.Itoa(tray.Port), "admin", "racksim-pw",
	}, rows[1][:8])
	require.Equal(t, "compute_gb300_lenovo", rows[2][2])
	require.Equal(t, "switch_gb200_nvidia", rows[3][2])
	require.Equal(t, strconv.Itoa(p.nodes.Nodes[2].HostEndpoint.Port), rows[3][10])
	require.NoError(t, p.cmd.Process.Signal(os.Interrupt))
	require.NoError(t, p.cmd.Wait())
}

func TestUse(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.json")
	require.NoError(t, os.WriteFile(bad, []byte("[{"), 0o600))
	tests := []struct {
		name string
		args []string
		code int
		says string
	}{
		{"help", []string{"--help"}, 0, "-powershelves"},
		{"switches", []string{"--compute", "1", "--switches", "-1"}, 2, "-1 switches"},
		{"switch ports", []string{"--switches", "1", "--switch-ports", "ssh=22,telnet=23"}, 2, "NAME=PORT"},
		{"switch address", []string{"--switches", "1", "--switch-address", "fe80::1"}, 2, "no IPv4 address"},
		{"unknown flag", []string{"--nope"}, 2, "nope"},
		{"argument", []string{"--compute", "1", "extra"}, 2, "extra"},
		{"no devices", nil, 2, "racksim --compute 4"},
		{"inventory", []string{"--compute", "1", "--inventory", "/no/such/dir/x"}, 1, "no such file"},
		{"unknown node type", []string{"--node-type", "toaster=1"}, 2, "TYPE=N"},
		{"node type without number", []string{"--node-type", "compute_gb200_wiwynn"}, 2, "TYPE=N"},
		{"generation", []string{"--compute", "1", "--type-compute", "gb100"}, 2, "gb100"},
		{"no such fault file", []string{"--compute", "1", "--faults", "/no/such"}, 1, "no such file"},
		{"bad fault file", []string{"--compute", "1", "--faults", bad}, 1, "fault rules"},
		{"request log", []string{"--compute", "1", "--requests", "/no/such/dir/x"}, 1, "no such file"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			var stdout, stderr bytes.Buffer
			require.Equal(t, tt.code, Run(ctx, tt.args, &stdout, &stderr), stderr.String())
			if tt.code == 0 {
				require.Contains(t, stdout.String(), tt.says)
				require.Empty(t, stderr.String())
				return
			}
			require.Contains(t, stderr.String(), tt.says)
			require.Empty(t, stdout.String())
		})
	}
}
