// SPDX-License-Identifier: Apache-2.0

package cause_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/cause"
	"github.com/rackbus/rackbus/pkg/certs"
	"github.com/rackbus/rackbus/pkg/job"
)

// broken are endpoints that cannot be used, each for a reason of its own.
type broken struct {
	t     *testing.T
	ca    *certs.CA
	other *certs.CA
}

func newBroken(t *testing.T) *broken {
	t.Helper()
	b := &broken{t: t}
	var err error
	b.ca, err = certs.NewCA()
	require.NoError(t, err)
	b.other, err = certs.NewCA()
	require.NoError(t, err)
	return b
}

func (b *broken) pair(ca *certs.CA, role, name string) tls.Certificate {
	b.t.Helper()
	cert, key, err := ca.Issue(certs.Leaf{Role: role, Hosts: []string{name}})
	require.NoError(b.t, err)
	pair, err := tls.X509KeyPair(cert, key)
	require.NoError(b.t, err)
	return pair
}

func (b *broken) roots() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(b.ca.PEM())
	return pool
}

// listen accepts connections until the test ends and gives them to serve.
func (b *broken) listen(serve func(net.Conn)) string {
	b.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b.t, err)
	done := make(chan struct{})
	b.t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serve(conn)
			_ = conn.Close()
		}
	}()
	return l.Addr().String()
}

// secure serves TLS.
func (b *broken) secure(config *tls.Config) string {
	return b.listen(func(conn net.Conn) {
		server := tls.Server(conn, config)
		if server.Handshake() == nil {
			_, _ = io.Copy(io.Discard, server)
		}
	})
}

// noSuchName answers that no name exists.
func (b *broken) noSuchName() *net.Resolver {
	b.t.Helper()
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(b.t, err)
	done := make(chan struct{})
	b.t.Cleanup(func() {
		_ = pc.Close()
		<-done
	})
	go func() {
		defer close(done)
		buf := make([]byte, 1500)
		for {
			n, from, err := pc.ReadFrom(buf)
			if err != nil {
				return
			}
			buf[2], buf[3] = 0x81, 0x83 // RFC 1035 4.1.1: a response, NXDOMAIN
			_, _ = pc.WriteTo(buf[:n], from)
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", pc.LocalAddr().String())
	}}
}

// use connects, does the handshake and waits for the first byte, as a client does.
func (b *broken) use(d *net.Dialer, address string, config *tls.Config) error {
	ctx, cancel := context.WithTimeout(b.t.Context(), 5*time.Second)
	defer cancel()
	raw, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer raw.Close()
	conn := tls.Client(raw, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		return fmt.Errorf("handshake: %w", err)
	}
	_, err = conn.Read(make([]byte, 1))
	return err
}

func TestEachBrokenEndpointHasItsReason(t *testing.T) {
	t.Parallel()
	b := newBroken(t)
	server := &tls.Config{Certificates: []tls.Certificate{b.pair(b.ca, "server", "127.0.0.1")}}
	strict := func(version uint16) *tls.Config {
		c := server.Clone()
		c.ClientAuth, c.ClientCAs, c.MinVersion, c.MaxVersion = tls.RequireAndVerifyClientCert, b.roots(), version, version
		return c
	}
	closed := b.listen(func(net.Conn) {})
	_, port, err := net.SplitHostPort(closed)
	require.NoError(t, err)
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, gone.Close())
	client := &tls.Config{RootCAs: b.roots(), ServerName: "127.0.0.1"}
	stranger := client.Clone()
	stranger.Certificates = []tls.Certificate{b.pair(b.other, "client", "x")}
	named := client.Clone()
	named.ServerName = "bmc-7.example"
	hasty := &net.Dialer{Deadline: time.Now().Add(-time.Second)}

	for name, c := range map[string]struct {
		dialer  *net.Dialer
		address string
		config  *tls.Config
		reason  cause.Reason
		code    job.FailureCode
	}{
		"name":                {&net.Dialer{Resolver: b.noSuchName()}, "bmc-7.example:" + port, client, cause.NameUnresolved, job.FailureNameUnresolved},
		"nobody listens":      {nil, gone.Addr().String(), client, cause.Refused, job.FailureBMCUnreachable},
		"too late":            {hasty, closed, client, cause.Timeout, job.FailureDeviceTimeout},
		"other CA":            {nil, b.secure(&tls.Config{Certificates: []tls.Certificate{b.pair(b.other, "server", "127.0.0.1")}}), client, cause.Untrusted, job.FailureCertificateUntrusted},
		"other name":          {nil, b.secure(server), named, cause.NameMismatch, job.FailureCertificateName},
		"no certificate":      {nil, b.secure(strict(tls.VersionTLS13)), client, cause.ClientRefused, job.FailureClientCertificateRefused},
		"a stranger, TLS 1.2": {nil, b.secure(strict(tls.VersionTLS12)), stranger, cause.ClientRefused, job.FailureClientCertificateRefused},
		"a stranger":          {nil, b.secure(strict(tls.VersionTLS13)), stranger, cause.ClientRefused, job.FailureClientCertificateRefused},
		"no TLS":              {nil, b.listen(func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n") }), client, cause.TLS, job.FailureTLSFailed},
		"versions":            {nil, b.secure(&tls.Config{Certificates: server.Certificates, MaxVersion: tls.VersionTLS11}), client, cause.TLS, job.FailureTLSFailed},
	} {
		if c.dialer == nil {
			c.dialer = &net.Dialer{}
		}
		err := b.use(c.dialer, c.address, c.config)
		require.Error(t, err, name)
		require.Equal(t, c.reason, cause.ReasonOf(err), "%s: %v", name, err)
		require.Equal(t, c.code, cause.ReasonOf(err).Code(job.FailureBMCUnreachable, job.FailureInternal), name)
	}
	unreachable := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.EHOSTUNREACH}
	require.Equal(t, cause.Unreachable, cause.ReasonOf(unreachable))
	require.Equal(t, cause.Timeout, cause.ReasonOf(fmt.Errorf("read: %w", context.DeadlineExceeded)))
	for _, other := range []error{nil, errors.New("the firmware is bad"), io.EOF, strconv.ErrSyntax} {
		require.Empty(t, cause.ReasonOf(other))
		require.Equal(t, job.FailureInternal, cause.ReasonOf(other).Code(job.FailureBMCUnreachable, job.FailureInternal))
	}
}
