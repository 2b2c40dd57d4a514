// SPDX-License-Identifier: Apache-2.0

package jobview

import (
	"context"
	"crypto/rand"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/bus/broker/brokertest"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func family(t *testing.T) job.ID {
	t.Helper()
	id, err := job.NewFamily(rand.Reader)
	require.NoError(t, err)
	return id
}

func leaf(t *testing.T, nodeID string, created time.Time) job.Record {
	t.Helper()
	return job.NewLeaf(job.Spec{ID: family(t), Type: job.TypeFirmwareUpdate, RackID: "r1", NodeID: nodeID,
		Family: string(node.FamilyCompute), CreatedAt: created, Visible: true})
}

func newView() *View { return New(Options{Logger: slog.New(slog.DiscardHandler)}) }

func put(v *View, r job.Record, rev bus.Revision, current bool) {
	v.apply(bus.RecordUpdate{Record: r, Revision: rev, Current: current})
}

// TestRolloutsAreCounted follows a batch through its waves to its end, and one that
// leaves before that.
func TestRolloutsAreCounted(t *testing.T) {
	counts := map[job.RolloutState]float64{}
	v := New(Options{Logger: slog.New(slog.DiscardHandler), OnRollouts: func(s job.RolloutState, n float64) { counts[s] = n }})
	r := leaf(t, "", time.Now())
	r.Kind, r.Rollout = job.KindParent, &job.Rollout{State: job.RolloutPausing}
	put(v, leaf(t, "n", time.Now()), 1, true)
	put(v, r, 2, true)
	other := r
	other.ID = family(t)
	put(v, other, 3, true)
	require.Equal(t, map[job.RolloutState]float64{job.RolloutPausing: 2}, counts)
	for i, to := range []job.RolloutState{job.RolloutRunning, job.RolloutHeld, job.RolloutHeld} {
		r.Rollout = &job.Rollout{State: to}
		put(v, r, bus.Revision(4+i), true)
		require.InDelta(t, 1, counts[to], 0)
	}
	put(v, r, 4, true)
	require.Equal(t, map[job.RolloutState]float64{job.RolloutPausing: 1, job.RolloutRunning: 0, job.RolloutHeld: 1}, counts)
	r.State = job.StateCompleted
	put(v, r, 7, true)
	require.Equal(t, map[job.RolloutState]float64{job.RolloutPausing: 1, job.RolloutRunning: 0, job.RolloutHeld: 0}, counts)
	v.apply(bus.RecordUpdate{Record: job.Record{ID: r.ID}, Gone: true, Revision: 8, Current: true})
	v.apply(bus.RecordUpdate{Record: job.Record{ID: other.ID}, Gone: true, Revision: 9, Current: true})
	require.Equal(t, map[job.RolloutState]float64{job.RolloutPausing: 0, job.RolloutRunning: 0, job.RolloutHeld: 0}, counts)
}

func TestListPagesNewestFirst(t *testing.T) {
	v := newView()
	_, _, err := v.List(Filter{}, 10, "")
	require.ErrorIs(t, err, ErrNotReady)
	_, err = v.Watch(Filter{}, "")
	require.ErrorIs(t, err, ErrNotReady)

	base := time.Now()
	var all []job.Record
	for i := range 25 {
		// Two each have the same age.
		all = append(all, leaf(t, "n", base.Add(time.Duration(i/2)*time.Second)))
		put(v, all[i], bus.Revision(i+1), i == 24)
	}
	seen := make(map[job.ID]bool)
	token, pages := "", 0
	var last time.Time
	for {
		jobs, next, err := v.List(Filter{}, 10, token)
		require.NoError(t, err)
		pages++
		for _, j := range jobs {
			require.False(t, seen[j.ID])
			seen[j.ID] = true
			require.True(t, last.IsZero() || !j.CreatedAt.After(last))
			last = j.CreatedAt
		}
		if next == "" {
			break
		}
		token = next
		// A job that appears now is newer than the page and not in it.
		put(v, leaf(t, "late", base.Add(time.Hour)), bus.Revision(100+pages), true)
	}
	require.Equal(t, 3, pages)
	require.Len(t, seen, 25)
	for _, bad := range []string{"x", "!!", Change{Revision: 1}.Token()} {
		_, _, err := v.List(Filter{}, 10, bad)
		require.ErrorIs(t, err, ErrBadToken)
	}
}

