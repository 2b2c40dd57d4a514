// SPDX-License-Identifier: Apache-2.0

package fold

import (
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// turn is what becomes of one node's lock when jobs of it end.
type turn struct {
	ref    node.Ref
	expect bus.Revision
	// hold is the new lock; nil frees the node.
	hold *rackbusv1.NodeLock
	// last is the job that held the node, when it becomes free.
	last job.ID
	// command is that of the job which is next in line, behind left.
	command *rackbusv1.JobCommand
	left    job.ID
	// parked are the jobs whose parked commands have no use any more.
	parked []job.ID
}

// successor is the next in line behind the holder of a node.
type successor struct {
	id      job.ID
	command *rackbusv1.JobCommand
	// skipped are those before it that have ended or lost their command.
	skipped []job.ID
}

// names reports whether the lock is held by the job or the job waits for it.
func names(lock bus.Lock, id job.ID) bool {
	text := id.String()
	return lock.GetJobId() == text || slices.Contains(lock.GetQueue(), text)
}

// held reports whether one of the jobs that end holds the node.
func held(lock bus.Lock, ended []job.ID) bool {
	return slices.ContainsFunc(ended, func(id job.ID) bool { return lock.GetJobId() == id.String() })
}

// waiting returns the line behind the holder without those that end, in order.
func waiting(lock bus.Lock, ended []job.ID) []string {
	return slices.DeleteFunc(slices.Clone(lock.GetQueue()), func(text string) bool {
		return slices.ContainsFunc(ended, func(id job.ID) bool { return text == id.String() })
	})
}

// release says how a node's lock changes when the jobs in ended leave it. It
// returns false when none of them has anything to do with the lock. next is
// only looked at when the holder ends; the zero successor means that nobody is
// ready to follow.
func release(ref node.Ref, lock bus.Lock, ended []job.ID, next successor, now time.Time) (turn, bool) {
	t := turn{ref: ref, expect: lock.Revision}
	for _, id := range ended {
		if slices.Contains(lock.GetQueue(), id.String()) {
			t.parked = append(t.parked, id)
		}
	}
	line := waiting(lock, ended)
	if !held(lock, ended) {
		if len(t.parked) == 0 {
			return turn{}, false
		}
		t.hold = proto.CloneOf(lock.NodeLock)
		t.hold.Queue = line
		return t, true
	}
	t.parked = append(t.parked, next.skipped...)
	if next.command == nil {
		t.last = lastHolder(lock)
		return t, true
	}
	t.parked = append(t.parked, next.id)
	t.command, t.left = next.command, lastHolder(lock)
	line = line[slices.Index(line, next.id.String())+1:]
	t.hold = &rackbusv1.NodeLock{
		V: 1, JobId: next.id.String(), Type: next.command.GetType(), Since: timestamppb.New(now), Queue: line,
	}
	return t, true
}

// notes tell the jobs in line, in whose partitions this fold writes no records, whom
// they wait for now.
func (t *turn) notes() []job.Event {
	next, err := job.ParseID(t.hold.GetJobId())
	if t.command == nil || t.left.IsZero() || err != nil {
		return nil
	}
	note := job.Event{
		Kind: job.EventNote, ID: next, RackID: t.ref.RackID, NodeID: t.ref.NodeID, Type: job.Type(t.command.GetType()),
		Family: t.command.GetFamily(), At: t.hold.GetSince().AsTime(), Left: t.left,
		Description: fmt.Sprintf("the node is held for this job: job %s has left it", t.left),
	}
	notes := []job.Event{note}
	for _, text := range t.hold.GetQueue() {
		if note.ID, err = job.ParseID(text); err != nil {
			continue
		}
		note.Type, note.Family, note.WaitsFor = "", "", next
		note.Description = fmt.Sprintf("job %s has left the node, which is held for job %s", t.left, next)
		notes = append(notes, note)
	}
	return notes
}

func lastHolder(lock bus.Lock) job.ID {
	id, err := job.ParseID(lock.GetJobId())
	if err != nil {
		return job.ID{}
	}
	return id
}
