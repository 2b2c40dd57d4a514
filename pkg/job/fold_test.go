// SPDX-License-Identifier: Apache-2.0

package job

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var t0 = time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)

func at(seconds int) time.Time { return t0.Add(time.Duration(seconds) * time.Second) }

func leafSpec() Spec {
	return Spec{
		ID: testID(3), Type: TypeFirmwareUpdate, RackID: "rack-1", NodeID: "node-1", Family: "compute",
		CreatedAt: t0, Deadline: at(3600), Visible: true,
	}
}

// inState returns a record of the kind in state s as it comes to be: with what an
// agent of epoch 2 said up to event 4.
func inState(k Kind, s State) Record {
	if s == StateUnspecified {
		return Record{}
	}
	spec := leafSpec()
	if k == KindParent {
		spec.NodeID, spec.Family = "", ""
	}
	r := newRecord(k, spec)
	r.State, r.PublicN = s, 1
	if s == StateCancellationRequested {
		r.Cancel = &Cancel{Mode: CancelGraceful, Reason: CancelReasonOperator, RequestedAt: at(20)}
	}
	if s != StateQueued && k != KindParent {
		r.Epoch, r.EventN, r.Attempt, r.Agent, r.StartedAt = 2, 4, 1, "agent-2", at(10)
	}
	return r
}

// worker returns an event of an agent in a new epoch.
func worker(k EventKind) Event {
	return Event{Kind: k, ID: testID(3), Epoch: 3, N: 1, Attempt: 2, Agent: "agent-3", At: at(60), Description: "working"}
}

func started(e Event) Event {
	e.StartedAt = at(10)
	return e
}

func finished(s State) Event {
	e := worker(EventFinished)
	e.State = s
	return e
}

func cancelled(m CancelMode) Event {
	return Event{Kind: EventCancelRequested, ID: testID(3), At: at(60),
		Cancel: &Cancel{Mode: m, Reason: CancelReasonOperator, RequestedBy: "ann", RequestedAt: at(60)}}
}

// matrixEvents are the columns of the transition tables.
var matrixEvents = []struct {
	name  string
	event Event
}{
	{"queued", Event{Kind: EventQueued, ID: testID(3), At: at(60)}},
	{"admitted", Event{Kind: EventAdmitted, ID: testID(3), At: at(60), Total: 2}},
	{"claimed", worker(EventClaimed)},
	{"reclaimed", started(worker(EventClaimed))},
	{"started", worker(EventStarted)},
	{"progress", worker(EventProgress)},
	{"graceful", cancelled(CancelGraceful)},
	{"terminate", cancelled(CancelTerminate)},
	{"completed", finished(StateCompleted)},
	{"failed", finished(StateFailed)},
	{"cancelled", finished(StateCancelled)},
	{"terminated", finished(StateTerminated)},
	{"superseded", finished(StateSuperseded)},
	{"timed_out", finished(StateTimedOut)},
}

// leafMatrix says, for each event in the order of matrixEvents, what a leaf in the
// state of the row becomes; a word with a dash is why it stays.
const leafMatrix = `
unspecified            -unknown_job -unknown_job -unknown_job -unknown_job -unknown_job -unknown_job -unknown_job -unknown_job -unknown_job -unknown_job -unknown_job -unknown_job -unknown_job -unknown_job
queued                 -no_change -not_for_kind queued running running running cancellation_requested cancellation_requested completed failed cancelled terminated superseded timed_out
running                -no_change -not_for_kind running running running running cancellation_requested cancellation_requested completed failed cancelled terminated superseded timed_out
cancellation_requested -no_change -not_for_kind cancellation_requested cancellation_requested cancellation_requested cancellation_requested -no_change cancellation_requested completed failed cancelled terminated superseded timed_out
completed              -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal
failed                 -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal
partially_failed       -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal
cancelled              -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal
terminated             -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal
superseded             -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal
timed_out              -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal
`

// parentMatrix is the same for a parent whose children have not been heard of yet.
const parentMatrix = `
unspecified            -unknown_job -unknown_job -unknown_job -unknown_job -unknown_job -unknown_job -unknown_job -unknown_job -unknown_job -unknown_job -unknown_job -unknown_job -unknown_job -unknown_job
running                -no_change running -not_for_kind -not_for_kind -not_for_kind -not_for_kind cancellation_requested cancellation_requested -not_for_kind -not_for_kind -not_for_kind -not_for_kind -not_for_kind -not_for_kind
cancellation_requested -no_change cancellation_requested -not_for_kind -not_for_kind -not_for_kind -not_for_kind -no_change cancellation_requested -not_for_kind -not_for_kind -not_for_kind -not_for_kind -not_for_kind -not_for_kind
completed              -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal
failed                 -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal
partially_failed       -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal
cancelled              -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal
terminated             -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal
superseded             -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal
timed_out              -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal -terminal
`

