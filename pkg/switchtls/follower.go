// SPDX-License-Identifier: Apache-2.0

package switchtls

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"sync"
)

// Follower gives the client material of one domain as it is on the disk now,
// and the former one while the files are unusable. It is for connections that
// live long and shake hands again, such as those of gRPC. It may be used by
// several goroutines.
type Follower struct {
	store  *Store
	domain string
	log    *slog.Logger

	mu      sync.Mutex
	current *Material
	fault   string // last logged fault, so that it is logged once
}

// Follow reads the client material of a domain and fails when it is unusable.
// An empty domain is the default one. A nil logger logs nothing.
func (s *Store) Follow(domain string, log *slog.Logger) (*Follower, error) {
	m, err := s.Client(domain)
	if err != nil {
		return nil, err
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Follower{store: s, domain: m.Domain, log: log, current: m}, nil
}

// Material looks at the files and gives what is to be used now.
func (f *Follower) Material() *Material {
	f.mu.Lock()
	defer f.mu.Unlock()
	m, err := f.store.Client(f.domain)
	if err != nil {
		if text := err.Error(); text != f.fault {
			f.fault = text
			f.log.Warn("switch tls files unusable, keeping the former ones", slog.String("domain", f.domain), slog.Any("err", err))
		}
		return f.current
	}
	f.fault = ""
	if m.sum != f.current.sum {
		f.current = m
		f.log.Info("switch tls files reloaded", slog.String("domain", f.domain), slog.String("fingerprint", m.sum.String()))
	}
	return f.current
}

// ClientConfig is Material.ClientConfig with the files looked at in every
// handshake.
func (f *Follower) ClientConfig(serverName string) (*tls.Config, error) {
	if serverName == "" {
		return nil, errors.New("a verified connection needs the server's name")
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		ServerName: serverName,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return &f.Material().pair, nil
		},
		// RootCAs cannot change once set, so the built-in check is replaced by the
		// same check against the current root.
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection verifies
		VerifyConnection: func(state tls.ConnectionState) error {
			return verify(state.PeerCertificates, serverName, f.Material().roots)
		},
	}, nil
}

func verify(chain []*x509.Certificate, serverName string, roots *x509.CertPool) error {
	if len(chain) == 0 {
		return errors.New("the server presented no certificate")
	}
	intermediates := x509.NewCertPool()
	for _, cert := range chain[1:] {
		intermediates.AddCert(cert)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{
		DNSName: serverName, Roots: roots, Intermediates: intermediates,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	if err != nil {
		return &tls.CertificateVerificationError{UnverifiedCertificates: chain, Err: err}
	}
	return nil
}
