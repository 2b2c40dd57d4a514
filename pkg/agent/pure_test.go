// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/node"
)

// reports records when a reporter publishes, in time since its start.
type reports struct {
	begin time.Time
	at    []time.Duration
	// takes is how long the bus needs for one.
	takes time.Duration
	more  bool
}

func (r *reports) publish(ctx context.Context) bool {
	r.at = append(r.at, time.Since(r.begin))
	select {
	case <-time.After(r.takes):
	case <-ctx.Done():
	}
	return r.more
}

func TestReporterPaces(t *testing.T) {
	t.Parallel()
	// note is one change: when, and whether it is told at once.
	type note struct {
		at     time.Duration
		atOnce bool
	}
	cases := map[string]struct {
		takes time.Duration
		notes []note
		want  []time.Duration
	}{
		"the first is told at once":       {notes: []note{{time.Second, false}}, want: []time.Duration{time.Second}},
		"others wait for the interval":    {notes: []note{{0, false}, {time.Second, false}, {2 * time.Second, false}}, want: []time.Duration{0, 5 * time.Second}},
		"a stage does not wait":           {notes: []note{{0, false}, {time.Second, false}, {2 * time.Second, true}}, want: []time.Duration{0, 2 * time.Second}},
		"the interval begins anew":        {notes: []note{{0, false}, {2 * time.Second, true}, {3 * time.Second, false}}, want: []time.Duration{0, 2 * time.Second, 7 * time.Second}},
		"a slow bus gets the newest only": {takes: 4 * time.Second, notes: []note{{0, true}, {time.Second, true}, {2 * time.Second, true}, {3 * time.Second, true}}, want: []time.Duration{0, 4 * time.Second}},
		"at once outlasts what follows":   {takes: 4 * time.Second, notes: []note{{0, true}, {time.Second, true}, {2 * time.Second, false}}, want: []time.Duration{0, 4 * time.Second}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				rec := &reports{begin: time.Now(), takes: c.takes, more: true}
				r := agent.StartReporter(t.Context(), 5*time.Second, rec.publish)
				for _, n := range c.notes {
					time.Sleep(time.Until(rec.begin.Add(n.at)))
					r.Note(n.atOnce)
					synctest.Wait()
				}
				time.Sleep(time.Minute)
				r.Close()
				require.Equal(t, c.want, rec.at)
			})
		})
	}
}

func TestReporterEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rec := &reports{begin: time.Now(), takes: 3 * time.Second, more: true}
		r := agent.StartReporter(t.Context(), 5*time.Second, rec.publish)
		r.Note(true)
		synctest.Wait()
		r.Note(true)
		r.Close()
		require.Equal(t, 3*time.Second, time.Since(rec.begin), "what is under way arrives before the outcome")
		require.Len(t, rec.at, 1, "nothing is begun behind the end")
		r.Note(true) // a late note of a stray goroutine does no harm
		r.Note(false)
	})
	synctest.Test(t, func(t *testing.T) {
		rec := &reports{begin: time.Now(), takes: time.Hour, more: true}
		r := agent.StartReporter(t.Context(), 5*time.Second, rec.publish)
		r.Note(true)
		synctest.Wait()
		r.Abort()
		require.Zero(t, time.Since(rec.begin), "a lost job's report is not waited for")
	})
	synctest.Test(t, func(t *testing.T) {
		rec := &reports{begin: time.Now()}
		r := agent.StartReporter(t.Context(), 5*time.Second, rec.publish)
		for range 3 {
			r.Note(true)
			synctest.Wait()
		}
		require.Len(t, rec.at, 1, "an ended job has nothing more to tell")
		r.Close()
	})
}

func TestTurns(t *testing.T) {
	t.Parallel()
	ref, other := node.Ref{RackID: "r1", NodeID: "n1"}, node.Ref{RackID: "r1", NodeID: "n2"}
	synctest.Test(t, func(t *testing.T) {
		turns := agent.NewTurns()
		leave, err := turns.Enter(t.Context(), ref)
		require.NoError(t, err)
		free, err := turns.Enter(t.Context(), other)
		require.NoError(t, err, "other nodes do not wait")
		free()

		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		_, err = turns.Enter(short, ref)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(begin))

		var order []int
		for i := range 5 {
			go func() {
				leave, err := turns.Enter(t.Context(), ref)
				if err == nil {
					order = append(order, i)
					time.Sleep(time.Second)
					leave()
				}
			}()
			synctest.Wait()
		}
		leave()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Equal(t, []int{0, 1, 2, 3, 4}, order, "first come, first served")
		require.Zero(t, turns.Nodes(), "nodes nobody asks about are forgotten")
		_, err = turns.Enter(short, ref)
		require.Error(t, err, "a free node is not entered behind the deadline")
		require.Zero(t, turns.Nodes())
	})
}

func TestSleep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		task := agent.NewIdleTask()
		begin := time.Now()
		require.NoError(t, task.Sleep(t.Context(), time.Minute))
		require.Equal(t, time.Minute, time.Since(begin))

		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(agent.ErrTerminated) })
		begin = time.Now()
		require.ErrorIs(t, task.Sleep(ctx, time.Minute), agent.ErrTerminated, "the reason, not only that it ended")
		require.Equal(t, time.Second, time.Since(begin))
	})
}

func TestPoll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		task := agent.NewIdleTask()
		begin := time.Now()
		var at []time.Duration
		err := task.Poll(t.Context(), time.Second, func(context.Context) (bool, time.Duration, error) {
			at = append(at, time.Since(begin))
			return len(at) == 4, map[int]time.Duration{2: 7 * time.Second, 3: time.Millisecond}[len(at)], nil
		})
		require.NoError(t, err)
		require.Equal(t, []time.Duration{0, time.Second, 8 * time.Second, 9 * time.Second}, at, "the device's own pause, when longer")
		boom := errors.New("boom")
		require.ErrorIs(t, task.Poll(t.Context(), time.Second, func(context.Context) (bool, time.Duration, error) { return false, 0, boom }), boom)
	})
}

func TestOutcomesOutlastTheProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		root, stop := context.WithCancelCause(t.Context())
		ctx, cancel := agent.Outlast(root, 5*time.Second)
		defer cancel()
		time.Sleep(time.Hour)
		require.NoError(t, ctx.Err())
		stop(agent.ErrHandedOver)
		begin := time.Now()
		<-ctx.Done()
		require.Equal(t, 5*time.Second, time.Since(begin))
		require.ErrorIs(t, context.Cause(ctx), agent.ErrHandedOver)

		early, done := agent.Outlast(root, time.Hour)
		done()
		require.Error(t, early.Err())
	})
}