func TestFoldMatrix(t *testing.T) {
	for _, m := range []struct {
		kind  Kind
		table string
		rows  int
	}{
		{KindLeaf, leafMatrix, int(stateCount)},
		{KindCoordinator, leafMatrix, int(stateCount)},
		{KindParent, parentMatrix, int(stateCount) - 1},
	} {
		rows := strings.Split(strings.TrimSpace(m.table), "\n")
		require.Len(t, rows, m.rows)
		for _, row := range rows {
			cells := strings.Fields(row)
			require.Len(t, cells, len(matrixEvents)+1, row)
			state, _ := ParseState(cells[0])
			for i, col := range matrixEvents {
				t.Run(m.kind.String()+"/"+cells[0]+"/"+col.name, func(t *testing.T) {
					checkCell(t, inState(m.kind, state), col.event, cells[i+1])
				})
			}
		}
	}
}

func checkCell(t *testing.T, before Record, e Event, want string) {
	t.Helper()
	after, c, err := Fold(before, e)
	require.NoError(t, err)
	if reason, ok := strings.CutPrefix(want, "-"); ok {
		require.Equal(t, Reason(reason), c.Ignored)
		require.False(t, c.Applied())
		require.Empty(t, c.Transitions)
		require.Equal(t, before, after)
		return
	}
	state, ok := ParseState(want)
	require.True(t, ok, want)
	require.True(t, c.Applied())
	require.Equal(t, state, after.State)
	require.Equal(t, state.Terminal(), c.Sealed())
	require.Equal(t, at(60), after.UpdatedAt)
	if state.Terminal() {
		require.Equal(t, at(60), after.FinishedAt)
		require.Equal(t, state != StateCompleted, after.Failure != nil)
	}
	if before.State == state {
		require.Empty(t, c.Transitions)
		return
	}
	last := c.Transitions[len(c.Transitions)-1]
	require.Equal(t, Transition{From: before.State, To: state, Description: after.Description, At: at(60), N: 2}, last)
	require.Equal(t, uint64(2), after.PublicN)
}

func TestFoldWorkerOrder(t *testing.T) {
	r := inState(KindLeaf, StateRunning) // epoch 2, event 4
	for _, c := range []struct {
		name     string
		epoch, n uint64
		kind     EventKind
		want     Reason
	}{
		{"older epoch", 1, 9, EventProgress, ReasonStaleEpoch},
		{"older epoch claims", 1, 1, EventClaimed, ReasonStaleEpoch},
		{"older epoch finishes", 1, 9, EventFinished, ReasonStaleEpoch},
		{"same event", 2, 4, EventProgress, ReasonDuplicate},
		{"earlier event", 2, 3, EventStarted, ReasonDuplicate},
		{"next event", 2, 5, EventProgress, ""},
		{"later event", 2, 9, EventProgress, ""},
		{"newer epoch from 1", 3, 1, EventClaimed, ""},
		{"finish without a number", 2, 0, EventFinished, ""},
		{"finish of a newer epoch", 3, 1, EventFinished, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := worker(c.kind)
			e.Epoch, e.N, e.State = c.epoch, c.n, StateCompleted
			after, change, err := Fold(r, e)
			require.NoError(t, err)
			require.Equal(t, c.want, change.Ignored)
			if c.want == "" {
				require.Equal(t, c.epoch, after.Epoch)
				require.Equal(t, c.n, after.EventN)
			} else {
				require.Equal(t, r, after)
			}
		})
	}
}

