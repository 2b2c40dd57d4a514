// SPDX-License-Identifier: Apache-2.0

package config

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestConsole(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*Config)
		// fault is the key of the expected one, "" for none.
		fault string
		url   string
	}{
		{"default", func(*Config) {}, "", "https://localhost:8803"},
		{"an address", func(c *Config) { c.Listen = "192.0.2.7" }, "", "https://192.0.2.7:8803"},
		{"an address of its own", func(c *Config) { c.Console.Listen = "2001:db8::1" }, "", "https://[2001:db8::1]:8803"},
		{"every IPv6 address", func(c *Config) { c.Console.Listen = "::" }, "", "https://localhost:8803"},
		{"a given URL", func(c *Config) { c.Console.BaseURL = "https://racks.example.net/" }, "", "https://racks.example.net"},
		{"plaintext", func(c *Config) {
			c.TLS, c.insecureAllowed = TLS{Insecure: true}, true
		}, "", "http://localhost:8803"},
		{"the gRPC port", func(c *Config) { c.Console.Port = c.Port }, "console.port", ""},
		{"the metrics port", func(c *Config) { c.Console.Port = c.Metrics.Port }, "console.port", ""},
		{"no matter when it is off", func(c *Config) { c.Console = Console{Port: c.Port, BaseURL: "?"} }, "", ""},
		{"no URL", func(c *Config) { c.Console.BaseURL = "racks.example.net" }, "console.base_url", ""},
		{"no web URL", func(c *Config) { c.Console.BaseURL = "ftp://racks.example.net" }, "console.base_url", ""},
		{"a path", func(c *Config) { c.Console.BaseURL = "https://example.net/racks" }, "console.base_url", ""},
		{"a secret", func(c *Config) { c.Console.BaseURL = "https://me:pw@example.net" }, "console.base_url", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := Default()
			tt.change(c)
			var faults Faults
			c.checkConsole(ProcessAPI, &faults)
			if tt.fault != "" {
				require.ErrorContains(t, faults.err(), tt.fault)
				var none Faults
				c.checkConsole(ProcessComputeAgent, &none)
				require.NoError(t, none.err(), "it concerns those who serve it")
				return
			}
			require.NoError(t, faults.err())
			if tt.url != "" {
				require.Equal(t, tt.url, c.ConsoleURL())
			}
		})
	}
}
