// SPDX-License-Identifier: Apache-2.0

package firmware

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/services/switch-agent/internal/device"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nvue"
)

// changed reports whether the switch shows the component differently than right
// before the installation: with a version that waits, or a new one.
func (s *stepRun) changed(ctx context.Context) (bool, error) {
	now, err := s.show(ctx)
	if err != nil {
		return false, err
	}
	before := s.state().Before
	return len(before) > 0 && !bytes.Equal(bytes.TrimSpace(now), bytes.TrimSpace(before)), nil
}

// observe finds out whether an installation was begun of which no answer came. One
// that has not shown in time never began: installing the same file again waits for
// the same activation.
func (s *stepRun) observe(ctx context.Context) (agent.Observation, error) {
	if st := s.state(); st.Started || st.over() {
		return agent.ObservedDone, nil
	}
	shown, err := s.u.appears(ctx, s.changed)
	switch {
	case err != nil:
		return agent.ObservedUnknown, err
	case shown:
		s.state().Started = true
		return agent.ObservedDone, s.u.save()
	default:
		return agent.ObservedNotStarted, nil
	}
}

// appears looks for a sign until the time is over in which it would have shown. A
// switch that does not answer is waited for.
func (u *update) appears(ctx context.Context, sign func(context.Context) (bool, error)) (bool, error) {
	t := &u.u.opts.Timing
	end := time.Now().Add(t.InstallSettle)
	for {
		shown, err := sign(ctx)
		switch {
		case err == nil && shown:
			return true, nil
		case err != nil && !passing(err):
			return false, err
		case !time.Now().Before(end):
			return false, err
		}
		if err := u.t.Sleep(ctx, t.ReadPause); err != nil {
			return false, err
		}
	}
}

// monitor follows the installation to its end.
func (s *stepRun) monitor(ctx context.Context) error {
	summary, err := s.u.follow(ctx, installation{
		id: s.state().InstallID, label: s.target, changed: s.changed, reboot: s.rebootLimit(),
	})
	if err != nil {
		return s.failed(ctx, phasePoll, err)
	}
	st := s.state()
	st.Done, st.Summary = true, summary
	return s.u.save()
}

func (s *stepRun) rebootLimit() time.Duration {
	if s.image() {
		return s.u.u.opts.Timing.ImageRebootLimit
	}
	return s.u.u.opts.Timing.RebootLimit
}

// installation is one that the switch has taken.
type installation struct {
	// id is its action, empty when its answer was lost.
	id    nvue.ActionID
	label string
	// changed looks for its effect, which judges one whose action is gone.
	changed func(context.Context) (bool, error)
	// reboot bounds a restart in it.
	reboot time.Duration
}

// follow polls an installation to its end. All of it, restarts included, has one
// limit.
func (u *update) follow(ctx context.Context, in installation) (summary string, err error) {
	t := &u.u.opts.Timing
	ctx, cancel := context.WithTimeoutCause(ctx, t.InstallLimit, errInstallLimit)
	defer cancel()
	for {
		over, summary, err := u.lookAt(ctx, in)
		if errors.Is(context.Cause(ctx), errInstallLimit) {
			return "", agent.Fail(job.FailureTaskTimeout, phasePoll,
				fmt.Sprintf("Poll failed for target %s: the installation did not end within %s", in.label, t.InstallLimit), err)
		}
		if over || err != nil {
			return summary, err
		}
		if err := u.t.Sleep(ctx, t.InstallPoll); err != nil && !errors.Is(context.Cause(ctx), errInstallLimit) {
			return "", err
		}
	}
}

var errInstallLimit = errors.New("the limit of the installation is over")

func (u *update) lookAt(ctx context.Context, in installation) (over bool, summary string, err error) {
	if in.id == "" {
		return u.judge(ctx, in)
	}
	status, err := u.readAction(ctx, in.id)
	switch {
	case errors.Is(err, nvue.ErrActionGone):
		return u.judge(ctx, in)
	case err != nil && passing(err):
		// It may be restarting without having said so.
		return u.returned(ctx, in, true)
	case err != nil:
		return false, "", err
	}
	switch status.Verdict {
	case nvue.ActionSucceeded:
		return true, orDone(status.Text()), nil
	case nvue.ActionHandedOff:
		return u.returned(ctx, in, false)
	case nvue.ActionRunning:
		if status.Percent >= 0 {
			u.t.Progress(status.Percent, "Running firmware workflow for target "+in.label)
		}
		return false, "", nil
	default:
		return false, "", agent.Fail(job.FailureTaskException, phasePoll,
			fmt.Sprintf("Poll failed for target %s: the installation failed: %s (state %s)", in.label, orNone(status.Text()), status.State), nil)
	}
}

