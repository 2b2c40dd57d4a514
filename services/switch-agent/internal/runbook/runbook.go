// SPDX-License-Identifier: Apache-2.0

// Package runbook runs the stages of a switch workflow, and lets crash tests end
// the process at the begin of each.
package runbook

import (
	"context"
	"time"

	"github.com/rackbus/rackbus/pkg/agent"
)

// FailInStage begins the name of the failpoint in front of a stage's work; the
// stage's name follows. For a change that happens once it lies behind the recorded
// intent.
const FailInStage = "switchagent.stage."

// Run runs the stages of a job in their order.
func Run(ctx context.Context, t *agent.Task, stages []agent.Stage) error {
	for i := range stages {
		name, run := stages[i].Name, stages[i].Run
		stages[i].Run = func(ctx context.Context) error {
			if err := t.Failpoint(FailInStage + name); err != nil {
				return err
			}
			return run(ctx)
		}
	}
	return t.RunStages(ctx, stages)
}

// Sleep pauses where no task can be asked; the error is the reason for which ctx has
// ended.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
