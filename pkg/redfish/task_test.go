// SPDX-License-Identifier: Apache-2.0

package redfish_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/redfish"
)

// task is the body of a task; more are further members, each with a comma ahead.
func task(state, health, percent, more string) http.HandlerFunc {
	return ok(`{"@odata.type":"#Task.v1_4_3.Task","Id":"7","TaskState":"` + state + `","TaskStatus":"` + health + `","PercentComplete":` + percent + more + `}`)
}

func messages(id, text, severity string) string {
	return `,"Messages":[{"MessageId":"Update.1.0.TargetDetermined","Message":"determined","MessageSeverity":"OK","Resolution":"None."},
		{"MessageId":"` + id + `","Message":"` + text + `","Severity":"` + severity + `","Resolution":"Try the other image."},"odd",7]`
}

func readTask(t *testing.T, nodeType string, answer http.HandlerFunc) redfish.TaskStatus {
	t.Helper()
	b := newBMC(t)
	b.on(tasksURI+"/7", answer)
	got, err := b.client(nodeType).Task(t.Context(), redfish.TaskByID("7"))
	require.NoError(t, err)
	return got
}

func TestTaskStates(t *testing.T) {
	t.Parallel()
	for state, want := range map[string]redfish.TaskPhase{
		"New": redfish.TaskPending, "pending": redfish.TaskPending, "Starting": redfish.TaskPending,
		"Running": redfish.TaskRunning, "in_progress": redfish.TaskRunning, "Service": redfish.TaskRunning,
		"Interrupted": redfish.TaskRunning, "Cancelling": redfish.TaskRunning, "Stopping": redfish.TaskRunning,
		"Completed": redfish.TaskCompleted, "OK": redfish.TaskCompleted,
		"Exception": redfish.TaskFailed, "Failed": redfish.TaskFailed, "Killed": redfish.TaskFailed, "action_error": redfish.TaskFailed,
		"Cancelled": redfish.TaskCancelled, "Canceled": redfish.TaskCancelled,
		"Suspended": redfish.TaskSuspended, "UserIntervention": redfish.TaskNeedsAction, "Dreaming": redfish.TaskUnknown,
	} {
		got := readTask(t, gb200, task(state, "OK", "50", ""))
		require.Equal(t, want, got.Phase, state)
		terminal := want == redfish.TaskCompleted || want == redfish.TaskFailed || want == redfish.TaskCancelled || want == redfish.TaskNeedsAction
		require.Equal(t, terminal, got.Terminal(), state)
		if !terminal || want == redfish.TaskCompleted {
			require.NoError(t, got.Err(), state)
		} else {
			require.Error(t, got.Err(), state)
		}
	}
}

func TestF1TaskFieldsAreLenient(t *testing.T) {
	t.Parallel()
	require.Equal(t, 12, readTask(t, gb200, task("Running", "OK", `"12.5"`, "")).Percent)
	require.Equal(t, -1, readTask(t, gb200, task("Running", "OK", `"N/A"`, "")).Percent)
	require.Equal(t, 100, readTask(t, gb200, task("Running", "OK", `250`, "")).Percent)
	got := readTask(t, gb200, task("Running", "OK", `{}`, `,"Messages":{"MessageId":"x"}`))
	require.Equal(t, redfish.TaskRunning, got.Phase)
	require.Empty(t, got.Messages)
}

func TestTaskMemberMayAnswer202_E16(t *testing.T) {
	t.Parallel()
	got := readTask(t, gb200, reply(202, `{"TaskState":"Running","PercentComplete":30}`))
	require.Equal(t, redfish.TaskRunning, got.Phase)
	require.Equal(t, 30, got.Percent)
}

