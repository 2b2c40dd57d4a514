// SPDX-License-Identifier: Apache-2.0

package nvue

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/rackbus/rackbus/pkg/certs"
	"github.com/rackbus/rackbus/pkg/secret"
	"github.com/rackbus/rackbus/pkg/switchtls"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	testUser     = "admin"
	testPassword = `pl4nted "pass\word`
)

// reply is one scripted answer.
type reply struct {
	status   int
	body     string
	location string
	// cut closes the connection instead of answering.
	cut bool
	// hang answers only when the client is gone.
	hang bool
	// then runs before the answer is sent.
	then func()
}

// sent is one request the switch got.
type sent struct {
	line   string // "METHOD path?query"
	body   string
	header http.Header
	host   string
	sni    string
	client string // common name of the client certificate
}

// fakeSwitch answers by script over real TLS. The last reply to a request line
// is repeated; a line without a script gets 404.
type fakeSwitch struct {
	t      *testing.T
	server *http.Server

	mu      sync.Mutex
	replies map[string][]reply
	log     []sent
	config  *tls.Config
	conns   int
}

func newFakeSwitch(t *testing.T, listener net.Listener, config *tls.Config) *fakeSwitch {
	t.Helper()
	f := &fakeSwitch{t: t, replies: map[string][]reply{}, config: config}
	f.server = &http.Server{
		Handler: f, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		ConnState: func(_ net.Conn, s http.ConnState) {
			if s == http.StateNew {
				f.mu.Lock()
				f.conns++
				f.mu.Unlock()
			}
		},
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = f.server.Serve(tls.NewListener(listener, &tls.Config{
			GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
				f.mu.Lock()
				defer f.mu.Unlock()
				return f.config, nil
			},
		}))
	}()
	t.Cleanup(func() {
		_ = f.server.Close()
		<-done
	})
	return f
}

func (f *fakeSwitch) on(line string, replies ...reply) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.replies[line] = replies
}

// present changes what the switch shows in new handshakes.
func (f *fakeSwitch) present(config *tls.Config) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.config = config
}

func (f *fakeSwitch) requests() []sent {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]sent(nil), f.log...)
}

func (f *fakeSwitch) lines() []string {
	var out []string
	for _, s := range f.requests() {
		out = append(out, s.line)
	}
	return out
}

func (f *fakeSwitch) count(line string) int {
	n := 0
	for _, l := range f.lines() {
		if l == line {
			n++
		}
	}
	return n
}

func (f *fakeSwitch) connections() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.conns
}

func (f *fakeSwitch) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s := sent{line: r.Method + " " + r.RequestURI, body: string(body), header: r.Header, host: r.Host, sni: r.TLS.ServerName}
	if len(r.TLS.PeerCertificates) > 0 {
		s.client = r.TLS.PeerCertificates[0].Subject.CommonName
	}
	f.mu.Lock()
	f.log = append(f.log, s)
	queue := f.replies[s.line]
	next := reply{status: http.StatusNotFound, body: `{"title":"no such resource"}`}
	if len(queue) > 0 {
		next = queue[0]
		if len(queue) > 1 {
			f.replies[s.line] = queue[1:]
		}
	}
	f.mu.Unlock()
	if next.then != nil {
		next.then()
	}
	switch {
	case next.cut:
		panic(http.ErrAbortHandler)
	case next.hang:
		<-r.Context().Done()
		return
	}
	if next.location != "" {
		w.Header().Set("Location", next.location)
	}
	if next.status == 0 {
		next.status = http.StatusOK
	}
	w.WriteHeader(next.status)
	_, _ = io.WriteString(w, next.body)
}

// identity is a certificate authority and what it issues.
type authority struct {
	t  *testing.T
	ca *certs.CA
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	ca, err := certs.NewCA()
	require.NoError(t, err)
	return authority{t: t, ca: ca}
}

// server is what a switch presents; with admits it demands client certificates.
func (a authority) server(admits *authority, hosts ...string) *tls.Config {
	a.t.Helper()
	cert, key, err := a.ca.Issue(certs.Leaf{Role: "switch", Hosts: hosts})
	require.NoError(a.t, err)
	pair, err := tls.X509KeyPair(cert, key)
	require.NoError(a.t, err)
	config := &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"http/1.1"}}
	if admits != nil {
		config.ClientCAs = x509.NewCertPool()
		require.True(a.t, config.ClientCAs.AppendCertsFromPEM(admits.ca.PEM()))
		config.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return config
}

