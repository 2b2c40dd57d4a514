// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/rackbus/rackbus/pkg/secret"
)

// Ports a client may leave out.
const (
	PortHTTPS uint16 = 443
	PortSSH   uint16 = 22
)

// EndpointKind tells the two endpoints of a node apart. Its text is what
// messages say.
type EndpointKind string

// The endpoints of a node.
const (
	EndpointBMC  EndpointKind = "BMC"
	EndpointHost EndpointKind = "host"
)

// field returns the request field that holds the endpoint.
func (k EndpointKind) field(name string) string {
	base := "host_endpoint"
	if k == EndpointBMC {
		base = "bmc_endpoint"
	}
	if name == "" {
		return base
	}
	return base + "." + name
}

// Credentials log in to an endpoint. The zero value means that there are none.
type Credentials struct {
	User     string
	Password secret.Value
}

// Empty reports whether there is nothing to log in with. A blank user or a
// blank password counts as no credentials.
func (c Credentials) Empty() bool {
	return strings.TrimSpace(c.User) == "" || strings.TrimSpace(c.Password.Reveal()) == ""
}

// Endpoint is a validated management address of a node.
type Endpoint struct {
	Address     string // IP address as the client wrote it; connections go here
	Port        uint16 // never 0
	MAC         string // may be empty
	HostName    string // TLS and HTTP host name; empty when none was given
	Credentials Credentials
}

// HostPort returns the address to dial.
func (e Endpoint) HostPort() string {
	return net.JoinHostPort(strings.Trim(e.Address, "[]"), strconv.Itoa(int(e.Port)))
}

// ServerName returns the name for TLS and HTTP: the host name when there is
// one, else the address without brackets.
func (e Endpoint) ServerName() string {
	if e.HostName != "" {
		return e.HostName
	}
	return strings.Trim(e.Address, "[]")
}

// RequireCredentials returns an *Error when e, the endpoint of the given kind,
// brings nothing to log in with.
func (e Endpoint) RequireCredentials(kind EndpointKind) error {
	if e.Credentials.Empty() {
		return &Error{CodeCredentialsMissing, kind.field("credentials"),
			fmt.Sprintf("missing %s endpoint credentials", kind)}
	}
	return nil
}

// EndpointRequest is an endpoint as a client sends it.
type EndpointRequest struct {
	Address     string
	MAC         string
	HostName    string
	Port        uint32
	Credentials Credentials
	// SessionToken is true when the client chose token credentials, which no
	// node accepts.
	SessionToken bool
}

// EndpointRules say what an endpoint must bring.
type EndpointRules struct {
	Kind        EndpointKind
	DefaultPort uint16 // stands in for port 0
	RequireMAC  bool
	// HTTPSOnly replaces port 22 by 443: a switch host endpoint names its SSH
	// port while management calls go to NVUE.
	HTTPSOnly bool
}

// RulesFor returns the rules for one endpoint of a node of type t. Registered
// nodes must bring the MAC address of their BMC in every family.
func RulesFor(t Type, kind EndpointKind, registered bool) EndpointRules {
	rules := EndpointRules{Kind: kind, DefaultPort: PortHTTPS}
	switch {
	case kind == EndpointBMC:
		rules.RequireMAC = registered || t.Family != FamilySwitch
	case t.Family == FamilySwitch:
		rules.HTTPSOnly = true
	case t.InBand:
		rules.DefaultPort = PortSSH
	}
	return rules
}

// CredentialKind returns the endpoint whose credentials an operation uses: the
// host endpoint of a switch, except that switch power goes through its BMC; the
// BMC of everything else.
func CredentialKind(f Family, power bool) EndpointKind {
	if f == FamilySwitch && !power {
		return EndpointHost
	}
	return EndpointBMC
}

// Endpoint validates in and fills its defaults. A nil in is refused as a
// missing endpoint. Failures are of type *Error and never show credentials.
func (r EndpointRules) Endpoint(in *EndpointRequest) (Endpoint, error) {
	if in == nil {
		return Endpoint{}, &Error{CodeEndpointMissing, r.Kind.field(""), fmt.Sprintf("missing %s endpoint", r.Kind)}
	}
	out := Endpoint{
		Address:  strings.TrimSpace(in.Address),
		MAC:      strings.TrimSpace(in.MAC),
		HostName: strings.TrimSpace(in.HostName),
	}
	if out.Address == "" {
		return Endpoint{}, &Error{CodeAddressMissing, r.Kind.field("interface.ip_address"),
			fmt.Sprintf("missing %s endpoint ip_address", r.Kind)}
	}
	if out.MAC == "" && r.RequireMAC {
		return Endpoint{}, &Error{CodeMACMissing, r.Kind.field("interface.mac_address"),
			fmt.Sprintf("missing %s endpoint mac_address", r.Kind)}
	}
	if in.Port > 65535 {
		return Endpoint{}, &Error{CodePortOutOfRange, r.Kind.field("port"),
			fmt.Sprintf("port %d is out of range (must be 1-65535)", in.Port)}
	}
	out.Port = uint16(in.Port)
	if out.Port == 0 {
		out.Port = r.DefaultPort
	}
	if r.HTTPSOnly && out.Port == PortSSH {
		out.Port = PortHTTPS
	}
	if in.SessionToken {
		return Endpoint{}, &Error{CodeCredentialsUnsupported, r.Kind.field("credentials"),
			fmt.Sprintf("%s endpoint credentials use unsupported session_token auth; use user_pass credentials", r.Kind)}
	}
	if !in.Credentials.Empty() {
		out.Credentials = in.Credentials
	}
	return out, nil
}

// TargetPolicy limits which addresses fabric operations connect to.
type TargetPolicy struct {
	// AllowLoopback admits 127.0.0.0/8 and ::1, for a simulated rack only.
	AllowLoopback bool
}

// Check refuses a switch address that is no IP address or is loopback,
// unspecified, multicast or link-local. IPv4-mapped IPv6 is judged as IPv4.
func (p TargetPolicy) Check(host string) error {
	field := EndpointHost.field("interface.ip_address")
	addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
	if err != nil {
		return &Error{CodeTargetNotIP, field, fmt.Sprintf("switch target host must be a valid IP address: %s", host)}
	}
	ip := addr.Unmap()
	if (ip.IsLoopback() && !p.AllowLoopback) || ip.IsUnspecified() || ip.IsMulticast() || ip.IsLinkLocalUnicast() {
		return &Error{CodeTargetNotAllowed, field, fmt.Sprintf("switch target host is not allowed: %s", addr)}
	}
	return nil
}
