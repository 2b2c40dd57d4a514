// SPDX-License-Identifier: Apache-2.0

package coldreboot

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/job"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

// crashAt lets the process die the n-th time it comes to a point.
func (f *fakeTask) crashAt(point string, n int32) *atomic.Int32 {
	var hits atomic.Int32
	f.points[point] = func() error {
		if hits.Add(1) == n {
			return errCrash
		}
		return nil
	}
	return &hits
}

// TestCrashAnywhere lets the process die in every stage and around every power
// action. The next owner brings the rack up, and every device gets every action
// exactly once.
func TestCrashAnywhere(t *testing.T) {
	type crash struct {
		point string
		n     int32
	}
	var crashes []crash
	for _, stage := range StageNames() {
		crashes = append(crashes, crash{Point(stage), 1})
	}
	for n := int32(1); n <= 8; n++ { // two nodes in each of four power stages
		crashes = append(crashes, crash{agent.FailAfterIntent, n}, crash{agent.FailAfterDeviceChange, n})
	}
	for _, c := range crashes {
		for _, gap := range []time.Duration{0, 10 * time.Second, 20 * time.Minute} {
			t.Run(fmt.Sprintf("%s %d, back after %s", c.point, c.n, gap), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r, f := newFakeRack(), newFakeTask()
					hits := f.crashAt(c.point, c.n)
					_, err := f.run(t.Context(), r)
					require.ErrorIs(t, err, errCrash)
					time.Sleep(gap)
					o, err := f.run(t.Context(), r)
					require.NoError(t, err)
					require.Equal(t, everyActionOnce, r.taken())
					require.Equal(t, Completed, o.Description)
					require.GreaterOrEqual(t, hits.Load(), c.n)
					tl := resultOf(t, o)
					_, _, details := tl.stage(t, stageShelvesOff)
					require.Equal(t, map[string]any{"nodes": 2.0}, details, "what an earlier owner has found stays")
				})
			})
		}
	}
}

// TestTakeoverGoesOnWithTheWait: the discharge was begun at 0 s; whoever comes 100 s
// later waits for the 80 s that are left of the floor.
func TestTakeoverGoesOnWithTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, f := newFakeRack(), newFakeTask()
		r.shutdown, r.discharge = 0, 0
		ctx, die := context.WithCancelCause(t.Context())
		time.AfterFunc(50*time.Second, func() { die(agent.ErrHandedOver) })
		_, err := f.run(ctx, r)
		require.ErrorIs(t, err, agent.ErrHandedOver)
		time.Sleep(50 * time.Second)
		f.crashAt(Point(stageShelvesOn), 1)
		start := time.Now()
		_, err = f.run(t.Context(), r)
		require.ErrorIs(t, err, errCrash)
		require.Equal(t, 80*time.Second, time.Since(start))
	})
}

// TestTakeoverWaitsForTheFormerRequest: an agent may still act on what a dead owner
// has asked for, so that a state which does not show it proves nothing yet.
func TestTakeoverWaitsForTheFormerRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, f := newFakeRack(), newFakeTask()
		ctx, die := context.WithCancelCause(t.Context())
		r.hook = func(op, id string, req *rackbusv1.NodeRequest) (*rackbusv1.NodeReply, error) {
			if op != opPowerSet || id != shelf1 {
				return nil, nil
			}
			r.mu.Lock()
			r.hook = nil
			r.mu.Unlock()
			// The agent takes its time; the owner is gone meanwhile.
			time.AfterFunc(50*time.Second, func() {
				r.mu.Lock()
				defer r.mu.Unlock()
				r.take(shelf1, rackmanager.PowerOperation_POWER_OPERATION_OFF)
			})
			die(agent.ErrHandedOver)
			return nil, context.Canceled
		}
		_, err := f.run(ctx, r)
		require.ErrorIs(t, err, agent.ErrHandedOver)
		_, err = f.run(t.Context(), r)
		require.NoError(t, err)
		require.Equal(t, everyActionOnce, r.taken())
	})
}

