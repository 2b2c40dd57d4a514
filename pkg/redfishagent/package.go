// SPDX-License-Identifier: Apache-2.0

package redfishagent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/redfish"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// packageLabel stands for a package that finds its components itself.
const packageLabel = "package-derived"

// pkgStages are the stages of one package of an update.
type pkgStages struct {
	u      *update
	i, n   int
	target *rackbusv1.FirmwareUpdateTarget
	label  string
}

func (u *update) pkg(i, n int) *pkgStages {
	target := u.cmd.GetTargets()[i]
	label := target.GetComponent()
	if label == "" {
		label = packageLabel
	}
	return &pkgStages{u: u, i: i, n: n, target: target, label: label}
}

// stage numbers a stage name when there are several packages.
func (p *pkgStages) stage(name string) string {
	if p.n == 1 {
		return name
	}
	return fmt.Sprintf("%s_%d", name, p.i+1)
}

func (p *pkgStages) state() *targetState { return &p.u.state.Targets[p.i] }

// check makes sure that the node can take the package, and notes what the device
// looks like before.
func (p *pkgStages) check(ctx context.Context) error {
	p.u.current = p.target
	if p.u.c.Profile().Kind == redfish.KindPowerShelf && redfish.IsPowerUnitPackage(p.target.GetFile(), []string{p.target.GetComponent()}) {
		return agent.Fail(job.FailureInvalidArgument, phaseValidation,
			fmt.Sprintf("%s is an image for power supplies, which this release does not update", p.target.GetFile()), nil)
	}
	img, err := p.u.d.images.open(ctx, p.target)
	if err != nil {
		return err
	}
	defer img.Close() //nolint:errcheck // only read
	if err := p.preconditions(ctx, img.name); err != nil {
		return fail(phaseUpdate, p.label, err)
	}
	if err := p.look(ctx, img); err != nil {
		return fail(phaseUpdate, p.label, err)
	}
	return p.u.t.Set(p.u.state)
}

func (p *pkgStages) preconditions(ctx context.Context, file string) error {
	c := p.u.c
	if c.Profile().Kind == redfish.KindCompute {
		if err := c.CheckWritable(ctx); err != nil {
			return err
		}
		waiting := func(incomplete map[string]string) {
			p.u.t.Progress(0, fmt.Sprintf("Waiting for %d background firmware copies", len(incomplete)))
		}
		if err := c.WaitBackgroundCopy(ctx, waiting); err != nil {
			return err
		}
	}
	task, running, err := c.RunningUpdateTask(ctx, redfish.IsHMCPackage(file))
	if err != nil {
		return err
	}
	if running {
		return agent.Fail(job.FailureUpdateAlreadyRunning, phaseUpdate,
			fmt.Sprintf("the device already runs an update task: %s (state %s); wait for it or cancel it on the device", task.Ref, task.State), nil)
	}
	return nil
}

// look notes the tasks and versions before the upload, and whether the package
// has anything new for the device.
func (p *pkgStages) look(ctx context.Context, img *image) error {
	c, s := p.u.c, p.state()
	tasks, err := c.Tasks(ctx)
	if err != nil {
		return err
	}
	s.TasksBefore = s.TasksBefore[:0]
	for _, t := range tasks {
		s.TasksBefore = append(s.TasksBefore, t.URI)
	}
	if c.Profile().ApplyTime != "" {
		if s.HandoffsBefore, err = c.HandoffTasks(ctx); err != nil {
			return err
		}
	}
	inventory, err := c.FirmwareInventory(ctx)
	var partial *redfish.InventoryError
	if err != nil && !errors.As(err, &partial) {
		return err
	}
	s.VersionsBefore = versionsOf(inventory)
	s.Expected = expected(c.Profile(), p.target, img, inventory)
	s.Skipped = ""
	report := redfish.CompareVersions(s.Expected, inventory)
	if report.Status == redfish.VersionMatched && !p.u.cmd.GetForce() {
		s.Skipped = "already at the version of the package"
	}
	return nil
}

