// SPDX-License-Identifier: Apache-2.0

package ssh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/crypto/ssh"
)

// call is one call of a Client: it ends with the caller's context, with the hold
// of the node, and with a limit of its own.
type call struct {
	c  *Client
	op string
	// parent and held tell why the context of the call has ended.
	parent context.Context //nolint:containedctx // of the caller
	held   context.Context //nolint:containedctx // of the guard
	cancel func()
}

// begin returns the context of a call with it.
func (c *Client) begin(ctx context.Context, op string, limit time.Duration) (context.Context, *call) {
	held, release := c.opts.Guard.Context(ctx)
	limited, cancel := context.WithTimeoutCause(held, limit, os.ErrDeadlineExceeded)
	return limited, &call{c: c, op: op, parent: ctx, held: held, cancel: func() { cancel(); release() }}
}

func (k *call) end() { k.cancel() }

// lapsed reports whether it is the hold of the node that has ended.
func (k *call) lapsed() bool { return k.held.Err() != nil && k.parent.Err() == nil }

func (k *call) fail(kind Kind, sent bool, err error) error {
	return &Error{Op: k.op, Addr: k.c.addr, Kind: kind, Sent: sent, Err: err}
}

// expired is the error of a call whose context has ended.
func (k *call) expired(ctx context.Context, sent bool, err error) error {
	cause := context.Cause(ctx)
	switch {
	case k.lapsed():
		return k.fail(KindClosed, sent, fmt.Errorf("%w: %w", ErrNotHeld, cause))
	case err != nil && !errors.Is(err, cause):
		cause = fmt.Errorf("%w (%w)", cause, err)
	}
	return k.fail(KindTimeout, sent, cause)
}

// failed gives the error of a session the form in which callers see it; errors of
// this package pass.
func (k *call) failed(ctx context.Context, l *link, sent bool, err error) error {
	var own *Error
	var refused *ssh.OpenChannelError
	switch {
	case errors.As(err, &own), errors.Is(err, ErrNotHeld):
		return err
	case ctx.Err() != nil:
		return k.expired(ctx, sent, err)
	case l.notHeld() != nil:
		return k.fail(KindClosed, sent, l.notHeld())
	case errors.As(err, &refused):
		return k.fail(KindRefused, sent, err)
	case l.dead(), errors.Is(err, io.EOF):
		if broken := l.conn.broken(); broken != nil && !errors.Is(broken, net.ErrClosed) {
			err = broken
		}
		return k.fail(KindClosed, sent, fmt.Errorf("connection lost: %w", err))
	default:
		return k.fail(KindRefused, sent, err)
	}
}

// open opens a session; close ends it. A connection that died while nothing was going on is
// replaced once.
func (k *call) open(ctx context.Context) (*link, *ssh.Session, error) {
	for first := true; ; first = false {
		l, fresh, err := k.c.connected(ctx, k)
		if err != nil {
			return nil, nil, err
		}
		s, err := k.session(ctx, l)
		if err == nil {
			return l, s, nil
		}
		l.leave()
		if !first || fresh || ctx.Err() != nil || !l.dead() {
			return nil, nil, err
		}
		k.c.opts.Logger.Info("ssh connection lost, connecting again", "op", k.op, "addr", k.c.addr, "err", err)
	}
}

// session opens a session on a connection. A connection on which that takes too
// long is given up.
func (k *call) session(ctx context.Context, l *link) (*ssh.Session, error) {
	if err := check(k.c.opts.Guard); err != nil {
		return nil, err
	}
	type opened struct {
		s   *ssh.Session
		err error
	}
	got := make(chan opened, 1)
	if !k.c.spawn(func() {
		s, err := l.client.NewSession()
		got <- opened{s, err}
	}) {
		return nil, ErrClosed
	}
	timer := time.NewTimer(k.c.opts.Timing.Session)
	defer timer.Stop()
	var late error
	select {
	case o := <-got:
		if o.err != nil {
			return nil, k.failed(ctx, l, false, o.err)
		}
		return o.s, nil
	case <-timer.C:
		l.cut()
		late = k.fail(KindTimeout, false, fmt.Errorf("no session within %s: %w", k.c.opts.Timing.Session, os.ErrDeadlineExceeded))
	case <-ctx.Done():
		late = k.expired(ctx, false, nil)
	}
	// One that opens after all is closed.
	k.c.spawn(func() {
		if o := <-got; o.err == nil {
			_ = o.s.Close()
		}
	})
	return nil, late
}

// wait runs a part of a session until it ends, or the call does: then the session
// is given up, and the connection with it when that takes too long, since a
// command that hangs keeps its session. Other calls that use the connection are
// not disturbed for it: run then goes on until the session ends, so it must only
// touch what is its own. With whole, it is waited for all the same.
func (k *call) wait(ctx context.Context, l *link, s *ssh.Session, whole bool, run func() error) error {
	done := make(chan error, 1)
	if !k.c.spawn(func() { done <- run() }) {
		return ErrClosed
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	if k.lapsed() {
		l.cut() // nothing may be sent any more, not even a farewell
	}
	k.c.spawn(func() { _ = s.Close() })
	grace := time.NewTimer(k.c.opts.Timing.Close)
	defer grace.Stop()
	select {
	case err := <-done:
		return k.expired(ctx, true, err)
	case <-grace.C:
	}
	if !l.retire() {
		if !whole {
			return k.expired(ctx, true, nil)
		}
		l.cut()
	}
	return k.expired(ctx, true, <-done)
}

// close says farewell to a session without waiting: a peer that takes nothing
// would hold up a call that is over.
func (k *call) close(l *link, s *ssh.Session) {
	l.leave()
	k.c.spawn(func() { _ = s.Close() })
}
