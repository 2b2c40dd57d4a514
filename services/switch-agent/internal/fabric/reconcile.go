// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/job"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/services/switch-agent/internal/device"
)

// Names of the stages of a reconciliation.
const (
	stageSnapshot  = "snapshot"
	stagePrimary   = "select_primary"
	stagePlan      = "prepare_node_ips"
	stageClear     = "clear_non_primary_node_ips"
	stageDisable   = "disable_non_primaries"
	stageEnable    = "enable_primary_for_node_ips"
	stageServers   = "configure_node_ips"
	stageSecurity  = "enforce_nmxc_security"
	stageConfigure = "configure_and_converge"
	stageReadBack  = "read_back"
	stageVerify    = "verify_node_ips"
	stageBridges   = "verify_sdn_state"

	textRestoring = "Restoring the prior state of the fabric"
	textCompleted = "Completed"
)

// reconciliation is one job in the hands of this process.
type reconciliation struct {
	w      *Workflow
	t      task
	cmd    *rackbusv1.FabricReconcile
	fleet  *fleet
	memory memory
	// withServers says that the switches have node servers (VR NVL72).
	withServers bool
	// partial is what was read of the fabric by this process.
	partial document
}

func (w *Workflow) reconcile(ctx context.Context, t task) (agent.Outcome, error) {
	cmd := t.Command().GetFabricReconcile()
	r := &reconciliation{w: w, t: t, cmd: cmd}
	r.fleet = newFleet(cmd.GetSwitches(), w.timing, func(target *rackbusv1.NodeTarget) (Switch, error) {
		return w.open(t.Guard(), target, cmd.GetDomain(), t.Logger())
	})
	defer r.fleet.close()
	if _, err := t.Load(&r.memory); err != nil {
		return agent.Outcome{}, err
	}
	r.fleet.editing, r.fleet.unsaved = r.editing, r.leftUnsaved()
	some, all := r.fleet.haveServers()
	if r.withServers = all; some && !all {
		return agent.Outcome{}, fail(job.FailureInvalidArgument, stagePlan,
			"switches of VR NVL72 racks and others cannot be in one fabric", ErrInvalid)
	}
	if err := t.RunStages(ctx, r.stages()); err != nil {
		out := agent.Outcome{}
		if f := r.memory.Failure; f != nil {
			out.ResultJSON = f.Result
		}
		return out, err
	}
	doc := r.memory.Found
	doc.SDN = r.memory.SDN
	return agent.Outcome{Description: textCompleted, ResultJSON: doc.text()}, nil
}

// editing keeps which switches are being changed.
func (r *reconciliation) editing(ctx context.Context, id string, under bool) error {
	return r.memory.change(ctx, r.t, func() {
		if r.memory.Editing == nil {
			r.memory.Editing = make(map[string]bool)
		}
		if delete(r.memory.Editing, id); under {
			r.memory.Editing[id] = true
		}
	})
}

// leftUnsaved are the switches that an earlier owner was changing when he died;
// each is told once.
func (r *reconciliation) leftUnsaved() func(id string) bool {
	left := maps.Clone(r.memory.Editing)
	var mu sync.Mutex
	return func(id string) bool {
		mu.Lock()
		defer mu.Unlock()
		found := left[id]
		delete(left, id)
		return found
	}
}

func (d document) text() string {
	data, err := json.Marshal(d)
	if err != nil {
		return ""
	}
	return string(data)
}

// step is a stage before it is made fit for the runtime.
type step struct {
	name, text string
	// changes says that it may change switches; from the first such step on every
	// failure restores what was before.
	changes bool
	// servers says that it is for switches with node servers only.
	servers bool
	run     func(ctx context.Context) error
}

func (r *reconciliation) steps() []step {
	return []step{
		{stageSnapshot, "Taking a snapshot of the fabric", false, false, r.snapshot},
		{stagePrimary, "Selecting the primary switch", false, false, r.selectPrimary},
		{stagePlan, "Preparing node IPs", false, true, r.planServers},
		{stageClear, "Clearing node IPs on non-primary switches", true, true, r.clearOthers},
		{stageDisable, "Disabling non-primary switches", true, false, r.disableOthers},
		{stageEnable, "Enabling the primary switch for node IPs", true, true, r.enablePrimary},
		{stageServers, "Configuring node IPs", true, true, r.configureServers},
		{stageSecurity, "Enforcing NMX-C security", true, false, r.secure},
		{stageConfigure, "Configuring the fabric manager and waiting for it to converge", true, false, r.configure},
		{stageReadBack, "Reading the fabric back", true, false, r.readBack},
		{stageVerify, "Verifying node IPs", true, true, r.verifyServers},
		{stageBridges, "Verifying the SDN state", true, true, r.checkBridges},
	}
}

