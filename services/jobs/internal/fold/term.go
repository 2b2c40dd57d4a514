// SPDX-License-Identifier: Apache-2.0

package fold

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/failpoint"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/services/jobs/internal/observe"
)

// ErrFenced says that another process has committed for the partition. What this
// one had in memory is worthless.
var ErrFenced = errors.New("fold: another fold is active on the partition")

// Crash points.
const (
	PointBeforeCommit = "fold.before_commit"
	PointAfterCommit  = "fold.after_commit"
)

// Limits of one commit.
const (
	// commitMessages closes a commit; the broker takes 1,000 messages, and what
	// the lines of waiting jobs add is only known at the end.
	commitMessages = 900
	// commitBytes keeps the outbox message of a commit below 8 MiB.
	commitBytes = 2 << 20
	// commitEvents moves the cursor on when events change nothing.
	commitEvents = 10_000
	// gatherEvents is how many events are looked up together.
	gatherEvents = 1_000
	// conflictTries is how often a commit is built anew because a lock or a
	// parent moved.
	conflictTries = 50
)

// Options configure a Term.
type Options struct {
	Conn      *bus.Conn
	Partition int
	// Retention is how long a family stays after its top-level job has ended.
	Retention time.Duration
	// CommitInterval is how long the first change of a commit waits for others.
	CommitInterval time.Duration
	// Retry is the pause after the broker could not take a commit.
	Retry time.Duration
	// ParkedLife is how long a command lives after its node became free, beyond
	// the job's run limit.
	ParkedLife time.Duration
	// CachedRecords bounds the records kept in memory between commits.
	CachedRecords int
	// Diagnose arms a timer for the examination of nodes whose jobs have failed.
	Diagnose bool

	Log        *slog.Logger
	Metrics    *observe.Metrics
	Failpoints *failpoint.Points
}

// Term is one period of activity for a partition.
type Term struct {
	o       Options
	cache   *cache
	locks   map[node.Ref]bus.Lock
	draft   *draft
	since   time.Time // when the draft got its first change
	cursor  bus.Revision
	from    time.Time // see draft
	watched *observe.Partition
	after   *aftermath
}

func (t *Term) newDraft() *draft {
	d := newDraft(t.cache.get, t.locks)
	d.diagnose, d.from = t.o.Diagnose, t.from
	return d
}

// Run folds the partition's events until ctx ends, another process turns out to
// be active (ErrFenced), or the bus fails. It can be called once.
func Run(ctx context.Context, o Options) error {
	t := &Term{
		o: o, cache: newCache(o.CachedRecords), locks: make(map[node.Ref]bus.Lock),
		watched: observe.NewPartition(o.Metrics, o.Log),
	}
	t.draft = t.newDraft()
	sequence, rev, err := o.Conn.Cursor(ctx, o.Partition)
	if err != nil {
		return fmt.Errorf("read cursor of partition %d: %w", o.Partition, err)
	}
	t.cursor = rev
	defer t.watched.Close()
	defer o.Metrics.Left(o.Partition)
	if err := t.countExisting(ctx); err != nil {
		return err
	}
	reader, err := o.Conn.ReadEvents(ctx, o.Partition, sequence)
	if err != nil {
		return fmt.Errorf("partition %d: %w", o.Partition, err)
	}
	defer reader.Close()
	t.after = startAftermath(ctx, o)
	defer t.after.stop()
	// Known from the start on, so that an alert never finds it missing.
	o.Metrics.Lag(o.Partition, 0)
	o.Log.Debug("fold active", "partition", o.Partition, "sequence", sequence)
	return t.loop(ctx, reader)
}

// countExisting sets the gauges to what earlier terms, here or elsewhere, have left: all
// that they have committed, or a job that has just ended would count for ever.
func (t *Term) countExisting(ctx context.Context) error {
	err := t.o.Conn.ScanRecords(ctx, t.o.Partition, t.cursor, func(r job.Record) { t.watched.Existing(&r) })
	if err != nil {
		return fmt.Errorf("count workflows of partition %d: %w", t.o.Partition, err)
	}
	return nil
}

func (t *Term) loop(ctx context.Context, reader *bus.EventReader) error {
	due := time.NewTimer(t.o.CommitInterval)
	defer due.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case raw := <-reader.Wait():
			first, err := reader.Take(raw)
			events := t.gather(reader, t.read(nil, first, err))
			if err := t.fold(ctx, events); err != nil {
				return err
			}
		case <-due.C:
		}
		wait := t.o.CommitInterval
		if len(t.draft.changed) > 0 {
			if wait = t.o.CommitInterval - time.Since(t.since); wait <= 0 {
				if err := t.commit(ctx); err != nil {
					return err
				}
				wait = t.o.CommitInterval
			}
		}
		due.Reset(wait)
	}
}

// gather adds what the reader has at hand.
func (t *Term) gather(reader *bus.EventReader, events []bus.StoredEvent) []bus.StoredEvent {
	for len(events) < gatherEvents {
		select {
		case raw := <-reader.Wait():
			e, err := reader.Take(raw)
			events = t.read(events, e, err)
		default:
			return events
		}
	}
	return events
}

// read appends an event. One that cannot be decoded keeps its place, so that the
// cursor steps over it, and belongs to no job.
func (t *Term) read(events []bus.StoredEvent, e bus.StoredEvent, err error) []bus.StoredEvent {
	if err != nil {
		t.o.Metrics.Event(job.EventUnspecified, "", err)
		t.o.Log.Error("unreadable event stepped over", "partition", t.o.Partition, "sequence", e.Sequence, "err", err)
		e.Event = job.Event{}
	}
	return append(events, e)
}

