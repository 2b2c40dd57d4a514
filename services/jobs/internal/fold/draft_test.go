// SPDX-License-Identifier: Apache-2.0

package fold

import (
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/services/jobs/internal/foldtest"
)

// store is what the bus would hold.
type store map[job.ID]known

func (s store) get(id job.ID) (known, bool) { k, ok := s[id]; return k, ok }

func storeOf(records []job.Record) store {
	s := make(store)
	for _, r := range records {
		s[r.ID] = known{record: r, rev: 1}
	}
	return s
}

// TestCommitsOfAnySizeAndCrashesGiveTheSame cuts a history into commits at
// random, and throws drafts away at random, as a crash or a conflict does. The
// records, and what the public stream is told, must be those of the plain fold.
func TestCommitsOfAnySizeAndCrashesGiveTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		family := foldtest.Families().Draw(t, "family")
		s := storeOf(family.Records)
		told := make(map[job.ID]uint64)
		kept := keptBy(family.Records)
		for done := 0; done < len(family.Events); {
			n := rapid.IntRange(1, len(family.Events)-done).Draw(t, "events of the commit")
			d := newDraft(s.get, nil)
			d.diagnose = true
			for i := done; i < done+n; i++ {
				_, err := d.take(bus.StoredEvent{Event: family.Events[i], Sequence: uint64(i + 1)})
				require.NoError(t, err)
			}
			if rapid.IntRange(0, 3).Draw(t, "crash") == 0 {
				continue
			}
			p := makePlan(d, nil, nil, time.Hour, time.Now())
			require.Equal(t, uint64(done+n), p.sequence)
			require.LessOrEqual(t, len(p.records)+len(p.timers)+fixedMessages, d.messages, "the size is foreseen")
			for _, w := range p.records {
				s[w.record.ID] = known{record: w.record, rev: s[w.record.ID].rev + 1}
			}
			for _, st := range d.steps {
				told[st.record.ID]++
				require.Equal(t, told[st.record.ID], st.transition.N, "every change is told once and in order")
			}
			kept.leave(t, d)
			kept.check(t, s)
			done += n
		}
		for id, want := range foldtest.Expect(family.Records, family.Events) {
			require.Equal(t, want, s[id].record)
			require.Equal(t, want.PublicN, told[id])
		}
	})
}

// keeping is what the locks and guards of the bus would say.
type keeping struct {
	nodes  map[node.Ref]job.ID
	guards map[string]job.ID
}

func keptBy(records []job.Record) keeping {
	k := keeping{nodes: make(map[node.Ref]job.ID), guards: make(map[string]job.ID)}
	for i := range records {
		for _, ref := range foldtest.Nodes(&records[i]) {
			k.nodes[ref] = records[i].ID
		}
		if records[i].RackPower {
			k.guards[records[i].RackID] = records[i].ID
		}
	}
	return k
}

// leave does what a commit of the draft does to locks and guards.
func (k keeping) leave(t *rapid.T, d *draft) {
	for _, e := range d.ended {
		require.Equal(t, e.id, k.nodes[e.ref], "a node is left once, by who held it")
		delete(k.nodes, e.ref)
	}
	for _, g := range d.guards {
		require.Equal(t, g.id, k.guards[g.rack])
		delete(k.guards, g.rack)
	}
}

// check compares what is kept with the records: a job that has ended keeps
// nothing, and one that has not keeps everything.
func (k keeping) check(t *rapid.T, s store) {
	want := keeping{nodes: make(map[node.Ref]job.ID), guards: make(map[string]job.ID)}
	for _, stored := range s {
		if !stored.record.State.Terminal() {
			own := keptBy([]job.Record{stored.record})
			maps.Copy(want.nodes, own.nodes)
			maps.Copy(want.guards, own.guards)
		}
	}
	require.Equal(t, want, k)
}

func leafSpec(id job.ID) job.Spec {
	return job.Spec{
		ID: id, Type: job.TypeFirmwareUpdate, RackID: "r", NodeID: "n", Family: "compute",
		CreatedAt: time.Unix(100, 0), Deadline: time.Unix(4000, 0),
	}
}

func take(t *testing.T, d *draft, e job.Event) {
	t.Helper()
	reason, err := d.take(bus.StoredEvent{Event: e, Sequence: 5})
	require.NoError(t, err)
	require.Empty(t, reason)
}

