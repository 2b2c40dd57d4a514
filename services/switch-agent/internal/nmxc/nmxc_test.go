// SPDX-License-Identifier: Apache-2.0

package nmxc_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"

	"github.com/rackbus/rackbus/pkg/certs"
	"github.com/rackbus/rackbus/pkg/secret"
	"github.com/rackbus/rackbus/pkg/switchtls"
	"github.com/rackbus/rackbus/services/switch-agent/internal/channel"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nmxc"
	"github.com/rackbus/rackbus/sim/nvswitch"
	"github.com/rackbus/rackbus/sim/reqlog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// site issues certificates to switches and to us.
type site struct {
	t                *testing.T
	switches, people *certs.CA
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t}
	var err error
	s.switches, err = certs.NewCA()
	require.NoError(t, err)
	s.people, err = certs.NewCA()
	require.NoError(t, err)
	return s
}

// provision gives a switch an identity and the CA of its clients.
func (s *site) provision(sw *nvswitch.Switch, services ...string) {
	s.t.Helper()
	cert, key, err := s.switches.Issue(certs.Leaf{Role: "switch", Hosts: []string{"127.0.0.1"}})
	require.NoError(s.t, err)
	require.NoError(s.t, sw.Provision("lab", nvswitch.Material{CA: s.people.PEM(), Certificate: cert, Key: key}, services...))
}

// material is our identity, issued by ca.
func (s *site) material(ca *certs.CA, role string) *switchtls.Material {
	s.t.Helper()
	cert, key, err := ca.Issue(certs.Leaf{Role: role})
	require.NoError(s.t, err)
	m, err := switchtls.Parse("lab", s.switches.PEM(), cert, secret.FromBytes(key))
	require.NoError(s.t, err)
	return m
}

// startSwitch returns a switch whose controller can be connected to.
func startSwitch(t *testing.T, o nvswitch.Options) *nvswitch.Switch {
	t.Helper()
	sw, err := nvswitch.Start(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sw.Close()) })
	sw.SetApp("nmx-controller", true, "enabled")
	sw.SetConfig("/cluster", map[string]any{"state": "enabled"})
	return sw
}

func options(sw *nvswitch.Switch) nmxc.Options {
	return nmxc.Options{Address: sw.Addr("nmxc"), Guard: free{}, Timing: nmxc.Timing{Connect: 10 * time.Second, Call: 10 * time.Second, Probe: 5 * time.Second}}
}

type free struct{}

func (free) Check() error { return nil }

func (free) Context(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithCancel(ctx)
}

