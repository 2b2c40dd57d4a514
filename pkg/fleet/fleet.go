// SPDX-License-Identifier: Apache-2.0

// Package fleet makes the agent of one node family from the configuration of its
// process: what the programs of all families have in common.
package fleet

import (
	"context"
	"fmt"
	"regexp"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/config"
	"github.com/rackbus/rackbus/pkg/failpoint"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/process"
	"github.com/rackbus/rackbus/pkg/seal"
	"github.com/rackbus/rackbus/pkg/telemetry"
)

// Opener returns the opener of what is sealed for a family, with the seeds in the
// key directory.
func Opener(cfg *config.Config, family node.Family) (*seal.Opener, error) {
	seeds, err := seal.LoadSeeds(cfg.KeyDir(), family)
	if err != nil {
		return nil, fmt.Errorf("start %s agent: %w", family, err)
	}
	opener, err := seal.NewOpener(seeds, seal.OpenerOptions{})
	if err != nil {
		return nil, fmt.Errorf("start %s agent: %w", family, err)
	}
	return opener, nil
}

// Work is what the agent of a family does. All of it is required.
type Work struct {
	Family   node.Family
	Opener   *seal.Opener
	Handlers map[job.Type]agent.Handler
	Queries  map[string]agent.QueryHandler
}

// New returns the agent of a family, and makes the process ready when it is. Its
// failpoints are those of the environment.
func New(env *process.Env, conn *bus.Conn, w Work) (*agent.Agent, error) {
	points, err := failpoint.FromEnv()
	if err != nil {
		return nil, fmt.Errorf("start %s agent: %s: %w", w.Family, failpoint.EnvVar, err)
	}
	cfg := env.Config
	a, err := agent.New(agent.Options{
		Conn: conn, Family: w.Family, Instance: env.Instance, Version: semver(telemetry.Version()), Opener: w.Opener,
		Handlers: w.Handlers, Queries: w.Queries,
		MaxInFlight: cfg.Agent.MaxInFlight, MaxStuck: uint32(cfg.Agent.MaxStuck), DrainTimeout: cfg.Agent.DrainTimeout,
		ProgressInterval: cfg.BusTiming().ProgressInterval,
		Failpoints:       points,
		Registerer:       env.Registry, Tracer: env.Tracer, Logger: env.Log,
	})
	if err != nil {
		return nil, err
	}
	env.Readiness.Add(string(w.Family)+"-agent", func(context.Context) error { return a.Ready() })
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
