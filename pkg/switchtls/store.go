// SPDX-License-Identifier: Apache-2.0

package switchtls

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/rackbus/rackbus/pkg/secret"
)

const (
	rootInstalled = "switch_cert_root"
	rootClient    = "client_tls_root"

	// maxFile is far above any bundle of certificates.
	maxFile = 1 << 20
	// maxComparisons bounds the readings that are compared before giving up.
	maxComparisons = 3
)

// Settings are the keys of the [switches] section that this package follows.
type Settings struct {
	// InstalledRoot holds the material that is installed on switches
	// (switch_cert_root).
	InstalledRoot string
	// ClientRoot holds our own identity towards switches (client_tls_root).
	ClientRoot string
	// DefaultDomain is used when a request names none (default_switch_domain).
	DefaultDomain string
	// DNSDomain, when set, is the TLS server name of every switch (dns_domain).
	DNSDomain string
	// Insecure makes connections to switches unverified (insecure_switch).
	Insecure bool
}

// Store reads the material of domains. It keeps nothing and may be used by
// several goroutines.
type Store struct {
	settings Settings
	read     func(path string) ([]byte, error)
}

// NewStore returns a store. It reads nothing.
func NewStore(s Settings) *Store { return &Store{settings: s, read: readFile} }

// Insecure reports whether connections to switches are unverified. Callers need
// no material then.
func (s *Store) Insecure() bool { return s.settings.Insecure }

// Domain gives the domain of a request: the requested one, else the default.
// The fault is an *Error of kind ErrNoDomain or ErrDomainSyntax.
func (s *Store) Domain(requested string) (string, error) {
	domain := strings.TrimSpace(requested)
	if domain == "" {
		domain = strings.TrimSpace(s.settings.DefaultDomain)
	}
	if domain == "" {
		return "", &Error{Kind: ErrNoDomain}
	}
	if !folderName(domain) {
		return "", &Error{Kind: ErrDomainSyntax}
	}
	return domain, nil
}

// Installed reads what is installed on switches of a domain. An empty domain is
// the default one. Every fault is an *Error.
func (s *Store) Installed(domain string) (*Material, error) {
	return s.load(rootInstalled, s.settings.InstalledRoot, domain)
}

// Client reads our identity towards switches of a domain. An empty domain is
// the default one. Every fault is an *Error.
func (s *Store) Client(domain string) (*Material, error) {
	return s.load(rootClient, s.settings.ClientRoot, domain)
}

// ServerName is the name a switch's certificate has to be for: dns_domain when
// it is configured, else the host name of its endpoint, else its address.
func (s *Store) ServerName(hostName, address string) string {
	for _, name := range []string{s.settings.DNSDomain, hostName} {
		if name = strings.TrimSpace(name); name != "" {
			return bare(name)
		}
	}
	return bare(strings.TrimSpace(address))
}

// bare removes what a URL adds to an IPv6 address.
func bare(name string) string {
	name = strings.TrimSuffix(strings.TrimPrefix(name, "["), "]")
	name, _, _ = strings.Cut(name, "%")
	return name
}

func folderName(name string) bool {
	return name != "." && name != ".." && !strings.ContainsAny(name, "/\\") &&
		!strings.ContainsFunc(name, func(r rune) bool { return r < 0x20 || r == 0x7f })
}

func (s *Store) load(key, root, requested string) (*Material, error) {
	domain, err := s.Domain(requested)
	if err != nil {
		return nil, err
	}
	if strings.TrimSpace(root) == "" {
		return nil, &Error{Kind: ErrNoRoot, Root: key, Domain: domain}
	}
	dir := filepath.Join(root, domain)
	files, err := s.stable(dir)
	if err != nil {
		var e *Error
		if errors.As(err, &e) {
			e.Root, e.Domain = key, domain
		}
		return nil, err
	}
	m, err := Parse(domain, files[0], files[1], secret.FromBytes(files[2]))
	if err != nil {
		var e *Error
		if errors.As(err, &e) {
			e.Root = key
		}
		return nil, err
	}
	return m, nil
}

type reading [3][]byte

func (r reading) equal(o reading) bool {
	for i := range r {
		if !bytes.Equal(r[i], o[i]) {
			return false
		}
	}
	return true
}

// stable reads until two readings in a row agree, so that a set is never made of
// files from before and after a rotation.
func (s *Store) stable(dir string) (reading, error) {
	last, err := s.readAll(dir)
	if err != nil {
		return reading{}, err
	}
	for range maxComparisons {
		next, err := s.readAll(dir)
		if err != nil {
			return reading{}, err
		}
		same := next.equal(last)
		clear(last[2]) // the key is kept once
		if same {
			return next, nil
		}
		last = next
	}
	clear(last[2])
	return reading{}, &Error{Kind: ErrUnstable, Path: dir}
}

func (s *Store) readAll(dir string) (reading, error) {
	var r reading
	for i, name := range [...]string{FileCA, FileCertificate, FileKey} {
		path := filepath.Join(dir, name)
		content, err := s.read(path)
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, errNotRegular), errors.Is(err, syscall.ENOTDIR):
			return r, &Error{Kind: ErrMissingFile, Path: path}
		case err != nil:
			return r, &Error{Kind: ErrInvalid, Path: path, cause: reason(err)}
		}
		r[i] = content
	}
	return r, nil
}

var errNotRegular = errors.New("not a regular file")

func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errNotRegular
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(content) > maxFile {
		return nil, fmt.Errorf("larger than %d bytes", maxFile)
	}
	return content, nil
}

// reason drops the path, which the Error has already.
func reason(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}
