// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/credentials"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// Words of NodeError.code that the runtime itself answers with.
const (
	CodeInternal        = "internal"
	CodeTimeout         = "timeout"
	CodeInvalidArgument = "invalid_argument"
	// CodeUnreachable is the agents' word for a controller to which certainly no
	// connection could be made: evidence, and not just the lack of an answer.
	CodeUnreachable = "unreachable"
)

// Query is one synchronous request on one node.
type Query struct {
	a       *Agent
	Request *rackbusv1.NodeRequest
	Log     *slog.Logger
}

// Target is the node that is asked about.
func (q *Query) Target() *rackbusv1.NodeTarget { return q.Request.GetTarget() }

// Credentials opens the login of one endpoint of the node.
func (q *Query) Credentials(kind node.EndpointKind) (node.Credentials, error) {
	return credentials.Open(q.a.opts.Opener, q.Target(), kind)
}

// Guard lets changes of the device through until the request's deadline: until
// then the caller holds the node's lock.
func (q *Query) Guard() Guard {
	return deadlineGuard{deadline: q.Request.GetDeadline().AsTime()}
}

// Refuse is a reply that tells why the request failed.
func Refuse(code, message, messageID string) *rackbusv1.NodeReply {
	return &rackbusv1.NodeReply{V: 1, Error: &rackbusv1.NodeError{Code: code, Message: message, MessageId: messageID}}
}

func (a *Agent) serveQueries(root context.Context) (*bus.Service, error) {
	handlers := make(map[string]bus.RequestHandler, len(a.opts.Queries))
	for op, h := range a.opts.Queries {
		handlers[op] = func(ctx context.Context, req *rackbusv1.NodeRequest) *rackbusv1.NodeReply {
			start := time.Now()
			// A request ends with the process, whatever its deadline.
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			defer context.AfterFunc(root, cancel)()
			reply := a.query(ctx, op, h, req)
			a.metrics.query(op, reply, time.Since(start))
			return reply
		}
	}
	//nolint:contextcheck // requests run until the service is closed, not for one call
	s, err := a.opts.Conn.Serve(a.opts.Family, a.opts.Version, a.opts.MaxQueries, handlers)
	if err != nil {
		return nil, fmt.Errorf("start %s agent: %w", a.opts.Family, err)
	}
	return s, nil
}

// query runs one request when it is the node's turn: a controller takes one
// request at a time, and jobs are not waited for.
func (a *Agent) query(ctx context.Context, op string, h QueryHandler, req *rackbusv1.NodeRequest) (reply *rackbusv1.NodeReply) {
	ref := node.Ref{RackID: req.GetTarget().GetRackId(), NodeID: req.GetTarget().GetNodeId()}
	log := a.opts.Logger.With("op", op, "rack", ref.RackID, "node", ref.NodeID)
	if req.GetDeadline() == nil {
		return Refuse(CodeInvalidArgument, "the request names no deadline", "")
	}
	leave, err := a.nodes.enter(ctx, ref)
	if err != nil {
		return Refuse(CodeTimeout, fmt.Sprintf("node %s was busy with other requests until the deadline", ref.NodeID), "")
	}
	defer leave()
	defer func() {
		if p := recover(); p != nil {
			log.Error("query panicked", "panic", panicText(p), "stack", string(debug.Stack()))
			reply = Refuse(CodeInternal, "the agent failed while it worked on the request", "")
		}
	}()
	if reply = h(ctx, &Query{a: a, Request: req, Log: log}); reply == nil {
		log.Error("query without a reply")
		return Refuse(CodeInternal, "the agent has no answer to the request", "")
	}
	if reply.GetError() != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		log.Debug("query ended at its deadline")
	}
	return reply
}