func open(t *testing.T, o nmxc.Options) *nmxc.Client {
	t.Helper()
	c, err := nmxc.Open(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func TestPlaintext(t *testing.T) {
	for _, outside := range []bool{false, true} {
		sw := startSwitch(t, nvswitch.Options{Knobs: nvswitch.Knobs{NMXC: nvswitch.NMXCKnobs{ValuesOutside: outside, HelloFirst: true, GatewayID: nmxc.DefaultGateway}}})
		c := open(t, options(sw))
		require.NotEmpty(t, c.Identity().Version)

		_, found, err := c.Value(t.Context(), nmxc.FileFabric, nmxc.KeyTopology)
		require.NoError(t, err)
		require.False(t, found)
		require.NoError(t, c.Set(t.Context(), nmxc.FileFabric, nmxc.KeyTopology, "gb200_nvl36r1_c2g4_topology"))
		value, found, err := c.Value(t.Context(), nmxc.FileFabric, nmxc.KeyTopology)
		require.NoError(t, err)
		require.True(t, found)
		require.Equal(t, "gb200_nvl36r1_c2g4_topology", value)

		config, err := c.Files(t.Context(), nmxc.FileFabric, nmxc.FileSubnet)
		require.NoError(t, err)
		require.Equal(t, []nmxc.Entry{
			{File: "fm_config", Key: "FABRIC_MODE", Value: "1"}, {File: "fm_config", Key: "LOG_LEVEL", Value: "4"},
			{File: "fm_config", Key: "MNNVL_TOPOLOGY", Value: "gb200_nvl36r1_c2g4_topology"},
			{File: "sm_config", Key: "log_flags", Value: "0x03"}, {File: "sm_config", Key: "sweep_interval", Value: "10"},
		}, config.Entries())
	}
}

func TestMutualTLS(t *testing.T) {
	s := newSite(t)
	sw := startSwitch(t, nvswitch.Options{})
	s.provision(sw, "nmxc")
	for name, c := range map[string]struct {
		security channel.Security
		kind     error
	}{
		"ours":                  {channel.Security{Material: s.material(s.people, "rms"), ServerName: "127.0.0.1"}, nil},
		"for another name":      {channel.Security{Material: s.material(s.people, "rms"), ServerName: "switch.example"}, channel.ErrCertificate},
		"certificate of others": {channel.Security{Material: s.material(s.switches, "rms"), ServerName: "127.0.0.1"}, channel.ErrTLS},
		"plaintext":             {channel.Security{}, channel.ErrProtocol},
	} {
		t.Run(name, func(t *testing.T) {
			o := options(sw)
			o.Security = c.security
			client, err := nmxc.Open(t.Context(), o)
			if c.kind == nil {
				require.NoError(t, err)
				client.Close()
				return
			}
			require.ErrorIs(t, err, c.kind)
			require.ErrorAs(t, err, new(*channel.Error))
			require.Contains(t, err.Error(), sw.Addr("nmxc"))
		})
	}
}

func TestVerdictsOfTheController(t *testing.T) {
	for name, c := range map[string]struct {
		knobs nvswitch.NMXCKnobs
		check func(t *testing.T, err error)
	}{
		"return code": {nvswitch.NMXCKnobs{HelloCode: 8}, func(t *testing.T, err error) {
			require.ErrorIs(t, err, nmxc.ReturnInUse)
			require.ErrorContains(t, err, "NMX_ST_IN_USE (8)")
			require.False(t, nmxc.Unavailable(err))
		}},
		"code without a name": {nvswitch.NMXCKnobs{HelloCode: 99}, func(t *testing.T, err error) {
			require.ErrorIs(t, err, nmxc.ReturnCode(99))
			require.ErrorContains(t, err, "code 99")
		}},
		"no header": {nvswitch.NMXCKnobs{NoHeader: true}, func(t *testing.T, err error) {
			require.ErrorContains(t, err, "no header")
		}},
		"gateway of others": {nvswitch.NMXCKnobs{GatewayID: "somebody"}, func(t *testing.T, err error) {
			require.ErrorIs(t, err, nmxc.ReturnBadParam)
		}},
		"unavailable": {nvswitch.NMXCKnobs{HelloUnavailable: 1}, func(t *testing.T, err error) {
			require.True(t, nmxc.Unavailable(err))
			var e *nmxc.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, codes.Unavailable, e.Code)
			require.NotErrorAs(t, err, new(*channel.Error), "it was connected")
		}},
		"slow": {nvswitch.NMXCKnobs{Delay: nvswitch.Duration(time.Minute)}, func(t *testing.T, err error) {
			var e *nmxc.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, codes.DeadlineExceeded, e.Code)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			sw := startSwitch(t, nvswitch.Options{Knobs: nvswitch.Knobs{NMXC: c.knobs}})
			o := options(sw)
			if c.knobs.Delay > 0 {
				o.Timing.Call = time.Second
			}
			_, err := nmxc.Open(t.Context(), o)
			require.Error(t, err)
			c.check(t, err)
			awaitCall(t, sw, "**/Hello")
		})
	}
}

// awaitCall waits until the switch has noticed the end of a call.
func awaitCall(t *testing.T, sw *nvswitch.Switch, path string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err := sw.Log().Wait(ctx, reqlog.Filter{Path: path}, 1)
	require.NoError(t, err)
}

func TestLimitsOfTheConnection(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer silent.Close()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, closed.Close())

	o := nmxc.Options{Address: silent.Addr().String(), Timing: nmxc.Timing{Connect: 200 * time.Millisecond, Probe: 200 * time.Millisecond}}
	start := time.Now()
	_, err = nmxc.Open(t.Context(), o)
	require.ErrorIs(t, err, channel.ErrTimeout)
	require.Less(t, time.Since(start), 5*time.Second)
	s := newSite(t)
	o.Security = channel.Security{Material: s.material(s.people, "rms"), ServerName: "127.0.0.1"}
	_, err = nmxc.Open(t.Context(), o)
	require.ErrorIs(t, err, channel.ErrTimeout, "the limit covers TLS too")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = nmxc.Open(ctx, o)
	require.ErrorIs(t, err, context.Canceled)

	up, err := nmxc.Answers(t.Context(), o)
	require.NoError(t, err)
	require.False(t, up, "a port that says nothing does not serve")
	o.Address = closed.Addr().String()
	_, err = nmxc.Open(t.Context(), o)
	require.ErrorIs(t, err, channel.ErrUnreachable)
	up, err = nmxc.Answers(t.Context(), o)
	require.NoError(t, err)
	require.False(t, up)
	_, err = nmxc.Answers(ctx, o)
	require.ErrorIs(t, err, context.Canceled)

	up, err = nmxc.Answers(t.Context(), options(startSwitch(t, nvswitch.Options{})))
	require.NoError(t, err)
	require.True(t, up)
}

