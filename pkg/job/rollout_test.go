// SPDX-License-Identifier: Apache-2.0

package job

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func genRollout(t *rapid.T) *Rollout {
	if !rapid.Bool().Draw(t, "rollout set") {
		return nil
	}
	limit := func(label string) *uint32 {
		if !rapid.Bool().Draw(t, label+" set") {
			return nil
		}
		n := rapid.Uint32().Draw(t, label)
		return &n
	}
	o := &Rollout{
		Plan: RolloutPlan{
			WaveSize: rapid.Uint32Min(1).Draw(t, "size"), WavePercent: rapid.Uint32().Draw(t, "percent"),
			Spread:      RolloutSpread(rapid.IntRange(0, int(spreadCount)-1).Draw(t, "spread")),
			MaxFailures: limit("failures"), MaxFailurePercent: limit("failure percent"),
			Pause: time.Duration(rapid.Int64Range(0, 1<<50).Draw(t, "pause")), Confirm: rapid.Bool().Draw(t, "confirm"),
		},
		State: RolloutState(rapid.IntRange(0, int(rolloutStateCount)-1).Draw(t, "rollout state")),
		Wave:  rapid.Uint32().Draw(t, "wave"), Waves: rapid.Uint32().Draw(t, "waves"),
		Reason: rapid.String().Draw(t, "why"), RequestedBy: rapid.String().Draw(t, "who"),
		NextWaveAt: genInstant(t, "next wave"), Stop: RolloutStop(rapid.IntRange(0, int(rolloutStopCount)-1).Draw(t, "stop")),
	}
	for range rapid.IntRange(0, 3).Draw(t, "members") {
		o.Members = o.Members.With(rapid.Uint32Range(1, 40).Draw(t, "member"))
		o.Released = o.Released.With(rapid.Uint32Range(1, 40).Draw(t, "released"))
		o.Places = append(o.Places, rapid.Uint32().Draw(t, "place"))
	}
	return o
}

func testRollout() *Rollout {
	one := uint32(1)
	return &Rollout{
		Plan: RolloutPlan{
			WaveSize: 1, WavePercent: 1, Spread: SpreadRack, MaxFailures: &one, MaxFailurePercent: &one, Pause: time.Second + 1, Confirm: true,
		},
		State: RolloutHeld, Wave: 1, Waves: 1, Released: ChildSet{1}, Members: ChildSet{1}, Places: []uint32{1}, Reason: "x",
		RequestedBy: "x", NextWaveAt: t0, Stop: RolloutStopAborted,
	}
}

// rolling is a batch that starts in waves, and what a real one would do to it.
type rolling struct {
	record Record
	now    time.Time
}

func newRolling(t require.TestingT, plan string, total uint32, places []uint32) *rolling {
	p, err := ParseRolloutPlan(plan)
	require.NoError(t, err)
	return rollingWith(p, total, places)
}

func rollingWith(p RolloutPlan, total uint32, places []uint32) *rolling {
	r := NewParent(Spec{ID: testID(1), Type: TypeFirmwareUpdate, CreatedAt: t0, Rollout: NewRollout(p, places)}, total, true)
	return &rolling{record: r, now: t0}
}

func (r *rolling) end(i uint32, s State) {
	r.now = r.now.Add(time.Second)
	r.record, _ = ApplyChild(r.record, Record{ID: r.record.ID.Child(i), State: s}, r.now)
}

// wave begins the next wave, releases all of it, and returns it.
func (r *rolling) wave(t require.TestingT) []uint32 {
	at, due := r.record.RolloutDue()
	require.True(t, due, r.record.Description)
	if at.After(r.now) {
		r.now = at
	}
	var ok bool
	r.record, ok = StartWave(r.record, r.now)
	require.True(t, ok, r.record.Description)
	members := slices.Collect(r.record.Rollout.Members.All())
	require.Equal(t, members, r.record.RolloutPending(MaxChildren))
	r.record = Release(r.record, members, r.now)
	return members
}