func TestCompletedIsNotAlwaysSuccess_E13(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, health, id, text string
		failed                 bool
	}{
		{"critical", "Critical", "Update.1.0.VerificationFailed", "signature is wrong", true},
		{"warning about errors", "Warning", "Update.1.0.X", "The update completed with errors.", true},
		{"warning by message id", "Warning", "ResourceEvent.1.0.ResourceErrorsDetected", "x", true},
		{"no device", "Warning", "Update.1.0.X", "No matching devices were found", true},
		{"other warning", "Warning", "Update.1.0.AwaitToActivate", "Awaiting activation", false},
		{"good", "OK", "Update.1.0.UpdateSuccessful", "done", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := readTask(t, gb200, task("Completed", c.health, "100", messages(c.id, c.text, c.health)))
			err := got.Err()
			if !c.failed {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.id)
			require.ErrorContains(t, err, c.text)
			failure, is := errors.AsType[*redfish.TaskError](err)
			require.True(t, is)
			require.Equal(t, c.id, failure.Task.MessageID)
			require.Contains(t, failure.Task.Text, "Resolution: Try the other image.")
		})
	}
}

func TestUserInterventionTellsWhatToDo_E14(t *testing.T) {
	t.Parallel()
	got := readTask(t, gb200, task("UserIntervention", "Warning", "40", messages("Update.1.0.Confirm", "confirm the downgrade", "Warning")))
	require.True(t, got.Terminal())
	require.ErrorContains(t, got.Err(), "someone to act")
	require.ErrorContains(t, got.Err(), "Try the other image.")
}

func TestTaskStatusAsJSON(t *testing.T) {
	t.Parallel()
	raw, err := json.Marshal(readTask(t, gb200, task("Running", "OK", "41", "")))
	require.NoError(t, err)
	require.JSONEq(t, `{"id":"7","phase":"running","state":"Running","health":"OK","percent":41,"message":"OK"}`, string(raw))
}

func TestShelfHandoff(t *testing.T) {
	t.Parallel()
	aborted := task("Cancelled", "Warning", "100", messages("TaskEvent.1.0.1.TaskAborted", "aborted", "Warning"))
	errored := task("Cancelled", "Warning", "100", messages("X", "task completed with errors", "Warning"))
	running := task("Running", "OK", "0", `,"EndTime":"2026-01-01T00:00:00+00:00"`+messages("Base.1.8.InternalError", "x", "Critical"))
	for name, answer := range map[string]http.HandlerFunc{"aborted": aborted, "errored": errored, "running": running} {
		got := readTask(t, liteon, answer)
		require.True(t, got.Handoff, name)
		require.NoError(t, got.Err(), name)
		require.True(t, got.Terminal(), name)
		require.Equal(t, 100, got.Percent)
		require.Contains(t, got.Text, "activation required")
		require.False(t, readTask(t, gb200, answer).Handoff, "only shelves hand over")
	}
	for name, answer := range map[string]http.HandlerFunc{
		"cancelled early": task("Cancelled", "Warning", "40", messages("TaskEvent.1.0.1.TaskAborted", "x", "Warning")),
		"running at 30 %": task("Running", "OK", "30", `,"EndTime":"2026-01-01T00:00:00+00:00"`+messages("Base.1.8.InternalError", "x", "Critical")),
		"still running":   task("Running", "OK", "0", messages("Base.1.8.InternalError", "x", "Critical")),
	} {
		require.False(t, readTask(t, liteon, answer).Handoff, name)
	}

	b := newBMC(t)
	b.on(tasksURI, ok(members(tasksURI+"/9", tasksURI+"/10", tasksURI+"/11")))
	b.on(tasksURI+"/9", aborted)
	b.on(tasksURI+"/10", aborted)
	b.on(tasksURI+"/11", task("Completed", "OK", "100", ""))
	handed, err := b.client(liteon).HandoffTasks(t.Context())
	require.NoError(t, err)
	newest, found := redfish.NewHandoff(nil, handed)
	require.True(t, found)
	require.Equal(t, redfish.TaskByID("10"), newest)
	_, found = redfish.NewHandoff(handed, handed)
	require.False(t, found)
}

