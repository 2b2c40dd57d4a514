// SPDX-License-Identifier: Apache-2.0

package switchtls

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"

	"github.com/rackbus/rackbus/pkg/secret"
)

// The files of a domain, in the order in which the fingerprint takes them.
const (
	FileCA          = "ca.pem"
	FileCertificate = "client.pem"
	FileKey         = "client.key"
)

// Fingerprint identifies one state of the three files.
type Fingerprint [sha256.Size]byte

// String gives lower-case hex. It reveals nothing of the key.
func (f Fingerprint) String() string { return hex.EncodeToString(f[:]) }

// Material is one consistent reading of the three files of a domain, as PEM. It
// is known to parse.
type Material struct {
	Domain      string
	CA          []byte
	Certificate []byte
	Key         secret.Value

	pair  tls.Certificate
	roots *x509.CertPool
	sum   Fingerprint
}

// Parse builds material from PEM that came by another way than a file, for
// example sealed in a command. It takes ownership of the slices. A fault is an
// *Error of kind ErrInvalid.
func Parse(domain string, ca, certificate []byte, key secret.Value) (*Material, error) {
	m := &Material{Domain: domain, CA: ca, Certificate: certificate, Key: key}
	roots, err := parseRoots(ca)
	if err != nil {
		return nil, &Error{Kind: ErrInvalid, Domain: domain, Path: FileCA, cause: err}
	}
	// The errors of X509KeyPair name types and forms, never content.
	pair, err := tls.X509KeyPair(certificate, key.Bytes())
	if err != nil {
		return nil, &Error{Kind: ErrInvalid, Domain: domain, Path: FileCertificate + ", " + FileKey, cause: err}
	}
	m.roots, m.pair, m.sum = roots, pair, fingerprint(ca, certificate, key.Bytes())
	return m, nil
}

// Fingerprint is the SHA-256 over CA, certificate and key in this order, each
// preceded by its length as eight bytes, little endian.
func (m *Material) Fingerprint() Fingerprint { return m.sum }

// Leaf is the first certificate of the identity.
func (m *Material) Leaf() *x509.Certificate { return m.pair.Leaf }

// ClientConfig verifies the server against serverName with the domain's CA as
// the only root, and presents the identity. serverName is a DNS name or an IP
// address; see Store.ServerName.
func (m *Material) ClientConfig(serverName string) (*tls.Config, error) {
	if serverName == "" {
		return nil, errors.New("a verified connection needs the server's name")
	}
	return &tls.Config{
		MinVersion:   tls.VersionTLS12,
		ServerName:   serverName,
		RootCAs:      m.roots,
		Certificates: []tls.Certificate{m.pair},
	}, nil
}

// Unverified encrypts and verifies nothing, and presents no certificate. It is
// for insecure_switch and for switches that have no certificate of ours yet.
func Unverified(serverName string) *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		ServerName:         serverName,
		InsecureSkipVerify: true, //nolint:gosec // the caller asked for exactly this
	}
}

func fingerprint(files ...[]byte) Fingerprint {
	h := sha256.New()
	var size [8]byte
	for _, content := range files {
		binary.LittleEndian.PutUint64(size[:], uint64(len(content)))
		h.Write(size[:])
		h.Write(content)
	}
	var f Fingerprint
	h.Sum(f[:0])
	return f
}

// parseRoots refuses a bundle of which any certificate is damaged, where
// AppendCertsFromPEM would silently trust fewer.
func parseRoots(raw []byte) (*x509.CertPool, error) {
	pool, found := x509.NewCertPool(), 0
	for len(bytes.TrimSpace(raw)) > 0 {
		block, rest := pem.Decode(raw)
		if block == nil {
			break // text around the blocks
		}
		raw = rest
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d: %w", found+1, err)
		}
		pool.AddCert(cert)
		found++
	}
	if found == 0 {
		return nil, errors.New("no certificate in it")
	}
	return pool, nil
}
