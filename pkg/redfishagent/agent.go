// SPDX-License-Identifier: Apache-2.0

package redfishagent

import (
	"context"
	"maps"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/diagnostics"
	"github.com/rackbus/rackbus/pkg/fleet"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/process"
)

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
	opts.Diagnostics = diagnostics.FromConfig(env.Config, conn, env.Registry, string(family))
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
	opener, err := fleet.Opener(env.Config, family)
	if err != nil {
		return err
	}
	//nolint:contextcheck // an agent lives until its Run has drained it
	a, err := fleet.New(env, conn, fleet.Work{Family: family, Opener: opener, Handlers: devices.Handlers(), Queries: devices.Queries()})
	if err != nil {
		return err
	}
	return a.Run(ctx)
}
