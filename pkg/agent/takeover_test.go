// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/failpoint"
	"github.com/rackbus/rackbus/pkg/job"
)

// death is where the first owner of a job dies, and what the next one finds.
type death struct {
	resume   agent.Resume
	point    string
	observed agent.Observation
	observe  error
	// state, epochs of the device's changes, and looks at the device at the end.
	state  job.State
	code   job.FailureCode
	epochs []uint64
	looks  int
}

// Points at which the first owner dies.
const (
	inPrepare   = "in prepare"
	beforeSend  = "before the change is sent"
	afterSend   = "after the change was sent"
	afterSave   = "after the handle was saved"
	inNextStage = "in the next stage"
)

var deaths = map[string]death{
	"repeatable before":         {resume: agent.Repeatable, point: beforeSend, state: job.StateCompleted, epochs: []uint64{2}},
	"repeatable behind":         {resume: agent.Repeatable, point: afterSend, state: job.StateCompleted, epochs: []uint64{1, 2}},
	"resumable before":          {resume: agent.Resumable, point: beforeSend, state: job.StateCompleted, epochs: []uint64{2}},
	"resumable with its handle": {resume: agent.Resumable, point: afterSave, state: job.StateCompleted, epochs: []uint64{1}},
	"resumable behind":          {resume: agent.Resumable, point: inNextStage, state: job.StateCompleted, epochs: []uint64{1}},
	"once before its intent":    {resume: agent.Once, point: inPrepare, state: job.StateCompleted, epochs: []uint64{2}},
	"once, not started":         {resume: agent.Once, point: beforeSend, observed: agent.ObservedNotStarted, state: job.StateCompleted, epochs: []uint64{2}, looks: 1},
	"once, done":                {resume: agent.Once, point: afterSend, observed: agent.ObservedDone, state: job.StateCompleted, epochs: []uint64{1}, looks: 1},
	"once, done and saved":      {resume: agent.Once, point: afterSave, observed: agent.ObservedDone, state: job.StateCompleted, epochs: []uint64{1}, looks: 1},
	"once, unknown":             {resume: agent.Once, point: afterSend, state: job.StateFailed, code: job.FailureOutcomeUnknown, epochs: []uint64{1}, looks: 1},
	"once, not to be observed":  {resume: agent.Once, point: afterSend, observe: errors.New("no answer"), state: job.StateFailed, code: job.FailureOutcomeUnknown, epochs: []uint64{1}, looks: 1},
	"once behind its outcome":   {resume: agent.Once, point: inNextStage, state: job.StateCompleted, epochs: []uint64{1}},
}

// mortal is a job whose first owner stops at the point of its death.
type mortal struct {
	death
	gate *gate

	mu      sync.Mutex
	looks   int
	refused error
}

func (m *mortal) reach(t *agent.Task, point string) {
	if t.Epoch() == 1 && point == m.point {
		// The dead do not notice that their context ends.
		_ = m.gate.pass(context.Background())
	}
}

func (m *mortal) handler(dev *device) agent.Handler {
	type state struct{ Handle string }
	return func(ctx context.Context, t *agent.Task) (agent.Outcome, error) {
		var st state
		if _, err := t.Load(&st); err != nil {
			return agent.Outcome{}, err
		}
		work := agent.Stage{
			Name: "work", Resume: m.resume,
			Run: func(ctx context.Context) error {
				m.reach(t, beforeSend)
				if m.resume == agent.Resumable && st.Handle != "" {
					return nil
				}
				if err := dev.write(t); err != nil {
					m.mu.Lock()
					m.refused = err
					m.mu.Unlock()
					return err
				}
				m.reach(t, afterSend)
				st.Handle = "task/1"
				if err := t.Save(ctx, st); err != nil {
					return err
				}
				m.reach(t, afterSave)
				return nil
			},
		}
		if m.resume == agent.Once {
			work.Prepare = func(context.Context) error { m.reach(t, inPrepare); return nil }
			work.Observe = func(context.Context) (agent.Observation, error) {
				m.mu.Lock()
				defer m.mu.Unlock()
				m.looks++
				return m.observed, m.observe
			}
		}
		return agent.Outcome{}, t.RunStages(ctx, []agent.Stage{
			{Name: "check", Run: noop}, work,
			{Name: "verify", Run: func(context.Context) error { m.reach(t, inNextStage); return nil }},
		})
	}
}

