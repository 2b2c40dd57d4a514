// SPDX-License-Identifier: Apache-2.0

package jobs_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	admit "github.com/rackbus/rackbus/pkg/admission"
	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/services/jobs"
)

// rolling is a batch that starts in waves, with the nodes of its children in order.
type rolling struct {
	*rig
	admitter *admit.Admitter
	id       job.ID
	nodes    []node.Ref
}

func (r *rig) admitter(change ...func(*admit.Options)) *admit.Admitter {
	r.t.Helper()
	o := admit.Options{Conn: r.connect("api"), Logger: r.log}
	for _, c := range change {
		c(&o)
	}
	a, err := admit.New(o)
	require.NoError(r.t, err)
	r.t.Cleanup(a.Close)
	return a
}

// roll admits nodes with a plan. The nodes of a request are given by asked.
func (r *rig) roll(plan string, req admit.Request) *rolling {
	r.t.Helper()
	p, err := job.ParseRolloutPlan(plan)
	require.NoError(r.t, err)
	req.Rollout = &p
	out := &rolling{rig: r, admitter: r.admitter()}
	res, err := out.admitter.Admit(r.t.Context(), req)
	require.NoError(r.t, err)
	require.Equal(r.t, len(req.Nodes), res.Admitted())
	out.id = res.JobID
	for _, n := range res.Nodes {
		out.nodes = append(out.nodes, n.Ref)
	}
	return out
}

func (o *rolling) parent() job.Record { return o.record(o.id) }

// offered are the children whose command is stored for the agents.
func (o *rolling) offered() []uint32 {
	o.t.Helper()
	var out []uint32
	for i, at := range o.nodes {
		cmd, _, err := o.conn.Command(o.t.Context(), node.FamilyCompute, at)
		if errors.Is(err, bus.ErrNotFound) {
			continue
		}
		require.NoError(o.t, err)
		if id := o.id.Child(uint32(i) + 1); cmd.GetJobId() == id.String() {
			out = append(out, id.Index())
		}
	}
	return out
}

// awaitWave waits until the n-th wave has begun and all of it is started, and checks
// that the commands are exactly those of the started children.
func (o *rolling) awaitWave(n uint32) []uint32 {
	o.t.Helper()
	var r job.Record
	o.await(fmt.Sprintf("wave %d", n), func() bool {
		r = o.parent()
		require.LessOrEqual(o.t, r.Rollout.Wave, n, r.Description)
		return r.Rollout.Wave == n && len(r.RolloutPending(1)) == 0
	})
	members := slices.Collect(r.Rollout.Members.All())
	offered := o.offered()
	for _, i := range offered {
		require.True(o.t, r.Rollout.Released.Has(i), "child %d is offered and not released", i)
	}
	for _, i := range members {
		require.Contains(o.t, offered, i)
	}
	return members
}

func (o *rolling) end(state job.State, children ...uint32) {
	o.t.Helper()
	o.publishEnds(state, children)
	o.awaitEnd(state, children...)
}

// publishEnds is what the agents of children say at their end, side by side.
func (o *rolling) publishEnds(state job.State, children []uint32) {
	o.t.Helper()
	errs := make([]error, len(children))
	var wg sync.WaitGroup
	for k, i := range children {
		at, now := o.nodes[i-1], time.Now().UTC()
		wg.Go(func() {
			errs[k] = o.conn.PublishEvent(o.t.Context(), &job.Event{
				Kind: job.EventFinished, ID: o.id.Child(i), RackID: at.RackID, NodeID: at.NodeID, Type: job.TypeFirmwareUpdate,
				Family: string(node.FamilyCompute), Epoch: 1, N: 9, Attempt: 1, State: state, At: now, StartedAt: now,
			})
		})
	}
	wg.Wait()
	require.NoError(o.t, errors.Join(errs...))
}

// awaitEnd waits until children have ended as wanted.
func (o *rolling) awaitEnd(state job.State, children ...uint32) {
	o.t.Helper()
	ids := make([]job.ID, len(children))
	for k, i := range children {
		ids[k] = o.id.Child(i)
	}
	o.await(fmt.Sprintf("%d jobs to be %s", len(ids), state), func() bool {
		records, err := o.conn.Records(o.t.Context(), ids, 0)
		require.NoError(o.t, err)
		for _, r := range records {
			if !r.State.Terminal() {
				return false
			}
			require.Equal(o.t, state, r.State)
		}
		return len(records) == len(ids)
	})
}

