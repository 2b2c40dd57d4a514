// SPDX-License-Identifier: Apache-2.0

package jobs_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	admit "github.com/rackbus/rackbus/pkg/admission"
	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/failpoint"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/services/jobs"
)

// TestRolloutOfACutOffAdmission lets the API die between the chunks of a batch. The
// nodes that were attached start in waves once the admission is closed.
func TestRolloutOfACutOffAdmission(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start(hasty)
	points := &failpoint.Points{}
	points.Arm(admit.PointBetweenChunks, 0, func() error { return failpoint.ErrInjected })
	a := r.admitter(func(o *admit.Options) { o.Failpoints, o.AdmitTimeout = points, 500*time.Millisecond })
	req := asked("r", 0, 241)
	req.Rollout = &job.RolloutPlan{WavePercent: 1}
	res, err := a.Admit(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, 240, res.Admitted())
	o := &rolling{rig: r, admitter: a, id: res.JobID}
	for _, n := range res.Nodes[:240] {
		o.nodes = append(o.nodes, n.Ref)
	}
	require.Equal(t, []uint32{1, 2, 3}, o.awaitWave(1), "one percent of those attached, rounded up")
	o.change(func(p job.Record) job.Record {
		next, _, err := job.AbortRollout(p, "", "eve", time.Now())
		require.NoError(t, err)
		return next
	})
	o.end(job.StateCompleted, 1, 2, 3)
	r.awaitState(o.id, job.StatePartiallyFailed)
	o.requireAllFree()
}

// TestRolloutSurvivesItsService kills the jobs service around every transaction that
// starts children, between waves, and while a stop ends the rest. No child is lost,
// none is started twice, and none after the stop.
func TestRolloutSurvivesItsService(t *testing.T) {
	t.Parallel()
	const total, wave = 850, 410 // a wave takes two transactions
	r := newRig(t)
	// mortal is a replica that stands still at a point, until it is killed there.
	mortal := func(point string) (kill func()) {
		points, arrived, killed := &failpoint.Points{}, make(chan struct{}), make(chan struct{})
		var once sync.Once
		points.Arm(point, 0, func() error {
			once.Do(func() { close(arrived) })
			<-killed
			return failpoint.ErrInjected // nothing after it is done
		})
		rep := r.start(hasty, func(o *jobs.Options) { o.Failpoints = points })
		return func() {
			<-arrived
			rep.cancel()
			close(killed)
			rep.stop(t)
		}
	}
	kill := mortal("rollout.before_commit")
	o := r.roll(fmt.Sprintf("wave=%d; max-failures=1", wave), asked("r", 0, total))
	kill()
	require.Zero(t, o.parent().Rollout.Wave)
	require.Empty(t, o.released())
	mortal("rollout.after_commit")()
	// After the first transaction of the wave, which has started a part of it.
	half := o.parent()
	require.Equal(t, uint32(1), half.Rollout.Wave)
	require.NotEmpty(t, o.released())
	require.Equal(t, o.released(), o.offered())
	require.NotEmpty(t, half.RolloutPending(1))

	rep := r.start(hasty)
	members := o.awaitWave(1)
	require.Len(t, members, wave)
	commands := o.stored(members)
	o.end(job.StateCompleted, members[1:]...)
	rep.stop(t) // between two waves
	o.finished(o.id.Child(1), 1, job.StateCompleted)

	rep = r.start(hasty)
	second := o.awaitWave(2)
	require.Len(t, second, wave)
	require.Equal(t, commands, o.stored(members), "no command was stored twice")
	rep.stop(t)

	kill = mortal("rollout.end")
	o.finished(o.id.Child(second[0]), 1, job.StateFailed)
	o.finished(o.id.Child(second[1]), 1, job.StateFailed)
	kill()
	require.Equal(t, job.RolloutStopped, o.parent().Rollout.State)
	r.start(hasty)
	var last []uint32
	for i := uint32(2*wave + 1); i <= total; i++ {
		last = append(last, i)
	}
	o.awaitEnd(job.StateCancelled, last...)
	o.end(job.StateCompleted, second[2:]...)
	parent := r.awaitState(o.id, job.StatePartiallyFailed)
	require.Equal(t, job.Counts{Completed: 2*wave - 2, Failed: 2, Cancelled: total - 2*wave}, parent.Counts)
	require.Equal(t, uint32(2*wave), parent.Rollout.Released.Len())
	o.requireAllFree()
}

// stored are the revisions of the commands of children.
func (o *rolling) stored(children []uint32) []bus.Revision {
	o.t.Helper()
	var out []bus.Revision
	for _, i := range children {
		_, rev, err := o.conn.Command(o.t.Context(), node.FamilyCompute, o.nodes[i-1])
		require.NoError(o.t, err)
		out = append(out, rev)
	}
	return out
}

// TestLargeWaveWhileItsChildrenWork starts a wave of several transactions while the
// fold changes the parent's record for the children that have started.
func TestLargeWaveWhileItsChildrenWork(t *testing.T) {
	t.Parallel()
	const total = 850
	r := newRig(t)
	r.start(hasty)
	r.start(hasty)
	commands, err := r.conn.Commands(t.Context(), node.FamilyCompute)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var agents sync.WaitGroup
	defer agents.Wait()
	defer cancel()
	var mu sync.Mutex
	taken := make(map[job.ID]bus.Revision)
	work := func(d *bus.Delivery) {
		mu.Lock()
		if first, again := taken[d.ID]; again && first != d.Revision {
			t.Errorf("job %s was offered twice", d.ID)
		}
		taken[d.ID] = d.Revision
		mu.Unlock()
		now := time.Now().UTC()
		e := job.Event{
			Kind: job.EventFinished, ID: d.ID, RackID: d.Ref().RackID, NodeID: d.Ref().NodeID, Epoch: 1, N: 9,
			State: job.StateCompleted, At: now, StartedAt: now, CommandSeq: uint64(d.Revision),
		}
		if r.conn.PublishEvent(ctx, &e) == nil {
			_ = d.Finish(ctx)
		}
	}
	agents.Go(func() {
		for ctx.Err() == nil {
			_ = commands.Fetch(ctx, 50, func(d *bus.Delivery) { agents.Go(func() { work(d) }) })
		}
	})
	o := r.roll("wave=100%", asked("r", 0, total))
	parent := r.awaitState(o.id, job.StateCompleted)
	require.Equal(t, uint32(1), parent.Rollout.Wave)
	require.Equal(t, uint32(total), parent.Counts.Completed)
	o.requireAllFree()
	cancel()
	agents.Wait()
	require.Len(t, taken, total)
}