func TestRunningUpdateTask(t *testing.T) {
	t.Parallel()
	b := newBMC(t)
	b.on(tasksURI, ok(members(tasksURI+"/1", tasksURI+"/2", tasksURI+"/HGX_4")))
	b.on(tasksURI+"/1", task("Completed", "OK", "100", ""))
	b.on(tasksURI+"/2", reply(500, ""))
	b.on(tasksURI+"/HGX_4", task("Running", "OK", "10", ""))
	c := b.client(gb200)
	_, found, err := c.RunningUpdateTask(t.Context(), false)
	require.NoError(t, err)
	require.False(t, found)
	got, found, err := c.RunningUpdateTask(t.Context(), true)
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, "HGX_4", got.Ref.ID)

	b.on(tasksURI, reply(503, ""))
	_, found, err = c.RunningUpdateTask(t.Context(), true)
	require.NoError(t, err, "an unreadable list does not block")
	require.False(t, found)
	_, found, err = b.client(liteon).RunningUpdateTask(t.Context(), false)
	require.NoError(t, err)
	require.False(t, found)
}

// waitTask waits in fake time with the documented intervals.
func waitTask(t *testing.T, ref redfish.TaskRef, o redfish.PollOptions, answers ...http.HandlerFunc) (redfish.TaskResult, time.Duration, int) {
	t.Helper()
	b := newPipeBMC(t)
	defer b.close()
	path := ref.URI
	if path == "" {
		path = ref.Monitor
	}
	b.on(path, answers...)
	started := time.Now()
	result, err := b.client(gb200, defaults).WaitTask(t.Context(), ref, o)
	require.NoError(t, err)
	return result, time.Since(started), len(b.requests("GET", path))
}

func TestWaitTask(t *testing.T) {
	t.Parallel()
	running := task("Running", "OK", "20", "")
	done := task("Completed", "OK", "100", "")
	for _, c := range []struct {
		name    string
		answers []http.HandlerFunc
		o       redfish.PollOptions
		outcome redfish.TaskOutcome
		took    time.Duration
	}{
		{"finishes", []http.HandlerFunc{running, running, done}, redfish.PollOptions{}, redfish.TaskFinished, 10 * time.Second},
		{"Retry-After on 202", []http.HandlerFunc{reply(202, `{"TaskState":"Running"}`, "Retry-After", "40"), done}, redfish.PollOptions{}, redfish.TaskFinished, 40 * time.Second},
		{"F9 404 at first", []http.HandlerFunc{reply(404, ""), reply(404, ""), done}, redfish.PollOptions{}, redfish.TaskFinished, 20 * time.Second},
		{"E10 gone for good", []http.HandlerFunc{running, reply(404, "")}, redfish.PollOptions{}, redfish.TaskGone, 35 * time.Second},
		{"E9 away and back", append(append([]http.HandlerFunc{running}, again(30, reply(503, ""))...), done), redfish.PollOptions{}, redfish.TaskFinished, 155 * time.Second},
		{"unreachable past the tolerance", []http.HandlerFunc{running, cut}, redfish.PollOptions{}, redfish.TaskGone, 5*time.Second + 15*time.Minute},
		{"503 with Retry-After", []http.HandlerFunc{reply(503, "", "Retry-After", "60"), done}, redfish.PollOptions{}, redfish.TaskFinished, 60 * time.Second},
		{"broken JSON is tolerated", []http.HandlerFunc{ok("<html/>"), ok("{"), done}, redfish.PollOptions{}, redfish.TaskFinished, 10 * time.Second},
		{"stuck at 99", []http.HandlerFunc{task("Running", "OK", "99", "")}, redfish.PollOptions{Interval: time.Minute}, redfish.TaskLimitPassed, 90 * time.Minute},
		{"own limit", []http.HandlerFunc{running}, redfish.PollOptions{Limit: 12 * time.Second}, redfish.TaskLimitPassed, 12 * time.Second},
		{"killed", []http.HandlerFunc{running, task("Killed", "Critical", "20", "")}, redfish.PollOptions{}, redfish.TaskEndedBadly, 10 * time.Second},
		{"exception", []http.HandlerFunc{task("Exception", "Critical", "0", "")}, redfish.PollOptions{}, redfish.TaskEndedBadly, 5 * time.Second},
		{"E14 user intervention", []http.HandlerFunc{task("UserIntervention", "Warning", "50", "")}, redfish.PollOptions{}, redfish.TaskEndedBadly, 5 * time.Second},
		{"suspended for long", []http.HandlerFunc{task("Suspended", "OK", "50", "")}, redfish.PollOptions{}, redfish.TaskEndedBadly, 5*time.Minute + 5*time.Second},
		{"suspended for a while", []http.HandlerFunc{task("Suspended", "OK", "50", ""), done}, redfish.PollOptions{}, redfish.TaskFinished, 5 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				result, took, _ := waitTask(t, redfish.TaskByID("7"), c.o, c.answers...)
				require.Equal(t, c.outcome, result.Outcome)
				require.Equal(t, c.took, took)
				require.Equal(t, c.outcome == redfish.TaskFinished, result.Err == nil)
			})
		})
	}
}

