// SPDX-License-Identifier: Apache-2.0

package switchtls

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/rackbus/rackbus/pkg/certs"
	"github.com/rackbus/rackbus/pkg/secret"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// domainFiles is a CA and the files of one identity of it.
type domainFiles struct {
	ca        *certs.CA
	cert, key []byte
}

func issue(t *testing.T, ca *certs.CA, hosts ...string) domainFiles {
	t.Helper()
	cert, key, err := ca.Issue(certs.Leaf{Role: "switch", Hosts: hosts})
	require.NoError(t, err)
	return domainFiles{ca: ca, cert: cert, key: key}
}

func newFiles(t *testing.T, hosts ...string) domainFiles {
	t.Helper()
	ca, err := certs.NewCA()
	require.NoError(t, err)
	return issue(t, ca, hosts...)
}

func (f domainFiles) write(t *testing.T, dir string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(dir, 0o755))
	for name, content := range map[string][]byte{FileCA: f.ca.PEM(), FileCertificate: f.cert, FileKey: f.key} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
}

func TestDomain(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		requested, fallback, want string
		kind                      error
	}{
		{requested: " lab ", fallback: "prod", want: "lab"},
		{requested: "  ", fallback: " prod ", want: "prod"},
		{kind: ErrNoDomain},
		{requested: ".", kind: ErrDomainSyntax},
		{requested: "..", kind: ErrDomainSyntax},
		{requested: "a/b", kind: ErrDomainSyntax},
		{requested: `a\b`, kind: ErrDomainSyntax},
		{requested: "../a", kind: ErrDomainSyntax},
		{requested: "a\x00b", kind: ErrDomainSyntax},
		{fallback: "/etc", kind: ErrDomainSyntax},
		{requested: "rack.example", want: "rack.example"},
	} {
		got, err := NewStore(Settings{DefaultDomain: tt.fallback}).Domain(tt.requested)
		require.Equal(t, tt.want, got)
		require.ErrorIs(t, err, tt.kind, "%+v", tt)
		if tt.kind == nil {
			require.NoError(t, err)
		}
	}
}

func TestServerName(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ dns, host, address, want string }{
		{"switch.example", "sw1", "192.0.2.1", "switch.example"},
		{"", " sw1 ", "192.0.2.1", "sw1"},
		{"", "", "192.0.2.1", "192.0.2.1"},
		{"", "", "[2001:db8::1]", "2001:db8::1"},
		{"", "", "fe80::1%eth0", "fe80::1"},
	} {
		require.Equal(t, tt.want, NewStore(Settings{DNSDomain: tt.dns}).ServerName(tt.host, tt.address))
	}
}