// requireHeld checks that children hold their nodes, though no agent is offered them.
func (o *rolling) requireHeld(children ...uint32) {
	o.t.Helper()
	for _, i := range children {
		require.Equal(o.t, o.id.Child(i).String(), o.lock(o.nodes[i-1]).GetJobId())
	}
}

// awaitNothingKept waits until no command is kept for any child.
func (o *rolling) awaitNothingKept() {
	o.t.Helper()
	o.await("the kept commands to be dropped", func() bool {
		for i, at := range o.nodes {
			if _, err := o.conn.ParkedCommand(o.t.Context(), at, o.id.Child(uint32(i)+1)); !errors.Is(err, bus.ErrNotFound) {
				return false
			}
		}
		return true
	})
}

func (o *rolling) requireAllFree() {
	o.t.Helper()
	locks, err := o.conn.Locks(o.t.Context(), o.nodes)
	require.NoError(o.t, err)
	for i, l := range locks {
		require.Empty(o.t, l.GetJobId())
		require.Equal(o.t, o.id.Child(uint32(i)+1).String(), l.GetLastJobId())
	}
}

// change steers the rollout as the API does.
func (o *rolling) change(f func(job.Record) job.Record) {
	o.t.Helper()
	for {
		r, rev, err := o.conn.Record(o.t.Context(), o.id)
		require.NoError(o.t, err)
		next := f(r)
		tx := o.conn.Begin()
		tx.ReplaceRecord(&next, rev)
		if _, due := next.RolloutDue(); due {
			tx.ArmTimer(bus.TimerRollout, o.id, time.Now())
		}
		if _, err = tx.Commit(o.t.Context()); !errors.Is(err, bus.ErrConflict) {
			require.NoError(o.t, err)
			return
		}
	}
}

func TestRolloutStartsWaveByWave(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start(hasty)
	o := r.roll("wave=40%", asked("r", 0, 5))
	for n, want := range [][]uint32{{1, 2}, {3, 4}, {5}} {
		require.Equal(t, want, o.awaitWave(uint32(n+1)))
		for i := want[len(want)-1] + 1; i <= 5; i++ {
			o.requireHeld(i)
			require.Equal(t, "Queued; starts with its wave", r.record(o.id.Child(i)).Description)
		}
		if n == 0 {
			r.finished(o.id.Child(1), 1, job.StateCompleted)
			r.await("the text", func() bool {
				return o.parent().Description == "Wave 1 of 3 under way: 1 of 2 ended; 1 of 5 done in all"
			})
			require.Equal(t, []uint32{1, 2}, o.offered(), "a wave ends as a whole")
		}
		o.end(job.StateCompleted, want...)
	}
	parent := r.awaitState(o.id, job.StateCompleted)
	require.Equal(t, job.RolloutReleased, parent.Rollout.State)
	history, _, err := r.conn.NewestJobEvents(t.Context(), o.id, 0, 100, 16<<20)
	require.NoError(t, err)
	var notes []string
	for i := range history {
		if history[i].Kind == job.EventNote {
			notes = append(notes, history[i].Description)
		}
	}
	require.Equal(t, []string{
		"wave 1 of 3 begun, nodes in it: 2", "wave 2 of 3 begun, nodes in it: 2", "wave 3 of 3 begun, nodes in it: 1",
	}, notes)
	o.requireAllFree()
	o.awaitNothingKept()
}

func TestRolloutTakesOneNodeOfARackAtATime(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start(hasty)
	req := asked("a", 0, 3)
	req.RackID = ""
	req.Nodes = append(req.Nodes, asked("b", 0, 1).Nodes...)
	o := r.roll("wave=10; per=rack", req)
	require.Equal(t, []uint32{1, 4}, o.awaitWave(1))
	require.Equal(t, uint32(3), o.parent().Rollout.Waves)
	o.end(job.StateCompleted, 1, 4)
	require.Equal(t, []uint32{2}, o.awaitWave(2))
	o.end(job.StateCompleted, 2)
	require.Equal(t, []uint32{3}, o.awaitWave(3))
	o.end(job.StateCompleted, 3)
	r.awaitState(o.id, job.StateCompleted)
}

