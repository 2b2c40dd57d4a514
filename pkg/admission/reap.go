// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
)

// reapTries bounds the races of one reap for the capacity counter.
const reapTries = 20

// reaper remembers when expired jobs were last searched for.
type reaper struct {
	mu   sync.Mutex
	last time.Time
}

// reapAtLimit reaps expired jobs unless that was tried a moment ago.
func (a *Admitter) reapAtLimit(ctx context.Context) (freed bool, err error) {
	a.reaper.mu.Lock()
	defer a.reaper.mu.Unlock()
	if time.Since(a.reaper.last) < a.opts.ReapInterval {
		return false, nil
	}
	a.reaper.last = time.Now()
	n, err := a.ReapExpired(ctx)
	return n > 0, err
}

// ReapExpired removes every job family whose retention has ended, but for those that
// leave something behind, and returns how many records that freed. Timers do so in
// time; this is for a site at its limit.
func (a *Admitter) ReapExpired(ctx context.Context) (int64, error) {
	var expired []job.ID
	now := time.Now()
	err := a.opts.Conn.TopLevelRecords(ctx, func(r job.Record) {
		// The timer of a job with a cleanup plan has its last try at the plan, and that of
		// a diagnosis removes the evidence.
		leaves := len(r.Cleanup) > 0 || r.Type == job.TypeNodeDiagnostics
		if r.State.Terminal() && !leaves && !now.Before(r.FinishedAt.Add(a.opts.Retention)) {
			expired = append(expired, r.ID)
		}
	})
	if err != nil {
		return 0, err
	}
	var freed int64
	for _, id := range expired {
		n, err := Reap(ctx, a.opts.Conn, id)
		freed += n
		if err != nil {
			return freed, err
		}
	}
	if freed > 0 {
		a.opts.Logger.Info("expired jobs removed at the limit of tracked jobs", "families", len(expired), "records", freed)
	}
	return freed, nil
}

// Reap removes the family of a top-level job: it marks the family as gone and
// lowers the counter in one step, then removes the records. It may be repeated,
// by several processes at once, and returns how many records it took off the
// counter.
func Reap(ctx context.Context, c *bus.Conn, id job.ID) (int64, error) {
	for try := 0; ; try++ {
		gone, err := c.Gone(ctx, id)
		if err != nil {
			return 0, err
		}
		if gone {
			return 0, c.PurgeFamily(ctx, id)
		}
		n, err := c.CountFamily(ctx, id)
		if err != nil {
			return 0, err
		}
		records, rev, err := c.Capacity(ctx)
		if err != nil {
			return 0, err
		}
		tx := c.Begin()
		tx.SetCapacity(max(records-n, 0), rev)
		tx.MarkGone(id)
		_, err = tx.Commit(ctx)
		switch {
		case err == nil:
			return n, c.PurgeFamily(ctx, id)
		case !errors.Is(err, bus.ErrConflict), try >= reapTries:
			return 0, fmt.Errorf("reap job %s: %w", id, err)
		}
	}
}
