// SPDX-License-Identifier: Apache-2.0

package job

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func parentSpec() Spec {
	s := leafSpec()
	s.NodeID, s.Family = "", ""
	return s
}

// child returns the i-th child of the parent of parentSpec in state s.
func child(i uint32, s State, result string) Record {
	r := NewChild(testID(3), i, leafSpec())
	r.State, r.ResultJSON = s, result
	return r
}

// rule says in the words of the state model what a batch with these children is.
func rule(children []State, admitted bool, cancel CancelMode) State {
	all := func(states ...State) bool {
		for _, c := range children {
			if !slices.Contains(states, c) {
				return false
			}
		}
		return true
	}
	ended := true
	for _, c := range children {
		ended = ended && c.Terminal()
	}
	switch {
	case !(admitted && ended) && cancel == CancelNone:
		return StateRunning
	case !(admitted && ended):
		return StateCancellationRequested
	case len(children) == 0:
		return StateFailed
	case all(StateCompleted):
		return StateCompleted
	case slices.Contains(children, StateCompleted):
		return StatePartiallyFailed
	case all(StateTimedOut):
		return StateTimedOut
	case all(StateCancelled, StateSuperseded):
		return StateCancelled
	case all(StateCancelled, StateSuperseded, StateTerminated):
		return StateTerminated
	}
	return StateFailed
}

// mixes yields every sequence of n states a child can be in.
func mixes(n int, prefix []State, yield func([]State)) {
	if n == 0 {
		yield(prefix)
		return
	}
	for s := StateQueued; s < stateCount; s++ {
		if s != StatePartiallyFailed {
			mixes(n-1, append(prefix, s), yield)
		}
	}
}

func TestAggregateEveryMix(t *testing.T) {
	count := 0
	for n := range 5 {
		mixes(n, nil, func(children []State) {
			var c Counts
			unsuccessful := 0
			for _, s := range children {
				*c.of(s)++
				if s.Terminal() && s != StateCompleted {
					unsuccessful++
				}
			}
			for _, admitted := range []bool{false, true} {
				for _, cancel := range []CancelMode{CancelNone, CancelGraceful, CancelTerminate} {
					count++
					state, text, failure := Aggregate(c, uint32(n), admitted, cancel, TypeFirmwareUpdate.Wording())
					if want := rule(children, admitted, cancel); want != state {
						t.Fatalf("%v admitted=%v cancel=%v: %s, want %s", children, admitted, cancel, state, want)
					}
					if text == "" || (failure != nil) != (state.Terminal() && state != StateCompleted) {
						t.Fatalf("%v: %q %+v", children, text, failure)
					}
					if failure != nil && n > 0 {
						want := fmt.Sprintf("Batch complete: %d/%d succeeded, %d failed", c.Completed, n, unsuccessful)
						if text != want {
							t.Fatalf("%v: %q, want %q", children, text, want)
						}
					}
				}
			}
		})
	}
	require.Equal(t, 6*(1+9+81+729+6561), count)
}

