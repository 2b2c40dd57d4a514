// SPDX-License-Identifier: Apache-2.0

package certs_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/rackbus/rackbus/pkg/certs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// site is a CA and a directory with the files of one server and one client.
type site struct {
	ca  *certs.CA
	dir string
}

func newSite(t *testing.T) *site {
	t.Helper()
	ca, err := certs.NewCA()
	require.NoError(t, err)
	s := &site{ca: ca, dir: t.TempDir()}
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "ca.crt"), ca.PEM(), 0o600))
	s.issue(t, "server", certs.Leaf{Role: "server", Hosts: []string{"127.0.0.1", "api.example"}})
	s.issue(t, "client", certs.Leaf{Role: "client"})
	return s
}

func (s *site) issue(t *testing.T, name string, leaf certs.Leaf) {
	t.Helper()
	cert, key, err := s.ca.Issue(leaf)
	require.NoError(t, err)
	require.NoError(t, certs.WritePair(s.dir, name, cert, key))
}

func (s *site) files(name string) certs.Files {
	return certs.Files{
		Cert: filepath.Join(s.dir, name+".crt"),
		Key:  filepath.Join(s.dir, name+".key"),
		CA:   filepath.Join(s.dir, "ca.crt"),
	}
}

func load(t *testing.T, files certs.Files) *certs.Source {
	t.Helper()
	s, err := certs.Load(files, certs.Options{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	return s
}

// listen serves the peer identity to every admitted connection.
func listen(t *testing.T, config *tls.Config) string {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", config)
	require.NoError(t, err)
	var wg sync.WaitGroup
	t.Cleanup(func() { l.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer conn.Close()
				tc := conn.(*tls.Conn)
				if tc.Handshake() != nil {
					return
				}
				peer := certs.UnknownPeer
				if chain := tc.ConnectionState().PeerCertificates; len(chain) > 0 {
					peer = certs.PeerIdentity(chain[0])
				}
				io.WriteString(conn, peer)
			})
		}
	})
	return l.Addr().String()
}

// dial returns what the server says, and the serial of its certificate.
func dial(t *testing.T, addr string, config *tls.Config) (peer, serial string, err error) {
	t.Helper()
	d := &tls.Dialer{NetDialer: &net.Dialer{Timeout: 5 * time.Second}, Config: config}
	conn, err := d.DialContext(t.Context(), "tcp", addr)
	if err != nil {
		return "", "", err
	}
	defer conn.Close()
	state := conn.(*tls.Conn).ConnectionState()
	require.Equal(t, uint16(tls.VersionTLS13), state.Version)
	said, err := io.ReadAll(conn) // TLS 1.3: a refused client learns it here
	return string(said), state.PeerCertificates[0].SerialNumber.String(), err
}

func mutual(t *testing.T, s *certs.Source) *tls.Config {
	t.Helper()
	c, err := s.MutualServer()
	require.NoError(t, err)
	return c
}

func client(t *testing.T, s *certs.Source, name string) *tls.Config {
	t.Helper()
	c, err := s.Client(name)
	require.NoError(t, err)
	return c
}

func TestMutualHandshake(t *testing.T) {
	s, foreign := newSite(t), newSite(t)
	past := time.Now().Add(-time.Hour)
	s.issue(t, "expired", certs.Leaf{Role: "expired", NotBefore: past.Add(-time.Hour), NotAfter: past})
	s.issue(t, "future", certs.Leaf{Role: "future", NotBefore: time.Now().Add(time.Hour), NotAfter: time.Now().Add(2 * time.Hour)})
	addr := listen(t, mutual(t, load(t, s.files("server"))))
	foreignClient := foreign.files("client")
	foreignClient.CA = s.files("client").CA // trusts the server, but is not trusted
	tests := []struct {
		name, serverName string
		files            certs.Files
		refused          bool
	}{
		{"by address", "127.0.0.1", s.files("client"), false},
		{"by name", "api.example", s.files("client"), false},
		{"wrong server name", "other.example", s.files("client"), true},
		{"no client certificate", "127.0.0.1", certs.Files{CA: s.files("client").CA}, true},
		{"expired client", "127.0.0.1", s.files("expired"), true},
		{"client of the future", "127.0.0.1", s.files("future"), true},
		{"foreign client", "127.0.0.1", foreignClient, true},
		{"foreign server", "127.0.0.1", foreign.files("client"), true},
		{"client certificate with a server's right", "127.0.0.1", s.files("server"), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			peer, _, err := dial(t, addr, client(t, load(t, tt.files), tt.serverName))
			if tt.refused {
				require.Error(t, err)
				require.Empty(t, peer)
				return
			}
			require.NoError(t, err)
			require.True(t, strings.HasPrefix(peer, "spiffe://rackbus/"), peer)
		})
	}
	t.Run("TLS 1.2", func(t *testing.T) {
		old := client(t, load(t, s.files("client")), "127.0.0.1")
		old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
		_, _, err := dial(t, addr, old)
		require.Error(t, err)
	})
}

