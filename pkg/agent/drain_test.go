// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/job"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// slowRedelivery makes tests fail that wait for a redelivery or a lost session.
func slowRedelivery() (s struct{ ack, session time.Duration }) {
	s.ack, s.session = 2*patience, 2*patience
	return s
}

func TestDrainHandsOverWhatWaits(t *testing.T) {
	t.Parallel()
	timing := quickTiming()
	slow := slowRedelivery()
	timing.AckWait, timing.SessionTTL = slow.ack, slow.session
	s := newSite(t, timing)
	sc := newScripts()
	a := s.start("a", only(sc.handler), nil)

	wait := func(resume agent.Resume, g *gate) agent.Handler {
		return func(ctx context.Context, task *agent.Task) (agent.Outcome, error) {
			return agent.Outcome{}, task.RunStages(ctx, []agent.Stage{{Name: "wait", Resume: resume, Run: func(ctx context.Context) error {
				if task.Epoch() > 1 {
					return nil
				}
				if err := task.Save(ctx, "handle"); err != nil {
					return err
				}
				go func() { _ = g.pass(t.Context()) }()
				return task.Sleep(ctx, time.Hour)
			}}})
		}
	}
	repeatable, resumable, once := newGate(), newGate(), newGate()
	ids := []job.ID{
		sc.add(s, order{}, wait(agent.Repeatable, repeatable)),
		sc.add(s, order{}, wait(agent.Resumable, resumable)),
	}
	bound := sc.add(s, order{}, func(ctx context.Context, task *agent.Task) (agent.Outcome, error) {
		return agent.Outcome{}, task.RunStages(ctx, []agent.Stage{{
			Name: "flash", Resume: agent.Once, Run: once.pass,
			Observe: func(context.Context) (agent.Observation, error) { return agent.ObservedUnknown, nil },
		}})
	})
	between := newGate()
	half := sc.add(s, order{}, func(ctx context.Context, task *agent.Task) (agent.Outcome, error) {
		return agent.Outcome{Description: "by epoch " + map[uint64]string{1: "1", 2: "2"}[task.Epoch()]}, task.RunStages(ctx, []agent.Stage{
			{
				Name: "flash", Resume: agent.Once, Run: between.pass,
				Observe: func(context.Context) (agent.Observation, error) { return agent.ObservedUnknown, nil },
			},
			{Name: "verify", Run: noop},
		})
	})
	for _, g := range []*gate{repeatable, resumable, once, between} {
		g.awaitReached(t)
	}
	b := s.start("b", only(sc.handler), nil)
	stopped := make(chan error, 1)
	go func() { stopped <- a.stop() }()
	for _, id := range ids {
		end := last(s.await(id))
		require.Equal(t, "b", end.Agent)
		require.EqualValues(t, 2, end.Epoch)
		require.EqualValues(t, 1, end.Attempt, "a hand-over is no death")
		require.Equal(t, job.StateCompleted, end.State)
	}
	require.Empty(t, stopped, "a stage that changes the device is finished first")
	close(once.open)
	close(between.open)
	require.Equal(t, "a", last(s.await(bound)).Agent, "its last stage ended here")
	require.Equal(t, "by epoch 2", last(s.await(half)).Description, "handed over behind its Once stage")
	require.NoError(t, <-stopped)
	alive, err := s.api.Sessions(t.Context(), family)
	require.NoError(t, err)
	require.Equal(t, 1, alive, "the session was given back")
	require.NoError(t, b.stop())
	alive, err = s.api.Sessions(t.Context(), family)
	require.NoError(t, err)
	require.Zero(t, alive)
}

func TestDrainTimeout(t *testing.T) {
	t.Parallel()
	timing := quickTiming()
	slow := slowRedelivery()
	timing.AckWait, timing.SessionTTL = slow.ack, slow.session
	s := newSite(t, timing)
	sc, g := newScripts(), newGate()
	a := s.start("a", only(sc.handler), func(o *agent.Options) { o.DrainTimeout = 100 * time.Millisecond })
	var looks atomic.Int32
	id := sc.add(s, order{}, func(ctx context.Context, task *agent.Task) (agent.Outcome, error) {
		return agent.Outcome{}, task.RunStages(ctx, []agent.Stage{{
			Name: "flash", Resume: agent.Once, Run: g.pass,
			Observe: func(context.Context) (agent.Observation, error) { looks.Add(1); return agent.ObservedDone, nil },
		}})
	})
	g.awaitReached(t)
	require.NoError(t, a.stop())
	s.start("b", only(sc.handler), nil)
	end := last(s.await(id))
	require.Equal(t, job.StateCompleted, end.State)
	require.EqualValues(t, 2, end.Epoch)
	require.EqualValues(t, 1, looks.Load(), "the next owner looks at the device first")
}

