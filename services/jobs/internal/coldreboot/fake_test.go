// SPDX-License-Identifier: Apache-2.0

package coldreboot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Node ids of the fake rack.
const (
	tray1, tray2   = "tray-1", "tray-2"
	shelf1, shelf2 = "shelf-1", "shelf-2"
	switch1        = "switch-1"
)

var nodeTypes = map[string]string{
	tray1: "compute_gb200_nvidia", tray2: "compute_gb200_wiwynn",
	shelf1: "powershelf_gb200_liteon", shelf2: "powershelf_gb200_delta", switch1: "switch_gb200_nvidia",
}

// fakeRack stands for the agents and the rack behind them. Like real ones, trays
// and switches lose their controllers some time after all shelves are off.
type fakeRack struct {
	mu sync.Mutex
	// states are ON or OFF, as a controller tells.
	states map[string]string
	// actions are the power operations that devices took, by node.
	actions map[string][]string
	// cutAt and fedAt are when the shelves went off and on.
	cutAt, fedAt time.Time
	// shutdown is how long hosts take to go down, discharge how long controllers go
	// on without power, start how long they take to come up, nvos how long switches
	// take beyond that.
	shutdown, discharge, start, nvos time.Duration
	offSince                         map[string]time.Time
	// hook may answer a request in place of the rack.
	hook func(op, id string, req *rackbusv1.NodeRequest) (*rackbusv1.NodeReply, error)
	// noAgent are families without agents.
	noAgent map[node.Family]bool
	// log is what was asked, in its order.
	log []string
}

func newFakeRack() *fakeRack {
	r := &fakeRack{
		states: make(map[string]string), actions: make(map[string][]string), noAgent: make(map[node.Family]bool),
		offSince: make(map[string]time.Time),
		shutdown: 40 * time.Second, discharge: 200 * time.Second, start: 130 * time.Second, nvos: 50 * time.Second,
	}
	for id := range nodeTypes {
		r.states[id] = "ON"
	}
	return r
}

func refuse(code, message string) *rackbusv1.NodeReply { return agent.Refuse(code, message, "") }

// alive reports whether the controller of a tray or switch has power and is up.
func (r *fakeRack) alive(id string) bool {
	if id == shelf1 || id == shelf2 || r.cutAt.IsZero() {
		return true
	}
	if r.fedAt.IsZero() {
		return time.Since(r.cutAt) < r.discharge
	}
	return time.Since(r.fedAt) >= r.start
}

func (r *fakeRack) Request(ctx context.Context, family node.Family, op string, req *rackbusv1.NodeRequest) (*rackbusv1.NodeReply, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	id := req.GetTarget().GetNodeId()
	r.mu.Lock()
	hook, absent := r.hook, r.noAgent[family]
	r.log = append(r.log, op+" "+id)
	r.mu.Unlock()
	if absent {
		return nil, fmt.Errorf("%w (family %s)", bus.ErrNoAgent, family)
	}
	if !time.Now().Before(req.GetDeadline().AsTime()) {
		return refuse("timeout", "too late"), nil
	}
	if hook != nil {
		if reply, err := hook(op, id, req); reply != nil || err != nil {
			return reply, err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.alive(id) {
		return refuse(agent.CodeUnreachable, "connect: no route to host"), nil
	}
	switch op {
	case opPowerGet:
		return &rackbusv1.NodeReply{V: 1, PowerState: r.state(id)}, nil
	case opNVOSHello:
		if !r.fedAt.IsZero() && time.Since(r.fedAt) < r.start+r.nvos {
			return refuse("unavailable", "HTTP 503"), nil
		}
		return &rackbusv1.NodeReply{V: 1}, nil
	}
	r.take(id, rackmanager.PowerOperation(req.GetPowerOperation()))
	return &rackbusv1.NodeReply{V: 1}, nil
}

// state needs the lock.
func (r *fakeRack) state(id string) string {
	if since, ok := r.offSince[id]; ok && time.Since(since) >= r.shutdown {
		return "OFF"
	}
	return r.states[id]
}

// take lets a device do a power operation. It needs the lock.
func (r *fakeRack) take(id string, op rackmanager.PowerOperation) {
	r.actions[id] = append(r.actions[id], op.String()[len("POWER_OPERATION_"):])
	switch op {
	case rackmanager.PowerOperation_POWER_OPERATION_GRACEFUL_SHUTDOWN:
		r.offSince[id] = time.Now()
	case rackmanager.PowerOperation_POWER_OPERATION_OFF:
		r.states[id] = "OFF"
		if r.states[shelf1] == "OFF" && r.states[shelf2] == "OFF" {
			r.cutAt, r.fedAt = time.Now(), time.Time{}
		}
	case rackmanager.PowerOperation_POWER_OPERATION_ON:
		r.states[id] = "ON"
		delete(r.offSince, id)
		if id == shelf1 || id == shelf2 {
			r.fedAt = time.Now()
		}
	default:
	}
}

func (r *fakeRack) taken() map[string][]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make(map[string][]string, len(r.actions))
	for id, list := range r.actions {
		out[id] = append([]string(nil), list...)
	}
	return out
}

// everyActionOnce is what a sequence does to the rack, whatever interrupts it.
var everyActionOnce = map[string][]string{
	tray1: {"GRACEFUL_SHUTDOWN", "ON"}, tray2: {"GRACEFUL_SHUTDOWN", "ON"},
	shelf1: {"OFF", "ON"}, shelf2: {"OFF", "ON"},
}

// errCrash stands for the death of the process.
var errCrash = errors.New("crash")

// fakeTask stands for the runtime with a job under one owner after the other. It
// keeps to the runtime's rules for stages that can be resumed.
type fakeTask struct {
	cmd      *rackbusv1.JobCommand
	deadline time.Time
	points   map[string]func() error

	mu       sync.Mutex
	data     []byte // in the checkpoint
	set      []byte // not written yet
	done     int    // stages
	timeline job.Timeline
	texts    []string
	asked    error
	cut      context.CancelCauseFunc
	held     error
}

func newFakeTask() *fakeTask {
	cmd := &rackbusv1.JobCommand{JobId: "j", Operation: &rackbusv1.JobCommand_ColdReboot{ColdReboot: &rackbusv1.ColdReboot{Domain: "lab"}}}
	for _, id := range []string{shelf1, tray1, switch1, tray2, shelf2} {
		c := cmd.GetColdReboot()
		c.Nodes = append(c.Nodes, &rackbusv1.NodeTarget{RackId: "r", NodeId: id, NodeType: nodeTypes[id]})
	}
	return &fakeTask{cmd: cmd, points: make(map[string]func() error)}
}

func (f *fakeTask) Command() *rackbusv1.JobCommand { return f.cmd }
func (f *fakeTask) Deadline() time.Time            { return f.deadline }
func (f *fakeTask) Guard() agent.Guard             { return fakeGuard{f} }

type fakeGuard struct{ f *fakeTask }

func (g fakeGuard) Check() error {
	g.f.mu.Lock()
	defer g.f.mu.Unlock()
	return g.f.held
}

func (g fakeGuard) Context(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithCancel(ctx)
}

func (f *fakeTask) Load(v any) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.data) == 0 {
		return false, nil
	}
	return true, json.Unmarshal(f.data, v)
}

