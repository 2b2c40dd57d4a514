// SPDX-License-Identifier: Apache-2.0

package job

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// history is a valid set of events of one job: every owner speaks in epochs of
// its own, and the only outcome belongs to the last of them.
type history struct {
	record   Record
	events   []Event // in the order in which they were meant
	finished bool
	// ordered says that single events leave things out which an earlier event of
	// the same writer told, so only the writers may be mixed, not their events.
	ordered bool
}

func genTime(t *rapid.T, label string) time.Time {
	return at(rapid.IntRange(1, 5000).Draw(t, label))
}

func genStages(t *rapid.T) []Stage {
	var stages []Stage
	for i := range rapid.IntRange(0, 3).Draw(t, "stages") {
		stages = append(stages, Stage{
			Name: fmt.Sprintf("stage-%d", i), StartedAt: genTime(t, "stage start"),
			Status:          StageStatus(rapid.IntRange(1, int(stageStatusCount)-1).Draw(t, "stage status")),
			Uninterruptible: rapid.Bool().Draw(t, "pinned"),
			StopLimit:       rapid.SampledFrom([]time.Duration{0, time.Hour}).Draw(t, "stop limit"),
		})
	}
	return stages
}

func genCancel(t *rapid.T) *Cancel {
	return &Cancel{
		Mode:        CancelMode(rapid.IntRange(1, 2).Draw(t, "mode")),
		Reason:      rapid.SampledFrom([]string{CancelReasonOperator, CancelReasonDeadline}).Draw(t, "reason"),
		RequestedBy: rapid.SampledFrom([]string{"ann", "bob"}).Draw(t, "by"),
		RequestedAt: at(rapid.IntRange(1, 3).Draw(t, "requested")),
		Note:        rapid.SampledFrom([]string{"", "maintenance"}).Draw(t, "note"),
	}
}

func genHistory(t *rapid.T, record Record) history {
	h := history{record: record, ordered: rapid.Bool().Draw(t, "ordered")}
	h.events = append(h.events, Event{Kind: EventQueued, ID: record.ID, At: genTime(t, "queued")})
	for range rapid.IntRange(0, 3).Draw(t, "cancels") {
		h.events = append(h.events, Event{
			Kind: EventCancelRequested, ID: record.ID, At: genTime(t, "cancel"), Cancel: genCancel(t),
		})
	}
	epochs := rapid.IntRange(0, 3).Draw(t, "epochs")
	var begun time.Time
	speak := func(kind EventKind, epoch int, n int) Event {
		e := Event{
			Kind: kind, ID: record.ID, Epoch: uint64(epoch), N: uint64(n), At: genTime(t, "at"),
			StartedAt:   begun,
			Description: rapid.SampledFrom([]string{"", "uploading", "polling"}).Draw(t, "description"),
			Percent:     rapid.Uint32Range(0, 100).Draw(t, "percent"), Stages: genStages(t),
		}
		if epoch > 0 {
			e.Attempt, e.Agent = uint32(epoch), fmt.Sprintf("agent-%d", epoch)
			if kind == EventClaimed || !h.ordered {
				e.Deadline = at(10000 * epoch)
			}
		}
		return e
	}
	n := 0
	for epoch := 1; epoch <= epochs; epoch++ {
		n = 1
		h.events = append(h.events, speak(EventClaimed, epoch, n))
		for range rapid.IntRange(0, 3).Draw(t, "worker events") {
			n++
			if begun.IsZero() {
				begun = genTime(t, "begun")
			}
			kind := rapid.SampledFrom([]EventKind{EventStarted, EventProgress}).Draw(t, "kind")
			h.events = append(h.events, speak(kind, epoch, n))
		}
	}
	if h.finished = rapid.Bool().Draw(t, "finished"); h.finished {
		h.events = append(h.events, genOutcome(t, speak(EventFinished, epochs, n+1)))
	}
	return h
}

func genOutcome(t *rapid.T, e Event) Event {
	e.State = rapid.SampledFrom([]State{
		StateCompleted, StateFailed, StateCancelled, StateTerminated, StateSuperseded, StateTimedOut,
	}).Draw(t, "outcome")
	stopped := e.State == StateCancelled || e.State == StateTerminated
	if stopped || rapid.Bool().Draw(t, "outcome has cancel") {
		e.Cancel = genCancel(t)
	}
	if e.State != StateCompleted && rapid.Bool().Draw(t, "outcome has failure") {
		e.Failure = NewFailure(FailureTaskException, "device said no")
	}
	e.ResultJSON = rapid.SampledFrom([]string{"", "{}", `{"status":"already_up_to_date"}`}).Draw(t, "result")
	return e
}