func TestFilter(t *testing.T) {
	parent := job.NewParent(job.Spec{ID: family(t), Type: job.TypeFirmwareUpdate, RackID: "r1", Name: "weekly", CreatedAt: time.Now()}, 1, true)
	child := job.NewChild(parent.ID, 1, job.Spec{Type: job.TypeFirmwareUpdate, RackID: "r1", NodeID: "n1", CreatedAt: time.Now()})
	for name, c := range map[string]struct {
		f             Filter
		parent, child bool
	}{
		"all":       {Filter{}, true, true},
		"state":     {Filter{States: []job.State{job.StateQueued}}, false, true},
		"type":      {Filter{Types: []job.Type{job.TypeColdRebootSequence}}, false, false},
		"rack":      {Filter{RackID: "r1"}, true, true},
		"node":      {Filter{NodeID: "n1"}, false, true},
		"since":     {Filter{CreatedSince: time.Now().Add(time.Hour)}, false, false},
		"top level": {Filter{TopLevelOnly: true}, true, false},
		"parent":    {Filter{Parent: parent.ID}, false, true},
		"name":      {Filter{Name: "weekly"}, true, false},
	} {
		require.Equal(t, c.parent, c.f.Match(&parent), name)
		require.Equal(t, c.child, c.f.Match(&child), name)
	}
}

func drain(t *testing.T, w *Watcher) []Change {
	t.Helper()
	var out []Change
	for {
		c, err := w.Next(t.Context())
		require.NoError(t, err)
		out = append(out, c)
		if c.SnapshotComplete {
			return out
		}
	}
}

func TestWatchResumes(t *testing.T) {
	v := newView()
	a, b := leaf(t, "a", time.Now()), leaf(t, "b", time.Now())
	put(v, a, 1, false)
	put(v, b, 2, true)
	w, err := v.Watch(Filter{NodeID: "a"}, "")
	require.NoError(t, err)
	defer w.Close()
	got := drain(t, w)
	require.Len(t, got, 2)
	require.Equal(t, a.ID, got[0].Record.ID)

	running, _, err := job.Fold(a, job.Event{Kind: job.EventStarted, ID: a.ID, Epoch: 1, N: 1, At: time.Now()})
	require.NoError(t, err)
	put(v, b, 3, true) // not selected
	put(v, running, 4, true)
	c, err := w.Next(t.Context())
	require.NoError(t, err)
	require.Equal(t, job.StateRunning, c.Record.State)
	token := c.Token()

	// What happens between two watches is told by the second.
	put(v, leaf(t, "a", time.Now()), 5, true)
	v.apply(bus.RecordUpdate{Record: job.Record{ID: a.ID}, Revision: 6, Gone: true, Current: true})
	again, err := v.Watch(Filter{NodeID: "a"}, token)
	require.NoError(t, err)
	defer again.Close()
	got = drain(t, again)
	require.Len(t, got, 3)
	require.EqualValues(t, 5, got[0].Revision)
	require.Equal(t, a.ID, got[1].RemovedID)
	require.EqualValues(t, 6, got[2].Revision)

	// The first watch saw both as they happened.
	c, err = w.Next(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 5, c.Revision)
	c, err = w.Next(t.Context())
	require.NoError(t, err)
	require.Equal(t, a.ID, c.RemovedID)

	_, err = v.Watch(Filter{}, "nonsense")
	require.ErrorIs(t, err, ErrBadToken)
	v.floor = 1000
	_, err = v.Watch(Filter{}, token)
	require.ErrorIs(t, err, ErrTokenTooOld)
}

func TestWatchTellsOfJobsThatLeaveTheSelection(t *testing.T) {
	v := newView()
	a := leaf(t, "a", time.Now())
	put(v, a, 1, true)
	w, err := v.Watch(Filter{States: []job.State{job.StateQueued}}, "")
	require.NoError(t, err)
	defer w.Close()
	drain(t, w)
	running, _, err := job.Fold(a, job.Event{Kind: job.EventStarted, ID: a.ID, Epoch: 1, N: 1, At: time.Now()})
	require.NoError(t, err)
	put(v, running, 2, true)
	c, err := w.Next(t.Context())
	require.NoError(t, err)
	require.Equal(t, job.StateRunning, c.Record.State)
}

