// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/rackbus/rackbus/test/cmd/internal/program"
)

// settingOf is the setting of Rackbus for each port of switches that no endpoint
// names, by the simulator's name for the port.
func settingOf() map[string]string {
	return map[string]string{"ssh": "ssh", "nmxc": "nmx_controller", "telemetry": "nmx_telemetry", "gnmi": "gnmi"}
}

// switchPorts are these ports. All switches have the same, at addresses of their
// own.
type switchPorts map[string]string

func drawSwitchPorts() (switchPorts, error) {
	ports := switchPorts{}
	for name := range settingOf() {
		address, err := program.FreeAddress()
		if err != nil {
			return nil, err
		}
		if _, ports[name], err = net.SplitHostPort(address); err != nil {
			return nil, err
		}
	}
	return ports, nil
}

// simulated are the arguments of racksim.
func (p switchPorts) simulated() []string {
	text := "nvue=0,bmc=0"
	for _, name := range slices.Sorted(maps.Keys(p)) {
		text += "," + name + "=" + p[name]
	}
	return []string{
		"--switches", strconv.Itoa(switches), "--switch-ports", text,
		"--switch-install", installTime.String(), "--switch-reboot", rebootTime.String(),
	}
}

// served are the arguments of rackbus: the switches are on loopback, where real
// ones cannot be, and show certificates that nobody vouches for.
func (p switchPorts) served() []string {
	args := []string{"--set", "switches.allow_loopback_targets=true", "--set", "switches.insecure_switch=true"}
	for name, setting := range settingOf() {
		args = append(args, "--set", fmt.Sprintf("switches.test_ports.%s=%s", setting, p[name]))
	}
	return args
}

// isSwitch reports whether a node is a switch, by its type.
func isSwitch(nodeType string) bool { return strings.HasPrefix(nodeType, "SWITCH_") }
