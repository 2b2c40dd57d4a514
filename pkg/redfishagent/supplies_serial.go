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
)

// unitState is what the serial way has learned about one unit. Sent is saved
// before an image goes out: whoever takes over looks at the unit first, since it
// is its own task.
type unitState struct {
	ID string `json:"id"`
	// Before is its version before the update began.
	Before string `json:"before"`
	// From is its version when an image was last sent, FailedFrom that it already
	// showed a failure then.
	From       string `json:"from,omitempty"`
	FailedFrom bool   `json:"failed_from,omitempty"`
	// Attempt counts the images that were sent, Sent says that one is on its way.
	Attempt int  `json:"attempt,omitempty"`
	Sent    bool `json:"sent,omitempty"`
	Done    bool `json:"done,omitempty"`
}

// Reasons of a failed unit, as the summary of a failure tells them.
const (
	reasonUnitTimeout = "LiteOn PSU update timed out"
	reasonUnitSerial  = "LiteOn PSU serial fallback failed"
)

// unitError is a unit that could not be updated.
type unitError struct {
	// unit is empty when no single one is at fault.
	unit   string
	reason string
	err    error
}

// Error names the unit.
func (e *unitError) Error() string {
	if e.unit == "" {
		return fmt.Sprintf("%s: %v", e.reason, e.err)
	}
	return fmt.Sprintf("%s for %s: %v", e.reason, e.unit, e.err)
}

// Unwrap gives the cause.
func (e *unitError) Unwrap() error { return e.err }

// repair updates the units one by one where they were not, or not all, updated
// together. Units that have the version are left alone.
func (p *pkgStages) repair(ctx context.Context) error {
	s := p.state()
	switch {
	case s.Skipped != "":
		return agent.Skip(s.Skipped)
	case s.Supplies == nil:
		return agent.Skip("the image is not for power supplies")
	case s.Supplies.Serial == "":
		return agent.Skip("every power supply took the image")
	}
	if len(s.Supplies.Units) == 0 {
		if err := p.listUnits(ctx); err != nil {
			return fail(phasePoll, p.label, err)
		}
	}
	repairer := &unitRepair{p: p}
	for i := range s.Supplies.Units {
		if err := repairer.unit(ctx, &s.Supplies.Units[i]); err != nil {
			return fail(phasePoll, p.label, err)
		}
	}
	if err := p.validateAll(ctx); err != nil {
		return fail(phasePoll, p.label, err)
	}
	s.Uploaded = true
	return p.finish("every power supply was updated on its own")
}

func (p *pkgStages) listUnits(ctx context.Context) error {
	s := p.state()
	units, err := p.units(ctx)
	if err != nil {
		return err
	}
	for _, u := range units {
		before, known := s.VersionsBefore[u.ID]
		if !known {
			before = u.Version
		}
		s.Supplies.Units = append(s.Supplies.Units, unitState{ID: u.ID, Before: before})
	}
	return p.u.t.Save(ctx, p.u.state)
}

// validateAll looks at all units once more at the end.
func (p *pkgStages) validateAll(ctx context.Context) error {
	if p.item.Unit != "" {
		return nil // it was looked at, and the others are none of this job's
	}
	bad, err := p.validate(ctx)
	if err != nil && len(bad) > 0 {
		return &unitError{bad[0].ID, reasonUnitSerial, fmt.Errorf("%w: %s", err, unitNames(bad))}
	}
	return err
}

// unitRepair goes through the units. The shelf needs a pause between two images.
type unitRepair struct {
	p *pkgStages
	// pushed says that this process has sent an image, fresh that it was the one
	// for the unit in hand.
	pushed, fresh bool
}

