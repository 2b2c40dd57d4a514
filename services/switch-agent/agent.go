// SPDX-License-Identifier: Apache-2.0

package switchagent

import (
	"context"
	"fmt"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/config"
	"github.com/rackbus/rackbus/pkg/fleet"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/process"
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
	//nolint:contextcheck // it gets its context when it runs
	a, err := fleet.New(env, conn, fleet.Work{
		Family: Family, Opener: opts.Seals, Handlers: switches.Handlers(), Queries: switches.Queries(),
	})
	if err != nil {
		return err
	}
	return a.Run(ctx)
}
