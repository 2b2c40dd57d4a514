// SPDX-License-Identifier: Apache-2.0

package artifactcache

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/rackbus/rackbus/pkg/firmware/catalog"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// watchPause is the pause before a watch that has ended is begun again.
const watchPause = time.Second

// watch follows the artifacts of one cache for all who wait for one of them: many
// nodes get the same files.
type watch struct {
	users  int
	cancel context.CancelFunc
	ended  chan struct{}

	mu      sync.Mutex
	records map[string]*catalog.Artifact
	gone    map[string]bool
	// heard is when a record of the cache changed last: a download that works on one
	// file is alive for all that are still in line.
	heard time.Time
	// current says that every record which existed has been seen.
	current bool
	// changed is closed and replaced with every change.
	changed chan struct{}
}

// state is what a watch knows of one artifact.
type state struct {
	record  *catalog.Artifact
	heard   time.Time
	gone    bool
	current bool
	changed <-chan struct{}
}

func (w *watch) state(path string) state {
	w.mu.Lock()
	defer w.mu.Unlock()
	return state{w.records[path], w.heard, w.gone[path], w.current, w.changed}
}

func (w *watch) change(do func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	do()
	close(w.changed)
	w.changed = make(chan struct{})
}

// settle notes that everything there is has been seen. What an earlier watch had seen
// and this one has not was removed in between.
func (w *watch) settle(seen map[string]bool) {
	for path := range w.records {
		if !seen[path] {
			delete(w.records, path)
			w.gone[path] = true
		}
	}
	w.current = true
}

// follow takes part in the watch of a cache until leave is called.
func (c *Cache) follow(ctx context.Context, cache string) (w *watch, leave func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w = c.watches[cache]
	if w == nil {
		w = &watch{records: map[string]*catalog.Artifact{}, gone: map[string]bool{}, changed: make(chan struct{}), ended: make(chan struct{})}
		// The watch outlives who began it as long as others take part.
		var wctx context.Context
		wctx, w.cancel = context.WithCancel(context.WithoutCancel(ctx))
		c.watches[cache] = w
		go c.run(wctx, cache, w)
	}
	w.users++
	return w, func() {
		c.mu.Lock()
		w.users--
		last := w.users == 0
		if last {
			w.cancel()
			delete(c.watches, cache)
		}
		c.mu.Unlock()
		if last {
			<-w.ended
		}
	}
}

// run keeps a watch going.
func (c *Cache) run(ctx context.Context, cache string, w *watch) {
	defer close(w.ended)
	for ctx.Err() == nil {
		seen := map[string]bool{}
		err := c.o.Store.WatchCache(ctx, cache, func(path string, change catalog.ArtifactChange) error {
			w.change(func() {
				seen[path] = true
				w.gone[path] = change.Artifact == nil
				if change.Artifact == nil {
					delete(w.records, path)
				} else {
					w.records[path] = change.Artifact
					if at := change.GetUpdatedAt().AsTime(); at.After(w.heard) {
						w.heard = at
					}
				}
			})
			return nil
		}, func() { w.change(func() { w.settle(seen) }) })
		if ctx.Err() != nil {
			return
		}
		c.log.Warn("catalogue not watched, trying again", "cache", cache, "err", err)
		_ = sleep(ctx, watchPause) // its end is looked at above
	}
}

// sleep waits, or returns why ctx has ended.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// await waits until an artifact is available.
func (c *Cache) await(ctx context.Context, ref *rackbusv1.ArtifactRef, progress func(done, total int64)) (*catalog.Artifact, error) {
	w, leave := c.follow(ctx, ref.GetCache())
	defer leave()
	limit := time.NewTimer(c.o.Silence)
	defer limit.Stop()
	missing := false
	var last time.Time
	for {
		s := w.state(ref.GetPath())
		a := s.record
		switch {
		case s.gone:
			return nil, fmt.Errorf("artifact %s of %s: %w any more", ref.GetPath(), ref.GetCache(), ErrGone)
		case a == nil:
			if s.current && !missing {
				missing = true
				limit.Reset(c.o.Appear)
			}
		case a.GetState() == rackbusv1.ArtifactState_ARTIFACT_STATE_AVAILABLE:
			return a, nil
		case a.GetState() == rackbusv1.ArtifactState_ARTIFACT_STATE_FAILED:
			return nil, fmt.Errorf("artifact %s of %s: %w: %s", ref.GetPath(), ref.GetCache(), ErrFailed, a.GetFailure())
		default:
			if missing || !s.heard.Equal(last) {
				last, missing = s.heard, false
				limit.Reset(c.o.Silence)
			}
			if progress != nil {
				progress(a.GetBytesDone(), a.GetBytesTotal())
			}
		}
		select {
		case <-s.changed:
		case <-limit.C:
			if missing {
				return nil, fmt.Errorf("artifact %s of %s: %w", ref.GetPath(), ref.GetCache(), ErrGone)
			}
			return nil, fmt.Errorf("artifact %s of %s: %w for %s", ref.GetPath(), ref.GetCache(), ErrSilent, c.o.Silence)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
