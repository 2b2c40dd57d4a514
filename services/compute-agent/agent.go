// SPDX-License-Identifier: Apache-2.0

// Package computeagent runs the agent of compute trays: it takes their jobs from the
// bus and drives their management controllers over Redfish.
package computeagent

import (
	"context"

	"github.com/rackbus/rackbus/pkg/config"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/process"
	"github.com/rackbus/rackbus/pkg/redfishagent"
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
	return redfishagent.Run(ctx, env, Family)
}