func TestClientCertificateCannotServe(t *testing.T) {
	s := newSite(t)
	addr := listen(t, mutual(t, load(t, s.files("client"))))
	_, _, err := dial(t, addr, client(t, load(t, s.files("client")), "127.0.0.1"))
	require.Error(t, err)
}

func TestAnonymousServer(t *testing.T) {
	s := newSite(t)
	config, err := load(t, s.files("server")).AnonymousServer()
	require.NoError(t, err)
	peer, _, err := dial(t, listen(t, config), client(t, load(t, certs.Files{CA: s.files("server").CA}), "127.0.0.1"))
	require.NoError(t, err)
	require.Equal(t, certs.UnknownPeer, peer)
}

// TestRotationUnderAnOpenListener replaces the server certificate, then the CA
// and both certificates, while listener and client configuration stay.
func TestRotationUnderAnOpenListener(t *testing.T) {
	s := newSite(t)
	addr := listen(t, mutual(t, load(t, s.files("server"))))
	dialer := client(t, load(t, s.files("client")), "127.0.0.1")
	_, first, err := dial(t, addr, dialer)
	require.NoError(t, err)

	s.issue(t, "server", certs.Leaf{Role: "server", Hosts: []string{"127.0.0.1"}})
	_, second, err := dial(t, addr, dialer)
	require.NoError(t, err)
	require.NotEqual(t, first, second)

	oldClient, err := load(t, s.files("client")).Certificate()
	require.NoError(t, err)
	s.ca, err = certs.NewCA()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(s.files("").CA, s.ca.PEM(), 0o600))
	s.issue(t, "server", certs.Leaf{Role: "server", Hosts: []string{"127.0.0.1"}})
	s.issue(t, "client", certs.Leaf{Role: "client-2"})
	peer, third, err := dial(t, addr, dialer)
	require.NoError(t, err)
	require.NotEqual(t, second, third)
	require.Equal(t, "spiffe://rackbus/client-2", peer)

	stale := dialer.Clone()
	stale.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &oldClient, nil }
	_, _, err = dial(t, addr, stale)
	require.Error(t, err, "the former CA no longer admits")
}

func TestBrokenFilesKeepTheOldMaterial(t *testing.T) {
	otherKey := func(t *testing.T, s *site) []byte {
		_, key, err := s.ca.Issue(certs.Leaf{Role: "other"})
		require.NoError(t, err)
		return key
	}
	tests := []struct {
		name  string
		spoil func(t *testing.T, s *site)
	}{
		{"rubbish certificate", func(t *testing.T, s *site) {
			require.NoError(t, os.WriteFile(s.files("server").Cert, []byte("rubbish"), 0o600))
		}},
		{"key of another certificate", func(t *testing.T, s *site) {
			require.NoError(t, os.WriteFile(s.files("server").Key, otherKey(t, s), 0o600))
		}},
		{"missing key", func(t *testing.T, s *site) { require.NoError(t, os.Remove(s.files("server").Key)) }},
		{"empty CA", func(t *testing.T, s *site) { require.NoError(t, os.WriteFile(s.files("").CA, nil, 0o600)) }},
		{"damaged CA bundle", func(t *testing.T, s *site) {
			bad := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("bad")})
			require.NoError(t, os.WriteFile(s.files("").CA, append(s.ca.PEM(), bad...), 0o600))
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newSite(t)
			var log bytes.Buffer
			source, err := certs.Load(s.files("server"), certs.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
			require.NoError(t, err)
			addr := listen(t, mutual(t, source))
			dialer := client(t, load(t, s.files("client")), "127.0.0.1")
			_, first, err := dial(t, addr, dialer)
			require.NoError(t, err)

			tt.spoil(t, s)
			for range 3 {
				source.Refresh()
			}
			require.Equal(t, 1, strings.Count(log.String(), "keeping the former ones"), log.String())
			_, err = certs.Load(s.files("server"), certs.Options{})
			require.Error(t, err, "at start the same files are refused")

			roots := client(t, load(t, certs.Files{Cert: s.files("client").Cert, Key: s.files("client").Key, CA: writeCA(t, s)}), "127.0.0.1")
			_, again, err := dial(t, addr, roots)
			require.NoError(t, err)
			require.Equal(t, first, again)

			require.NoError(t, os.WriteFile(s.files("").CA, s.ca.PEM(), 0o600))
			s.issue(t, "server", certs.Leaf{Role: "server", Hosts: []string{"127.0.0.1"}})
			_, repaired, err := dial(t, addr, dialer)
			require.NoError(t, err)
			require.NotEqual(t, first, repaired)
		})
	}
}