func (r *unitRepair) unit(ctx context.Context, s *unitState) error {
	r.fresh = false
	for !s.Done {
		if s.Sent {
			if err := r.follow(ctx, s); err != nil {
				return err
			}
			continue
		}
		// Between two units the shelf is at rest.
		if err := r.p.u.t.SafePoint(ctx); err != nil {
			return err
		}
		if err := r.begin(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// begin sends the image to a unit that needs it.
func (r *unitRepair) begin(ctx context.Context, s *unitState) error {
	p, t := r.p, &r.p.u.d.opts.Timing
	unit, err := p.u.c.PowerUnit(ctx, s.ID)
	if err != nil {
		return &unitError{s.ID, reasonUnitSerial, err}
	}
	version := p.state().Supplies.Version
	before := redfish.PowerUnit{Version: s.Before}
	if unit.AtVersion(version) && (!p.u.cmd.GetForce() || s.Attempt > 0 || !before.AtVersion(version)) {
		s.Done = true
		return p.u.t.Save(ctx, p.u.state)
	}
	pause := time.Duration(0)
	switch {
	case s.Attempt > 0:
		pause = t.UnitRetrySettle
	case r.pushed:
		pause = t.UnitSettle
	}
	if err := p.u.t.Sleep(ctx, pause); err != nil {
		return err
	}
	s.From, s.FailedFrom = unit.Version, unit.Phase("") == redfish.PowerUnitFailed
	s.Attempt, s.Sent = s.Attempt+1, true
	p.u.t.InFlight("image for power supply " + s.ID)
	if err := p.u.t.Save(ctx, p.u.state); err != nil {
		return err
	}
	if err := p.u.t.Failpoint(agent.FailAfterIntent); err != nil {
		return err
	}
	return r.push(ctx, s)
}

// push sends the image. What the shelf clearly refused is tried once more; what
// may have arrived is told by the unit.
func (r *unitRepair) push(ctx context.Context, s *unitState) error {
	p := r.p
	if err := p.u.beginUpload(ctx); err != nil {
		return err
	}
	defer p.u.endUpload()
	img, err := p.u.open(ctx, p.item.Index)
	if err != nil {
		return err
	}
	defer img.Close()
	p.u.t.Progress(0, fmt.Sprintf("Uploading target %d/%d: %s (%s)", p.i+1, p.n, p.label, s.ID))
	_, err = p.u.c.PushPowerUnits(ctx, s.ID, p.request(img))
	var device *redfish.Error
	switch {
	case err == nil, errors.As(err, &device) && device.OutcomeUnknown() && ctx.Err() == nil && !passes(err):
		if err != nil {
			p.u.t.Logger().Warn("answer to the image lost, the power supply is looked at", "op", "repair", "unit", s.ID, "err", err)
		}
		r.pushed, r.fresh = true, err == nil
		return p.u.t.Failpoint(agent.FailAfterDeviceChange)
	case ctx.Err() != nil, passes(err):
		return err
	}
	return r.failed(ctx, s, &unitError{s.ID, reasonUnitSerial, err})
}

// follow waits for the unit. One that shows no trace of an image whose sending was
// interrupted never got it.
func (r *unitRepair) follow(ctx context.Context, s *unitState) error {
	p := r.p
	version := p.state().Supplies.Version
	begun, err := r.begun(ctx, s)
	if err != nil {
		return err
	}
	if !begun && !r.fresh {
		p.u.t.Logger().Info("power supply never got the image", "op", "repair", "unit", s.ID)
		s.Sent, s.Attempt = false, s.Attempt-1
		return p.u.t.Save(ctx, p.u.state)
	}
	unit, err := p.u.c.WaitPowerUnit(ctx, s.ID, version, func(percent int, message string) {
		p.u.t.Progress(percent, fmt.Sprintf("Updating %s for target %s: %s", s.ID, p.label, message))
	})
	switch {
	case err == nil:
		s.Done, s.Sent = true, false
		return p.u.t.Save(ctx, p.u.state)
	case ctx.Err() != nil, passes(err):
		return err
	case redfish.CodeOf(err) == redfish.CodeTimeout:
		if unit.Progress > 0 {
			// It is still writing: another image now would do harm.
			s.Attempt = p.u.d.opts.Timing.UnitAttempts
		}
		return r.failed(ctx, s, &unitError{s.ID, reasonUnitTimeout, err})
	default:
		return r.failed(ctx, s, &unitError{s.ID, reasonUnitSerial, err})
	}
}

// begun watches the unit for a trace of the image: progress, another version, or
// a failure of its own.
func (r *unitRepair) begun(ctx context.Context, s *unitState) (bool, error) {
	p := r.p
	end := time.Now().Add(p.u.d.opts.Timing.UploadSettle)
	for {
		unit, err := p.u.c.PowerUnit(ctx, s.ID)
		switch {
		case err != nil && !transient(err):
			return false, err
		case err == nil && (unit.Progress > 0 || unit.Version != s.From),
			err == nil && !s.FailedFrom && unit.Phase("") == redfish.PowerUnitFailed:
			return true, nil
		case !time.Now().Before(end):
			return false, again(err)
		}
		if err := p.u.t.Sleep(ctx, p.u.d.opts.Timing.TaskPoll.Interval); err != nil {
			return false, err
		}
	}
}

// failed gives the unit another try, or gives it up.
func (r *unitRepair) failed(ctx context.Context, s *unitState, err *unitError) error {
	if s.Attempt >= r.p.u.d.opts.Timing.UnitAttempts {
		out := agent.Fail(job.FailureTaskException, phasePoll, "Poll failed for target "+r.p.label+": "+err.Error(), err)
		_, out.Failure.Device = causeOf(err, job.FailureTaskException)
		out.Failure.Code = job.CodeOther
		return out
	}
	r.p.u.t.Logger().Warn("power supply not updated, another try follows", "op", "repair", "unit", s.ID, "attempt", s.Attempt, "err", err)
	s.Sent = false
	return r.p.u.t.Save(ctx, r.p.u.state)
}
