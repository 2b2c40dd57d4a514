// SPDX-License-Identifier: Apache-2.0

package nvue

import (
	"bytes"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/secret"
	"github.com/rackbus/rackbus/pkg/switchtls"
)

// site is a domain with material, a switch, and a client without connections.
type site struct {
	authority
	f     *fakeSwitch
	c     *Client
	root  string
	store *switchtls.Store
	log   *bytes.Buffer
}

func newSite(t *testing.T, change ...func(*switchtls.Settings)) *site {
	t.Helper()
	s := &site{authority: newAuthority(t), root: t.TempDir(), log: &bytes.Buffer{}}
	s.domain(s.root, "lab", "first")
	listener := loopback(t)
	s.f = newFakeSwitch(t, listener, s.server(&s.authority, "127.0.0.1"))
	s.f.on("GET /nvue_v1/system", reply{body: `{"hostname":"sw1"}`})
	s.c = newClient(t, endpointOf(listener), Options{Guard: Unguarded{}, Logger: slog.New(slog.NewTextHandler(s.log, nil))})
	settings := switchtls.Settings{ClientRoot: s.root, DefaultDomain: "lab"}
	for _, f := range change {
		f(&settings)
	}
	s.store = switchtls.NewStore(settings)
	return s
}

func TestInitialize(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	ctx := t.Context()
	require.NoError(t, s.c.Initialize(ctx, s.store, ""))
	first, verified := s.c.Verified()
	require.True(t, verified)
	require.Len(t, s.f.requests(), 1, "the connection was proved")
	require.Equal(t, "first", s.f.requests()[0].client, "with our certificate")

	require.NoError(t, s.c.Initialize(ctx, s.store, ""))
	require.Len(t, s.f.requests(), 1, "what is in force is not proved again")

	require.NoError(t, s.c.Hello(ctx))
	require.NoError(t, s.c.Hello(ctx))
	require.Equal(t, 1, s.f.connections(), "reads of a verified connection share it")

	s.domain(s.root, "lab", "second")
	require.NoError(t, s.c.Initialize(ctx, s.store, ""))
	require.NoError(t, s.c.Hello(ctx))
	second, _ := s.c.Verified()
	require.NotEqual(t, first, second)
	require.Equal(t, "second", s.f.requests()[4].client, "rotated material is taken over without a restart")
}

func TestInitializeFaults(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		change func(*switchtls.Settings)
		domain string
		spoil  func(*site)
		is     []error
	}{
		{name: "no root", change: func(s *switchtls.Settings) { s.ClientRoot = "" }, is: []error{ErrFailedPrecondition, switchtls.ErrNoRoot}},
		{name: "no domain", change: func(s *switchtls.Settings) { s.DefaultDomain = "" }, is: []error{ErrFailedPrecondition, switchtls.ErrNoDomain}},
		{name: "unknown domain", domain: "other", is: []error{ErrFailedPrecondition, switchtls.ErrMissingFile}},
		{name: "another name", change: func(s *switchtls.Settings) { s.DNSDomain = "sw9.example" }, is: []error{ErrFailedPrecondition, ErrServerCertificate}},
		{name: "our certificate is refused", spoil: func(s *site) {
			other := newAuthority(s.t)
			s.f.present(s.server(&other, "127.0.0.1"))
		}, is: []error{ErrTLS}},
		{name: "not ready", spoil: func(s *site) { s.f.on("GET /nvue_v1/system", reply{status: 503}) }, is: []error{ErrUnavailable}},
		{name: "credentials", spoil: func(s *site) { s.f.on("GET /nvue_v1/system", reply{status: 401}) }, is: []error{ErrUnauthenticated}},
		{name: "no json", spoil: func(s *site) { s.f.on("GET /nvue_v1/system", reply{body: "hello"}) }, is: []error{ErrBadResponse}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var changes []func(*switchtls.Settings)
			if tt.change != nil {
				changes = append(changes, tt.change)
			}
			s := newSite(t, changes...)
			if tt.spoil != nil {
				tt.spoil(s)
			}
			err := s.c.Initialize(t.Context(), s.store, tt.domain)
			for _, is := range tt.is {
				require.ErrorIs(t, err, is)
			}
			require.ErrorIs(t, s.c.Hello(t.Context()), ErrFailedPrecondition, "no connection was taken")
		})
	}
}