// TestTakeover lets a process die with jobs in every kind of stage and lets
// another one take all of them over. Then the dead wake up.
func TestTakeover(t *testing.T) {
	t.Parallel()
	s := newSite(t, quickTiming())
	sc, dev := newScripts(), newDevice()
	a := s.start("a", only(sc.handler), func(o *agent.Options) { o.DrainTimeout = 200 * time.Millisecond })
	jobs, ids := map[string]*mortal{}, map[string]job.ID{}
	for name, d := range deaths {
		m := &mortal{death: d, gate: newGate()}
		jobs[name], ids[name] = m, sc.add(s, order{}, m.handler(dev))
	}
	for _, m := range jobs {
		m.gate.awaitReached(t)
	}
	a.kill()
	b := s.start("b", only(sc.handler), nil)
	for name, m := range jobs {
		end := last(s.await(ids[name]))
		require.Equal(t, m.state.String(), end.State.String(), name)
		require.EqualValues(t, 2, end.Epoch, name)
		require.EqualValues(t, 2, end.Attempt, name)
		require.Equal(t, "b", end.Agent, name)
		if m.state == job.StateFailed {
			require.Equal(t, m.code, end.Failure.FailureCode, name)
			require.Equal(t, "work", end.Failure.Phase, name)
		} else {
			require.Equal(t, job.StageCompleted.String(), end.Stages[1].Status.String(), name)
		}
		require.Equal(t, m.epochs, dev.epochs(ids[name]), name)
		require.Equal(t, m.death.looks, m.looks, name)
	}
	require.InDelta(t, len(deaths), b.metric("rackbus_agent_takeovers_total", ""), 0)

	for _, m := range jobs {
		close(m.gate.open)
	}
	_ = a.stop() // its connection is gone, so that it may fail
	require.NoError(t, b.stop())
	for name, m := range jobs {
		require.Equal(t, m.epochs, dev.epochs(ids[name]), "%s: the dead have touched the device", name)
		if m.point == beforeSend {
			require.ErrorIs(t, m.refused, agent.ErrNotHeld, name)
		}
		requireOrdered(t, s.history(ids[name]))
		r := s.folded(ids[name])
		require.Equal(t, m.state.String(), r.State.String(), name)
		require.EqualValues(t, 2, r.Attempt, name)
		require.EqualValues(t, 3, r.PublicN, "%s: queued, running, ended", name)
	}
}

// TestDeathBehindTheOutcome: whoever meets a sealed job only reports it.
func TestDeathBehindTheOutcome(t *testing.T) {
	t.Parallel()
	for _, point := range []string{agent.FailAfterDone, agent.FailBeforeAck} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, quickTiming())
			dead := newGate()
			points := &failpoint.Points{}
			points.Arm(point, 0, func() error { return errors.Join(errors.New("dead"), dead.pass(context.Background())) })
			ran := make(chan uint64, 10)
			handlers := only(func(_ context.Context, task *agent.Task) (agent.Outcome, error) {
				ran <- task.Epoch()
				return agent.Outcome{Description: "done by a"}, nil
			})
			a := s.start("a", handlers, func(o *agent.Options) { o.Failpoints = points })
			id := s.admit(order{})
			dead.awaitReached(t)
			a.kill()
			b := s.start("b", handlers, nil)
			end := last(s.await(id))
			require.EqualValues(t, 1, end.Epoch)
			require.Equal(t, "done by a", end.Description)
			require.Eventually(t, func() bool {
				unacked, waiting := s.commands()
				return unacked == 0 && waiting == 0
			}, patience, 20*time.Millisecond)
			close(dead.open)
			require.NoError(t, b.stop())
			require.Equal(t, uint64(1), <-ran)
			require.Empty(t, ran, "a sealed job does not run again")
			finished := 0
			for _, e := range s.history(id) {
				if e.Kind == job.EventFinished {
					finished++
				}
			}
			require.Equal(t, 1, finished, "the broker drops the second report")
		})
	}
}

