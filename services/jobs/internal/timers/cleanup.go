// SPDX-License-Identifier: Apache-2.0

package timers

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/firmware/artifact"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/services/jobs/internal/observe"
)

// Caches are the artifacts of inline applies in the firmware catalogue.
type Caches interface {
	// DropCache removes the artifacts of a cache, which need not exist.
	DropCache(ctx context.Context, cache string) error
}

// cleanup removes the directories that a top-level job leaves behind, now that
// neither it nor a child of it uses them, and what the catalogue has of them. What
// cannot be removed is tried again until the retention ends; reap has the last try.
func (h *Handler) cleanup(ctx context.Context, r *job.Record, now time.Time) error {
	if !r.State.Terminal() {
		h.Log.Error("cleanup timer of a job that has not ended dropped", "job_id", r.ID.String())
		return nil
	}
	// The records first: a download that is still under way notices, and stops.
	failed := !h.dropCaches(ctx, r)
	for _, dir := range r.Cleanup {
		if h.FirmwareDir == "" {
			h.Metrics.Cleanup(observe.CleanupSkipped)
			h.Log.Warn("directory of an ended job not removed: no firmware directory is configured",
				"job_id", r.ID.String(), "directory", dir)
			continue
		}
		result, err := h.removeDirectory(dir)
		h.Metrics.Cleanup(result)
		switch result {
		case observe.CleanupRemoved:
			h.Log.Info("directory of an ended job removed", "job_id", r.ID.String(), "directory", dir)
		case observe.CleanupNotFound:
			h.Log.Info("directory of an ended job does not exist", "job_id", r.ID.String(), "directory", dir)
		default:
			failed = true
			h.Log.Warn("directory of an ended job not removed", "job_id", r.ID.String(), "directory", dir, "err", err)
		}
	}
	if again := now.Add(h.Limits.CleanupPause); failed && again.Before(r.FinishedAt.Add(h.Retention)) {
		return h.rearm(ctx, bus.TimerCleanup, r.ID, again)
	}
	return nil
}

// lastCleanup tries once more before the record, and the plan with it, is
// removed. It is the first try if no replica ran during the whole retention.
func (h *Handler) lastCleanup(ctx context.Context, r *job.Record) {
	h.dropCaches(ctx, r)
	if h.FirmwareDir == "" {
		return
	}
	for _, dir := range r.Cleanup {
		switch result, err := h.removeDirectory(dir); result {
		case observe.CleanupNotFound: // as it should be by now
		case observe.CleanupRemoved:
			h.Metrics.Cleanup(result)
			h.Log.Info("directory of an ended job removed", "job_id", r.ID.String(), "directory", dir)
		default:
			h.Metrics.Cleanup(result)
			h.Log.Error("removal of a directory given up with the end of its job's retention; it is left behind",
				"job_id", r.ID.String(), "directory", dir, "err", err)
		}
	}
}

// dropCaches removes what the catalogue has of the directories, and reports whether
// that went well.
func (h *Handler) dropCaches(ctx context.Context, r *job.Record) bool {
	ok := true
	for _, dir := range r.Cleanup {
		cache, is := artifact.EphemeralCache(dir)
		if !is || h.Caches == nil {
			continue
		}
		if err := h.Caches.DropCache(ctx, cache); err != nil {
			ok = false
			h.Log.Warn("artifacts of an ended job not removed from the catalogue", "job_id", r.ID.String(), "cache", cache, "err", err)
		}
	}
	return ok
}

// removeDirectory removes a directory below the firmware directory with all it
// contains and returns the result as metrics name it. os.Root keeps symbolic
// links from leading elsewhere.
func (h *Handler) removeDirectory(dir string) (string, error) {
	if err := job.CheckCleanup([]string{dir}); err != nil {
		return observe.CleanupFailed, err
	}
	root, err := os.OpenRoot(h.FirmwareDir)
	if err != nil {
		// Not "not found": the directory may be on a share that is away.
		return observe.CleanupFailed, fmt.Errorf("open firmware directory: %w", err)
	}
	defer root.Close() //nolint:errcheck // nothing was written through it
	switch _, err := root.Lstat(dir); {
	case errors.Is(err, fs.ErrNotExist):
		return observe.CleanupNotFound, nil
	case err != nil:
		return observe.CleanupFailed, err
	}
	if err := root.RemoveAll(dir); err != nil {
		return observe.CleanupFailed, err
	}
	return observe.CleanupRemoved, nil
}
