// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/rackbus/rackbus/sim/nvswitch"
)

// The switches of a cluster know Rackbus by the material of this domain, under one TLS server name for all of them.
const (
	SwitchDomain = "rack"
	SwitchName   = "nvswitch.rackbus.test"
)

// allowInsecure lets processes connect to switches on loopback.
const allowInsecure = "RACKBUS_ALLOW_INSECURE=1"

func (c *Cluster) hasSwitches() bool {
	for _, rack := range c.Racks {
		if len(rack.Switches()) > 0 {
			return true
		}
	}
	return false
}

// addSwitches makes the agents of switches, the material for these, and the settings.
func (c *Cluster) addSwitches(s settings, replicas int) error {
	for i := range replicas {
		if err := c.addService(service{RoleSwitchAgent, programSwitch, "switch-agent"}, i+1); err != nil {
			return err
		}
	}
	ports, err := c.switchPorts()
	if err != nil {
		return err
	}
	if c.Domain, err = newDomain(); err != nil {
		return err
	}
	installed, clients := filepath.Join(c.dir, "switch-certs"), filepath.Join(c.dir, "switch-clients")
	if err := c.Domain.write(installed, clients); err != nil {
		return err
	}
	s.text("switches.switch_cert_root", installed)
	s.text("switches.client_tls_root", clients)
	s.text("switches.default_switch_domain", SwitchDomain)
	s.text("switches.dns_domain", SwitchName)
	s["switches.allow_loopback_targets"] = "true"
	for key, port := range map[string]int{
		"ssh": ports.SSH, "nmx_controller": ports.NMXC, "nmx_telemetry": ports.Telemetry, "gnmi": ports.GNMI,
	} {
		s["switches.test_ports."+key] = fmt.Sprint(port)
	}
	for key, wait := range switchWaits() {
		s.duration("timing.switch."+key, time.Duration(float64(wait)/scale))
	}
	s["timing.switch.converge_attempts"] = "100"
	s["timing.switch.hello_attempts"] = "20"
	for _, p := range c.all {
		if p.Role != RoleBroker {
			p.always = append(p.always, allowInsecure)
		}
	}
	return nil
}

// switchPorts are those of all switches.
func (c *Cluster) switchPorts() (nvswitch.Ports, error) {
	var ports nvswitch.Ports
	for _, rack := range c.Racks {
		switch own := rack.SwitchPorts(); {
		case len(rack.Switches()) == 0:
		case ports == nvswitch.Ports{}:
			ports = own
		case ports != own:
			return ports, errors.New("the switches of the racks have different ports: set sim.Options.SwitchPorts")
		}
	}
	return ports, nil
}

// switchWaits are for simulated switches what waits are for other devices.
func switchWaits() map[string]time.Duration {
	const limit = 30 * time.Second
	return map[string]time.Duration{
		"revision_limit": limit, "action_limit": limit, "upload_window": limit, "install_limit": 2 * limit,
		"reboot_poll": 50 * time.Millisecond, "reboot_limit": limit, "image_reboot_limit": limit, "fetch_limit": limit, "asic_limit": limit,
		"bmc_cycle_limit": limit, "uninstall_limit": limit, "handoff_limit": limit, "steady_first": limit, "steady_second": limit,
		"steady_third": limit, "host_key_limit": limit, "factory_reset_down_limit": limit, "factory_reset_limit": 2 * limit,
		"password_dialog_limit": limit, "password_login_limit": limit, "evidence_limit": limit, "evidence_total": 2 * limit,
		"converge_interval": 100 * time.Millisecond, "controller_limit": limit, "sdn_reset_limit": limit,
	}
}
