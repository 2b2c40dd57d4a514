// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nkeys"

	"github.com/rackbus/rackbus/pkg/certs"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/seal"
	"github.com/rackbus/rackbus/pkg/secret"
)

// Below Options.Dir: what must be kept, and what is copied to the hosts.
const (
	secretsDir = "secrets"
	installDir = "install"
)

// secrets are the masters of everything that must not be made twice.
type secrets struct {
	report *Report
	// dir holds keys/ as rackbus keys init lays it out, tls/ and nkeys/.
	dir string
	ca  *certs.CA
}

// makePrivate makes the directory of the secrets unless it is there.
func makePrivate(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), modeDir); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	if err := os.Mkdir(dir, modePrivateDir); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make directory: %w", err)
	}
	return nil
}

func openSecrets(dir string, report *Report) (*secrets, error) {
	s := &secrets{report: report, dir: dir}
	for _, sub := range []string{s.keys(), s.tls(""), s.nkeys()} {
		if err := os.MkdirAll(sub, modeDir); err != nil {
			return nil, fmt.Errorf("make directory: %w", err)
		}
	}
	_, err := os.Lstat(s.tls("ca.crt"))
	fresh := errors.Is(err, fs.ErrNotExist)
	if s.ca, err = certs.EnsureCA(s.tls("")); err != nil {
		return nil, err
	}
	if fresh {
		report.made(s.tls("ca.crt"), s.tls("ca.key"))
	}
	return s, s.sealing()
}

func (s *secrets) keys() string           { return filepath.Join(s.dir, "keys") }
func (s *secrets) tls(name string) string { return filepath.Join(s.dir, "tls", name) }
func (s *secrets) nkeys() string          { return filepath.Join(s.dir, "nkeys") }

// sealing makes the keys of the families, of the broker's store, and of the links to
// evidence.
func (s *secrets) sealing() error {
	err := seal.WriteKeys(s.keys(), node.KeyFamilies())
	switch {
	case err == nil:
		s.report.made(s.keys())
	case errors.Is(err, seal.ErrKeysExist):
		added, err := seal.AddFamilies(s.keys(), node.KeyFamilies())
		for _, f := range added {
			s.report.made(filepath.Join(s.keys(), "families", string(f)+".seed"))
		}
		if err != nil {
			return err
		}
	default:
		return err
	}
	return seal.EnsureLinkKey(s.keys())
}

// certificate makes <name>.crt and <name>.key unless they are there. Hosts makes it
// one for a server too.
func (s *secrets) certificate(name string, hosts ...string) error {
	_, cerr := os.Lstat(s.tls(name + ".crt"))
	_, kerr := os.Lstat(s.tls(name + ".key"))
	if cerr == nil && kerr == nil {
		return s.examine(s.tls(name+".crt"), hosts)
	}
	cert, key, err := s.ca.Issue(certs.Leaf{Role: name, Hosts: hosts})
	if err != nil {
		return err
	}
	if err := certs.WritePair(s.tls(""), name, cert, key); err != nil {
		return err
	}
	s.report.made(s.tls(name+".crt"), s.tls(name+".key"))
	return nil
}

// renewBefore is how long before its end a certificate is called stale.
const renewBefore = 30 * 24 * time.Hour

// examine notes a certificate that is there and does not do any more.
func (s *secrets) examine(path string, hosts []string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read certificate: %w", err)
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return fmt.Errorf("%s holds no certificate", path)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return fmt.Errorf("read certificate %s: %w", path, err)
	}
	stale := time.Until(cert.NotAfter) < renewBefore
	for _, host := range hosts {
		stale = stale || cert.VerifyHostname(host) != nil
	}
	if stale {
		s.report.Stale = append(s.report.Stale, path)
	}
	return nil
}

// user returns the public key of a bus user, whose seed is made unless it is there.
func (s *secrets) user(name string) (public string, err error) {
	path := s.seed(name)
	raw, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		pair, err := nkeys.CreateUser()
		if err != nil {
			return "", fmt.Errorf("make key of bus user %s: %w", name, err)
		}
		defer pair.Wipe()
		if raw, err = pair.Seed(); err != nil {
			return "", fmt.Errorf("make key of bus user %s: %w", name, err)
		}
		if err := s.report.add(path, append(raw[:len(raw):len(raw)], '\n'), modeSecret); err != nil {
			return "", err
		}
	case err != nil:
		return "", fmt.Errorf("read key of bus user %s: %w", name, err)
	}
	defer clear(raw)
	pair, err := nkeys.FromSeed([]byte(strings.TrimSpace(string(raw))))
	if err != nil {
		return "", fmt.Errorf("%s holds no seed: %w", path, err)
	}
	defer pair.Wipe()
	if public, err = pair.PublicKey(); err != nil {
		return "", fmt.Errorf("derive public key of bus user %s: %w", name, err)
	}
	return public, nil
}

func (s *secrets) seed(user string) string { return filepath.Join(s.nkeys(), user+".seed") }

// text reads a secret that is written into a file of variables.
func (s *secrets) text(path string) (secret.Value, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return secret.Value{}, fmt.Errorf("read secret: %w", err)
	}
	return secret.New(strings.TrimSpace(string(raw))), nil
}
