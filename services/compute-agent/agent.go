// SPDX-License-Identifier: Apache-2.0

// Package computeagent runs the agent of compute trays: it takes their jobs from the
// bus, drives their management controllers over Redfish, flashes network devices
// from their hosts over SSH, and runs the external command that validates them.
package computeagent

import (
	"context"
	"fmt"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/config"
	"github.com/rackbus/rackbus/pkg/diagnostics"
	"github.com/rackbus/rackbus/pkg/fleet"
	"github.com/rackbus/rackbus/pkg/flint"
	"github.com/rackbus/rackbus/pkg/ironic"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/process"
	"github.com/rackbus/rackbus/pkg/redfishagent"
	"github.com/rackbus/rackbus/pkg/seal"
	"github.com/rackbus/rackbus/services/compute-agent/internal/validator"
)

// Family of nodes this agent drives.
const Family = node.FamilyCompute

// Program is the agent as a process of its own.
func Program() process.Program {
	return process.Program{
		Name: "rackbus-compute-agent", Does: "drives compute trays over Redfish",
		Process: config.ProcessComputeAgent, Run: Run,
	}
}

// Run drives nodes until ctx ends, then drains.
func Run(ctx context.Context, env *process.Env) error {
	return process.OnBus("agent-"+string(Family), RunOn)(ctx, env)
}

// RunOn does so on a connection of the caller.
func RunOn(ctx context.Context, env *process.Env, conn *bus.Conn) error {
	inBand, err := newFlint(env)
	if err != nil {
		return err
	}
	validator, err := newValidator(env)
	if err != nil {
		return err
	}
	with := []redfishagent.With{
		redfishagent.WithInBand(inBand), redfishagent.WithHandler(job.TypeSystemValidation, validator.Validate),
	}
	asked, ok, err := ironic.FromConfig(env.Config, func() (*seal.Opener, error) { return fleet.Opener(env.Config, Family) })
	if err != nil {
		return fmt.Errorf("start %s agent: %w", Family, err)
	}
	if ok {
		with = append(with, redfishagent.WithCollectors(IronicCollectors(asked)))
	}
	return redfishagent.RunOn(ctx, env, conn, Family, with...)
}

// IronicCollectors examine trays by what Ironic knows of them.
func IronicCollectors(o ironic.Options) redfishagent.CollectorsFor {
	return func(t *agent.Task) ([]diagnostics.Collector, error) {
		node := t.Target()
		return ironic.Collectors(o, ironic.Target{
			RackID: node.GetRackId(), NodeID: node.GetNodeId(), BMCAddress: node.GetBmc().GetAddress(),
		}), nil
	}
}

func newFlint(env *process.Env) (*flint.Flint, error) {
	opts, err := flint.FromConfig(env.Config, env.Log)
	if err != nil {
		return nil, fmt.Errorf("start %s agent: %w", Family, err)
	}
	return flint.New(opts)
}

func newValidator(env *process.Env) (*validator.Validator, error) {
	v := &env.Config.Validation
	opts := validator.Options{
		Command: v.Command, Override: v.OverrideArguments, Release: v.ReleaseCommand,
		WorkDir: v.WorkDir, LogDir: env.Config.ValidationLogDir(),
		Limit: v.Limit, ReleaseLimit: v.ReleaseLimit, LastReleaseLimit: v.LastReleaseLimit, ReleaseRetry: v.ReleaseRetry,
		KillGrace: v.KillGrace, MaxOutput: v.MaxOutputBytes, MaxRunning: v.MaxRunning,
	}
	if v.EnvironmentFile != "" {
		opener, err := fleet.Opener(env.Config, Family)
		if err != nil {
			return nil, err
		}
		opts.Environment = validator.EnvironmentFile(v.EnvironmentFile, opener)
		// A file that cannot be opened is told now, not by the first job.
		content, err := opts.Environment()
		if err != nil {
			return nil, fmt.Errorf("start %s agent: %w", Family, err)
		}
		content.Wipe()
	}
	return validator.New(opts)
}
