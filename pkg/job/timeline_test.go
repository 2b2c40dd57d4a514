// SPDX-License-Identifier: Apache-2.0

package job

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

var threeStages = []StageName{{Name: "inspect", Description: "Look at it"}, {Name: "upload", Description: "Send the file"}, {Name: "verify", Description: "Look again"}}

func TestTimelineJSON(t *testing.T) {
	tl := NewTimeline(testID(3), threeStages, at(0))
	tl, err := tl.Start(at(1))
	require.NoError(t, err)
	tl, err = tl.Complete(at(3), json.RawMessage(`{"found":2}`))
	require.NoError(t, err)
	tl, err = tl.Start(at(4))
	require.NoError(t, err)
	got, err := json.Marshal(tl)
	require.NoError(t, err)
	require.Equal(t, `{"started_at_ms":1772352000000,"updated_at_ms":1772352004000,"total_duration_ms":4000,`+
		`"current_stage":"upload","stage_index":1,"stage_count":3,"stages":[`+
		`{"name":"inspect","job_id":"03030303-0303-4303-8303-030300000000","status":"completed","description":"Look at it",`+
		`"message":"","started_at_ms":1772352001000,"finished_at_ms":1772352003000,"duration_ms":2000,"details":{"found":2}},`+
		`{"name":"upload","job_id":"03030303-0303-4303-8303-030300000000","status":"running","description":"Send the file",`+
		`"message":"","started_at_ms":1772352004000,"finished_at_ms":0,"duration_ms":0,"details":{}},`+
		`{"name":"verify","job_id":"03030303-0303-4303-8303-030300000000","status":"queued","description":"Look again",`+
		`"message":"","started_at_ms":0,"finished_at_ms":0,"duration_ms":0,"details":{}}]}`, string(got))

	empty, err := json.Marshal(Timeline{JobID: testID(3)})
	require.NoError(t, err)
	require.Equal(t, `{"started_at_ms":0,"updated_at_ms":0,"total_duration_ms":0,"current_stage":"","stage_index":0,`+
		`"stage_count":0,"stages":[]}`, string(empty))
}

func TestTimelineFailureKeepsTheCursor(t *testing.T) {
	tl := NewTimeline(testID(3), threeStages, at(0))
	tl, err := tl.Skip(at(1), nil)
	require.NoError(t, err)
	require.Equal(t, Stage{Name: "inspect", Description: "Look at it", Status: StageSkipped, StartedAt: at(1), FinishedAt: at(1)},
		tl.Stages[0].Stage, "an end without a start has both times")

	before := slices.Clone(tl.Stages)
	failed, err := tl.Fail(at(2), "refused", json.RawMessage(`{"a":1}`))
	require.NoError(t, err)
	require.Equal(t, before, tl.Stages, "Fail wrote to its receiver")
	require.Equal(t, 1, failed.Cursor)
	again, err := failed.Fail(at(3), "", json.RawMessage(`{}`))
	require.NoError(t, err)
	require.Equal(t, "refused", again.Stages[1].Message, "an empty message leaves the one stored")
	require.JSONEq(t, `{"a":1}`, string(again.Stages[1].Details), "empty details leave those stored")

	end := failed.SkipRemaining(at(4))
	require.Equal(t, StageQueued, failed.Stages[2].Status, "SkipRemaining wrote to its receiver")
	require.Equal(t, []Stage{
		tl.Stages[0].Stage,
		{Name: "upload", Description: "Send the file", Status: StageFailed, Message: "refused", StartedAt: at(2), FinishedAt: at(2)},
		{Name: "verify", Description: "Look again", Status: StageSkipped},
	}, end.Visible())
	require.Equal(t, 1, end.Cursor)
	require.Equal(t, at(4), end.UpdatedAt)
}

func TestTimelineExhausted(t *testing.T) {
	tl := NewTimeline(testID(3), threeStages[:1], at(0))
	started, err := tl.Start(at(1))
	require.NoError(t, err)
	restarted, err := started.Start(at(2))
	require.NoError(t, err)
	require.Equal(t, at(1), restarted.Stages[0].StartedAt, "the first start counts")
	done, err := restarted.Complete(at(3), nil)
	require.NoError(t, err)
	_, ok := done.Current()
	require.False(t, ok)
	for _, drive := range []func() (Timeline, error){
		func() (Timeline, error) { return done.Start(at(4)) },
		func() (Timeline, error) { return done.Complete(at(4), nil) },
		func() (Timeline, error) { return done.Skip(at(4), nil) },
		func() (Timeline, error) { return done.Fail(at(4), "x", nil) },
	} {
		after, err := drive()
		require.ErrorIs(t, err, ErrTimelineExhausted)
		require.Equal(t, done, after)
	}
}

func TestResumeTimeline(t *testing.T) {
	tl := NewTimeline(testID(3), threeStages, at(0))
	tl, err := tl.Complete(at(1), nil)
	require.NoError(t, err)
	tl, err = tl.Skip(at(2), nil)
	require.NoError(t, err)
	tl, err = tl.Start(at(3))
	require.NoError(t, err)
	resumed := ResumeTimeline(tl.JobID, tl.StartedAt, tl.Visible())
	require.Equal(t, tl, resumed)
	current, ok := resumed.Current()
	require.True(t, ok)
	require.Equal(t, "verify", current.Name)
}
