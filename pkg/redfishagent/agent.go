// SPDX-License-Identifier: Apache-2.0

package redfishagent

import (
	"context"
	"fmt"
	"maps"
	"regexp"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/failpoint"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/process"
	"github.com/rackbus/rackbus/pkg/seal"
	"github.com/rackbus/rackbus/pkg/telemetry"
)

func newAgent(env *process.Env, conn *bus.Conn, family node.Family, devices *Devices) (*agent.Agent, error) {
	cfg := env.Config
	seeds, err := seal.LoadSeeds(cfg.KeyDir(), family)
	if err != nil {
		return nil, fmt.Errorf("start %s agent: %w", family, err)
	}
	opener, err := seal.NewOpener(seeds, seal.OpenerOptions{})
	if err != nil {
		return nil, fmt.Errorf("start %s agent: %w", family, err)
	}
	points, err := failpoint.FromEnv()
	if err != nil {
		return nil, fmt.Errorf("start %s agent: %s: %w", family, failpoint.EnvVar, err)
	}
	a, err := agent.New(agent.Options{
		Conn: conn, Family: family, Instance: env.Instance, Version: semver(telemetry.Version()), Opener: opener,
		Handlers: devices.Handlers(), Queries: devices.Queries(),
		MaxInFlight: cfg.Agent.MaxInFlight, MaxStuck: uint32(cfg.Agent.MaxStuck), DrainTimeout: cfg.Agent.DrainTimeout,
		ProgressInterval: cfg.BusTiming().ProgressInterval,
		Failpoints:       points,
		Registerer:       env.Registry, Logger: env.Log,
	})
	if err != nil {
		return nil, err
	}
	env.Readiness.Add(string(family)+"-agent", func(context.Context) error { return a.Ready() })
	return a, nil
}

// Run is a program that is nothing but the agent of one family.
func Run(ctx context.Context, env *process.Env, family node.Family, with ...With) error {
	return process.OnBus("agent-"+string(family), func(ctx context.Context, env *process.Env, conn *bus.Conn) error {
		return RunOn(ctx, env, conn, family, with...)
	})(ctx, env)
}

// With adds to the options what a family's agent has beside Redfish.
type With func(*Options)

// WithInBand gives the agent the means to flash network devices from the host.
func WithInBand(inBand InBand) With { return func(o *Options) { o.InBand = inBand } }

// WithHandler gives the agent one more type of job.
func WithHandler(t job.Type, h agent.Handler) With {
	return func(o *Options) {
		o.Handlers = maps.Clone(o.Handlers)
		if o.Handlers == nil {
			o.Handlers = map[job.Type]agent.Handler{}
		}
		o.Handlers[t] = h
	}
}

// RunOn runs the agent of one family, as configured, on a connection of the
// caller until ctx ends.
func RunOn(ctx context.Context, env *process.Env, conn *bus.Conn, family node.Family, with ...With) error {
	opts := FromConfig(env.Config, family)
	opts.Artifacts = artifactsOf(env, conn)
	for _, w := range with {
		w(&opts)
	}
	// Shelves take pushes only.
	if cfg := env.Config.Agent; cfg.ImageURL != "" && family == node.FamilyCompute {
		images, err := NewImageServer(cfg.ImageURL)
		if err != nil {
			return err
		}
		opts.Images = images
		stop, err := images.start(ctx, cfg.ImageListen, env.Log)
		if err != nil {
			return err
		}
		defer stop()
	}
	devices := New(opts)
	defer devices.Close()
	a, err := newAgent(env, conn, family, devices) //nolint:contextcheck // an agent lives until its Run has drained it
	if err != nil {
		return err
	}
	return a.Run(ctx)
}

// semverPattern is what the services of NATS accept as a version.
var semverPattern = regexp.MustCompile(`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`)

// semver gives the version in the form that NATS services need.
func semver(version string) string {
	if !semverPattern.MatchString(version) {
		return "0.0.0"
	}
	return version
}
