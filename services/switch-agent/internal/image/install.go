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
	"github.com/rackbus/rackbus/services/switch-agent/internal/upload"
)

// stage puts the image onto the switch.
func (w *update) stage(ctx context.Context) error {
	f, err := w.open(ctx)
	if err != nil {
		return err
	}
	defer f.Close()
	name := w.cmd.GetImageFilename()
	w.state.VisibleBefore = w.listed(ctx, name)
	done, err := w.u.opts.Uploads.Send(ctx, w.sw, upload.File{
		Source: f, Dir: Dir, Name: name,
		Progress: func(sent, total int64) {
			w.t.Progress(int(100*sent/max(total, 1)), "Staging the image on the switch")
		},
	}, w.u.opts.Upload)
	w.note(stageStage, map[string]any{"image_visible_before_stage": w.state.VisibleBefore, "image_size_bytes": f.Size()})
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		w.note(stageStage, map[string]any{"cancelled": false})
		return err
	}
	w.state.VisibleAfter = w.listed(ctx, name)
	details := map[string]any{"image_visible_after_stage": w.state.VisibleAfter}
	if rate := done.Rate(); rate > 0 {
		details["average_rate_bytes_per_second"] = rate
		details["average_rate_mib_per_second"] = rate / (1 << 20)
	}
	w.note(stageStage, details)
	w.t.Logger().Info("image on the switch", "op", stageStage, "unchanged", done.Unchanged, "sent", done.Sent, "resumed", done.Resumed)
	return nil
}

// listed reports whether the switch lists the image. It is for people: the install
// itself tells more.
func (w *update) listed(ctx context.Context, name string) bool {
	if w.sw.Initialize(ctx) != nil {
		return false
	}
	listing, err := w.sw.NVUE.ImageFiles(ctx)
	if err != nil {
		w.t.Logger().Warn("image files not listed", "op", stageStage, "err", err)
		return false
	}
	return nvue.ListsFile(listing, name)
}

// prepareInstall notes what observing the installation needs.
func (w *update) prepareInstall(ctx context.Context) error {
	now, err := w.lookPatiently(ctx)
	if err != nil {
		return err
	}
	w.state.AtInstall, w.state.InstallID = &now, ""
	return w.t.Set(w.state)
}

// install begins the installation. The switch reboots by itself.
func (w *update) install(ctx context.Context) error {
	if err := w.sw.Initialize(ctx); err != nil {
		return err
	}
	id, err := w.sw.NVUE.StartAction(ctx, nvue.InstallImage(w.cmd.GetImageFilename()))
	if err != nil {
		return device.Uncertain(err)
	}
	w.t.InFlight("action " + string(id))
	if err := w.t.Failpoint(agent.FailAfterDeviceChange); err != nil {
		return err
	}
	w.state.InstallID = id
	w.note(stageTrigger, map[string]any{"install_job_id": string(id)})
	return w.t.Set(w.state)
}

// installed reports whether the image state shows that an installation has taken
// place since it was noted: the image is in a partition, runs, or runs next, where
// it was not.
func (w *update) installed(now nvue.ImageState) bool {
	want, before := w.cmd.GetTargetBuildId(), w.state.AtInstall
	if before == nil {
		return false
	}
	for _, place := range []struct{ before, now string }{
		{before.CurrentBuild, now.CurrentBuild}, {before.NextBuild, now.NextBuild},
		{before.Partition1Build, now.Partition1Build}, {before.Partition2Build, now.Partition2Build},
	} {
		if place.now == want && place.before != want {
			return true
		}
	}
	return false
}

