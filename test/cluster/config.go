// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// settings are configuration keys with their TOML values.
type settings map[string]string

func (s settings) duration(key string, d time.Duration) { s[key] = fmt.Sprintf("%q", d.String()) }

func (s settings) text(key, value string) { s[key] = fmt.Sprintf("%q", value) }

// toml writes dotted keys, which TOML takes at the top level.
func (s settings) toml() string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(s)) {
		fmt.Fprintf(&b, "%s = %s\n", key, s[key])
	}
	return b.String()
}

// scale makes the waits for hardware a hundredth of those for real racks.
const scale = 0.01

// waits for the simulated hardware, unscaled: limits that a loaded test machine needs, and pauses that it does not.
func waits() map[string]time.Duration {
	return map[string]time.Duration{
		"aux_settle_gb200": 600 * time.Millisecond, "verify_first_delay": 200 * time.Millisecond, "verify_interval": 300 * time.Millisecond,
		"background_copy_limit": 30 * time.Second, "ready_limit": 30 * time.Second, "task_tolerance": 30 * time.Second,
		"power_off_wait": 20 * time.Second, "power_on_wait": 20 * time.Second, "power_on_limit": 20 * time.Second,
		"power_on_repeat": 5 * time.Second, "bmc_return_limit": 30 * time.Second, "manager_lost_limit": 20 * time.Second,
		"manager_return_limit": 30 * time.Second, "task_limit_compute": time.Minute, "task_limit_powershelf": time.Minute,
	}
}

// standard is the configuration that all processes share, for the given number of brokers.
func (c *Cluster) standard(brokers int) settings {
	s := settings{
		"bus.replicas": fmt.Sprint(brokers), "bus.tls_handshake_first": "true",
		"timing.scale": fmt.Sprint(scale), "timing.redfish.verify_attempts": "10",
	}
	quoted := make([]string, len(c.busURLs))
	for i, url := range c.busURLs {
		quoted[i] = fmt.Sprintf("%q", url)
	}
	s["bus.urls"] = "[" + strings.Join(quoted, ", ") + "]"
	s.text("listen", "127.0.0.1")
	s.text("keys.dir", c.keys)
	s.text("bus.tls_ca", c.certFile("ca.crt"))
	s.text("tls.cert", c.certFile("server.crt"))
	s.text("tls.key", c.certFile("server.key"))
	s.text("tls.ca", c.certFile("ca.crt"))
	s.text("workflows.firmware_dir", c.FirmwareDir)
	s.text("ssh.known_hosts", filepath.Join(c.dir, "known_hosts"))
	s.text("logging.log_level", "info")
	s["logging.enable_timestamps"] = "true"
	for key, wait := range waits() {
		s.duration("timing.redfish."+key, time.Duration(float64(wait)/scale))
	}
	s.duration("timing.bus.progress_interval", 500*time.Millisecond)
	s.duration("timing.bus.admit_timeout", 5*time.Second)
	for key, d := range leases(brokers) {
		s.duration("timing.bus."+key, d)
	}
	return s
}

// leases are about half of the standard ones: a test waits for their end more than for anything else.
func leases(brokers int) map[string]time.Duration {
	if brokers == 1 {
		return map[string]time.Duration{
			"session_ttl": 3 * time.Second, "session_renew": 600 * time.Millisecond, "session_margin": 500 * time.Millisecond,
			"ack_wait": 3 * time.Second, "work_interval": time.Second, "nak_busy": 500 * time.Millisecond,
			"fold_ttl": 2500 * time.Millisecond, "fold_renew": 500 * time.Millisecond,
		}
	}
	// Losing the leader of a stream stops writes for five seconds and more.
	return map[string]time.Duration{
		"session_ttl": 9 * time.Second, "session_renew": time.Second, "session_margin": time.Second,
		"ack_wait": 6 * time.Second, "work_interval": 2 * time.Second, "nak_busy": time.Second,
		"fold_ttl": 9 * time.Second, "fold_renew": time.Second,
	}
}