func TestFoldLifeOfALeaf(t *testing.T) {
	r := NewLeaf(leafSpec())
	claim := worker(EventClaimed)
	claim.Description, claim.Deadline = "", at(7200)
	r, c, err := Fold(r, claim)
	require.NoError(t, err)
	require.Equal(t, []Transition{{To: StateQueued, Description: "Queued", At: t0, N: 1}}, c.Transitions)
	require.Equal(t, StateQueued, r.State)
	require.Equal(t, "agent-3", r.Agent)
	require.Equal(t, uint32(2), r.Attempt)
	require.Equal(t, at(7200), r.Deadline)
	require.True(t, r.StartedAt.IsZero())

	progress := worker(EventProgress)
	progress.N, progress.Percent, progress.At = 2, 40, at(70)
	progress.Stages = []Stage{{Name: "upload", Status: StageRunning, StartedAt: at(65)}}
	r, c, err = Fold(r, progress)
	require.NoError(t, err)
	require.Equal(t, []Transition{{From: StateQueued, To: StateRunning, Description: "working", At: at(70), N: 2}}, c.Transitions)
	require.Equal(t, at(70), r.StartedAt, "an event without started_at starts the job itself")
	require.Equal(t, uint32(40), r.Percent)
	require.Equal(t, progress.Stages, r.Stages)

	r, _, err = Fold(r, cancelled(CancelGraceful))
	require.NoError(t, err)
	require.Equal(t, "Stopping at the next safe point: working", r.Description)
	require.Equal(t, at(70), r.UpdatedAt, "updated_at never goes back")

	r, c, err = Fold(r, cancelled(CancelTerminate))
	require.NoError(t, err)
	require.Empty(t, c.Transitions, "an escalation is no change of state")
	require.Equal(t, "Stopping by force: working", r.Description)

	end := finished(StateCompleted)
	end.N, end.ResultJSON, end.Description, end.At = 3, `{"status":"completed"}`, "", at(80)
	r, c, err = Fold(r, end)
	require.NoError(t, err)
	require.True(t, c.Sealed())
	require.Equal(t, Transition{From: StateCancellationRequested, To: StateCompleted, Description: "Completed", At: at(80), N: 4},
		c.Transitions[0])
	require.Equal(t, `{"status":"completed"}`, r.ResultJSON)
	require.Equal(t, uint32(100), r.Percent)
	require.Nil(t, r.Cancel, "the request came too late to be part of the outcome")
}

func TestFoldAnnouncesLostStart(t *testing.T) {
	end := started(finished(StateFailed))
	r, c, err := Fold(NewLeaf(leafSpec()), end)
	require.NoError(t, err)
	require.Equal(t, []Transition{
		{To: StateQueued, Description: "Queued", At: t0, N: 1},
		{From: StateQueued, To: StateRunning, Description: "Running", At: at(10), N: 2},
		{From: StateRunning, To: StateFailed, Description: "working", At: at(60), N: 3},
	}, c.Transitions)
	require.Equal(t, uint64(3), r.PublicN)
	require.Equal(t, AbandonedMessage, r.Failure.Message, "a failure without a reason is an abandoned job")
}

func TestFoldFillsInTheFailure(t *testing.T) {
	shutdown := finished(StateCancelled)
	shutdown.Cancel = &Cancel{Mode: CancelGraceful, Reason: CancelReasonShutdown, RequestedAt: at(1)}
	given := finished(StateFailed)
	given.Failure = NewFailure(FailureTaskException, "no")
	lucky := finished(StateCompleted)
	lucky.Failure = NewFailure(FailureTaskException, "no")
	for _, c := range []struct {
		event Event
		want  FailureCode
	}{
		{finished(StateFailed), FailureAbandoned},
		{finished(StateCancelled), FailureCancelledByOperator},
		{shutdown, FailureShuttingDown},
		{finished(StateTerminated), FailureTerminatedByOperator},
		{finished(StateSuperseded), FailureSuperseded},
		{finished(StateTimedOut), FailureDeadlineExceeded},
		{given, FailureTaskException},
		{lucky, ""},
	} {
		r, _, err := Fold(NewLeaf(leafSpec()), c.event)
		require.NoError(t, err)
		if c.want == "" {
			require.Nil(t, r.Failure)
			continue
		}
		require.Equal(t, c.want, r.Failure.FailureCode, c.event.State)
		require.NotEmpty(t, r.Failure.Message)
	}
}

func TestFoldKeepsCancelOfStoppedJob(t *testing.T) {
	r, _, err := Fold(NewLeaf(leafSpec()), cancelled(CancelTerminate))
	require.NoError(t, err)
	r, _, err = Fold(r, finished(StateTerminated))
	require.NoError(t, err)
	require.Equal(t, "ann", r.Cancel.RequestedBy)
}