// TestCancelInAnyStage: waits are cut, power stages end what is under way; nothing
// is sent afterwards.
func TestCancelInAnyStage(t *testing.T) {
	power := []string{stageShutdown, stageShelvesOff, stageShelvesOn, stageComputeOn}
	for _, stage := range StageNames() {
		t.Run(stage, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, f := newFakeRack(), newFakeTask()
				var before map[string][]string
				f.points[Point(stage)] = func() error {
					before = r.taken()
					f.cancelJob()
					return nil
				}
				o, err := f.run(t.Context(), r)
				require.ErrorIs(t, err, agent.ErrCancelled)
				message, details := "cold reboot cancelled during "+stage, map[string]any{"cancelled": true}
				if slices.Contains(power, stage) {
					message, details = "cold reboot cancelled before "+stage, map[string]any{"cancelled_before_start": true}
				}
				require.Equal(t, message, requireFailure(t, err, job.FailureCancelledByOperator).Message)
				tl := resultOf(t, o)
				status, told, got := tl.stage(t, stage)
				require.Equal(t, "failed", status)
				require.Equal(t, message, told)
				require.Equal(t, details, got)
				require.Equal(t, before, r.taken(), "nothing is done afterwards")
			})
		})
	}
}

// TestCancelBetweenStages is seen before the next one begins.
func TestCancelBetweenStages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, f := newFakeRack(), newFakeTask()
		f.mu.Lock()
		f.asked = agent.ErrCancelled
		f.mu.Unlock()
		o, err := f.run(t.Context(), r)
		require.ErrorIs(t, err, agent.ErrCancelled)
		require.Equal(t, "cold reboot cancelled before prestage_shutdown_compute", requireFailure(t, err, job.FailureCancelledByOperator).Message)
		tl := resultOf(t, o)
		status, message, details := tl.stage(t, stageShutdown)
		require.Equal(t, "failed", status)
		require.Equal(t, "cold reboot cancelled before prestage_shutdown_compute", message)
		require.Equal(t, map[string]any{"cancelled_before_start": true}, details)
		status, _, _ = tl.stage(t, stageDown)
		require.Equal(t, "skipped", status)
		require.Empty(t, r.taken())
	})
}

// slowShelf1 lets shelf-1 take some time for its first power action and calls then.
func slowShelf1(r *fakeRack, takes time.Duration, then func()) {
	r.hook = func(op, id string, req *rackbusv1.NodeRequest) (*rackbusv1.NodeReply, error) {
		if op != opPowerSet || id != shelf1 {
			return nil, nil
		}
		r.mu.Lock()
		r.hook = nil
		r.mu.Unlock()
		then()
		time.Sleep(takes)
		return nil, nil
	}
}

// TestNothingIsUnderWayWhenAJobHasStopped: a request that has been sent is waited
// for, whatever asks the job to stop.
func TestNothingIsUnderWayWhenAJobHasStopped(t *testing.T) {
	for name, c := range map[string]struct {
		stop func(f *fakeTask, cut context.CancelCauseFunc)
		want error
	}{
		"cancelled":  {func(f *fakeTask, _ context.CancelCauseFunc) { f.cancelJob() }, agent.ErrCancelled},
		"terminated": {func(_ *fakeTask, cut context.CancelCauseFunc) { cut(agent.ErrTerminated) }, agent.ErrTerminated},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, f := newFakeRack(), newFakeTask()
				ctx, cut := context.WithCancelCause(t.Context())
				slowShelf1(r, 25*time.Second, func() { c.stop(f, cut) })
				var asked time.Time
				f.points[Point(stageShelvesOff)] = func() error { asked = time.Now(); return nil }
				_, err := f.run(ctx, r)
				require.ErrorIs(t, err, c.want)
				require.Equal(t, 25*time.Second, time.Since(asked))
				require.Equal(t, []string{"OFF"}, r.taken()[shelf1])
				require.NotContains(t, r.taken()[shelf1], "ON")
			})
		})
	}
	t.Run("handed over", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r, f := newFakeRack(), newFakeTask()
			ctx, cut := context.WithCancelCause(t.Context())
			slowShelf1(r, time.Second, func() { cut(agent.ErrHandedOver) })
			_, err := f.run(ctx, r)
			require.ErrorIs(t, err, agent.ErrHandedOver)
			_, err = f.run(t.Context(), r)
			require.NoError(t, err)
			require.Equal(t, everyActionOnce, r.taken())
		})
	})
}

