// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net/url"
	"slices"
	"strings"
	"time"
)

// Ironic is the bare metal service that is asked about compute trays when they are examined; docs/diagnostics.md describes it.
type Ironic struct {
	// URL of the API, for example https://ironic.example.net:6385; empty for no Ironic. With one, the node's part in Ironic is required to examine it.
	Endpoint string `koanf:"endpoint"`
	// How the API lets us in: none, http_basic or keystone. The latter two need https.
	Auth string `koanf:"auth"`
	// Account, as OS_USERNAME, OS_PASSWORD, OS_AUTH_URL and so on: a file of NAME=value lines, sealed with `rackbus keys seal --for ironic`.
	EnvironmentFile string `koanf:"environment_file"`
	// Authorities of the API's and Keystone's certificates, a PEM file; empty for those of the system.
	TLSCA string `koanf:"tls_ca"`
	// Name or UUID of a node in Ironic. May hold {rack_id}, {node_id} and {bmc_address}.
	NodeName string `koanf:"node_name"`
	// Limit for one request.
	RequestTimeout time.Duration `koanf:"request_timeout"`
}

// The values of diagnostics.ironic.auth.
const (
	ironicAuthNone     = "none"
	ironicAuthBasic    = "http_basic"
	ironicAuthKeystone = "keystone"
)

func defaultIronic() Ironic {
	return Ironic{Auth: ironicAuthNone, NodeName: "{rack_id}-{node_id}", RequestTimeout: 30 * time.Second}
}

func (c *Config) checkIronic(faults *Faults) {
	const at = "diagnostics.ironic."
	i := &c.Diagnostics.Ironic
	if !slices.Contains([]string{ironicAuthNone, ironicAuthBasic, ironicAuthKeystone}, i.Auth) {
		faults.add(at+"auth", i.Auth, "must be none, http_basic or keystone")
	}
	for _, name := range placeholder.FindAllString(i.NodeName, -1) {
		if !slices.Contains([]string{"{rack_id}", "{node_id}", "{bmc_address}"}, name) {
			faults.add(at+"node_name", i.NodeName, "holds the unknown placeholder "+name)
		}
	}
	if !strings.Contains(i.NodeName, "{node_id}") && !strings.Contains(i.NodeName, "{bmc_address}") {
		faults.add(at+"node_name", i.NodeName, "must hold {node_id} or {bmc_address}: every node has a name of its own")
	}
	if i.Endpoint == "" {
		for key, value := range map[string]string{"environment_file": i.EnvironmentFile, "tls_ca": i.TLSCA} {
			if value != "" {
				faults.add(at+key, nil, "needs diagnostics.ironic.endpoint")
			}
		}
		return
	}
	u, err := url.Parse(i.Endpoint)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Scheme != "https" && u.Scheme != "http" {
		faults.add(at+"endpoint", i.Endpoint, "must be a URL such as https://host:6385")
		return
	}
	if i.Auth == ironicAuthNone {
		if i.EnvironmentFile != "" {
			faults.add(at+"environment_file", nil, "is not used while diagnostics.ironic.auth is none")
		}
		return
	}
	if u.Scheme != "https" {
		faults.add(at+"endpoint", i.Endpoint, "must be https: a password goes there")
	}
	if i.EnvironmentFile == "" {
		faults.add(at+"environment_file", nil, "is missing: it holds the account for diagnostics.ironic.auth")
	}
}