// writer tells whose event it is; the events of one writer keep their order.
func writer(e Event) string {
	switch e.Kind {
	case EventQueued, EventCancelRequested:
		return e.Kind.String()
	default:
		return fmt.Sprintf("epoch-%d", e.Epoch)
	}
}

// genArrival returns the events of h as they may arrive: some of them twice or
// more often, and mixed.
func genArrival(t *rapid.T, h history) []Event {
	events := slices.Clone(h.events)
	if !h.ordered {
		for _, e := range h.events {
			for range rapid.IntRange(0, 2).Draw(t, "copies") {
				events = append(events, e)
			}
		}
		return rapid.Permutation(events).Draw(t, "arrival")
	}
	queues := map[string][]Event{}
	var names []string
	for _, e := range events {
		w := writer(e)
		if queues[w] == nil {
			names = append(names, w)
		}
		queues[w] = append(queues[w], e)
	}
	var arrival []Event
	for len(names) > 0 {
		w := rapid.SampledFrom(names).Draw(t, "writer")
		arrival = append(arrival, queues[w][0])
		if rapid.Bool().Draw(t, "again") { // an earlier message, delivered once more
			arrival = append(arrival, rapid.SampledFrom(arrival).Draw(t, "copy"))
		}
		if queues[w] = queues[w][1:]; len(queues[w]) == 0 {
			names = slices.DeleteFunc(names, func(n string) bool { return n == w })
		}
	}
	return arrival
}

// audience follows the public stream of one job and checks that it makes sense.
type audience struct {
	state State
	n     uint64
	seen  map[State]bool
}

func (a *audience) listen(t require.TestingT, r Record, c Change) {
	for _, tr := range c.Transitions {
		a.n++
		require.Equal(t, a.n, tr.N)
		require.Equal(t, a.state, tr.From)
		require.False(t, a.state.Terminal(), "nothing follows the end")
		require.False(t, a.seen[tr.To], "%s is told twice", tr.To)
		if a.seen == nil {
			a.seen = map[State]bool{}
		}
		a.seen[tr.To] = true
		a.state = tr.To
	}
	require.Equal(t, a.n, r.PublicN)
	if a.n > 0 {
		require.Equal(t, r.State, a.state, "subscribers know the state of the record")
	}
}

// foldAll folds events and checks at every step what must always hold.
func foldAll(t *rapid.T, r Record, events []Event) Record {
	var public audience
	for _, e := range events {
		before := encoded(t, r)
		next, c, err := Fold(r, e)
		require.NoError(t, err)
		require.Equal(t, before, encoded(t, r), "Fold wrote to its input")
		if r.State.Terminal() {
			require.Equal(t, ReasonTerminal, c.Ignored)
		}
		if !c.Applied() {
			require.Equal(t, r, next)
		}
		require.GreaterOrEqual(t, next.Epoch, r.Epoch)
		if !next.State.Terminal() {
			require.False(t, next.UpdatedAt.Before(r.UpdatedAt))
			require.Nil(t, next.Failure)
		}
		public.listen(t, next, c)
		r = next
	}
	return r
}

func encoded(t require.TestingT, r Record) string {
	data, err := MarshalRecord(r)
	require.NoError(t, err)
	return string(data)
}

// settled drops what depends on the path: how many states subscribers were told
// of, and, while the job goes on, when the record changed last.
func settled(r Record) Record {
	r.PublicN = 0
	if !r.State.Terminal() {
		r.UpdatedAt = time.Time{}
	}
	return r
}

func TestFoldDoesNotDependOnArrival(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := genHistory(t, NewLeaf(leafSpec()))
		meant := foldAll(t, h.record, h.events)
		got := foldAll(t, h.record, genArrival(t, h))
		require.Equal(t, h.finished, meant.State.Terminal())
		require.Equal(t, settled(meant), settled(got))
	})
}

// family is a parent whose children come and go while events arrive.
type family struct {
	parent   Record
	children map[uint32]Record
	pending  map[uint32][]Event
	public   map[uint32]*audience // 0 is the parent
}

// apply takes a changed child into the parent and checks the parent.
func (f *family) apply(t *rapid.T, child Record) {
	before := encoded(t, f.parent)
	next, c := ApplyChild(f.parent, child, child.UpdatedAt)
	require.Equal(t, before, encoded(t, f.parent), "ApplyChild wrote to its input")
	f.children[child.ID.Index()] = child
	f.settle(t, next, c)
}

