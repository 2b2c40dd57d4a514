// SPDX-License-Identifier: Apache-2.0

package console

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// Short names for the tables.
const (
	queued     = rackbusv1.JobState_JOB_STATE_QUEUED
	running    = rackbusv1.JobState_JOB_STATE_RUNNING
	stopping   = rackbusv1.JobState_JOB_STATE_CANCELLATION_REQUESTED
	completed  = rackbusv1.JobState_JOB_STATE_COMPLETED
	failed     = rackbusv1.JobState_JOB_STATE_FAILED
	partly     = rackbusv1.JobState_JOB_STATE_PARTIALLY_FAILED
	cancelled  = rackbusv1.JobState_JOB_STATE_CANCELLED
	terminated = rackbusv1.JobState_JOB_STATE_TERMINATED
	superseded = rackbusv1.JobState_JOB_STATE_SUPERSEDED
	timedOut   = rackbusv1.JobState_JOB_STATE_TIMED_OUT
)

var epoch = time.Date(2026, 11, 30, 1, 0, 0, 0, time.UTC)

func TestStatusOf(t *testing.T) {
	type run struct {
		state rackbusv1.JobState
		kind  string
	}
	update := func(s rackbusv1.JobState) run { return run{s, "firmware_update"} }
	look := func(s rackbusv1.JobState) run { return run{s, "node_diagnostics"} }
	for _, tt := range []struct {
		name string
		// history is from old to new; owner and withdrawn are positions in it, -1 for none.
		history   []run
		want      Status
		owner     int
		withdrawn int
	}{
		{"nothing", nil, StatusNone, -1, -1},
		{"queued", []run{update(queued)}, StatusWaiting, 0, -1},
		{"running", []run{update(running)}, StatusWorking, 0, -1},
		{"asked to stop still holds the node", []run{update(stopping)}, StatusWorking, 0, -1},
		{"completed", []run{update(completed)}, StatusOK, 0, -1},
		{"failed", []run{update(failed)}, StatusFailed, 0, -1},
		{"timed out", []run{update(timedOut)}, StatusFailed, 0, -1},
		{"partly failed", []run{update(partly)}, StatusFailed, 0, -1},
		{"the newest end decides", []run{update(failed), update(completed)}, StatusOK, 1, -1},
		{"a failure after success", []run{update(completed), update(timedOut)}, StatusFailed, 1, -1},

		{"only cancelled", []run{update(cancelled)}, StatusNone, -1, 0},
		{"only terminated", []run{update(terminated)}, StatusNone, -1, 0},
		{"only superseded", []run{update(superseded)}, StatusNone, -1, 0},
		{"cancelled after success", []run{update(completed), update(cancelled)}, StatusOK, 0, 1},
		{"terminated after a failure", []run{update(failed), update(terminated)}, StatusFailed, 0, 1},
		{"the newest withdrawn one shows", []run{update(ok), update(cancelled), update(terminated)}, StatusOK, 0, 2},
		{"an older withdrawn one does not", []run{update(cancelled), update(completed)}, StatusOK, 1, -1},
		{"superseded by what runs", []run{update(superseded), update(running)}, StatusWorking, 1, -1},
		{"superseded beside what ran before", []run{update(running), update(superseded)}, StatusWorking, 0, 1},

		{"running before waiting", []run{update(running), update(queued)}, StatusWorking, 0, -1},
		{"waiting before the past", []run{update(failed), update(queued)}, StatusWaiting, 1, -1},
		{"a diagnosis holds the node", []run{update(failed), look(running)}, StatusWorking, 1, -1},
		{"a diagnosis proves nothing good", []run{update(failed), look(completed)}, StatusFailed, 0, -1},
		{"a diagnosis proves nothing bad", []run{update(completed), look(failed)}, StatusOK, 0, -1},
		{"only a diagnosis", []run{look(completed)}, StatusNone, -1, -1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			runs := make([]*Run, len(tt.history))
			for i, r := range tt.history {
				runs[i] = &Run{ID: string(rune('a' + i)), Type: r.kind, State: r.state, CreatedAt: epoch.Add(time.Duration(i) * time.Minute)}
			}
			at := func(i int) *Run {
				if i < 0 {
					return nil
				}
				return runs[i]
			}
			want := NodeStatus{tt.want, at(tt.owner), at(tt.withdrawn)}
			require.Equal(t, want, StatusOf(runs))
			backwards := slices.Clone(runs)
			slices.Reverse(backwards)
			require.Equal(t, want, StatusOf(backwards), "the order of the history must not matter")
		})
	}
}

// ok is what completed means for a table that is read from left to right.
const ok = completed

func TestEveryStatusIsExplained(t *testing.T) {
	require.Len(t, statuses, 5)
	for _, s := range statuses {
		require.NotEmpty(t, s.Meaning)
		require.Equal(t, s.Label, s.Status.Label())
	}
	for n := range rackbusv1.JobState_name {
		state := rackbusv1.JobState(n)
		if state == rackbusv1.JobState_JOB_STATE_UNSPECIFIED {
			continue
		}
		s := StatusOf([]*Run{{ID: "a", Type: "firmware_update", State: state, CreatedAt: epoch}})
		require.True(t, s.Owner != nil || s.Withdrawn != nil, "a run that is %s must not be invisible", stateLabel(state))
	}
}