// A failure keeps a verified connection, but only when nobody named a domain.
func TestInitializeKeepsWhatServes(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	ctx := t.Context()
	require.NoError(t, s.c.Initialize(ctx, s.store, ""))
	before, _ := s.c.Verified()
	other := newAuthority(t)
	other.domain(s.root, "lab", "stranger")
	require.NoError(t, s.c.Initialize(ctx, s.store, ""))
	after, verified := s.c.Verified()
	require.True(t, verified)
	require.Equal(t, before, after)
	require.Contains(t, s.log.String(), "switch connection kept")
	require.NoError(t, s.c.Hello(ctx))
	require.ErrorIs(t, s.c.Initialize(ctx, s.store, "lab"), ErrServerCertificate)
	require.NoError(t, s.c.Hello(ctx))

	require.NoError(t, os.Remove(filepath.Join(s.root, "lab", switchtls.FileKey)))
	require.NoError(t, s.c.Initialize(ctx, s.store, ""))
	require.ErrorIs(t, s.c.Initialize(ctx, s.store, "lab"), switchtls.ErrMissingFile)
}

func TestInsecure(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(s *switchtls.Settings) { s.Insecure, s.ClientRoot = true, "" })
	s.f.present(newAuthority(t).server(nil, "whoever"))
	require.NoError(t, s.c.Initialize(t.Context(), s.store, "whatever"))
	require.Empty(t, s.f.requests(), "the choice needs no traffic")
	require.NoError(t, s.c.Initialize(t.Context(), s.store, ""))
	_, verified := s.c.Verified()
	require.False(t, verified)
	require.NoError(t, s.c.Hello(t.Context()))
	require.Empty(t, s.f.requests()[0].client)
}

func TestStaleCandidate(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	m := s.material("first")
	secured := Security{Material: m, ServerName: "127.0.0.1"}
	stale, err := s.c.Candidate(Unverified("x"))
	require.NoError(t, err)
	same, err := s.c.Candidate(secured)
	require.NoError(t, err)
	require.Equal(t, m.Fingerprint(), same.Fingerprint())
	require.NoError(t, s.c.Prepare(t.Context(), secured))
	require.ErrorIs(t, s.c.Activate(stale), ErrFailedPrecondition)
	require.NoError(t, s.c.Activate(same), "the same protection is in force")
	other := newClient(t, s.c.Endpoint(), Options{})
	require.ErrorIs(t, other.Activate(same), ErrInvalidArgument)
	_, err = s.c.Candidate(Security{Material: m})
	require.ErrorIs(t, err, ErrFailedPrecondition, "a verified connection needs a name")
}

// A swap while requests run: each ends on the connections it began with.
func TestSwapUnderLoad(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	require.NoError(t, s.c.Initialize(t.Context(), s.store, ""))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 20 {
				if err := s.c.Hello(t.Context()); err != nil {
					t.Errorf("hello: %v", err)
				}
			}
		})
	}
	for _, role := range []string{"second", "third", "fourth"} {
		s.domain(s.root, "lab", role)
		require.NoError(t, s.c.Initialize(t.Context(), s.store, ""))
	}
	wg.Wait()
	require.Equal(t, 80+4, s.f.count("GET /nvue_v1/system"))
}