func TestAggregateTexts(t *testing.T) {
	w := TypeFirmwareUpdate.Wording()
	for _, c := range []struct {
		name     string
		counts   Counts
		total    uint32
		admitted bool
		cancel   CancelMode
		text     string
		message  string
		code     ErrorCode
		failure  FailureCode
	}{
		{name: "taking in", counts: Counts{Queued: 2, Completed: 1}, total: 3,
			text: "Batch firmware update is taking in its jobs: 1 of 3 done, 2 queued"},
		{name: "under way", counts: Counts{Queued: 2, Running: 3, Completed: 1, Failed: 1}, total: 7, admitted: true,
			text: "Batch firmware update under way: 2 of 7 done, 3 running, 2 queued"},
		{name: "only running", counts: Counts{Running: 1}, total: 1, admitted: true,
			text: "Batch firmware update under way: 0 of 1 done, 1 running"},
		{name: "stopping", counts: Counts{Running: 1, Cancelled: 1}, total: 2, admitted: true, cancel: CancelGraceful,
			text: "Stopping at the next safe point: Batch firmware update under way: 1 of 2 done, 1 running"},
		{name: "stopping by force", counts: Counts{Running: 1}, total: 1, admitted: true, cancel: CancelTerminate,
			text: "Stopping by force: Batch firmware update under way: 0 of 1 done, 1 running"},
		{name: "no child", admitted: true, text: "Failed", message: textNothingAdmitted,
			code: CodeOther, failure: FailureAdmissionFailed},
		{name: "all", counts: Counts{Completed: 3}, total: 3, admitted: true, text: "All 3 firmware updates succeeded"},
		{name: "all, although a stop was asked for", counts: Counts{Completed: 3}, total: 3, admitted: true,
			cancel: CancelGraceful, text: "All 3 firmware updates succeeded"},
		{name: "some up to date", counts: Counts{Completed: 3, AlreadyUpToDate: 1}, total: 3, admitted: true,
			text: "2 of 3 firmware updates applied, already up to date: 1"},
		{name: "all up to date", counts: Counts{Completed: 3, AlreadyUpToDate: 3}, total: 3, admitted: true,
			text: "Nothing to do: all 3 nodes were already up to date"},
		{name: "some failed", counts: Counts{Completed: 7, Failed: 1, Cancelled: 1, TimedOut: 1}, total: 10, admitted: true,
			text: "Batch complete: 7/10 succeeded, 3 failed", message: "3 of 10 firmware updates did not succeed",
			code: CodeOther, failure: FailureChildrenFailed},
		{name: "all timed out", counts: Counts{TimedOut: 2}, total: 2, admitted: true,
			text: "Batch complete: 0/2 succeeded, 2 failed", message: "2 of 2 firmware updates did not succeed",
			code: CodeTimeout, failure: FailureChildrenTimedOut},
		{name: "all stopped", counts: Counts{Cancelled: 1, Superseded: 1}, total: 2, admitted: true,
			text: "Batch complete: 0/2 succeeded, 2 failed", message: "2 of 2 firmware updates did not succeed",
			code: CodeOther, failure: FailureChildrenStopped},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, text, failure := Aggregate(c.counts, c.total, c.admitted, c.cancel, w)
			require.Equal(t, c.text, text)
			if c.message == "" {
				require.Nil(t, failure)
				return
			}
			require.Equal(t, &Failure{Code: c.code, FailureCode: c.failure, Message: c.message}, failure)
		})
	}
}

func TestApplyChildIgnores(t *testing.T) {
	parent := NewParent(parentSpec(), 2, true)
	ended := parent
	ended.State = StateCompleted
	done, c := ApplyChild(parent, child(1, StateFailed, ""), at(5))
	require.True(t, c.Applied())
	stranger := NewChild(testID(4), 1, leafSpec())
	for _, c := range []struct {
		name   string
		parent Record
		child  Record
		want   Reason
	}{
		{"no parent", Record{}, child(1, StateRunning, ""), ReasonUnknownJob},
		{"no child", parent, Record{}, ReasonNotChild},
		{"itself", parent, parent, ReasonNotChild},
		{"another family", parent, stranger, ReasonNotChild},
		{"index too large", parent, child(MaxChildren+1, StateQueued, ""), ReasonNotChild},
		{"parent ended", ended, child(1, StateFailed, ""), ReasonTerminal},
		{"same state", parent, child(1, StateQueued, ""), ReasonNoChange},
		{"child had ended", done, child(1, StateRunning, ""), ReasonNoChange},
	} {
		t.Run(c.name, func(t *testing.T) {
			after, change := ApplyChild(c.parent, c.child, at(9))
			require.Equal(t, c.want, change.Ignored)
			require.Equal(t, c.parent, after)
		})
	}
}

func TestParentFromAdmissionToEnd(t *testing.T) {
	p := NewParent(parentSpec(), 2, true)
	require.Equal(t, StateRunning, p.State)
	require.Equal(t, Counts{Queued: 2}, p.Counts)
	require.Equal(t, "Batch firmware update under way: 0 of 2 done, 2 queued", p.Description)
	require.Equal(t, uint64(0), p.PublicN)

	p, c := ApplyChild(p, child(2, StateCompleted, `{"status":"already_up_to_date"}`), at(7))
	require.Equal(t, []Transition{{To: StateRunning, Description: "Batch firmware update under way: 0 of 2 done, 2 queued", At: t0, N: 1}},
		c.Transitions)
	require.Equal(t, Counts{Queued: 1, Completed: 1, AlreadyUpToDate: 1}, p.Counts)
	require.Equal(t, uint32(50), p.Percent)

	p, c = ApplyChild(p, child(1, StateCompleted, `{"status":"completed"}`), at(6))
	require.True(t, c.Sealed())
	require.Equal(t, StateCompleted, p.State)
	require.Equal(t, at(7), p.FinishedAt, "a batch ends with its last child")
	require.Equal(t, "1 of 2 firmware updates applied, already up to date: 1", p.Description)
	require.Equal(t, uint32(100), p.Percent)
	require.Empty(t, p.ResultJSON)
}