// TestAConnectionIsNeverReplaced: the controller has to be greeted first on each.
func TestAConnectionIsNeverReplaced(t *testing.T) {
	sw := startSwitch(t, nvswitch.Options{})
	c := open(t, options(sw))
	sw.CutConnections("nmxc")
	var err error
	require.Eventually(t, func() bool {
		_, _, err = c.Value(t.Context(), nmxc.FileFabric, nmxc.KeyTopology)
		return err != nil
	}, 20*time.Second, 10*time.Millisecond)
	for range 3 {
		_, _, err = c.Value(t.Context(), nmxc.FileFabric, nmxc.KeyTopology)
		require.Error(t, err)
	}
	require.Len(t, sw.Requests(reqlog.Filter{Path: "**/Hello"}), 1)
}

// losing is a guard whose hold can be lost.
type losing struct {
	err  error
	held context.Context
}

func (g *losing) Check() error { return g.err }

func (g *losing) Context(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(g.held, func() { cancel(errLost) })
	return ctx, func() { stop(); cancel(nil) }
}

var errLost = errors.New("session lost")

func TestGuard(t *testing.T) {
	sw := startSwitch(t, nvswitch.Options{})
	o := options(sw)
	held, lose := context.WithCancel(t.Context())
	guard := &losing{held: held}
	o.Guard = guard
	c := open(t, o)

	guard.err = errLost
	err := c.Set(t.Context(), "fm_config", "A", "1")
	require.ErrorIs(t, err, nmxc.ErrNotHeld)
	require.ErrorIs(t, err, errLost)
	require.Empty(t, sw.Requests(reqlog.Filter{Path: "**/SetStaticConfig"}), "nothing was sent")
	_, _, err = c.Value(t.Context(), "fm_config", "LOG_LEVEL")
	require.NoError(t, err, "reads need no hold")

	guard.err = nil
	sw.UpdateKnobs(func(k *nvswitch.Knobs) { k.NMXC.Delay = nvswitch.Duration(time.Minute) })
	done := make(chan error, 1)
	go func() { done <- c.Set(t.Context(), "fm_config", "A", "1") }()
	wait, stop := context.WithTimeout(t.Context(), 20*time.Second)
	defer stop()
	_, err = sw.Log().WaitInFlight(wait, reqlog.Filter{Path: "**/SetStaticConfig"})
	require.NoError(t, err)
	lose()
	require.ErrorIs(t, <-done, nmxc.ErrNotHeld, "the hold ends what is under way")
	awaitCall(t, sw, "**/SetStaticConfig")

	o.Guard = nil
	sw.UpdateKnobs(func(k *nvswitch.Knobs) { k.NMXC.Delay = 0 })
	require.ErrorIs(t, open(t, o).Set(t.Context(), "fm_config", "A", "1"), nmxc.ErrNotHeld, "without a guard it only reads")
}

func TestFailedWrites(t *testing.T) {
	sw := startSwitch(t, nvswitch.Options{Knobs: nvswitch.Knobs{NMXC: nvswitch.NMXCKnobs{SetCode: 3, GetCode: 9}}})
	c := open(t, options(sw))
	err := c.Set(t.Context(), "fm_config", "A", "1")
	require.ErrorIs(t, err, nmxc.ReturnGenericError)
	_, found, err := c.Value(t.Context(), "fm_config", "A")
	require.NoError(t, err, "an entry that is not configured is none")
	require.False(t, found)
	_, err = c.Files(t.Context(), "fm_config")
	require.ErrorIs(t, err, nmxc.ReturnNotConfigured)
}

// TestNotGRPC: whatever else listens there is told from a controller.
func TestNotGRPC(t *testing.T) {
	s := newSite(t)
	cert, key, err := s.switches.Issue(certs.Leaf{Role: "x", Hosts: []string{"127.0.0.1"}})
	require.NoError(t, err)
	pair, err := tls.X509KeyPair(cert, key)
	require.NoError(t, err)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2"}})
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, "220 mail.example ready\r\n")
			_ = conn.Close()
		}
	}()
	defer func() { _ = listener.Close(); <-done }()
	_, err = nmxc.Open(t.Context(), nmxc.Options{
		Address: listener.Addr().String(), Timing: nmxc.Timing{Connect: 10 * time.Second},
		Security: channel.Security{Material: s.material(s.people, "rms"), ServerName: "127.0.0.1"},
	})
	require.ErrorIs(t, err, channel.ErrProtocol)
}