func (f *fakeTask) Set(v any) error {
	data, err := json.Marshal(v)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.set = data
	return err
}

func (f *fakeTask) Save(_ context.Context, v any) error {
	if err := f.Set(v); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.data = f.set
	return nil
}

func (f *fakeTask) SafePoint(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked
}

func (f *fakeTask) Progress(_ int, description string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.texts = append(f.texts, description)
}

func (f *fakeTask) Failpoint(name string) error {
	f.mu.Lock()
	hit := f.points[name]
	f.mu.Unlock()
	if hit == nil {
		return nil
	}
	return hit()
}

func (f *fakeTask) Timeline() job.Timeline {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.timeline
}

// cancelJob asks the job to stop at a safe point, and cuts a stage that may be cut.
func (f *fakeTask) cancelJob() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = agent.ErrCancelled
	if f.cut != nil {
		f.cut(agent.ErrCancelled)
	}
}

// hold makes the hold uncertain for a reason, or certain again.
func (f *fakeTask) hold(why error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held = why
}

func (f *fakeTask) RunStages(ctx context.Context, stages []agent.Stage) error {
	names := make([]job.StageName, len(stages))
	for i, s := range stages {
		names[i] = job.StageName{Name: s.Name, Description: s.Description}
	}
	f.mu.Lock()
	timeline := job.NewTimeline(job.ID{}, names, time.Now())
	for range f.done {
		timeline, _ = timeline.Complete(time.Now(), nil)
	}
	f.timeline = timeline
	resumed := f.done
	f.mu.Unlock()
	for i := resumed; i < len(stages); i++ {
		s := &stages[i]
		carriesOn := !s.Interruptible && i > 0
		if err := f.SafePoint(ctx); err != nil && !(carriesOn && errors.Is(err, agent.ErrCancelled)) {
			f.move(func(t job.Timeline) (job.Timeline, error) { return t.SkipRemaining(time.Now()), nil })
			return fmt.Errorf("before stage %s: %w", s.Name, err)
		}
		if err := f.runStage(ctx, s); err != nil {
			return fmt.Errorf("stage %s: %w", s.Name, err)
		}
	}
	return nil
}

func (f *fakeTask) runStage(ctx context.Context, s *agent.Stage) error {
	sctx, cut := context.WithCancelCause(ctx)
	defer cut(nil)
	f.mu.Lock()
	if s.Interruptible {
		f.cut = cut
		if f.asked != nil {
			cut(f.asked)
		}
	}
	f.mu.Unlock()
	f.move(func(t job.Timeline) (job.Timeline, error) { return t.Start(time.Now()) })
	err := s.Run(sctx)
	for errors.Is(err, agent.ErrNotHeld) && ctx.Err() == nil {
		f.hold(nil) // the runtime waits until it is certain again
		err = s.Run(sctx)
	}
	f.mu.Lock()
	f.cut = nil
	f.mu.Unlock()
	if err != nil {
		f.move(func(t job.Timeline) (job.Timeline, error) {
			t, _ = t.Fail(time.Now(), err.Error(), nil)
			return t.SkipRemaining(time.Now()), nil
		})
		return err
	}
	f.move(func(t job.Timeline) (job.Timeline, error) { return t.Complete(time.Now(), nil) })
	f.mu.Lock()
	defer f.mu.Unlock()
	f.done++
	if f.set != nil {
		f.data = f.set
	}
	return nil
}

func (f *fakeTask) move(step func(job.Timeline) (job.Timeline, error)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.timeline, _ = step(f.timeline)
}

// run runs the workflow as one owner.
func (f *fakeTask) run(ctx context.Context, r *fakeRack) (agent.Outcome, error) {
	f.mu.Lock()
	f.set = nil
	f.mu.Unlock()
	return New(Options{Asker: r}).run(ctx, f)
}
