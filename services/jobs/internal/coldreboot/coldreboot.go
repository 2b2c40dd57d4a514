// SPDX-License-Identifier: Apache-2.0

package coldreboot

import (
	"context"
	"fmt"
	"time"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// DefaultParallel is how many nodes of a stage are asked at a time.
const DefaultParallel = 64

// Completed is the state description of a sequence that went through.
const Completed = "Cold reboot completed"

// Asker sends requests to the agents of a family; *bus.Conn is one. An error that
// wraps bus.ErrNoAgent says that nobody got the request.
type Asker interface {
	Request(ctx context.Context, family node.Family, op string, req *rackbusv1.NodeRequest) (*rackbusv1.NodeReply, error)
}

// Options configure the workflow.
type Options struct {
	Asker  Asker
	Timing Timing
	// Parallel bounds the nodes that are asked at a time; default DefaultParallel.
	Parallel int
}

// Workflow runs cold reboots.
type Workflow struct {
	asker    Asker
	timing   Timing
	parallel int
}

// New returns the workflow.
func New(o Options) *Workflow {
	if o.Parallel <= 0 {
		o.Parallel = DefaultParallel
	}
	return &Workflow{asker: o.Asker, timing: o.Timing.withDefaults(), parallel: o.Parallel}
}

// Run is the handler of jobs of the type cold_reboot_sequence.
func (w *Workflow) Run(ctx context.Context, t *agent.Task) (agent.Outcome, error) {
	return w.run(ctx, t)
}

// task is what the workflow needs of *agent.Task.
type task interface {
	Command() *rackbusv1.JobCommand
	Deadline() time.Time
	Guard() agent.Guard
	Load(v any) (bool, error)
	Set(v any) error
	Save(ctx context.Context, v any) error
	SafePoint(ctx context.Context) error
	Progress(percent int, description string)
	Failpoint(name string) error
	RunStages(ctx context.Context, stages []agent.Stage) error
	Timeline() job.Timeline
}

// run is one cold reboot in the hands of this process.
func (w *Workflow) run(ctx context.Context, t task) (agent.Outcome, error) {
	s, err := w.open(ctx, t)
	if err != nil {
		return agent.Outcome{}, err
	}
	if err := t.RunStages(ctx, s.stages()); err != nil {
		return s.ended(err)
	}
	return agent.Outcome{Description: Completed, ResultJSON: s.result(t.Timeline())}, nil
}

// sequence is a run with its nodes by role.
type sequence struct {
	w      *Workflow
	t      task
	ctx    context.Context //nolint:containedctx // the job's, which stages outlive theirs with
	timing Timing
	domain string
	memory memory

	computes, shelves, switches []target
}

// target is a node with the family that drives it.
type target struct {
	*rackbusv1.NodeTarget
	family node.Family
}

func (w *Workflow) open(ctx context.Context, t task) (*sequence, error) {
	cmd := t.Command().GetColdReboot()
	s := &sequence{w: w, t: t, ctx: ctx, timing: w.timing.with(cmd.GetTiming()), domain: cmd.GetDomain()}
	for _, n := range cmd.GetNodes() {
		typ, ok := node.ByID(n.GetNodeType())
		if !ok {
			return nil, agent.Fail(job.FailureInvalidArgument, "planning",
				fmt.Sprintf("node %s is of the type %q, which this version does not know", n.GetNodeId(), n.GetNodeType()), nil)
		}
		list := &s.computes
		switch typ.Family {
		case node.FamilyPowerShelf:
			list = &s.shelves
		case node.FamilySwitch:
			list = &s.switches
		default:
		}
		*list = append(*list, target{n, typ.Family})
	}
	if len(s.computes) == 0 || len(s.shelves) == 0 || len(s.switches) == 0 {
		return nil, agent.Fail(job.FailureInvalidArgument, "planning", "the command lacks compute trays, power shelves or switches", nil)
	}
	return s, s.memory.load(t)
}

// trays are the nodes that the shelves feed.
func (s *sequence) trays() []target {
	return append(append([]target(nil), s.computes...), s.switches...)
}
