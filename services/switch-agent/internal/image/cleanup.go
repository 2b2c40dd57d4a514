// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nvue"
)

// cleanPartition removes the image from the partition that does not run: an
// installation needs it to be empty.
func (w *update) cleanPartition(ctx context.Context) error {
	empty := false
	err := w.told(stageCleanup, job.FailureTaskException, func(ctx context.Context) (err error) {
		empty, err = w.cleanup(ctx)
		return err
	})(ctx)
	if err == nil && empty {
		return agent.Skip("the unused partition is empty")
	}
	return err
}

// cleanup reports whether there was nothing to remove.
func (w *update) cleanup(ctx context.Context) (empty bool, err error) {
	if w.state.Uninstalling {
		return false, w.resumeCleanup(ctx)
	}
	now, err := w.lookPatiently(ctx)
	if err != nil {
		return false, err
	}
	partition, build := now.UnusedPartition()
	switch {
	case partition == "":
		w.note(stageCleanup, map[string]any{"job_id": w.t.ID().String(), "partition_id": now.Current})
		return false, agent.Fail(job.FailurePreconditionFailed, stageCleanup,
			fmt.Sprintf("the switch runs from %q, which is none of its two partitions", now.Current), nil)
	case build == "":
		return true, nil
	}
	return false, w.uninstall(ctx)
}

func (w *update) uninstall(ctx context.Context) error {
	w.state.Uninstalling, w.state.UninstallID = true, ""
	if err := w.t.Save(ctx, w.state); err != nil {
		return err
	}
	if err := w.t.Failpoint(agent.FailAfterIntent); err != nil {
		return err
	}
	id, err := w.sw.NVUE.StartAction(ctx, nvue.UninstallImage())
	switch {
	case nvue.OutcomeUnknown(err) && !errors.Is(err, nvue.ErrNotHeld):
		return w.resumeCleanup(ctx)
	case err != nil:
		return err
	}
	if ferr := w.t.Failpoint(agent.FailAfterDeviceChange); ferr != nil {
		return ferr
	}
	w.state.UninstallID = id
	if err := w.t.Save(ctx, w.state); err != nil {
		return err
	}
	return w.awaitUninstall(ctx)
}

// resumeCleanup goes on where the removal was asked for, or may have been.
func (w *update) resumeCleanup(ctx context.Context) error {
	if w.state.UninstallID != "" {
		return w.awaitUninstall(ctx)
	}
	// The removal takes seconds: one that has not shown after the limit never began.
	end := time.Now().Add(w.u.opts.Timing.UninstallLimit)
	for {
		cleared, err := w.cleared(ctx)
		switch {
		case err == nil && cleared:
			return nil
		case err != nil && !nvue.Retryable(err):
			return err
		case !time.Now().Before(end) && err != nil:
			return err
		case !time.Now().Before(end):
			return w.uninstall(ctx)
		}
		if err := w.t.Sleep(ctx, w.u.opts.Timing.UninstallPoll); err != nil {
			return err
		}
	}
}

func (w *update) cleared(ctx context.Context) (bool, error) {
	now, err := w.look(ctx)
	if err != nil {
		return false, err
	}
	partition, build := now.UnusedPartition()
	return partition != "" && build == "", nil
}

// awaitUninstall follows the action to its end. A failed one ends at once.
func (w *update) awaitUninstall(ctx context.Context) error {
	if err := w.sw.Initialize(ctx); err != nil {
		return err
	}
	id := w.state.UninstallID
	status, err := w.sw.NVUE.AwaitAction(ctx, id, nvue.ImageActions(), nvue.ActionWait{
		Interval: w.u.opts.Timing.UninstallPoll, Limit: w.u.opts.Timing.UninstallLimit,
		Retry: func(error) bool { return false },
	})
	if errors.Is(err, nvue.ErrActionGone) {
		// What it has come to shows in the partition.
		if cleared, lerr := w.cleared(ctx); lerr == nil && cleared {
			return nil
		}
	}
	if err != nil {
		w.note(stageCleanup, map[string]any{"job_id": string(id)})
		return err
	}
	if status.Text() != "" {
		w.t.Logger().Info("old image removed", "op", stageCleanup, "detail", status.Text())
	}
	return nil
}