// StageNames are the stages of a reconciliation in their order.
func StageNames() []string {
	var out []string
	for _, s := range (&reconciliation{}).steps() {
		out = append(out, s.name)
	}
	return out
}

// stages are the steps as the runtime runs them. All leave a mark when they have
// ended: the snapshot must not be taken again once something was changed. Those
// that change nothing may be cut.
func (r *reconciliation) stages() []agent.Stage {
	var out []agent.Stage
	steps := r.steps()
	for i, s := range steps {
		out = append(out, agent.Stage{
			Name: s.name, Description: s.text, Text: s.text, Resume: agent.Resumable, Interruptible: !s.changes,
			Run: func(ctx context.Context) error {
				if s.servers && !r.withServers {
					return agent.Skip("these switches have no node IPs")
				}
				r.t.Progress(100*i/len(steps), s.text)
				if err := r.t.Failpoint(Point(s.name)); err != nil {
					return err
				}
				return r.pass(ctx, s)
			},
		})
	}
	return out
}

// pass does a step, and restores what was before when it fails.
func (r *reconciliation) pass(ctx context.Context, s step) error {
	if !s.changes {
		return r.told(ctx, s.name, s.run(ctx))
	}
	if r.memory.Failure == nil {
		if err := r.begin(ctx); err != nil {
			return err
		}
		err := r.work(ctx, s)
		if err == nil || interrupted(ctx, err) && !errors.Is(err, agent.ErrCancelled) {
			return unwrapped(err)
		}
		f := r.failed(s.name, err)
		if err := r.memory.change(ctx, r.t, func() { r.memory.Failure = f }); err != nil {
			return unwrapped(err)
		}
	}
	return r.restore(ctx)
}

// errNoTime says that what is left of the run limit is needed for restoring.
var errNoTime = errors.New("the job's run limit is near")

// work does a step, and ends it while there is time to restore.
func (r *reconciliation) work(ctx context.Context, s step) error {
	work, cancel := bounded(ctx, r.t.Deadline(), r.w.timing.Restore)
	defer cancel()
	err := s.run(work)
	if err != nil && timeIsOver(work) && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w", errNoTime, err)
	}
	return err
}

// begin is the last moment at which the job can be left without a trace.
func (r *reconciliation) begin(ctx context.Context) error {
	if r.memory.Changing {
		return nil
	}
	if err := r.t.SafePoint(ctx); err != nil {
		return err
	}
	return unwrapped(r.memory.change(ctx, r.t, func() { r.memory.Changing = true }))
}

func unwrapped(err error) error {
	var passed *passedError
	if errors.As(err, &passed) {
		return passed.err
	}
	return err
}

// told gives the error of a step that changes nothing its form.
func (r *reconciliation) told(ctx context.Context, stage string, err error) error {
	if err == nil || interrupted(ctx, err) {
		return unwrapped(err)
	}
	f := r.failed(stage, err)
	return f.error("nothing was changed", err)
}

// failed describes the end of a reconciliation.
func (r *reconciliation) failed(stage string, err error) *failure {
	f := &failure{Stage: stage, Code: codeOf(err), Message: err.Error(), Cancelled: errors.Is(err, agent.ErrCancelled)}
	if f.Cancelled {
		f.Code, f.Message = job.FailureCancelledByOperator, "cancelled during "+stage
	}
	if stage == stageReadBack {
		f.Result = r.partial.text()
	}
	if answer := device.AnswerOf(err); answer != nil {
		f.MessageID, f.Device, f.HTTPStatus = answer.MessageID, answer.Message, answer.HTTPStatus
	}
	return f
}

// error is the failure as the job's record tells it; more is added to its text.
func (f *failure) error(more string, cause error) error {
	if f.Cancelled {
		cause = errors.Join(agent.ErrCancelled, cause)
	}
	out := fail(f.Code, f.Stage, f.Message+"; "+more, cause)
	if f.Device != "" || f.HTTPStatus != 0 {
		out.Failure.Device = &job.DeviceAnswer{MessageID: f.MessageID, Message: f.Device, HTTPStatus: f.HTTPStatus}
	}
	return out
}
