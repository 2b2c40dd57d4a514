// SPDX-License-Identifier: Apache-2.0

package redfishagent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/redfish"
)

// prepare waits until the device takes updates and it is the package's turn, and
// notes what the device knows before the upload. To see that a device is ready
// takes many seconds, in which no upload slot may be held.
func (p *pkgStages) prepare(ctx context.Context) error {
	s := p.state()
	if s.Skipped != "" {
		return agent.Skip(s.Skipped)
	}
	if err := p.u.c.WaitReady(ctx); err != nil {
		return fail(phaseUpdate, p.label, p.u.afterRecovery(err))
	}
	if err := p.u.beginUpload(ctx); err != nil {
		return err
	}
	for attempt := 1; ; attempt++ {
		err := p.note(ctx)
		if err == nil {
			return p.save()
		}
		if attempt >= checkAttempts || !transient(err) {
			return fail(phaseUpdate, p.label, err)
		}
		if err := p.u.t.Sleep(ctx, p.u.d.opts.Timing.TaskPoll.Interval); err != nil {
			return err
		}
	}
}

func (p *pkgStages) note(ctx context.Context) error {
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
	s.Manager = redfish.ActivationState{}
	if err := c.PrepareStep(ctx, redfish.StepManagerReset, &s.Manager); err != nil {
		// It is one proof less, no more.
		p.u.t.Logger().Info("manager not read before the upload", "op", "upload", "err", err)
	}
	return nil
}

// upload sends the package. The result is the device's task.
func (p *pkgStages) upload(ctx context.Context) error {
	defer p.u.endUpload()
	if err := p.u.beginUpload(ctx); err != nil {
		return err
	}
	img, err := p.u.open(ctx, p.item.Index)
	if err != nil {
		return err
	}
	defer img.Close()
	s := p.state()
	if s.Supplies != nil {
		return p.pushSupplies(ctx, img)
	}
	result, err := p.push(ctx, img)
	switch {
	case err == nil:
		p.tracked(result.Task)
	case errors.Is(err, redfish.ErrAcceptedWithoutTask):
		task, err := p.adopt(ctx)
		if err != nil && !transient(err) {
			return fail(phaseUpdate, p.label, err)
		}
		p.tracked(task)
		s.Untracked = task.IsZero()
	case nothingToDo(err) && p.staged():
		s.Done, s.Summary = true, "the device has the image already, and it is not in force: "+err.Error()
	case nothingToDo(err):
		s.Skipped = "the device has this version already: " + err.Error()
		if err := p.save(); err != nil {
			return err
		}
		return agent.Skip(s.Skipped)
	default:
		if err := p.handedOver(ctx, err); err != nil {
			return fail(phaseUpdate, p.label, err)
		}
	}
	return p.uploaded()
}

// uploaded notes that the device has the image.
func (p *pkgStages) uploaded() error {
	p.state().Uploaded = true
	if err := p.u.t.Failpoint(agent.FailAfterDeviceChange); err != nil {
		return err
	}
	return p.save()
}

func (p *pkgStages) push(ctx context.Context, img *image) (redfish.UploadResult, error) {
	c := p.u.c
	service, err := c.UpdateService(ctx)
	if err != nil {
		return redfish.UploadResult{}, err
	}
	if err := p.setApplyTime(ctx); err != nil {
		return redfish.UploadResult{}, err
	}
	request, err := p.fetched(ctx, service, p.request(img))
	if err != nil {
		return redfish.UploadResult{}, err
	}
	return c.Upload(ctx, service, request)
}

// setApplyTime: shelves apply an image when they are reset, not at once.
func (p *pkgStages) setApplyTime(ctx context.Context) error {
	if p.u.c.Profile().ApplyTime == "" {
		return nil
	}
	if err := p.u.c.SetApplyTime(ctx, redfish.ShelfApplyTime); err != nil {
		return fmt.Errorf("set the apply time: %w", err)
	}
	return nil
}

func (p *pkgStages) request(img *image) redfish.UploadRequest {
	send := p.send()
	return redfish.UploadRequest{
		File: img, Size: img.size, Name: img.name,
		Targets: send.Targets, OemParameters: send.OemParameters, ForceUpdate: send.Force,
		Progress: func(sent, total int64) {
			if total > 0 {
				p.u.t.Progress(int(100*sent/total), fmt.Sprintf("Uploading target %d/%d: %s", p.i+1, p.n, p.label))
			}
		},
	}
}

// handedOver: a shelf controller may fail the upload that it hands over to its
// reset; the new handoff task then is the update's. Any other failure is told as
// one that is unknown, that a later try may cure, or that stands.
func (p *pkgStages) handedOver(ctx context.Context, err error) error {
	var device *redfish.Error
	if p.u.c.Profile().ApplyTime == "" || !errors.As(err, &device) || device.Status < http.StatusInternalServerError {
		return lookFirst(err)
	}
	s := p.state()
	after, listErr := p.u.c.HandoffTasks(ctx)
	if task, ok := redfish.NewHandoff(s.HandoffsBefore, after); ok && listErr == nil {
		p.u.t.Logger().Info("upload failed, its handoff task is followed", "op", "upload", "task", task.String(), "err", err)
		p.tracked(task)
		return nil
	}
	return lookFirst(err)
}

