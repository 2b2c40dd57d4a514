// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

var long = flag.Bool("long", false, "run TestA10 with 5,000 nodes, as it was reported")

// Attempts are counted with the job, not by the broker: three deaths are three deaths, and then it is enough.
func TestA3DeathsAreCountedWithTheJob(t *testing.T) {
	t.Parallel()
	const deaths = 3
	s := newSite(t, quickTiming())
	dev := newDevice()
	id := s.admit(order{})
	flash := only(func(ctx context.Context, task *agent.Task) (agent.Outcome, error) {
		return agent.Outcome{}, task.RunStages(ctx, []agent.Stage{{Name: "flash", Run: func(ctx context.Context) error {
			if err := dev.write(task); err != nil {
				return err
			}
			<-ctx.Done()
			return context.Cause(ctx)
		}}})
	})
	for i := 1; i <= deaths; i++ {
		a := s.start(fmt.Sprint("a", i), flash, nil)
		require.Eventually(t, func() bool { return len(dev.epochs(id)) == i }, patience, time.Millisecond)
		a.kill()
	}
	s.start("last", flash, nil)
	end := last(s.await(id))
	require.Equal(t, job.StateFailed, end.State)
	require.Equal(t, job.FailureAbandoned, end.Failure.FailureCode)
	require.EqualValues(t, deaths, end.Attempt-1, "%+v", end)
	require.Equal(t, []uint64{1, 2, 3}, dev.epochs(id), "no fourth flash")
}

// shortWaits offers a command anew long before a job is done, unless its agent says that it is at work.
func shortWaits() bus.Timing {
	timing := quickTiming()
	timing.AckWait, timing.WorkInterval = 300*time.Millisecond, 90*time.Millisecond
	return timing
}

// Commands do not wait in the memory of a process that is at work, so that none is worked on twice.
func TestA5CommandsAreNotHeldBack(t *testing.T) {
	t.Parallel()
	const jobs = 6
	s := newSite(t, shortWaits())
	dev := newDevice()
	// An agent goes on only when the other one has a job too, which it cannot have while the first holds all of them.
	atWork := map[string]chan struct{}{"a": make(chan struct{}), "b": make(chan struct{})}
	start := func(name, other string) *process {
		begun := sync.OnceFunc(func() { close(atWork[name]) })
		return s.start(name, only(func(ctx context.Context, task *agent.Task) (agent.Outcome, error) {
			if err := dev.write(task); err != nil {
				return agent.Outcome{}, err
			}
			begun()
			select {
			case <-atWork[other]:
			case <-ctx.Done():
				return agent.Outcome{}, context.Cause(ctx)
			}
			return agent.Outcome{}, task.Sleep(ctx, 200*time.Millisecond)
		}), func(o *agent.Options) { o.MaxInFlight = 1 })
	}
	var ids []job.ID
	for range jobs {
		ids = append(ids, s.admit(order{}))
	}
	agents := []*process{start("a", "b"), start("b", "a")}
	for _, id := range ids {
		require.Equal(t, job.StateCompleted, last(s.await(id)).State)
		require.Equal(t, []uint64{1}, dev.epochs(id))
	}
	for _, a := range agents {
		require.Positive(t, a.metric("rackbus_agent_claims_total", "claimed"))
		require.NoError(t, a.stop())
	}
}

// A job of many ack waits is one delivery: its agent says in time that it is at work.
func TestA6LongJobIsDeliveredOnce(t *testing.T) {
	t.Parallel()
	timing := shortWaits()
	s := newSite(t, timing)
	dev := newDevice()
	work := only(func(ctx context.Context, task *agent.Task) (agent.Outcome, error) {
		if err := dev.write(task); err != nil {
			return agent.Outcome{}, err
		}
		return agent.Outcome{}, task.Sleep(ctx, 5*timing.AckWait)
	})
	agents := []*process{s.start("a", work, nil), s.start("b", work, nil)}
	id := s.admit(order{})
	end := last(s.await(id))
	require.Equal(t, job.StateCompleted, end.State)
	require.EqualValues(t, 1, end.Epoch)
	for _, a := range agents {
		require.NoError(t, a.stop())
	}
	require.Equal(t, []uint64{1}, dev.epochs(id))
}

// Nobody is told that a session has ended. The jobs of a process that has died start elsewhere all the same, as soon
// as the session is over and the command is offered again.
func TestB6ExpiryNeedsNoNotice(t *testing.T) {
	t.Parallel()
	timing := quickTiming()
	s := newSite(t, timing)
	begun := make(chan time.Time, 2)
	work := only(func(ctx context.Context, task *agent.Task) (agent.Outcome, error) {
		begun <- time.Now()
		if task.Epoch() > 1 {
			return agent.Outcome{}, nil
		}
		<-ctx.Done()
		return agent.Outcome{}, context.Cause(ctx)
	})
	a := s.start("a", work, func(o *agent.Options) { o.DrainTimeout = 200 * time.Millisecond })
	id := s.admit(order{})
	<-begun
	s.start("b", work, nil)
	died := time.Now()
	a.kill()
	again := <-begun
	const slack = 10 * time.Second // of a busy machine
	require.Less(t, again.Sub(died), timing.SessionTTL+timing.AckWait+timing.NakBusy+slack)
	require.Equal(t, job.StateCompleted, last(s.await(id)).State)
}