func TestWavesBySize(t *testing.T) {
	for plan, want := range map[string][][]uint32{
		"wave=2":   {{1, 2}, {3, 4}, {5}},
		"wave=9":   {{1, 2, 3, 4, 5}},
		"wave=50%": {{1, 2, 3}, {4, 5}},
		"wave=1%":  {{1}, {2}, {3}, {4}, {5}},
	} {
		r := newRolling(t, plan, 5, nil)
		for n, members := range want {
			require.Equal(t, members, r.wave(t), plan)
			require.Equal(t, uint32(n+1), r.record.Rollout.Wave)
			require.Equal(t, uint32(len(want)), r.record.Rollout.Waves)
			last := n == len(want)-1
			require.Equal(t, last, r.record.Rollout.State == RolloutReleased)
			for _, i := range members {
				_, due := r.record.RolloutDue()
				require.False(t, due, "the wave is under way")
				r.end(i, StateCompleted)
			}
		}
		require.Equal(t, StateCompleted, r.record.State)
		require.Equal(t, RolloutReleased, r.record.Rollout.State)
		_, due := r.record.RolloutDue()
		require.False(t, due)
	}
}

func TestWavesSpreadOverRacks(t *testing.T) {
	// Three nodes of rack 0, two of rack 1, one of rack 2.
	r := newRolling(t, "wave=2; per=rack", 6, []uint32{2, 1, 0, 1, 0, 0})
	for _, want := range [][]uint32{{2, 3}, {1, 5}, {4, 6}} {
		require.Equal(t, want, r.wave(t))
		require.Equal(t, uint32(3), r.record.Rollout.Waves)
		for _, i := range want {
			r.end(i, StateCompleted)
		}
	}
	require.Equal(t, StateCompleted, r.record.State)
}

func TestStopRule(t *testing.T) {
	for plan, stops := range map[string]bool{
		"wave=4":                   true, // nothing may fail
		"wave=4; max-failures=1":   true,
		"wave=4; max-failures=2":   false,
		"wave=4; max-failures=49%": true,
		"wave=4; max-failures=50%": false,
	} {
		r := newRolling(t, plan, 8, nil)
		r.wave(t)
		r.end(1, StateFailed)
		r.end(2, StateTimedOut)
		require.Equal(t, stops, r.record.Rollout.State == RolloutStopped, plan)
		if !stops {
			continue
		}
		at, due := r.record.RolloutDue()
		require.True(t, due)
		require.True(t, at.IsZero())
		require.Equal(t, []uint32{5, 6, 7, 8}, slices.Collect(r.record.RolloutUnstarted()))
		require.Equal(t, RolloutStopFailures, r.record.Rollout.Stop)
		r.end(3, StateCompleted)
		r.end(4, StateCompleted)
		require.Equal(t, StateRunning, r.record.State, "the others are to be cancelled")
		state, failure := r.record.Rollout.NotStarted()
		require.Equal(t, StateCancelled, state)
		require.Equal(t, FailureRolloutStopped, failure.FailureCode)
		for i := uint32(5); i <= 8; i++ {
			r.end(i, state)
		}
		require.Equal(t, StatePartiallyFailed, r.record.State)
		require.Equal(t, RolloutStopped, r.record.Rollout.State)
	}
	r := newRolling(t, "wave=1", 3, nil)
	r.end(3, StateCancelled)
	r.wave(t)
	r.end(1, StateSuperseded)
	require.Equal(t, RolloutPausing, r.record.Rollout.State, "what people take out is no failure")
}

