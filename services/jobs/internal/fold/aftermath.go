// SPDX-License-Identifier: Apache-2.0

package fold

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// How much may wait behind a commit in memory. The fold waits for commands to be
// erased, but never for the public stream, which may be gone for long: changes
// beyond its backlog are read from the outbox again.
const (
	outboxBacklog = 64      // commits
	eraseBacklog  = 100_000 // commands
	parkedBacklog = 4_096   // parked commands
	noteBacklog   = 4_096   // notes to jobs in line; those beyond it are not told
)

// Erasing a command makes the broker rewrite a part of its store, which delays
// every other write there. So it waits while the fold is this many events
// behind, unless half of the backlog is used up.
const (
	eraseLag   = 1_000
	erasePause = 20 * time.Millisecond
)

// aftermath does what follows a commit: it publishes the transitions in the
// order of the commits, and removes commands that are not needed any more. All
// of it may be lost with the process: the next one publishes what is left in the
// outbox, and commands expire.
type aftermath struct {
	o      Options
	lag    atomic.Uint64
	outbox chan outboxEntry
	erase  chan bus.Revision
	parked chan parkedCommand
	notes  chan job.Event
	cancel context.CancelFunc
	wg     sync.WaitGroup

	// mu guards missed, and that nothing enters outbox while it is set.
	mu sync.Mutex
	// missed says that changes are in the outbox of the bus only. Later ones must
	// not overtake them.
	missed bool
}

type outboxEntry struct {
	transitions []*rackbusv1.JobTransition
	entry       bus.Revision
}

func startAftermath(ctx context.Context, o Options) *aftermath {
	ctx, cancel := context.WithCancel(ctx)
	a := &aftermath{
		o: o, outbox: make(chan outboxEntry, outboxBacklog), erase: make(chan bus.Revision, eraseBacklog),
		parked: make(chan parkedCommand, parkedBacklog), notes: make(chan job.Event, noteBacklog), cancel: cancel,
	}
	a.wg.Go(func() { a.publish(ctx) })
	a.wg.Go(func() { a.eraseAll(ctx) })
	a.wg.Go(func() { a.dropAll(ctx) })
	a.wg.Go(func() { a.tell(ctx) })
	return a
}

// follow hands over what a commit leaves behind. It waits while too many commands
// of earlier commits are left.
func (a *aftermath) follow(ctx context.Context, p *plan, done bus.Commit, erase []bus.Revision) error {
	if len(p.transitions) > 0 {
		a.offer(outboxEntry{p.transitions, p.outboxEntry(done)})
	}
	for i := range p.turns {
		a.note(p.turns[i].notes())
	}
	for _, rev := range erase {
		select {
		case a.erase <- rev:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for _, c := range p.parked() {
		select {
		case a.parked <- c:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// offer gives changes to the publisher, or leaves them to the outbox of the bus
// when too many wait already.
func (a *aftermath) offer(e outboxEntry) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.missed {
		return
	}
	select {
	case a.outbox <- e:
	default:
		a.missed = true
		a.o.Log.Warn("public events left in the outbox until earlier ones are published", "partition", a.o.Partition)
	}
}

// behindOutbox reports whether changes were left to the outbox of the bus. All
// that wait in memory are there too, so they are forgotten.
func (a *aftermath) behindOutbox() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.missed {
		return false
	}
	for len(a.outbox) > 0 {
		<-a.outbox
	}
	a.missed = false
	return true
}

// publish first publishes what an earlier term has left, so that the order per
// job holds.
func (a *aftermath) publish(ctx context.Context) {
	outbox := func() error { return a.o.Conn.PublishOutbox(ctx, a.o.Partition) }
	if !a.persist(ctx, outbox) {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-a.outbox:
			if !a.persist(ctx, func() error { return a.o.Conn.PublishTransitions(ctx, e.transitions, e.entry) }) {
				return
			}
		}
		// Looked at after every entry, of which there is one when changes are missed.
		if a.behindOutbox() && !a.persist(ctx, outbox) {
			return
		}
	}
}

// persist repeats do until it succeeds; it returns false when ctx ended.
func (a *aftermath) persist(ctx context.Context, do func() error) bool {
	for {
		err := do()
		if err == nil {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		a.o.Log.Warn("public events delayed", "partition", a.o.Partition, "err", err)
		if pause(ctx, a.o.Retry) != nil {
			return false
		}
	}
}

// eraseAll erases commands whenever the fold is not behind.
func (a *aftermath) eraseAll(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case rev := <-a.erase:
			for a.lag.Load() > eraseLag && len(a.erase) < eraseBacklog/2 {
				if pause(ctx, erasePause) != nil {
					return
				}
			}
			a.left(a.o.Conn.EraseCommand(ctx, rev))
		}
	}
}

// dropAll removes parked commands. It waits for nothing else: a fold that has to wait
// for it does not catch up.
func (a *aftermath) dropAll(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case c := <-a.parked:
			a.left(a.o.Conn.DropParked(ctx, c.ref, c.id))
		}
	}
}

// left tells of a command that could not be removed.
func (a *aftermath) left(err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		a.o.Log.Warn("command of an ended job not erased, it will expire", "partition", a.o.Partition, "err", err)
	}
}

// note hands notes over. What they tell, the jobs' first workers tell again.
func (a *aftermath) note(notes []job.Event) {
	for _, e := range notes {
		select {
		case a.notes <- e:
		default:
			a.o.Log.Debug("job in line not told of its turn", "job_id", e.ID.String())
		}
	}
}

func (a *aftermath) tell(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-a.notes:
			if err := a.o.Conn.PublishEvent(ctx, &e); err != nil && ctx.Err() == nil {
				a.o.Log.Warn("job in line not told of its turn", "job_id", e.ID.String(), "err", err)
			}
		}
	}
}

func (a *aftermath) stop() {
	a.cancel()
	a.wg.Wait()
}
