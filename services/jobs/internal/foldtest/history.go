// SPDX-License-Identifier: Apache-2.0

// Package foldtest gives tests of the fold random histories of jobs, and what
// the records must be after any history.
package foldtest

import (
	"fmt"
	"time"

	"pgregory.net/rapid"

	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
)

// epoch0 is when all histories begin: not so long ago that retention is over.
var epoch0 = time.Now().UTC().Truncate(time.Second).Add(-time.Minute)

// Family is a top-level job, its children, and what is said about them.
type Family struct {
	// Records are as admission creates them, the top-level job first.
	Records []job.Record
	// Events are in the order in which they are published. They contain
	// repetitions and words of owners that were replaced.
	Events []job.Event
}

// Families generates a family: a job on one node, a coordinator of up to 5
// further nodes, or a batch of up to 6 nodes. Every job's history ends with an
// outcome.
func Families() *rapid.Generator[Family] {
	return rapid.Custom(func(t *rapid.T) Family {
		id := drawID(t)
		rack := "rack-" + id.String()[:8]
		children := rapid.IntRange(0, 6).Draw(t, "children")
		if children == 0 {
			top := job.NewLeaf(spec(id, rack, 1))
			if rapid.Bool().Draw(t, "coordinator") {
				top = coordinator(t, spec(id, rack, 1))
			}
			return Family{Records: []job.Record{top}, Events: history(t, &top)}
		}
		s := spec(id, rack, 0)
		s.NodeID, s.Family, s.Deadline = "", "", time.Time{}
		parent := job.NewParent(s, uint32(children), true)
		f := Family{Records: []job.Record{parent}}
		lines := [][]job.Event{{{
			Kind: job.EventAdmitted, ID: id, RackID: rack, Type: s.Type, Total: uint32(children), At: epoch0,
		}}}
		if rapid.IntRange(0, 4).Draw(t, "cancel batch") == 0 {
			lines[0] = append(lines[0], cancel(t, &parent))
		}
		for i := 1; i <= children; i++ {
			child := job.NewChild(id, uint32(i), spec(job.ID{}, rack, i))
			f.Records = append(f.Records, child)
			lines = append(lines, history(t, &child))
		}
		f.Events = merge(t, lines)
		return f
	})
}

func coordinator(t *rapid.T, s job.Spec) job.Record {
	var reserved []string
	for i := range rapid.IntRange(0, 5).Draw(t, "reserved nodes") {
		reserved = append(reserved, fmt.Sprintf("node-%d", i+2))
	}
	return job.NewCoordinator(s, reserved, rapid.Bool().Draw(t, "power guard"))
}

// Nodes returns every node that a record holds until it ends.
func Nodes(r *job.Record) []node.Ref {
	if r.NodeID == "" {
		return nil
	}
	refs := []node.Ref{{RackID: r.RackID, NodeID: r.NodeID}}
	for _, id := range r.Reserved {
		refs = append(refs, node.Ref{RackID: r.RackID, NodeID: id})
	}
	return refs
}

func drawID(t *rapid.T) job.ID {
	var id job.ID
	for i := range 12 {
		id[i] = rapid.Byte().Draw(t, "id")
	}
	id[6] = id[6]&0x0f | 0x40
	id[8] = id[8]&0x3f | 0x80
	return id
}

func spec(id job.ID, rack string, i int) job.Spec {
	return job.Spec{
		ID: id, Type: job.TypeFirmwareUpdate, RackID: rack, NodeID: fmt.Sprintf("node-%d", i), Family: "compute",
		CreatedAt: epoch0, Deadline: time.Now().Add(time.Hour).UTC(), Visible: true,
	}
}

