// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/services/switch-agent/internal/device"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nvue"
)

// Names of the stages of a reset.
const (
	stageInitialize = "initialize_nvue"
	stageReset      = "reset_sdn"
	stageAction     = "await_reset_action"
	stageController = "await_controller"

	textInitializing = "Initializing the NVUE client"
	textResetting    = "Resetting SDN through NVUE"

	// resetting is the controller's own word for a reset at work.
	resetting = "FACTORY RESET IN PROGRESS"
)

// resetMemory is what a reset keeps in its checkpoint.
type resetMemory struct {
	// Before is the control plane's state before, Absent says that there was no app.
	Before string `json:"before"`
	Absent bool   `json:"absent,omitempty"`
	// Action names the reset on the switch.
	Action nvue.ActionID `json:"action,omitempty"`
	// Seen says that the controller was seen at work.
	Seen bool `json:"seen,omitempty"`
	// Since is when the controller was first waited for.
	Since time.Time `json:"since,omitzero"`
}

// sdnReset is one job in the hands of this process.
type sdnReset struct {
	t      task
	timing Timing
	sw     Switch
	memory resetMemory
}

func (w *Workflow) resetSDN(ctx context.Context, t task) (agent.Outcome, error) {
	sw, err := w.open(t.Guard(), t.Command().GetTarget(), t.Command().GetSdnReset().GetDomain(), t.Logger())
	if err != nil {
		return agent.Outcome{}, fail(codeOf(err), stageInitialize, err.Error(), err)
	}
	defer sw.Close()
	s := &sdnReset{t: t, timing: w.timing, sw: sw}
	if _, err := t.Load(&s.memory); err != nil {
		return agent.Outcome{}, err
	}
	if err := t.RunStages(ctx, s.stages()); err != nil {
		return agent.Outcome{}, err
	}
	text := "SDN factory reset finished"
	if s.memory.Action != "" {
		text += fmt.Sprintf(" (action %s)", s.memory.Action)
	}
	return agent.Outcome{Description: text}, nil
}

// SDNStageNames are the stages of a reset in their order.
func SDNStageNames() []string {
	return []string{stageInitialize, stageReset, stageAction, stageController}
}

// actionLimit is how long NVUE may take with the action, and the switch to answer
// before it.
const actionLimit = 3 * time.Minute

func (s *sdnReset) stages() []agent.Stage {
	stage := func(name, text string, kind agent.Resume, run func(context.Context) error) agent.Stage {
		return agent.Stage{Name: name, Description: text, Text: text, Resume: kind, Run: func(ctx context.Context) error {
			if err := s.t.Failpoint(Point(name)); err != nil {
				return err
			}
			err := s.initialize(ctx, kind)
			if err == nil {
				err = run(ctx)
			}
			return s.told(ctx, name, err)
		}}
	}
	reset := stage(stageReset, textResetting, agent.Once, s.reset)
	reset.Prepare, reset.Observe = s.look, s.observe
	reset.Attempts, reset.Pause = s.timing.Converge.Times, s.timing.Converge.Pause
	reset.Limit = s.timing.Converge.limit()
	action := stage(stageAction, textResetting, agent.Resumable, s.awaitAction)
	action.Limit = actionLimit
	controller := stage(stageController, textResetting, agent.Resumable, s.awaitController)
	controller.Limit = s.timing.SDNLimit + s.timing.Converge.limit()
	return []agent.Stage{
		stage(stageInitialize, textInitializing, agent.Repeatable, func(context.Context) error { return nil }),
		reset, action, controller,
	}
}

// initialize does nothing when that was done. A switch that is at work may be silent
// for a while.
func (s *sdnReset) initialize(ctx context.Context, kind agent.Resume) error {
	if kind != agent.Resumable {
		return s.sw.Initialize(ctx)
	}
	var last error
	_, err := s.timing.Converge.until(ctx, func(ctx context.Context) (bool, error) {
		last = s.sw.Initialize(ctx)
		return last == nil || !nvue.Retryable(last), nil
	})
	return errors.Join(err, last)
}

// told gives an error the form in which the job's record tells it.
func (s *sdnReset) told(ctx context.Context, stage string, err error) error {
	if err == nil || interrupted(ctx, err) || errors.As(err, new(*agent.FailureError)) {
		return unwrapped(err)
	}
	f := fail(codeOf(err), stage, err.Error(), err)
	f.Failure.Device = device.AnswerOf(err)
	return f
}

// look keeps how the controller is before the reset.
func (s *sdnReset) look(ctx context.Context) error {
	if err := s.sw.Initialize(ctx); err != nil {
		return s.told(ctx, stageReset, err)
	}
	app, err := s.sw.API().App(ctx, nvue.AppController)
	s.memory.Absent = errors.Is(err, nvue.ErrNotFound)
	if err != nil && !s.memory.Absent {
		return s.told(ctx, stageReset, err)
	}
	s.memory.Before = app.Info
	return s.t.Save(ctx, &s.memory)
}

