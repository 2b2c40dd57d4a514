// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/services/switch-agent/internal/device"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nvue"
)

// prepareCleanup looks whether the partition that does not run has an image: an
// installation needs it to be empty.
func (w *update) prepareCleanup(ctx context.Context) error {
	empty := false
	err := w.told(stageCleanup, job.FailureTaskException, func(ctx context.Context) (err error) {
		empty, err = w.partitionEmpty(ctx)
		return err
	})(ctx)
	if err == nil && empty {
		return agent.Skip("the unused partition is empty")
	}
	return err
}

func (w *update) partitionEmpty(ctx context.Context) (bool, error) {
	if w.state.Uninstalling { // by an owner of an earlier version, who has noted no intent
		if seen, err := w.observeCleanup(ctx); err != nil || seen == agent.ObservedDone {
			return err == nil, err
		}
	}
	now, err := w.lookPatiently(ctx)
	if err != nil {
		return false, err
	}
	partition, build := now.UnusedPartition()
	if partition == "" {
		w.note(stageCleanup, map[string]any{"job_id": w.t.ID().String(), "partition_id": now.Current})
		return false, agent.Fail(job.FailurePreconditionFailed, stageCleanup,
			fmt.Sprintf("the switch runs from %q, which is none of its two partitions", now.Current), nil)
	}
	w.state.Uninstalling, w.state.UninstallID = build != "", ""
	return build == "", w.t.Set(w.state)
}

// uninstall removes the image. While the switch is at that, the job is not left.
func (w *update) uninstall(ctx context.Context) error {
	if err := w.sw.Initialize(ctx); err != nil {
		return err
	}
	id, err := w.sw.NVUE.StartAction(ctx, nvue.UninstallImage())
	if err != nil {
		return device.Uncertain(err)
	}
	w.t.InFlight("action " + string(id))
	if err := w.t.Failpoint(agent.FailAfterDeviceChange); err != nil {
		return err
	}
	w.state.UninstallID = id
	if err := w.t.Save(ctx, w.state); err != nil {
		return err
	}
	return w.awaitUninstall(ctx)
}

// observeCleanup looks what has become of a removal that was asked for, or may have
// been. It takes seconds: one that has not shown after the limit never began.
func (w *update) observeCleanup(ctx context.Context) (agent.Observation, error) {
	if w.state.UninstallID != "" {
		if err := w.told(stageCleanup, job.FailureTaskException, w.awaitUninstall)(ctx); err != nil {
			return agent.ObservedUnknown, err
		}
		return agent.ObservedDone, nil
	}
	end := time.Now().Add(w.u.opts.Timing.UninstallLimit)
	for {
		cleared, err := w.cleared(ctx)
		switch over := !time.Now().Before(end); {
		case err == nil && cleared:
			return agent.ObservedDone, nil
		case err != nil && (over || !nvue.Retryable(err)):
			return agent.ObservedUnknown, err
		case over:
			w.state.Uninstalling = false
			return agent.ObservedNotStarted, nil
		}
		if err := w.t.Sleep(ctx, w.u.opts.Timing.UninstallPoll); err != nil {
			return agent.ObservedUnknown, err
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