// history is what is said about a leaf: by one owner after the other, with
// repetitions, and with late words of former owners.
func history(t *rapid.T, r *job.Record) []job.Event {
	var out []job.Event
	at := epoch0
	say := func(kind job.EventKind, epoch, n uint64) job.Event {
		at = at.Add(time.Second)
		return job.Event{
			Kind: kind, ID: r.ID, RackID: r.RackID, NodeID: r.NodeID, Type: r.Type, Family: r.Family,
			Epoch: epoch, N: n, Attempt: uint32(epoch), Agent: fmt.Sprintf("agent-%d", epoch),
			Description: fmt.Sprintf("stage %d.%d", epoch, n), Percent: uint32(n), At: at,
			Deadline: time.Now().Add(2 * time.Hour).UTC(),
		}
	}
	if rapid.Bool().Draw(t, "queued") {
		out = append(out, job.Event{Kind: job.EventQueued, ID: r.ID, RackID: r.RackID, NodeID: r.NodeID, At: at})
	}
	owners := uint64(rapid.IntRange(1, 3).Draw(t, "owners"))
	for epoch := uint64(1); epoch <= owners; epoch++ {
		words := uint64(rapid.IntRange(1, 4).Draw(t, "words"))
		for n := uint64(1); n <= words; n++ {
			e := say(job.EventProgress, epoch, n)
			switch n {
			case 1:
				e.Kind = job.EventClaimed
			case 2:
				e.Kind, e.StartedAt = job.EventStarted, at
			default:
				e.StartedAt = epoch0
			}
			out = append(out, e)
		}
		if rapid.IntRange(0, 6).Draw(t, "cancel") == 0 {
			out = append(out, cancel(t, r))
		}
	}
	if rapid.IntRange(0, 6).Draw(t, "note") == 0 {
		out = append(out, say(job.EventNote, 0, 0))
	}
	end := say(job.EventFinished, owners, 9)
	end.State = rapid.SampledFrom([]job.State{
		job.StateCompleted, job.StateCompleted, job.StateFailed, job.StateCancelled, job.StateTimedOut,
	}).Draw(t, "outcome")
	out = append(out, end)
	return repeat(t, out)
}

func cancel(t *rapid.T, r *job.Record) job.Event {
	mode := rapid.SampledFrom([]job.CancelMode{job.CancelGraceful, job.CancelTerminate}).Draw(t, "mode")
	at := epoch0.Add(time.Duration(rapid.IntRange(1, 9).Draw(t, "when")) * time.Second)
	return job.Event{
		Kind: job.EventCancelRequested, ID: r.ID, RackID: r.RackID, NodeID: r.NodeID, At: at,
		Cancel: &job.Cancel{Mode: mode, Reason: job.CancelReasonOperator, RequestedBy: "test", RequestedAt: at},
	}
}

// repeat inserts earlier events again, as a late or a repeated delivery.
func repeat(t *rapid.T, events []job.Event) []job.Event {
	for range rapid.IntRange(0, 4).Draw(t, "repetitions") {
		from := rapid.IntRange(0, len(events)-1).Draw(t, "which")
		to := rapid.IntRange(from+1, len(events)).Draw(t, "where")
		events = append(events[:to:to], append([]job.Event{events[from]}, events[to:]...)...)
	}
	return events
}

// merge interleaves lines of events at random, each in its order.
func merge(t *rapid.T, lines [][]job.Event) []job.Event {
	var out []job.Event
	for {
		var open []int
		for i := range lines {
			if len(lines[i]) > 0 {
				open = append(open, i)
			}
		}
		if len(open) == 0 {
			return out
		}
		i := rapid.SampledFrom(open).Draw(t, "line")
		out = append(out, lines[i][0])
		lines[i] = lines[i][1:]
	}
}

// Expect folds events into records one by one, without commits, locks or a bus.
func Expect(records []job.Record, events []job.Event) map[job.ID]job.Record {
	now := make(map[job.ID]job.Record, len(records))
	for _, r := range records {
		now[r.ID] = r
	}
	for _, e := range events {
		r := now[e.ID]
		if e.Kind == job.EventAdmitted && r.PublicN == 0 {
			if told, c, err := job.Fold(r, job.Event{Kind: job.EventQueued, ID: r.ID}); err == nil && c.Applied() {
				r, now[e.ID] = told, told
			}
		}
		after, c, err := job.Fold(r, e)
		if err != nil || !c.Applied() {
			continue
		}
		now[e.ID] = after
		parent, ok := after.ParentID()
		if !ok {
			continue
		}
		if told, pc := job.ApplyChild(now[parent], after, e.At); pc.Applied() {
			now[parent] = told
		}
	}
	return now
}