func (s *sdnReset) reset(ctx context.Context) error {
	id, err := s.sw.API().StartAction(ctx, nvue.ResetSDN())
	switch {
	case err != nil && interrupted(ctx, err):
		return err
	case nvue.OutcomeUnknown(err):
		return agent.Unknown(err)
	case err != nil:
		return notPrimary(err)
	}
	s.memory.Action = id
	s.t.InFlight("action " + string(id))
	if err := s.t.Save(ctx, &s.memory); err != nil {
		return &passedError{err}
	}
	if err := s.t.Failpoint(agent.FailAfterDeviceChange); err != nil {
		return &passedError{err}
	}
	return nil
}

// notPrimary explains the refusal of a switch that runs no fabric manager.
func notPrimary(err error) error {
	var e *nvue.Error
	if errors.As(err, &e) && strings.Contains(strings.ToLower(e.Issue), notEnabled) {
		return fmt.Errorf("%w: the cluster is not enabled, the switch is probably not the primary one: %w", ErrPrecondition, err)
	}
	return err
}

// observe finds out whether a reset that was announced has taken place.
func (s *sdnReset) observe(ctx context.Context) (agent.Observation, error) {
	if s.memory.Action != "" {
		return agent.ObservedDone, nil
	}
	if err := s.sw.Initialize(ctx); nvue.Retryable(err) {
		return agent.ObservedUnknown, agent.Retry(0, err)
	} else if err != nil {
		return agent.ObservedUnknown, err
	}
	end := time.Now().Add(s.timing.Show)
	for {
		app, err := s.sw.API().App(ctx, nvue.AppController)
		switch {
		case errors.Is(err, nvue.ErrNotFound):
			if !s.memory.Absent {
				return s.seen(ctx)
			}
		case err != nil && interrupted(ctx, err):
			return agent.ObservedUnknown, unwrapped(err)
		case err == nil && s.atWork(app), err == nil && app.Info == nvue.ControlPlaneUnconfigured && s.memory.Before == nvue.ControlPlaneConfigured:
			return s.seen(ctx)
		}
		if !time.Now().Add(s.timing.SDNPoll).After(end) {
			if err := s.t.Sleep(ctx, s.timing.SDNPoll); err != nil {
				return agent.ObservedUnknown, err
			}
			continue
		}
		if err == nil && app.Info == nvue.ControlPlaneConfigured && s.memory.Before == nvue.ControlPlaneConfigured {
			// A reset would have shown by now.
			return agent.ObservedNotStarted, nil
		}
		return agent.ObservedUnknown, err
	}
}

func (s *sdnReset) seen(ctx context.Context) (agent.Observation, error) {
	s.memory.Seen = true
	return agent.ObservedDone, s.t.Save(ctx, &s.memory)
}

func (s *sdnReset) atWork(app nvue.App) bool {
	return strings.Contains(strings.ToUpper(app.Reason), resetting)
}

func (s *sdnReset) awaitAction(ctx context.Context) error {
	if s.memory.Action == "" {
		return agent.Skip("the switch named no action")
	}
	_, err := s.sw.API().AwaitAction(ctx, s.memory.Action, nvue.StrictActions(), nvue.ActionWait{})
	if errors.Is(err, nvue.ErrActionGone) {
		return nil // the controller itself tells
	}
	return notPrimary(err)
}

// awaitController waits until the controller has forgotten its configuration.
func (s *sdnReset) awaitController(ctx context.Context) error {
	if s.memory.Since.IsZero() {
		s.memory.Since = time.Now().UTC()
		if err := s.t.Save(ctx, &s.memory); err != nil {
			return &passedError{err}
		}
	}
	end := s.memory.Since.Add(s.timing.SDNLimit)
	var last error
	state, confirmed := "", 0
	for {
		app, err := s.sw.API().App(ctx, nvue.AppController)
		done := false
		if err == nil || errors.Is(err, nvue.ErrNotFound) {
			last, state = nil, app.Info
			done, err = s.judge(ctx, app, err, &confirmed)
			if err != nil || done {
				return err
			}
		} else if last, confirmed = err, 0; interrupted(ctx, err) {
			return err
		}
		if time.Now().Add(s.timing.SDNPoll).After(end) {
			return fmt.Errorf("%w: the controller is %q %s after its reset: %w", ErrNotConverged, state, s.timing.SDNLimit,
				errors.Join(errors.New("last look"), last))
		}
		if err := s.t.Sleep(ctx, s.timing.SDNPoll); err != nil {
			return err
		}
	}
}

// judge takes in one look at the controller; absent is the error of an app that is
// not there.
func (s *sdnReset) judge(ctx context.Context, app nvue.App, absent error, confirmed *int) (done bool, err error) {
	switch {
	case absent != nil && s.memory.Seen:
		return true, nil
	case absent != nil:
		return false, fmt.Errorf("%w: the controller is not there and was never seen at its reset: %w", ErrPrecondition, absent)
	case app.Status == "" && app.Reason == "" && app.Info == "":
		return false, fmt.Errorf("%w: the controller tells no state", ErrPrecondition)
	case s.atWork(app):
		*confirmed = 0
		if s.memory.Seen {
			return false, nil
		}
		s.memory.Seen = true
		if err := s.t.Save(ctx, &s.memory); err != nil {
			return false, &passedError{err}
		}
		return false, nil
	case app.Info == nvue.ControlPlaneUnconfigured:
		*confirmed++
		return s.memory.Seen || *confirmed >= s.timing.SDNConfirm, nil
	default:
		*confirmed = 0
		return false, nil
	}
}
