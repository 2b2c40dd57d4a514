// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"

	"github.com/rackbus/rackbus/pkg/bus"
)

// execute runs a claimed job to its end, as one of those that this process works on.
func (a *Agent) execute(root context.Context, t *Task) {
	defer a.untrack(t)
	t.execute(root, func() { a.track(t) })
}

func (a *Agent) track(t *Task) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.running[t.ID()] = t
	a.metrics.inFlight.Set(float64(len(a.running)))
	select {
	case <-t.hold.Lost():
		// cutTasks may have looked before the task was here.
		t.cancel(ErrHandedOver)
	default:
	}
}

// cutTasks ends the tasks of a session that is gone for good.
func (a *Agent) cutTasks(s *bus.Session) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, t := range a.running {
		if t.hold == hold(s) {
			t.cancel(ErrHandedOver)
		}
	}
}

func (a *Agent) untrack(t *Task) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.running, t.ID())
	a.metrics.inFlight.Set(float64(len(a.running)))
}
