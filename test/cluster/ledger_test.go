// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/sim/reqlog"
)

const (
	jobA = "00000000-0000-4000-8000-00000000000a"
	jobB = "00000000-0000-4000-8000-00000000000b"
)

// write is a request that arrived at a second and took a while.
func write(second int, took time.Duration, job string, epoch int) reqlog.Entry {
	return reqlog.Entry{
		Time: time.Unix(int64(second), 0), DurationMS: float64(took.Milliseconds()), Device: "compute-0001", Method: "POST",
		Path: "/redfish/v1/x", Status: 202, Complete: true, UserAgent: fmt.Sprintf("Rackbus/1.0 (job %s; epoch %d)", job, epoch),
	}
}

func upload(e reqlog.Entry, task string) reqlog.Entry {
	e.Upload = &reqlog.Upload{Task: task}
	return e
}

func on(e reqlog.Entry, device string) reqlog.Entry {
	e.Device = device
	return e
}

func TestJudge(t *testing.T) {
	tests := []struct {
		name            string
		entries         []reqlog.Entry
		stale, overlaps int
	}{
		{"one job after the other", []reqlog.Entry{write(1, 0, jobA, 1), write(2, 0, jobA, 2), write(3, 0, jobB, 1)}, 0, 0},
		{"entries in the order of their ends", []reqlog.Entry{write(2, 0, jobA, 2), write(1, 0, jobA, 1)}, 0, 0},
		{"former owner writes", []reqlog.Entry{write(1, 0, jobA, 2), write(2, 0, jobA, 1)}, 1, 0},
		{"former owner writes on another device", []reqlog.Entry{write(1, 0, jobA, 2), on(write(2, 0, jobA, 1), "x")}, 0, 0},
		{"former job writes", []reqlog.Entry{write(1, 0, jobA, 1), write(2, 0, jobB, 1), write(3, 0, jobA, 1)}, 0, 1},
		{"slow upload, then another job", []reqlog.Entry{upload(write(1, 900*time.Millisecond, jobA, 1), "1"), write(2, 0, jobB, 1)}, 0, 0},
		{"upload taken after the next owner wrote", []reqlog.Entry{upload(write(1, 5*time.Second, jobA, 1), "1"), write(2, 0, jobA, 2)}, 0, 1},
		{"upload cut after the next owner wrote", []reqlog.Entry{upload(write(1, 5*time.Second, jobA, 1), ""), write(2, 0, jobA, 2)}, 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := Judge(tt.entries)
			require.Len(t, l.Stale, tt.stale)
			require.Len(t, l.Overlaps, tt.overlaps)
		})
	}
}

func TestJudgeCounts(t *testing.T) {
	read := write(1, 0, jobA, 1)
	read.Method = "GET"
	power := write(1, 0, jobA, 1)
	power.UserAgent = "Rackbus/1.0"
	cut := upload(write(3, 0, jobA, 1), "")
	cut.Complete = false
	lost := upload(write(4, 0, jobA, 2), "7")
	lost.Complete, lost.Status = false, 0
	l := Judge([]reqlog.Entry{read, power, cut, lost, upload(write(5, 0, jobB, 1), "8")})
	require.Equal(t, 3, l.Writes)
	require.Equal(t, 1, l.Unsigned)
	require.Equal(t, map[string]int{jobA: 1, jobB: 1}, l.Taken)
	require.Equal(t, map[string]int{jobB: 1}, l.Answered)
	require.Equal(t, map[string][]string{"compute-0001": {jobA, jobB}}, l.Jobs)
}