// TestCrashAtEveryFailpoint lets one job crash at each point in turn, in a
// process that lives on.
func TestCrashAtEveryFailpoint(t *testing.T) {
	t.Parallel()
	timing := quickTiming()
	timing.AckWait, timing.WorkInterval = 200*time.Millisecond, 100*time.Millisecond
	s := newSite(t, timing)
	dev, points := newDevice(), &failpoint.Points{}
	names := []string{agent.FailAfterClaim, agent.FailAfterIntent, agent.FailAfterDeviceChange, agent.FailAfterDone, agent.FailBeforeAck}
	var mu sync.Mutex
	var crashes []string
	for _, name := range names {
		points.Arm(name, 1, func() error {
			mu.Lock()
			defer mu.Unlock()
			crashes = append(crashes, name)
			return fmt.Errorf("%w at %s", failpoint.ErrInjected, name)
		})
	}
	p := s.start("a", only(func(ctx context.Context, task *agent.Task) (agent.Outcome, error) {
		return agent.Outcome{}, task.RunStages(ctx, []agent.Stage{{
			Name: "flash", Resume: agent.Once,
			Run: func(context.Context) error {
				if err := dev.write(task); err != nil {
					return err
				}
				return task.Failpoint(agent.FailAfterDeviceChange)
			},
			Observe: func(context.Context) (agent.Observation, error) {
				if len(dev.epochs(task.ID())) > 0 {
					return agent.ObservedDone, nil
				}
				return agent.ObservedNotStarted, nil
			},
		}})
	}), func(o *agent.Options) { o.Failpoints = points })
	id := s.admit(order{})
	end := last(s.await(id))
	require.Equal(t, job.StateCompleted, end.State)
	require.EqualValues(t, 4, end.Epoch, "three crashes came before the outcome")
	require.EqualValues(t, 1, end.Attempt, "the process did not die")
	require.Equal(t, []uint64{3}, dev.epochs(id))
	require.Eventually(t, func() bool {
		unacked, waiting := s.commands()
		return unacked == 0 && waiting == 0
	}, patience, 20*time.Millisecond)
	require.NoError(t, p.stop())
	require.Equal(t, names, crashes)
	requireOrdered(t, s.history(id))
}

// TestSessionTakenAway fences an agent whose handler does not look.
func TestSessionTakenAway(t *testing.T) {
	t.Parallel()
	s := newSite(t, quickTiming())
	sc, dev := newScripts(), newDevice()
	zombie := newGate()
	var writeErr, saveErr error
	id := sc.add(s, order{}, func(ctx context.Context, task *agent.Task) (agent.Outcome, error) {
		if task.Epoch() > 1 {
			return agent.Outcome{Description: "by b"}, dev.write(task)
		}
		_ = zombie.pass(context.Background())
		writeErr = dev.write(task)
		saveErr = task.Save(context.Background(), "late")
		return agent.Outcome{Description: "by the zombie"}, nil
	})
	polite := sc.add(s, order{}, func(ctx context.Context, task *agent.Task) (agent.Outcome, error) {
		if task.Epoch() > 1 {
			return agent.Outcome{}, nil
		}
		<-ctx.Done()
		return agent.Outcome{}, context.Cause(ctx)
	})
	a := s.start("a", only(sc.handler), nil)
	zombie.awaitReached(t)
	s.awaitEvent(polite, func(e job.Event) bool { return e.Kind == job.EventStarted })
	ck, _ := s.checkpoint(id)
	b := s.start("b", only(sc.handler), nil)
	require.NoError(t, s.api.FenceSession(t.Context(), family, ck.GetOwner()))

	end := last(s.await(id))
	require.Equal(t, "by b", end.Description)
	require.EqualValues(t, 2, end.Attempt)
	require.EqualValues(t, 2, last(s.await(polite)).Epoch, "a cut job goes on under a new session")
	require.InDelta(t, 1, a.metric("rackbus_agent_sessions_lost_total", ""), 0)
	require.NoError(t, a.Ready(), "the agent has another session")

	close(zombie.open)
	require.NoError(t, a.stop())
	require.NoError(t, b.stop())
	require.ErrorIs(t, writeErr, agent.ErrNotHeld)
	require.ErrorIs(t, saveErr, agent.ErrHandedOver)
	require.Equal(t, []uint64{2}, dev.epochs(id))
	requireOrdered(t, s.history(id))
}

