// SPDX-License-Identifier: Apache-2.0

package jobview

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
)

var (
	// ErrNotReady says that the picture is still being read.
	ErrNotReady = errors.New("the list of jobs is still being read")
	// ErrTokenTooOld says that a watch cannot be resumed: what left since is not
	// known any more.
	ErrTokenTooOld = errors.New("the resume token is too old; start again without one")
	// ErrBadToken says that a token was not made here.
	ErrBadToken = errors.New("the token is not one of this service; start again without one")
	// ErrSlow says that a watcher did not take its changes in time. It can resume.
	ErrSlow = errors.New("changes were not taken in time; resume with the last token")
)

// Bounds of the picture.
const (
	// maxText bounds each text of a job, in bytes.
	maxText = 512
	// maxRemovals bounds the memory of families that left.
	maxRemovals = 100_000
	// removalAge is how long that memory is relied on. The bus keeps its own
	// for 24 h.
	removalAge = 23 * time.Hour
	// watchBuffer bounds the changes that wait for one watcher.
	watchBuffer = 20_000
)

// Options configure a View.
type Options struct {
	Conn *bus.Conn
	// Retry is the pause before a broken watch is opened again.
	Retry  time.Duration
	Logger *slog.Logger
	// OnSize is told how many jobs the picture has; may be nil.
	OnSize func(jobs float64)
	// OnRollouts is told how many rollouts of batches that have not ended are in a
	// state, whenever that changes; may be nil.
	OnRollouts func(state job.RolloutState, rollouts float64)
}

// item is one job. A new one replaces it when the job changes.
type item struct {
	record   job.Record
	revision bus.Revision
	// round is the reading of the bus in which the job was last seen.
	round int
}

// removal is a family that left.
type removal struct {
	id       job.ID
	revision bus.Revision
	seen     time.Time
}

// View is the picture. It is safe for concurrent use.
type View struct {
	opts Options

	mu       sync.Mutex
	items    map[job.ID]*item
	rollouts map[job.RolloutState]int // of batches that have not ended
	families map[job.ID][]job.ID
	removals []removal
	// floor is the revision up to which removals have been forgotten, lastGone
	// that of the last removal the bus told of.
	floor    bus.Revision
	lastGone bus.Revision
	// round counts the readings of the bus, swept is the last one that was
	// complete.
	round    int
	swept    int
	current  bool
	watchers map[*Watcher]struct{}
}

// New returns a view that is filled once Run is called.
func New(opts Options) *View {
	if opts.OnSize == nil {
		opts.OnSize = func(float64) {}
	}
	if opts.OnRollouts == nil {
		opts.OnRollouts = func(job.RolloutState, float64) {}
	}
	return &View{
		opts: opts, items: make(map[job.ID]*item), families: make(map[job.ID][]job.ID),
		rollouts: make(map[job.RolloutState]int), watchers: make(map[*Watcher]struct{}),
	}
}

// Ready returns ErrNotReady until every job has been seen once.
func (v *View) Ready() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.current {
		return ErrNotReady
	}
	return nil
}

// Run follows the bus until ctx ends.
func (v *View) Run(ctx context.Context) {
	for ctx.Err() == nil {
		v.mu.Lock()
		v.round++
		v.mu.Unlock()
		err := v.opts.Conn.WatchRecords(ctx, v.apply)
		if ctx.Err() != nil {
			return
		}
		v.opts.Logger.Debug("watch of the records interrupted", "err", err)
		select {
		case <-ctx.Done():
		case <-time.After(v.opts.Retry):
		}
	}
}

// apply takes one update of the bus.
func (v *View) apply(u bus.RecordUpdate) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case u.Gone && u.Revision > v.lastGone:
		v.lastGone = u.Revision
		v.remember(u.Record.ID, u.Revision)
		v.drop(u.Record.ID, u.Revision)
	case u.Gone:
		// An earlier one is told again after a reconnect, and before it the
		// records, if they have not been removed yet.
		v.drop(u.Record.ID, u.Revision)
	case u.Record.Exists():
		v.put(u)
	}
	if u.Current && !v.current {
		v.current = true
		v.opts.Logger.Info("list of jobs complete", "jobs", len(v.items))
	}
	if u.Current && v.swept < v.round {
		// Almost every update is the last one there is; the reading is complete
		// with the first of them.
		v.swept = v.round
		v.sweep()
	}
	v.opts.OnSize(float64(len(v.items)))
}

