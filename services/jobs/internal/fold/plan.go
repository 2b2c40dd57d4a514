// SPDX-License-Identifier: Apache-2.0

package fold

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// plan is a commit of the fold in the order in which it is written: records,
// locks, commands, timers, outbox, and the cursor last, so that whoever sees
// the cursor's revision sees all of it.
type plan struct {
	records []recordWrite
	turns   []turn
	racks   []rackTurn
	timers  []timerWrite
	// from is the earliest moment for the examination after those of this plan.
	from        time.Time
	kept        []parkedCommand
	transitions []*rackbusv1.JobTransition
	sequence    uint64
}

type recordWrite struct {
	record job.Record
	// expect is the revision a parent must still have.
	expect bus.Revision
}

type timerWrite struct {
	kind bus.TimerKind
	id   job.ID
	at   time.Time
}

// rackTurn releases the power guard of a rack.
type rackTurn struct {
	rack   string
	expect bus.Revision
}

// diagnosePace is the pause between the starts of examinations for failed jobs of a
// partition. When thousands of jobs fail together, the timers of all others, which wait
// in the same queue, find a turn in between.
const diagnosePace = 100 * time.Millisecond

// reapSpread is the part of the retention over which families leave that have ended at
// the same moment, for the same reason: leaving takes its time, one family after the
// other.
const reapSpread = 100

// leaving is when a family leaves whose top-level job has ended.
func leaving(r *job.Record, retention time.Duration) time.Time {
	// The first bytes of an id are random.
	part := float64(binary.BigEndian.Uint32(r.ID[:4])) / math.MaxUint32
	return r.FinishedAt.Add(retention + time.Duration(part*float64(retention/reapSpread)))
}

// makePlan puts a draft and the turns of the nodes it leaves together. A job
// that was asked to stop gets its cancel timer for now, and one that has ended that
// of its cleanup plan.
func makePlan(d *draft, turns []turn, racks []rackTurn, retention time.Duration, now time.Time) *plan {
	p := &plan{turns: turns, racks: racks, kept: d.kept, transitions: d.transitions(), sequence: d.sequence(), from: d.from}
	for _, id := range d.order {
		ch := d.changed[id]
		p.records = append(p.records, recordWrite{ch.after, ch.before.rev})
		if ch.after.State.Terminal() {
			if d.examine(&ch.after) {
				at := later(now, p.from)
				p.timers, p.from = append(p.timers, timerWrite{bus.TimerDiagnose, id, at}), at.Add(diagnosePace)
			}
			if id.IsTopLevel() {
				p.timers = append(p.timers, timerWrite{bus.TimerReap, id, leaving(&ch.after, retention)})
				if len(ch.after.Cleanup) > 0 {
					p.timers = append(p.timers, timerWrite{bus.TimerCleanup, id, now})
				}
			}
			continue
		}
		if ch.newDeadline() {
			p.timers = append(p.timers, timerWrite{bus.TimerDeadline, id, ch.after.Deadline})
		}
		if ch.newCancel() {
			p.timers = append(p.timers, timerWrite{bus.TimerCancel, id, now})
		}
		if at, ok := ch.newRollout(); ok {
			if at.IsZero() {
				at = now
			}
			p.timers = append(p.timers, timerWrite{bus.TimerRollout, id, at})
		}
	}
	return p
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// write puts the plan into a transaction.
func (p *plan) write(tx *bus.Tx, partition int, cursor bus.Revision, retention, parkedLife time.Duration) {
	for i := range p.records {
		p.records[i].write(tx, retention)
	}
	for i := range p.turns {
		t := &p.turns[i]
		if t.hold == nil {
			tx.FreeNode(t.ref, t.last, t.expect)
		} else {
			tx.HoldNode(t.ref, t.hold, t.expect)
		}
	}
	for _, r := range p.racks {
		tx.FreeRack(r.rack, r.expect)
	}
	for i := range p.turns {
		if cmd := p.turns[i].command; cmd != nil {
			tx.PutCommand(cmd, parkedLife+time.Duration(cmd.GetRunLimitSeconds())*time.Second)
		}
	}
	for _, t := range p.timers {
		tx.ArmTimer(t.kind, t.id, t.at)
	}
	if len(p.transitions) > 0 {
		tx.PutOutbox(partition, p.sequence, p.transitions)
	}
	tx.SetCursor(partition, p.sequence, cursor)
}

func (w *recordWrite) write(tx *bus.Tx, retention time.Duration) {
	parent := w.record.Kind == job.KindParent
	switch {
	case w.record.State.Terminal() && parent:
		tx.SealRecord(&w.record, retention, &w.expect)
	case w.record.State.Terminal():
		tx.SealRecord(&w.record, retention, nil)
	case parent:
		tx.ReplaceRecord(&w.record, w.expect)
	default:
		tx.PutRecord(&w.record)
	}
}

// outboxEntry is the revision of the outbox message: it stands before the
// cursor.
func (p *plan) outboxEntry(c bus.Commit) bus.Revision { return c.Last - 1 }

// parkedCommand is a parked command that can be removed after the commit.
type parkedCommand struct {
	ref node.Ref
	id  job.ID
}

func (p *plan) parked() []parkedCommand {
	out := p.kept
	for i := range p.turns {
		for _, id := range p.turns[i].parked {
			out = append(out, parkedCommand{p.turns[i].ref, id})
		}
	}
	return out
}