func TestPlan(t *testing.T) {
	id := ids(1)[0]
	now := time.Unix(500, 0).UTC()
	at := time.Unix(300, 0).UTC()
	deadline := time.Unix(9000, 0).UTC()
	leaves := leaving(&job.Record{ID: id, FinishedAt: at}, time.Hour)
	started := job.Event{Kind: job.EventStarted, ID: id, Epoch: 1, N: 1, At: at, StartedAt: at, Deadline: deadline}
	finished := job.Event{Kind: job.EventFinished, ID: id, Epoch: 1, N: 2, At: at, State: job.StateCompleted, CommandSeq: 42}
	asked := job.Event{
		Kind: job.EventCancelRequested, ID: id, At: at,
		Cancel: &job.Cancel{Mode: job.CancelGraceful, RequestedAt: at},
	}
	for name, tc := range map[string]struct {
		events []job.Event
		state  job.State
		timers []timerWrite
		ended  int
		erase  int
		plan   []string
	}{
		"a job that starts gets its run deadline": {
			events: []job.Event{started}, state: job.StateRunning,
			timers: []timerWrite{{bus.TimerDeadline, id, deadline}},
		},
		"a deadline that stays is not armed again": {
			events: []job.Event{{Kind: job.EventProgress, ID: id, Epoch: 1, N: 1, At: at, Deadline: time.Unix(4000, 0)}},
			state:  job.StateRunning,
		},
		"a job asked to stop gets its cancel timer": {
			events: []job.Event{asked}, state: job.StateCancellationRequested,
			timers: []timerWrite{{bus.TimerCancel, id, now}},
		},
		"a job that ends leaves its node and gets its retention": {
			events: []job.Event{started, asked, finished}, state: job.StateCompleted,
			timers: []timerWrite{{bus.TimerReap, id, leaves}}, ended: 1, erase: 1,
		},
		"a job that ends with a cleanup plan has it done now": {
			events: []job.Event{started, asked, finished}, state: job.StateCompleted, plan: []string{"cache/a"},
			timers: []timerWrite{{bus.TimerReap, id, leaves}, {bus.TimerCleanup, id, now}}, ended: 1, erase: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := leafSpec(id)
			s.Cleanup = tc.plan
			d := newDraft(storeOf([]job.Record{job.NewLeaf(s)}).get, map[node.Ref]bus.Lock{})
			d.diagnose = true
			for _, e := range tc.events {
				take(t, d, e)
			}
			p := makePlan(d, nil, nil, time.Hour, now)
			require.Len(t, p.records, 1)
			require.Equal(t, tc.state, p.records[0].record.State)
			require.Equal(t, tc.timers, p.timers)
			require.Len(t, d.ended, tc.ended)
			require.Len(t, d.erase, tc.erase)
			require.Equal(t, uint64(5), p.sequence)
			require.LessOrEqual(t, len(p.records)+len(p.timers)+fixedMessages, d.messages)
		})
	}
}

func TestFamiliesDoNotLeaveTogether(t *testing.T) {
	at, year := time.Unix(300, 0), 365*24*time.Hour
	for first, want := range map[byte]time.Duration{0: 0, 0x80: year / 200, 0xff: year / 100} {
		r := job.Record{ID: job.ID{first, first, first, first}, FinishedAt: at}
		require.InDelta(t, year+want, leaving(&r, year).Sub(at), float64(time.Hour))
	}
}

// TestExaminationsArePaced lets jobs fail together: their timers fire one after the other,
// also over several commits, and the first one of another day at once.
func TestExaminationsArePaced(t *testing.T) {
	id, records := ids(3), []job.Record{}
	for i := range id {
		records = append(records, job.NewLeaf(leafSpec(id[i])))
	}
	now, at := time.Unix(500, 0).UTC(), time.Unix(300, 0).UTC()
	examined := func(from, now time.Time, ids ...job.ID) (out []time.Time, next time.Time) {
		d := newDraft(storeOf(records).get, map[node.Ref]bus.Lock{})
		d.diagnose, d.from = true, from
		for _, id := range ids {
			take(t, d, job.Event{Kind: job.EventStarted, ID: id, Epoch: 1, N: 1, At: at, StartedAt: at})
			take(t, d, job.Event{Kind: job.EventFinished, ID: id, Epoch: 1, N: 2, At: at, State: job.StateFailed})
		}
		p := makePlan(d, nil, nil, time.Hour, now)
		for _, w := range p.timers {
			if w.kind == bus.TimerDiagnose {
				out = append(out, w.at)
			}
		}
		return out, p.from
	}
	first, from := examined(time.Time{}, now, id[0], id[1])
	require.Equal(t, []time.Time{now, now.Add(diagnosePace)}, first)
	next, from := examined(from, now.Add(time.Millisecond), id[2])
	require.Equal(t, []time.Time{now.Add(2 * diagnosePace)}, next)
	tomorrow := now.Add(24 * time.Hour)
	next, from = examined(from, tomorrow, id[2])
	require.Equal(t, []time.Time{tomorrow}, next)
	none, after := examined(from, tomorrow)
	require.Empty(t, none)
	require.Equal(t, from, after)
}