// upload sends the package. The result is the device's task.
func (p *pkgStages) upload(ctx context.Context) error {
	s := p.state()
	p.u.current = p.target
	if s.Skipped != "" {
		return agent.Skip(s.Skipped)
	}
	select {
	case p.u.d.uploads <- struct{}{}:
		defer func() { <-p.u.d.uploads }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	img, err := p.u.d.images.open(ctx, p.target)
	if err != nil {
		return err
	}
	defer img.Close() //nolint:errcheck // only read
	result, err := p.send(ctx, img)
	switch {
	case errors.Is(err, redfish.ErrAcceptedWithoutTask):
		s.Untracked = true
	case err != nil:
		return fail(phaseUpdate, p.label, uncertain(err))
	}
	s.Task, s.Uploaded = result.Task, true
	return p.u.t.Set(p.u.state)
}

func (p *pkgStages) send(ctx context.Context, img *image) (redfish.UploadResult, error) {
	c := p.u.c
	service, err := c.UpdateService(ctx)
	if err != nil {
		return redfish.UploadResult{}, err
	}
	if c.Profile().ApplyTime != "" {
		if err := c.SetApplyTime(ctx, redfish.ShelfApplyTime); err != nil {
			return redfish.UploadResult{}, err
		}
	}
	return c.Upload(ctx, service, redfish.UploadRequest{
		File: img, Size: img.size, Name: img.name,
		Targets:     c.Profile().UpdateTargets(p.target.GetComponent(), img.name),
		ForceUpdate: p.u.cmd.GetForce(),
		Progress: func(sent, total int64) {
			if total > 0 {
				p.u.t.Progress(int(100*sent/total), fmt.Sprintf("Uploading target %d/%d: %s", p.i+1, p.n, p.label))
			}
		},
	})
}

// observe looks for what an interrupted upload has left on the device: a task
// that was not there before, or a version that has changed.
func (p *pkgStages) observe(ctx context.Context) (agent.Observation, error) {
	c, s := p.u.c, p.state()
	p.u.current = p.target
	if err := c.WaitReady(ctx); err != nil {
		return agent.ObservedUnknown, fail(phaseUpdate, p.label, err)
	}
	tasks, err := c.Tasks(ctx)
	if err != nil {
		return agent.ObservedUnknown, fail(phaseUpdate, p.label, err)
	}
	if task, found := newTask(s.TasksBefore, tasks); found {
		s.Task, s.Uploaded = task, true
		return agent.ObservedDone, p.u.t.Set(p.u.state)
	}
	inventory, err := c.FirmwareInventory(ctx)
	var partial *redfish.InventoryError
	if err != nil && !errors.As(err, &partial) {
		return agent.ObservedUnknown, fail(phaseUpdate, p.label, err)
	}
	if changed(s.VersionsBefore, inventory) {
		s.Untracked, s.Uploaded = true, true
		return agent.ObservedDone, p.u.t.Set(p.u.state)
	}
	if !sameTasks(s.TasksBefore, tasks) {
		// The device has forgotten tasks: it restarted, and may have forgotten ours.
		return agent.ObservedUnknown, nil
	}
	return agent.ObservedNotStarted, nil
}

// install waits for the device's task. A task that is gone, or that never was,
// is judged by the installed version and not by silence.
func (p *pkgStages) install(ctx context.Context) error {
	s := p.state()
	p.u.current = p.target
	if s.Skipped != "" {
		return agent.Skip(s.Skipped)
	}
	if s.Untracked {
		return p.finish(ctx, "the device named no task; its versions changed", p.waitVersions(ctx, p.u.d.opts.Timing.UntrackedLimit))
	}
	o := p.u.d.opts.Timing.TaskPoll
	o.Progress = func(percent int, message string) {
		text := fmt.Sprintf("Polling firmware task %s for target %s", s.Task, p.label)
		if message != "" {
			text += ": " + message
		}
		p.u.t.Progress(percent, text)
	}
	result, err := p.u.c.WaitTask(ctx, s.Task, o)
	if err != nil {
		return fail(phasePoll, p.label, err)
	}
	switch result.Outcome {
	case redfish.TaskFinished:
		return p.finish(ctx, result.Task.Text, nil)
	case redfish.TaskGone:
		p.u.t.Logger().Warn("task of the device is gone, judging by versions", "op", "install", "err", result.Err)
		if err := p.waitVersions(ctx, 0); err != nil {
			return fail(phasePoll, p.label, err)
		}
		return p.finish(ctx, "the device lost its task; the new version is installed", nil)
	case redfish.TaskEndedBadly, redfish.TaskLimitPassed:
		return fail(phasePoll, p.label, result.Err)
	default:
		return fail(phasePoll, p.label, fmt.Errorf("task %s ended as %q", s.Task, result.Outcome))
	}
}

func (p *pkgStages) finish(_ context.Context, summary string, err error) error {
	if err != nil {
		return fail(phasePoll, p.label, err)
	}
	s := p.state()
	s.Done, s.Summary = true, summary
	return p.u.t.Set(p.u.state)
}

// waitVersions waits until the package's versions, or where it names none any
// change, show in the inventory. With limit 0 it looks once.
func (p *pkgStages) waitVersions(ctx context.Context, limit time.Duration) error {
	s := p.state()
	start := time.Now()
	for {
		inventory, err := p.u.c.FirmwareInventory(ctx)
		var partial *redfish.InventoryError
		if err != nil && !errors.As(err, &partial) {
			return err
		}
		report := redfish.CompareVersions(s.Expected, inventory)
		switch {
		case report.Status == redfish.VersionMatched:
			return nil
		case report.Status == redfish.VersionUnverified && changed(s.VersionsBefore, inventory):
			return nil
		case time.Since(start) >= limit:
			return p.taskLost(report)
		}
		p.u.t.Progress(0, "Waiting for the new version of target "+p.label)
		if err := p.u.t.Sleep(ctx, p.u.d.opts.Timing.TaskPoll.Interval); err != nil {
			return err
		}
	}
}

func (p *pkgStages) taskLost(report redfish.VersionReport) error {
	text := "the task disappeared and no version has changed"
	if err := report.Err(); err != nil {
		text = "the task disappeared and the old version is still installed: " + err.Error()
	}
	f := agent.Fail(job.FailureTaskLost, phasePoll, "Poll failed for target "+p.label+": "+text, nil)
	f.Failure.Code = job.CodeOther
	return f
}

// newTask finds the task that was not there before; the last one wins, as
// devices number them upwards.
func newTask(before []string, after []redfish.TaskRef) (redfish.TaskRef, bool) {
	known := make(map[string]bool, len(before))
	for _, uri := range before {
		known[uri] = true
	}
	var found redfish.TaskRef
	for _, t := range after {
		if !known[t.URI] {
			found = t
		}
	}
	return found, !found.IsZero()
}

// sameTasks reports whether every task from before is still known.
func sameTasks(before []string, after []redfish.TaskRef) bool {
	known := make(map[string]bool, len(after))
	for _, t := range after {
		known[t.URI] = true
	}
	for _, uri := range before {
		if !known[uri] {
			return false
		}
	}
	return true
}

func versionsOf(inventory []redfish.FirmwareItem) map[string]string {
	out := make(map[string]string, len(inventory))
	for _, item := range inventory {
		out[item.Name] = item.Version
	}
	return out
}

func changed(before map[string]string, inventory []redfish.FirmwareItem) bool {
	for _, item := range inventory {
		if version, known := before[item.Name]; known && version != item.Version {
			return true
		}
	}
	return false
}
