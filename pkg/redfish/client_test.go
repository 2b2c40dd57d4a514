// SPDX-License-Identifier: Apache-2.0

package redfish_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/redfish"
	"github.com/rackbus/rackbus/pkg/secret"
)

func TestF11EveryRequestCarriesBasicAuthAndAsksForIdentity(t *testing.T) {
	t.Parallel()
	b := newBMC(t)
	b.system(`"On"`)
	_, err := b.client(gb200).PowerState(t.Context())
	require.NoError(t, err)
	got := b.requests("GET", systemURI)
	require.Len(t, got, 1)
	req := http.Request{Header: got[0].header}
	name, password, basic := req.BasicAuth()
	require.True(t, basic)
	require.Equal(t, user, name)
	require.Equal(t, planted, password)
	require.Equal(t, "identity", got[0].header.Get("Accept-Encoding"))
}

func TestEndpointFaults(t *testing.T) {
	t.Parallel()
	good := redfish.Endpoint{Address: "192.0.2.7", Username: user, Password: secret.New(planted)}
	for name, spoil := range map[string]func(*redfish.Endpoint){
		"no address":       func(e *redfish.Endpoint) { e.Address = "" },
		"address is a URL": func(e *redfish.Endpoint) { e.Address = "http://192.0.2.7/x" },
		"no user":          func(e *redfish.Endpoint) { e.Username = "" },
		"no password":      func(e *redfish.Endpoint) { e.Password = secret.Value{} },
		"colon in user":    func(e *redfish.Endpoint) { e.Username = "a:b" },
	} {
		t.Run(name, func(t *testing.T) {
			e := good
			spoil(&e)
			_, err := redfish.New(e, redfish.Options{Profile: profile(t, gb200)})
			require.Equal(t, redfish.CodeInvalidArgument, redfish.CodeOf(err))
		})
	}
	for _, address := range []string{"192.0.2.7", "2001:db8::7", "[2001:db8::7]", "bmc-7.example"} {
		e := good
		e.Address = address
		_, err := redfish.New(e, redfish.Options{Profile: profile(t, gb200), Pool: redfish.NewPool(redfish.PoolOptions{})})
		require.NoError(t, err, address)
	}
}

func TestStatusBecomesCode(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		answer http.HandlerFunc
		code   redfish.ErrorCode
	}{
		{reply(401, ""), redfish.CodeUnauthenticated},
		{reply(403, ""), redfish.CodeForbidden},
		{reply(404, ""), redfish.CodeNotFound},
		{reply(408, ""), redfish.CodeTimeout},
		{reply(409, ""), redfish.CodeConflict},
		{reply(429, ""), redfish.CodeUnavailable},
		{reply(500, ""), redfish.CodeInternal},
		{reply(502, ""), redfish.CodeUnavailable},
		{reply(503, ""), redfish.CodeUnavailable},
		{refuse(503, "Base.1.8.SessionLimitExceeded", "no slot"), redfish.CodeUnavailable},
		{refuse(400, "Base.1.8.SessionLimitExceeded", "no slot"), redfish.CodeUnavailable},
		{ok("<html>busy</html>"), redfish.CodeInvalidResponse},
		{ok(`{"PowerState":`), redfish.CodeInvalidResponse},
		{ok(`[]`), redfish.CodeInvalidResponse},
		{ok(``), redfish.CodeInvalidResponse},
		{cut, redfish.CodeUnavailable},
	} {
		b := newBMC(t)
		b.on(systemURI, c.answer)
		_, err := b.client(gb200).PowerState(t.Context())
		require.Equalf(t, c.code, redfish.CodeOf(err), "%v", err)
		require.False(t, asError(t, err).OutcomeUnknown(), "a read changes nothing")
	}
}

func TestNoConnection(t *testing.T) {
	t.Parallel()
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := gone.Addr().(*net.TCPAddr).Port
	require.NoError(t, gone.Close())
	b := newBMC(t)
	b.endpoint.Port = uint16(port)
	err = b.client(gb200).Power(t.Context(), redfish.PowerOn)
	require.Equal(t, redfish.CodeConnectionRefused, redfish.CodeOf(err))
	require.False(t, asError(t, err).Sent)

	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	b.endpoint.Port = uint16(plain.Listener.Addr().(*net.TCPAddr).Port)
	_, err = b.client(gb200).PowerState(t.Context())
	require.Equal(t, redfish.CodeTLS, redfish.CodeOf(err))

	failing := redfish.NewPool(redfish.PoolOptions{Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.DNSError{Err: "no such host", Name: "bmc", IsNotFound: true}
	}})
	_, err = b.client(gb200, func(o *redfish.Options) { o.Pool = failing }).PowerState(t.Context())
	require.Equal(t, redfish.CodeDNS, redfish.CodeOf(err))
}

