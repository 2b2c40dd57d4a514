// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Values of workflows.artifact_store.
const (
	ArtifactStoreDir = "dir"
	ArtifactStoreBus = "bus"
)

// maxArtifactFiles is how many artifacts the catalogue takes in one step.
const maxArtifactFiles = 900

func defaultArtifacts() Artifacts {
	return Artifacts{
		Schemes:        []string{"http", "https", "file"},
		Hosts:          []string{},
		Addresses:      []string{},
		FileDirs:       []string{},
		MaxFileBytes:   32 << 30,
		MaxFiles:       maxArtifactFiles,
		MaxTotalBytes:  128 << 30,
		MaxConcurrent:  4,
		ConnectTimeout: 30 * time.Second,
		StallTimeout:   time.Minute,
		FileTimeout:    2 * time.Hour,
		Attempts:       6,
		CacheBytes:     64 << 30,
		WaitTimeout:    75 * time.Minute,
	}
}

func (c *Config) checkArtifacts(faults *Faults) {
	if s := c.Workflows.ArtifactStore; s != ArtifactStoreDir && s != ArtifactStoreBus {
		faults.add("workflows.artifact_store", s, "must be dir or bus")
	}
	for i, s := range c.Artifacts.Schemes {
		if !slices.Contains([]string{"http", "https", "file"}, s) {
			faults.add(fmt.Sprintf("artifacts.schemes[%d]", i), s, "must be http, https or file")
		}
	}
	for i, h := range c.Artifacts.Hosts {
		if h == "" || strings.Contains(strings.TrimPrefix(h, "*."), "*") || strings.ContainsAny(h, "/:@ ") {
			faults.add(fmt.Sprintf("artifacts.hosts[%d]", i), h, "must be a host name, an address, or *. and a domain")
		}
	}
	if _, err := c.ArtifactAddresses(); err != nil {
		faults.add("artifacts.addresses", strings.Join(c.Artifacts.Addresses, ", "), err.Error())
	}
	for i, d := range c.Artifacts.FileDirs {
		if strings.TrimSpace(d) == "" {
			faults.add(fmt.Sprintf("artifacts.file_dirs[%d]", i), d, "must not be blank")
		}
	}
	if c.Artifacts.MaxFiles > maxArtifactFiles {
		faults.add("artifacts.max_files", c.Artifacts.MaxFiles, fmt.Sprintf("must be at most %d", maxArtifactFiles))
	}
}

// ArtifactAddresses are the address ranges that may be contacted for artifacts.
func (c *Config) ArtifactAddresses() ([]netip.Prefix, error) {
	out := make([]netip.Prefix, 0, len(c.Artifacts.Addresses))
	for _, text := range c.Artifacts.Addresses {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			a, aerr := netip.ParseAddr(text)
			if aerr != nil {
				return nil, fmt.Errorf("%q is no address range", text)
			}
			p = netip.PrefixFrom(a, a.BitLen())
		}
		out = append(out, p.Masked())
	}
	return out, nil
}
