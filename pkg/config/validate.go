// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"maps"
	"math"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/seal"
	"github.com/rackbus/rackbus/pkg/telemetry"
)

const (
	onBusyDefault   = "default"
	onBusyRefuse    = "refuse"
	onBusyQueue     = "queue"
	onBusySupersede = "supersede"
)

// zeroAllowed are the durations that may be 0: leases that then follow
// bus.replicas, and pauses that can be left out.
var zeroAllowed = []string{
	"timing.bus.session_ttl", "timing.bus.session_renew", "timing.bus.session_margin",
	"timing.bus.ack_wait", "timing.bus.work_interval", "timing.bus.nak_busy",
	"timing.bus.fold_ttl", "timing.bus.fold_renew",
	"timing.cold_reboot.prestage_shutdown_floor", "timing.cold_reboot.discharge_floor",
	"timing.cold_reboot.bmc_up_floor", "timing.cold_reboot.compute_boot_wait",
}

// validate notes everything that is wrong with the values themselves.
func (c *Config) validate(p Process, faults *Faults) {
	c.checkNumbers(faults)
	c.checkListeners(p, faults)
	c.checkSwitches(p, faults)
	c.checkLogging(faults)
	c.checkBus(faults)
	c.checkKeys(p, faults)
	c.checkJobs(faults)
	c.checkAgent(faults)
	c.checkTiming(faults)
	c.checkSSH(faults)
	c.checkValidation(p, faults)
	c.checkArtifacts(faults)
	c.checkAuth(faults)
	c.checkConsole(p, faults)
	c.checkDiagnostics(faults)
	c.checkIronic(faults)
	c.checkTracing(faults)
	if c.Workflows.SFTPStepTimeoutSeconds > c.Workflows.SFTPUploadTimeoutSeconds {
		faults.add("workflows.sftp_step_timeout_seconds", c.Workflows.SFTPStepTimeoutSeconds,
			fmt.Sprintf("SFTP step timeout must be less than or equal to upload timeout (%d)", c.Workflows.SFTPUploadTimeoutSeconds))
	}
	if strings.TrimSpace(c.Workflows.FirmwareDir) == "" {
		faults.add("workflows.firmware_dir", c.Workflows.FirmwareDir, "must not be blank")
	}
	if p == ProcessStandalone {
		c.checkStandalone(faults)
	}
}

// checkNumbers holds for every count and duration: none may be negative, and
// only the listed ones may be 0.
func (c *Config) checkNumbers(faults *Faults) {
	for _, f := range c.fields() {
		switch {
		case f.value.Type() == durationType:
			d := time.Duration(f.value.Int())
			if d < 0 || d == 0 && !slices.Contains(zeroAllowed, f.path) {
				faults.add(f.path, durationText(d), "must be greater than 0")
			}
		case f.value.Kind() == reflect.Int && f.value.Int() <= 0:
			faults.add(f.path, f.value.Int(), "must be greater than 0")
		}
	}
}

func (c *Config) checkListeners(p Process, faults *Faults) {
	if c.Metrics.Port != 0 && c.Metrics.Port == c.Port {
		faults.add("metrics.port", c.Metrics.Port, fmt.Sprintf("metrics.port (%d) must differ from port (%d)", c.Metrics.Port, c.Port))
	}
	cert, key, ca := c.TLS.Cert != "", c.TLS.Key != "", c.TLS.CA != ""
	if c.Metrics.TLS && !(cert && key) {
		faults.add("metrics.tls", c.Metrics.TLS, "metrics.tls requires gRPC TLS material (tls.cert and tls.key)")
	}
	if c.TLS.Insecure && !c.insecureAllowed {
		faults.add("tls.insecure", c.TLS.Insecure, "needs "+envInsecure+"=1 in the environment")
	}
	switch {
	case cert != key:
		faults.add("tls", nil, "tls.cert and tls.key must be provided together")
	case cert && !ca:
		faults.add("tls.ca", nil, "tls.ca is required with tls.cert and tls.key")
	case !cert && ca:
		faults.add("tls.ca", c.TLS.CA, "tls.ca requires tls.cert and tls.key")
	case !cert && !c.TLS.Insecure && p.servesGRPC():
		faults.add("tls", nil, "provide tls.cert, tls.key, and tls.ca for mTLS, or insecure = true for testing")
	}
}