func TestPauseResumeAbort(t *testing.T) {
	r := newRolling(t, "wave=2; pause=10m", 6, nil)
	require.Equal(t, "The first wave follows; 0 of 6 done in all", r.record.Description)
	r.wave(t)
	r.end(1, StateCompleted)
	require.Equal(t, "Wave 1 of 3 under way: 1 of 2 ended; 1 of 6 done in all", r.record.Description)
	r.end(2, StateCompleted)
	require.Equal(t, RolloutPausing, r.record.Rollout.State)
	require.Equal(t, r.now.Add(10*time.Minute), r.record.Rollout.NextWaveAt)
	require.Contains(t, r.record.Description, "Wave 1 of 3 ended, next wave at "+r.now.Add(10*time.Minute).Format(time.RFC3339))
	_, ok := StartWave(r.record, r.now)
	require.False(t, ok)

	held, changed, err := HoldRollout(r.record, "lunch", "eve", r.now)
	require.NoError(t, err)
	require.True(t, changed)
	require.Equal(t, "Held before wave 2: lunch (eve); 2 of 6 done in all", held.Description)
	_, due := held.RolloutDue()
	require.False(t, due)
	_, changed, err = HoldRollout(held, "again", "adam", r.now)
	require.NoError(t, err)
	require.False(t, changed)

	require.NoError(t, CheckWave(held, 1))
	require.NoError(t, CheckWave(Record{}, 1), "a job without waves is refused for that")
	require.ErrorIs(t, CheckWave(held, 0), ErrRolloutMoved)
	require.ErrorContains(t, CheckWave(held, 2), "it is at wave 1 of 3 (held), not 2")
	r.record, err = ResumeRollout(held, r.now)
	require.NoError(t, err)
	require.Equal(t, []uint32{3, 4}, r.wave(t), "at once")
	_, err = ResumeRollout(r.record, r.now)
	require.ErrorIs(t, err, ErrRolloutUnderWay)
	// Held in the middle of a wave: it goes on, and the next one does not follow.
	r.record, _, err = HoldRollout(r.record, "", "eve", r.now)
	require.NoError(t, err)
	require.Equal(t, "Wave 2 of 3 under way: 0 of 2 ended; held before wave 3 (eve); 2 of 6 done in all", r.record.Description)
	r.end(3, StateCompleted)
	mid, err := ResumeRollout(r.record, r.now)
	require.NoError(t, err)
	require.Equal(t, RolloutRunning, mid.Rollout.State)
	r.end(4, StateCompleted)
	require.Equal(t, RolloutHeld, r.record.Rollout.State)

	aborted, changed, err := AbortRollout(r.record, "wrong image", "eve", r.now)
	require.NoError(t, err)
	require.True(t, changed)
	require.Equal(t, "The rollout was aborted: wrong image; 4 of 6 done in all", aborted.Description)
	_, err = ResumeRollout(aborted, r.now)
	require.ErrorIs(t, err, ErrRolloutOver)
	_, changed, err = AbortRollout(aborted, "", "eve", r.now)
	require.NoError(t, err)
	require.False(t, changed)

	expired, ok := ExpireRollout(r.record, r.now)
	require.True(t, ok)
	state, failure := expired.Rollout.NotStarted()
	require.Equal(t, StateTimedOut, state)
	require.Equal(t, FailureQueueDeadline, failure.FailureCode)
	require.Equal(t, CodeTimeout, failure.Code)

	plain := NewParent(Spec{ID: testID(1), CreatedAt: t0}, 1, true)
	_, _, err = HoldRollout(plain, "", "", t0)
	require.ErrorIs(t, err, ErrNoRollout)
	_, _, err = AbortRollout(plain, "", "", t0)
	require.ErrorIs(t, err, ErrNoRollout)
}

func TestConfirmHoldsEveryWaveButTheFirst(t *testing.T) {
	r := newRolling(t, "wave=1; confirm", 2, nil)
	r.wave(t)
	r.end(1, StateCompleted)
	require.Equal(t, RolloutHeld, r.record.Rollout.State)
	require.Contains(t, r.record.Description, "Held before wave 2: the plan asks for a confirmation")
	var err error
	r.record, err = ResumeRollout(r.record, r.now)
	require.NoError(t, err)
	require.Equal(t, []uint32{2}, r.wave(t))
}

