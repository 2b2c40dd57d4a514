// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/rackbus/rackbus/proto/rackmanager"
	"github.com/rackbus/rackbus/test/cmd/internal/program"
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

// rack is the running simulator.
type rack struct {
	*program.Program
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
	p, err := program.New(ctx, bin, dir, "racksim", append(ports.simulated(),
		"--compute", fmt.Sprint(trays), "--powershelves", fmt.Sprint(shelves), "--rack", rackID,
		"--listen", "127.0.0.1", "--task-duration", taskTime.String(), "--bmc-outage", "1s", "--faults", faults)...)
	if err != nil {
		return nil, err
	}
	nodes, err := p.StartRack()
	if err != nil {
		return nil, err
	}
	return &rack{Program: p, nodes: nodes, ports: ports}, nil
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
	*program.Program
	grpc    string
	metrics string
	console string
	keys    string
}

// startServer runs Rackbus with the waits of its workflows scaled down: the
// simulated hardware is a hundred times faster than the real one.
func startServer(ctx context.Context, bin, dir string, ports switchPorts) (*server, error) {
	grpcAddr, err := program.FreeAddress()
	if err != nil {
		return nil, err
	}
	metricsAddr, err := program.FreeAddress()
	if err != nil {
		return nil, err
	}
	consoleAddr, err := program.FreeAddress()
	if err != nil {
		return nil, err
	}
	firmware := filepath.Join(dir, "firmware")
	if err := writeFirmware(firmware); err != nil {
		return nil, err
	}
	p, err := program.New(ctx, bin, dir, "rackbus", append([]string{
		"serve", "--data", filepath.Join(dir, "data"), "--grpc", grpcAddr, "--metrics", metricsAddr, "--console", consoleAddr,
		"--set", "workflows.firmware_dir=" + firmware, "--set", "timing.scale=0.02",
		"--set", "timing.redfish.task_poll_interval=25s",
		"--set", "ssh.known_hosts=" + filepath.Join(dir, "known_hosts"),
	}, ports.served()...)...)
	if err != nil {
		return nil, err
	}
	p.Env = append(os.Environ(), "RACKBUS_ALLOW_INSECURE=1")
	if err := p.StartServer(ctx, metricsAddr); err != nil {
		return nil, err
	}
	return &server{Program: p, grpc: grpcAddr, metrics: metricsAddr, console: "https://" + consoleAddr, keys: filepath.Join(dir, "keys", "tls")}, nil
}

// rackctlConfig is the configuration of a rackctl that talks to the server.
func (s *server) rackctlConfig() []byte {
	return fmt.Appendf(nil, "current: demo\ncontexts:\n  demo: {address: %q, ca: %q, cert: %q, key: %q}\n",
		s.grpc, filepath.Join(s.keys, "ca.crt"), filepath.Join(s.keys, "client.crt"), filepath.Join(s.keys, "client.key"))
}
