// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/rackbus/rackbus/pkg/access"
	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/certs"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/services/console"
)

// site is the HTTP listener of a harness, and the authority for its browsers.
type site struct {
	t   *testing.T
	h   *harness
	ca  *certs.CA
	url string
}

func newSite(t *testing.T, change ...func(*HTTPOptions)) *site {
	dir := t.TempDir()
	ca := writeCerts(t, dir)
	source, err := certs.Load(certs.Files{
		Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key"), CA: filepath.Join(dir, "ca.crt")}, certs.Options{})
	require.NoError(t, err)
	mutual, err := source.MutualServer()
	require.NoError(t, err)
	optional, err := source.OptionalServer()
	require.NoError(t, err)
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	evidence := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "bundle "+r.URL.Path) })
	h := newHarness(t, func(o *Options) {
		o.TLS, o.Plaintext = mutual, false
		o.Access = policy(t, access.Settings{Viewers: []string{"cn:dashboard"}, Operators: []string{"cn:ann"}})
		o.HTTP = &HTTPOptions{
			Listener: lis, TLS: optional, Evidence: evidence,
			Console: console.Options{Timing: console.Timing{PatchInterval: 5 * time.Millisecond, WatchRetry: 20 * time.Millisecond}},
		}
		for _, c := range change {
			c(o.HTTP)
		}
	})
	s := &site{t, h, ca, "https://" + lis.Addr().String()}
	h.dial(grpc.WithTransportCredentials(credentials.NewTLS(s.tls(ca, "ann"))))
	return s
}

// browser returns a client with the certificate of somebody; "" has none.
func (s *site) browser(name string) *http.Client {
	return s.browserOf(s.ca, name)
}

func (s *site) browserOf(ca *certs.CA, name string) *http.Client {
	s.t.Helper()
	transport := &http.Transport{TLSClientConfig: s.tls(ca, name), ForceAttemptHTTP2: true}
	s.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// tls is a client's configuration, with a certificate of ca unless name is "".
func (s *site) tls(ca *certs.CA, name string) *tls.Config {
	s.t.Helper()
	roots := x509.NewCertPool()
	require.True(s.t, roots.AppendCertsFromPEM(s.ca.PEM()))
	config := &tls.Config{RootCAs: roots}
	if name != "" {
		cert, key, err := ca.Issue(certs.Leaf{Role: name})
		require.NoError(s.t, err)
		pair, err := tls.X509KeyPair(cert, key)
		require.NoError(s.t, err)
		config.Certificates = []tls.Certificate{pair}
	}
	return config
}

// reply is an answer without its body.
type reply struct {
	StatusCode, ProtoMajor int
	Location               string
	Cookies                []*http.Cookie
}

func (s *site) get(c *http.Client, path string) (reply, string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.url+path, nil)
	require.NoError(s.t, err)
	return s.do(c, r)
}

func (s *site) do(c *http.Client, r *http.Request) (reply, string) {
	s.t.Helper()
	resp, err := c.Do(r)
	require.NoError(s.t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(s.t, err)
	return reply{resp.StatusCode, resp.ProtoMajor, resp.Header.Get("Location"), resp.Cookies()}, string(body)
}

// A browser has the rights of its certificate, and what it does is in the audit under
// its name.
func TestBrowsersHaveTheRightsOfTheirCertificates(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	parent, children := s.h.admit("r1", 2)
	require.Eventually(t, func() bool { _, ok := s.h.server.view.Get(parent); return ok }, 20*time.Second, 5*time.Millisecond)

	nobody := s.browser("")
	resp, body := s.get(nobody, "/")
	require.Equal(t, http.StatusUnauthorized, resp.StatusCode)
	require.Contains(t, body, "openssl pkcs12")
	resp, body = s.get(nobody, "/evidence/x")
	require.Equal(t, http.StatusOK, resp.StatusCode, "a link to evidence needs no certificate")
	require.Equal(t, "bundle /evidence/x", body)
	resp, _ = s.get(s.browser("stranger"), "/jobs")
	require.Equal(t, http.StatusForbidden, resp.StatusCode, "a certificate without a role")
	foreign, err := certs.NewCA()
	require.NoError(t, err)
	_, err = s.browserOf(foreign, "ann").Get(s.url + "/jobs") //nolint:bodyclose // there is none
	require.Error(t, err, "a certificate of another authority ends the handshake")

	viewer := s.browser("dashboard")
	address := "/jobs/" + children[0].String()
	resp, body = s.get(viewer, address)
	require.Equal(t, http.StatusOK, resp.StatusCode, body)
	require.Equal(t, 2, resp.ProtoMajor)
	require.Contains(t, body, "spiffe://rackbus/dashboard")
	require.NotContains(t, body, "/do/cancel")

	operator := s.browser("ann")
	resp, body = s.get(operator, address+"/do/cancel")
	require.Equal(t, http.StatusOK, resp.StatusCode, body)
	token := regexp.MustCompile(`name="token" value="([^"]+)"`).FindStringSubmatch(body)[1]
	post := func(c *http.Client) (reply, string) {
		form := url.Values{"token": {token}, "reason": {"wrong image"}}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+address+"/do/cancel", strings.NewReader(form.Encode()))
		require.NoError(t, err)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.AddCookie(resp.Cookies[0])
		return s.do(c, r)
	}
	refused, body := post(viewer)
	require.Equal(t, http.StatusForbidden, refused.StatusCode)
	require.Contains(t, body, "needs the role operator")
	done, _ := post(operator)
	require.Equal(t, http.StatusSeeOther, done.StatusCode)
	require.Equal(t, address+"?done=cancel", done.Location)

	outcomes := map[string]string{}
	require.Eventually(t, func() bool {
		err := s.h.conn.AuditRecords(t.Context(), bus.AuditRange{}, func(r *rackbusv1.AuditRecord) bool {
			if r.GetJobId() == children[0].String() {
				outcomes[r.GetIdentity()] = r.GetOutcome()
			}
			return true
		})
		return err == nil && len(outcomes) == 2
	}, 20*time.Second, 10*time.Millisecond)
	require.Equal(t, map[string]string{"spiffe://rackbus/dashboard": "PERMISSION_DENIED", "spiffe://rackbus/ann": "OK"}, outcomes)
}

