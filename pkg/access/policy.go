// SPDX-License-Identifier: Apache-2.0

package access

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"

	"github.com/rackbus/rackbus/pkg/certs"
)

// Settings say which callers have which role.
type Settings struct {
	// Default is the role of callers that no pattern names.
	Default Role
	// Viewers, Operators and Admins are patterns; see docs/access.md. A caller that
	// several name has the highest of their roles.
	Viewers, Operators, Admins []string
}

// grant is one pattern and the role it gives.
type grant struct {
	pattern pattern
	role    Role
}

// Policy finds the role of a caller. It is safe for concurrent use; the zero
// Policy gives nobody a role.
type Policy struct {
	standard Role
	grants   []grant
}

// CheckPattern tells why a pattern cannot be used. The error wraps ErrPattern.
func CheckPattern(text string) error {
	_, err := parsePattern(text)
	return err
}

// NewPolicy returns the policy of the settings, or all that is wrong with them.
func NewPolicy(s Settings) (*Policy, error) {
	p := &Policy{standard: s.Default}
	var faults []error
	for _, list := range []struct {
		role     Role
		patterns []string
	}{{Admin, s.Admins}, {Operator, s.Operators}, {Viewer, s.Viewers}} {
		for _, text := range list.patterns {
			pattern, err := parsePattern(text)
			if err != nil {
				faults = append(faults, fmt.Errorf("%s %q: %w", list.role, text, err))
				continue
			}
			p.grants = append(p.grants, grant{pattern, list.role})
		}
	}
	if s.Default >= roleCount {
		faults = append(faults, fmt.Errorf("default role: %s is no role", s.Default))
	}
	return p, errors.Join(faults...)
}

// Open returns a policy that gives everybody one role.
func Open(role Role) *Policy { return &Policy{standard: role} }

// Of returns who is at the other end of a connection. state is nil on a listener
// without TLS, whose callers are unknown and have the default role; on one with
// TLS, a caller without a certificate has none. The listener must have verified
// the certificate.
func (p *Policy) Of(state *tls.ConnectionState, peer string) Principal {
	switch {
	case state == nil:
		return Principal{Identity: certs.UnknownPeer, Role: p.standard, Peer: peer}
	case len(state.PeerCertificates) == 0:
		return Principal{Identity: certs.UnknownPeer, Role: None, Peer: peer}
	}
	cert := state.PeerCertificates[0]
	return Principal{Identity: certs.PeerIdentity(cert), Role: p.role(cert), Peer: peer}
}

func (p *Policy) role(cert *x509.Certificate) Role {
	if ambiguous(cert) {
		return None
	}
	for _, g := range p.grants { // the highest role comes first
		if g.pattern.matches(cert) {
			return g.role
		}
	}
	return p.standard
}

// ambiguous tells whether the certificate claims a SPIFFE id beside another URI.
// Such a one is no identity (X509-SVID, section 5.2) and must be refused.
func ambiguous(cert *x509.Certificate) bool {
	if len(cert.URIs) < 2 {
		return false
	}
	for _, u := range cert.URIs {
		if strings.EqualFold(u.Scheme, "spiffe") {
			return true
		}
	}
	return false
}
