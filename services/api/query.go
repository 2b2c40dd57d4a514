// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// Operations that agents answer.
const (
	opPowerGet          = "power_get"
	opPowerSet          = "power_set"
	opFirmwareInventory = "firmware_inventory"
	opDeviceInfo        = "device_info"
)

// query is one synchronous request to an agent.
type query struct {
	op     string
	target *rackbusv1.NodeTarget
	// limit bounds the request unless the caller's deadline is nearer.
	limit time.Duration
	// power is the operation of opPowerSet, by its published number.
	power int32
	// domain selects the TLS material towards a switch.
	domain string
	// fill adds what a switch operation needs; may be nil.
	fill func(*rackbusv1.NodeRequest)
	// early is how long before the limit the agent has to be done, so that its answer
	// comes in time.
	early time.Duration
}

// outcome of a query: a reply, or why there is none.
type outcome struct {
	reply *rackbusv1.NodeReply
	// err is for the caller.
	err error
	// answered says that an agent has answered, or that none was asked, so that
	// nothing is under way at the device any more.
	answered bool
}

// ask sends a query to the agents of the node's family.
func (s *Server) ask(ctx context.Context, q query) outcome {
	typ, ok := node.ByID(q.target.GetNodeType())
	if !ok {
		return outcome{err: fmt.Errorf("node type %q is not known to this version", q.target.GetNodeType()), answered: true}
	}
	ctx, cancel := context.WithTimeout(ctx, q.limit)
	defer cancel()
	deadline, _ := ctx.Deadline()
	start := time.Now()
	req := &rackbusv1.NodeRequest{
		V: 1, Target: q.target, Deadline: timestamppb.New(deadline.Add(-q.early)), PowerOperation: q.power, Domain: q.domain,
	}
	if q.fill != nil {
		q.fill(req)
	}
	reply, err := s.opts.Conn.Request(ctx, typ.Family, q.op, req)
	out, result := judge(typ.Family, q.op, reply, err, time.Since(start))
	s.metrics.queries.WithLabelValues(string(typ.Family), q.op, result).Inc()
	if out.err != nil {
		s.log.InfoContext(ctx, "node request failed", "rack", q.target.GetRackId(), "node", q.target.GetNodeId(),
			"op", q.op, "result", result, "err", out.err)
	}
	return out
}

// judge tells the caller what a reply, or none, means. The second value is the
// result label of the metric.
func judge(f node.Family, op string, reply *rackbusv1.NodeReply, err error, took time.Duration) (outcome, string) {
	switch {
	case err == nil && reply.GetError().GetCode() == "" && reply.GetError().GetMessage() == "":
		return outcome{reply: reply, answered: true}, "ok"
	case err == nil && reply.GetError().GetMessage() == "":
		return outcome{err: errors.New(reply.GetError().GetCode()), answered: true}, "refused"
	case err == nil:
		return outcome{err: errors.New(reply.GetError().GetMessage()), answered: true}, "refused"
	case errors.Is(err, bus.ErrNoAgent):
		// Nobody serves the operation: there is no agent, or none that is new enough.
		return outcome{err: fmt.Errorf("no agent of the %s family is connected that serves %s", f, op), answered: true}, "no_agent"
	case errors.Is(err, bus.ErrTooLarge):
		return outcome{err: errors.New("the request is too large for the message bus"), answered: true}, "error"
	case errors.Is(err, context.Canceled):
		return outcome{err: errors.New("the call was cancelled")}, "cancelled"
	case isDeadline(err):
		return outcome{err: fmt.Errorf("no answer within %s", took.Round(time.Millisecond))}, "timeout"
	}
	return outcome{err: errors.New(textUnavailable)}, "error"
}
