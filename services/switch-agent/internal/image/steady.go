// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/ssh"
	"github.com/rackbus/rackbus/services/switch-agent/internal/device"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nvue"
)

// awaitSteady waits until the new image runs, and will after another reboot.
func (w *update) awaitSteady(ctx context.Context) error {
	t := &w.u.opts.Timing
	if !w.state.Settled {
		if err := w.t.Sleep(ctx, t.SteadySettle); err != nil {
			return err
		}
		w.state.Settled = true
		if err := w.t.Save(ctx, w.state); err != nil {
			return err
		}
	}
	var last error
	for i, window := range t.SteadyWindows {
		w.t.Progress(100*i/len(t.SteadyWindows), fmt.Sprintf("Waiting for the target image to run (window %d of %d)", i+1, len(t.SteadyWindows)))
		done, err := w.window(ctx, window, &last)
		if err != nil {
			return err
		}
		if done {
			return w.acceptHostKey(ctx)
		}
	}
	return w.neverSteady(last)
}

// window looks until the image runs or the time is over.
func (w *update) window(ctx context.Context, window time.Duration, last *error) (done bool, err error) {
	end := time.Now().Add(window)
	for {
		now, err := w.look(ctx)
		*last = err
		switch {
		case err == nil:
			w.state.After = &now
			w.note(stageSteady, imageDetails(now))
			if w.runs(now) {
				return true, nil
			}
		case errors.Is(err, nvue.ErrUnauthenticated):
			if err := w.recoverAdmin(ctx); err != nil {
				return false, err
			}
		case !passing(err):
			return false, err
		}
		if !time.Now().Before(end) {
			return false, nil
		}
		if err := w.t.Sleep(ctx, w.u.opts.Timing.SteadyPoll); err != nil {
			return false, err
		}
	}
}

// neverSteady tells what runs in place of the image.
func (w *update) neverSteady(last error) error {
	var total time.Duration
	for _, window := range w.u.opts.Timing.SteadyWindows {
		total += window
	}
	want := w.cmd.GetTargetBuildId()
	if last != nil || w.state.After == nil {
		return agent.Fail(job.FailureSwitchNotReady, stageSteady,
			fmt.Sprintf("the switch did not come back with %s within %s: %v", want, total, last), last)
	}
	return agent.Fail(job.FailureVersionMismatch, stageSteady,
		fmt.Sprintf("the switch runs %s and will boot %s after %s, not %s", orUnknown(w.state.After.CurrentBuild),
			orUnknown(w.state.After.NextBuild), total, want), nil)
}

func orUnknown(build string) string {
	if build == "" {
		return "an unknown image"
	}
	return build
}

// acceptHostKey logs in over SSH once, so that the new image's key takes the place
// of the recorded one: it is this job that changed it. The image runs, so that a
// login which does not succeed is told and does not fail the job.
func (w *update) acceptHostKey(ctx context.Context) error {
	if w.state.KeyAccepted {
		return nil
	}
	end := time.Now().Add(w.u.opts.Timing.HostKeyLimit)
	for {
		err := w.login(ctx)
		if err == nil {
			w.state.KeyAccepted = true
			return w.t.Save(ctx, w.state)
		}
		if device.Passes(err) || ctx.Err() != nil {
			return err
		}
		if !ssh.IsKind(err, ssh.KindUnreachable, ssh.KindTimeout, ssh.KindClosed) || !time.Now().Before(end) {
			w.t.Logger().Warn("host key of the new image not recorded", "op", stageSteady, "err", err)
			w.note(stageSteady, map[string]any{"host_key_recorded": false})
			return nil
		}
		if err := w.t.Sleep(ctx, w.u.opts.Timing.SteadyPoll); err != nil {
			return err
		}
	}
}

func (w *update) login(ctx context.Context) error {
	c, err := w.sw.SSH(w.loginOptions()...)
	if err != nil {
		return err
	}
	defer c.Close()
	return c.Connect(ctx)
}

// loginOptions accept another host key until the one of the new image is recorded.
func (w *update) loginOptions() []device.SSHOption {
	if w.state.KeyAccepted {
		return nil
	}
	return []device.SSHOption{device.NewHostKey}
}
