// SPDX-License-Identifier: Apache-2.0

package nvue

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/secret"
)

func TestEndpoint(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		endpoint Endpoint
		base     string
		address  string
	}{
		{Endpoint{Address: "192.0.2.1", Port: 443}, "https://192.0.2.1:443", "192.0.2.1:443"},
		{Endpoint{Address: "192.0.2.1", Port: 8443, HostName: " sw1.example "}, "https://sw1.example:8443", "192.0.2.1:8443"},
		{Endpoint{Address: "2001:db8::1", Port: 443}, "https://[2001:db8::1]:443", "[2001:db8::1]:443"},
		{Endpoint{Address: "[2001:db8::1]", Port: 443, HostName: "[2001:db8::1]"}, "https://[2001:db8::1]:443", "[2001:db8::1]:443"},
		{Endpoint{Address: "192.0.2.1", Port: 443, HostName: "192.0.2.1"}, "https://192.0.2.1:443", "192.0.2.1:443"},
		{Endpoint{Address: "192.0.2.1", Port: 443, HostName: "192.0.2.2"}, "", ""},
		{Endpoint{Address: "192.0.2.1"}, "", ""},
		{Endpoint{Address: "sw1.example", Port: 443}, "", ""},
		{Endpoint{Port: 443}, "", ""},
		{Endpoint{Address: "192.0.2.1", Port: 443, HostName: "a/b"}, "", ""},
		{Endpoint{Address: "192.0.2.1", Port: 443, HostName: "user@evil"}, "", ""},
		{Endpoint{Address: "192.0.2.1", Port: 443, Username: "a:b"}, "", ""},
	} {
		c, err := New(tt.endpoint, Options{})
		if tt.base == "" {
			require.ErrorIs(t, err, ErrInvalidArgument, "%+v", tt.endpoint)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, tt.base, c.base)
		require.Equal(t, tt.address, c.endpoint.address())
	}
}

func TestFence(t *testing.T) {
	t.Parallel()
	require.Equal(t, "/nvue_v1/platform/firmware/BMC%2F1", resource("platform", "firmware", "BMC/1"))
	require.Equal(t, "/nvue_v1/cluster?rev=a%26b%3D%C3%A4%20~.-_", at(resource("cluster"), "a&b=ä ~.-_"))
	for path, ok := range map[string]bool{
		"/nvue_v1":                        true,
		"/nvue_v1/system":                 true,
		"/nvue_v1?rev=applied":            true,
		"/nvue_v1/platform/BMC%2F1":       true,
		"/nvue_v1/x@host":                 true,
		"/nvue_v1/%252e%252e/a":           true, // means the name "%2e%2e"
		"/nvue_v10/system":                false,
		"/nvue_v1x":                       false,
		"/nvue":                           false,
		"":                                false,
		"nvue_v1/system":                  false,
		"//evil.example/nvue_v1":          false,
		"/nvue_v1//evil":                  false,
		"/nvue_v1/":                       false,
		"/nvue_v1/system/":                false,
		"@evil.example/nvue_v1":           false,
		"https://evil.example/nvue_v1/a":  false,
		"/nvue_v1/../admin":               false,
		"/nvue_v1/a/..":                   false,
		"/nvue_v1/./a":                    false,
		"/nvue_v1/%2e%2e/a":               false,
		"/nvue_v1/%2E%2e%2fa":             false,
		"/nvue_v1/a%2f..%2fb":             false,
		"/nvue_v1/a%5c..%5cb":             false,
		`/nvue_v1\..\a`:                   false,
		"/nvue_v1/a#b":                    false,
		"/nvue_v1/a b":                    false,
		"/nvue_v1/a\r\nX: y":              false,
		"/nvue_v1/a%0d":                   false,
		"/nvue_v1/%zz":                    false,
		resource("cluster", "apps", ""):   false,
		resource("cluster", "apps", ".."): false,
	} {
		require.Equal(t, ok, insideAPI(path), "%q", path)
	}
	_, c := bench(t, Options{})
	_, err := c.Get(t.Context(), "/nvue_v1/../etc/passwd")
	require.ErrorIs(t, err, ErrInvalidArgument)
	require.NotContains(t, err.Error(), "passwd")
	_, err = c.App(t.Context(), "..")
	require.ErrorIs(t, err, ErrInvalidArgument)
}

