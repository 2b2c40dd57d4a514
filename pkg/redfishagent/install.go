// SPDX-License-Identifier: Apache-2.0

package redfishagent

import (
	"context"
	"fmt"
	"time"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/redfish"
)

// taskRescue tells that an update whose task was lost was found in force.
type taskRescue struct {
	Recovery        string       `json:"recovery"`
	TaskID          string       `json:"task_id"`
	ExpectedVersion string       `json:"expected_version"`
	PollError       string       `json:"poll_error"`
	VersionCheck    *checkReport `json:"version_check"`
}

// rescueTag marks a Supermicro BMC whose new version proves a lost task's success.
const rescueTag = "supermicro_bmc_task_loss_firmware_manifest_version_match"

// install waits for the device's task. A task that is gone, or that never was,
// is judged by the installed version and not by silence.
func (p *pkgStages) install(ctx context.Context) error {
	s := p.state()
	p.following() // an earlier owner may not have told
	switch {
	case s.Skipped != "":
		return agent.Skip(s.Skipped)
	case s.Done:
		return nil
	case s.Supplies != nil:
		return p.installSupplies(ctx)
	case s.Untracked:
		const told = "the device accepted the image without naming a task"
		_, err := p.judge(ctx, told, p.u.d.opts.Timing.UntrackedLimit)
		return err
	}
	started := time.Now()
	for {
		o := p.pollOptions()
		o.Limit = max(o.Limit-time.Since(started), time.Millisecond)
		result, err := p.u.c.WaitTask(ctx, s.Task, o)
		if err != nil {
			return fail(phasePoll, p.label, err)
		}
		if result.Outcome != redfish.TaskGone {
			return p.ended(result, time.Since(started))
		}
		p.u.t.Logger().Warn("task of the device is gone, judging by versions", "op", "install", "err", result.Err)
		told := fmt.Sprintf("task %s disappeared", s.Task)
		if redfish.CodeOf(result.Err) != redfish.CodeNotFound {
			told = fmt.Sprintf("task %s could not be read any more (%v)", s.Task, result.Err)
		}
		back, err := p.judge(ctx, told, p.u.d.opts.Timing.LostTaskWindow)
		if err != nil || !back {
			return err
		}
		p.u.t.Logger().Info("task of the device is back", "op", "install", "task", s.Task.String())
	}
}

// ended tells how a task has ended that was there to its end.
func (p *pkgStages) ended(result redfish.TaskResult, took time.Duration) error {
	s := p.state()
	switch result.Outcome {
	case redfish.TaskFinished:
		return p.finish(result.Task.Text)
	case redfish.TaskLimitPassed:
		return fail(phasePoll, p.label, fmt.Errorf("polling firmware task %s exceeded timeout of %.0fs, its last state is %s at %d percent: %w",
			s.Task, took.Seconds(), result.Task.State, result.Task.Percent, result.Err))
	case redfish.TaskEndedBadly:
		return fail(phasePoll, p.label, result.Err)
	case redfish.TaskGone:
	}
	return fail(phasePoll, p.label, fmt.Errorf("task %s ended as %q", s.Task, result.Outcome))
}

func (p *pkgStages) pollOptions() redfish.PollOptions {
	o := p.u.d.opts.Timing.TaskPoll
	if o.Limit <= 0 {
		o.Limit = p.u.c.Profile().TaskLimit
	}
	o.Progress = func(percent int, message string) {
		text := fmt.Sprintf("Polling firmware task %s for target %s", p.state().Task, p.label)
		if message != "" {
			text += ": " + message
		}
		p.u.t.Progress(percent, text)
	}
	return o
}

func (p *pkgStages) finish(summary string) error {
	s := p.state()
	s.Done, s.Summary = true, summary
	p.u.t.InFlight("")
	p.u.withdraw()
	return p.save()
}

// judge waits until the package's versions, or where it names none any change,
// show in the inventory. told says why the versions have to decide. Versions that
// were there before the upload prove nothing while the device may still be writing:
// they count when the time is over. back says that the task was found again: a BMC that
// has restarted shows those of the baseboard once it has found its controller.
func (p *pkgStages) judge(ctx context.Context, told string, limit time.Duration) (back bool, err error) {
	s := p.state()
	end := time.Now().Add(limit)
	had := redfish.CompareVersions(s.Expected, inventoryOf(s.VersionsBefore)).Status == redfish.VersionMatched
	for {
		over := !time.Now().Before(end)
		inventory, err := p.u.inventory(ctx)
		if err != nil && (!transient(err) || over) {
			return false, fail(phasePoll, p.label, err)
		}
		report := redfish.CompareVersions(s.Expected, inventory)
		unknown := report.Status == redfish.VersionUnverified
		switch {
		case err != nil:
		case report.Status == redfish.VersionMatched && had && over:
			return false, p.finish(told + "; the version of the package, which was installed before, still is")
		case report.Status == redfish.VersionMatched && !had, unknown && changed(s.VersionsBefore, inventory, p.item.LostTask):
			p.rescued(told, report)
			return false, p.finish(told + "; the new version is installed")
		}
		if !s.Task.IsZero() {
			if _, terr := p.u.c.Task(ctx, s.Task); terr == nil {
				return true, nil
			}
		}
		if over {
			return false, p.taskLost(told, report)
		}
		p.u.t.Progress(0, "Waiting for the new version of target "+p.label)
		if err := p.u.t.Sleep(ctx, p.u.d.opts.Timing.TaskPoll.Interval); err != nil {
			return false, err
		}
	}
}

// rescued notes how a lost task was judged where the product's rule says so.
func (p *pkgStages) rescued(told string, report redfish.VersionReport) {
	s := p.state()
	if p.item.LostTask == "" || s.Untracked || report.Status != redfish.VersionMatched {
		return
	}
	s.Rescue = &taskRescue{
		Recovery: rescueTag, TaskID: s.Task.String(), ExpectedVersion: s.Expected[0].Version, PollError: told,
		VersionCheck: p.g.report(report),
	}
}

func (p *pkgStages) taskLost(told string, report redfish.VersionReport) error {
	text := "no version has changed"
	if err := report.Err(); err != nil {
		text = "the old version is still installed: " + err.Error()
	}
	f := agent.Fail(job.FailureTaskLost, phasePoll, "Poll failed for target "+p.label+": "+told+", and "+text, nil)
	f.Failure.Code = job.CodeOther
	return f
}