func TestRolloutStopsAfterTooManyFailures(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start(hasty)
	o := r.roll("wave=3; max-failures=1", asked("r", 0, 7))
	// Another job waits behind a node whose wave never comes.
	waiting := r.admission().park(o.nodes[6], true)
	o.awaitWave(1)
	o.end(job.StateFailed, 1)
	require.Equal(t, job.RolloutRunning, o.parent().Rollout.State)
	o.end(job.StateTimedOut, 2)
	for i := uint32(4); i <= 7; i++ {
		c := r.awaitState(o.id.Child(i), job.StateCancelled)
		require.Equal(t, job.FailureRolloutStopped, c.Failure.FailureCode)
		require.Equal(t, "not started: the rollout stopped after 2 failures", c.Failure.Message)
	}
	require.Equal(t, waiting.String(), r.lock(o.nodes[6]).GetJobId(), "the next in line takes over")
	cmd, _, err := r.conn.Command(t.Context(), node.FamilyCompute, o.nodes[6])
	require.NoError(t, err)
	require.Equal(t, waiting.String(), cmd.GetJobId())
	r.await("the others to be counted", func() bool { return o.parent().Counts.Cancelled == 4 })
	require.Equal(t, job.StateRunning, o.parent().State, "what was started goes on")
	require.Contains(t, o.parent().Description, "The rollout stopped after 2 failures, wave 1 ends: 2 of 3 ended")
	o.end(job.StateCompleted, 3)
	parent := r.awaitState(o.id, job.StatePartiallyFailed)
	require.Equal(t, "Batch complete: 1/7 succeeded, 6 failed", parent.Description)
	require.Equal(t, job.RolloutStopFailures, parent.Rollout.Stop)
	r.finished(waiting, 1, job.StateCompleted)
	r.awaitState(waiting, job.StateCompleted)
	o.awaitNothingKept()
}

func TestRolloutHeldResumedAborted(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start(hasty)
	o := r.roll("wave=1; confirm", asked("r", 0, 4))
	o.awaitWave(1)
	o.end(job.StateCompleted, 1)
	r.await("the next wave to be held", func() bool { return o.parent().Rollout.State == job.RolloutHeld })
	require.Contains(t, o.parent().Description, "Held before wave 2: the plan asks for a confirmation")
	resume := func(p job.Record) job.Record {
		next, err := job.ResumeRollout(p, time.Now())
		require.NoError(t, err)
		return next
	}
	o.change(resume)
	require.Equal(t, []uint32{2}, o.awaitWave(2))
	// Held by somebody while a wave is under way.
	o.change(func(p job.Record) job.Record {
		next, _, err := job.HoldRollout(p, "lunch", "eve", time.Now())
		require.NoError(t, err)
		return next
	})
	o.end(job.StateCompleted, 2)
	r.await("the hold", func() bool { return o.parent().Description == "Held before wave 3: lunch (eve); 2 of 4 done in all" })
	require.Equal(t, []uint32{1, 2}, o.released())
	o.change(resume)
	require.Equal(t, []uint32{3}, o.awaitWave(3))
	o.change(func(p job.Record) job.Record {
		next, _, err := job.AbortRollout(p, "wrong image", "eve", time.Now())
		require.NoError(t, err)
		return next
	})
	c := r.awaitState(o.id.Child(4), job.StateCancelled)
	require.Equal(t, "not started: the rollout was aborted: wrong image", c.Failure.Message)
	o.end(job.StateCompleted, 3)
	r.awaitState(o.id, job.StatePartiallyFailed)
	o.requireAllFree()
	o.awaitNothingKept()
}

// released are the children that may start.
func (o *rolling) released() []uint32 {
	o.t.Helper()
	p := o.parent()
	return slices.Collect(p.Rollout.Released.All())
}

func TestRolloutPausesBetweenWaves(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start(hasty)
	o := r.roll("wave=1; pause=1s", asked("r", 0, 2))
	o.awaitWave(1)
	o.end(job.StateCompleted, 1)
	p := o.parent()
	require.Equal(t, job.RolloutPausing, p.Rollout.State)
	require.Contains(t, p.Description, "Wave 1 of 2 ended, next wave at ")
	o.awaitWave(2)
	require.False(t, time.Now().Before(p.Rollout.NextWaveAt))
	o.end(job.StateCompleted, 2)
	r.awaitState(o.id, job.StateCompleted)
}