// J7: TLS is not set up on the switch yet.
func TestJ7CertificateNotInstalledYet(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.f.present(newAuthority(t).server(nil, "factory")) // self-made, demands nothing
	err := s.c.Initialize(t.Context(), s.store, "")
	require.ErrorIs(t, err, ErrFailedPrecondition)
	require.Contains(t, err.Error(), `no certificate of domain "lab"`)
	require.Empty(t, s.f.requests(), "no credentials went to somebody unverified")

	weakened, err := s.c.Bootstrap(t.Context(), s.store, "")
	require.NoError(t, err)
	require.True(t, weakened)
	require.Contains(t, s.log.String(), "switch connection unverified")
	require.NoError(t, s.c.Hello(t.Context()))

	s.f.present(s.server(&s.authority, "127.0.0.1"))
	require.NoError(t, s.c.Initialize(t.Context(), s.store, "lab"))
	_, verified := s.c.Verified()
	require.True(t, verified)
}

func TestBootstrap(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		spoil    func(*site)
		before   bool // a verified connection is in force
		weakened bool
		is       error
	}{
		{name: "in force unverified, not ready", is: ErrUnavailable, spoil: func(s *site) {
			s.f.present(newAuthority(s.t).server(nil, "factory"))
			require.NoError(s.t, s.c.Prepare(s.t.Context(), Unverified("127.0.0.1")))
			s.f.on("GET /nvue_v1/system", reply{status: 503})
		}},
		{name: "configured"},
		{name: "in force", before: true},
		{name: "in force, rotated on the switch", before: true, is: ErrTLS, spoil: func(s *site) {
			other := newAuthority(s.t)
			s.f.present(s.server(&other, "127.0.0.1"))
			s.c.Close()
		}},
		{name: "in force, reset", before: true, weakened: true, spoil: func(s *site) {
			s.f.present(newAuthority(s.t).server(nil, "factory"))
			s.c.Close()
		}},
		{name: "refuses our certificate", is: ErrTLS, spoil: func(s *site) {
			other := newAuthority(s.t)
			s.f.present(s.server(&other, "127.0.0.1"))
		}},
		{name: "credentials", is: ErrUnauthenticated, spoil: func(s *site) { s.f.on("GET /nvue_v1/system", reply{status: 401}) }},
		{name: "not there", is: ErrUnreachable, spoil: func(s *site) { _ = s.f.server.Close() }},
		{name: "self-made and not ready", is: ErrUnavailable, spoil: func(s *site) {
			s.f.present(newAuthority(s.t).server(nil, "factory"))
			s.f.on("GET /nvue_v1/system", reply{status: 503})
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			if tt.before {
				require.NoError(t, s.c.Initialize(t.Context(), s.store, "lab"))
			}
			if tt.spoil != nil {
				tt.spoil(s)
			}
			weakened, err := s.c.Bootstrap(t.Context(), s.store, "lab")
			require.Equal(t, tt.weakened, weakened)
			if tt.is != nil {
				require.ErrorIs(t, err, tt.is)
				return
			}
			require.NoError(t, err)
			require.NoError(t, s.c.Hello(t.Context()))
		})
	}
}

// A switch that speaks no TLS is never spoken to in clear, with or without the
// explicit mode.
func TestNoPlainHTTP(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	plain := loopback(t)
	seen := make(chan struct{}, 8)
	server := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { seen <- struct{}{} })}
	go func() { _ = server.Serve(plain) }()
	t.Cleanup(func() { _ = server.Close() })
	c := newClient(t, endpointOf(plain), Options{Guard: Unguarded{}})
	_, err := c.Bootstrap(t.Context(), s.store, "lab")
	require.ErrorIs(t, err, ErrTLS)
	require.Empty(t, seen)
}

func TestViewsShareConnections(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	view, err := s.c.WithCredentials("admin", secret.New("other"))
	require.NoError(t, err)
	require.NoError(t, s.c.Initialize(t.Context(), s.store, ""))
	require.NoError(t, view.Hello(t.Context()))
	got := s.f.requests()
	require.NotEqual(t, got[0].header.Get("Authorization"), got[1].header.Get("Authorization"))
	require.Equal(t, "admin", view.Username())
}
