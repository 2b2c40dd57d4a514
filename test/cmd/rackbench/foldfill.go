// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// Shape of the events: batches of one admission chunk each, whose children
// start, report progress and complete, all of them in step, so that neighbouring
// events are never of the same job.
const (
	batchNodes     = 240
	progressEvents = 8
	eventsPerChild = progressEvents + 2
	// publishers fills the batches in which the bus writes events.
	publishers = 1000
)

// filler stores jobs and the events of their agents.
type filler struct {
	conn   *bus.Conn
	events int
	// last is the sequence of the last event.
	last uint64
	// transitions is how many changes of state the events make: each child is
	// queued, starts and ends, and so does each parent without being queued.
	transitions uint64
}

// batch is an admitted batch. The command of child i has the revision
// command + 4*(i-1), because admission writes four messages for each child.
type batch struct {
	id      job.ID
	rack    string
	command bus.Revision
}

func (f *filler) run(ctx context.Context, events int) error {
	batches := make([]batch, max(1, events/(batchNodes*eventsPerChild)))
	for i := range batches {
		var err error
		if batches[i], err = f.admit(ctx, fmt.Sprintf("rack-%d", i)); err != nil {
			return err
		}
	}
	for step := range eventsPerChild {
		if err := f.publish(ctx, batches, step); err != nil {
			return err
		}
	}
	f.events = len(batches) * batchNodes * eventsPerChild
	f.last = uint64(f.events) // the stream holds nothing else
	f.transitions = uint64(len(batches) * (3*batchNodes + 2))
	return nil
}

// admit writes a batch as the API does.
func (f *filler) admit(ctx context.Context, rack string) (batch, error) {
	id, err := newFamily()
	if err != nil {
		return batch{}, err
	}
	records, rev, err := f.conn.Capacity(ctx)
	if err != nil {
		return batch{}, err
	}
	now := time.Now()
	deadline := now.Add(time.Hour)
	spec := job.Spec{
		ID: id, Type: job.TypeFirmwareUpdate, RackID: rack, CreatedAt: now, Deadline: deadline, Visible: true,
	}
	tx := f.conn.Begin()
	tx.SetCapacity(records+batchNodes+1, rev)
	parent := job.NewParent(spec, batchNodes, true)
	tx.CreateRecord(&parent)
	for i := 1; i <= batchNodes; i++ {
		s := spec
		s.NodeID, s.Family = nodeName(i), string(node.FamilyCompute)
		rec := job.NewChild(id, uint32(i), s)
		tx.HoldNode(node.Ref{RackID: rack, NodeID: s.NodeID},
			&rackbusv1.NodeLock{V: 1, JobId: rec.ID.String(), Type: string(rec.Type), Since: timestamppb.New(now)}, bus.Absent)
		tx.CreateRecord(&rec)
		tx.PutCommand(&rackbusv1.JobCommand{
			V: 1, JobId: rec.ID.String(), Type: string(rec.Type), Family: rec.Family, RunLimitSeconds: 3600,
			Target: &rackbusv1.NodeTarget{RackId: rack, NodeId: s.NodeID},
		}, time.Hour)
		tx.ArmTimer(bus.TimerDeadline, rec.ID, deadline)
	}
	done, err := tx.Commit(ctx)
	return batch{id: id, rack: rack, command: done.At(4)}, err
}

// publish stores one event of every child.
func (f *filler) publish(ctx context.Context, batches []batch, step int) error {
	queue := make(chan *job.Event)
	errs := make([]error, publishers)
	var wg sync.WaitGroup
	for w := range publishers {
		wg.Go(func() {
			for e := range queue {
				if errs[w] == nil {
					errs[w] = f.conn.PublishEvent(ctx, e)
				}
			}
		})
	}
	for i := range batches {
		for child := 1; child <= batchNodes; child++ {
			queue <- event(&batches[i], child, step)
		}
	}
	close(queue)
	wg.Wait()
	return firstOf(errs)
}

// event is what an agent says of a child at a step of its life.
func event(b *batch, child, step int) *job.Event {
	now := time.Now().UTC()
	e := &job.Event{
		Kind: job.EventProgress, ID: b.id.Child(uint32(child)), RackID: b.rack, NodeID: nodeName(child),
		Type: job.TypeFirmwareUpdate, Family: string(node.FamilyCompute), Epoch: 1, N: uint64(step + 1), Attempt: 1,
		Agent: "agent-1", Description: "Uploading", Percent: uint32(10 * step), At: now, StartedAt: now,
		Deadline: now.Truncate(time.Hour).Add(9 * time.Hour),
		Stages:   []job.Stage{{Name: "upload", Status: job.StageRunning, StartedAt: now}},
	}
	switch step {
	case 0:
		e.Kind = job.EventStarted
	case eventsPerChild - 1:
		e.Kind, e.State = job.EventFinished, job.StateCompleted
		e.CommandSeq = uint64(b.command) + uint64(4*(child-1))
	}
	return e
}

func nodeName(i int) string { return fmt.Sprintf("node-%d", i) }