func TestMaterial(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	f := newFiles(t)
	f.write(t, filepath.Join(root, "lab"))
	for _, tt := range []struct {
		settings Settings
		load     func(*Store, string) (*Material, error)
	}{
		{Settings{InstalledRoot: root, DefaultDomain: "lab"}, (*Store).Installed},
		{Settings{ClientRoot: root, DefaultDomain: "lab"}, (*Store).Client},
	} {
		m, err := tt.load(NewStore(tt.settings), "")
		require.NoError(t, err)
		require.Equal(t, "lab", m.Domain)
		require.Equal(t, f.ca.PEM(), m.CA)
		require.Equal(t, f.cert, m.Certificate)
		require.Equal(t, string(f.key), m.Key.Reveal())
		require.Equal(t, "switch", m.Leaf().Subject.CommonName)

		h := sha256.New()
		for _, part := range [][]byte{f.ca.PEM(), f.cert, f.key} {
			require.NoError(t, binary.Write(h, binary.LittleEndian, uint64(len(part))))
			h.Write(part)
		}
		require.Equal(t, fmt.Sprintf("%x", h.Sum(nil)), m.Fingerprint().String())
		require.NotContains(t, fmt.Sprintf("%v %+v", m.Key, m.Key), "PRIVATE KEY")
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	other := newFiles(t)
	for _, tt := range []struct {
		name  string
		spoil func(t *testing.T, dir string)
		root  string
		kind  error
	}{
		{name: "no root", root: "-", kind: ErrNoRoot},
		{name: "no domain folder", spoil: func(t *testing.T, dir string) { require.NoError(t, os.RemoveAll(dir)) }, kind: ErrMissingFile},
		{name: "no ca", spoil: remove(FileCA), kind: ErrMissingFile},
		{name: "no certificate", spoil: remove(FileCertificate), kind: ErrMissingFile},
		{name: "no key", spoil: remove(FileKey), kind: ErrMissingFile},
		{name: "a folder for a key", spoil: func(t *testing.T, dir string) {
			remove(FileKey)(t, dir)
			require.NoError(t, os.Mkdir(filepath.Join(dir, FileKey), 0o755))
		}, kind: ErrMissingFile},
		{name: "damaged ca", spoil: put(FileCA, []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")), kind: ErrInvalid},
		{name: "empty ca", spoil: put(FileCA, nil), kind: ErrInvalid},
		{name: "text for a certificate", spoil: put(FileCertificate, []byte("hello")), kind: ErrInvalid},
		{name: "foreign key", spoil: put(FileKey, other.key), kind: ErrInvalid},
		{name: "too large", spoil: put(FileCA, bytes.Repeat([]byte("x"), maxFile+1)), kind: ErrInvalid},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			newFiles(t).write(t, filepath.Join(root, "lab"))
			if tt.spoil != nil {
				tt.spoil(t, filepath.Join(root, "lab"))
			}
			if tt.root != "" {
				root = ""
			}
			_, err := NewStore(Settings{ClientRoot: root}).Client("lab")
			require.ErrorIs(t, err, tt.kind)
			require.False(t, Transient(err))
			var e *Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, "client_tls_root", e.Root)
			require.Equal(t, "lab", e.Domain)
			require.NotContains(t, err.Error(), "PRIVATE KEY")
			require.NotContains(t, err.Error(), string(other.key))
		})
	}
}

func remove(name string) func(*testing.T, string) {
	return func(t *testing.T, dir string) { require.NoError(t, os.Remove(filepath.Join(dir, name))) }
}

func put(name string, content []byte) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
}

// A rotation while the files are read must never yield a mixed set.
func TestRotationWhileReading(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		changes int // readings after which the content changes once more
		err     error
		read    int
	}{
		{name: "quiet", changes: 0, read: 6},
		{name: "changes once", changes: 1, read: 9},
		{name: "changes twice", changes: 2, read: 12},
		{name: "keeps changing", changes: 3, read: 12, err: ErrUnstable},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var sets []domainFiles
			for range tt.changes + 1 {
				sets = append(sets, newFiles(t))
			}
			reads := 0
			s := NewStore(Settings{ClientRoot: "/r"})
			s.read = func(path string) ([]byte, error) {
				set := sets[min(reads/3, tt.changes)]
				reads++
				switch filepath.Base(path) {
				case FileCA:
					return set.ca.PEM(), nil
				case FileCertificate:
					return bytes.Clone(set.cert), nil
				default:
					return bytes.Clone(set.key), nil
				}
			}
			m, err := s.Client("lab")
			require.Equal(t, tt.read, reads)
			if tt.err != nil {
				require.ErrorIs(t, err, tt.err)
				require.True(t, Transient(err))
				return
			}
			require.NoError(t, err)
			require.Equal(t, sets[tt.changes].cert, m.Certificate)
			require.Equal(t, string(sets[tt.changes].key), m.Key.Reveal())
		})
	}
}

func TestUnreadableFile(t *testing.T) {
	t.Parallel()
	s := NewStore(Settings{InstalledRoot: "/r"})
	s.read = func(path string) ([]byte, error) {
		return nil, &os.PathError{Op: "open", Path: path, Err: os.ErrPermission}
	}
	_, err := s.Installed("lab")
	require.ErrorIs(t, err, ErrInvalid)
	require.ErrorIs(t, err, os.ErrPermission)
}

