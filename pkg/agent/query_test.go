// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/credentials"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/secret"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// awaitService waits until an agent serves an operation. It asks without a
// deadline, which every agent refuses.
func (s *site) awaitService(op string) {
	require.Eventually(s.t, func() bool {
		ctx, cancel := context.WithTimeout(s.t.Context(), time.Second)
		defer cancel()
		reply, err := s.api.Request(ctx, family, op, &rackbusv1.NodeRequest{V: 1})
		return err == nil && reply.GetError().GetCode() == agent.CodeInvalidArgument
	}, patience, 5*time.Millisecond)
}

func (s *site) query(op, nodeID string, limit time.Duration) *rackbusv1.NodeReply {
	s.t.Helper()
	reply, err := s.api.Request(s.t.Context(), family, op, &rackbusv1.NodeRequest{
		V: 1, Target: s.target(nodeID), Deadline: timestamppb.New(time.Now().Add(limit)),
	})
	require.NoError(s.t, err)
	return reply
}

const planted = "pl4nted-passw0rd"

// target is a node with a sealed login.
func (s *site) target(nodeID string) *rackbusv1.NodeTarget {
	session, err := s.sealer.NewSession(family)
	require.NoError(s.t, err)
	sealed, err := credentials.Seal(session, node.Ref{RackID: "r1", NodeID: nodeID}, node.EndpointBMC,
		node.Credentials{User: "root", Password: secret.New(planted)})
	require.NoError(s.t, err)
	return &rackbusv1.NodeTarget{RackId: "r1", NodeId: nodeID, Bmc: &rackbusv1.DeviceEndpoint{Credentials: sealed}}
}

func TestQueries(t *testing.T) {
	t.Parallel()
	s := newSite(t, quickTiming())
	_, err := s.api.Request(t.Context(), family, "login", &rackbusv1.NodeRequest{})
	require.ErrorIs(t, err, bus.ErrNoAgent)

	var log lockedBuffer
	busy := newGate()
	var inside, most atomic.Int32
	s.start("a", nil, func(o *agent.Options) {
		o.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		o.Queries = map[string]agent.QueryHandler{
			"login": func(_ context.Context, q *agent.Query) *rackbusv1.NodeReply {
				c, err := q.Credentials(node.EndpointBMC)
				if err != nil || c.Password.Reveal() != planted {
					return agent.Refuse("login", "not opened", "")
				}
				q.Log.Info("logged in", "credentials", c)
				return &rackbusv1.NodeReply{V: 1, PowerState: "ON"}
			},
			"moved": func(_ context.Context, q *agent.Query) *rackbusv1.NodeReply {
				q.Request.Target.NodeId = "elsewhere"
				_, err := q.Credentials(node.EndpointBMC)
				return agent.Refuse("moved", err.Error(), "")
			},
			"panic": func(context.Context, *agent.Query) *rackbusv1.NodeReply { panic(planted) },
			"nil":   func(context.Context, *agent.Query) *rackbusv1.NodeReply { return nil },
			"late": func(ctx context.Context, q *agent.Query) *rackbusv1.NodeReply {
				if err := q.Guard().Check(); err != nil {
					return agent.Refuse("early", err.Error(), "")
				}
				gctx, cancel := q.Guard().Context(context.Background())
				defer cancel()
				<-gctx.Done()
				if err := q.Guard().Check(); !errors.Is(err, agent.ErrNotHeld) {
					return agent.Refuse("sent", "the guard let a change through behind the deadline", "")
				}
				return &rackbusv1.NodeReply{V: 1, PowerState: "refused"}
			},
			"slow": func(ctx context.Context, _ *agent.Query) *rackbusv1.NodeReply {
				if err := busy.pass(ctx); err != nil {
					return agent.Refuse("cut", err.Error(), "")
				}
				return &rackbusv1.NodeReply{V: 1, PowerState: "slow"}
			},
			"serial": func(context.Context, *agent.Query) *rackbusv1.NodeReply {
				n := inside.Add(1)
				defer inside.Add(-1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				return &rackbusv1.NodeReply{V: 1}
			},
		}
	})
	s.awaitService("login")

	require.Equal(t, "ON", s.query("login", "n1", time.Minute).GetPowerState())
	moved := s.query("moved", "n1", time.Minute)
	require.Equal(t, "moved", moved.GetError().GetCode(), "sealed for another node")

	for _, op := range []string{"panic", "nil"} {
		e := s.query(op, "n1", time.Minute).GetError()
		require.Equal(t, agent.CodeInternal, e.GetCode(), op)
		require.NotContains(t, e.GetMessage(), planted)
	}
	require.Equal(t, "ON", s.query("login", "n1", time.Minute).GetPowerState(), "the node is free behind a panic")

	// A node takes one request at a time; others do not wait for it.
	slow := make(chan *rackbusv1.NodeReply, 1)
	go func() { slow <- s.query("slow", "n1", time.Minute) }()
	busy.awaitReached(t)
	require.Equal(t, "ON", s.query("login", "n2", time.Minute).GetPowerState())
	waited := s.query("login", "n1", 50*time.Millisecond)
	require.Equal(t, agent.CodeTimeout, waited.GetError().GetCode())
	close(busy.open)
	require.Equal(t, "slow", (<-slow).GetPowerState())

	require.Equal(t, "refused", s.query("late", "n1", 100*time.Millisecond).GetPowerState())
	require.Equal(t, agent.CodeTimeout, s.query("login", "n1", -time.Second).GetError().GetCode())

	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() { s.query("serial", "n1", time.Minute) })
	}
	wg.Wait()
	require.EqualValues(t, 1, most.Load())
	require.NotContains(t, log.String(), planted)
	require.Contains(t, log.String(), "logged in")
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
