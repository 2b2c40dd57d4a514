// SPDX-License-Identifier: Apache-2.0

// Package capacity keeps the counter of tracked records true. Admission and the
// reaper move it together with the records; a recount corrects what records lost
// by expiry or by hand have left wrong.
package capacity

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/services/jobs/internal/observe"
)

// Keeper recounts the tracked records. One replica does at a time, the one that
// is active for partition 0; two at once would do no harm.
type Keeper struct {
	Conn *bus.Conn
	// Every is the pause between reads of the counter for the metric.
	Every time.Duration
	// Recount is the pause between recounts. The first is made at once.
	Recount time.Duration
	// Settle is how long a difference must last before it is believed: between
	// the two steps of a reap the counter is ahead of the records.
	Settle  time.Duration
	Log     *slog.Logger
	Metrics *observe.Metrics
}

// Run keeps the counter until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	read, recount := time.NewTicker(k.Every), time.NewTicker(k.Recount)
	defer read.Stop()
	defer recount.Stop()
	k.recount(ctx)
	for {
		select {
		case <-ctx.Done():
			return
		case <-read.C:
			if records, _, err := k.Conn.Capacity(ctx); err == nil {
				k.Metrics.Capacity(records)
			} else if ctx.Err() == nil {
				k.Log.Warn("capacity counter not read", "err", err)
			}
		case <-recount.C:
			k.recount(ctx)
		}
	}
}

func (k *Keeper) recount(ctx context.Context) {
	if err := k.correct(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, bus.ErrConflict) {
		k.Log.Warn("tracked records not recounted", "err", err)
	}
}

// count is one look at counter and records.
type count struct {
	counter int64
	rev     bus.Revision
	records int64
}

func (k *Keeper) look(ctx context.Context) (count, error) {
	var c count
	var err error
	if c.counter, c.rev, err = k.Conn.Capacity(ctx); err != nil {
		return c, err
	}
	c.records, err = k.Conn.CountRecords(ctx)
	return c, err
}

// correct replaces a counter that has differed from the records for a while in
// which neither moved.
func (k *Keeper) correct(ctx context.Context) error {
	before, err := k.look(ctx)
	if err != nil {
		return err
	}
	k.Metrics.Capacity(before.counter)
	if before.counter == before.records {
		return nil
	}
	timer := time.NewTimer(k.Settle)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
	}
	now, err := k.look(ctx)
	if err != nil || now != before {
		return err
	}
	if err := k.Conn.CorrectCapacity(ctx, now.records, now.rev); err != nil {
		return err
	}
	k.Metrics.Capacity(now.records)
	k.Log.Warn("capacity counter corrected", "counter", now.counter, "records", now.records)
	return nil
}
