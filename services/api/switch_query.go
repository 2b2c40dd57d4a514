// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"fmt"
	"time"

	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// Operations that agents of switches answer beside those of all nodes.
const (
	opListSwitchFirmware = "list_switch_firmware"
	opPushSwitchFirmware = "push_switch_firmware"
	opListSwitchImages   = "list_switch_images"
	opFabricConfigure    = "fabric_configure"
	opFabricStatus       = "fabric_status"
	opFabricStateGet     = "fabric_state_get"
	opFabricStateSet     = "fabric_state_set"
	opFabricService      = "fabric_service_status"
	opTelemetrySet       = "fabric_telemetry_set"
	opSpdmEvidence       = "spdm_evidence"
)

// marginShare is the largest part of a call's time, as a divisor, that is kept for
// bringing its answer home.
const marginShare = 8

// within returns how long a call may ask a switch, so that what it has found out
// reaches the caller before the caller gives up, and how long before that the agent
// has to be done.
func (s *Server) within(ctx context.Context, limit time.Duration) (wait, early time.Duration) {
	if d, ok := ctx.Deadline(); ok {
		left := time.Until(d)
		limit = min(limit, left-min(s.opts.Timing.AnswerMargin, left/marginShare))
	}
	return limit, min(s.opts.Timing.AnswerMargin, limit/marginShare)
}

// askSwitch reads from a switch.
func (s *Server) askSwitch(ctx context.Context, limit time.Duration, q query) outcome {
	q.limit, q.early = s.within(ctx, limit)
	return s.ask(ctx, q)
}

// changeSwitch changes a switch while it holds it against jobs and other changes. A
// change that got no answer may have happened, and says so.
func (s *Server) changeSwitch(ctx context.Context, what string, limit time.Duration, q query) outcome {
	limit, q.early = s.within(ctx, limit)
	h := &hold{s: s, op: what, deadline: time.Now().Add(limit)}
	out := h.send(ctx, q)
	if out.err != nil && !out.answered {
		out.err = fmt.Errorf("%w; it is not known how far the switch got with the %s, and it stays locked until %s",
			out.err, what, h.end().UTC().Format(time.RFC3339))
	}
	return out
}

// result is the JSON document of a reply.
func (o outcome) result() (string, error) {
	if o.err != nil {
		return "", o.err
	}
	return o.reply.GetResultJson(), nil
}

// eachSwitch builds and asks all switches of a request, each in its turn. Lines of
// one switch do not keep those of others back.
func (s *Server) eachSwitch(nodes []selected, do func(i int, target *rackbusv1.NodeTarget) error) []error {
	errs := make([]error, len(nodes))
	targets := s.newTargets()
	eachNode(refsOf(nodes), s.opts.BatchParallelism, func(i int) {
		target, err := s.switchTarget(targets, &nodes[i], bmcChecked)
		if err == nil {
			err = do(i, target)
		}
		errs[i] = err
	})
	return errs
}
