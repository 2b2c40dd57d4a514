// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// scrapesAtOnce bounds the work scrapers can cause.
const scrapesAtOnce = 4

// ServerOptions tune a Server. Addr and Gatherer are required.
type ServerOptions struct {
	Addr      string // host:port to listen on
	TLS       *tls.Config
	Gatherer  prometheus.Gatherer
	Readiness *Readiness // nil is always ready
	Logger    *slog.Logger

	ReadTimeout     time.Duration // of a request, headers included; default 5 s
	WriteTimeout    time.Duration // of a response; default 30 s
	IdleTimeout     time.Duration // of a kept connection; default 60 s
	ShutdownTimeout time.Duration // for requests in flight at the end; default 2 s
}

// Server answers GET /metrics (Prometheus text), /healthz (the process runs)
// and /readyz (it can do its work; 503 lists what cannot).
type Server struct {
	opts ServerOptions
	http *http.Server
}

// NewServer returns a server that is not listening yet.
func NewServer(opts ServerOptions) *Server {
	if opts.Readiness == nil {
		opts.Readiness = &Readiness{}
	}
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	for value, standard := range map[*time.Duration]time.Duration{
		&opts.ReadTimeout:     5 * time.Second,
		&opts.WriteTimeout:    30 * time.Second,
		&opts.IdleTimeout:     time.Minute,
		&opts.ShutdownTimeout: 2 * time.Second,
	} {
		if *value <= 0 {
			*value = standard
		}
	}
	errorLog := slog.NewLogLogger(opts.Logger.Handler(), slog.LevelWarn)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(opts.Gatherer, promhttp.HandlerOpts{
		ErrorLog:            errorLog,
		MaxRequestsInFlight: scrapesAtOnce,
		Timeout:             opts.WriteTimeout,
	}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if err := opts.Readiness.Check(r.Context()); err != nil {
			answer(w, http.StatusServiceUnavailable, RedactText(err.Error()))
			return
		}
		answer(w, http.StatusOK, "ok")
	})
	return &Server{opts: opts, http: &http.Server{
		Handler:      mux,
		TLSConfig:    opts.TLS,
		ReadTimeout:  opts.ReadTimeout,
		WriteTimeout: opts.WriteTimeout,
		IdleTimeout:  opts.IdleTimeout,
		ErrorLog:     errorLog,
	}}
}

func answer(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text+"\n") // a gone client is no fault of ours
}

// Run listens on the configured address and serves until ctx ends. An address
// that cannot be bound is an error.
func (s *Server) Run(ctx context.Context) error {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", s.opts.Addr)
	if err != nil {
		return fmt.Errorf("listen for metrics: %w", err)
	}
	return s.Serve(ctx, l)
}

// Serve is Run on a listener of the caller, which it closes. It can be called
// once.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	served := make(chan error, 1)
	go func() {
		if s.opts.TLS != nil {
			served <- s.http.ServeTLS(l, "", "")
			return
		}
		served <- s.http.Serve(l)
	}()
	select {
	case err := <-served:
		return fmt.Errorf("serve metrics: %w", err)
	case <-ctx.Done():
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.opts.ShutdownTimeout)
	defer cancel()
	if err := s.http.Shutdown(stop); err != nil {
		err = errors.Join(err, s.http.Close())
		s.opts.Logger.Warn("metrics listener closed with requests in flight", "err", err)
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve metrics: %w", err)
	}
	return nil
}