func TestFoldRefusesInvalidEvents(t *testing.T) {
	other := worker(EventProgress)
	other.ID = testID(9)
	noMode := cancelled(CancelNone)
	noCancel := noMode
	noCancel.Cancel = nil
	for name, e := range map[string]Event{
		"another job":          other,
		"no kind":              {ID: testID(3)},
		"unknown kind":         {ID: testID(3), Kind: eventKindCount},
		"cancel without mode":  noMode,
		"cancel without body":  noCancel,
		"cancel unknown mode":  cancelled(cancelModeCount),
		"finished as running":  finished(StateRunning),
		"finished as nothing":  finished(StateUnspecified),
		"finished as partial":  finished(StatePartiallyFailed),
		"finished as state 11": finished(stateCount),
		"too many children":    {ID: testID(3), Kind: EventAdmitted, Total: MaxChildren + 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := inState(KindLeaf, StateRunning)
			after, c, err := Fold(r, e)
			require.ErrorIs(t, err, ErrInvalidEvent)
			require.Empty(t, c.Transitions)
			require.Equal(t, r, after)
		})
	}
}

func TestFoldQueuedAnnouncesOnce(t *testing.T) {
	e := Event{Kind: EventQueued, ID: testID(3), At: at(1)}
	r, c, err := Fold(NewLeaf(leafSpec()), e)
	require.NoError(t, err)
	require.Equal(t, []Transition{{To: StateQueued, Description: "Queued", At: t0, N: 1}}, c.Transitions)
	_, c, err = Fold(r, e)
	require.NoError(t, err)
	require.Equal(t, ReasonNoChange, c.Ignored)
}

// TestFoldLine follows a job from the end of a line to its turn, whose notes come from
// the folds of others.
func TestFoldLine(t *testing.T) {
	spec := leafSpec()
	spec.WaitsFor = testID(7)
	r := NewLeaf(spec)
	note := func(left, now byte) Event {
		e := Event{Kind: EventNote, ID: testID(3), At: at(60), Left: testID(left)}
		if now != 0 {
			e.WaitsFor = testID(now)
		}
		return e
	}
	take := func(e Event) bool {
		after, c, err := Fold(r, e)
		require.NoError(t, err)
		require.Empty(t, c.Transitions)
		require.Equal(t, c.Applied(), after.Description != r.Description)
		r = after
		return c.Applied()
	}
	require.False(t, take(Event{Kind: EventNote, ID: testID(3), At: at(60)}))
	require.False(t, take(note(6, 8)), "it waits for another job")
	require.True(t, take(note(7, 8)))
	require.Equal(t, testID(8), r.WaitsFor)
	require.Equal(t, WaitingText(testID(8)), r.Description)
	waiting := r
	require.True(t, take(note(9, 0)), "the note before this one comes later")
	require.True(t, r.WaitsFor.IsZero())
	require.Equal(t, textQueued, r.Description)
	require.False(t, take(note(8, 9)))
	ended, _, err := Fold(waiting, finished(StateCancelled))
	require.NoError(t, err)
	_, c, err := Fold(ended, note(8, 0))
	require.NoError(t, err)
	require.Equal(t, ReasonNote, c.Ignored)
}

func TestFoldAnnouncesParentThatWasBornFailed(t *testing.T) {
	spec := leafSpec()
	spec.NodeID = ""
	born := NewParent(spec, 0, true)
	require.Equal(t, StateFailed, born.State)
	r, c, err := Fold(born, Event{Kind: EventAdmitted, ID: born.ID, At: at(5)})
	require.NoError(t, err)
	require.True(t, c.Sealed())
	require.Len(t, c.Transitions, 2)
	require.Equal(t, StateRunning, c.Transitions[0].To)
	require.Equal(t, "Batch firmware update is taking in its jobs: 0 of 0 done", c.Transitions[0].Description)
	require.Equal(t, Transition{From: StateRunning, To: StateFailed, Description: "Failed", At: t0, N: 2}, c.Transitions[1])

	born.PublicN = 2
	require.Equal(t, born, r, "nothing but the count of announcements changed")
	_, c, err = Fold(r, Event{Kind: EventAdmitted, ID: born.ID, At: at(6)})
	require.NoError(t, err)
	require.Equal(t, ReasonTerminal, c.Ignored)
}

func TestCancelsAreOrdered(t *testing.T) {
	request := func(m CancelMode, second int, reason, by string) *Cancel {
		return &Cancel{Mode: m, Reason: reason, RequestedBy: by, RequestedAt: at(second)}
	}
	// From the one that is kept before all others to none at all.
	ranking := []*Cancel{
		request(CancelTerminate, 5, "operator", "bob"),
		request(CancelGraceful, 1, "shutdown", "bob"),
		request(CancelGraceful, 2, "deadline", "bob"),
		request(CancelGraceful, 2, "operator", "ann"),
		request(CancelGraceful, 2, "operator", "bob"),
		nil,
	}
	for i, a := range ranking {
		for j, b := range ranking {
			require.Equal(t, i < j, firmer(a, b), "%d before %d", i, j)
		}
	}
}
