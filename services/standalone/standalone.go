// SPDX-License-Identifier: Apache-2.0

// Package standalone runs the whole of Rackbus in one process, with an embedded
// nats-server whose store survives restarts. It runs the same code as the
// separate processes and adds nothing of its own to what they do.
package standalone

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/bus/broker"
	"github.com/rackbus/rackbus/pkg/config"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/process"
	"github.com/rackbus/rackbus/pkg/redfishagent"
	"github.com/rackbus/rackbus/pkg/seal"
	"github.com/rackbus/rackbus/services/api"
	computeagent "github.com/rackbus/rackbus/services/compute-agent"
	"github.com/rackbus/rackbus/services/jobs"
	switchagent "github.com/rackbus/rackbus/services/switch-agent"
)

// Flags are the flags of `rackbus serve`.
type Flags struct {
	Data    string
	GRPC    []string
	Metrics []string
	Console []string
}

// Program is `rackbus serve`.
func Program() process.Program {
	var flags Flags
	return process.Program{
		Name: "rackbus serve", Does: "runs all of Rackbus in one process, with its own bus",
		Process: config.ProcessStandalone, Run: Run,
		Flags: func(set *flag.FlagSet) {
			set.StringVar(&flags.Data, "data", "", "directory of everything that is kept (same as --set standalone.data_dir=...)")
			set.Func("grpc", "`host:port` of the gRPC listener (default 0.0.0.0:8801)", func(v string) (err error) {
				flags.GRPC, err = addressSettings(v, "listen", "port")
				return err
			})
			set.Func("metrics", "`host:port` of the listener for /metrics, /healthz and /readyz (default 0.0.0.0:8802)", func(v string) (err error) {
				flags.Metrics, err = addressSettings(v, "metrics.listen", "metrics.port")
				return err
			})
			set.Func("console", "`host:port` of the web console (default 0.0.0.0:8803; --set console.enabled=false turns it off)", func(v string) (err error) {
				flags.Console, err = addressSettings(v, "console.listen", "console.port")
				return err
			})
		},
		Options: flags.apply,
	}
}

// apply turns the flags into settings, which outrank file and environment.
func (f *Flags) apply(o *config.Options) {
	o.Optional = true
	o.Derive = deriveTLS
	if f.Data != "" {
		o.Set = append(o.Set, "standalone.data_dir="+f.Data)
	}
	o.Set = slices.Concat(o.Set, f.GRPC, f.Metrics, f.Console)
}

// addressSettings splits host:port into the settings of both. No host means all
// addresses.
func addressSettings(address, hostKey, portKey string) ([]string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, errors.New("must be host:port, for example 127.0.0.1:8801")
	}
	settings := []string{portKey + "=" + port}
	if host != "" {
		settings = append(settings, hostKey+"="+host)
	}
	return settings, nil
}

// Run starts the broker, then the services, and stops them in the reverse order.
func Run(ctx context.Context, env *process.Env) error {
	if err := ensureKeys(env.Config); err != nil {
		return err
	}
	lock, err := lockData(env.Config.Standalone.DataDir)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	server, err := startBroker(env)
	if err != nil {
		return err
	}
	defer server.Close()

	// The jobs service provisions the bus, so the others can wait for it.
	return runTogether(ctx, env, server, []service{
		{"jobs", "jobs", func(ctx context.Context, conn *bus.Conn) error { return jobs.RunOn(ctx, env, conn) }},
		{"api", "api", func(ctx context.Context, conn *bus.Conn) error { return api.RunOn(ctx, env, conn) }},
		{"compute-agent", "agent-compute", func(ctx context.Context, conn *bus.Conn) error { return computeagent.RunOn(ctx, env, conn) }},
		agentService(env, node.FamilyPowerShelf),
		{"switch-agent", "agent-switch", func(ctx context.Context, conn *bus.Conn) error { return switchagent.RunOn(ctx, env, conn) }},
	})
}

// service is one of the services with the role it has on the bus.
type service struct {
	name string
	role string
	run  func(ctx context.Context, conn *bus.Conn) error
}

func agentService(env *process.Env, family node.Family) service {
	return service{string(family) + "-agent", "agent-" + string(family), func(ctx context.Context, conn *bus.Conn) error {
		return redfishagent.RunOn(ctx, env, conn, family)
	}}
}

// runTogether runs services until ctx ends or one of them fails: one service
// without the others would look alive and do nothing.
func runTogether(ctx context.Context, env *process.Env, server *broker.Broker, services []service) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	errs := make([]error, len(services))
	for i, s := range services {
		conn, err := connect(env, server, s.role)
		if err != nil {
			cancel()
			errs[i] = fmt.Errorf("%s: %w", s.name, err)
			break
		}
		wg.Go(func() {
			defer conn.Close()
			if err := s.run(ctx, conn); err != nil && !errors.Is(err, context.Canceled) {
				errs[i] = fmt.Errorf("%s: %w", s.name, err)
				env.Log.Error("service ended", "op", s.name, "err", err)
			}
			cancel()
		})
	}
	env.Started()
	wg.Wait()
	return errors.Join(errs...)
}

// connect gives each service a connection of its own, as in separate processes.
func connect(env *process.Env, server *broker.Broker, role string) (*bus.Conn, error) {
	opts, err := env.BusOptions(role)
	if err != nil {
		return nil, err
	}
	opts.URLs, opts.InProcess = nil, server.Server()
	opts.Name = env.Instance + "/" + role
	conn, err := bus.Connect(opts)
	if err != nil {
		return nil, err
	}
	env.Readiness.Add("bus "+role, func(context.Context) error { return conn.Ready() })
	return conn, nil
}

func startBroker(env *process.Env) (*broker.Broker, error) {
	cfg := env.Config
	key, err := seal.LoadAtRest(cfg.KeyDir())
	if err != nil {
		return nil, fmt.Errorf("start bus: %w", err)
	}
	opts := broker.Options{
		Name: "rackbus", StoreDir: filepath.Join(cfg.Standalone.DataDir, "bus"), DontListen: true,
		AtRestKey: key, Logger: env.Log,
	}
	if address := cfg.Standalone.BusListen; address != "" {
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, fmt.Errorf("start bus: %w", err)
		}
		opts.DontListen, opts.Host = false, host
		if opts.Port, err = strconv.Atoi(port); err != nil {
			return nil, fmt.Errorf("start bus: %w", err)
		}
	}
	server, err := broker.Start(opts)
	if err != nil {
		return nil, err
	}
	if !opts.DontListen {
		env.Log.Warn("the bus takes connections from everybody who reaches it", slog.String("listen", cfg.Standalone.BusListen))
	}
	env.Log.Info("bus started", slog.String("store", opts.StoreDir), slog.String("listen", cfg.Standalone.BusListen))
	return server, nil
}
