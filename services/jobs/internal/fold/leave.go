// SPDX-License-Identifier: Apache-2.0

package fold

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/services/jobs/internal/outcome"
)

const textCommandLost = "the stored command of the waiting job is missing"

// turns finds out what becomes of every node that jobs of the draft leave.
func (t *Term) turns(ctx context.Context, d *draft, now time.Time) ([]turn, error) {
	var order []node.Ref
	ended := make(map[node.Ref][]job.ID)
	for _, e := range d.ended {
		if _, seen := ended[e.ref]; !seen {
			order = append(order, e.ref)
		}
		ended[e.ref] = append(ended[e.ref], e.id)
	}
	if err := t.loadLocks(ctx, append([]node.Ref(nil), order...)); err != nil {
		return nil, err
	}
	turns := make([]turn, 0, len(order))
	for _, ref := range order {
		lock, err := t.lockOf(ctx, ref, ended[ref])
		if err != nil {
			return nil, err
		}
		var next successor
		if held(lock, ended[ref]) {
			if next, err = t.successor(ctx, ref, waiting(lock, ended[ref])); err != nil {
				return nil, err
			}
		}
		if tn, ok := release(ref, lock, ended[ref], next, now); ok {
			turns = append(turns, tn)
		}
	}
	return turns, nil
}

// rackTurns finds the power guards that coordinators of the draft leave. They are
// read each time: it happens rarely, and a guard that has moved refuses the commit.
func (t *Term) rackTurns(ctx context.Context, d *draft) ([]rackTurn, error) {
	var racks []rackTurn
	for _, g := range d.guards {
		guard, err := t.o.Conn.RackGuard(ctx, g.rack)
		if err != nil {
			return nil, fmt.Errorf("read power guard of rack %s: %w", g.rack, err)
		}
		if guard.RackPower == nil || guard.GetHolder() != g.id.String() {
			continue // somebody has cleared it by hand
		}
		racks = append(racks, rackTurn{g.rack, guard.Revision})
	}
	return racks, nil
}

// lockOf returns a lock that names every job that ends on the node. One that
// does not may have been read from a replica that lags, and is read again at
// the leader: leaving it as it is would keep the node busy for ever.
func (t *Term) lockOf(ctx context.Context, ref node.Ref, ended []job.ID) (bus.Lock, error) {
	lock := t.locks[ref]
	for _, id := range ended {
		if names(lock, id) {
			continue
		}
		fresh, err := t.o.Conn.Lock(ctx, ref)
		if err != nil {
			return bus.Lock{}, fmt.Errorf("read lock of %s: %w", ref, err)
		}
		t.locks[ref] = fresh
		return fresh, nil
	}
	return lock, nil
}

// successor finds the first job in line that can follow the holder of a node. A
// job whose parked command is lost is reported as failed at once: once it is out
// of the line, nobody else would.
func (t *Term) successor(ctx context.Context, ref node.Ref, line []string) (successor, error) {
	var s successor
	for _, text := range line {
		id, err := job.ParseID(text)
		if err != nil {
			t.o.Log.Error("unreadable job in the line of a node", "rack", ref.RackID, "node", ref.NodeID, "err", err)
			continue
		}
		r, cmd, err := t.candidate(ctx, ref, id)
		if err != nil {
			return successor{}, err
		}
		if cmd != nil {
			s.id, s.command = id, cmd
			return s, nil
		}
		s.skipped = append(s.skipped, id)
		if !r.Exists() || r.State.Terminal() {
			continue
		}
		if err := t.loseCommand(ctx, &r); err != nil {
			return successor{}, err
		}
	}
	return s, nil
}

// candidate returns a waiting job's record and parked command. A nil command
// says that it cannot follow.
func (t *Term) candidate(ctx context.Context, ref node.Ref, id job.ID) (job.Record, *rackbusv1.JobCommand, error) {
	r, _, err := t.o.Conn.Record(ctx, id)
	if errors.Is(err, bus.ErrNotFound) {
		return job.Record{}, nil, nil
	}
	if err != nil {
		return job.Record{}, nil, fmt.Errorf("load waiting job %s: %w", id, err)
	}
	if r.State.Terminal() {
		return r, nil, nil
	}
	cmd, err := t.o.Conn.ParkedCommand(ctx, ref, id)
	if errors.Is(err, bus.ErrNotFound) {
		return r, nil, nil
	}
	if err != nil {
		return job.Record{}, nil, fmt.Errorf("load parked command of job %s: %w", id, err)
	}
	return r, cmd, nil
}

func (t *Term) loseCommand(ctx context.Context, r *job.Record) error {
	err := outcome.Unclaimed(ctx, t.o.Conn, r, outcome.Verdict{
		State: job.StateFailed, Failure: job.NewFailure(job.FailureCommandLost, textCommandLost),
	}, time.Now())
	if errors.Is(err, bus.ErrConflict) {
		// It was ended for another reason at the same time.
		return nil
	}
	return err
}
