// SPDX-License-Identifier: Apache-2.0

package coldreboot

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

// actionTries is how often a power action is asked for at most, when the device
// shows each time that it has not taken it.
const actionTries = 3

// refusals are the words of agents for an action that the device certainly did not
// take. After any other the state decides.
var refusals = []string{
	agent.CodeUnreachable, agent.CodeInvalidArgument, "connection_refused",
	"unauthenticated", "forbidden", "not_found", "conflict", "failed_precondition", "dns", "tls",
}

// action is one power operation on the nodes of a stage.
type action struct {
	nodes []target
	op    rackmanager.PowerOperation
	// want is the state in which a device is that has taken it, at the latest after
	// settle.
	want   powerState
	settle time.Duration
}

// powerStage is a stage that does an action.
type powerStage struct {
	*sequence
	action
	name string
}

// verdict is how the action on one node has ended: at most one of them is set.
type verdict struct {
	// crash ends the job as if the process had died.
	crash error
	// stop is why the action was not brought to its end.
	stop error
	// failure is why it failed; unknown says that nobody knows whether it did.
	failure error
	unknown bool
}

// power returns how an action is done on all nodes of a stage.
func (s *sequence) power(name string, of func() action) func(context.Context) error {
	return func(ctx context.Context) error {
		p := &powerStage{s, of(), name}
		verdicts := make([]verdict, len(p.nodes))
		s.each(p.nodes, func(i int) { verdicts[i] = p.bring(ctx, p.nodes[i]) })
		return p.conclude(verdicts)
	}
}

// conclude is what the stage ends with.
func (p *powerStage) conclude(verdicts []verdict) error {
	var failures []string
	var stop error
	code := job.FailurePowerActionFailed
	for i, v := range verdicts {
		switch {
		case v.crash != nil:
			return v.crash
		case v.failure != nil:
			failures = append(failures, fmt.Sprintf("%s: %v", p.nodes[i].GetNodeId(), v.failure))
			if v.unknown {
				code = job.FailureOutcomeUnknown
			}
		case v.stop != nil && (stop == nil || errors.Is(v.stop, agent.ErrHandedOver)):
			stop = v.stop
		}
	}
	switch {
	case len(failures) > 0:
		return p.failed(p.name, code, p.name+" failed: "+join(failures), map[string]any{"failures": failures}, nil)
	case stop != nil && errors.Is(stop, agent.ErrCancelled) && !p.memory.touched(p.name):
		return p.cancelledBefore(p.name)
	case stop != nil:
		return p.cut(p.name, stop)
	}
	return p.memory.details(p.t, p.name, map[string]any{"nodes": len(p.nodes)})
}

// bring takes one node through the action.
func (p *powerStage) bring(ctx context.Context, n target) verdict {
	giveUp := time.Now().Add(p.timing.AgentWait)
	for {
		known, announced := p.memory.node(p.name, n.GetNodeId())
		if known.Done {
			return verdict{}
		}
		if announced && !known.Until.IsZero() {
			// Asked for by an earlier owner, or by this one without an answer.
			taken, v := p.resolve(ctx, n, known.Until)
			if v != (verdict{}) {
				return v
			}
			if taken {
				return p.done(n)
			}
			if known.Tries >= actionTries {
				return verdict{failure: fmt.Errorf("the device did not take %s, which was asked for %d times", p.op, known.Tries)}
			}
		}
		if err := p.t.SafePoint(ctx); err != nil {
			return verdict{stop: err}
		}
		v, again := p.ask(ctx, n, giveUp)
		if !again {
			return v
		}
	}
}

// ask asks for the action once. again says that the node is to be looked at anew.
func (p *powerStage) ask(ctx context.Context, n target, giveUp time.Time) (v verdict, again bool) {
	until := time.Now().Add(p.timing.ActionLimit)
	if err := p.announce(n, until); err != nil {
		return verdict{stop: err}, false
	}
	if err := p.t.Failpoint(agent.FailAfterIntent); err != nil {
		return verdict{crash: err}, false
	}
	// Storing that may have taken long, and has told of a request to stop.
	if err := errors.Join(p.t.Guard().Check(), p.t.SafePoint(ctx)); err != nil {
		return p.withdrawn(n, verdict{stop: err}), false
	}
	rctx, cancel := p.unbroken()
	defer cancel()
	//nolint:contextcheck // a request that is under way is waited for; see unbroken
	reply, err := p.request(rctx, n, opPowerSet, &rackbusv1.NodeRequest{PowerOperation: int32(p.op)}, until)
	if err == nil {
		if ferr := p.t.Failpoint(agent.FailAfterDeviceChange); ferr != nil {
			return verdict{crash: ferr}, false
		}
	}
	switch {
	case err == nil && reply.GetError() == nil:
		return p.done(n), false
	case err == nil:
		return p.refused(ctx, n, reply.GetError()), false
	case errors.Is(err, bus.ErrTooLarge):
		return p.withdrawn(n, verdict{failure: err}), false
	case errors.Is(err, bus.ErrNoAgent) && !time.Now().Before(giveUp):
		return p.withdrawn(n, verdict{failure: errors.New(askedText(n.family, err))}), false
	case errors.Is(err, bus.ErrNoAgent):
		// Nobody got it. Agents that restart come back.
		if v := p.withdrawn(n, verdict{}); v != (verdict{}) {
			return v, false
		}
		if err := sleepUntil(ctx, time.Now().Add(min(p.timing.PollInterval, p.timing.AgentWait))); err != nil {
			return verdict{stop: err}, false
		}
		return verdict{}, true
	}
	if cause := p.over(); cause != nil {
		return verdict{stop: cause}, false
	}
	return verdict{}, true // the answer is lost, and the device is looked at
}

