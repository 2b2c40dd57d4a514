// SPDX-License-Identifier: Apache-2.0

package nvswitch_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"testing"
	"time"

	"github.com/openconfig/gnmi/proto/gnmi"
	"github.com/pkg/sftp"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/rackbus/rackbus/sim/nvswitch"
)

func farAway() time.Time { return time.Now().AddDate(1, 0, 0) }

// stage uploads material and imports it.
func stage(t *testing.T, s *nvswitch.Switch, c *client, m nvswitch.Material) {
	t.Helper()
	shell := dial(t, s, "admin", "racksim-pw")
	must(t, shell, "install -d -m 751 '/home/admin/certs/run'")
	put(t, shell, "/home/admin/certs/run/ca.pem", m.CA)
	put(t, shell, "/home/admin/certs/run/client.pem", m.Certificate)
	put(t, shell, "/home/admin/certs/run/client.key", m.Key)
	must(t, shell, "chmod 400 '/home/admin/certs/run/client.key'")
	mode, err := s.FileMode("/home/admin/certs/run/client.key")
	require.NoError(t, err)
	require.EqualValues(t, 0o400, mode)
	const dir = "file:///home/admin/certs/run/"
	require.Equal(t, "action_success", c.perform("/system/security/ca-certificate/ca1", "@import", obj{"uri": dir + "ca.pem"}))
	require.Equal(t, "action_success", c.perform("/system/security/certificate/cert1", "@import",
		obj{"uri-public-key": dir + "client.pem", "uri-private-key": dir + "client.key"}))
}