func TestCancelStopsTheRollout(t *testing.T) {
	r := newRolling(t, "wave=1", 3, nil)
	r.wave(t)
	var err error
	r.record, _, err = Fold(r.record, Event{
		Kind: EventCancelRequested, ID: r.record.ID, At: r.now,
		Cancel: &Cancel{Mode: CancelGraceful, Reason: CancelReasonOperator, RequestedBy: "eve", RequestedAt: r.now},
	})
	require.NoError(t, err)
	require.Equal(t, RolloutStopped, r.record.Rollout.State)
	require.Equal(t, "Stopping at the next safe point: The whole job was asked to stop, wave 1 ends: 0 of 1 ended; 0 of 3 done in all",
		r.record.Description)
	_, due := r.record.RolloutDue()
	require.False(t, due, "the children are cancelled as those of any batch")
	_, ok := StartWave(r.record, r.now.Add(time.Hour))
	require.False(t, ok)
}

// TestRolloutProperty drives random rollouts by random steps, to their end.
func TestRolloutProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		total := rapid.Uint32Range(1, 40).Draw(t, "total")
		plan := RolloutPlan{
			WaveSize: rapid.Uint32Range(1, 12).Draw(t, "size"), Confirm: rapid.Bool().Draw(t, "confirm"),
			Pause: time.Duration(rapid.IntRange(0, 2).Draw(t, "pause")) * time.Minute,
		}
		if rapid.Bool().Draw(t, "in percent") {
			plan.WaveSize, plan.WavePercent = 0, rapid.Uint32Range(1, 100).Draw(t, "percent")
		}
		if rapid.Bool().Draw(t, "tolerant") {
			n := rapid.Uint32Range(0, 5).Draw(t, "failures")
			plan.MaxFailures = &n
		}
		var places []uint32
		if rapid.Bool().Draw(t, "spread") {
			plan.Spread = SpreadRack
			for range total {
				places = append(places, rapid.Uint32Range(0, 6).Draw(t, "place"))
			}
		}
		r := rollingWith(plan, total, places)
		r.drive(t, rapid.IntRange(0, 200).Draw(t, "steps"))
		r.finish(t)
	})
}

// drive takes random steps.
func (r *rolling) drive(t *rapid.T, steps int) {
	for range steps {
		before := r.record
		i := rapid.Uint32Range(1, r.record.Total).Draw(t, "child")
		state := r.record.Children.Get(i)
		switch rapid.IntRange(0, 7).Draw(t, "step") {
		case 0:
			r.record, _ = StartWave(r.record, r.now)
		case 1:
			if pending := r.record.RolloutPending(rapid.IntRange(1, 5).Draw(t, "chunk")); len(pending) > 0 {
				r.record = Release(r.record, pending, r.now)
			}
		case 2, 3:
			if r.record.Rollout.Released.Has(i) && !state.Terminal() {
				r.end(i, rapid.SampledFrom([]State{StateRunning, StateCompleted, StateFailed, StateTerminated, StateCancelled}).Draw(t, "end"))
			}
		case 4:
			if state == StateQueued && rapid.IntRange(0, 9).Draw(t, "taken out") == 0 {
				r.end(i, StateCancelled)
			}
		case 5:
			r.record, _, _ = HoldRollout(r.record, "held", "eve", r.now)
		case 6:
			r.record, _ = ResumeRollout(r.record, r.now)
		case 7:
			r.now = r.now.Add(time.Minute)
		}
		r.check(t, &before)
	}
}

