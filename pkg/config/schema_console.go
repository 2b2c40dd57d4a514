// SPDX-License-Identifier: Apache-2.0

package config

// Console is the API's listener for browsers: the web console, and the links to evidence.
// It has the certificate of `[tls]`; docs/console.md tells how people get in.
type Console struct {
	// Serve the listener. Without it there are no links to evidence either.
	Enabled bool `koanf:"enabled"`
	// Address to listen on; empty is `listen`.
	Listen string `koanf:"listen"`
	// TCP port; 0 takes any free port. Must differ from `port` and `metrics.port`.
	Port uint16 `koanf:"port"`
	// Where browsers reach the listener, for example https://racks.example.net:8803; links to evidence begin with it. Empty is the address it listens on, or localhost when that is every address.
	BaseURL string `koanf:"base_url"`
	// Connections that the listener has open at a time. Further ones wait until one of them is closed, so that strangers, who need no certificate to connect, cannot use up the files of the process.
	MaxConnections int `koanf:"max_connections"`
}

func defaultConsole() Console { return Console{Enabled: true, Port: 8803, MaxConnections: 1000} }