func TestAdmit(t *testing.T) {
	p := NewParent(parentSpec(), 0, false)
	p, _ = ApplyChild(p, child(2, StateRunning, ""), at(1))
	require.Equal(t, uint32(2), p.Total)
	require.Equal(t, StateUnspecified, p.Children.Get(1), "a child that was not heard of is not counted")

	admitted, c := Admit(p, 3, at(2))
	require.True(t, c.Applied())
	require.Equal(t, Counts{Queued: 2, Running: 1}, admitted.Counts)
	require.Equal(t, uint32(3), admitted.Total)

	_, c = Admit(admitted, 3, at(3))
	require.Equal(t, ReasonNoChange, c.Ignored)
	_, c = Admit(admitted, 2, at(3))
	require.Equal(t, ReasonNoChange, c.Ignored)
	more, c := Admit(admitted, 4, at(3))
	require.True(t, c.Applied())
	require.Equal(t, Counts{Queued: 3, Running: 1}, more.Counts)

	_, c = Admit(NewLeaf(leafSpec()), 1, at(1))
	require.Equal(t, ReasonNotForKind, c.Ignored)
	_, c = Admit(Record{}, 1, at(1))
	require.Equal(t, ReasonUnknownJob, c.Ignored)
	failed, _ := Admit(NewParent(parentSpec(), 0, false), 0, at(1))
	_, c = Admit(failed, 1, at(1))
	require.Equal(t, ReasonTerminal, c.Ignored)
	_, c = Admit(p, MaxChildren+1, at(1))
	require.Equal(t, ReasonNotForKind, c.Ignored)

	empty, c := Admit(NewParent(parentSpec(), 0, false), 0, at(4))
	require.True(t, c.Sealed())
	require.Equal(t, StateFailed, empty.State)
	require.Equal(t, FailureAdmissionFailed, empty.Failure.FailureCode)
	require.Equal(t, at(4), empty.FinishedAt)
}

func TestChildrenOfACoordinatorDoNotDecideItsState(t *testing.T) {
	r := NewCoordinator(leafSpec(), nil, false)
	r, c := ApplyChild(r, child(1, StateFailed, ""), at(1))
	require.True(t, c.Applied())
	require.Equal(t, StateQueued, r.State)
	require.Equal(t, "Queued", r.Description)
	require.Equal(t, Counts{Failed: 1}, r.Counts)
}

func TestChildStates(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		model := map[uint32]State{}
		var v ChildStates
		for range rapid.IntRange(0, 40).Draw(t, "writes") {
			i := rapid.Uint32Range(1, 30).Draw(t, "index")
			s := State(rapid.IntRange(0, int(stateCount)-1).Draw(t, "state"))
			before := slices.Clone(v)
			w := v.With(i, s)
			require.Equal(t, before, v, "With wrote to its receiver")
			v, model[i] = w, s
		}
		total := rapid.Uint32Range(0, 40).Draw(t, "total")
		filled, n := v.Fill(total, StateQueued)
		var missing uint32
		for i := uint32(0); i <= 45; i++ {
			require.Equal(t, model[i], v.Get(i))
			want := model[i]
			if i >= 1 && i <= total && want == StateUnspecified {
				want = StateQueued
				missing++
			}
			require.Equal(t, want, filled.Get(i))
		}
		require.Equal(t, missing, n)

		var ended []uint32
		for i := range v.Select(State.Terminal) {
			ended = append(ended, i)
		}
		var want []uint32
		for i, s := range model {
			if s.Terminal() {
				want = append(want, i)
			}
		}
		slices.Sort(want)
		require.Equal(t, want, ended)
	})

	var v ChildStates
	require.Nil(t, v.With(0, StateQueued))
	require.Nil(t, v.With(MaxChildren+1, StateQueued))
	require.Len(t, v.With(10000, StateQueued), 5000, "four bits per child")
	for i := range v.With(2, StateFailed).With(4, StateFailed).Select(State.Terminal) {
		require.Equal(t, uint32(2), i)
		break
	}
}