func TestRequestForm(t *testing.T) {
	t.Parallel()
	listener := loopback(t)
	f := newFakeSwitch(t, listener, newAuthority(t).server(nil, "sw1.example"))
	e := endpointOf(listener)
	e.HostName = "sw1.example"
	c := newClient(t, e, Options{Guard: Unguarded{}})
	n, err := c.Candidate(Unverified("name.example"))
	require.NoError(t, err)
	require.NoError(t, c.Activate(n))
	f.on("GET /nvue_v1/system", reply{body: `{}`})
	require.NoError(t, c.Hello(t.Context()))
	require.NoError(t, c.Hello(t.Context()))

	got := f.requests()[0]
	require.Equal(t, fmt.Sprintf("sw1.example:%d", e.Port), got.host, "the URL has the host name")
	require.Equal(t, "name.example", got.sni, "the handshake has the server name")
	require.Equal(t, "application/json", got.header.Get("Content-Type"))
	require.Equal(t, "Basic "+base64.StdEncoding.EncodeToString([]byte(testUser+":"+testPassword)), got.header.Get("Authorization"))
	require.Equal(t, 2, f.connections(), "an unverified connection serves one request")

	anonymous, err := c.WithCredentials("", secret.Value{})
	require.NoError(t, err)
	require.NoError(t, anonymous.Hello(t.Context()))
	require.Empty(t, f.requests()[2].header.Get("Authorization"))
	_, err = c.WithCredentials("a:b", secret.Value{})
	require.ErrorIs(t, err, ErrInvalidArgument)
}

func TestNothingIsSentBeforeAChoice(t *testing.T) {
	t.Parallel()
	c := newClient(t, Endpoint{Address: "192.0.2.1", Port: 443}, Options{})
	require.ErrorIs(t, c.Hello(t.Context()), ErrFailedPrecondition)
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		reply  reply
		want   string
		code   Code
		issue  string
		status int
	}{
		{name: "json", reply: reply{body: `{"a":1}`}, want: `{"a":1}`},
		{name: "empty", reply: reply{}, want: `{}`},
		{name: "204", reply: reply{status: 204}, want: `{}`},
		{name: "bad json", reply: reply{body: `<html>`}, code: ErrBadResponse, status: 200},
		{name: "too large", reply: reply{body: `"` + strings.Repeat("x", maxBody) + `"`}, code: ErrBadResponse, status: 200},
		{name: "400", reply: reply{status: 400, body: `{"title":"Bad Request","detail":"rev is unknown"}`}, code: ErrInternal, issue: "rev is unknown"},
		{name: "401", reply: reply{status: 401, body: `Unauthorized`}, code: ErrUnauthenticated, issue: "Unauthorized"},
		{name: "403", reply: reply{status: 403}, code: ErrForbidden},
		{name: "404", reply: reply{status: 404}, code: ErrNotFound},
		{name: "408", reply: reply{status: 408}, code: ErrTimeout},
		{name: "409", reply: reply{status: 409, body: `{"message":["a","b"]}`}, code: ErrConflict, issue: "a; b"},
		{name: "502", reply: reply{status: 502, body: "<html>bad\n gateway"}, code: ErrUnavailable, issue: "<html>bad gateway"},
		{name: "503", reply: reply{status: 503}, code: ErrUnavailable},
		{name: "500", reply: reply{status: 500}, code: ErrInternal},
		{name: "cut", reply: reply{cut: true}, code: ErrUnavailable},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f, c := bench(t, Options{})
			f.on("GET /nvue_v1/x", tt.reply)
			raw, err := c.Get(t.Context(), "/nvue_v1/x")
			if tt.code == "" {
				require.NoError(t, err)
				require.JSONEq(t, tt.want, string(raw))
				return
			}
			require.ErrorIs(t, err, tt.code)
			e, ok := errors.AsType[*Error](err)
			require.True(t, ok)
			require.Equal(t, http.MethodGet, e.Method)
			require.Equal(t, "/nvue_v1/x", e.Path)
			require.Equal(t, tt.issue, e.Issue)
			if tt.status != 0 {
				require.Equal(t, tt.status, e.Status)
			} else if !tt.reply.cut {
				require.Equal(t, tt.reply.status, e.Status)
			}
			require.False(t, OutcomeUnknown(err), "a read changes nothing")
		})
	}
}