// TestHoldThatLapses: nothing is sent while the hold is not certain, and nothing is
// forgotten or repeated afterwards.
func TestHoldThatLapses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, f := newFakeRack(), newFakeTask()
		var lapses atomic.Int32
		f.points[agent.FailAfterIntent] = func() error {
			if lapses.Add(1)%2 == 1 { // at the first of both nodes of each power stage
				synctest.Wait() // the other one is not just about to ask: that would be too late to notice
				f.hold(fmt.Errorf("%w: not certain", agent.ErrNotHeld))
			}
			return nil
		}
		r.hook = func(op, _ string, _ *rackbusv1.NodeRequest) (*rackbusv1.NodeReply, error) {
			if op == opPowerSet && (fakeGuard{f}).Check() != nil {
				t.Error("a power action was asked for without a hold")
			}
			return nil, nil
		}
		_, err := f.run(t.Context(), r)
		require.NoError(t, err)
		require.Greater(t, lapses.Load(), int32(8))
		require.Equal(t, everyActionOnce, r.taken())
	})
}

// TestNoRequestOutlivesTheRunLimit: the job may be ended by others from then on.
func TestNoRequestOutlivesTheRunLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, f := newFakeRack(), newFakeTask()
		f.deadline = time.Now().Add(10 * time.Second)
		latest := time.Time{}
		r.hook = func(_, _ string, req *rackbusv1.NodeRequest) (*rackbusv1.NodeReply, error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			if d := req.GetDeadline().AsTime(); d.After(latest) {
				latest = d
			}
			return nil, nil
		}
		ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Second, agent.ErrDeadline)
		defer cancel()
		_, err := f.run(ctx, r)
		require.ErrorIs(t, err, agent.ErrDeadline)
		require.False(t, latest.After(f.deadline))
	})
}

// TestCancelSeenWhileAnnounced: the write that announces an action may be what tells
// of a request to stop. The action is not sent then, and not kept as one that was.
func TestCancelSeenWhileAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, f := newFakeRack(), newFakeTask()
		var announced atomic.Int32
		f.points[agent.FailAfterIntent] = func() error {
			if announced.Add(1) > 2 { // behind the shutdown of both trays
				f.cancelJob()
			}
			return nil
		}
		o, err := f.run(t.Context(), r)
		require.ErrorIs(t, err, agent.ErrCancelled)
		require.NotContains(t, r.taken(), shelf1)
		require.NotContains(t, r.taken(), shelf2)
		tl := resultOf(t, o)
		_, message, _ := tl.stage(t, stageShelvesOff)
		require.Equal(t, "cold reboot cancelled before power_off_shelves", message)
	})
}

// TestCrashAgainAndAgain lets owner after owner die at random points, with lost
// answers on the way.
func TestCrashAgainAndAgain(t *testing.T) {
	points := []string{agent.FailAfterIntent, agent.FailAfterDeviceChange}
	for _, stage := range StageNames() {
		points = append(points, Point(stage))
	}
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			r, f := newFakeRack(), newFakeTask()
			lose := random.IntN(8)
			var asked atomic.Int32
			r.hook = func(op, id string, req *rackbusv1.NodeRequest) (*rackbusv1.NodeReply, error) {
				if op != opPowerSet || int(asked.Add(1)) != lose {
					return nil, nil
				}
				r.mu.Lock()
				defer r.mu.Unlock()
				r.take(id, rackmanager.PowerOperation(req.GetPowerOperation()))
				return nil, context.DeadlineExceeded
			}
			var err error
			for range random.IntN(5) {
				clear(f.points)
				f.crashAt(points[random.IntN(len(points))], int32(1+random.IntN(2)))
				if _, err = f.run(t.Context(), r); err == nil {
					break
				}
				require.ErrorIs(t, err, errCrash, "seed %d", seed)
				time.Sleep(time.Duration(random.IntN(300)) * time.Second)
			}
			if f.done < len(StageNames()) {
				clear(f.points)
				_, err = f.run(t.Context(), r)
			}
			require.NoError(t, err, "seed %d", seed)
			require.Equal(t, everyActionOnce, r.taken(), "seed %d", seed)
		})
	}
}