// Whoever reaches the port can be turned away as often as he likes. The audit has room
// for what is done by those whom a certificate names.
func TestStrangersLeaveNoAudit(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	nobody := s.browser("")
	for range 3 {
		for _, path := range []string{"/", "/jobs", "/live/jobs"} {
			resp, _ := s.get(nobody, path)
			require.Equal(t, http.StatusUnauthorized, resp.StatusCode, path)
		}
	}
	resp, _ := s.get(s.browser("stranger"), "/jobs")
	require.Equal(t, http.StatusForbidden, resp.StatusCode)
	var refused []string
	err := s.h.conn.AuditRecords(t.Context(), bus.AuditRange{}, func(r *rackbusv1.AuditRecord) bool {
		refused = append(refused, r.GetIdentity())
		return true
	})
	require.NoError(t, err)
	require.Equal(t, []string{"spiffe://rackbus/stranger"}, refused)
}

// Connections of strangers do not use up the files of the process: those beyond the limit
// wait for others to end.
func TestBrowsersHaveALimitOfConnections(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(o *HTTPOptions) { o.MaxConnections, o.HeaderTimeout = 2, time.Hour })
	addr := strings.TrimPrefix(s.url, "https://")
	var held []*tls.Conn
	for range 2 {
		c, err := tls.Dial("tcp", addr, s.tls(s.ca, ""))
		require.NoError(t, err)
		defer c.Close()
		held = append(held, c)
	}
	third, err := net.Dial("tcp", addr)
	require.NoError(t, err, "it waits in the queue of the kernel")
	defer third.Close()
	config := s.tls(s.ca, "ann")
	config.ServerName = "127.0.0.1"
	greeted := make(chan error, 1)
	go func() { greeted <- tls.Client(third, config).HandshakeContext(t.Context()) }()
	select {
	case err := <-greeted:
		t.Fatalf("a third connection was taken: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	require.NoError(t, held[0].Close())
	select {
	case err := <-greeted:
		require.NoError(t, err)
	case <-time.After(20 * time.Second):
		t.Fatal("the place that has become free is not given away")
	}
}

// Live pages do not keep a server from stopping.
func TestLivePagesEndWithTheServer(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.h.admit("r1", 1)
	c := s.browser("dashboard")
	resp, err := c.Get(s.url + "/live/jobs?since=")
	require.NoError(t, err)
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() && !strings.HasPrefix(lines.Text(), "event: changed") {
	}
	require.NoError(t, lines.Err())
	start := time.Now()
	s.h.stop()
	require.Less(t, time.Since(start), 15*time.Second)
	for lines.Scan() {
	}
	require.NoError(t, lines.Err(), "the stream ends as a whole")
	_, err = c.Get(s.url + "/") //nolint:bodyclose // there is none
	require.Error(t, err)
}

// A live page outlives the limit for pages, over HTTP/1 as well.
func TestLivePagesOutliveOtherPages(t *testing.T) {
	t.Parallel()
	const limit = time.Second
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	newHarness(t, func(o *Options) {
		o.HTTP = &HTTPOptions{
			Listener: lis, PageTimeout: limit,
			Console: console.Options{Timing: console.Timing{Heartbeat: 20 * time.Millisecond, PatchInterval: 5 * time.Millisecond}},
		}
	})
	start := time.Now()
	resp, err := http.Get("http://" + lis.Addr().String() + "/live/jobs")
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, 1, resp.ProtoMajor)
	for lines := bufio.NewScanner(resp.Body); time.Since(start) < 2*limit; {
		require.True(t, lines.Scan(), "the stream has ended after %s: %v", time.Since(start), lines.Err())
	}
}

func TestTheHTTPListenerNeedsWhatGRPCHas(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	o := h.server.opts
	o.Registerer, o.HTTP = nil, &HTTPOptions{TLS: &tls.Config{}}
	_, err := New(o)
	require.ErrorIs(t, err, ErrInvalidOptions)

	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	o = h.server.opts
	o.Registerer = nil
	o.Listener, err = net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	o.HTTP = &HTTPOptions{Addr: taken.Addr().String()}
	server, err := New(o)
	require.NoError(t, err)
	require.ErrorContains(t, server.Run(t.Context()), "listen for browsers")
}
