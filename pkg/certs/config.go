// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
)

// protocols serve gRPC and plain HTTPS with one configuration.
func protocols() []string { return []string{"h2", "http/1.1"} }

// MutualServer returns a server configuration that demands a client certificate
// signed by a root of the CA file. It needs all three files.
func (s *Source) MutualServer() (*tls.Config, error) {
	if s.files.Cert == "" || s.files.CA == "" {
		return nil, fmt.Errorf("%w: a mutual TLS server needs certificate, key and CA", ErrIncomplete)
	}
	return s.server(tls.RequireAndVerifyClientCert), nil
}

// OptionalServer returns a server configuration that asks for a client certificate and
// does without one; one that is shown must be signed by a root of the CA file. It is for
// browsers, whose users are told what they lack. It needs all three files.
func (s *Source) OptionalServer() (*tls.Config, error) {
	if s.files.Cert == "" || s.files.CA == "" {
		return nil, fmt.Errorf("%w: a TLS server for browsers needs certificate, key and CA", ErrIncomplete)
	}
	return s.server(tls.VerifyClientCertIfGiven), nil
}

// AnonymousServer returns a server configuration that asks no client for a
// certificate, for the metrics listener. It needs certificate and key.
func (s *Source) AnonymousServer() (*tls.Config, error) {
	if s.files.Cert == "" {
		return nil, fmt.Errorf("%w: a TLS server needs certificate and key", ErrIncomplete)
	}
	return s.server(tls.NoClientCert), nil
}

func (s *Source) server(auth tls.ClientAuthType) *tls.Config {
	base := &tls.Config{
		MinVersion: tls.VersionTLS13,
		NextProtos: protocols(),
		ClientAuth: auth,
		// A resumed session would outlive the client CA that admitted it.
		SessionTicketsDisabled: true,
	}
	base.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		m := s.fresh()
		c := base.Clone()
		c.GetConfigForClient = nil
		c.Certificates = []tls.Certificate{*m.cert}
		if auth != tls.NoClientCert {
			c.ClientCAs = m.roots
		}
		return c, nil
	}
	// net/http and gRPC look for a certificate before the first handshake.
	base.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.fresh().cert, nil }
	return base
}

// Client returns a client configuration for a server that must present a
// certificate for serverName (a DNS name or an IP address) signed by a root of
// the CA file. The own certificate is presented when the files name one. An
// http.Transport with it needs ForceAttemptHTTP2, since "h2" is offered.
func (s *Source) Client(serverName string) (*tls.Config, error) {
	if s.files.CA == "" {
		return nil, fmt.Errorf("%w: a TLS client needs a CA", ErrIncomplete)
	}
	if serverName == "" {
		return nil, fmt.Errorf("%w: a TLS client needs the name of its server", ErrIncomplete)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		NextProtos: protocols(),
		ServerName: serverName,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if cert := s.fresh().cert; cert != nil {
				return cert, nil
			}
			return &tls.Certificate{}, nil // lets the server decide
		},
		// RootCAs cannot change once set. The built-in check is therefore
		// replaced by the same check against the current roots.
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection verifies
		VerifyConnection: func(state tls.ConnectionState) error {
			return verifyServer(state.PeerCertificates, serverName, s.fresh().roots)
		},
	}, nil
}

func verifyServer(chain []*x509.Certificate, serverName string, roots *x509.CertPool) error {
	if len(chain) == 0 {
		return errors.New("server presented no certificate")
	}
	intermediates := x509.NewCertPool()
	for _, cert := range chain[1:] {
		intermediates.AddCert(cert)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{
		DNSName:       serverName,
		Roots:         roots,
		Intermediates: intermediates,
		KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	if err != nil {
		return &tls.CertificateVerificationError{UnverifiedCertificates: chain, Err: err}
	}
	return nil
}

// Certificate returns the current own certificate. Its signature fits clients
// that ask before each connection, such as the NATS client.
func (s *Source) Certificate() (tls.Certificate, error) {
	cert := s.fresh().cert
	if cert == nil {
		return tls.Certificate{}, fmt.Errorf("%w: no certificate", ErrIncomplete)
	}
	return *cert, nil
}

// Roots returns the current trusted roots. Its signature fits clients that ask
// before each connection, such as the NATS client.
func (s *Source) Roots() (*x509.CertPool, error) {
	roots := s.fresh().roots
	if roots == nil {
		return nil, fmt.Errorf("%w: no CA", ErrIncomplete)
	}
	return roots, nil
}
