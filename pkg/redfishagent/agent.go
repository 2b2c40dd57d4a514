// SPDX-License-Identifier: Apache-2.0

package redfishagent

import (
	"context"
	"fmt"
	"regexp"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/failpoint"
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
func Run(ctx context.Context, env *process.Env, family node.Family) error {
	return process.OnBus("agent-"+string(family), func(ctx context.Context, env *process.Env, conn *bus.Conn) error {
		return RunOn(ctx, env, conn, family)
	})(ctx, env)
}

// RunOn runs the agent of one family, as configured, on a connection of the
// caller until ctx ends.
func RunOn(ctx context.Context, env *process.Env, conn *bus.Conn, family node.Family) error {
	devices := New(FromConfig(env.Config, family))
	defer devices.Close()
	a, err := newAgent(env, conn, family, devices)
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