func writeCA(t *testing.T, s *site) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ca.crt")
	require.NoError(t, os.WriteFile(path, s.ca.PEM(), 0o600))
	return path
}

func TestRunPolls(t *testing.T) {
	s := newSite(t)
	synctest.Test(t, func(t *testing.T) {
		source, err := certs.Load(s.files("server"), certs.Options{Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- source.Run(ctx) }()
		soon := time.Now().Add(30 * 24 * time.Hour).Truncate(time.Second).UTC()
		s.issue(t, "server", certs.Leaf{Role: "server", Hosts: []string{"a"}, NotAfter: soon})
		require.NotEqual(t, soon, source.NotAfter())
		time.Sleep(10*time.Second + time.Millisecond) // fake clock: the default interval
		synctest.Wait()
		require.Equal(t, soon, source.NotAfter())
		cancel()
		require.NoError(t, <-done)
	})
}

func TestIncompleteFiles(t *testing.T) {
	s := newSite(t)
	full := s.files("server")
	for _, files := range []certs.Files{{}, {Cert: full.Cert}, {Key: full.Key, CA: full.CA}} {
		_, err := certs.Load(files, certs.Options{})
		require.ErrorIs(t, err, certs.ErrIncomplete)
	}
	noCA := load(t, certs.Files{Cert: full.Cert, Key: full.Key})
	_, err := noCA.MutualServer()
	require.ErrorIs(t, err, certs.ErrIncomplete)
	_, err = noCA.Client("x")
	require.ErrorIs(t, err, certs.ErrIncomplete)
	_, err = noCA.Roots()
	require.ErrorIs(t, err, certs.ErrIncomplete)
	onlyCA := load(t, certs.Files{CA: full.CA})
	_, err = onlyCA.AnonymousServer()
	require.ErrorIs(t, err, certs.ErrIncomplete)
	_, err = onlyCA.Certificate()
	require.ErrorIs(t, err, certs.ErrIncomplete)
	_, err = onlyCA.Client("")
	require.ErrorIs(t, err, certs.ErrIncomplete)
	require.True(t, onlyCA.NotAfter().IsZero())
}

func TestPeerIdentity(t *testing.T) {
	uri := func(s string) *url.URL {
		u, err := url.Parse(s)
		require.NoError(t, err)
		return u
	}
	tests := []struct {
		name string
		cert *x509.Certificate
		want string
	}{
		{"none", nil, "unknown"},
		{"spiffe before subject", &x509.Certificate{Subject: pkix.Name{CommonName: "cn"}, URIs: []*url.URL{uri("https://x/y"), uri("spiffe://site/nico")}}, "spiffe://site/nico"},
		{"subject", &x509.Certificate{Subject: pkix.Name{CommonName: "cn", Organization: []string{"org"}}}, "CN=cn,O=org"},
		{"control characters", &x509.Certificate{Subject: pkix.Name{CommonName: "a\nb\x00c"}}, "CN=abc"},
		{"digest", &x509.Certificate{Raw: []byte("abc")}, "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
	}
	for _, tt := range tests {
		require.Equal(t, tt.want, certs.PeerIdentity(tt.cert), tt.name)
	}
}

func TestInitCA(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tls")
	require.NoError(t, certs.InitCA(dir, []string{"rack7.example", "10.9.8.7"}))
	for _, name := range append(certs.Roles(), "ca") {
		info, err := os.Stat(filepath.Join(dir, name+".key"))
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
		info, err = os.Stat(filepath.Join(dir, name+".crt"))
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o644), info.Mode().Perm())
	}
	require.ErrorIs(t, certs.InitCA(dir, nil), certs.ErrExists)

	s := &site{dir: dir}
	addr := listen(t, mutual(t, load(t, s.files("server"))))
	for _, serverName := range []string{"localhost", "127.0.0.1", "rack7.example", "10.9.8.7"} {
		peer, _, err := dial(t, addr, client(t, load(t, s.files("compute-agent")), serverName))
		require.NoError(t, err, serverName)
		require.Equal(t, "spiffe://rackbus/compute-agent", peer)
	}
	own, err := load(t, s.files("server")).Certificate()
	require.NoError(t, err)
	require.Equal(t, x509.ECDSA, own.Leaf.PublicKeyAlgorithm)
}