// lookFirst is tryAgain for an image that the device may have kept although it tells of
// a fault of its own: OpenBMC answers 500 when the update that it has stored the image
// for does not show up in time, and begins with it nevertheless.
func lookFirst(err error) error {
	var device *redfish.Error
	if errors.As(err, &device) && device.Status == http.StatusInternalServerError && !safeMethod(device.Method) {
		return agent.Unknown(err)
	}
	return tryAgain(err)
}

func safeMethod(method string) bool { return method == http.MethodGet || method == http.MethodHead }

// tryAgain tells a failed upload that is worth another try, because the device
// was not ready or never got the image, from one whose outcome is unknown.
func tryAgain(err error) error {
	var device *redfish.Error
	if errors.As(err, &device) && !device.OutcomeUnknown() {
		return again(err)
	}
	return uncertain(err)
}

// nothingToDo recognises the refusal of an image that is installed already.
func nothingToDo(err error) bool {
	var device *redfish.Error
	return errors.As(err, &device) && device.Status >= 400 && device.Status < 500 &&
		strings.HasSuffix(device.MessageID, "AlreadyExists")
}

// staged reports whether the device shows another version than the package's. An image
// that it has all the same waits for its activation.
func (p *pkgStages) staged() bool {
	s := p.state()
	return redfish.CompareVersions(s.Expected, inventoryOf(s.VersionsBefore)).Status == redfish.VersionMismatch
}

// adopt waits for the task of an upload that the device has accepted without
// naming one; the zero task says that none came.
func (p *pkgStages) adopt(ctx context.Context) (redfish.TaskRef, error) {
	end := time.Now().Add(p.u.d.opts.Timing.UploadSettle)
	for waited := false; ; {
		tasks, err := p.u.c.Tasks(ctx)
		if err != nil && !transient(err) {
			return redfish.TaskRef{}, err
		}
		last := !time.Now().Before(end)
		task, ours := p.newTask(tasks)
		if ours || last && !task.IsZero() {
			p.u.t.Logger().Info("task of the upload found", "op", "upload", "task", task.String())
			return task, nil
		}
		switch {
		case last && err != nil && !waited:
			// It restarts; its tasks count once it is back.
			waited = true
			if err := p.u.c.WaitReady(ctx); err != nil {
				return redfish.TaskRef{}, err
			}
			continue
		case last:
			return redfish.TaskRef{}, err
		}
		if err := p.u.t.Sleep(ctx, p.u.d.opts.Timing.TaskPoll.Interval); err != nil {
			return redfish.TaskRef{}, err
		}
	}
}

// newTask finds a task that was not there before the upload. Ids are numbered
// upwards, so the latest one wins. ours says that it runs on the controller that
// installs the package; any other is the upload's only if no such one comes.
func (p *pkgStages) newTask(after []redfish.TaskRef) (found redfish.TaskRef, ours bool) {
	known := make(map[string]bool, len(p.state().TasksBefore))
	for _, uri := range p.state().TasksBefore {
		known[uri] = true
	}
	for _, t := range after {
		if known[t.URI] {
			continue
		}
		mine := p.u.c.Profile().Kind != redfish.KindCompute || t.IsHMC() == p.state().HMC
		later := len(t.ID) > len(found.ID) || len(t.ID) == len(found.ID) && t.ID > found.ID
		if mine && !ours || mine == ours && later {
			found, ours = t, mine
		}
	}
	return found, ours
}

// observe looks for what an interrupted upload has left on the device: a task
// that was not there before, or the package's versions. A controller that has
// restarted since cannot prove that it never got the image.
func (p *pkgStages) observe(ctx context.Context) (agent.Observation, error) {
	p.u.current = p.target
	s := p.state()
	if err := p.u.c.WaitReady(ctx); err != nil {
		return agent.ObservedUnknown, fail(phaseUpdate, p.label, err)
	}
	if s.Supplies != nil {
		return p.observeSupplies(ctx)
	}
	task, err := p.adopt(ctx)
	if err != nil {
		return agent.ObservedUnknown, fail(phaseUpdate, p.label, again(err))
	}
	if !task.IsZero() {
		p.tracked(task)
		s.Uploaded = true
		return agent.ObservedDone, p.save()
	}
	inventory, err := p.u.inventory(ctx)
	if err != nil {
		return agent.ObservedUnknown, fail(phaseUpdate, p.label, again(err))
	}
	if changed(s.VersionsBefore, inventory, "") {
		if redfish.CompareVersions(s.Expected, inventory).Status != redfish.VersionMatched {
			return agent.ObservedUnknown, nil
		}
		s.Untracked, s.Uploaded = true, true
		return agent.ObservedDone, p.save()
	}
	forgotten, err := p.mayHaveForgotten(ctx)
	if err != nil {
		return agent.ObservedUnknown, fail(phaseUpdate, p.label, again(err))
	}
	if forgotten {
		return agent.ObservedUnknown, nil
	}
	return agent.ObservedNotStarted, nil
}

// mayHaveForgotten reports whether the device has lost tasks or was restarted
// since the upload began, so that a missing task proves nothing.
func (p *pkgStages) mayHaveForgotten(ctx context.Context) (bool, error) {
	s := p.state()
	tasks, err := p.u.c.Tasks(ctx)
	if err != nil {
		return false, err
	}
	present := make(map[string]bool, len(tasks))
	for _, t := range tasks {
		present[t.URI] = true
	}
	for _, uri := range s.TasksBefore {
		if !present[uri] {
			return true, nil
		}
	}
	if s.Manager.Manager == nil {
		return false, nil
	}
	return p.u.c.StepHappened(ctx, redfish.StepManagerReset, &s.Manager)
}
