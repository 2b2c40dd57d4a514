// SPDX-License-Identifier: Apache-2.0

package diagnostics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rackbus/rackbus/pkg/config"
)

// FromConfig returns the options of a family's agent as configured. Collectors are
// the agent's own.
func FromConfig(c *config.Config, store Store, reg prometheus.Registerer, family string) Options {
	return Options{
		Store: store, CollectorLimit: c.Diagnostics.CollectorTimeout, MaxRunning: c.Diagnostics.MaxRunning,
		Limits:  Limits{File: c.Diagnostics.MaxFileBytes, Total: c.Diagnostics.MaxBundleBytes},
		Metrics: NewMetrics(reg, family),
	}
}