func (v *View) put(u bus.RecordUpdate) {
	old := v.items[u.Record.ID]
	if old != nil && old.revision >= u.Revision {
		old.round = v.round
		return
	}
	next := &item{record: brief(u.Record), revision: u.Revision, round: v.round}
	v.items[u.Record.ID] = next
	v.countRollout(&next.record, 1)
	if old != nil {
		v.countRollout(&old.record, -1)
	} else {
		family := u.Record.ID.Parent()
		v.families[family] = append(v.families[family], u.Record.ID)
	}
	for w := range v.watchers {
		if w.filter.Match(&next.record) || old != nil && w.filter.Match(&old.record) {
			w.offer(Change{Record: &next.record, Revision: next.revision})
		}
	}
}

// remember keeps in mind that a family left, for watches that resume.
func (v *View) remember(id job.ID, revision bus.Revision) {
	v.removals = append(v.removals, removal{id, revision, time.Now()})
	v.forget()
}

// drop takes a family out of the picture.
func (v *View) drop(id job.ID, revision bus.Revision) {
	members := v.families[id.Parent()]
	delete(v.families, id.Parent())
	for w := range v.watchers {
		for _, member := range members {
			if w.filter.Match(&v.items[member].record) {
				w.offer(Change{RemovedID: id, Revision: revision})
				break
			}
		}
	}
	for _, member := range members {
		v.countRollout(&v.items[member].record, -1)
		delete(v.items, member)
	}
}

// countRollout takes the rollout of a batch into account, or out of it.
func (v *View) countRollout(r *job.Record, n int) {
	if o := r.Rollout; o != nil && !r.State.Terminal() {
		v.rollouts[o.State] += n
		v.opts.OnRollouts(o.State, float64(v.rollouts[o.State]))
	}
}

// forget bounds the memory of removals.
func (v *View) forget() {
	drop := max(len(v.removals)-maxRemovals, 0)
	for drop < len(v.removals) && time.Since(v.removals[drop].seen) > removalAge {
		drop++
	}
	if drop > 0 {
		v.floor = v.removals[drop-1].revision
		v.removals = append([]removal(nil), v.removals[drop:]...)
	}
}

// sweep drops families that left while the bus could not be watched for longer
// than it remembers them.
func (v *View) sweep() {
	if v.round == 1 {
		return
	}
	for family, members := range v.families {
		stale := true
		for _, id := range members {
			stale = stale && v.items[id].round < v.round
		}
		if !stale {
			continue
		}
		left := v.newest()
		v.remember(family, left)
		v.drop(family, left)
	}
	for _, it := range v.items {
		it.round = v.round
	}
}

// newest is the highest revision that was given out.
func (v *View) newest() bus.Revision {
	var newest bus.Revision
	for _, it := range v.items {
		newest = max(newest, it.revision)
	}
	if n := len(v.removals); n > 0 {
		newest = max(newest, v.removals[n-1].revision)
	}
	return newest
}

// brief cuts a record down to what the picture keeps.
func brief(r job.Record) job.Record {
	r.ResultJSON, r.Stages, r.Children, r.Reserved = "", nil, nil, nil
	if r.Diagnostics != nil {
		found := *r.Diagnostics // records share it
		found.Collectors = nil
		r.Diagnostics = &found
	}
	if r.Rollout != nil {
		o := *r.Rollout
		o.Released, o.Members, o.Places = nil, nil, nil
		r.Rollout = &o
	}
	r.Name, r.Description, r.Agent = cut(r.Name), cut(r.Description), cut(r.Agent)
	if r.Failure != nil {
		r.Failure = &job.Failure{
			Code: r.Failure.Code, FailureCode: r.Failure.FailureCode,
			Message: cut(r.Failure.Message), Phase: cut(r.Failure.Phase),
		}
	}
	return r
}

func cut(s string) string {
	if len(s) <= maxText {
		return s
	}
	return s[:maxText] // half a character is repaired when the record is encoded
}