func TestCertificateIsCheckedWhenACAIsGiven(t *testing.T) {
	t.Parallel()
	b := newBMC(t)
	b.system(`"On"`)
	with := func(roots *x509.CertPool, host string) error {
		pool := redfish.NewPool(redfish.PoolOptions{TLS: redfish.TLSOptions{RootCAs: roots}})
		defer pool.Close()
		e := b.endpoint
		e.HostName = host
		c, err := redfish.New(e, redfish.Options{Profile: profile(t, gb200), Pool: pool})
		require.NoError(t, err)
		_, err = c.PowerState(t.Context())
		return err
	}
	roots := x509.NewCertPool()
	roots.AddCert(b.srv.Certificate())
	require.NoError(t, with(roots, ""))
	require.NoError(t, with(roots, "example.com"))
	require.Equal(t, redfish.CodeTLS, redfish.CodeOf(with(roots, "other.invalid")))
	require.Equal(t, redfish.CodeTLS, redfish.CodeOf(with(x509.NewCertPool(), "")))
}

func TestF12SilentDeviceTimesOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newPipeBMC(t)
		defer b.close()
		b.on(systemURI, hang)
		started := time.Now()
		_, err := b.client(gb200, defaults).PowerState(t.Context())
		require.Equal(t, redfish.CodeTimeout, redfish.CodeOf(err))
		require.Equal(t, 30*time.Second, time.Since(started))
	})
}

func TestF12SilentHandshakeTimesOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		held := make(chan net.Conn, 4)
		pool := redfish.NewPool(redfish.PoolOptions{Dial: func(context.Context, string, string) (net.Conn, error) {
			client, server := net.Pipe()
			held <- server
			return client, nil
		}})
		defer pool.Close()
		c, err := redfish.New(redfish.Endpoint{Address: "192.0.2.1", Username: user, Password: secret.New(planted)},
			redfish.Options{Profile: profile(t, gb200), Pool: pool})
		require.NoError(t, err)
		started := time.Now()
		_, err = c.PowerState(t.Context())
		require.Equal(t, redfish.CodeTimeout, redfish.CodeOf(err))
		require.LessOrEqual(t, time.Since(started), 30*time.Second)
		require.NoError(t, (<-held).Close())
	})
}

func TestCallerEndsARequest(t *testing.T) {
	t.Parallel()
	b := newBMC(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("operator said so")
	b.on(systemURI, func(_ http.ResponseWriter, r *http.Request) {
		cancel(why)
		<-r.Context().Done()
	})
	_, err := b.client(gb200).PowerState(ctx)
	require.Equal(t, redfish.CodeCanceled, redfish.CodeOf(err))
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, why)
}

func TestAnswersHaveALimit(t *testing.T) {
	t.Parallel()
	b := newBMC(t)
	b.on(systemURI, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"x":"`)
		chunk := bytes.Repeat([]byte("a"), 1<<20)
		for range 9 {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	})
	_, err := b.client(gb200).PowerState(t.Context())
	require.Equal(t, redfish.CodeInvalidResponse, redfish.CodeOf(err))
}

func TestF13Redirects(t *testing.T) {
	t.Parallel()
	for _, status := range []int{301, 302, 307, 308} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			b := newBMC(t)
			b.on("GET "+systemURI, reply(status, "", "Location", systemURI+"/"))
			b.on("GET "+systemURI+"/", ok(`{"Id":"System_0","Actions":{"#ComputerSystem.Reset":{"target":"`+resetURI+`"}}}`))
			b.on("POST "+resetURI, reply(status, "", "Location", resetURI+"/"))
			b.on("POST "+resetURI+"/", reply(204, ""))
			require.NoError(t, b.client(gb200).Power(t.Context(), redfish.PowerOn))
			posts := b.requests("POST", resetURI+"/")
			require.Len(t, posts, 1)
			require.JSONEq(t, `{"ResetType":"On"}`, posts[0].body)
			require.NotEmpty(t, posts[0].header.Get("Authorization"))
		})
	}
}

func TestF13ForeignRedirectIsRefused(t *testing.T) {
	t.Parallel()
	foreign := newBMC(t)
	for name, location := range map[string]string{
		"other host":   foreign.srv.URL + systemURI,
		"plain http":   "http://127.0.0.1" + systemURI,
		"no scheme":    "//evil.example/redfish/v1",
		"user info":    "https://a:b@127.0.0.1/redfish/v1",
		"climbing":     "/redfish/v1/%2e%2e/login",
		"back to self": systemURI,
		"none":         "",
	} {
		t.Run(name, func(t *testing.T) {
			b := newBMC(t)
			b.on(systemURI, reply(308, "", "Location", location))
			_, err := b.client(gb200).PowerState(t.Context())
			require.Equal(t, redfish.CodeInvalidResponse, redfish.CodeOf(err))
			require.NotContains(t, err.Error(), "evil")
		})
	}
	require.Empty(t, foreign.requests("", "/"), "credentials went to another host")

	b := newBMC(t)
	b.on(systemURI, reply(308, "", "Location", "/pong"))
	b.on("/pong", reply(308, "", "Location", systemURI))
	_, err := b.client(gb200).PowerState(t.Context())
	require.Equal(t, redfish.CodeInvalidResponse, redfish.CodeOf(err))
	require.Len(t, b.requests("GET", "/"), 6, "redirects in circles end")
}

