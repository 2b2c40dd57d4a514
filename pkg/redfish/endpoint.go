// SPDX-License-Identifier: Apache-2.0

package redfish

import (
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/rackbus/rackbus/pkg/secret"
)

// defaultPort is used when an endpoint names none.
const defaultPort = 443

// Endpoint says where a BMC listens and who we are to it. The scheme is always
// https: credentials never travel in clear.
type Endpoint struct {
	// Address is an IP address, or a host name that the resolver knows.
	Address string
	// Port is the TCP port; 0 means 443.
	Port uint16
	// HostName, when set, is the name the device's certificate is checked
	// against. It is not used for dialling.
	HostName string
	// Username and Password are sent as HTTP Basic with every request.
	Username string
	Password secret.Value
}

// host gives the address and port as they appear in URLs and are dialled.
func (e Endpoint) host() string {
	port := e.Port
	if port == 0 {
		port = defaultPort
	}
	address := strings.TrimSuffix(strings.TrimPrefix(e.Address, "["), "]")
	return net.JoinHostPort(address, strconv.Itoa(int(port)))
}

func (e Endpoint) validate() error {
	const op = "configure BMC endpoint"
	if strings.TrimSpace(e.Address) == "" {
		return invalid(op, "the BMC address is missing")
	}
	u, err := url.Parse("https://" + e.host())
	if err != nil || u.Hostname() == "" || u.User != nil || u.Path != "" || u.RawQuery != "" || u.Fragment != "" {
		return invalid(op, "the BMC address is not an IP address or host name")
	}
	if e.Username == "" || e.Password.Empty() {
		return invalid(op, "BMC credentials are required for Redfish operations")
	}
	// RFC 7617: the first colon ends the user name.
	if strings.Contains(e.Username, ":") {
		return invalid(op, "a BMC user name cannot contain a colon")
	}
	return nil
}
