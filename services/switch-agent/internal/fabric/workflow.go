// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"context"
	"log/slog"
	"time"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/job"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/services/switch-agent/internal/runbook"
)

// Open opens a switch of a job or query; it sends nothing. guard is asked before
// every change of the switch.
type Open func(guard agent.Guard, target *rackbusv1.NodeTarget, domain string, log *slog.Logger) (Switch, error)

// Options configure the workflows.
type Options struct {
	Open   Open
	Timing Timing
}

// Workflow runs the jobs of the fabric.
type Workflow struct {
	open   Open
	timing Timing
}

// New returns the workflows.
func New(o Options) *Workflow { return &Workflow{open: o.Open, timing: o.Timing.withDefaults()} }

// Reconcile is the handler of jobs of the type
// configure_scale_up_fabric_manager_v2.
func (w *Workflow) Reconcile(ctx context.Context, t *agent.Task) (agent.Outcome, error) {
	return w.reconcile(ctx, t)
}

// ResetSDN is the handler of jobs of the type switch_sdn_factory_default_reset.
func (w *Workflow) ResetSDN(ctx context.Context, t *agent.Task) (agent.Outcome, error) {
	return w.resetSDN(ctx, t)
}

// task is what the workflows need of *agent.Task.
type task interface {
	Command() *rackbusv1.JobCommand
	Guard() agent.Guard
	Deadline() time.Time
	Logger() *slog.Logger
	Load(v any) (bool, error)
	Save(ctx context.Context, v any) error
	SafePoint(ctx context.Context) error
	Progress(percent int, description string)
	InFlight(what string)
	Failpoint(name string) error
	Sleep(ctx context.Context, d time.Duration) error
	RunStages(ctx context.Context, stages []agent.Stage) error
}

// Point is the crash point at the begin of a stage.
func Point(stage string) string { return runbook.FailInStage + stage }

// Crash points behind changes that are not to be made twice.
const (
	PointBound     = "fabric.bound"
	PointActed     = "fabric.acted"
	PointKept      = "fabric.kept"
	PointRestarted = "fabric.restarted"
	PointWritten   = "fabric.written"
	PointRestored  = "fabric.restored"
)

func fail(code job.FailureCode, stage, message string, cause error) *agent.FailureError {
	return agent.Fail(code, stage, message, cause)
}