// judge decides about an installation whose action the switch does not know by
// what it shows of the component.
func (u *update) judge(ctx context.Context, in installation) (over bool, summary string, err error) {
	changed, err := in.changed(ctx)
	switch {
	case err != nil && passing(err):
		return u.returned(ctx, in, true)
	case err != nil:
		return false, "", err
	case changed:
		return true, "the switch has forgotten the action; it shows the new firmware", nil
	default:
		return false, "", agent.Fail(job.FailureTaskLost, phasePoll,
			fmt.Sprintf("Poll failed for target %s: the switch has forgotten the installation, and shows nothing of it", in.label), nil)
	}
}

// returned waits until a switch that goes down for an installation is back. away
// says that it does not answer already. A switch that never goes down is judged by
// what it shows.
func (u *update) returned(ctx context.Context, in installation, away bool) (over bool, summary string, err error) {
	t := &u.u.opts.Timing
	end, announced := time.Now().Add(in.reboot), !away
	for {
		err := u.probe(ctx, t.RebootProbe)
		switch {
		case err != nil && !passing(err):
			return false, "", err
		case err != nil:
			away = true
		case away && !announced:
			return false, "", nil // it was only away; the action tells more
		case away:
			return true, "the switch restarted in the installation", nil
		}
		if !time.Now().Before(end) {
			break
		}
		if err := u.t.Sleep(ctx, t.RebootPoll); err != nil {
			return false, "", err
		}
	}
	if away {
		return false, "", agent.Fail(job.FailureSwitchNotReady, phasePoll,
			fmt.Sprintf("Poll failed for target %s: the switch did not come back within %s", in.label, in.reboot), nil)
	}
	if changed, err := in.changed(ctx); err == nil && changed {
		return true, "the switch shows the new firmware", nil
	}
	return false, "", agent.Fail(job.FailureTaskException, phasePoll,
		fmt.Sprintf("Poll failed for target %s: the switch announced a restart and did not go down within %s", in.label, in.reboot), nil)
}

// probe asks for the inventory, which answers once the switch is up.
func (u *update) probe(ctx context.Context, limit time.Duration) error {
	c, err := u.client(ctx, limit)
	if err != nil {
		return err
	}
	_, err = c.Firmware(ctx)
	return err
}

// patiently reads several times while the switch does not answer.
func (u *update) patiently(ctx context.Context, read func(context.Context) error) error {
	t := &u.u.opts.Timing
	for attempt := 1; ; attempt++ {
		err := read(ctx)
		if err == nil || attempt >= t.ReadAttempts || !passing(err) {
			return err
		}
		if err := u.t.Sleep(ctx, t.ReadPause); err != nil {
			return err
		}
	}
}

// readAction reads an action.
func (u *update) readAction(ctx context.Context, id nvue.ActionID) (status nvue.ActionStatus, err error) {
	err = u.patiently(ctx, func(ctx context.Context) error {
		status, err = u.readOnce(ctx, id)
		return err
	})
	return status, err
}

func (u *update) readOnce(ctx context.Context, id nvue.ActionID) (nvue.ActionStatus, error) {
	c, err := u.client(ctx, u.u.opts.Timing.Install)
	if err != nil {
		return nvue.ActionStatus{}, err
	}
	return c.LookAtAction(ctx, id, nvue.FirmwareActions())
}

// passing reports errors of a switch that restarts: none or bad connections, and
// answers of a service that is not up yet.
func passing(err error) bool {
	if device.Passes(err) {
		return false
	}
	var answered *nvue.Error
	return nvue.Retryable(err) || errors.Is(err, nvue.ErrServerCertificate) ||
		errors.As(err, &answered) && answered.Status >= 500
}

func orNone(text string) string {
	if text == "" {
		return "the switch gives no reason"
	}
	return text
}

func orDone(text string) string {
	if text == "" {
		return "done"
	}
	return text
}
