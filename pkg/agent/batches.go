// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"sync"
	"time"

	"github.com/rackbus/rackbus/pkg/job"
)

// batchesKept is how many batches are remembered.
const batchesKept = 4096

// batches remembers which batches are fully admitted. The children of a batch
// share one look at its record: ten thousand that wait for the last chunk would
// otherwise read its five kilobytes forty thousand times a second.
type batches struct {
	mu sync.Mutex
	// admitted are those that are; a positive answer never changes.
	admitted map[job.ID]bool
	looks    map[job.ID]*look
}

// look is one read of a batch's record.
type look struct {
	// done ends when the answer is there; err is nil when the batch is admitted.
	done chan struct{}
	err  error
	// until is how long a negative answer is believed; zero while there is none.
	until time.Time
}

func newBatches() *batches {
	return &batches{admitted: map[job.ID]bool{}, looks: map[job.ID]*look{}}
}

// check returns nil when the batch is admitted and errNotAdmitted when it is not,
// which is believed for keep. Other errors are those of read.
func (b *batches) check(ctx context.Context, id job.ID, keep time.Duration, read func() (admitted bool, err error)) error {
	b.mu.Lock()
	if b.admitted[id] {
		b.mu.Unlock()
		return nil
	}
	if l := b.looks[id]; l != nil && (l.until.IsZero() || time.Now().Before(l.until)) {
		b.mu.Unlock()
		select {
		case <-l.done:
			return l.err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	l := &look{done: make(chan struct{})}
	if len(b.looks) >= batchesKept {
		clear(b.looks)
	}
	b.looks[id] = l
	b.mu.Unlock()
	defer close(l.done)
	admitted, err := read()
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil && !admitted {
		l.err, l.until = errNotAdmitted, time.Now().Add(keep)
		return l.err
	}
	l.err = err
	if b.looks[id] == l {
		delete(b.looks, id)
	}
	if err == nil {
		if len(b.admitted) >= batchesKept {
			clear(b.admitted)
		}
		b.admitted[id] = true
	}
	return err
}
