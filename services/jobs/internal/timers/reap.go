// SPDX-License-Identifier: Apache-2.0

package timers

import (
	"context"
	"errors"
	"fmt"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
)

// reapTries is how often the capacity counter may have moved meanwhile.
const reapTries = 20

// reap removes a family whose retention has ended. Its mark and its share of the
// capacity change together, once; the records behind the mark, which nobody is
// shown any more, are purged as often as needed.
func (h *Handler) reap(ctx context.Context, id job.ID) error {
	r, _, err := h.Conn.Record(ctx, id)
	switch {
	case errors.Is(err, bus.ErrNotFound): // marked before, or expired
	case err != nil:
		return fmt.Errorf("reap job %s: %w", id, err)
	case !r.State.Terminal():
		h.Log.Error("retention timer of a job that has not ended dropped", "job_id", id.String())
		return nil
	default:
		if err := h.dropEvidence(ctx, &r); err != nil {
			return fmt.Errorf("reap job %s: %w", id, err)
		}
		h.lastCleanup(ctx, &r)
	}
	if err := h.markGone(ctx, id); err != nil {
		return fmt.Errorf("reap job %s: %w", id, err)
	}
	if err := h.Failpoints.Hit(PointReapBetween); err != nil {
		return err
	}
	if err := h.Conn.PurgeFamily(ctx, id); err != nil {
		return fmt.Errorf("reap job %s: %w", id, err)
	}
	h.Log.Debug("job family reaped", "job_id", id.String())
	return nil
}

func (h *Handler) markGone(ctx context.Context, id job.ID) error {
	h.reaping.Lock()
	defer h.reaping.Unlock()
	for range reapTries {
		gone, err := h.Conn.Gone(ctx, id)
		if err != nil || gone {
			return err
		}
		records, rev, err := h.Conn.Capacity(ctx)
		if err != nil {
			return err
		}
		family, err := h.Conn.CountFamily(ctx, id)
		if err != nil {
			return err
		}
		tx := h.Conn.Begin()
		tx.SetCapacity(max(records-family, 0), rev)
		tx.MarkGone(id)
		if _, err = tx.Commit(ctx); !errors.Is(err, bus.ErrConflict) {
			return err
		}
	}
	return fmt.Errorf("the capacity counter moved %d times: %w", reapTries, bus.ErrConflict)
}
