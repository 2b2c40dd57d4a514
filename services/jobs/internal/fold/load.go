// SPDX-License-Identifier: Apache-2.0

package fold

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
)

// load reads what folding the events will need: their records, the parents, and
// the locks of nodes that get free.
func (t *Term) load(ctx context.Context, events []bus.StoredEvent) error {
	records, parents := make(map[job.ID]bool), make(map[job.ID]bool)
	for i := range events {
		id := events[i].ID
		if id.IsZero() {
			continue
		}
		if !t.has(id) {
			records[id] = true
		}
		if !id.IsTopLevel() && !t.has(id.Parent()) {
			parents[id.Parent()] = true
		}
	}
	for id := range parents {
		delete(records, id)
		if err := t.loadAtLeader(ctx, id); err != nil {
			return err
		}
	}
	if err := t.loadRecords(ctx, records); err != nil {
		return err
	}
	return t.loadLocks(ctx, t.leaving(events))
}

func (t *Term) has(id job.ID) bool {
	if _, ok := t.draft.changed[id]; ok {
		return true
	}
	_, ok := t.cache.get(id)
	return ok
}

// loadRecords reads records in groups. Parents, whose revision matters, and
// records that a replica does not have yet are read at the leader.
func (t *Term) loadRecords(ctx context.Context, wanted map[job.ID]bool) error {
	if len(wanted) == 0 {
		return nil
	}
	ids := slices.Collect(maps.Keys(wanted))
	found, err := t.o.Conn.Records(ctx, ids, t.cursor)
	if err != nil {
		return fmt.Errorf("load records: %w", err)
	}
	for _, id := range ids {
		r, ok := found[id]
		if ok && r.Kind != job.KindParent {
			t.cache.put(id, known{record: r})
			continue
		}
		if err := t.loadAtLeader(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// loadAtLeader reads one record as it is now. A job that does not exist is not
// cached, so that its events count as those of an unknown job.
func (t *Term) loadAtLeader(ctx context.Context, id job.ID) error {
	r, rev, err := t.o.Conn.Record(ctx, id)
	if errors.Is(err, bus.ErrNotFound) {
		t.cache.drop(id)
		return nil
	}
	if err != nil {
		return fmt.Errorf("load job %s: %w", id, err)
	}
	t.cache.put(id, known{record: r, rev: rev})
	return nil
}

// leaving returns the nodes that the events may set free.
func (t *Term) leaving(events []bus.StoredEvent) []node.Ref {
	var refs []node.Ref
	for i := range events {
		if events[i].Kind != job.EventFinished {
			continue
		}
		if r, ok := t.draft.record(events[i].ID); ok && !r.State.Terminal() {
			refs = append(refs, nodesOf(&r)...)
		}
	}
	return refs
}

// loadLocks reads the locks that are not known yet.
func (t *Term) loadLocks(ctx context.Context, refs []node.Ref) error {
	refs = slices.DeleteFunc(refs, func(r node.Ref) bool { _, ok := t.locks[r]; return ok })
	if len(refs) == 0 {
		return nil
	}
	locks, err := t.o.Conn.Locks(ctx, refs)
	if err != nil {
		return fmt.Errorf("load locks: %w", err)
	}
	for i, ref := range refs {
		t.locks[ref] = locks[i]
	}
	return nil
}
