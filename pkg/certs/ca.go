// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"time"
)

const (
	// A lab CA lives ten years, its certificates one.
	caValidity   = 10 * 365 * 24 * time.Hour
	leafValidity = 365 * 24 * time.Hour
	// notBefore lies a little in the past for peers whose clock is behind.
	clockSkew = 5 * time.Minute

	modeKey  = 0o600
	modeCert = 0o644
	modeDir  = 0o755
)

// ErrExists says that a file of a certificate authority is already there; it is
// never overwritten.
var ErrExists = errors.New("certificate file already exists")

// CA issues certificates for tests and lab installations. It is no substitute
// for the certificate authority of a site.
type CA struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Leaf says what a certificate is for. The zero times mean from now on, for one
// year.
type Leaf struct {
	// Role becomes the common name and the SPIFFE id spiffe://rackbus/<role>.
	Role string
	// Hosts are DNS names and IP addresses. A certificate with hosts serves and
	// connects; one without only connects.
	Hosts     []string
	NotBefore time.Time
	NotAfter  time.Time
}

// NewCA makes a certificate authority in memory.
func NewCA() (*CA, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate CA key: %w", err)
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: "Rackbus lab CA"},
		NotBefore:             time.Now().Add(-clockSkew),
		NotAfter:              time.Now().Add(caValidity),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		URIs:                  []*url.URL{{Scheme: "spiffe", Host: TrustDomain}},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("create CA certificate: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("parse CA certificate: %w", err)
	}
	return &CA{cert: cert, key: key}, nil
}

// PEM returns the certificate of the CA.
func (c *CA) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.cert.Raw})
}

// Issue makes a P-256 key and a certificate for it, both as PEM.
func (c *CA) Issue(leaf Leaf) (certPEM, keyPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("generate key: %w", err)
	}
	serial, err := newSerial()
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: leaf.Role},
		NotBefore:    leaf.NotBefore,
		NotAfter:     leaf.NotAfter,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		URIs:         []*url.URL{{Scheme: "spiffe", Host: TrustDomain, Path: "/" + leaf.Role}},
	}
	if template.NotBefore.IsZero() {
		template.NotBefore = time.Now().Add(-clockSkew)
	}
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(leafValidity)
	}
	if len(leaf.Hosts) > 0 {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	for _, host := range leaf.Hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, c.cert, &key.PublicKey, c.key)
	if err != nil {
		return nil, nil, fmt.Errorf("create certificate for %s: %w", leaf.Role, err)
	}
	keyPEM, err = encodeKey(key)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), keyPEM, nil
}

// Roles returns the names for which InitCA issues certificates. "server" is for
// the API listener and "nats" for the broker; the others only connect.
func Roles() []string {
	return []string{"server", "nats", "client", "api", "jobs", "compute-agent", "switch-agent", "powershelf-agent"}
}

// InitCA makes a certificate authority below dir: ca.crt and ca.key, and for
// each of Roles <role>.crt and <role>.key. The certificates of the servers are
// for hosts, localhost and the loopback addresses. It returns ErrExists, and
// writes nothing, when ca.crt or ca.key is there.
func InitCA(dir string, hosts []string) error {
	for _, name := range []string{"ca.crt", "ca.key"} {
		path := filepath.Join(dir, name)
		if _, err := os.Lstat(path); err == nil {
			return fmt.Errorf("%w: %s", ErrExists, path)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("look for certificate file: %w", err)
		}
	}
	ca, err := NewCA()
	if err != nil {
		return err
	}
	keyPEM, err := encodeKey(ca.key)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, modeDir); err != nil {
		return fmt.Errorf("make certificate directory: %w", err)
	}
	serverHosts := append([]string{"localhost", "127.0.0.1", "::1"}, hosts...)
	for _, role := range Roles() {
		leaf := Leaf{Role: role}
		if role == "server" || role == "nats" {
			leaf.Hosts = serverHosts
		}
		cert, key, err := ca.Issue(leaf)
		if err != nil {
			return err
		}
		if err := WritePair(dir, role, cert, key); err != nil {
			return err
		}
	}
	// Last, so that an interrupted run can simply be repeated.
	return WritePair(dir, "ca", ca.PEM(), keyPEM)
}

// WritePair replaces <name>.crt and <name>.key in dir, each in one step; the
// key can be read by its owner only.
func WritePair(dir, name string, certPEM, keyPEM []byte) error {
	if err := writeFile(filepath.Join(dir, name+".key"), keyPEM, modeKey); err != nil {
		return err
	}
	return writeFile(filepath.Join(dir, name+".crt"), certPEM, modeCert)
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

func newSerial() (*big.Int, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("draw serial number: %w", err)
	}
	return serial, nil
}

func writeFile(path string, content []byte, mode fs.FileMode) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".tls-*") // mode 0600
	if err != nil {
		return fmt.Errorf("write certificate file: %w", err)
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(content)
	if err = errors.Join(err, tmp.Chmod(mode), tmp.Close()); err != nil {
		return fmt.Errorf("write certificate file %s: %w", path, err)
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		return fmt.Errorf("write certificate file: %w", err)
	}
	return nil
}
