// SPDX-License-Identifier: Apache-2.0

package fold

import (
	"time"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/services/jobs/internal/diagnose"
)

// fixedMessages are the messages of a commit besides what events cause: the
// cursor and the outbox.
const fixedMessages = 2

// draft is a commit while events are taken into it. It is pure: records come
// from base, and nothing leaves it but what plan makes of it.
type draft struct {
	// base gives committed records.
	base func(job.ID) (known, bool)
	// locks are the node locks seen so far, to foresee the size of the commit.
	locks map[node.Ref]bus.Lock

	changed map[job.ID]*change
	// order is in which the records were changed first.
	order []job.ID
	steps []step
	// ended are the jobs that hold or wait for a node and end with this commit.
	ended []ending
	// kept are the commands of jobs that end, kept for when their wave begins.
	kept []parkedCommand
	// guards are the coordinators that end and have the power guard of their rack.
	guards []guarded
	// erase are the commands whose sealed content is not needed any more.
	erase []bus.Revision

	// diagnose says that nodes whose jobs have failed are examined, from is the earliest
	// moment for the next of them.
	diagnose bool
	from     time.Time

	// input are all events taken in, to build the commit anew.
	input    []bus.StoredEvent
	messages int
	bytes    int
}

// change is what a commit does to one record.
type change struct {
	before known
	after  job.Record
}

// step is one transition, with the record right after it.
type step struct {
	record     job.Record
	transition job.Transition
}

// ending is a job that leaves its node.
type ending struct {
	id  job.ID
	ref node.Ref
}

// guarded is a job that leaves the power guard of a rack.
type guarded struct {
	id   job.ID
	rack string
}

func newDraft(base func(job.ID) (known, bool), locks map[node.Ref]bus.Lock) *draft {
	return &draft{base: base, locks: locks, changed: make(map[job.ID]*change), messages: fixedMessages}
}

// take folds one event into the draft. The reason is empty when it changed a
// record. An error says that the event can never be folded.
func (d *draft) take(e bus.StoredEvent) (job.Reason, error) {
	d.input = append(d.input, e)
	d.bytes += eventBytes(&e.Event)
	record, ok := d.record(e.ID)
	if !ok {
		return job.ReasonUnknownJob, nil
	}
	if e.Kind == job.EventAdmitted && record.PublicN == 0 {
		// A parent created with all its children changes nothing when it is
		// admitted, but subscribers shall hear of it now.
		record = d.introduce(record)
	}
	after, c, err := job.Fold(record, e.Event)
	if err != nil {
		return "", err
	}
	if !c.Applied() {
		return c.Ignored, nil
	}
	d.put(after, c)
	if e.Kind == job.EventFinished && e.CommandSeq != 0 {
		d.erase = append(d.erase, bus.Revision(e.CommandSeq))
	}
	d.passOn(&after, &e.Event)
	return "", nil
}

// introduce tells the public stream of a job that it was not told of yet.
func (d *draft) introduce(r job.Record) job.Record {
	after, c, err := job.Fold(r, job.Event{Kind: job.EventQueued, ID: r.ID})
	if err != nil || !c.Applied() {
		return r
	}
	d.put(after, c)
	return after
}

// passOn lets the parent of a child that has changed know.
func (d *draft) passOn(child *job.Record, e *job.Event) {
	id, ok := child.ParentID()
	if !ok {
		return
	}
	parent, ok := d.record(id)
	if !ok {
		return
	}
	if after, c := job.ApplyChild(parent, *child, e.At); c.Applied() {
		d.put(after, c)
	}
}

// record returns a record as this draft leaves it.
func (d *draft) record(id job.ID) (job.Record, bool) {
	if ch, ok := d.changed[id]; ok {
		return ch.after, true
	}
	k, ok := d.base(id)
	return k.record, ok
}

func (d *draft) put(after job.Record, c job.Change) {
	ch, ok := d.changed[after.ID]
	if !ok {
		before, _ := d.base(after.ID)
		ch = &change{before: before, after: before.record}
		d.changed[after.ID] = ch
		d.order = append(d.order, after.ID)
		d.messages++
		d.bytes += len(after.Children)
	}
	d.messages -= ch.timers()
	ended := !ch.after.State.Terminal() && after.State.Terminal()
	ch.after = after
	d.messages += ch.timers()
	for _, t := range c.Transitions {
		d.steps = append(d.steps, step{after, t})
	}
	if ended {
		d.leave(&after)
		if d.examine(&after) {
			d.messages++ // the timer
		}
	}
}