// domain writes client material of the authority below root.
func (a authority) domain(root, name, role string) {
	a.t.Helper()
	cert, key, err := a.ca.Issue(certs.Leaf{Role: role})
	require.NoError(a.t, err)
	dir := filepath.Join(root, name)
	require.NoError(a.t, os.MkdirAll(dir, 0o755))
	for file, content := range map[string][]byte{
		switchtls.FileCA: a.ca.PEM(), switchtls.FileCertificate: cert, switchtls.FileKey: key,
	} {
		require.NoError(a.t, os.WriteFile(filepath.Join(dir, file), content, 0o600))
	}
}

func (a authority) material(role string) *switchtls.Material {
	a.t.Helper()
	cert, key, err := a.ca.Issue(certs.Leaf{Role: role})
	require.NoError(a.t, err)
	m, err := switchtls.Parse("lab", a.ca.PEM(), cert, secret.FromBytes(key))
	require.NoError(a.t, err)
	return m
}

func loopback(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}

func endpointOf(listener net.Listener) Endpoint {
	return Endpoint{
		Address: "127.0.0.1", Port: uint16(listener.Addr().(*net.TCPAddr).Port),
		Username: testUser, Password: secret.New(testPassword),
	}
}

func newClient(t *testing.T, e Endpoint, o Options) *Client {
	t.Helper()
	c, err := New(e, o)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// bench is a switch on loopback and a client with unverified connections.
func bench(t *testing.T, o Options) (*fakeSwitch, *Client) {
	t.Helper()
	listener := loopback(t)
	f := newFakeSwitch(t, listener, newAuthority(t).server(nil, "127.0.0.1"))
	if o.Guard == nil {
		o.Guard = Unguarded{}
	}
	c := newClient(t, endpointOf(listener), o)
	open(t, c)
	return f, c
}

func open(t *testing.T, c *Client) {
	t.Helper()
	n, err := c.Candidate(Unverified("127.0.0.1"))
	require.NoError(t, err)
	require.NoError(t, c.Activate(n))
}

// pipes is a listener without sockets, so that synctest sees when all wait.
type pipes struct {
	accept chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.accept:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 443} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.accept <- theirs:
		return ours, nil
	case <-p.closed:
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", errRefused)}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

var errRefused = net.UnknownNetworkError("refused")

// bubble is bench for use inside synctest.
func bubble(t *testing.T, o Options) (*fakeSwitch, *Client) {
	t.Helper()
	p := &pipes{accept: make(chan net.Conn), closed: make(chan struct{})}
	f := newFakeSwitch(t, p, newAuthority(t).server(nil, "192.0.2.1"))
	o.Dial = p.dial
	if o.Guard == nil {
		o.Guard = Unguarded{}
	}
	c := newClient(t, Endpoint{Address: "192.0.2.1", Port: 443, Username: testUser, Password: secret.New(testPassword)}, o)
	open(t, c)
	return f, c
}

func quote(s string) string {
	raw, _ := json.Marshal(s)
	return string(raw)
}

// plantedForms are all forms in which the password may show.
func requireNoSecret(t *testing.T, text string, forms ...string) {
	t.Helper()
	for _, form := range forms {
		require.NotContains(t, text, form)
	}
}

// switchGuard is a hold that can be lost.
type switchGuard struct {
	mu     sync.Mutex
	err    error
	checks int
	held   context.Context
	lose   context.CancelCauseFunc
}

func newSwitchGuard() *switchGuard {
	held, lose := context.WithCancelCause(context.Background())
	return &switchGuard{held: held, lose: lose}
}

// deny refuses what is asked from now on.
func (g *switchGuard) deny(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.err = err
}

// refuse cuts what is under way as well.
func (g *switchGuard) refuse(err error) {
	g.deny(err)
	g.lose(err)
}

func (g *switchGuard) Check() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.checks++
	return g.err
}

func (g *switchGuard) Context(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(g.held, func() { cancel(context.Cause(g.held)) })
	return ctx, func() { stop(); cancel(nil) }
}

const patience = 10 * time.Second
