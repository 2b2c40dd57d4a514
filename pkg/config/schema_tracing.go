// SPDX-License-Identifier: Apache-2.0

package config

import "net"

// Tracing sends OpenTelemetry traces: a call, its jobs, their stages, and the
// requests to devices. Off without an endpoint.
type Tracing struct {
	// `host:port` of an OTLP collector that speaks gRPC; empty for no traces.
	Endpoint string `koanf:"endpoint"`
	// Speak plaintext with the collector.
	Insecure bool `koanf:"insecure"`
	// Roots (PEM) that the collector's certificate must be signed by, in place of those of the system.
	TLSCA string `koanf:"tls_ca"`
	// Share of calls that are traced, 0 to 1; a caller that sends `traceparent` has decided already.
	SampleRatio float64 `koanf:"sample_ratio"`
}

func defaultTracing() Tracing { return Tracing{SampleRatio: 1} }

func (c *Config) checkTracing(faults *Faults) {
	t := c.Tracing
	if t.Endpoint != "" {
		if host, port, err := net.SplitHostPort(t.Endpoint); err != nil || host == "" || port == "" {
			faults.add("tracing.endpoint", t.Endpoint, "must be host:port, for example collector.example.net:4317")
		}
	}
	if t.SampleRatio < 0 || t.SampleRatio > 1 {
		faults.add("tracing.sample_ratio", t.SampleRatio, "must be between 0 and 1")
	}
	if t.Insecure && t.TLSCA != "" {
		faults.add("tracing.tls_ca", t.TLSCA, "has no use with tracing.insecure")
	}
}
