// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"time"

	"github.com/rackbus/rackbus/sim/nvswitch"
)

// Domain is the TLS material of SwitchDomain. Switches and Rackbus have an authority each, so that nothing works with
// the two mixed up.
type Domain struct {
	// Installed is what switches are given: their identity, and the authority of those who may connect.
	Installed nvswitch.Material
	// Earlier is what an earlier run has given them: another identity of the same authority.
	Earlier nvswitch.Material
	// Client is what Rackbus shows and trusts.
	Client nvswitch.Material
}

// validity of the certificates, both ways from now.
const validity = 24 * time.Hour

func newDomain() (*Domain, error) {
	switches, err := newAuthority("switches of " + SwitchDomain)
	if err != nil {
		return nil, err
	}
	clients, err := newAuthority("clients of " + SwitchDomain)
	if err != nil {
		return nil, err
	}
	d := &Domain{}
	for _, m := range []*nvswitch.Material{&d.Installed, &d.Earlier} {
		m.CA = clients.pem
		if m.Certificate, m.Key, err = switches.issue(SwitchName, x509.ExtKeyUsageServerAuth); err != nil {
			return nil, err
		}
	}
	d.Client.CA = switches.pem
	d.Client.Certificate, d.Client.Key, err = clients.issue("rackbus", x509.ExtKeyUsageClientAuth)
	return d, err
}

// write lays the material out as the configuration expects it.
func (d *Domain) write(installed, clients string) error {
	for root, m := range map[string]nvswitch.Material{installed: d.Installed, clients: d.Client} {
		dir := filepath.Join(root, SwitchDomain)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("write switch material: %w", err)
		}
		for name, content := range map[string][]byte{"ca.pem": m.CA, "client.pem": m.Certificate, "client.key": m.Key} {
			if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
				return fmt.Errorf("write switch material: %w", err)
			}
		}
	}
	return nil
}

// authority issues certificates.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	pem         []byte
}

func newAuthority(name string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make authority: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-validity), NotAfter: time.Now().Add(validity),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make authority: %w", err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("make authority: %w", err)
	}
	return &authority{certificate, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}, nil
}

// issue makes a certificate for a DNS name, with its key in PKCS #8.
func (a *authority) issue(name string, usage x509.ExtKeyUsage) (certificate, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("issue certificate: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-validity), NotAfter: time.Now().Add(validity),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{usage},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, private.Public(), a.key)
	if err != nil {
		return nil, nil, fmt.Errorf("issue certificate: %w", err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, fmt.Errorf("issue certificate: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}), nil
}