func TestRedirectsAreRefused(t *testing.T) {
	t.Parallel()
	thief, _ := bench(t, Options{})
	f, c := bench(t, Options{})
	for _, status := range []int{301, 302, 303, 307, 308} {
		f.on("GET /nvue_v1/system", reply{status: status, location: "https://127.0.0.1:1/nvue_v1/system"})
		err := c.Hello(t.Context())
		require.ErrorIs(t, err, ErrBadResponse)
		require.NotContains(t, err.Error(), "127.0.0.1")
		require.False(t, Retryable(err))
	}
	require.Empty(t, thief.requests())
	require.Len(t, f.requests(), 5)
}

func TestTransportFaults(t *testing.T) {
	t.Parallel()
	refused := loopback(t)
	require.NoError(t, refused.Close())
	plain := loopback(t)
	server := &http.Server{Handler: http.NotFoundHandler()}
	go func() { _ = server.Serve(plain) }()
	t.Cleanup(func() { _ = server.Close() })

	for _, tt := range []struct {
		name string
		e    Endpoint
		dial func(context.Context, string, string) (net.Conn, error)
		code Code
	}{
		{name: "refused", e: endpointOf(refused), code: ErrUnreachable},
		{name: "no tls", e: endpointOf(plain), code: ErrTLS},
		{name: "dns", e: endpointOf(refused), code: ErrDNS, dial: func(context.Context, string, string) (net.Conn, error) {
			return nil, &net.DNSError{Err: "no such host", Name: "sw1", IsNotFound: true}
		}},
		{name: "silent", e: endpointOf(refused), code: ErrTimeout, dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var timing Timing
			if tt.code == ErrTimeout {
				timing.Connect = 50 * time.Millisecond
			}
			c := newClient(t, tt.e, Options{Dial: tt.dial, Timing: timing})
			open(t, c)
			err := c.Hello(t.Context())
			require.ErrorIs(t, err, tt.code, "%v", err)
			require.True(t, Retryable(err))
			e, _ := errors.AsType[*Error](err)
			require.False(t, e.Sent)
		})
	}
}

func TestRequestLimit(t *testing.T) {
	t.Parallel()
	f, c := bench(t, Options{})
	f.on("GET /nvue_v1/system", reply{hang: true})
	err := c.WithRequestLimit(50 * time.Millisecond).Hello(t.Context())
	require.ErrorIs(t, err, ErrTimeout)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, 30*time.Second, c.Timing().Request)

	ctx, cancel := context.WithCancel(t.Context())
	f.on("GET /nvue_v1/system", reply{hang: true, then: cancel})
	err = c.Hello(ctx)
	require.ErrorIs(t, err, ErrCanceled)
	require.False(t, Retryable(err))
}

func TestProbeCredentials(t *testing.T) {
	t.Parallel()
	f, c := bench(t, Options{})
	for _, status := range []int{200, 401, 500} {
		f.on("GET /nvue_v1/system", reply{status: status, body: "not json"})
		got, err := c.ProbeCredentials(t.Context())
		require.NoError(t, err)
		require.Equal(t, status, got)
	}
}

