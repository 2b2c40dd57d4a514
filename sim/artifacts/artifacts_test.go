// SPDX-License-Identifier: Apache-2.0

package artifacts_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"io"
	"net/http"
	"net/url"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/rackbus/rackbus/sim/artifacts"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T, o artifacts.Options) *artifacts.Server {
	t.Helper()
	s, err := artifacts.Start(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

type client struct {
	t    *testing.T
	http *http.Client
}

func newClient(t *testing.T, s *artifacts.Server) client {
	transport := &http.Transport{}
	if cert := s.Certificate(); cert != nil {
		pool := x509.NewCertPool()
		pool.AddCert(cert)
		transport.TLSClientConfig = &tls.Config{RootCAs: pool}
	}
	t.Cleanup(transport.CloseIdleConnections)
	return client{t: t, http: &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}}
}

// reply is an answer without its body.
type reply struct {
	StatusCode    int
	Header        http.Header
	ContentLength int64
}

func (c client) do(ctx context.Context, method, url string, header ...string) (reply, []byte, error) {
	c.t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, url, nil)
	require.NoError(c.t, err)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	res, err := c.http.Do(r)
	if err != nil {
		return reply{}, nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return reply{res.StatusCode, res.Header, res.ContentLength}, body, err
}

func (c client) get(url string, header ...string) (reply, []byte) {
	c.t.Helper()
	res, body, err := c.do(c.t.Context(), http.MethodGet, url, header...)
	require.NoError(c.t, err)
	return res, body
}

func TestServes(t *testing.T) {
	for _, secure := range []bool{false, true} {
		s := start(t, artifacts.Options{TLS: secure})
		c := newClient(t, s)
		content := bytes.Repeat([]byte("0123456789"), 100)
		s.Put("fw/a.bin", content)
		res, body := c.get(s.URL("fw/a.bin"))
		require.Equal(t, 200, res.StatusCode)
		require.Equal(t, content, body)
		tag := res.Header.Get("ETag")
		require.NotEmpty(t, tag)

		head, _, err := c.do(t.Context(), http.MethodHead, s.URL("fw/a.bin"))
		require.NoError(t, err)
		require.Equal(t, int64(1000), head.ContentLength)

		res, body = c.get(s.URL("/fw/a.bin"), "Range", "bytes=990-", "If-Range", tag)
		require.Equal(t, 206, res.StatusCode)
		require.Equal(t, "0123456789", string(body))
		s.Put("fw/a.bin", []byte("new"))
		res, body = c.get(s.URL("fw/a.bin"), "Range", "bytes=1-", "If-Range", tag)
		require.Equal(t, 200, res.StatusCode, "the tag has changed")
		require.Equal(t, "new", string(body))

		s.Remove("fw/a.bin")
		res, _ = c.get(s.URL("fw/a.bin"))
		require.Equal(t, 404, res.StatusCode)

		log := s.Requests()
		require.Len(t, log, 5)
		require.Equal(t, []any{"GET", "fw/a.bin", "bytes=990-", tag, 206, int64(10)},
			[]any{log[2].Method, log[2].Path, log[2].Range, log[2].IfRange, log[2].Status, log[2].Bytes})
		require.Equal(t, "HEAD", log[1].Method)
		require.Zero(t, log[1].Bytes)
	}
}

func TestToken(t *testing.T) {
	s := start(t, artifacts.Options{Token: "t0ken"})
	c := newClient(t, s)
	s.Put("a", []byte("x"))
	res, _ := c.get(s.URL("a"))
	require.Equal(t, 401, res.StatusCode)
	res, _ = c.get(s.URL("a"), artifacts.TokenHeader, "t0ken")
	require.Equal(t, 200, res.StatusCode)
	require.Equal(t, "t0ken", s.Requests()[1].Token)
}

