// SPDX-License-Identifier: Apache-2.0

package nvue

import (
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/rackbus/rackbus/pkg/secret"
)

// Endpoint says where a switch listens and who we are to it. The scheme is
// always https.
type Endpoint struct {
	// Address is the management IP address. Connections always go there.
	Address string
	// Port is the NVUE port and must not be 0; callers have turned 0 and 22 into
	// 443 before.
	Port uint16
	// HostName, when set, is the name in URLs. It is never resolved. When it is an
	// IP address it has to be Address.
	HostName string
	// Username and Password are sent as HTTP Basic; an empty name sends none.
	Username string
	Password secret.Value
}

// address gives the address to dial.
func (e Endpoint) address() string {
	return net.JoinHostPort(unbracketed(e.Address), strconv.Itoa(int(e.Port)))
}

// base gives scheme and authority of every URL.
func (e Endpoint) base() string {
	host := strings.TrimSpace(e.HostName)
	if host == "" {
		host = e.Address
	}
	return "https://" + net.JoinHostPort(unbracketed(host), strconv.Itoa(int(e.Port)))
}

func unbracketed(host string) string {
	return strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(host), "["), "]")
}

func (e Endpoint) validate() error {
	const op = "configure switch endpoint"
	ip, err := netip.ParseAddr(unbracketed(e.Address))
	if err != nil {
		return invalid(op, "the switch address is not an IP address")
	}
	if e.Port == 0 {
		return invalid(op, "the switch port is 0")
	}
	if name := unbracketed(e.HostName); name != "" {
		if other, err := netip.ParseAddr(name); err == nil && other.Unmap() != ip.Unmap() {
			return invalid(op, "the switch host name is another IP address than its own")
		}
	}
	u, err := url.Parse(e.base())
	if err != nil || u.Hostname() == "" || u.User != nil || u.Path != "" || u.RawQuery != "" || u.Fragment != "" {
		return invalid(op, "the switch host name is not a host name")
	}
	return validUser(op, e.Username)
}

// validUser refuses names that Basic cannot carry: the first colon ends the name
// (RFC 7617).
func validUser(op, name string) error {
	if strings.Contains(name, ":") {
		return invalid(op, "a switch user name cannot contain a colon")
	}
	return nil
}
