// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"time"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// Reporter lets tests drive a reporter without a bus.
type Reporter struct{ r *reporter }

func StartReporter(ctx context.Context, interval time.Duration, publish func(context.Context) bool) Reporter {
	return Reporter{startReporter(ctx, interval, publish)}
}

func (r Reporter) Note(atOnce bool) { r.r.note(atOnce) }
func (r Reporter) Close()           { r.r.close() }
func (r Reporter) Abort()           { r.r.abort() }

// Turns lets tests take turns at nodes.
type Turns struct{ t *turns }

func NewTurns() Turns { return Turns{newTurns()} }

func (t Turns) Enter(ctx context.Context, ref node.Ref) (func(), error) { return t.t.enter(ctx, ref) }

func (t Turns) Nodes() int {
	t.t.mu.Lock()
	defer t.t.mu.Unlock()
	return len(t.t.nodes)
}

// NewIdleTask is a task without an agent or a bus.
func NewIdleTask() *Task { return &Task{ck: &rackbusv1.JobCheckpoint{}} }

// UseSession gives an agent that does not run a session to claim with.
func (a *Agent) UseSession(s *bus.Session) { a.setSession(s) }

// Claim claims a delivered command and does nothing more.
func (a *Agent) Claim(ctx context.Context, d *bus.Delivery) error {
	_, err := a.claim(ctx, d)
	return err
}

// Running is how many jobs the agent works on.
func (a *Agent) Running() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.running)
}

// Outlast is the context in which outcomes are sealed.
var Outlast = outlast

// Asked reports whether a running job knows that it is to stop.
func (a *Agent) Asked(id job.ID) bool {
	a.mu.Lock()
	t := a.running[id]
	a.mu.Unlock()
	if t == nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.asked != nil
}

// Draining reports whether the agent takes no more work.
func (a *Agent) Draining() bool { return a.draining() }
