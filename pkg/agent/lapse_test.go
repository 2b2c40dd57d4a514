// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/job"
)

// TestBrokerAwayAndBack: while the session is not certain nothing reaches a
// device; when it still exists afterwards, every job goes on where it was.
func TestBrokerAwayAndBack(t *testing.T) {
	t.Parallel()
	timing := quickTiming()
	// The session is certain for three seconds, and exists for another 17.
	timing.SessionTTL, timing.SessionMargin, timing.SessionRenew = 20*time.Second, 17*time.Second, 200*time.Millisecond
	timing.AckWait = 20 * time.Second
	timing.Request = time.Second
	s := newSite(t, timing)
	sc, dev := newScripts(), newDevice()
	a := s.start("a", only(sc.handler), nil)
	var mu sync.Mutex
	looks := map[job.ID]int{}
	once := func(run func(context.Context, *agent.Task) error) agent.Handler {
		return func(ctx context.Context, task *agent.Task) (agent.Outcome, error) {
			return agent.Outcome{}, task.RunStages(ctx, []agent.Stage{{
				Name: "flash", Resume: agent.Once, Run: func(ctx context.Context) error { return run(ctx, task) },
				Observe: func(context.Context) (agent.Observation, error) {
					mu.Lock()
					defer mu.Unlock()
					looks[task.ID()]++
					return agent.ObservedDone, nil
				},
			}})
		}
	}
	lapsed, back := make(chan struct{}), make(chan struct{})

	// The steady one changes its device all the time.
	goOn, refused := newGate(), newGate()
	steady := sc.add(s, order{}, func(ctx context.Context, task *agent.Task) (agent.Outcome, error) {
		return agent.Outcome{}, task.RunStages(ctx, []agent.Stage{{Name: "work", Resume: agent.Resumable, Run: func(ctx context.Context) error {
			for {
				if err := dev.write(task); err != nil {
					go func() { _ = refused.pass(t.Context()) }()
					return err
				}
				select {
				case <-back:
					return nil
				default:
				}
				go func() { _ = goOn.pass(t.Context()) }()
				if err := task.Sleep(ctx, 5*time.Millisecond); err != nil {
					return err
				}
			}
		}}})
	})
	// It had sent something before the lapse, so that only a look tells.
	sent := sc.add(s, order{}, once(func(_ context.Context, task *agent.Task) error {
		if err := dev.write(task); err != nil {
			return err
		}
		<-lapsed
		return dev.write(task)
	}))
	// It had sent nothing, so that it may simply send it then.
	unsent := sc.add(s, order{}, once(func(_ context.Context, task *agent.Task) error {
		<-lapsed
		return dev.write(task)
	}))
	// Its request is cut by the lapse, and it only says that.
	cut := sc.add(s, order{}, func(ctx context.Context, task *agent.Task) (agent.Outcome, error) {
		first := true
		return agent.Outcome{}, task.RunStages(ctx, []agent.Stage{{Name: "read", Run: func(ctx context.Context) error {
			if !first {
				return nil
			}
			first = false
			rctx, cancel := task.Guard().Context(ctx)
			defer cancel()
			<-rctx.Done()
			<-back // the session is certain again when the request returns
			return errors.New("connection closed")
		}}})
	})
	goOn.awaitReached(t)
	for _, id := range []job.ID{sent, unsent, cut} {
		s.awaitEvent(id, func(e job.Event) bool { return len(e.Stages) > 0 && e.Stages[0].Status == job.StageRunning })
	}

	s.broker.Close()
	gone := time.Now()
	refused.awaitReached(t)
	require.Error(t, a.Ready())
	lastWrite := dev.last(steady)
	require.Less(t, lastWrite.Sub(gone), timing.SessionTTL-timing.SessionMargin, "no change behind the validity")
	close(lapsed)
	writes := len(dev.epochs(steady))
	s.startBroker()
	require.Eventually(t, func() bool { return a.Ready() == nil }, patience, 5*time.Millisecond)
	certain := time.Now()
	require.Eventually(t, func() bool { return len(dev.epochs(steady)) > writes }, patience, 5*time.Millisecond)
	require.Less(t, time.Since(certain), timing.SessionTTL/2)
	close(back)
	require.Eventually(t, func() bool { return s.api.Ready() == nil }, patience, 5*time.Millisecond)

	for name, id := range map[string]job.ID{"steady": steady, "sent": sent, "unsent": unsent, "cut": cut} {
		end := last(s.await(id))
		require.Equal(t, job.StateCompleted.String(), end.State.String(), name)
		require.EqualValues(t, 1, end.Epoch, name)
	}
	require.Equal(t, []uint64{1}, dev.epochs(sent), "not repeated")
	require.Equal(t, []uint64{1}, dev.epochs(unsent))
	mu.Lock()
	require.Equal(t, map[job.ID]int{sent: 1}, looks)
	mu.Unlock()
	require.InDelta(t, 0, a.metric("rackbus_agent_sessions_lost_total", ""), 0)
	require.NoError(t, a.stop())
}
