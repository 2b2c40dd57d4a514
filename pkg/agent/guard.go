// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/rackbus/rackbus/pkg/bus"
)

// Guard decides whether this process may act on a device right now. Transports
// ask it before every request that changes the device and before every chunk
// of a long transfer, and run the request under its Context.
//
// Between a positive answer and the packet on the wire lies a window that only
// the device could close; takeover is safe because the next owner observes the
// device before it acts.
type Guard interface {
	// Check returns an error that wraps ErrNotHeld when nothing may be sent.
	Check() error
	// Context ends when the right to act ends; renewals move that moment.
	Context(ctx context.Context) (context.Context, context.CancelFunc)
}

// action is what the guard has let through since a stage was begun or tried
// again.
type action struct {
	// sent says that a request may have gone to the device.
	sent atomic.Bool
	// cut says that a request ended because the hold was not certain any more.
	cut atomic.Bool
}

func (a *action) reset() {
	a.sent.Store(false)
	a.cut.Store(false)
}

// taskGuard binds a job's requests to the session that holds its node.
type taskGuard struct{ t *Task }

func (g taskGuard) Check() error {
	if !g.t.hold.Valid() {
		return fmt.Errorf("%w: session %s is not certain", ErrNotHeld, g.t.hold.ID())
	}
	if err := g.t.stopped(); err != nil {
		return fmt.Errorf("%w: %w", ErrNotHeld, err)
	}
	g.t.act.sent.Store(true)
	return nil
}

func (g taskGuard) Context(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := g.t.hold.Context(ctx)
	return ctx, func() {
		if errors.Is(context.Cause(ctx), bus.ErrSessionLost) {
			g.t.act.cut.Store(true)
		}
		cancel()
	}
}

// deadlineGuard binds a synchronous change to the deadline until which the
// caller holds the node's lock.
type deadlineGuard struct{ deadline time.Time }

func (g deadlineGuard) Check() error {
	if now := time.Now(); !now.Before(g.deadline) {
		return fmt.Errorf("%w: the operation's deadline passed %s ago", ErrNotHeld, now.Sub(g.deadline).Round(time.Millisecond))
	}
	return nil
}

func (g deadlineGuard) Context(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithDeadline(ctx, g.deadline)
}