func TestCancelledRollout(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start(hasty)
	o := r.roll("wave=2", asked("r", 0, 6))
	o.awaitWave(1)
	// One of the others alone: the rollout goes on without it.
	r.requestCancel(o.id.Child(4), job.CancelGraceful)
	c := r.awaitState(o.id.Child(4), job.StateCancelled)
	require.Equal(t, job.FailureCancelledByOperator, c.Failure.FailureCode)
	r.requireFree(o.nodes[3], o.id.Child(4))
	// And one that a newer job replaces.
	req := asked("r", 2, 3)
	req.OnBusy = admit.OnBusySupersede
	res, err := o.admitter.AdmitLeaf(t.Context(), req)
	require.NoError(t, err)
	r.awaitState(o.id.Child(3), job.StateSuperseded)
	r.await("the newer job to have the node", func() bool { return r.lock(o.nodes[2]).GetJobId() == res.JobID.String() })

	o.end(job.StateCompleted, 1, 2)
	require.Equal(t, []uint32{5, 6}, o.awaitWave(2))
	r.requestCancel(o.id, job.CancelGraceful)
	parent := r.awaitState(o.id, job.StatePartiallyFailed)
	require.Equal(t, job.Counts{Completed: 2, Cancelled: 3, Superseded: 1}, parent.Counts)

	other := r.roll("wave=1", asked("s", 0, 3))
	other.awaitWave(1)
	r.requestCancel(other.id, job.CancelGraceful)
	parent = r.awaitState(other.id, job.StateCancelled)
	require.Equal(t, job.RolloutStopCancelled, parent.Rollout.Stop)
	require.Equal(t, []uint32{1}, slices.Collect(parent.Rollout.Released.All()))
	other.requireAllFree()
	other.awaitNothingKept()
}

// Nobody takes what the wave starts: its own queue deadline ends it, and that counts
// as a failure.
func TestQueueDeadlineOfAWave(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start(hasty, func(o *jobs.Options) { o.QueueDeadline = 300 * time.Millisecond })
	r.session()
	o := r.roll("wave=1; max-failures=1", asked("r", 0, 3))
	for i := uint32(1); i <= 2; i++ {
		c := r.awaitState(o.id.Child(i), job.StateTimedOut)
		require.Equal(t, job.FailureQueueDeadline, c.Failure.FailureCode)
	}
	r.awaitState(o.id.Child(3), job.StateCancelled)
	r.awaitState(o.id, job.StateFailed)
}

// The rollout as a whole takes too long.
func TestDeadlineOfARollout(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start(hasty)
	o := r.roll("wave=1", asked("s", 0, 3))
	o.awaitWave(1)
	r.started(o.id.Child(1), 1)
	r.awaitState(o.id.Child(1), job.StateRunning)
	r.armBatch(o.id, time.Now())
	for i := uint32(2); i <= 3; i++ {
		c := r.awaitState(o.id.Child(i), job.StateTimedOut)
		require.Equal(t, "not started: the deadline of the rollout passed", c.Failure.Message)
	}
	require.Equal(t, job.RolloutStopDeadline, o.parent().Rollout.Stop)
	o.end(job.StateCompleted, 1)
	r.awaitState(o.id, job.StatePartiallyFailed)
	o.requireAllFree()
}

func TestLostCommandOfAWave(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start(hasty)
	o := r.roll("wave=2; max-failures=1", asked("r", 0, 4))
	o.awaitWave(1)
	require.NoError(t, r.conn.DropParked(t.Context(), o.nodes[2], o.id.Child(3)))
	o.end(job.StateCompleted, 1, 2)
	c := r.awaitState(o.id.Child(3), job.StateFailed)
	require.Equal(t, job.FailureCommandLost, c.Failure.FailureCode)
	r.await("its neighbour to be started", func() bool { return slices.Contains(o.offered(), 4) })
	o.end(job.StateCompleted, 4)
	r.awaitState(o.id, job.StatePartiallyFailed)
}

// A lost command may be all that a wave was still waiting for: what the rollout needs
// then, nobody else would do.
func TestLostCommandEndsItsWave(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		plan string
		last job.State
	}{
		"goes on": {"wave=1; max-failures=1", job.StateCompleted},
		"stops":   {"wave=1", job.StateCancelled},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.start(hasty)
			o := r.roll(c.plan, asked("r", 0, 3))
			o.awaitWave(1)
			require.NoError(t, r.conn.DropParked(t.Context(), o.nodes[1], o.id.Child(2)))
			o.end(job.StateCompleted, 1)
			failed := r.awaitState(o.id.Child(2), job.StateFailed)
			require.Equal(t, job.FailureCommandLost, failed.Failure.FailureCode)
			if c.last == job.StateCompleted {
				require.Equal(t, []uint32{3}, o.awaitWave(3))
				o.end(job.StateCompleted, 3)
			}
			r.awaitState(o.id.Child(3), c.last)
			r.awaitState(o.id, job.StatePartiallyFailed)
		})
	}
}