// settle stores the parent and compares it with its children.
func (f *family) settle(t *rapid.T, next Record, c Change) {
	if f.parent.State.Terminal() {
		require.Equal(t, f.parent, next)
	}
	f.parent = next
	f.public[0].listen(t, next, c)
	var want Counts
	for i, child := range f.children {
		require.Equal(t, child.State, next.Children.Get(i), "child %d", i)
		*want.of(child.State)++
		if child.State == StateCompleted && child.ResultJSON == `{"status":"already_up_to_date"}` {
			want.AlreadyUpToDate++
		}
	}
	require.Equal(t, want, next.Counts)
	require.Equal(t, uint32(len(f.children)), next.Total)
	done := next.Admitted && want.Done() == next.Total
	require.Equal(t, done, next.State.Terminal())
	state, text, failure := Aggregate(want, next.Total, next.Admitted, next.Cancel.mode(), next.Type.Wording())
	require.Equal(t, state, next.State)
	require.Equal(t, failure, next.Failure)
	require.Equal(t, text, next.Description)
}

func TestParentAlwaysEqualsItsChildren(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec := leafSpec()
		spec.NodeID = ""
		f := &family{
			parent: NewParent(spec, 0, false), children: map[uint32]Record{},
			pending: map[uint32][]Event{}, public: map[uint32]*audience{0: {}},
		}
		t.Repeat(map[string]func(*rapid.T){
			"attach": func(t *rapid.T) {
				if f.parent.State.Terminal() || len(f.children) >= 6 {
					t.Skip("takes no more children")
				}
				i := uint32(len(f.children) + 1)
				child := NewChild(f.parent.ID, i, leafSpec())
				h := genHistory(t, child)
				f.pending[i], f.public[i] = genArrival(t, h), &audience{}
				f.apply(t, child)
			},
			"child event": func(t *rapid.T) {
				var waiting []uint32
				for i := uint32(1); int(i) <= len(f.children); i++ {
					if len(f.pending[i]) > 0 {
						waiting = append(waiting, i)
					}
				}
				if len(waiting) == 0 {
					t.Skip("no events")
				}
				i := rapid.SampledFrom(waiting).Draw(t, "child")
				child, c, err := Fold(f.children[i], f.pending[i][0])
				require.NoError(t, err)
				f.pending[i] = f.pending[i][1:]
				f.public[i].listen(t, child, c)
				f.apply(t, child)
			},
			"admit": func(t *rapid.T) {
				if len(f.children) == 0 && !rapid.Bool().Draw(t, "empty batch") {
					t.Skip("no children yet")
				}
				next, c, err := Fold(f.parent, Event{
					Kind: EventAdmitted, ID: f.parent.ID, Total: uint32(len(f.children)), At: genTime(t, "admitted"),
				})
				require.NoError(t, err)
				f.settle(t, next, c)
			},
			"cancel": func(t *rapid.T) {
				next, c, err := Fold(f.parent, Event{
					Kind: EventCancelRequested, ID: f.parent.ID, Cancel: genCancel(t), At: genTime(t, "cancel"),
				})
				require.NoError(t, err)
				f.settle(t, next, c)
			},
			"": func(t *rapid.T) {
				require.Equal(t, f.parent.State == StateCancellationRequested,
					f.parent.Cancel != nil && !f.parent.State.Terminal())
			},
		})
	})
}

func TestAdmissionAndChildrenCommute(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec := leafSpec()
		spec.NodeID = ""
		total := rapid.IntRange(1, 6).Draw(t, "total")
		parent := NewParent(spec, 0, false)
		var steps []func(Record) Record
		steps = append(steps, func(p Record) Record { p, _ = Admit(p, uint32(total), at(1)); return p })
		for i := 1; i <= total; i++ {
			child := NewChild(parent.ID, uint32(i), leafSpec())
			child.State = State(rapid.IntRange(1, int(stateCount)-1).Draw(t, "state"))
			steps = append(steps, func(p Record) Record { p, _ = ApplyChild(p, child, at(1)); return p })
		}
		run := func(order []func(Record) Record) Record {
			p := parent
			for _, step := range order {
				p = step(p)
			}
			return settled(p)
		}
		require.Equal(t, run(steps), run(rapid.Permutation(steps).Draw(t, "order")))
	})
}