func TestSlowWatcherIsTold(t *testing.T) {
	v := newView()
	a := leaf(t, "a", time.Now())
	put(v, a, 1, true)
	w, err := v.Watch(Filter{}, "")
	require.NoError(t, err)
	defer w.Close()
	for i := range watchBuffer + 10 {
		put(v, a, bus.Revision(i+2), true)
	}
	n := 0
	for {
		_, err := w.Next(t.Context())
		if err != nil {
			require.ErrorIs(t, err, ErrSlow)
			break
		}
		n++
	}
	require.Equal(t, watchBuffer+2, n)
}

func TestPictureIsSmall(t *testing.T) {
	v := newView()
	r := leaf(t, "a", time.Now())
	r.ResultJSON = strings.Repeat("x", 1<<20)
	r.Description = strings.Repeat("ä", 1000)
	r.Stages = []job.Stage{{Name: "s"}}
	r.Failure = &job.Failure{Message: strings.Repeat("m", 1<<20), Device: &job.DeviceAnswer{Message: "d"}}
	put(v, r, 1, true)
	got, ok := v.Get(r.ID)
	require.True(t, ok)
	require.Empty(t, got.ResultJSON)
	require.Empty(t, got.Stages)
	require.LessOrEqual(t, len(got.Description), maxText)
	require.LessOrEqual(t, len(got.Failure.Message), maxText)
}

// A family that left while the bus was away is dropped when the bus is read anew.
func TestReconnectSweeps(t *testing.T) {
	v := newView()
	v.round = 1
	stays, leaves := leaf(t, "a", time.Now()), leaf(t, "b", time.Now())
	put(v, stays, 1, false)
	put(v, leaves, 2, true)
	w, err := v.Watch(Filter{}, "")
	require.NoError(t, err)
	defer w.Close()
	drain(t, w)
	v.round = 2
	put(v, stays, 1, true)
	_, ok := v.Get(leaves.ID)
	require.False(t, ok)
	_, ok = v.Get(stays.ID)
	require.True(t, ok)
	c, err := w.Next(t.Context())
	require.NoError(t, err)
	require.Equal(t, leaves.ID, c.RemovedID)

	// One reading is swept once: doing so walks through all jobs, and live
	// updates come by the thousand.
	v.items[stays.ID].round = 1
	put(v, leaf(t, "c", time.Now()), 3, true)
	_, ok = v.Get(stays.ID)
	require.True(t, ok)
}

// The bus tells again of a family that left, and of its records too while they
// have not been removed yet.
func TestReconnectBeforeAFamilyIsPurged(t *testing.T) {
	v := newView()
	v.round = 1
	r := leaf(t, "a", time.Now())
	put(v, r, 1, true)
	gone := bus.RecordUpdate{Record: job.Record{ID: r.ID}, Revision: 2, Gone: true, Current: true}
	v.apply(gone)
	v.round = 2
	put(v, r, 1, false)
	v.apply(gone)
	_, ok := v.Get(r.ID)
	require.False(t, ok)
	require.Len(t, v.removals, 1)
}

func TestViewFollowsTheBus(t *testing.T) {
	b := brokertest.Start(t)
	conn, err := bus.Connect(bus.Options{URLs: []string{b.URL()}, Name: "test", Role: "api"})
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.Provision(t.Context()))
	r := leaf(t, "a", time.Now())
	create := func(r *job.Record) {
		tx := conn.Begin()
		tx.CreateRecord(r)
		_, err := tx.Commit(t.Context())
		require.NoError(t, err)
	}
	create(&r)
	v := New(Options{Conn: conn, Retry: time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); v.Run(ctx) }()
	defer func() { cancel(); <-done }()
	require.Eventually(t, func() bool { return v.Ready() == nil }, 20*time.Second, time.Millisecond)
	w, err := v.Watch(Filter{}, "")
	require.NoError(t, err)
	defer w.Close()
	require.Len(t, drain(t, w), 2)

	later := leaf(t, "b", time.Now())
	create(&later)
	c, err := w.Next(t.Context())
	require.NoError(t, err)
	require.Equal(t, later.ID, c.Record.ID)
	tx := conn.Begin()
	tx.MarkGone(r.ID)
	_, err = tx.Commit(t.Context())
	require.NoError(t, err)
	c, err = w.Next(t.Context())
	require.NoError(t, err)
	require.Equal(t, r.ID, c.RemovedID)
	jobs, _, err := v.List(Filter{}, 10, "")
	require.NoError(t, err)
	require.Len(t, jobs, 1)
}