// examine reports whether the node of a job that has ended is to be examined.
func (d *draft) examine(r *job.Record) bool { return d.diagnose && diagnose.Wanted(r) }

// leave notes what a job that has ended sets free: its node, and what is reserved
// for a coordinator, whatever way it ended.
func (d *draft) leave(r *job.Record) {
	for _, ref := range nodesOf(r) {
		d.ended = append(d.ended, ending{r.ID, ref})
		d.messages++ // the lock
		if lock, ok := d.locks[ref]; !ok || len(lock.GetQueue()) > 0 {
			d.messages++ // the command of the next in line
		}
	}
	if parent, ok := d.record(r.ID.Parent()); ok && parent.Rollout != nil && r.NodeID != "" {
		d.kept = append(d.kept, parkedCommand{node.Ref{RackID: r.RackID, NodeID: r.NodeID}, r.ID})
	}
	if r.RackPower {
		d.guards = append(d.guards, guarded{r.ID, r.RackID})
		d.messages++
	}
}

// nodesOf returns the nodes that a job holds or waits for.
func nodesOf(r *job.Record) []node.Ref {
	if r.NodeID == "" {
		return nil
	}
	refs := make([]node.Ref, 0, 1+len(r.Reserved))
	refs = append(refs, node.Ref{RackID: r.RackID, NodeID: r.NodeID})
	for _, id := range r.Reserved {
		refs = append(refs, node.Ref{RackID: r.RackID, NodeID: id})
	}
	return refs
}

// timers is how many timers the change arms.
func (ch *change) timers() int {
	if ch.after.State.Terminal() {
		switch {
		case !ch.after.ID.IsTopLevel():
			return 0
		case len(ch.after.Cleanup) > 0:
			return 2
		}
		return 1
	}
	n := 0
	if ch.newDeadline() {
		n++
	}
	if ch.newCancel() {
		n++
	}
	if _, ok := ch.newRollout(); ok {
		n++
	}
	return n
}

func (ch *change) newDeadline() bool {
	return !ch.after.Deadline.IsZero() && !ch.after.Deadline.Equal(ch.before.record.Deadline)
}

func (ch *change) newCancel() bool {
	return ch.after.Cancel != nil && ch.after.Cancel != ch.before.record.Cancel
}

// newRollout returns when the rollout of a parent needs somebody, if that has changed.
// A rollout that is in another state needs something else: whoever acts for the former
// one may have gone already.
func (ch *change) newRollout() (time.Time, bool) {
	at, due := ch.after.RolloutDue()
	if !due {
		return time.Time{}, false
	}
	before, was := ch.before.record.RolloutDue()
	return at, !was || !at.Equal(before) || ch.after.Rollout.State != ch.before.record.Rollout.State
}

// transitions returns the transitions of the commit in their order.
func (d *draft) transitions() []*rackbusv1.JobTransition {
	out := make([]*rackbusv1.JobTransition, len(d.steps))
	for i := range d.steps {
		out[i] = job.TransitionToProto(d.steps[i].record, d.steps[i].transition)
	}
	return out
}

// foresee is how many messages an event may add at most, so that one that
// releases many nodes at once starts a commit of its own.
func (d *draft) foresee(e *job.Event) int {
	const most = 7 // record, parent, lock, command, three timers
	if e.Kind != job.EventFinished {
		return most
	}
	r, ok := d.record(e.ID)
	if !ok || r.Kind != job.KindCoordinator {
		return most
	}
	return most + 1 + 2*len(r.Reserved) // the guard; per node: lock, command
}

// sequence is the last event taken in.
func (d *draft) sequence() uint64 {
	if len(d.input) == 0 {
		return 0
	}
	return d.input[len(d.input)-1].Sequence
}

// eventBytes estimates what an event adds to a commit. The fixed part covers
// ids, names and headers.
func eventBytes(e *job.Event) int {
	const fixed = 512
	n := fixed + len(e.ResultJSON) + len(e.Description)
	for i := range e.Stages {
		n += len(e.Stages[i].Description) + len(e.Stages[i].Message) + 64
	}
	if e.Failure != nil {
		n += 2 * len(e.Failure.Message) // in the record and in the outbox
	}
	return n
}