func (c *Config) checkSwitches(p Process, faults *Faults) {
	s := &c.Switches
	if strings.TrimSpace(s.NMXGatewayID) == "" {
		faults.add("switches.nmx_gateway_id", s.NMXGatewayID, "must not be blank or whitespace-only")
	}
	c.checkTestTargets(faults)
	if s.InsecureSwitch {
		return // the material below is not used
	}
	if p.drivesSwitches() { // elsewhere the directories need not be there
		checkDir("switches.switch_cert_root", s.SwitchCertRoot, faults)
		checkDir("switches.client_tls_root", s.ClientTLSRoot, faults)
	}
	if s.ClientTLSRoot != "" && s.DefaultSwitchDomain == "" {
		faults.add("switches.client_tls_root", s.ClientTLSRoot, "needs switches.default_switch_domain")
	}
	if s.DefaultSwitchDomain != "" && !pathComponent(s.DefaultSwitchDomain) {
		faults.add("switches.default_switch_domain", s.DefaultSwitchDomain, "must be one folder name")
	}
	if s.DNSDomain != "" && !dnsName(s.DNSDomain) {
		faults.add("switches.dns_domain", s.DNSDomain, "must be a DNS name, without port or wildcard")
	}
}

// needsGate says that a setting is for tests only.
const needsGate = "needs " + envInsecure + "=1 in the environment"

// checkTestTargets refuses what only a simulated rack needs: on a real one it would
// send the credentials of switches to whatever listens on this host.
func (c *Config) checkTestTargets(faults *Faults) {
	if c.insecureAllowed {
		return
	}
	if c.Switches.AllowLoopbackTargets {
		faults.add("switches.allow_loopback_targets", true, needsGate)
	}
	for _, f := range fieldsOf("switches.test_ports.", reflect.ValueOf(c.Switches.TestPorts)) {
		if port := f.value.Uint(); port != 0 {
			faults.add(f.path, port, needsGate)
		}
	}
}

func checkDir(key, dir string, faults *Faults) {
	if dir == "" {
		return
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		faults.add(key, dir, "directory does not exist")
	}
}

// pathComponent reports whether text names one folder and nothing else.
func pathComponent(text string) bool {
	text = strings.TrimSpace(text)
	return text != "" && text != "." && text != ".." && !strings.ContainsAny(text, "/\\\x00")
}

// dnsName follows RFC 1123: labels of letters, digits and inner hyphens.
func dnsName(text string) bool {
	if _, err := netip.ParseAddr(text); err == nil || len(text) > 253 {
		return false
	}
	for label := range strings.SplitSeq(text, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for _, r := range label {
			if !(r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z') {
				return false
			}
		}
	}
	return true
}

func (c *Config) checkLogging(faults *Faults) {
	if _, err := telemetry.ParseLevel(c.Logging.LogLevel); err != nil {
		faults.add("logging.log_level", c.Logging.LogLevel, "must be trace, debug, info, warn, error or off")
	}
	switch telemetry.LogFormat(c.Logging.Format) {
	case telemetry.FormatLogfmt, telemetry.FormatJSON:
	default:
		faults.add("logging.format", c.Logging.Format, "must be logfmt or json")
	}
}

func (c *Config) checkBus(faults *Faults) {
	b := &c.Bus
	if len(b.URLs) == 0 {
		faults.add("bus.urls", nil, "must name at least one server")
	}
	for i, text := range b.URLs {
		u, err := url.Parse(text)
		if err != nil || u.Host == "" || !slices.Contains([]string{"nats", "tls", "ws", "wss"}, u.Scheme) {
			faults.add(fmt.Sprintf("bus.urls[%d]", i), text, "must be a URL such as nats://host:4222")
		}
	}
	if b.Replicas > 0 && b.Replicas != 1 && b.Replicas != 3 {
		faults.add("bus.replicas", b.Replicas, "must be 1 or 3")
	}
	if b.NKeySeedFile != "" && b.CredsFile != "" {
		faults.add("bus.nkey_seed_file", b.NKeySeedFile, "excludes bus.creds_file")
	}
	switch {
	case (b.TLSCert == "") != (b.TLSKey == ""):
		faults.add("bus", nil, "bus.tls_cert and bus.tls_key must be provided together")
	case b.TLSCert != "" && b.TLSCA == "":
		faults.add("bus.tls_cert", b.TLSCert, "needs bus.tls_ca")
	}
	if b.TLSHandshakeFirst && b.TLSCA == "" {
		faults.add("bus.tls_handshake_first", b.TLSHandshakeFirst, "needs bus.tls_ca")
	}
}

