// SPDX-License-Identifier: Apache-2.0

package coldreboot

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// Operations that agents answer.
const (
	opPowerGet  = "power_get"
	opPowerSet  = "power_set"
	opNVOSHello = "nvos_hello"
)

// powerState is a definite answer of a node.
type powerState string

const (
	powerOn  powerState = "ON"
	powerOff powerState = "OFF"
)

// reading is what one look at a node has shown.
type reading struct {
	// state is ON or OFF, and empty when the look did not show either.
	state powerState
	// unreachable says that the controller certainly did not answer: no connection
	// to it could be made. An answer that says nothing is no such evidence, and
	// neither is a request that got lost on its way.
	unreachable bool
	// why explains a reading without a state.
	why string
}

// String is the reading for people.
func (r reading) String() string {
	switch {
	case r.state != "":
		return "reads " + string(r.state)
	case r.unreachable:
		return "is unreachable: " + r.why
	}
	return "gives no power state: " + r.why
}

func isOff(r reading) bool { return r.state == powerOff }

func isReachable(r reading) bool { return r.state == powerOn || r.state == powerOff }

func isUnreachable(r reading) bool { return r.unreachable }

// look reads a node's power state.
func (s *sequence) look(ctx context.Context, n target) reading {
	reply, err := s.request(ctx, n, opPowerGet, &rackbusv1.NodeRequest{}, time.Now().Add(s.timing.ProbeLimit))
	if err != nil {
		return reading{why: askedText(n.family, err)}
	}
	if e := reply.GetError(); e != nil {
		return reading{unreachable: e.GetCode() == agent.CodeUnreachable, why: errorText(e)}
	}
	switch state := powerState(reply.GetPowerState()); state {
	case powerOn, powerOff:
		return reading{state: state}
	default:
		return reading{why: fmt.Sprintf("the controller answers %q", reply.GetPowerState())}
	}
}

// lookAll reads the power state of nodes, in their order.
func (s *sequence) lookAll(ctx context.Context, nodes []target) []reading {
	readings := make([]reading, len(nodes))
	s.each(nodes, func(i int) { readings[i] = s.look(ctx, nodes[i]) })
	return readings
}

// request asks the agents of a node's family. deadline bounds it: no agent acts on
// it later.
func (s *sequence) request(ctx context.Context, n target, op string, req *rackbusv1.NodeRequest, deadline time.Time) (*rackbusv1.NodeReply, error) {
	if limit := s.t.Deadline(); !limit.IsZero() && limit.Before(deadline) {
		deadline = limit // the job may be ended by others from then on
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	req.V, req.Target, req.Deadline = 1, n.NodeTarget, timestamppb.New(deadline)
	return s.w.asker.Request(ctx, n.family, op, req)
}

// each calls do for every node, some at a time, and waits for all.
func (s *sequence) each(nodes []target, do func(i int)) {
	slots := make(chan struct{}, s.w.parallel)
	var wg sync.WaitGroup
	for i := range nodes {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			do(i)
		})
	}
	wg.Wait()
}

// askedText says why a request has no reply.
func askedText(f node.Family, err error) string {
	switch {
	case errors.Is(err, bus.ErrNoAgent):
		return fmt.Sprintf("no agent of the %s family is connected", f)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("the %s agent gave no answer in time", f)
	}
	return err.Error()
}

func errorText(e *rackbusv1.NodeError) string {
	if e.GetMessage() != "" {
		return e.GetMessage()
	}
	return e.GetCode()
}

// checkAgents makes sure that every family which the sequence needs is there.
// What the devices answer does not matter.
func (s *sequence) checkAgents(ctx context.Context) error {
	checks := []struct {
		n  target
		op string
	}{{s.computes[0], opPowerGet}, {s.shelves[0], opPowerGet}, {s.switches[0], opPowerGet}, {s.switches[0], opNVOSHello}}
	missing := make([]string, len(checks))
	nodes := make([]target, len(checks))
	for i, c := range checks {
		nodes[i] = c.n
	}
	s.each(nodes, func(i int) {
		c := checks[i]
		_, err := s.request(ctx, c.n, c.op, &rackbusv1.NodeRequest{Domain: s.domain}, time.Now().Add(s.timing.ProbeLimit))
		if errors.Is(err, bus.ErrNoAgent) {
			missing[i] = fmt.Sprintf("no agent of the %s family answers %s", c.n.family, c.op)
		}
	})
	for _, text := range missing {
		if text != "" {
			return s.failed(stageShutdown, job.FailureAgentLost, text+"; nothing was changed", map[string]any{"failures": []string{text}}, nil)
		}
	}
	return context.Cause(ctx)
}

// sleep waits until a moment, and ends early with the reason when ctx does.
func sleepUntil(ctx context.Context, at time.Time) error {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return context.Cause(ctx) // what is to stop does not go on because time was up too
}