// check compares the rollout before and after one step.
func (r *rolling) check(t *rapid.T, before *Record) {
	now, was := r.record.Rollout, before.Rollout
	for i := range was.Released.All() {
		require.True(t, now.Released.Has(i), "a child that may start is never taken back")
	}
	for i := range now.Released.All() {
		require.True(t, now.Members.Has(i) || was.Released.Has(i), "only children of the wave are released")
		require.LessOrEqual(t, i, r.record.Total)
	}
	if now.Wave != was.Wave {
		for i := range was.Members.All() {
			require.True(t, before.Children.Get(i).Terminal(), "child %d of the wave before has not ended", i)
		}
		require.LessOrEqual(t, now.Members.Len(), now.Plan.size(r.record.Total))
		require.NotZero(t, now.Members.Len())
		require.LessOrEqual(t, now.Wave, now.Waves)
		seen := make(map[uint32]bool)
		for i := range now.Members.All() {
			require.False(t, was.Released.Has(i))
			if now.Plan.Spread != SpreadNone {
				require.False(t, seen[now.place(i)], "two nodes of a rack")
				seen[now.place(i)] = true
			}
		}
	}
	if was.State == RolloutStopped || was.State == RolloutReleased {
		require.Equal(t, was.State, now.State)
		require.Equal(t, was.Released, now.Released)
	}
	if r.record.unstarted() && now.Plan.exceeded(r.record.Counts.failures(), r.record.givenStart()) {
		require.Equal(t, RolloutStopped, now.State)
	}
	require.Equal(t, r.record.State.Terminal() || !r.record.unstarted(), now.State == RolloutReleased || now.State == RolloutStopped && !r.record.unstarted())
	r.lively(t)
}

// lively checks that something is always going to happen.
func (r *rolling) lively(t *rapid.T) {
	if r.record.State.Terminal() || r.record.Rollout.State == RolloutHeld {
		return
	}
	for i := range r.record.Rollout.Released.All() {
		if !r.record.Children.Get(i).Terminal() {
			return
		}
	}
	_, due := r.record.RolloutDue()
	require.True(t, due, "nothing runs and nobody acts: %s", r.record.Description)
}

// finish lets everything go well from here on. The waves are as many as foreseen.
func (r *rolling) finish(t *rapid.T) {
	waves := uint32(0)
	for !r.record.State.Terminal() {
		before := r.record
		if at, due := r.record.RolloutDue(); due && at.After(r.now) {
			r.now = at
		}
		r.record, _ = ResumeRollout(r.record, r.now)
		if next, ok := StartWave(r.record, r.now); ok {
			r.record = next
			if waves == 0 {
				waves = next.Rollout.Waves
			}
			require.Equal(t, waves, next.Rollout.Waves)
		}
		if pending := r.record.RolloutPending(MaxChildren); len(pending) > 0 {
			r.record = Release(r.record, pending, r.now)
		}
		r.check(t, &before)
		state := StateCompleted
		children := slices.Collect(r.record.Rollout.Members.All())
		if r.record.Rollout.State == RolloutStopped {
			children = slices.Collect(r.record.RolloutUnstarted())
			children = append(children, slices.Collect(r.record.Rollout.Members.All())...)
			state, _ = r.record.Rollout.NotStarted()
		}
		for _, i := range children {
			r.end(i, state)
		}
	}
	if waves > 0 && r.record.Rollout.State != RolloutStopped {
		require.Equal(t, waves, r.record.Rollout.Wave)
	}
}

func TestChildSet(t *testing.T) {
	s := ChildSet(nil).With(1, 8, 9, 17)
	require.Equal(t, []uint32{1, 8, 9, 17}, slices.Collect(s.All()))
	require.Equal(t, uint32(4), s.Len())
	require.False(t, s.Has(0))
	require.False(t, s.Has(2))
	require.False(t, s.Has(900))
	more := s.With(2, 0, MaxChildren+1)
	require.True(t, more.Has(2))
	require.False(t, s.Has(2), "copies only")
	require.Equal(t, uint32(5), more.Len())
	for i := range s.All() {
		require.Equal(t, uint32(1), i)
		break
	}
}
