// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// Describe implements prometheus.Collector.
func (r *Readiness) Describe(ch chan<- *prometheus.Desc) { ch <- readyDesc() }

// Collect implements prometheus.Collector: rackbus_ready is 1 for every check that
// passes and 0 for every one that does not.
func (r *Readiness) Collect(ch chan<- prometheus.Metric) {
	var failed *NotReady
	err := r.Check(context.Background())
	errors.As(err, &failed)
	r.mu.Lock()
	defer r.mu.Unlock()
	for name := range r.checks {
		value := 1.0
		if failed != nil && failed.Faults[name] != nil {
			value = 0
		}
		ch <- prometheus.MustNewConstMetric(readyDesc(), prometheus.GaugeValue, value, name)
	}
}

func readyDesc() *prometheus.Desc {
	return prometheus.NewDesc("rackbus_ready", "Whether a check of /readyz passes (1) or not (0).", []string{"check"}, nil)
}