// Restarts leave nothing behind at the broker.
func TestA11RestartsLeaveNoConsumers(t *testing.T) {
	t.Parallel()
	s := newSite(t, quickTiming())
	restart := func() {
		a := s.start("a", only(func(context.Context, *agent.Task) (agent.Outcome, error) { return agent.Outcome{}, nil }), nil)
		require.Eventually(t, func() bool { return a.Ready() == nil }, patience, time.Millisecond)
		require.NoError(t, a.stop())
	}
	restart()
	before, err := s.raw.Consumers(t.Context())
	require.NoError(t, err)
	require.NotZero(t, before)
	for range 20 {
		restart()
	}
	after, err := s.raw.Consumers(t.Context())
	require.NoError(t, err)
	require.Equal(t, before, after)
}

// admitMany admits jobs on nodes of their own, so many in one transaction, and returns when each was stored.
func (s *site) admitMany(n int) map[job.ID]time.Time {
	const chunk = 200
	out := make(map[job.ID]time.Time, n)
	for len(out) < n {
		var ids []job.ID
		tx := s.api.Begin()
		for range min(chunk, n-len(out)) {
			ref := node.Ref{RackID: "r1", NodeID: fmt.Sprintf("n%d", s.nodes.Add(1))}
			r := job.NewLeaf(job.Spec{
				ID: s.newID(), Type: job.TypeFirmwareUpdate, RackID: ref.RackID, NodeID: ref.NodeID, Family: string(family), CreatedAt: time.Now().UTC(),
			})
			tx.CreateRecord(&r)
			tx.HoldNode(ref, &rackbusv1.NodeLock{V: 1, JobId: r.ID.String()}, bus.Absent)
			tx.PutCommand(&rackbusv1.JobCommand{
				V: 1, JobId: r.ID.String(), Type: string(r.Type), Family: r.Family, Target: &rackbusv1.NodeTarget{RackId: ref.RackID, NodeId: ref.NodeID},
			}, time.Hour)
			ids = append(ids, r.ID)
		}
		_, err := tx.Commit(s.t.Context())
		require.NoError(s.t, err)
		for _, id := range ids {
			out[id] = time.Now()
		}
	}
	return out
}

// firstEvents waits for an event of each job, and returns when the broker has stored the first one.
func (s *site) firstEvents(ids map[job.ID]time.Time) map[job.ID]time.Time {
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	out := make(map[job.ID]time.Time, len(ids))
	want := map[int]int{}
	for id := range ids {
		want[id.Partition(bus.Partitions)]++
	}
	for p, left := range want {
		r, err := s.api.ReadEvents(ctx, p, 0)
		require.NoError(s.t, err)
		for left > 0 {
			select {
			case raw := <-r.Wait():
				e, err := r.Take(raw)
				require.NoError(s.t, err)
				if _, seen := out[e.ID]; !seen {
					out[e.ID] = e.Stored
					left--
				}
			case <-ctx.Done():
				require.Failf(s.t, "events did not come", "%d of partition %d", left, p)
			}
		}
		r.Close()
	}
	return out
}

// Thousands of nodes with a command each are begun without delay, and need no more consumers than one.
func TestA10B11ManyNodes(t *testing.T) {
	nodes, limit := 200, 10*time.Second // the race detector and other tests slow down more
	if *long {
		nodes, limit = 5000, 2*time.Second
	}
	timing := quickTiming()
	timing.AckWait, timing.WorkInterval, timing.SessionTTL = time.Minute, 10*time.Second, time.Minute
	s := newSite(t, timing)
	g := newGate()
	a := s.start("a", only(func(ctx context.Context, _ *agent.Task) (agent.Outcome, error) { return agent.Outcome{}, g.pass(ctx) }),
		func(o *agent.Options) { o.MaxInFlight, o.ProgressInterval = nodes, time.Hour })
	require.Eventually(t, func() bool { return a.Ready() == nil }, patience, time.Millisecond)
	before, err := s.raw.Consumers(t.Context())
	require.NoError(t, err)
	admitted := s.admitMany(nodes)
	stored := s.firstEvents(admitted)
	after, err := s.raw.Consumers(t.Context())
	require.NoError(t, err)
	a.kill()
	close(g.open)
	t.Run("A10 first event", func(t *testing.T) {
		waits := make([]time.Duration, 0, nodes)
		for id, at := range stored {
			waits = append(waits, at.Sub(admitted[id]))
		}
		slices.Sort(waits)
		p99 := waits[len(waits)*99/100]
		t.Logf("%d nodes: half of the jobs begin within %s, 99 of 100 within %s", nodes, waits[len(waits)/2], p99)
		require.Less(t, p99, limit)
	})
	t.Run("B11 consumers", func(t *testing.T) {
		require.LessOrEqual(t, after, before+bus.Partitions, "only the readers of this test were added")
	})
}
