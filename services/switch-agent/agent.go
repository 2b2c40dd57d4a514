// SPDX-License-Identifier: Apache-2.0

package switchagent

import (
	"context"
	"fmt"
	"regexp"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/config"
	"github.com/rackbus/rackbus/pkg/failpoint"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/process"
	"github.com/rackbus/rackbus/pkg/telemetry"
)

// Family of nodes this agent drives.
const Family = node.FamilySwitch

// Program is the agent as a process of its own.
func Program() process.Program {
	return process.Program{
		Name: "rackbus-switch-agent", Does: "drives NVSwitch trays",
		Process: config.ProcessSwitchAgent, Run: Run,
	}
}

// Run drives switches until ctx ends, then drains.
func Run(ctx context.Context, env *process.Env) error {
	return process.OnBus("agent-"+string(Family), RunOn)(ctx, env)
}

// RunOn does so on a connection of the caller.
func RunOn(ctx context.Context, env *process.Env, conn *bus.Conn) error {
	opts, err := FromConfig(env, conn)
	if err != nil {
		return fmt.Errorf("start %s agent: %w", Family, err)
	}
	switches, err := New(opts)
	if err != nil {
		return fmt.Errorf("start %s agent: %w", Family, err)
	}
	defer switches.Close()
	a, err := newAgent(env, conn, switches) //nolint:contextcheck // it gets its context when it runs
	if err != nil {
		return err
	}
	return a.Run(ctx)
}

func newAgent(env *process.Env, conn *bus.Conn, switches *Switches) (*agent.Agent, error) {
	cfg := env.Config
	points, err := failpoint.FromEnv()
	if err != nil {
		return nil, fmt.Errorf("start %s agent: %s: %w", Family, failpoint.EnvVar, err)
	}
	a, err := agent.New(agent.Options{
		Conn: conn, Family: Family, Instance: env.Instance, Version: semver(telemetry.Version()), Opener: switches.opts.Seals,
		Handlers: switches.Handlers(), Queries: switches.Queries(),
		MaxInFlight: cfg.Agent.MaxInFlight, MaxStuck: uint32(cfg.Agent.MaxStuck), DrainTimeout: cfg.Agent.DrainTimeout,
		ProgressInterval: cfg.BusTiming().ProgressInterval,
		Failpoints:       points,
		Registerer:       env.Registry, Logger: env.Log,
	})
	if err != nil {
		return nil, err
	}
	env.Readiness.Add(string(Family)+"-agent", func(context.Context) error { return a.Ready() })
	return a, nil
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
