// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/rackbus/rackbus/proto/rackmanager"
)

// The rack of the demo.
const (
	rackID      = "demo-rack"
	trays       = 18
	switches    = 9
	shelves     = 8
	busyTray    = 3  // gets an update of its own first
	failingTray = 11 // its update task ends badly
	taskTime    = 15 * time.Second
	installTime = 8 * time.Second
	rebootTime  = 3 * time.Second
)

// Waits of the demo itself.
const (
	readyPoll   = 100 * time.Millisecond
	readyLimit  = 30 * time.Second
	stopTimeout = 10 * time.Second
)

// process is a program that the demo runs.
type process struct {
	cmd *exec.Cmd
	log string
}

// stop asks the program to end, and ends it.
func (p *process) stop() {
	if p.cmd.Process == nil {
		return
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		_ = p.cmd.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(stopTimeout):
		_ = p.cmd.Process.Kill()
		<-done
	}
}

func command(ctx context.Context, bin, dir, name string, args ...string) (*process, *os.File, error) {
	log := filepath.Join(dir, strings.ReplaceAll(name, " ", "-")+".log")
	f, err := os.Create(log)
	if err != nil {
		return nil, nil, err
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), filepath.Join(bin, name), args...)
	// Ctrl-C reaches the demo, which stops its programs in order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Stderr = f
	return &process{cmd: cmd, log: log}, f, nil
}

// rack is the running simulator.
type rack struct {
	*process
	nodes *rackmanager.NodeSet
	ports switchPorts
}

// startRack runs racksim and reads the node set it prints.
func startRack(ctx context.Context, bin, dir string) (*rack, error) {
	faults := filepath.Join(dir, "faults.json")
	if err := os.WriteFile(faults, []byte(failingTask()), 0o600); err != nil {
		return nil, err
	}
	ports, err := drawSwitchPorts()
	if err != nil {
		return nil, err
	}
	p, _, err := command(ctx, bin, dir, "racksim", append(ports.simulated(),
		"--compute", fmt.Sprint(trays), "--powershelves", fmt.Sprint(shelves), "--rack", rackID,
		"--listen", "127.0.0.1", "--task-duration", taskTime.String(), "--bmc-outage", "1s", "--faults", faults)...)
	if err != nil {
		return nil, err
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start racksim (run make build first): %w", err)
	}
	doc, err := readUntilReady(stdout)
	if err != nil {
		p.stop()
		return nil, fmt.Errorf("racksim: %w (log %s)", err, p.log)
	}
	nodes := &rackmanager.NodeSet{}
	if err := protojson.Unmarshal([]byte(doc), nodes); err != nil {
		p.stop()
		return nil, fmt.Errorf("racksim: node set: %w", err)
	}
	return &rack{process: p, nodes: nodes, ports: ports}, nil
}

func readUntilReady(r io.Reader) (string, error) {
	var doc strings.Builder
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		if lines.Text() == "ready" {
			return doc.String(), nil
		}
		doc.WriteString(lines.Text() + "\n")
	}
	return "", errors.Join(errors.New("ended before it was ready"), lines.Err())
}

// failingTask makes the update task of one tray end in an exception.
func failingTask() string {
	rule := []map[string]any{{
		"id": "failing-tray", "device": fmt.Sprintf("compute-%04d", failingTray),
		"selector": map[string]string{"path": "/redfish/v1/TaskService/Tasks/*", "method": "GET"},
		"action": map[string]any{"JsonMerge": map[string]any{
			"TaskState": "Exception", "TaskStatus": "Critical", "PercentComplete": 40,
			"Messages": []map[string]string{{
				"MessageId": "Update.1.0.TransferFailed", "MessageSeverity": "Critical",
				"Message":    "Transfer of image 'BMC' to '/redfish/v1/UpdateService/FirmwareInventory/FW_BMC_0' failed.",
				"Resolution": "Check the flash of the component and retry the update.",
			}},
		}},
	}}
	data, err := json.Marshal(rule)
	if err != nil {
		panic(err) // plain data
	}
	return string(data)
}

// server is the running `rackbus serve`.
type server struct {
	*process
	grpc    string
	metrics string
	console string
	keys    string
}

// startServer runs Rackbus with the waits of its workflows scaled down: the
// simulated hardware is a hundred times faster than the real one.
func startServer(ctx context.Context, bin, dir string, ports switchPorts) (*server, error) {
	grpcAddr, err := freeAddress()
	if err != nil {
		return nil, err
	}
	metricsAddr, err := freeAddress()
	if err != nil {
		return nil, err
	}
	consoleAddr, err := freeAddress()
	if err != nil {
		return nil, err
	}
	firmware := filepath.Join(dir, "firmware")
	if err := writeFirmware(firmware); err != nil {
		return nil, err
	}
	p, log, err := command(ctx, bin, dir, "rackbus", append([]string{
		"serve", "--data", filepath.Join(dir, "data"), "--grpc", grpcAddr, "--metrics", metricsAddr, "--console", consoleAddr,
		"--set", "workflows.firmware_dir=" + firmware, "--set", "timing.scale=0.02",
		"--set", "timing.redfish.task_poll_interval=25s",
		"--set", "ssh.known_hosts=" + filepath.Join(dir, "known_hosts"),
	}, ports.served()...)...)
	if err != nil {
		return nil, err
	}
	p.cmd.Stdout = log
	p.cmd.Env = append(os.Environ(), "RACKBUS_ALLOW_INSECURE=1")
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start rackbus (run make build first): %w", err)
	}
	s := &server{process: p, grpc: grpcAddr, metrics: metricsAddr, console: "https://" + consoleAddr, keys: filepath.Join(dir, "keys", "tls")}
	if err := s.awaitReady(ctx); err != nil {
		s.stop()
		return nil, fmt.Errorf("rackbus serve: %w (log %s)", err, p.log)
	}
	return s, nil
}

func (s *server) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.metrics+"/readyz", nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not ready within %s", readyLimit)
		case <-time.After(readyPoll):
		}
	}
}

// rackctlConfig is the configuration of a rackctl that talks to the server.
func (s *server) rackctlConfig() []byte {
	return fmt.Appendf(nil, "current: demo\ncontexts:\n  demo: {address: %q, ca: %q, cert: %q, key: %q}\n",
		s.grpc, filepath.Join(s.keys, "ca.crt"), filepath.Join(s.keys, "client.crt"), filepath.Join(s.keys, "client.key"))
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // closed at once
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}