func TestFaults(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789"), 1000)
	tests := []struct {
		name   string
		fault  artifacts.Fault
		header []string
		check  func(t *testing.T, res reply, body []byte, err error)
	}{
		{"cut", artifacts.Fault{CutAfter: 777}, nil, func(t *testing.T, _ reply, body []byte, err error) {
			require.Error(t, err)
			require.Equal(t, content[:777], body)
		}},
		{"cut at once", artifacts.Fault{CutAtOnce: true}, nil, func(t *testing.T, _ reply, body []byte, err error) {
			require.Error(t, err)
			require.Empty(t, body)
		}},
		{"longer Content-Length", artifacts.Fault{LengthDelta: 5}, nil, func(t *testing.T, res reply, body []byte, err error) {
			require.ErrorIs(t, err, io.ErrUnexpectedEOF)
			require.Equal(t, int64(10005), res.ContentLength)
			require.Equal(t, content, body)
		}},
		{"shorter Content-Length", artifacts.Fault{LengthDelta: -5}, nil, func(t *testing.T, _ reply, body []byte, err error) {
			require.NoError(t, err)
			require.Equal(t, content[:9995], body)
		}},
		{"no Content-Length", artifacts.Fault{NoLength: true}, nil, func(t *testing.T, res reply, body []byte, err error) {
			require.NoError(t, err)
			require.Equal(t, int64(-1), res.ContentLength)
			require.Equal(t, content, body)
		}},
		{"corrupt", artifacts.Fault{Corrupt: true}, nil, func(t *testing.T, _ reply, body []byte, err error) {
			require.NoError(t, err)
			require.Len(t, body, len(content))
			require.NotEqual(t, content, body)
		}},
		{"empty", artifacts.Fault{Empty: true}, nil, func(t *testing.T, res reply, body []byte, err error) {
			require.NoError(t, err)
			require.Equal(t, 200, res.StatusCode)
			require.Empty(t, body)
		}},
		{"status", artifacts.Fault{Status: 503, RetryAfter: 7}, nil, func(t *testing.T, res reply, _ []byte, err error) {
			require.NoError(t, err)
			require.Equal(t, 503, res.StatusCode)
			require.Equal(t, "7", res.Header.Get("Retry-After"))
		}},
		{"redirect", artifacts.Fault{Redirect: "http://10.0.0.1/{path}", Status: 307}, nil, func(t *testing.T, res reply, _ []byte, err error) {
			require.NoError(t, err)
			require.Equal(t, 307, res.StatusCode)
			require.Equal(t, "http://10.0.0.1/fw/a.bin", res.Header.Get("Location"))
		}},
		{"no ranges", artifacts.Fault{NoRange: true}, []string{"Range", "bytes=10-"}, func(t *testing.T, res reply, body []byte, err error) {
			require.NoError(t, err)
			require.Equal(t, 200, res.StatusCode)
			require.Equal(t, "none", res.Header.Get("Accept-Ranges"))
			require.Equal(t, content, body)
		}},
		{"range status", artifacts.Fault{RangeStatus: 416}, []string{"Range", "bytes=10-"}, func(t *testing.T, res reply, _ []byte, err error) {
			require.NoError(t, err)
			require.Equal(t, 416, res.StatusCode)
		}},
		{"wrong range", artifacts.Fault{WrongRange: true}, []string{"Range", "bytes=10-"}, func(t *testing.T, res reply, body []byte, err error) {
			require.NoError(t, err)
			require.Equal(t, 206, res.StatusCode)
			require.Equal(t, "bytes 0-9989/10000", res.Header.Get("Content-Range"))
			require.Len(t, body, 9990)
		}},
		{"fresh tag", artifacts.Fault{FreshETag: true}, []string{"Range", "bytes=10-", "If-Range", `"a1"`}, func(t *testing.T, res reply, body []byte, err error) {
			require.NoError(t, err)
			require.Equal(t, 200, res.StatusCode, "no tag ever matches")
			require.Equal(t, content, body)
		}},
		{"no tag", artifacts.Fault{NoETag: true}, nil, func(t *testing.T, res reply, _ []byte, err error) {
			require.NoError(t, err)
			require.Empty(t, res.Header.Get("ETag"))
			require.Empty(t, res.Header.Get("Last-Modified"))
		}},
		{"latency", artifacts.Fault{Latency: time.Millisecond}, nil, func(t *testing.T, res reply, _ []byte, err error) {
			require.NoError(t, err)
			require.Equal(t, 200, res.StatusCode)
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, secure := range []bool{false, true} {
				s := start(t, artifacts.Options{TLS: secure})
				c := newClient(t, s)
				s.Put("fw/a.bin", content)
				tt.fault.Remaining = 1
				require.NoError(t, s.AddFault("fw/*", tt.fault))
				res, body, err := c.do(t.Context(), http.MethodGet, s.URL("fw/a.bin"), tt.header...)
				tt.check(t, res, body, err)
				_, body = c.get(s.URL("fw/a.bin"))
				require.Equal(t, content, body, "the fault is used up")
				log, err := s.WaitRequests(t.Context(), 2)
				require.NoError(t, err)
				require.Len(t, log, 2)
			}
		})
	}
}

