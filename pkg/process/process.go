// SPDX-License-Identifier: Apache-2.0

// Package process is the frame every Rackbus program runs in: flags,
// configuration, logs, the metrics listener, the bus connection, signals and
// exit codes. A program adds only what it does.
package process

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/certs"
	"github.com/rackbus/rackbus/pkg/config"
	"github.com/rackbus/rackbus/pkg/telemetry"
)

// Exit codes of every program.
const (
	ExitOK    = 0
	ExitFault = 1
	ExitUsage = 2
)

// Env is what a program gets to work with.
type Env struct {
	Config    *config.Config
	Log       *slog.Logger
	Registry  *prometheus.Registry
	Readiness *telemetry.Readiness
	// Instance names the process in records and on the bus.
	Instance string
	// Tracer makes the spans of the process.
	Tracer trace.TracerProvider
}

// Program is what a process does between its start and the end of ctx.
type Program struct {
	// Name of the binary and one line on what it does, for --help.
	Name string
	Does string
	// Process decides which sections of the configuration are checked.
	Process config.Process
	// Flags adds flags of its own; it may be nil.
	Flags func(*flag.FlagSet)
	// Options changes how the configuration is loaded; it may be nil.
	Options func(*config.Options)
	// Run works until ctx ends.
	Run func(ctx context.Context, env *Env) error
}

// Main runs a program and returns its exit code: 0 after a clean stop, 1 when
// it could not start or failed, 2 for a usage or configuration error.
func Main(p Program, args []string, stdout, stderr io.Writer) int {
	var flags config.Flags
	set := flag.NewFlagSet(p.Name, flag.ContinueOnError)
	set.SetOutput(stderr)
	set.Usage = func() {
		fmt.Fprintf(stderr, "%s: %s\n\nUsage: %s [flags]\n\nFlags:\n", p.Name, p.Does, p.Name)
		set.PrintDefaults()
		fmt.Fprintf(stderr, "\nEvery key of the configuration can also be set by environment, for example RACKBUS_BUS__REPLICAS=3.\n")
	}
	flags.Bind(set)
	if p.Flags != nil {
		p.Flags(set)
	}
	switch err := set.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return ExitOK
	case err != nil:
		return ExitUsage
	case set.NArg() > 0:
		fmt.Fprintf(stderr, "%s: unexpected argument %q; see --help\n", p.Name, set.Arg(0))
		return ExitUsage
	case flags.Version:
		fmt.Fprintln(stdout, telemetry.Version())
		return ExitOK
	}
	opts := flags.Options(p.Process)
	if p.Options != nil {
		p.Options(&opts)
	}
	cfg, err := config.Load(opts)
	if err != nil {
		path := cmp.Or(opts.Path, config.DefaultPath)
		fmt.Fprintf(stderr, "%s: configuration error: %s\n(file %s, environment RACKBUS_..., flags)\n",
			p.Name, strings.ReplaceAll(err.Error(), "\n", "\n  "), path)
		if errors.Is(err, config.ErrNotFound) {
			fmt.Fprintln(stderr, "Name the file with --config FILE; rackctl bootstrap makes one for each process (docs/running.md).")
		}
		return ExitUsage
	}
	if flags.PrintConfig {
		fmt.Fprint(stdout, cfg.String())
		return ExitOK
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := Run(ctx, p, cfg, stdout); err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", p.Name, err)
		return ExitFault
	}
	return ExitOK
}

// Run runs a program with a configuration until ctx ends, and its metrics
// listener beside it.
func Run(ctx context.Context, p Program, cfg *config.Config, logs io.Writer) error {
	opts := cfg.LogOptions()
	opts.Output = logs
	env := &Env{
		Config: cfg, Log: telemetry.NewLogger(opts), Registry: telemetry.NewRegistry(),
		Readiness: &telemetry.Readiness{}, Instance: instance(p.Name),
	}
	// Before a program has added its checks, having none must not read as ready.
	env.Readiness.Add(startCheck, func(context.Context) error { return errStarting })
	env.Registry.MustRegister(env.Readiness)
	listener, err := env.metricsServer()
	if err != nil {
		return err
	}
	tracing, err := env.tracing(ctx, p.Name)
	if err != nil {
		return err
	}
	env.Tracer = tracing.Provider
	defer func() {
		if err := tracing.Close(ctx, traceFlush); err != nil {
			env.Log.Warn("traces not sent", "err", err)
		}
	}()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	metrics := make(chan error, 1)
	go func() {
		err := listener.Run(ctx)
		if err != nil {
			cancel()
		}
		metrics <- err
	}()
	env.Log.Info("starting", "program", p.Name, "version", telemetry.Version(), "instance", env.Instance)
	err = p.Run(ctx, env)
	cancel()
	err = errors.Join(ignoreCanceled(err), <-metrics)
	env.Log.Info("stopped", "program", p.Name)
	return err
}

func ignoreCanceled(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// instance names this run of a program. Process ids are not enough: in
// containers they are all 1.
func instance(name string) string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s@%s-%s", strings.ReplaceAll(name, " ", "-"), host, uuid.NewString()[:8])
}