// fold takes events into the draft and commits whenever it is full.
func (t *Term) fold(ctx context.Context, events []bus.StoredEvent) error {
	if err := t.load(ctx, events); err != nil {
		return err
	}
	for i := range events {
		e := &events[i]
		if t.full(&e.Event) {
			if err := t.commit(ctx); err != nil {
				return err
			}
			// The commit has released what it did not use.
			if err := t.load(ctx, events[i:]); err != nil {
				return err
			}
		}
		reason, err := t.draft.take(*e)
		if e.Kind != job.EventUnspecified {
			t.o.Metrics.Event(e.Kind, reason, err)
		}
		if err != nil {
			t.o.Log.Error("event refused", "job_id", e.ID.String(), "rack", e.RackID, "node", e.NodeID,
				"event", e.Kind.String(), "sequence", e.Sequence, "err", err)
		}
		if len(t.draft.changed) > 0 && t.since.IsZero() {
			t.since = time.Now()
		}
	}
	if len(t.draft.input) >= commitEvents {
		return t.commit(ctx)
	}
	if len(t.draft.changed) == 0 && len(events) > 0 {
		t.behind(events[len(events)-1].Pending)
	}
	return nil
}

// full reports whether an event needs a new commit. One that is too large for
// any gets a commit of its own.
func (t *Term) full(next *job.Event) bool {
	d := t.draft
	return len(d.input) > 0 && (d.messages+d.foresee(next) > commitMessages || d.bytes > commitBytes)
}

// behind tells how many events are not committed yet.
func (t *Term) behind(events uint64) {
	t.after.lag.Store(events)
	t.o.Metrics.Lag(t.o.Partition, events)
}

// commit writes the draft, and builds it anew when a lock or a parent has moved.
func (t *Term) commit(ctx context.Context) error {
	conflicts := 0
	for {
		err := t.tryCommit(ctx)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, bus.ErrConflict):
			t.o.Metrics.Commit(observe.ResultConflict, 0)
			if conflicts++; conflicts > conflictTries {
				return fmt.Errorf("partition %d: commit given up after %d conflicts: %w", t.o.Partition, conflicts, err)
			}
			if err := t.rebuild(ctx); err != nil {
				return err
			}
		case errors.Is(err, bus.ErrUnavailable):
			t.o.Metrics.Commit(observe.ResultError, 0)
			t.o.Log.Warn("fold commit delayed", "partition", t.o.Partition, "err", err)
			if err := pause(ctx, t.o.Retry); err != nil {
				return err
			}
		default:
			t.o.Metrics.Commit(observe.ResultError, 0)
			return fmt.Errorf("partition %d: commit: %w", t.o.Partition, err)
		}
	}
}

func (t *Term) tryCommit(ctx context.Context) error {
	now := time.Now()
	turns, err := t.turns(ctx, t.draft, now)
	if err != nil {
		return err
	}
	racks, err := t.rackTurns(ctx, t.draft)
	if err != nil {
		return err
	}
	p := makePlan(t.draft, turns, racks, t.o.Retention, now)
	if err := t.o.Failpoints.Hit(PointBeforeCommit); err != nil {
		return err
	}
	tx := t.o.Conn.Begin()
	p.write(tx, t.o.Partition, t.cursor, t.o.Retention, t.o.ParkedLife)
	start := time.Now()
	done, err := tx.Commit(ctx)
	if err != nil {
		return err
	}
	t.o.Metrics.Commit(observe.ResultOK, time.Since(start).Seconds())
	return t.committed(ctx, p, done)
}

// committed makes the draft the truth of this process, and starts what follows
// a commit.
func (t *Term) committed(ctx context.Context, p *plan, done bus.Commit) error {
	d := t.draft
	for i, id := range d.order {
		k := known{record: d.changed[id].after}
		if k.record.Kind == job.KindParent {
			k.rev = done.At(i)
		}
		t.cache.put(id, k)
	}
	t.cache.release()
	t.cursor, t.from = done.Last, p.from
	for _, e := range d.ended {
		delete(t.locks, e.ref)
	}
	if len(t.locks) > t.o.CachedRecords {
		clear(t.locks)
	}
	t.behind(d.input[len(d.input)-1].Pending)
	t.draft, t.since = t.newDraft(), time.Time{}
	if err := t.o.Failpoints.Hit(PointAfterCommit); err != nil {
		return err
	}
	for i := range d.steps {
		t.watched.Transition(&d.steps[i].record, d.steps[i].transition)
	}
	return t.after.follow(ctx, p, done, d.erase)
}

// rebuild takes the draft's events into a new draft, on the parents and locks as
// they are now. Its other records are pinned, and the fold alone changes them.
func (t *Term) rebuild(ctx context.Context) error {
	_, rev, err := t.o.Conn.Cursor(ctx, t.o.Partition)
	if err != nil {
		return fmt.Errorf("read cursor of partition %d: %w", t.o.Partition, err)
	}
	if rev != t.cursor {
		t.o.Metrics.Commit(observe.ResultFenced, 0)
		return fmt.Errorf("partition %d: %w", t.o.Partition, ErrFenced)
	}
	old := t.draft
	for _, id := range old.order {
		if old.changed[id].after.Kind == job.KindParent {
			if err := t.loadAtLeader(ctx, id); err != nil {
				return err
			}
		}
	}
	for _, e := range old.ended {
		lock, err := t.o.Conn.Lock(ctx, e.ref)
		if err != nil {
			return fmt.Errorf("read lock of %s: %w", e.ref, err)
		}
		t.locks[e.ref] = lock
	}
	t.draft = t.newDraft()
	for i := range old.input {
		// Errors were told when the event was read.
		_, _ = t.draft.take(old.input[i])
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
