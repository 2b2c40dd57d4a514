// SPDX-License-Identifier: Apache-2.0

package config

import "time"

// Diagnostics is the examination of nodes; docs/diagnostics.md describes it.
type Diagnostics struct {
	// Examine every registered node whose job has failed or timed out, at once and by itself.
	Automatic bool `koanf:"automatic"`
	// How long a link to a bundle is valid; at most 24 h.
	LinkTTL time.Duration `koanf:"link_ttl"`
	// Limit for one collector.
	CollectorTimeout time.Duration `koanf:"collector_timeout"`
	// Nodes that one agent process examines at the same time.
	MaxRunning int `koanf:"max_running"`
	// Most that is kept of one file of a bundle, in bytes.
	MaxFileBytes int `koanf:"max_file_bytes"`
	// Most that is kept of all files of a bundle, in bytes before compression.
	MaxBundleBytes int `koanf:"max_bundle_bytes"`
	// Ironic is what else is asked about compute trays.
	Ironic Ironic `koanf:"ironic"`
}

// maxLinkTTL keeps links from outliving the jobs they lead to.
const maxLinkTTL = 24 * time.Hour

func defaultDiagnostics() Diagnostics {
	return Diagnostics{
		LinkTTL: 10 * time.Minute, CollectorTimeout: 3 * time.Minute, MaxRunning: 32,
		MaxFileBytes: 4 << 20, MaxBundleBytes: 16 << 20, Ironic: defaultIronic(),
	}
}

func (c *Config) checkDiagnostics(faults *Faults) {
	if d := c.Diagnostics.LinkTTL; d > maxLinkTTL {
		faults.add("diagnostics.link_ttl", durationText(d), "must be at most "+durationText(maxLinkTTL))
	}
}