// TestChildOfABatchEndsWithoutRetentionOfItsOwn also checks that the parent is
// replaced only as it was read.
func TestChildOfABatchEndsWithoutRetentionOfItsOwn(t *testing.T) {
	id := ids(1)[0]
	parent := job.NewParent(leafSpec(id), 2, true)
	parent.NodeID = ""
	child := job.NewChild(id, 1, leafSpec(id))
	d := newDraft(storeOf([]job.Record{parent, child, job.NewChild(id, 2, leafSpec(id))}).get, nil)
	take(t, d, job.Event{Kind: job.EventFinished, ID: child.ID, Epoch: 1, N: 1, At: time.Unix(300, 0), State: job.StateFailed})
	p := makePlan(d, nil, nil, time.Hour, time.Now())
	require.Empty(t, p.timers)
	require.Len(t, p.records, 2)
	require.Equal(t, job.KindParent, p.records[1].record.Kind)
	require.Equal(t, bus.Revision(1), p.records[1].expect)
	require.Equal(t, uint32(1), p.records[1].record.Counts.Failed)
}

// TestParentAdmittedAtOnceIsIntroducedFirst makes subscribers hear of a batch
// before its first child starts.
func TestParentAdmittedAtOnceIsIntroducedFirst(t *testing.T) {
	id := ids(1)[0]
	parent := job.NewParent(leafSpec(id), 2, true)
	d := newDraft(storeOf([]job.Record{parent}).get, nil)
	_, err := d.take(bus.StoredEvent{Event: job.Event{Kind: job.EventAdmitted, ID: id, Total: 2, At: time.Unix(300, 0)}})
	require.NoError(t, err)
	require.Len(t, d.steps, 1)
	require.Equal(t, job.StateRunning, d.steps[0].transition.To)
}

func TestUnknownAndInvalidEventsChangeNothing(t *testing.T) {
	id := ids(2)
	d := newDraft(storeOf([]job.Record{job.NewLeaf(leafSpec(id[0]))}).get, nil)
	reason, err := d.take(bus.StoredEvent{Event: job.Event{Kind: job.EventQueued, ID: id[1]}, Sequence: 1})
	require.NoError(t, err)
	require.Equal(t, job.ReasonUnknownJob, reason)
	_, err = d.take(bus.StoredEvent{Event: job.Event{Kind: job.EventFinished, ID: id[0], State: job.StateRunning}, Sequence: 2})
	require.ErrorIs(t, err, job.ErrInvalidEvent)
	require.Empty(t, d.changed)
	require.Equal(t, uint64(2), d.sequence(), "the cursor steps over them")
}

func TestCacheForgetsWhatWasNotUsed(t *testing.T) {
	c := newCache(4)
	id := ids(7)
	for _, i := range id[:2] {
		c.put(i, known{rev: 1})
	}
	for _, i := range id[2:] {
		c.release()
		_, ok := c.get(id[0])
		require.True(t, ok, "what is used stays")
		c.put(i, known{rev: 1})
	}
	_, ok := c.get(id[1])
	require.False(t, ok)
	c.drop(id[0])
	_, ok = c.get(id[0])
	require.False(t, ok)
	require.LessOrEqual(t, len(c.young)+len(c.old), 4)
}

func TestCacheKeepsWhatACommitUses(t *testing.T) {
	c := newCache(2)
	id := ids(7)
	for _, i := range id {
		c.put(i, known{rev: 1})
	}
	for _, i := range id {
		_, ok := c.get(i)
		require.True(t, ok)
	}
	c.release()
	_, ok := c.get(id[0])
	require.False(t, ok)
}