// observeInstall finds out whether an installation was begun whose answer is not
// known. An installation that was begun shows within its limit: in the image state,
// or because the switch goes down; then what it boots tells, and has as long as any
// boot.
func (w *update) observeInstall(ctx context.Context) (agent.Observation, error) {
	if w.state.InstallID != "" {
		return agent.ObservedDone, nil
	}
	t := &w.u.opts.Timing
	end, away := time.Now().Add(t.HandoffLimit), false
	last := end
	for _, window := range t.SteadyWindows {
		last = last.Add(window)
	}
	for {
		now, err := w.look(ctx)
		switch {
		case err == nil && w.installed(now):
			return agent.ObservedDone, nil
		case errors.Is(err, nvue.ErrUnauthenticated):
			// The factory's password is back: no other image than ours does that.
			return agent.ObservedDone, nil
		case err != nil && !passing(err):
			return agent.ObservedUnknown, err
		case err != nil:
			away = true
			if end = time.Now().Add(t.HandoffLimit); end.After(last) {
				end = last
			}
		}
		if !time.Now().Before(end) {
			break
		}
		if err := w.t.Sleep(ctx, t.HandoffPoll); err != nil {
			return agent.ObservedUnknown, err
		}
	}
	if away {
		return agent.ObservedUnknown, nil
	}
	return agent.ObservedNotStarted, nil
}

// awaitHandoff follows the installation until the switch goes down for it.
func (w *update) awaitHandoff(ctx context.Context) error {
	t := &w.u.opts.Timing
	end := time.Now().Add(t.HandoffLimit)
	for {
		over, away, err := w.handedOff(ctx)
		if over || err != nil {
			return err
		}
		if !time.Now().Before(end) {
			if away {
				return nil // it went down without a word; what it boots will tell
			}
			return agent.Fail(job.FailureTaskTimeout, stageHandoff,
				fmt.Sprintf("the switch did not go down for the installation within %s", t.HandoffLimit), nil)
		}
		if err := w.t.Sleep(ctx, t.HandoffPoll); err != nil {
			return err
		}
	}
}

// handedOff looks once. away says that the switch does not answer.
func (w *update) handedOff(ctx context.Context) (over, away bool, err error) {
	if err := w.sw.Initialize(ctx); err != nil {
		return w.afterError(err)
	}
	if w.state.InstallID == "" {
		return w.shows(ctx)
	}
	status, err := w.sw.NVUE.LookAtAction(ctx, w.state.InstallID, nvue.ImageActions())
	var answered *nvue.Error
	switch {
	case errors.Is(err, nvue.ErrUnauthenticated):
		return true, false, nil
	case errors.As(err, &answered) && answered.Status != 0:
		// It is up and does not tell of the action (any more).
		return w.shows(ctx)
	case err != nil:
		return w.afterError(err)
	case status.Verdict == nvue.ActionFailed:
		w.note(stageHandoff, map[string]any{"job_id": string(w.state.InstallID)})
		return false, false, agent.Fail(job.FailureTaskException, stageHandoff,
			fmt.Sprintf("the installation failed: %s (state %s)", orNone(status.Text()), status.State), nil)
	case status.Verdict == nvue.ActionRunning:
		if status.Percent >= 0 {
			w.t.Progress(status.Percent, "Waiting for the switch to reboot into the image")
		}
		return false, false, nil
	default:
		return true, false, nil
	}
}

// shows judges the installation by the image state.
func (w *update) shows(ctx context.Context) (over, away bool, err error) {
	now, err := w.look(ctx)
	if err != nil {
		return w.afterError(err)
	}
	return w.installed(now), false, nil
}

// afterError judges a look that failed: a switch that refuses our password runs
// another image, one that does not answer may be on its way down.
func (w *update) afterError(err error) (over, away bool, _ error) {
	switch {
	case errors.Is(err, nvue.ErrUnauthenticated):
		return true, false, nil
	case !passing(err):
		return false, false, err
	default:
		return false, nvue.Retryable(err), nil
	}
}

// passing reports errors of a switch that restarts: none or bad connections, and
// any answer of a service that is not up yet.
func passing(err error) bool {
	var answered *nvue.Error
	return nvue.Retryable(err) || errors.Is(err, nvue.ErrServerCertificate) ||
		errors.As(err, &answered) && answered.Status != 0 && !device.Passes(err)
}

func orNone(text string) string {
	if text == "" {
		return "the switch gives no reason"
	}
	return text
}
