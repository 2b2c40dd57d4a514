// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
)

// config is the configuration file of a process.
func (b *bundle) config(p process) []byte {
	var t strings.Builder
	in := func(parts ...string) string { return filepath.Join(append([]string{b.to}, parts...)...) }
	state := filepath.Join(b.StateDir, p.name)
	fmt.Fprintf(&t, "# rackbus-%s. docs/configuration.md lists all keys.\n", p.name)
	if p.name == "api" {
		fmt.Fprintf(&t, "listen = \"0.0.0.0\"\nport = 8801\n")
	}
	fmt.Fprintf(&t, "\n[metrics]\nlisten = \"0.0.0.0\"\nport = %d\n", p.metrics)
	if p.name == "api" {
		fmt.Fprintf(&t, "\n[tls]\ncert = %q\nkey = %q\nca = %q\n", in("tls", "server.crt"), in("tls", "server.key"), in("tls", "ca.crt"))
		fmt.Fprintf(&t, "\n[console]\nport = 8803\nbase_url = %q\n", "https://"+net.JoinHostPort(b.APIHosts[0], "8803"))
		t.WriteString("\n# The processes have certificates of the same authority as people: whoever is not named here\n# may do nothing.\n[auth]\ndefault_role = \"none\"\n")
		for _, role := range people() {
			fmt.Fprintf(&t, "%ss = [\"spiffe://rackbus/%s\"]\n", role, role)
		}
	}
	fmt.Fprintf(&t, "\n[bus]\nurls = [%s]\nreplicas = %d\nnkey_seed_file = %q\ntls_cert = %q\ntls_key = %q\ntls_ca = %q\n",
		b.busURLs(), b.replicas(), in("nkey.seed"), in("tls", "bus.crt"), in("tls", "bus.key"), in("tls", "ca.crt"))
	fmt.Fprintf(&t, "\n[keys]\ndir = %q\n", in("keys"))
	fmt.Fprintf(&t, "\n[workflows]\nfirmware_dir = %q\nartifact_store = \"bus\"\n", b.FirmwareDir)
	if p.agent() {
		fmt.Fprintf(&t, "\n[ssh]\nknown_hosts = %q\n", filepath.Join(state, "known_hosts"))
	}
	if p.name == "compute-agent" {
		fmt.Fprintf(&t, "\n[validation]\nwork_dir = %q\n", filepath.Join(state, "validation"))
	}
	return []byte(t.String())
}

func (b *builder) busURLs() string {
	urls := make([]string, len(b.NATSHosts))
	for i, text := range b.NATSHosts {
		host, port, _ := splitHost(text, clientPort) // checked with the options
		urls[i] = fmt.Sprintf("%q", "tls://"+net.JoinHostPort(host, port))
	}
	return strings.Join(urls, ", ")
}

// replicas of everything stored, which a leaf site has from its hub.
func (b *builder) replicas() int {
	if b.Profile == Leaf {
		return len(b.HubHosts)
	}
	return len(b.NATSHosts)
}

// rackctlConfig is the configuration of rackctl for people.
func rackctlConfig(host string) []byte {
	return fmt.Appendf(nil, `current: rackbus
contexts:
  rackbus:
    address: %s
    ca: tls/ca.crt
    cert: tls/client.crt
    key: tls/client.key
`, net.JoinHostPort(host, "8801"))
}
