// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// checkConsole looks at the listener for browsers where there is one.
func (c *Config) checkConsole(p Process, faults *Faults) {
	if !c.Console.Enabled || !p.servesGRPC() {
		return
	}
	if port := c.Console.Port; port != 0 {
		for key, other := range map[string]uint16{"port": c.Port, "metrics.port": c.Metrics.Port} {
			if other == port {
				faults.add("console.port", port, fmt.Sprintf("console.port (%d) must differ from %s (%d)", port, key, other))
			}
		}
	}
	text := c.Console.BaseURL
	if text == "" {
		return
	}
	u, err := url.Parse(text)
	switch {
	case err != nil, u.Host == "", u.User != nil, u.RawQuery != "", u.Fragment != "", u.Scheme != "https" && u.Scheme != "http":
		faults.add("console.base_url", text, "must be a URL such as https://host:8803")
	case strings.Trim(u.Path, "/") != "":
		faults.add("console.base_url", text, "must not have a path: the console is served from / on")
	}
}

// ConsoleAddr returns the address of the listener for browsers.
func (c *Config) ConsoleAddr() string {
	return net.JoinHostPort(c.consoleHost(), strconv.Itoa(int(c.Console.Port)))
}

func (c *Config) consoleHost() string {
	if c.Console.Listen != "" {
		return c.Console.Listen
	}
	return c.Listen
}

// ConsoleURL returns where browsers reach the listener, without a slash at the end. With
// console.port 0 it is of no use before the listener is there.
func (c *Config) ConsoleURL() string {
	if c.Console.BaseURL != "" {
		return strings.TrimRight(c.Console.BaseURL, "/")
	}
	host, scheme := c.consoleHost(), "https"
	if addr, err := netip.ParseAddr(host); host == "" || err == nil && addr.IsUnspecified() {
		host = "localhost"
	}
	if c.Plaintext() {
		scheme = "http"
	}
	return scheme + "://" + net.JoinHostPort(host, strconv.Itoa(int(c.Console.Port)))
}
