// SPDX-License-Identifier: Apache-2.0

package gnmi_test

import (
	"context"
	"crypto/tls"
	"net"
	"testing"
	"time"

	pb "github.com/openconfig/gnmi/proto/gnmi"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"

	"github.com/rackbus/rackbus/pkg/certs"
	"github.com/rackbus/rackbus/pkg/secret"
	"github.com/rackbus/rackbus/pkg/switchtls"
	"github.com/rackbus/rackbus/services/switch-agent/internal/channel"
	"github.com/rackbus/rackbus/services/switch-agent/internal/gnmi"
	"github.com/rackbus/rackbus/sim/nvswitch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestCapabilities(t *testing.T) {
	const planted = "pl4nted-pw"
	ours, err := certs.NewCA()
	require.NoError(t, err)
	others, err := certs.NewCA()
	require.NoError(t, err)
	sw, err := nvswitch.Start(t.Context(), nvswitch.Options{Password: planted})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sw.Close()) })
	cert, key, err := ours.Issue(certs.Leaf{Role: "switch", Hosts: []string{"127.0.0.1"}})
	require.NoError(t, err)
	require.NoError(t, sw.Provision("lab", nvswitch.Material{CA: ours.PEM(), Certificate: cert, Key: key}, "gnmi"))

	identity := func(ca *certs.CA, name string) *switchtls.Material {
		cert, key, err := ca.Issue(certs.Leaf{Role: name})
		require.NoError(t, err)
		m, err := switchtls.Parse("lab", ours.PEM(), cert, secret.FromBytes(key))
		require.NoError(t, err)
		return m
	}
	options := gnmi.Options{
		Address: sw.Addr("gnmi"), Material: identity(ours, "rms-client"), ServerName: "127.0.0.1",
		Username: "admin", Password: secret.New(planted), Timing: gnmi.Timing{Connect: 10 * time.Second, Call: 10 * time.Second},
	}

	t.Run("switched off", func(t *testing.T) {
		require.ErrorIs(t, gnmi.Capabilities(t.Context(), options), channel.ErrUnreachable)
	})
	sw.SetConfig("/system/gnmi-server", map[string]any{"state": "enabled"})
	require.NoError(t, gnmi.Capabilities(t.Context(), options))

	t.Run("J13 wrong password", func(t *testing.T) {
		o := options
		o.Password = secret.New("pl4nted-other")
		err := gnmi.Capabilities(t.Context(), o)
		var e *gnmi.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, codes.Unauthenticated, e.Code)
		require.True(t, e.Connected)
		require.ErrorContains(t, err, `user "admin"`)
		require.ErrorContains(t, err, `certificate of "rms-client"`)
		require.ErrorContains(t, err, "has to be the user")
		require.NotContains(t, err.Error(), "pl4nted")
	})
	t.Run("certificate of others", func(t *testing.T) {
		o := options
		o.Material = identity(others, "admin")
		err := gnmi.Capabilities(t.Context(), o)
		require.ErrorIs(t, err, channel.ErrTLS)
		require.ErrorContains(t, err, `certificate of "admin"`)
		require.NotContains(t, err.Error(), "has to be the user", "they are the same")
	})
	t.Run("another server name", func(t *testing.T) {
		o := options
		o.ServerName = "switch.example"
		err := gnmi.Capabilities(t.Context(), o)
		require.ErrorIs(t, err, channel.ErrCertificate)
		require.NotContains(t, err.Error(), "user", "that is the switch's identity, not ours")
	})
	t.Run("not up to it", func(t *testing.T) {
		sw.UpdateKnobs(func(k *nvswitch.Knobs) { k.GNMIUnavailable = 1 })
		var e *gnmi.Error
		require.ErrorAs(t, gnmi.Capabilities(t.Context(), options), &e)
		require.Equal(t, codes.Unavailable, e.Code)
	})
	t.Run("J12 after a restart", func(t *testing.T) {
		sw.Reboot()
		require.Eventually(t, func() bool { return sw.Reboots() == 1 && gnmi.Capabilities(t.Context(), options) == nil },
			30*time.Second, 10*time.Millisecond, "every call connects anew")
	})
	t.Run("no certificate", func(t *testing.T) {
		o := options
		o.Material = nil
		require.ErrorContains(t, gnmi.Capabilities(t.Context(), o), "no client certificate")
	})
}

// mute is an interface that takes calls and never answers them.
type mute struct{ pb.UnimplementedGNMIServer }

func (mute) Capabilities(ctx context.Context, _ *pb.CapabilityRequest) (*pb.CapabilityResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestJ10MuteInterfaceIsNotHealthy: a connection that came up is no promise of an answer.
func TestJ10MuteInterfaceIsNotHealthy(t *testing.T) {
	ca, err := certs.NewCA()
	require.NoError(t, err)
	cert, key, err := ca.Issue(certs.Leaf{Role: "both", Hosts: []string{"127.0.0.1"}})
	require.NoError(t, err)
	pair, err := tls.X509KeyPair(cert, key)
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer(grpc.Creds(credentials.NewServerTLSFromCert(&pair)))
	pb.RegisterGNMIServer(server, mute{})
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(listener) }()
	defer func() { server.Stop(); <-done }()
	m, err := switchtls.Parse("lab", ca.PEM(), cert, secret.FromBytes(key))
	require.NoError(t, err)
	var e *gnmi.Error
	require.ErrorAs(t, gnmi.Capabilities(t.Context(), gnmi.Options{
		Address: listener.Addr().String(), Material: m, ServerName: "127.0.0.1", Username: "admin", Password: secret.New("x"),
		Timing: gnmi.Timing{Connect: 10 * time.Second, Call: 500 * time.Millisecond},
	}), &e)
	require.True(t, e.Connected)
	require.Equal(t, codes.DeadlineExceeded, e.Code)
}