// TestOneClaimWins lets two agents claim the same commands at the same time.
func TestOneClaimWins(t *testing.T) {
	t.Parallel()
	const rounds = 100
	timing := quickTiming()
	timing.AckWait = 500 * time.Millisecond
	s := newSite(t, timing)
	for range rounds {
		s.admit(order{})
	}
	agents := make([]*agent.Agent, 2)
	deliveries := make([]map[job.ID]*bus.Delivery, 2)
	for i := range agents {
		conn := s.connect(fmt.Sprint("agent", i))
		a, err := agent.New(agent.Options{Conn: conn, Family: family, Instance: fmt.Sprint("a", i), Opener: s.opener})
		require.NoError(t, err)
		sess, err := conn.OpenSession(t.Context(), family, "a")
		require.NoError(t, err)
		a.UseSession(sess)
		agents[i], deliveries[i] = a, map[job.ID]*bus.Delivery{}
		commands, err := conn.Commands(t.Context(), family)
		require.NoError(t, err)
		// The second agent gets the same commands when the first does not answer.
		for len(deliveries[i]) < rounds {
			require.NoError(t, commands.Fetch(t.Context(), rounds, func(d *bus.Delivery) { deliveries[i][d.ID] = d }))
		}
	}
	for id := range deliveries[0] {
		begin := make(chan struct{})
		won := make(chan error, len(agents))
		for i, a := range agents {
			go func() {
				<-begin
				won <- a.Claim(t.Context(), deliveries[i][id])
			}()
		}
		close(begin)
		first, second := <-won, <-won
		require.NotEqual(t, first == nil, second == nil, "job %s: %v, %v", id, first, second)
		ck, _ := s.checkpoint(id)
		require.EqualValues(t, 1, ck.GetEpoch())
	}
}

// TestRedeliveredCommand: a command that comes again while its job runs starts
// nothing, here or elsewhere.
func TestRedeliveredCommand(t *testing.T) {
	t.Parallel()
	timing := quickTiming()
	timing.AckWait, timing.WorkInterval = 100*time.Millisecond, time.Hour
	s := newSite(t, timing)
	dev, g := newDevice(), newGate()
	handlers := only(func(ctx context.Context, task *agent.Task) (agent.Outcome, error) {
		if err := dev.write(task); err != nil {
			return agent.Outcome{}, err
		}
		return agent.Outcome{}, g.pass(ctx)
	})
	a := s.start("a", handlers, nil)
	id := s.admit(order{})
	g.awaitReached(t)
	require.Eventually(t, func() bool { return a.metric("rackbus_agent_claims_total", "duplicate") >= 3 }, patience, 5*time.Millisecond)
	b := s.start("b", handlers, nil)
	require.Eventually(t, func() bool { return b.metric("rackbus_agent_claims_total", "owner_alive") >= 3 }, patience, 5*time.Millisecond)
	close(g.open)
	end := last(s.await(id))
	require.EqualValues(t, 1, end.Epoch)
	require.NoError(t, a.stop())
	require.NoError(t, b.stop())
	require.Equal(t, []uint64{1}, dev.epochs(id))
}
