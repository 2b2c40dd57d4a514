// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"google.golang.org/protobuf/proto"

	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// RequestHandler answers one synchronous node request. It must honour the
// deadline of ctx, which is the caller's.
type RequestHandler func(ctx context.Context, req *rackbusv1.NodeRequest) *rackbusv1.NodeReply

// Service is a running set of request handlers, visible to `nats micro ls`.
type Service struct {
	svc    micro.Service
	cancel context.CancelFunc

	mu     sync.Mutex
	closed bool
	wg     sync.WaitGroup
}

// begin counts a request, unless the service is closing.
func (s *Service) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.wg.Add(1)
	}
	return !s.closed
}

// Serve answers the family's node requests. The operations are shared among
// all agents of the family; at most limit requests are worked on at a time and
// further ones wait in the connection.
func (c *Conn) Serve(family node.Family, version string, limit int, handlers map[string]RequestHandler) (*Service, error) {
	ctx, cancel := context.WithCancel(c.ctx)
	s := &Service{cancel: cancel}
	svc, err := micro.AddService(c.nc, micro.Config{
		Name: "rb-agent-" + string(family), Version: version,
		Description: "synchronous node requests of the " + string(family) + " agents",
		QueueGroup:  string(family),
	})
	if err != nil {
		cancel()
		return nil, fmt.Errorf("serve %s requests: %w", family, err)
	}
	s.svc = svc
	slots := make(chan struct{}, limit)
	for op, handler := range handlers {
		endpoint := micro.HandlerFunc(func(r micro.Request) {
			// What arrives while the service drains its subscriptions is refused.
			if !s.begin() {
				c.respond(r, refusal("unavailable", "the agent is stopping"))
				return
			}
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				s.wg.Done()
				return
			}
			go func() {
				defer s.wg.Done()
				defer func() { <-slots }()
				c.answer(ctx, r, handler)
			}()
		})
		if err := svc.AddEndpoint(op, endpoint, micro.WithEndpointSubject(requestSubject(family, op))); err != nil {
			cancel()
			return nil, errors.Join(fmt.Errorf("serve %s requests: operation %s: %w", family, op, err), svc.Stop())
		}
	}
	return s, nil
}

func (c *Conn) answer(ctx context.Context, r micro.Request, handler RequestHandler) {
	var req rackbusv1.NodeRequest
	var reply *rackbusv1.NodeReply
	if err := proto.Unmarshal(r.Data(), &req); err != nil {
		reply = refusal("internal", "unreadable request")
	} else {
		if d := req.GetDeadline(); d != nil {
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadline(ctx, d.AsTime())
			defer cancel()
		}
		reply = handler(extractTrace(ctx, nats.Header(r.Headers())), &req)
	}
	c.respond(r, reply)
}

func refusal(code, message string) *rackbusv1.NodeReply {
	return &rackbusv1.NodeReply{V: 1, Error: &rackbusv1.NodeError{Code: code, Message: message}}
}

func (c *Conn) respond(r micro.Request, reply *rackbusv1.NodeReply) {
	data, err := proto.Marshal(reply)
	if err != nil {
		c.log.Error("reply not encoded", "op", r.Subject(), "err", err)
		return
	}
	if err := r.Respond(data); err != nil {
		c.log.Warn("reply not sent", "op", r.Subject(), "err", err)
	}
}

// Close stops taking requests and waits for those under way.
func (s *Service) Close() error {
	err := s.svc.Stop()
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.wg.Wait()
	s.cancel()
	if err != nil {
		return fmt.Errorf("stop request service: %w", err)
	}
	return nil
}

// Request asks an agent of the family for one operation and waits until the
// deadline of ctx. ErrNoAgent says at once that no agent of the family serves.
func (c *Conn) Request(ctx context.Context, family node.Family, op string, req *rackbusv1.NodeRequest) (*rackbusv1.NodeReply, error) {
	data, err := proto.Marshal(req)
	if err != nil {
		return nil, fmt.Errorf("encode %s request: %w", op, err)
	}
	question := newMessage(requestSubject(family, op), data)
	injectTrace(ctx, question.Header)
	m, err := c.nc.RequestMsgWithContext(ctx, question)
	if errors.Is(err, nats.ErrNoResponders) {
		return nil, fmt.Errorf("%w (family %s)", ErrNoAgent, family)
	}
	if err != nil {
		return nil, classify("request "+op, err, false)
	}
	var reply rackbusv1.NodeReply
	if err := proto.Unmarshal(m.Data, &reply); err != nil {
		return nil, fmt.Errorf("request %s: %w: unreadable reply: %w", op, ErrUnavailable, err)
	}
	return &reply, nil
}
