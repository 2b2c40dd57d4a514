// SPDX-License-Identifier: Apache-2.0

package telemetry_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/rackbus/rackbus/pkg/certs"
	"github.com/rackbus/rackbus/pkg/telemetry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve runs a server on a free port until the test ends.
func serve(t *testing.T, opts telemetry.ServerOptions) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	opts.Logger = slog.New(slog.DiscardHandler)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- telemetry.NewServer(opts).Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	return l.Addr().String()
}

func get(t *testing.T, config *tls.Config, method, url string) (int, string, http.Header) {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: 5 * time.Second}
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	require.NoError(t, err)
	resp, err := client.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(body), resp.Header
}

func TestServer(t *testing.T) {
	var ready telemetry.Readiness
	base := "http://" + serve(t, telemetry.ServerOptions{Gatherer: telemetry.NewRegistry(), Readiness: &ready})

	status, body, header := get(t, nil, "GET", base+"/metrics")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, header.Get("Content-Type"), "text/plain; version=0.0.4")
	require.Contains(t, body, `rackbus_build_info{go_version="go`)
	require.Contains(t, body, "go_goroutines")
	require.Contains(t, body, "process_open_fds")

	status, body, _ = get(t, nil, "GET", base+"/healthz")
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, "ok\n", body)
	status, _, _ = get(t, nil, "GET", base+"/readyz")
	require.Equal(t, http.StatusOK, status)

	busErr := errors.New("not connected password=x")
	ready.Add("bus", func(context.Context) error { return busErr })
	ready.Add("agents", func(context.Context) error { return errors.New("none") })
	ready.Add("disk", func(context.Context) error { return nil })
	status, body, _ = get(t, nil, "GET", base+"/readyz")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Equal(t, "agents: none\nbus: not connected password=XXXX\n", body)
	status, _, _ = get(t, nil, "GET", base+"/healthz")
	require.Equal(t, http.StatusOK, status, "a process that is not ready lives")

	ready.Add("bus", func(context.Context) error { return nil })
	ready.Add("agents", func(context.Context) error { return nil })
	status, _, _ = get(t, nil, "GET", base+"/readyz")
	require.Equal(t, http.StatusOK, status)

	for path, want := range map[string]int{"/": 404, "/debug/pprof/": 404, "/metrics/x": 404} {
		status, _, _ = get(t, nil, "GET", base+path)
		require.Equal(t, want, status, path)
	}
	status, _, _ = get(t, nil, "POST", base+"/metrics")
	require.Equal(t, http.StatusMethodNotAllowed, status)
}

func TestServerWithTLS(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, certs.InitCA(dir, nil))
	file := func(name string) string { return filepath.Join(dir, name) }
	source, err := certs.Load(certs.Files{Cert: file("server.crt"), Key: file("server.key")}, certs.Options{})
	require.NoError(t, err)
	config, err := source.AnonymousServer()
	require.NoError(t, err)
	trust, err := certs.Load(certs.Files{CA: file("ca.crt")}, certs.Options{})
	require.NoError(t, err)
	client, err := trust.Client("127.0.0.1")
	require.NoError(t, err)

	addr := serve(t, telemetry.ServerOptions{Gatherer: telemetry.NewRegistry(), TLS: config})
	status, _, _ := get(t, client, "GET", "https://"+addr+"/metrics")
	require.Equal(t, http.StatusOK, status)
	status, _, _ = get(t, nil, "GET", "http://"+addr+"/metrics")
	require.Equal(t, http.StatusBadRequest, status)
}

func TestRunFailsOnATakenPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	err = telemetry.NewServer(telemetry.ServerOptions{Addr: l.Addr().String(), Gatherer: telemetry.NewRegistry()}).Run(t.Context())
	var sys *os.SyscallError
	require.ErrorAs(t, err, &sys)
}

func TestAStuckCheckIsNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ready telemetry.Readiness
		release := make(chan struct{})
		ready.Add("stuck", func(context.Context) error { <-release; return nil })
		ready.Add("fine", func(context.Context) error { return nil })
		start := time.Now()
		err := ready.Check(t.Context())
		var not *telemetry.NotReady
		require.ErrorAs(t, err, &not)
		require.Len(t, not.Faults, 1)
		require.EqualError(t, err, "stuck: no answer within 2s")
		require.Equal(t, 2*time.Second, time.Since(start))
		close(release)
	})
}
