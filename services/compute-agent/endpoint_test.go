// SPDX-License-Identifier: Apache-2.0

package computeagent_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/certs"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/redfish"
	"github.com/rackbus/rackbus/pkg/redfishagent/agenttest"
)

// site are BMCs whose certificates the agent checks.
type site struct {
	t  *testing.T
	ca *certs.CA
}

func (s site) roots() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(s.ca.PEM())
	return pool
}

// serve starts a BMC with a certificate for a name.
func (s site) serve(ca *certs.CA, name string, auth tls.ClientAuthType) (port uint32) {
	s.t.Helper()
	cert, key, err := ca.Issue(certs.Leaf{Role: "server", Hosts: []string{name}})
	require.NoError(s.t, err)
	pair, err := tls.X509KeyPair(cert, key)
	require.NoError(s.t, err)
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: auth, ClientCAs: s.roots()}
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	server.StartTLS()
	s.t.Cleanup(server.Close)
	return portOf(s.t, server.Listener.Addr().String())
}

func portOf(t *testing.T, address string) uint32 {
	t.Helper()
	_, text, err := net.SplitHostPort(address)
	require.NoError(t, err)
	port, err := strconv.ParseUint(text, 10, 16)
	require.NoError(t, err)
	return uint32(port)
}

// TestD6BrokenEndpointsHaveTheirReasons: a name that does not resolve, a port where
// nobody listens, and certificates that are refused on either side, look alike to
// nobody who reads the error of the job.
func TestD6BrokenEndpointsHaveTheirReasons(t *testing.T) {
	b := newBench(t)
	own, err := certs.NewCA()
	require.NoError(t, err)
	other, err := certs.NewCA()
	require.NoError(t, err)
	s := site{t: t, ca: own}
	dialer := &net.Dialer{Resolver: &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.DNSError{Err: "no such host", IsNotFound: true}
	}}}
	b.Start(func(o *agenttest.AgentOptions) {
		o.Pool = redfish.NewPool(redfish.PoolOptions{TLS: redfish.TLSOptions{RootCAs: s.roots()}, Dial: dialer.DialContext})
	})
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	nobody := portOf(t, gone.Addr().String())
	require.NoError(t, gone.Close())
	target := b.pldm("nvfw_P4972_9.fwpkg", "99.01", "BMC")
	seen := map[string]bool{}
	for _, c := range []struct {
		address string
		port    uint32
		name    string
		code    job.FailureCode
		text    string
	}{
		{"bmc-7.example", nobody, "", job.FailureNameUnresolved, "bmc-7.example"},
		{"127.0.0.1", nobody, "", job.FailureBMCUnreachable, "connection refused"},
		{"127.0.0.1", s.serve(other, "127.0.0.1", tls.NoClientCert), "", job.FailureCertificateUntrusted, "unknown authority"},
		{"127.0.0.1", s.serve(own, "bmc-8.example", tls.NoClientCert), "bmc-9.example", job.FailureCertificateName, "bmc-8.example"},
		{"127.0.0.1", s.serve(own, "127.0.0.1", tls.RequireAndVerifyClientCert), "", job.FailureClientCertificateRefused, "certificate required"},
	} {
		b.node.GetBmc().Address, b.node.GetBmc().Port, b.node.GetBmc().HostName = c.address, c.port, c.name
		j := b.run(update(target))
		require.Equal(t, job.StateFailed, j.State)
		require.Equal(t, c.code, j.Failure.FailureCode, "%+v", j.Failure)
		require.Equal(t, job.CodeClientError, j.Failure.Code)
		require.Contains(t, j.Failure.Message, c.text)
		require.Nil(t, j.Failure.Device, "nobody has answered")
		info, known := j.Failure.FailureCode.Info()
		require.True(t, known)
		require.False(t, seen[info.Runbook()+info.Meaning], "each has advice of its own")
		seen[info.Runbook()+info.Meaning] = true
	}
}