// refused decides about an action that the agent has answered with an error.
func (p *powerStage) refused(ctx context.Context, n target, e *rackbusv1.NodeError) verdict {
	if p.look(ctx, n).state == p.want {
		return p.done(n)
	}
	failure := errors.New(errorText(e))
	if slices.Contains(refusals, e.GetCode()) {
		return p.withdrawn(n, verdict{failure: failure})
	}
	taken, v := p.resolve(ctx, n, time.Now().Add(-p.timing.ClockMargin))
	switch {
	case v.unknown:
		return verdict{failure: fmt.Errorf("%w; %w", failure, v.failure), unknown: true}
	case v != (verdict{}):
		return v
	case taken:
		return p.done(n)
	}
	return p.withdrawn(n, verdict{failure: failure})
}

// resolve finds out whether the device has taken an action on which agents may act
// until a moment. What cannot be known is a failure.
func (p *powerStage) resolve(ctx context.Context, n target, until time.Time) (taken bool, v verdict) {
	safe := until.Add(p.timing.ClockMargin)
	end := safe.Add(p.settle)
	for {
		last := !time.Now().Before(end)
		r := p.look(ctx, n)
		if r.state == p.want {
			return true, verdict{}
		}
		if err := context.Cause(ctx); err != nil {
			return false, verdict{stop: err}
		}
		if last {
			if r.state != "" {
				return false, verdict{}
			}
			return false, verdict{unknown: true, failure: fmt.Errorf(
				"whether the device took %s is unknown, and it was not asked again: the node %s", p.op, r)}
		}
		next := time.Now().Add(min(p.timing.PollInterval, p.settle))
		if next.After(end) {
			next = end
		}
		if err := sleepUntil(ctx, next); err != nil {
			return false, verdict{stop: err}
		}
		// Once no agent can act any more, the node may be left as it is.
		if err := p.t.SafePoint(ctx); err != nil && !time.Now().Before(safe) {
			return false, verdict{stop: err}
		}
	}
}

// announce records that the action is about to be asked for.
func (p *powerStage) announce(n target, until time.Time) error {
	if err := p.t.Guard().Check(); err != nil {
		return err
	}
	return p.memory.save(p.ctx, p.t, func() {
		nodes := p.memory.stage(p.name).Nodes
		known := nodes[n.GetNodeId()]
		if known == nil {
			known = &nodeMemory{}
			nodes[n.GetNodeId()] = known
		}
		known.Until = until.UTC()
		known.Tries++
	})
}

// withdrawn records that the device has certainly not taken the action.
func (p *powerStage) withdrawn(n target, v verdict) verdict {
	return p.note(n, v, func(known *nodeMemory) {
		known.Until = time.Time{}
		known.Tries--
	})
}

// done records that the device has taken the action.
func (p *powerStage) done(n target) verdict {
	return p.note(n, verdict{}, func(known *nodeMemory) { known.Done = true })
}

// note changes what is kept of a node. When the job was cut meanwhile, its last
// write takes that along.
func (p *powerStage) note(n target, v verdict, change func(*nodeMemory)) verdict {
	err := p.memory.save(p.ctx, p.t, func() { change(p.memory.stage(p.name).Nodes[n.GetNodeId()]) })
	if err != nil && p.ctx.Err() == nil && v == (verdict{}) {
		return verdict{stop: err}
	}
	return v
}

// over returns why the job was cut, nil while it goes on.
func (s *sequence) over() error { return context.Cause(s.ctx) }

// unbroken is the job's context for a request that changes a device. A request that
// is under way is waited for, at most until its deadline, when the job is cut by
// force: it must not read terminated while an agent acts for it. It is left when
// another owner has the job, who waits for its deadline.
func (p *powerStage) unbroken() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(p.ctx))
	stop := context.AfterFunc(p.ctx, func() {
		if errors.Is(context.Cause(p.ctx), agent.ErrHandedOver) {
			cancel()
		}
	})
	return ctx, func() {
		stop()
		cancel()
	}
}