func TestHandlersThatDoNotReturn(t *testing.T) {
	t.Parallel()
	s := newSite(t, quickTiming())
	dev, g := newDevice(), newGate()
	refused := make(chan error, 1)
	a := s.start("a", only(func(_ context.Context, task *agent.Task) (agent.Outcome, error) {
		_ = g.pass(context.Background())
		refused <- dev.write(task)
		return agent.Outcome{}, nil
	}), func(o *agent.Options) { o.DrainTimeout, o.CutTimeout = 10*time.Millisecond, 10*time.Millisecond })
	id := s.admit(order{})
	g.awaitReached(t)
	require.ErrorContains(t, a.stop(), "did not end")
	close(g.open)
	require.ErrorIs(t, <-refused, agent.ErrNotHeld)
	require.Empty(t, dev.epochs(id))
}

// TestDrainWithoutBroker: a drain ends even when nothing can be written.
func TestDrainWithoutBroker(t *testing.T) {
	t.Parallel()
	timing := quickTiming()
	timing.Request = 200 * time.Millisecond
	s := newSite(t, timing)
	g := newGate()
	a := s.start("a", only(func(ctx context.Context, task *agent.Task) (agent.Outcome, error) {
		err := g.pass(ctx)
		task.Describe("a report that nobody hears")
		return agent.Outcome{}, err
	}), func(o *agent.Options) {
		o.DrainTimeout, o.ReleaseTimeout = 300*time.Millisecond, 300*time.Millisecond
	})
	s.admit(order{})
	g.awaitReached(t)
	s.broker.Close()
	close(g.open)
	begin := time.Now()
	require.NoError(t, a.stop())
	require.Less(t, time.Since(begin), patience)
}

func TestCapacity(t *testing.T) {
	t.Parallel()
	timing := quickTiming()
	slow := slowRedelivery()
	timing.AckWait = slow.ack
	s := newSite(t, timing)
	var now, most atomic.Int32
	release, began := make(chan struct{}), make(chan struct{}, 100)
	handlers := func(count bool) map[job.Type]agent.Handler {
		return only(func(context.Context, *agent.Task) (agent.Outcome, error) {
			if count {
				n := now.Add(1)
				defer now.Add(-1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				began <- struct{}{}
				<-release
			}
			return agent.Outcome{}, nil
		})
	}
	a := s.start("a", handlers(true), func(o *agent.Options) { o.MaxInFlight = 3 })
	var ids []job.ID
	for range 10 {
		ids = append(ids, s.admit(order{}))
	}
	for range 3 {
		<-began
	}
	// The first agent has three commands and no more in its memory: another one
	// gets all the others, although no command is offered twice here.
	b := s.start("b", handlers(false), nil)
	require.Eventually(t, func() bool { return b.metric("rackbus_agent_jobs_finished_total", "completed") == 7 }, patience, 5*time.Millisecond)
	unacked, waiting := s.commands()
	require.Equal(t, 3, unacked)
	require.Zero(t, waiting)
	require.Equal(t, 3, a.Running())
	require.NoError(t, b.stop())
	close(release)
	for range 6 {
		ids = append(ids, s.admit(order{}))
	}
	for _, id := range ids {
		s.await(id)
	}
	require.NoError(t, a.stop())
	require.EqualValues(t, 3, most.Load())
}

func TestQueriesEndWithTheProcess(t *testing.T) {
	t.Parallel()
	s := newSite(t, quickTiming())
	g := newGate()
	a := s.start("a", nil, func(o *agent.Options) {
		o.DrainTimeout = 50 * time.Millisecond
		o.Queries = map[string]agent.QueryHandler{"look": func(ctx context.Context, _ *agent.Query) *rackbusv1.NodeReply {
			if err := g.pass(ctx); err != nil {
				return agent.Refuse("cut", err.Error(), "")
			}
			return &rackbusv1.NodeReply{V: 1}
		}}
	})
	s.awaitService("look")
	reply := make(chan *rackbusv1.NodeReply, 1)
	go func() {
		r, err := s.api.Request(t.Context(), family, "look", &rackbusv1.NodeRequest{
			V: 1, Target: &rackbusv1.NodeTarget{RackId: "r1", NodeId: "n1"}, Deadline: timestamppb.New(time.Now().Add(time.Hour)),
		})
		if err == nil {
			reply <- r
		}
		close(reply)
	}()
	g.awaitReached(t)
	require.NoError(t, a.stop())
	require.Equal(t, "cut", (<-reply).GetError().GetCode())
}