func TestGuard(t *testing.T) {
	t.Parallel()
	t.Run("without one only reads", func(t *testing.T) {
		t.Parallel()
		listener := loopback(t)
		f := newFakeSwitch(t, listener, newAuthority(t).server(nil, "127.0.0.1"))
		f.on("GET /nvue_v1/system", reply{})
		c := newClient(t, endpointOf(listener), Options{})
		open(t, c)
		require.NoError(t, c.Hello(t.Context()))
		_, err := c.CreateRevision(t.Context())
		require.ErrorIs(t, err, ErrNotHeld)
		require.Len(t, f.requests(), 1)
	})
	t.Run("refuses", func(t *testing.T) {
		t.Parallel()
		g := newSwitchGuard()
		f, c := bench(t, Options{Guard: g})
		lost := errors.New("lease is gone")
		g.refuse(lost)
		_, err := c.Change(t.Context(), SetClusterState(true))
		require.ErrorIs(t, err, ErrNotHeld)
		require.ErrorIs(t, err, lost)
		require.False(t, Retryable(err))
		require.Empty(t, f.requests())
	})
	t.Run("lost under way", func(t *testing.T) {
		t.Parallel()
		g := newSwitchGuard()
		f, c := bench(t, Options{Guard: g})
		lost := errors.New("lease is gone")
		f.on("POST /nvue_v1/revision", reply{hang: true, then: func() { g.refuse(lost) }})
		_, err := c.CreateRevision(t.Context())
		require.ErrorIs(t, err, ErrNotHeld)
		require.ErrorIs(t, err, lost)
		require.True(t, OutcomeUnknown(err))
	})
	t.Run("lost between steps, nothing more is sent", func(t *testing.T) {
		t.Parallel()
		g := newSwitchGuard()
		f, c := bench(t, Options{Guard: g})
		f.on("POST /nvue_v1/revision", reply{body: `"7"`, then: func() { g.deny(errors.New("lease is gone")) }})
		_, err := c.Change(t.Context(), SetClusterState(true))
		require.ErrorIs(t, err, ErrNotHeld)
		require.Equal(t, []string{"POST /nvue_v1/revision"}, f.lines())
	})
	t.Run("lost during the handshake", func(t *testing.T) {
		t.Parallel()
		g := newSwitchGuard()
		listener := loopback(t)
		f := newFakeSwitch(t, listener, newAuthority(t).server(nil, "127.0.0.1"))
		c := newClient(t, endpointOf(listener), Options{Guard: g, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			g.deny(errors.New("lease is gone"))
			return (&net.Dialer{}).DialContext(ctx, network, address)
		}})
		open(t, c)
		_, err := c.CreateRevision(t.Context())
		require.ErrorIs(t, err, ErrNotHeld)
		require.False(t, OutcomeUnknown(err), "nothing was sent")
		require.Empty(t, f.requests())
	})
	t.Run("lost while the body comes", func(t *testing.T) {
		t.Parallel()
		lost, broken := errors.New("lease is gone"), errors.New("broken")
		hold, lose := context.WithCancelCause(t.Context())
		b := &heldBody{ReadCloser: io.NopCloser(iotest.ErrReader(broken)), hold: hold, caller: t.Context(), cancel: func() {}}
		_, err := b.Read(nil)
		require.Equal(t, broken, err, "the hold has nothing to do with it")
		lose(lost)
		_, err = b.Read(nil)
		require.ErrorIs(t, err, ErrNotHeld)
		require.ErrorIs(t, err, lost)
	})
	t.Run("lost while the answer comes", func(t *testing.T) {
		t.Parallel()
		g := newSwitchGuard()
		f, c := bench(t, Options{Guard: g})
		f.server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // else the server does not notice the end
			_ = http.NewResponseController(w).Flush()
			g.refuse(errors.New("lease is gone"))
			<-r.Context().Done()
		})
		_, err := c.CreateRevision(t.Context())
		require.ErrorIs(t, err, ErrNotHeld)
		require.True(t, OutcomeUnknown(err))
	})
	t.Run("reads are not asked for", func(t *testing.T) {
		t.Parallel()
		g := newSwitchGuard()
		f, c := bench(t, Options{Guard: g})
		f.on("GET /nvue_v1/system", reply{})
		require.NoError(t, c.Hello(t.Context()))
		require.Zero(t, g.checks)
	})
}