func TestSlowAndStalled(t *testing.T) {
	s := start(t, artifacts.Options{})
	c := newClient(t, s)
	s.Put("slow", make([]byte, 3000))
	require.NoError(t, s.AddFault("slow", artifacts.Fault{BytesPerSecond: 20000}))
	began := time.Now()
	_, body := c.get(s.URL("slow"))
	require.Len(t, body, 3000)
	require.GreaterOrEqual(t, time.Since(began), 100*time.Millisecond)

	s.Put("stall", make([]byte, 100_000))
	require.NoError(t, s.AddFault("stall", artifacts.Fault{StallAfter: 5000, Method: http.MethodGet}))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		defer cancel()
		_ = s.WaitSent(ctx, "stall", 5000) // an error ends the download as well, with the wrong length
	}()
	_, body, err := c.do(ctx, http.MethodGet, s.URL("stall"))
	require.ErrorIs(t, err, context.Canceled)
	require.LessOrEqual(t, len(body), 5000)
	head, _, err := c.do(t.Context(), http.MethodHead, s.URL("stall"))
	require.NoError(t, err)
	require.Equal(t, int64(100_000), head.ContentLength)
}

func TestGenerated(t *testing.T) {
	s := start(t, artifacts.Options{})
	c := newClient(t, s)
	const size = 300_000
	sum := s.PutGenerated("big", size, 3)
	_, body := c.get(s.URL("big"))
	got := sha256.Sum256(body)
	require.Equal(t, sum, hex.EncodeToString(got[:]))
	res, part := c.get(s.URL("big"), "Range", "bytes=70000-")
	require.Equal(t, 206, res.StatusCode)
	require.Equal(t, body[70000:], part)

	tree := artifacts.NewTree(t.TempDir())
	require.NoError(t, tree.PutGenerated("deep/big", size, 3))
	require.NoError(t, tree.Put("small", []byte("x")))
	require.NoError(t, tree.Directory("dir"))
	require.NoError(t, tree.Symlink("link", "small"))
	u, err := url.Parse(tree.URL("deep/big"))
	require.NoError(t, err)
	require.Equal(t, "file", u.Scheme)
	onDisk, err := os.ReadFile(u.Path)
	require.NoError(t, err)
	require.Equal(t, body, onDisk)
	linked, err := os.ReadFile(tree.Path("link"))
	require.NoError(t, err)
	require.Equal(t, "x", string(linked))
}

func TestBadUse(t *testing.T) {
	s := start(t, artifacts.Options{})
	require.ErrorIs(t, s.AddFault("", artifacts.Fault{Status: 200}), artifacts.ErrInvalidFault)
	require.ErrorIs(t, s.AddFault("", artifacts.Fault{CutAfter: -1}), artifacts.ErrInvalidFault)
	c := newClient(t, s)
	res, _, err := c.do(t.Context(), http.MethodPost, s.URL("a"))
	require.NoError(t, err)
	require.Equal(t, 405, res.StatusCode)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = s.WaitRequests(ctx, 5)
	require.ErrorIs(t, err, context.Canceled)
	_, err = artifacts.Start(t.Context(), artifacts.Options{Listen: s.Addr()})
	require.Error(t, err)
}