func (e *Env) metricsServer() (*telemetry.Server, error) {
	var tlsConfig *tls.Config
	if e.Config.Metrics.TLS {
		source, err := certs.Load(certs.Files{
			Cert: e.Config.TLS.Cert, Key: e.Config.TLS.Key, CA: e.Config.TLS.CA,
		}, certs.Options{Logger: e.Log})
		if err != nil {
			return nil, fmt.Errorf("metrics listener: %w", err)
		}
		if tlsConfig, err = source.AnonymousServer(); err != nil {
			return nil, fmt.Errorf("metrics listener: %w", err)
		}
	}
	return telemetry.NewServer(telemetry.ServerOptions{
		Addr: e.Config.MetricsAddr(), TLS: tlsConfig, Gatherer: e.Registry, Readiness: e.Readiness, Logger: e.Log,
	}), nil
}

// traceFlush is how long the last spans may take to be sent.
const traceFlush = 2 * time.Second

func (e *Env) tracing(ctx context.Context, program string) (*telemetry.Tracing, error) {
	t := e.Config.Tracing
	opts := telemetry.TracingOptions{
		Endpoint: t.Endpoint, SampleRatio: t.SampleRatio, Service: strings.ReplaceAll(program, " ", "-"), Instance: e.Instance,
	}
	if t.Endpoint != "" && !t.Insecure {
		opts.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
		if t.TLSCA != "" {
			pem, err := os.ReadFile(t.TLSCA)
			if err != nil {
				return nil, fmt.Errorf("tracing.tls_ca: %w", err)
			}
			opts.TLS.RootCAs = x509.NewCertPool()
			if !opts.TLS.RootCAs.AppendCertsFromPEM(pem) {
				return nil, fmt.Errorf("tracing.tls_ca: %s has no certificate", t.TLSCA)
			}
		}
	}
	if t.Endpoint != "" {
		// The exporter tells nobody else, and would write past the log.
		otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { e.Log.Warn("traces lost", "err", err) }))
	}
	return telemetry.NewTracing(ctx, opts)
}

// Connect opens the bus for a role, and makes readiness follow the connection.
func (e *Env) Connect(role string) (*bus.Conn, error) {
	opts, err := e.BusOptions(role)
	if err != nil {
		return nil, err
	}
	conn, err := bus.Connect(opts)
	if err != nil {
		return nil, err
	}
	e.Readiness.Add("bus", func(context.Context) error { return conn.Ready() })
	e.Started()
	return conn, nil
}

// startCheck is the readiness check of a program that is still starting.
const startCheck = "start"

var errStarting = errors.New("the program is starting")

// Started tells that the checks which follow the start are in place. Connect
// does it; a program that does not use Connect has to.
func (e *Env) Started() {
	e.Readiness.Add(startCheck, func(context.Context) error { return nil })
}

// OnBus makes a program of run: it opens the connection of a role, runs on it,
// and closes it after run has returned. When the broker refuses the process for
// good, run is asked to end, and the program ends with an error.
func OnBus(role string, run func(ctx context.Context, env *Env, conn *bus.Conn) error) func(context.Context, *Env) error {
	return func(ctx context.Context, env *Env) error {
		conn, err := env.Connect(role)
		if err != nil {
			return err
		}
		defer conn.Close()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		go func() {
			select {
			case <-conn.Refused():
				cancel()
			case <-ctx.Done():
			}
		}()
		err = run(ctx, env, conn)
		if refusal := conn.Refusal(); refusal != nil {
			return refusal
		}
		return err
	}
}

// BusOptions are the connection options that the configuration tells.
func (e *Env) BusOptions(role string) (bus.Options, error) {
	b, t := e.Config.Bus, e.Config.BusTiming()
	opts := bus.Options{
		URLs: b.URLs, Name: e.Instance, Role: role, NKeySeedFile: b.NKeySeedFile, CredsFile: b.CredsFile,
		TLSHandshakeFirst: b.TLSHandshakeFirst, Replicas: b.Replicas, Logger: e.Log,
		Timing: bus.Timing{
			SessionTTL: t.SessionTTL, SessionRenew: t.SessionRenew, SessionMargin: t.SessionMargin,
			AckWait: t.AckWait, WorkInterval: t.WorkInterval, NakBusy: t.NakBusy,
			FoldTTL: t.FoldTTL, FoldRenew: t.FoldRenew,
			Coalesce: bus.DefaultTiming(b.Replicas).Coalesce, Request: b.RequestTimeout,
		},
	}
	if b.TLSCA == "" {
		return opts, nil
	}
	source, err := certs.Load(certs.Files{Cert: b.TLSCert, Key: b.TLSKey, CA: b.TLSCA}, certs.Options{Logger: e.Log})
	if err != nil {
		return opts, fmt.Errorf("bus TLS: %w", err)
	}
	opts.TLSRoots = source.Roots
	if b.TLSCert != "" {
		opts.TLSCertificate = source.Certificate
	}
	return opts, nil
}
