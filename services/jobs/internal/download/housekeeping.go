// SPDX-License-Identifier: Apache-2.0

package download

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/firmware/artifact"
	"github.com/rackbus/rackbus/pkg/firmware/catalog"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
)

// Housekeeping of what downloads leave behind that did not come to their end.
// These are Rackbus choices.
const (
	// tidyEvery and settleEvery are the pauses between two rounds.
	tidyEvery   = time.Hour
	settleEvery = 2 * time.Minute
	// leftoverAge is how long nothing may have been added to something before it
	// counts as left behind. A partial file helps the next try until then.
	leftoverAge = 24 * time.Hour
	// orphanAge is how long a cache without a job may be unsettled. Its records are
	// written some moments before its job is admitted.
	orphanAge = 2 * time.Minute
	// abandonedAge is how long nothing may have changed in the cache of an inline apply
	// before it is removed. The last job that uses it removes it, far earlier; this is
	// for those whose API process died before it could admit the jobs.
	abandonedAge = 14 * 24 * time.Hour
	// historyKept is how many lines the history of applies keeps: every one is read
	// when it is asked for.
	historyKept = 20_000
)

// rack is the rack of the nodes that downloads hold, one for each cache.
const rack = "firmware"

// Jobs is what housekeeping reads of jobs; *bus.Conn has it.
type Jobs interface {
	Lock(ctx context.Context, ref node.Ref) (bus.Lock, error)
	Record(ctx context.Context, id job.ID) (job.Record, bus.Revision, error)
}

// Housekeep removes what broken downloads have left behind and settles caches
// whose job is gone, at once and then now and then, until ctx ends.
func (w *Workflow) Housekeep(ctx context.Context) {
	tidy, settle := time.NewTicker(tidyEvery), time.NewTicker(settleEvery)
	defer tidy.Stop()
	defer settle.Stop()
	w.tidy(ctx)
	for {
		w.settle(ctx, time.Now())
		select {
		case <-settle.C:
		case <-tidy.C:
			w.tidy(ctx)
		case <-ctx.Done():
			return
		}
	}
}

func (w *Workflow) tidy(ctx context.Context) {
	files, err := artifact.Sweep(ctx, w.o.FirmwareDir, leftoverAge)
	if err != nil && ctx.Err() == nil {
		w.o.Logger.Warn("leftovers of downloads not swept", "err", err)
	}
	w.dropAbandoned(ctx, abandonedAge)
	content, err := w.o.Store.Collect(ctx, leftoverAge)
	if err != nil && ctx.Err() == nil {
		w.o.Logger.Warn("content without owner not freed", "err", err)
	}
	lines, err := w.o.Store.TrimHistory(ctx, historyKept)
	if err != nil && ctx.Err() == nil {
		w.o.Logger.Warn("history of applies not trimmed", "err", err)
	}
	if lines > 0 {
		w.o.Logger.Info("history of applies trimmed", "lines", lines)
	}
	if files > 0 || content > 0 {
		w.o.Logger.Info("leftovers of downloads removed", "files", files, "contents", content)
	}
}

// dropAbandoned removes the caches of applies that nobody will remove any more.
func (w *Workflow) dropAbandoned(ctx context.Context, age time.Duration) {
	caches, err := w.o.Store.IdleCaches(ctx, age)
	for _, cache := range caches {
		derr := w.o.Store.DropCache(ctx, cache)
		if derr == nil {
			derr = artifact.RemoveCache(w.o.FirmwareDir, cache, true)
		}
		w.o.Logger.Warn("cache of an apply without jobs removed", "cache", cache, "err", derr)
	}
	if err != nil && ctx.Err() == nil {
		w.o.Logger.Warn("abandoned caches not looked up", "err", err)
	}
}

// settle gives up caches that nobody downloads any more although they are not
// complete: their job was ended from outside, or was never admitted. Agents wait
// for their artifacts, and clients for their object.
func (w *Workflow) settle(ctx context.Context, now time.Time) {
	if w.o.Jobs == nil {
		return
	}
	caches, err := w.unsettled(ctx)
	if err != nil {
		if ctx.Err() == nil {
			w.o.Logger.Warn("unsettled downloads not looked up", "err", err)
		}
		return
	}
	for _, c := range caches {
		if now.Sub(c.Changed) < orphanAge {
			continue
		}
		reason, err := w.orphaned(ctx, c.Cache, now)
		if err == nil && reason != "" {
			w.o.Logger.Warn("download without a job given up", "cache", c.Cache, "reason", reason)
			err = giveUp(ctx, w.o.Store, c.Cache, c.Ephemeral, reason)
		}
		if err != nil && ctx.Err() == nil {
			w.o.Logger.Warn("unsettled download not given up", "cache", c.Cache, "err", err)
		}
	}
}

// unsettled are the caches with pending artifacts, and the objects that are neither
// available nor failed.
func (w *Workflow) unsettled(ctx context.Context) ([]catalog.PendingCache, error) {
	caches, err := w.o.Store.PendingCaches(ctx)
	if err != nil {
		return nil, err
	}
	objects, err := w.o.Store.List(ctx, catalog.Filter{})
	for _, o := range objects {
		if !o.GetAvailable() && o.GetFailure() == "" {
			caches = append(caches, catalog.PendingCache{Cache: o.GetId(), Changed: o.GetUpdatedAt().AsTime()})
		}
	}
	return caches, err
}

// orphaned returns why nobody downloads a cache; empty when somebody does.
func (w *Workflow) orphaned(ctx context.Context, cache string, now time.Time) (string, error) {
	l, err := w.o.Jobs.Lock(ctx, node.Ref{RackID: rack, NodeID: cache})
	if err != nil || !l.Free(now) {
		return "", err
	}
	id, err := job.ParseID(l.GetLastJobId())
	if err != nil {
		return "the download was never begun", nil //nolint:nilerr // it had no job
	}
	r, _, err := w.o.Jobs.Record(ctx, id)
	switch {
	case errors.Is(err, bus.ErrNotFound): // its retention has ended
	case err != nil:
		return "", err
	case r.State == job.StateCompleted:
		return "", nil // it has settled the cache since
	case r.Failure != nil:
		return fmt.Sprintf("the download has ended early: %s", r.Failure.Message), nil
	}
	return "the download has ended early", nil
}
