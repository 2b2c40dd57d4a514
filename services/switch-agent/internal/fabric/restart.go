// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"context"
	"errors"
	"time"

	"github.com/rackbus/rackbus/services/switch-agent/internal/nvue"
)

// restartMemory is a restart of the controller that is under way. Every part of it
// is kept as soon as the switch has taken it, so that none is repeated: a
// controller that has just come up is not stopped once more.
type restartMemory struct {
	// Stuck says that it is for a control plane that is not configured; else it is for
	// entries that were changed.
	Stuck bool          `json:"stuck,omitempty"`
	Stop  nvue.ActionID `json:"stop,omitempty"`
	Start nvue.ActionID `json:"start,omitempty"`
	// Stopped and Started say that the switch took the action, which it may not have
	// named.
	Stopped bool `json:"stopped,omitempty"`
	Started bool `json:"started,omitempty"`
}

// restart restarts the controller, or goes on with a restart that was begun.
func (r *reconciliation) restart(ctx context.Context, c *Cluster, stuck bool) error {
	if r.memory.Restart == nil {
		if err := r.memory.change(ctx, r.t, func() { r.memory.Restart = &restartMemory{Stuck: stuck} }); err != nil {
			return err
		}
	} else if err := r.findRestart(ctx, c); err != nil {
		return err
	}
	m := r.memory.Restart
	if !m.Stopped {
		if err := r.act(ctx, c, nvue.StopApp(nvue.AppController), &m.Stop, &m.Stopped); err != nil {
			return err
		}
	}
	if !m.Started {
		if err := r.awaitTaken(ctx, c, m.Stop); err != nil {
			return err
		}
		if err := r.act(ctx, c, nvue.StartApp(nvue.AppController), &m.Start, &m.Started); err != nil {
			return err
		}
	}
	if err := r.awaitTaken(ctx, c, m.Start); err != nil {
		return err
	}
	if err := r.failpoint(PointRestarted); err != nil {
		return err
	}
	return r.memory.change(ctx, r.t, func() {
		r.memory.Restarted = r.memory.Restarted || m.Stuck
		r.memory.RestartDue = false
		r.memory.Restart = nil
	})
}

// findRestart looks how far a restart came of which an owner told nothing any more:
// the start is sent only when the stop is known to have been taken.
func (r *reconciliation) findRestart(ctx context.Context, c *Cluster) error {
	m := r.memory.Restart
	if m.Started {
		return nil
	}
	if m.Stopped {
		if err := r.awaitTaken(ctx, c, m.Stop); err != nil {
			return err
		}
	}
	// What was sent last is a stop until that is known, and then a start.
	end := time.Now().Add(c.timing.Show)
	for {
		app, err := c.api().App(ctx, nvue.AppController)
		if err == nil && app.Stopped() != m.Stopped {
			return r.memory.change(ctx, r.t, func() {
				m.Started = m.Stopped
				m.Stopped = true
			})
		}
		if err != nil && (interrupted(ctx, err) || !nvue.Retryable(err)) {
			return err
		}
		if time.Now().Add(c.timing.ConfiguredPoll).After(end) {
			return err // it was not taken
		}
		if err := r.t.Sleep(ctx, c.timing.ConfiguredPoll); err != nil {
			return err
		}
	}
}

// act begins an action and keeps that it was taken.
func (r *reconciliation) act(ctx context.Context, c *Cluster, a nvue.Action, id *nvue.ActionID, taken *bool) error {
	got, err := c.api().StartAction(ctx, a)
	if err != nil {
		return err
	}
	if err := r.failpoint(PointActed); err != nil {
		return err
	}
	if err := r.memory.change(ctx, r.t, func() { *id, *taken = got, true }); err != nil {
		return err
	}
	return r.failpoint(PointKept)
}

// awaitTaken waits for the end of an action. One that has no name, or that the
// switch does not know any more, has ended.
func (r *reconciliation) awaitTaken(ctx context.Context, c *Cluster, id nvue.ActionID) error {
	if id == "" {
		return nil
	}
	_, err := c.api().AwaitAction(ctx, id, nvue.StrictActions(), nvue.ActionWait{})
	if errors.Is(err, nvue.ErrActionGone) {
		return nil
	}
	return err
}
