// SPDX-License-Identifier: Apache-2.0

package artifact

import (
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"

	"github.com/rackbus/rackbus/pkg/config"
)

// PolicyFromConfig returns the policy as configured. The API refuses at once what a
// download would refuse.
func PolicyFromConfig(c *config.Config) (Policy, error) {
	a := &c.Artifacts
	addresses, err := c.ArtifactAddresses()
	if err != nil {
		return Policy{}, fmt.Errorf("artifacts.addresses: %w", err)
	}
	dirs := a.FileDirs
	if len(dirs) == 0 {
		dirs = []string{c.Workflows.FirmwareDir}
	}
	return Policy{Schemes: a.Schemes, Hosts: a.Hosts, Addresses: addresses, FollowToHTTPS: a.FollowToHTTPS, FileDirs: dirs}, nil
}

// FromConfig returns the options of a Fetcher as configured.
func FromConfig(c *config.Config, log *slog.Logger) (Options, error) {
	a := &c.Artifacts
	policy, err := PolicyFromConfig(c)
	if err != nil {
		return Options{}, err
	}
	o := Options{
		Policy: policy,
		Limits: Limits{
			MaxFile: int64(a.MaxFileBytes), MaxFiles: a.MaxFiles, MaxTotal: int64(a.MaxTotalBytes), Concurrent: a.MaxConcurrent,
		},
		Timing: Timing{Connect: a.ConnectTimeout, Stall: a.StallTimeout, File: a.FileTimeout, Attempts: a.Attempts},
		Logger: log,
	}
	if a.TLSCA != "" {
		pem, err := os.ReadFile(a.TLSCA)
		if err != nil {
			return Options{}, fmt.Errorf("artifacts.tls_ca: %w", err)
		}
		o.Roots = x509.NewCertPool()
		if !o.Roots.AppendCertsFromPEM(pem) {
			return Options{}, fmt.Errorf("artifacts.tls_ca: %s has no certificate", a.TLSCA)
		}
	}
	return o, nil
}