func (c *Config) checkKeys(p Process, faults *Faults) {
	for _, family := range slices.Sorted(maps.Keys(c.Keys.FamiliesPublic)) {
		path := "keys.families_public." + family
		if !node.Family(family).HasKeys() {
			faults.add(path, nil, "unknown family; there are compute, switch, powershelf and rack")
			continue
		}
		for i, key := range c.Keys.FamiliesPublic[family] {
			if !seal.IsPublicKey(key) {
				faults.add(fmt.Sprintf("%s[%d]", path, i), key, "must be a public curve key (X...)")
			}
		}
	}
	switch p {
	case ProcessAPI:
		if c.Keys.Dir == "" && len(c.Keys.FamiliesPublic) == 0 {
			faults.add("keys", nil, "keys.dir or keys.families_public is needed to seal credentials")
		}
	case ProcessComputeAgent, ProcessPowerShelfAgent, ProcessSwitchAgent:
		if c.Keys.Dir == "" {
			faults.add("keys.dir", nil, "is needed to open credentials")
		}
	case ProcessJobs, ProcessStandalone: // the one can do without, the other makes them
	}
}

func (c *Config) checkJobs(faults *Faults) {
	for _, key := range slices.Sorted(maps.Keys(c.Jobs.OnBusy)) {
		path, policy := "jobs.on_busy."+key, c.Jobs.OnBusy[key]
		if key != onBusyDefault && !knownJobType(key) {
			faults.unknown(path, jobTypePaths("jobs.on_busy."))
		}
		if !slices.Contains([]string{onBusyRefuse, onBusyQueue, onBusySupersede}, policy) {
			faults.add(path, policy, "must be refuse, queue or supersede")
		}
	}
	for _, key := range slices.Sorted(maps.Keys(c.Jobs.RunDeadline)) {
		path, limit := "jobs.run_deadline."+key, c.Jobs.RunDeadline[key]
		if !knownJobType(key) {
			faults.unknown(path, jobTypePaths("jobs.run_deadline."))
		}
		if limit <= 0 {
			faults.add(path, durationText(limit), "must be greater than 0")
		}
	}
}

func knownJobType(name string) bool {
	_, ok := job.Type(name).Info()
	return ok
}

func jobTypePaths(prefix string) []string {
	var paths []string
	for _, info := range job.Types() {
		paths = append(paths, prefix+string(info.Type))
	}
	return paths
}

func (c *Config) checkAgent(faults *Faults) {
	seen := make(map[string]bool)
	for i, family := range c.Agent.Families {
		path := fmt.Sprintf("agent.families[%d]", i)
		switch {
		case !node.Family(family).Valid():
			faults.add(path, family, "unknown family; there are compute, switch and powershelf")
		case seen[family]:
			faults.add(path, family, "named twice")
		}
		seen[family] = true
	}
}

func (c *Config) checkStandalone(faults *Faults) {
	if strings.TrimSpace(c.Standalone.DataDir) == "" {
		faults.add("standalone.data_dir", c.Standalone.DataDir, "must not be blank")
	}
	if c.Standalone.BusListen != "" {
		if _, _, err := net.SplitHostPort(c.Standalone.BusListen); err != nil {
			faults.add("standalone.bus_listen", c.Standalone.BusListen, "must be host:port")
		}
		if !c.insecureAllowed {
			faults.add("standalone.bus_listen", c.Standalone.BusListen, needsGate)
		}
	}
}

func (c *Config) checkTiming(faults *Faults) {
	if scale := c.Timing.Scale; !(scale > 0) || math.IsInf(scale, 0) {
		faults.add("timing.scale", scale, "must be greater than 0")
	}
	// The order of the leases is what keeps one worker per node.
	t := c.BusTiming()
	for _, rule := range []struct {
		key         string
		value, less time.Duration
		what        string
	}{
		{"session_renew", t.SessionRenew, t.SessionTTL - t.SessionMargin, "session_ttl less session_margin"},
		{"session_margin", t.SessionMargin, t.SessionTTL, "session_ttl"},
		{"work_interval", t.WorkInterval, t.AckWait, "ack_wait"},
		{"fold_renew", t.FoldRenew, t.FoldTTL, "fold_ttl"},
	} {
		if rule.value >= rule.less {
			faults.add("timing.bus."+rule.key, durationText(rule.value), fmt.Sprintf("must be less than %s (%s)", rule.what, durationText(rule.less)))
		}
	}
}

// KeyDir returns the key directory. Unless configured, a standalone process
// keeps its keys beside its data.
func (c *Config) KeyDir() string {
	if c.Keys.Dir != "" {
		return c.Keys.Dir
	}
	return filepath.Join(filepath.Dir(filepath.Clean(c.Standalone.DataDir)), "keys")
}

// PublicKeys returns the public keys to seal for: the configured ones, else
// those of the key directory.
func (c *Config) PublicKeys() (seal.PublicKeys, error) {
	if len(c.Keys.FamiliesPublic) == 0 {
		return seal.LoadPublic(c.KeyDir())
	}
	keys := make(seal.PublicKeys, len(c.Keys.FamiliesPublic))
	for family, list := range c.Keys.FamiliesPublic {
		keys[node.Family(family)] = slices.Clone(list)
	}
	return keys, nil
}