func put(t *testing.T, shell *ssh.Client, path string, raw []byte) {
	t.Helper()
	files, err := sftp.NewClient(shell)
	require.NoError(t, err)
	defer files.Close()
	f, err := files.Create(path)
	require.NoError(t, err)
	_, err = f.ReadFrom(bytes.NewReader(raw))
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

func TestNVUEDemandsClientCertificates(t *testing.T) {
	s := start(t, nvswitch.Options{})
	c := newClient(t, s)
	ca := newPKI(t, farAway())
	require.Equal(t, "action_error", c.perform("/system/security/ca-certificate/ca1", "@import", obj{"uri": "file:///nowhere"}))
	stage(t, s, c, ca.material)
	require.Equal(t, "invalid", c.change(map[string]obj{"/system/api": {"certificate": "other"}}))

	id := c.revision(map[string]obj{"/system/api": {"certificate": "cert1"}, "/system/api/mtls": {"ca-certificate": "ca1"}})
	require.Equal(t, http.StatusOK, c.startApply(id).status)
	require.Eventually(t, func() bool { return c.status() == 0 }, patience, s.Timing().Apply)
	strict := newClient(t, s, ca.client)
	strict.http.Transport.(*http.Transport).TLSClientConfig = &tls.Config{
		RootCAs: ca.pool, ServerName: "switch.test", Certificates: []tls.Certificate{ca.client},
	}
	strict.awaitStatus(http.StatusOK)
	require.Equal(t, "applied", strict.settle(id).get(id, "state"))
	shown := strict.get("/system/security/certificate/cert1")
	require.Equal(t, []any{"nvue-rest-api"}, shown.get("installed"))
	until, err := time.Parse(time.RFC3339, shown.get("valid-to").(string))
	require.NoError(t, err)
	require.Greater(t, time.Until(until), time.Hour)

	shell := dial(t, s, "admin", "racksim-pw")
	must(t, shell, "nv unset system api mtls ca-certificate")
	require.Equal(t, 0, c.status())
	must(t, shell, "nv config apply --assume-yes")
	c.awaitStatus(http.StatusOK)
	require.Equal(t, "disabled", s.SavedConfig("/cluster/state"))
	require.Contains(t, must(t, shell, "nv config apply --assume-yes"), "no config diff")
	must(t, shell, "nv config save")
	require.Empty(t, s.SavedConfig("/system/api/mtls/ca-certificate"))
	require.Equal(t, "cert1", s.SavedConfig("/system/api/certificate"))
}

func TestProvision(t *testing.T) {
	s := start(t, nvswitch.Options{})
	ca := newPKI(t, farAway())
	require.NoError(t, s.Provision("id", ca.material, "nvue"))
	require.Equal(t, 0, newClient(t, s).status())
	require.Equal(t, http.StatusOK, newClient(t, s, ca.client).status())
	stranger := newPKI(t, farAway())
	require.Equal(t, 0, newClient(t, s, stranger.client).status())
	s.Reboot()
	awaitReboot(t, s, 1)
	require.Equal(t, http.StatusOK, newClient(t, s, ca.client).status())
}

func TestSelfSignedIsNotTrusted(t *testing.T) {
	s := start(t, nvswitch.Options{})
	_, err := tls.Dial("tcp", s.Addr("nvue"), &tls.Config{RootCAs: newPKI(t, farAway()).pool, ServerName: "localhost"})
	require.ErrorAs(t, err, new(x509.UnknownAuthorityError))
	pool := x509.NewCertPool()
	pool.AddCert(s.SelfSigned())
	c, err := tls.Dial("tcp", s.Addr("nvue"), &tls.Config{RootCAs: pool, ServerName: "localhost"})
	require.NoError(t, err)
	require.NoError(t, c.Close())
}

func TestGNMI(t *testing.T) {
	s := start(t, nvswitch.Options{})
	ca := newPKI(t, farAway())
	require.NoError(t, s.Provision("id", ca.material, "gnmi"))
	connect := func(config *tls.Config) gnmi.GNMIClient {
		c, err := grpc.NewClient("passthrough:///"+s.Addr("gnmi"), grpc.WithTransportCredentials(credentials.NewTLS(config)))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, c.Close()) })
		return gnmi.NewGNMIClient(c)
	}
	good := &tls.Config{RootCAs: ca.pool, ServerName: "switch.test", Certificates: []tls.Certificate{ca.client}}
	ask := func(c gnmi.GNMIClient, password string) error {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		ctx = metadata.AppendToOutgoingContext(ctx, "username", "admin", "password", password)
		_, err := c.Capabilities(ctx, &gnmi.CapabilityRequest{})
		return err
	}
	require.Equal(t, codes.Unavailable, status.Code(ask(connect(good), "racksim-pw"))) // the server is off
	s.SetConfig("/system/gnmi-server", obj{"state": "enabled"})
	require.NoError(t, ask(connect(good), "racksim-pw"))
	require.Equal(t, codes.Unauthenticated, status.Code(ask(connect(good), "wrong")))
	require.Equal(t, codes.Unavailable, status.Code(ask(connect(&tls.Config{RootCAs: ca.pool, ServerName: "switch.test"}), "racksim-pw")))
	s.SetKnobs(nvswitch.Knobs{GNMIUnavailable: 1})
	c := connect(good)
	require.Equal(t, codes.Unavailable, status.Code(ask(c, "racksim-pw")))
	require.NoError(t, ask(c, "racksim-pw"))

	shell := dial(t, s, "admin", "racksim-pw")
	s.SetKnobs(nvswitch.Knobs{GNMIUnset: nvswitch.GNMIUnsetAbsent})
	_, complaint, err := run(t, shell, "nv unset system gnmi-server mtls certificate")
	require.Error(t, err)
	require.Contains(t, complaint, "'mtls' is not one of")
	s.SetKnobs(nvswitch.Knobs{GNMIUnset: nvswitch.GNMIUnsetCAOnly})
	_, _, err = run(t, shell, "nv unset system gnmi-server mtls certificate")
	require.Error(t, err)
	must(t, shell, "nv unset system gnmi-server mtls ca-certificate")
	must(t, shell, "nv config apply --assume-yes")
	require.NoError(t, ask(connect(&tls.Config{RootCAs: ca.pool, ServerName: "switch.test"}), "racksim-pw"))
}
