// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

var (
	// ErrIncomplete says that a TLS configuration needs a file that was not named.
	ErrIncomplete = errors.New("incomplete TLS files")
	// ErrInvalid says that a certificate or key file cannot be used.
	ErrInvalid = errors.New("invalid TLS file")
)

// Files names PEM files. A cert needs its key and the other way round; CA holds
// the roots peers are verified against.
type Files struct {
	Cert string
	Key  string
	CA   string
}

// Options tune a Source. The zero value takes the defaults.
type Options struct {
	// PollInterval is how often Run looks for changed files; default 10 s. A
	// handshake looks as well, so it bounds only how late a fault is logged.
	PollInterval time.Duration
	// Logger receives reloads and faults; default slog.Default().
	Logger *slog.Logger
}

// material is one consistent reading of the files.
type material struct {
	digest [sha256.Size]byte
	cert   *tls.Certificate
	roots  *x509.CertPool
}

// Source is TLS material that follows its files. It is safe for concurrent use.
type Source struct {
	files    Files
	interval time.Duration
	log      *slog.Logger
	current  atomic.Pointer[material]

	mu    sync.Mutex // serialises reloads
	fault string     // last logged fault, so that it is logged once
}

// Load reads the files now and fails when any of them is unusable; files that
// break later never replace material that works.
func Load(files Files, opts Options) (*Source, error) {
	if (files.Cert == "") != (files.Key == "") {
		return nil, fmt.Errorf("%w: certificate and key go together", ErrIncomplete)
	}
	if files == (Files{}) {
		return nil, fmt.Errorf("%w: no file named", ErrIncomplete)
	}
	s := &Source{files: files, interval: opts.PollInterval, log: opts.Logger}
	if s.interval <= 0 {
		s.interval = 10 * time.Second
	}
	if s.log == nil {
		s.log = slog.Default()
	}
	m, err := files.read(nil)
	if err != nil {
		return nil, err
	}
	s.current.Store(m)
	return s, nil
}

// Run looks for changed files until ctx ends. It is not needed for correctness,
// since handshakes look too, but finds a broken file before the next peer does.
func (s *Source) Run(ctx context.Context) error {
	ticker := time.NewTicker(s.interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			s.Refresh()
		}
	}
}

// Refresh takes over changed files at once. Unusable ones leave everything as
// it is and are logged once.
func (s *Source) Refresh() {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.current.Load()
	m, err := s.files.read(old)
	switch {
	case err != nil:
		if text := err.Error(); text != s.fault {
			s.fault = text
			s.log.Warn("tls files unusable, keeping the former ones", "err", err)
		}
	case m != old:
		s.fault = ""
		s.current.Store(m)
		s.log.Info("tls files reloaded", "cert", s.files.Cert, "ca", s.files.CA)
	default:
		s.fault = ""
	}
}

// NotAfter returns when the own certificate expires, or the zero time when
// there is none.
func (s *Source) NotAfter() time.Time {
	if cert := s.current.Load().cert; cert != nil {
		return cert.Leaf.NotAfter
	}
	return time.Time{}
}

// fresh returns the material after a look at the files. Reading a few kilobytes
// costs little against a handshake.
func (s *Source) fresh() *material {
	s.Refresh()
	return s.current.Load()
}

// read returns old when nothing changed.
func (f Files) read(old *material) (*material, error) {
	var contents [3][]byte
	digest := sha256.New()
	for i, path := range [...]string{f.Cert, f.Key, f.CA} {
		if path != "" {
			raw, err := os.ReadFile(path)
			if err != nil {
				return nil, fmt.Errorf("read TLS file: %w", err)
			}
			contents[i] = raw
		}
		fmt.Fprintf(digest, "%d:", len(contents[i]))
		digest.Write(contents[i])
	}
	m := &material{}
	digest.Sum(m.digest[:0])
	if old != nil && old.digest == m.digest {
		return old, nil
	}
	if f.Cert != "" {
		cert, err := tls.X509KeyPair(contents[0], contents[1])
		if err != nil {
			return nil, fmt.Errorf("%w: %s with %s: %w", ErrInvalid, f.Cert, f.Key, err)
		}
		m.cert = &cert
	}
	if f.CA != "" {
		roots, err := parseRoots(contents[2])
		if err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrInvalid, f.CA, err)
		}
		m.roots = roots
	}
	return m, nil
}

// parseRoots is stricter than AppendCertsFromPEM, which skips what it cannot
// parse and so turns a damaged bundle into a smaller one.
func parseRoots(raw []byte) (*x509.CertPool, error) {
	pool, found := x509.NewCertPool(), false
	for len(bytes.TrimSpace(raw)) > 0 {
		block, rest := pem.Decode(raw)
		if block == nil {
			if found {
				break // trailing text
			}
			return nil, errors.New("no PEM block")
		}
		raw = rest
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		pool.AddCert(cert)
		found = true
	}
	if !found {
		return nil, errors.New("no certificate")
	}
	return pool, nil
}