func TestLinksOutsideTheDeviceAreNotFollowed(t *testing.T) {
	t.Parallel()
	foreign := newBMC(t)
	for _, target := range []string{foreign.srv.URL + "/x", "//evil.example/x", "redfish/v1/x", "/redfish/v1/../x",
		"/redfish/v1/%2E%2e/x", `/redfish\..\x`, "/redfish/v1/a%2fb", "/redfish/v1/a%5Cb", "/redfish/v1/a\nb"} {
		b := newBMC(t)
		body := fmt.Sprintf(`{"Id":"System_0","Actions":{"#ComputerSystem.Reset":{"target":%q}}}`, target)
		b.on(systemURI, ok(body))
		err := b.client(gb200).Power(t.Context(), redfish.PowerOn)
		require.Equal(t, redfish.CodeInvalidArgument, redfish.CodeOf(err), target)
		require.NotContains(t, err.Error(), target)
		require.Empty(t, b.requests("POST", "/"))
	}
	require.Empty(t, foreign.requests("", "/"))
}

func TestCredentialsNeverShow(t *testing.T) {
	t.Parallel()
	b := newBMC(t)
	b.on(systemURI, func(w http.ResponseWriter, r *http.Request) {
		// A device that echoes what it got.
		refuse(401, "Base.1.8.NoValidSession", "refused "+planted+" "+r.Header.Get("Authorization"))(w, r)
	})
	var log bytes.Buffer
	c := b.client(gb200, func(o *redfish.Options) {
		o.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	_, err := c.PowerState(t.Context())
	e := asError(t, err)
	require.True(t, e.CredentialFault())
	for _, shown := range []string{err.Error(), fmt.Sprintf("%+v", e), fmt.Sprintf("%#v", *e), log.String()} {
		require.NotContains(t, shown, planted)
		require.NotContains(t, shown, "YWRtaW46")
	}
	require.Contains(t, err.Error(), "NoValidSession")
	require.NotEmpty(t, log.String())
}

func TestG4CredentialFaultIsAskedOnce(t *testing.T) {
	t.Parallel()
	for _, status := range []int{401, 403} {
		b := newBMC(t)
		for _, route := range []string{systemURI, tasksURI + "/1", "/redfish/v1", updateURI, inventoryURI, "/redfish/v1/Chassis", "/redfish/v1/Chassis/Chassis_0"} {
			b.on(route, reply(status, ""))
		}
		c := b.client(gb200)
		ctx := t.Context()
		calls := map[string]func() error{
			"power":      func() error { _, err := c.PowerState(ctx); return err },
			"wait power": func() error { return c.WaitPower(ctx, redfish.PowerStateOn, time.Minute) },
			"step":       func() error { return c.RunStep(ctx, redfish.StepForceOff, nil) },
			"task": func() error {
				_, err := c.WaitTask(ctx, redfish.TaskByID("1"), redfish.PollOptions{Interval: time.Millisecond})
				return err
			},
			"ready":      func() error { return c.WaitReady(ctx) },
			"bmc":        func() error { return c.WaitBMC(ctx) },
			"background": func() error { return c.WaitBackgroundCopy(ctx, nil) },
			"writable":   func() error { return c.CheckWritable(ctx) },
			"inventory":  func() error { _, err := c.FirmwareInventory(ctx); return err },
		}
		for name, call := range calls {
			before := len(b.requests("", "/"))
			err := call()
			require.Truef(t, asError(t, err).CredentialFault(), "%s: %v", name, err)
			require.Lenf(t, b.requests("", "/"), before+1, "%s asked again", name)
		}
	}
}

func TestRetryAfterIsRead(t *testing.T) {
	t.Parallel()
	b := newBMC(t)
	b.on(systemURI, reply(503, "", "Retry-After", "17"))
	_, err := b.client(gb200).PowerState(t.Context())
	require.Equal(t, 17*time.Second, asError(t, err).RetryAfter)
}

func TestErrorTakesTheTellingMessage(t *testing.T) {
	t.Parallel()
	b := newBMC(t)
	b.system(`"On"`)
	b.on("POST "+resetURI, reply(400, `{"error":{"code":"x","@Message.ExtendedInfo":[
		{"MessageId":"Base.1.8.Success","MessageSeverity":"OK","MessageArgs":[7]},
		{"MessageId":"Base.1.8.ActionParameterUnknown","Message":`+fmt.Sprintf("%q", strings.Repeat("long ", 1000))+`,"Severity":"Warning"}]}}`))
	e := asError(t, b.client(gb200).Power(t.Context(), redfish.PowerForceOn))
	require.Equal(t, "Base.1.8.ActionParameterUnknown", e.MessageID)
	require.Equal(t, redfish.CodeInvalidArgument, e.Code)
	require.EqualValues(t, "Warning", e.Severity)
	require.Less(t, len(e.Error()), 2000)
}
