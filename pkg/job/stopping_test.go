// SPDX-License-Identifier: Apache-2.0

package job

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestStageThatCannotBeCut asks a job to stop before, in and behind a stage that
// cannot be cut. What is told follows the stage, whichever came first.
func TestStageThatCannotBeCut(t *testing.T) {
	t.Parallel()
	picture := func(n uint64, text string, stages ...Stage) Event {
		e := started(worker(EventProgress))
		e.N, e.Description, e.Stages = n, text, stages
		return e
	}
	check := Stage{Name: "check", Description: "Checking the node", Status: StageRunning}
	upload := Stage{
		Name: "upload", Description: "Uploading BMC", Status: StageRunning, Uninterruptible: true, StopLimit: 90 * time.Minute,
	}
	const note = ` (stage upload, "Uploading BMC", cannot be cut; it may take up to 90 minutes. ` +
		`Terminating the job would leave the hardware state unknown)`
	before, in, behind := picture(2, "Checking", check), picture(3, "Uploading 40%", upload), picture(4, "Checking again", check)
	for name, c := range map[string]struct {
		events []Event
		want   string
	}{
		"before it":         {[]Event{before, cancelled(CancelGraceful)}, "Stopping at the next safe point: Checking"},
		"as it begins":      {[]Event{before, cancelled(CancelGraceful), in}, "Stopping at the next safe point: Uploading 40%" + note},
		"in it":             {[]Event{before, in, cancelled(CancelGraceful)}, "Stopping at the next safe point: Uploading 40%" + note},
		"behind it":         {[]Event{in, cancelled(CancelGraceful), behind}, "Stopping at the next safe point: Checking again"},
		"by force":          {[]Event{in, cancelled(CancelTerminate)}, "Stopping by force: Uploading 40% (cut in stage upload: hardware state unknown)"},
		"then by force":     {[]Event{in, cancelled(CancelGraceful), cancelled(CancelTerminate)}, "Stopping by force: Uploading 40% (cut in stage upload: hardware state unknown)"},
		"without a request": {[]Event{in}, "Uploading 40%"},
	} {
		r := NewLeaf(leafSpec())
		for _, e := range c.events {
			var err error
			r, _, err = Fold(r, e)
			require.NoError(t, err)
		}
		require.Equal(t, c.want, r.Description, name)
	}
	upload.StopLimit = 0
	require.Contains(t, stopNote(CancelGraceful, []Stage{upload}), "it may take as long as the device needs")
}

func TestSecondRequestChangesNothing(t *testing.T) {
	t.Parallel()
	first := cancelled(CancelGraceful)
	first.Cancel.Note = "rack 7 goes down"
	r, _, err := Fold(NewLeaf(leafSpec()), first)
	require.NoError(t, err)
	second := cancelled(CancelGraceful)
	second.Cancel.RequestedAt, second.Cancel.RequestedBy, second.Cancel.Note = at(61), "bob", "no, mine"
	again, c, err := Fold(r, second)
	require.NoError(t, err)
	require.Equal(t, ReasonNoChange, c.Ignored)
	require.Equal(t, r, again)
	require.Equal(t, "rack 7 goes down", again.Cancel.Note)
}

// TestRequestRacesOutcome folds requests to stop and two outcomes in every order.
// The outcome that the fold sees first stands, and nothing changes it.
func TestRequestRacesOutcome(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		events := []Event{
			started(worker(EventStarted)), cancelled(CancelGraceful), cancelled(CancelTerminate),
			genOutcome(t, started(finished(StateCompleted))), genOutcome(t, started(finished(StateCompleted))),
		}
		events = rapid.Permutation(events).Draw(t, "arrival")
		var stands *Event
		for i := range events {
			if events[i].Kind == EventFinished {
				stands = &events[i]
				break
			}
		}
		r := foldAll(t, NewLeaf(leafSpec()), events)
		require.Equal(t, stands.State, r.State)
		require.Equal(t, stands.ResultJSON, r.ResultJSON)
		switch {
		case stands.Cancel != nil:
			require.Equal(t, stands.Cancel, r.Cancel)
		case r.State != StateCancelled && r.State != StateTerminated:
			require.Nil(t, r.Cancel, "a request that did not matter is no part of the outcome")
		}
	})
}

func TestCutText(t *testing.T) {
	t.Parallel()
	s := Stage{Name: "install", Description: "Installing BMC"}
	require.Equal(t, "terminated during stage install (Installing BMC): hardware state unknown; in flight: task /t/1",
		CutText("terminated", s, "task /t/1"))
	require.Equal(t, "terminated during stage install: hardware state unknown", CutText("terminated", Stage{Name: "install"}, ""))
	require.Equal(t, "terminated between stages: hardware state unknown", CutText("terminated between stages", Stage{}, ""))
}

func TestEndStages(t *testing.T) {
	t.Parallel()
	stages := []Stage{
		{Name: "a", Status: StageCompleted, StartedAt: at(1), FinishedAt: at(2)},
		{Name: "b", Status: StageRunning, StartedAt: at(2)}, {Name: "c", Status: StageQueued},
	}
	require.Equal(t, []Stage{
		stages[0], {Name: "b", Status: StageFailed, Message: "cut", StartedAt: at(2), FinishedAt: at(9)}, {Name: "c", Status: StageSkipped},
	}, EndStages(testID(1), stages, "cut", at(9)))
	require.Equal(t, StageRunning, stages[1].Status, "what is given is not written to")
	require.Empty(t, EndStages(testID(1), nil, "cut", at(9)))
}

func TestWords(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		time.Second: "1 second", 1500 * time.Millisecond: "2 seconds", 90 * time.Second: "90 seconds",
		2 * time.Minute: "2 minutes", 119*time.Minute + time.Second: "120 minutes", 2 * time.Hour: "2 hours",
		150 * time.Minute: "2 hours 30 minutes", 3*time.Hour + 30*time.Second: "3 hours 1 minute",
	} {
		require.Equal(t, want, Words(d), d)
	}
}
