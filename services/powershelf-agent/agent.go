// SPDX-License-Identifier: Apache-2.0

// Package powershelfagent runs the agent of power shelves: it takes their jobs from the
// bus and drives their management controllers over Redfish.
package powershelfagent

import (
	"context"

	"github.com/rackbus/rackbus/pkg/config"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/process"
	"github.com/rackbus/rackbus/pkg/redfishagent"
)

// Family of nodes this agent drives.
const Family = node.FamilyPowerShelf

// Program is the agent as a process of its own.
func Program() process.Program {
	return process.Program{
		Name: "rackbus-powershelf-agent", Does: "drives power shelves over Redfish",
		Process: config.ProcessPowerShelfAgent, Run: Run,
	}
}

// Run drives nodes until ctx ends, then drains.
func Run(ctx context.Context, env *process.Env) error {
	return redfishagent.Run(ctx, env, Family)
}