func TestMonitorIsPolledByStatus_E2(t *testing.T) {
	t.Parallel()
	monitor := redfish.TaskRef{Monitor: "/redfish/v1/TaskService/TaskMonitors/x"}
	accepted := reply(202, "")
	synctest.Test(t, func(t *testing.T) {
		result, _, looks := waitTask(t, monitor, redfish.PollOptions{}, accepted, accepted, accepted, reply(204, ""))
		require.Equal(t, redfish.TaskFinished, result.Outcome)
		require.Equal(t, 4, looks)
	})
	synctest.Test(t, func(t *testing.T) {
		result, _, _ := waitTask(t, monitor, redfish.PollOptions{}, accepted, ok("[not a task]"))
		require.Equal(t, redfish.TaskFinished, result.Outcome)
	})
	synctest.Test(t, func(t *testing.T) {
		result, _, _ := waitTask(t, monitor, redfish.PollOptions{}, accepted, task("Exception", "Critical", "10", ""))
		require.Equal(t, redfish.TaskEndedBadly, result.Outcome)
	})
	synctest.Test(t, func(t *testing.T) {
		result, _, looks := waitTask(t, monitor, redfish.PollOptions{}, accepted, refuse(400, "Update.1.0.Bad", "did not fit"))
		require.Equal(t, redfish.TaskEndedBadly, result.Outcome)
		require.ErrorContains(t, result.Err, "did not fit")
		require.Equal(t, 2, looks)
	})
}

func TestFailedTaskIsReadOnceMore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		result, _, looks := waitTask(t, redfish.TaskByID("7"), redfish.PollOptions{},
			task("Exception", "Critical", "0", ""),
			task("Exception", "Critical", "0", messages("Update.1.0.ApplyFailed", "the flash is worn out", "Critical")))
		require.Equal(t, 2, looks)
		require.Equal(t, "Update.1.0.ApplyFailed", result.Task.MessageID)
		require.ErrorContains(t, result.Err, "worn out")
	})
}

func TestWaitTaskReportsProgress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var percents []int
		o := redfish.PollOptions{Progress: func(p int, _ string) { percents = append(percents, p) }}
		_, _, _ = waitTask(t, redfish.TaskByID("7"), o, task("Running", "OK", "10", ""), task("Running", "OK", "60", ""), task("Completed", "OK", "100", ""))
		require.Equal(t, []int{10, 60, 100}, percents)
	})
}

func TestWaitTaskEndsWithItsContext(t *testing.T) {
	t.Parallel()
	b := newBMC(t)
	b.on(tasksURI+"/7", task("Running", "OK", "10", ""))
	ctx, cancel := context.WithCancel(t.Context())
	_, err := b.client(gb200).WaitTask(ctx, redfish.TaskByID("7"), redfish.PollOptions{Progress: func(int, string) { cancel() }})
	require.Equal(t, redfish.CodeCanceled, redfish.CodeOf(err))
	_, err = b.client(gb200).WaitTask(t.Context(), redfish.TaskRef{}, redfish.PollOptions{})
	require.Equal(t, redfish.CodeInvalidArgument, redfish.CodeOf(err))
}
