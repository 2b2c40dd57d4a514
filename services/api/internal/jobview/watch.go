// SPDX-License-Identifier: Apache-2.0

package jobview

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"slices"
	"sync"
	"time"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
)

// Change is one message of a watch.
type Change struct {
	// Record is the job as it is now, nil when a family left or the snapshot is
	// complete.
	Record *job.Record
	// RemovedID is the top-level job of a family that left.
	RemovedID job.ID
	// SnapshotComplete says that what follows are changes.
	SnapshotComplete bool
	Revision         bus.Revision
}

const (
	resumeVersion = 2
	resumeLen     = 1 + 8 + 8
)

// Token returns with what a watch goes on after the change.
func (c Change) Token() string {
	b := make([]byte, 0, resumeLen)
	b = append(b, resumeVersion)
	b = binary.BigEndian.AppendUint64(b, uint64(c.Revision))
	b = binary.BigEndian.AppendUint64(b, uint64(time.Now().Unix()))
	return base64.RawURLEncoding.EncodeToString(b)
}

func parseResume(token string) (bus.Revision, error) {
	b, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(b) != resumeLen || b[0] != resumeVersion {
		return 0, ErrBadToken
	}
	if at := time.Unix(int64(binary.BigEndian.Uint64(b[9:])), 0); time.Since(at) > removalAge {
		return 0, ErrTokenTooOld
	}
	return bus.Revision(binary.BigEndian.Uint64(b[1:])), nil
}

// Watcher gives the changes of the selected jobs.
type Watcher struct {
	view   *View
	filter Filter

	mu     sync.Mutex
	queue  []Change
	slow   bool
	notify chan struct{}
	// snapshot is how many changes the watch began with. Their records are
	// shared with the picture.
	snapshot int
}

// Watch begins with every selected job, in the order of their last change, or
// with what has changed since the token, and goes on with the changes. A job that
// a change takes out of the selection is told once more. Close must be called.
func (v *View) Watch(f Filter, token string) (*Watcher, error) {
	var after bus.Revision
	if token != "" {
		var err error
		if after, err = parseResume(token); err != nil {
			return nil, err
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.current {
		return nil, ErrNotReady
	}
	if token != "" && after < v.floor {
		return nil, ErrTokenTooOld
	}
	w := &Watcher{view: v, filter: f, notify: make(chan struct{}, 1)}
	last := after
	for _, it := range v.items {
		// A resumed watch hears of every change since: whether the job was
		// selected before is not known any more.
		if it.revision > after && (f.Match(&it.record) || token != "" && f.about(&it.record)) {
			w.queue = append(w.queue, Change{Record: &it.record, Revision: it.revision})
		}
		last = max(last, it.revision)
	}
	for _, r := range v.removals {
		if token != "" && r.revision > after {
			w.queue = append(w.queue, Change{RemovedID: r.id, Revision: r.revision})
		}
		last = max(last, r.revision)
	}
	slices.SortFunc(w.queue, func(a, b Change) int {
		if a.Revision < b.Revision {
			return -1
		}
		return 1
	})
	w.queue = append(w.queue, Change{SnapshotComplete: true, Revision: last})
	w.snapshot = len(w.queue)
	v.watchers[w] = struct{}{}
	return w, nil
}

// about reports whether the filter could have selected the job in another state.
func (f Filter) about(r *job.Record) bool {
	f.States = nil
	return f.Match(r)
}

// offer queues a change, unless too many wait beside the snapshot.
func (w *Watcher) offer(c Change) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) >= w.snapshot+watchBuffer {
		w.slow = true
	}
	if !w.slow {
		w.queue = append(w.queue, c)
	}
	select {
	case w.notify <- struct{}{}:
	default:
	}
}

// Next returns the next change. It returns ErrSlow when some were lost because
// they were not taken in time.
func (w *Watcher) Next(ctx context.Context) (Change, error) {
	for {
		w.mu.Lock()
		if len(w.queue) > 0 {
			c := w.queue[0]
			w.queue = w.queue[1:]
			w.mu.Unlock()
			return c, nil
		}
		slow := w.slow
		w.mu.Unlock()
		if slow {
			return Change{}, ErrSlow
		}
		select {
		case <-w.notify:
		case <-ctx.Done():
			return Change{}, ctx.Err()
		}
	}
}

// Close ends the watch.
func (w *Watcher) Close() {
	w.view.mu.Lock()
	defer w.view.mu.Unlock()
	delete(w.view.watchers, w)
}