func TestSecretsNeverShow(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	f, c := bench(t, Options{Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	const fresh = `n3w & "pass"`
	encoded := base64.StdEncoding.EncodeToString([]byte(fresh))
	basic := base64.StdEncoding.EncodeToString([]byte(testUser + ":" + testPassword))
	forms := []string{testPassword, strings.Trim(quote(testPassword), `"`), basic, fresh, strings.Trim(quote(fresh), `"`), encoded, "n0nce"}
	echo := func(parts ...string) reply {
		return reply{status: 400, body: `{"message":` + quote("refused "+strings.Join(parts, " ")) + `}`}
	}
	var texts []string
	note := func(err error) {
		require.Error(t, err)
		texts = append(texts, err.Error(), fmt.Sprintf("%+v %#v", err, err))
	}

	f.on("GET /nvue_v1/system", echo(testPassword, basic))
	note(c.Hello(t.Context()))
	f.on("GET /nvue_v1/system", reply{status: 500, body: "echo " + testPassword})
	note(c.Hello(t.Context()))

	f.on("POST /nvue_v1/revision", reply{body: `"1"`})
	f.on("PATCH /nvue_v1/system/aaa/user/admin?rev=1", echo(fresh, encoded))
	edit := SetUserPassword("admin", secret.New(fresh))
	_, err := c.Change(t.Context(), edit)
	note(err)
	require.Equal(t, `{"password":"`+encoded+`"}`, f.requests()[3].body)
	texts = append(texts, edit.String(), fmt.Sprintf("%v %+v %#v", edit, edit, edit))
	action := GenerateEvidence("ERoT", secret.New("n0nce"))
	texts = append(texts, fmt.Sprintf("%v %+v %#v", action, action, action))

	f.on("GET /nvue_v1/revision/1", reply{body: `{"state":"failed","transition":{"issue":[` + quote("weak: "+fresh) + `,` + quote(encoded) + `]}}`})
	_, err = c.AwaitRevision(t.Context(), "1", nil)
	note(err)

	f.on("POST /nvue_v1/system/security/spdm/ERoT", reply{body: `"9"`})
	_, err = c.StartAction(t.Context(), action)
	require.NoError(t, err)
	f.on("GET /nvue_v1/action/9", reply{body: `{"state":"action_error","issue":["bad n0nce"],"detail":"n0nce"}`})
	s, err := c.AwaitAction(t.Context(), "9", EvidenceActions(), ActionWait{})
	note(err)
	texts = append(texts, fmt.Sprintf("%+v", s))

	texts = append(texts, log.String(), fmt.Sprintf("%+v", c.Endpoint()))
	for _, text := range texts {
		requireNoSecret(t, text, forms...)
	}
}

// A secret that begins with another one must not leave its tail behind.
func TestLongestSecretFirst(t *testing.T) {
	t.Parallel()
	_, c := bench(t, Options{})
	c.Hide(secret.New("abc"), secret.New("abcdef"), secret.New("abcd"))
	require.Equal(t, "x XXXX XXXX y", c.scrub("x abcdef abc y"))
	require.Empty(t, c.scrub(""))
}

func TestLongIssueIsCut(t *testing.T) {
	t.Parallel()
	f, c := bench(t, Options{})
	f.on("GET /nvue_v1/system", reply{status: 500, body: strings.Repeat("ä", 5000)})
	e, ok := errors.AsType[*Error](c.Hello(t.Context()))
	require.True(t, ok)
	require.LessOrEqual(t, len(e.Issue), maxText+3)
	require.True(t, strings.HasSuffix(e.Issue, "ä..."))
	require.NotContains(t, e.Issue, "\ufffd")
}

// A chunked answer names no length; it is cut off while it streams.
func TestStreamedAnswerIsCapped(t *testing.T) {
	t.Parallel()
	listener := loopback(t)
	f := newFakeSwitch(t, listener, newAuthority(t).server(nil, "127.0.0.1"))
	f.server.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		chunk := bytes.Repeat([]byte("x"), 1<<20)
		for range 64 {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
		_, _ = io.WriteString(w, "end")
	})
	c := newClient(t, endpointOf(listener), Options{})
	open(t, c)
	_, err := c.Get(t.Context(), "/nvue_v1/x")
	require.ErrorIs(t, err, ErrBadResponse)
	require.ErrorIs(t, err, errTooLarge)
}
