// SPDX-License-Identifier: Apache-2.0

package firmware

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

// followImage makes sure that an image brings the firmware of the ASIC, before the
// image is installed. The change is a revision whose id is kept before it is
// applied: whoever takes over looks at it, and at the setting, not at its notes.
func (u *update) followImage(ctx context.Context) error {
	if u.state.Steps[0].Skipped != "" {
		return agent.Skip(u.state.Steps[0].Skipped)
	}
	c, err := u.client(ctx, u.u.opts.Timing.Inventory)
	if err != nil {
		return fail(phaseValidation, "", err)
	}
	set, err := c.ASICFirmware(ctx)
	if err != nil {
		return fail(phaseValidation, "", err)
	}
	if !set.FollowsImage() {
		if err := u.setASIC(ctx, c); err != nil {
			return fail(phaseValidation, "", err)
		}
		if set, err = c.ASICFirmware(ctx); err != nil {
			return fail(phaseValidation, "", err)
		}
		if !set.FollowsImage() {
			return agent.Fail(job.FailurePreconditionFailed, phaseValidation,
				fmt.Sprintf("the firmware of the ASIC does not follow the image (auto-update %q, fw-source %q)", set.AutoUpdate, set.Source), nil)
		}
	}
	// An earlier change may have been applied and not saved.
	if rev := u.state.ASICRevision; rev != "" {
		return fail(phaseValidation, "", c.SaveRevision(ctx, rev))
	}
	return nil
}

func (u *update) setASIC(ctx context.Context, c *nvue.Client) error {
	rev := u.state.ASICRevision
	if rev == "" {
		var err error
		if rev, err = c.CreateRevision(ctx); err != nil {
			return err
		}
		if err := c.StageRevision(ctx, rev, nvue.SetASICFollowsImage()); err != nil {
			return err
		}
		u.state.ASICRevision = rev
		if err := u.t.Save(ctx, u.state); err != nil {
			return err
		}
	}
	if err := u.t.Failpoint(FailBeforeApply); err != nil {
		return err
	}
	err := u.applyASIC(ctx, c, rev)
	if err != nil && !device.Passes(err) && ctx.Err() == nil {
		u.state.ASICRevision = ""
		if derr := c.DiscardRevision(ctx, rev); derr != nil {
			u.t.Logger().Warn("revision not discarded", "op", "asic", "err", derr)
		}
	}
	return err
}

// FailBeforeApply is the failpoint between the staging of the ASIC's settings and
// their application.
const FailBeforeApply = "switchagent.asic_before_apply"

// applyASIC applies a staged revision, unless that has happened, and waits for it.
func (u *update) applyASIC(ctx context.Context, c *nvue.Client, rev nvue.Revision) error {
	t := &u.u.opts.Timing
	s, err := c.LookAtRevision(ctx, rev)
	if err != nil {
		return err
	}
	if s.Untouched {
		if err := c.ApplyRevision(ctx, rev); err != nil && !nvue.OutcomeUnknown(err) {
			return err
		}
	}
	for end := time.Now().Add(t.ASICLimit); ; {
		switch s, err = c.LookAtRevision(ctx, rev); {
		case err != nil && !nvue.Retryable(err):
			return err
		case err == nil && s.Verdict == nvue.RevisionFailed:
			return fmt.Errorf("the switch does not let the ASIC follow the image: %s (state %s)", orNone(s.Issue), s.State)
		case err == nil && s.Verdict != nvue.RevisionPending:
			return nil
		case !time.Now().Before(end):
			return errors.Join(fmt.Errorf("the settings of the ASIC were not applied within %s, last state %q", t.ASICLimit, s.State), err)
		}
		if err := u.t.Sleep(ctx, t.ASICPoll); err != nil {
			return err
		}
	}
}
