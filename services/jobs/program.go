// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"fmt"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/config"
	"github.com/rackbus/rackbus/pkg/failpoint"
	"github.com/rackbus/rackbus/pkg/process"
)

// role of the service on the bus, on which its rights there depend.
const role = "jobs"

// Program is the service as a process of its own.
func Program() process.Program {
	return process.Program{
		Name: "rackbus-jobs", Does: "turns events into job records, and ends and removes what nobody else does",
		Process: config.ProcessJobs,
		Run:     process.OnBus(role, RunOn),
	}
}

// RunOn runs a replica with a process's configuration on a connection of the
// caller until ctx ends.
func RunOn(ctx context.Context, env *process.Env, conn *bus.Conn) error {
	points, err := failpoint.FromEnv()
	if err != nil {
		return fmt.Errorf("%s: %w", failpoint.EnvVar, err)
	}
	s, err := New(Options{
		Conn: conn, Instance: env.Instance, Retention: env.Config.TerminalJobTTL(),
		FirmwareDir:    env.Config.Workflows.FirmwareDir,
		CommitInterval: env.Config.BusTiming().FoldCommitInterval,
		ParkedLife:     env.Config.Jobs.ParkedDeadline + commandMargin,
		Logger:         env.Log, Registerer: env.Registry, Failpoints: points,
	})
	if err != nil {
		return err
	}
	return s.Run(ctx)
}