func TestParseSealedMaterial(t *testing.T) {
	t.Parallel()
	f := newFiles(t)
	m, err := Parse("lab", f.ca.PEM(), f.cert, secret.New(string(f.key)))
	require.NoError(t, err)
	require.NotZero(t, m.Fingerprint())
	_, err = Parse("lab", f.ca.PEM(), f.cert, secret.Value{})
	require.ErrorIs(t, err, ErrInvalid)
}

// shake runs one handshake with a server that demands a certificate of clientCA.
func shake(t *testing.T, server domainFiles, clientCA *certs.CA, config *tls.Config) error {
	t.Helper()
	pair, err := tls.X509KeyPair(server.cert, server.key)
	require.NoError(t, err)
	roots, err := parseRoots(clientCA.PEM())
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		raw, err := listener.Accept()
		if err != nil {
			return
		}
		defer raw.Close()
		conn := tls.Server(raw, &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: roots, ClientAuth: tls.RequireAndVerifyClientCert})
		if conn.Handshake() == nil {
			_, _ = io.WriteString(conn, "ok")
			_ = conn.CloseWrite()
		}
	}()
	conn, err := tls.Dial("tcp", listener.Addr().String(), config)
	if err == nil {
		var got []byte
		got, err = io.ReadAll(conn)
		conn.Close()
		if err == nil && string(got) != "ok" {
			err = errors.New("no greeting")
		}
	}
	listener.Close()
	<-done
	return err
}

func TestConnections(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	client := newFiles(t)
	client.write(t, filepath.Join(root, "lab"))
	s := NewStore(Settings{ClientRoot: root})
	m, err := s.Client("lab")
	require.NoError(t, err)
	config, err := m.ClientConfig("sw1.example")
	require.NoError(t, err)

	require.NoError(t, shake(t, issue(t, client.ca, "sw1.example"), client.ca, config))
	var bad *tls.CertificateVerificationError
	require.ErrorAs(t, shake(t, issue(t, client.ca, "sw2.example"), client.ca, config), &bad, "another name")
	require.ErrorAs(t, shake(t, newFiles(t, "sw1.example"), client.ca, config), &bad, "another CA")
	require.Error(t, shake(t, issue(t, client.ca, "sw1.example"), newFiles(t).ca, config), "our certificate is refused")
	require.Error(t, shake(t, newFiles(t, "x"), client.ca, Unverified("sw1.example")), "no certificate of ours")

	_, err = m.ClientConfig("")
	require.Error(t, err)
}

func TestFollower(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	dir := filepath.Join(root, "lab")
	old := newFiles(t)
	old.write(t, dir)
	var log bytes.Buffer
	s := NewStore(Settings{ClientRoot: root, DefaultDomain: "lab"})
	_, err := s.Follow("none", nil)
	require.ErrorIs(t, err, ErrMissingFile)
	f, err := s.Follow("", slog.New(slog.NewTextHandler(&log, nil)))
	require.NoError(t, err)
	config, err := f.ClientConfig("sw1")
	require.NoError(t, err)
	require.NoError(t, shake(t, issue(t, old.ca, "sw1"), old.ca, config))

	put(FileKey, []byte("broken"))(t, dir)
	require.NoError(t, shake(t, issue(t, old.ca, "sw1"), old.ca, config), "the former material stays")
	require.Equal(t, 1, bytes.Count(log.Bytes(), []byte("keeping the former")), "logged once")

	fresh := newFiles(t)
	fresh.write(t, dir)
	require.NoError(t, shake(t, issue(t, fresh.ca, "sw1"), fresh.ca, config), "the new material is taken over")
	var bad *tls.CertificateVerificationError
	require.ErrorAs(t, shake(t, issue(t, old.ca, "sw1"), fresh.ca, config), &bad, "the old root is gone")
	require.NotContains(t, log.String(), "PRIVATE KEY")
}
