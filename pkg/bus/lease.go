// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// lease is a key with a TTL that one process keeps alive by compare and set.
//
// Its validity is counted from before a renewal was sent and ends a margin
// before the key can expire, on the monotonic and on the wall clock: a paused
// virtual machine stops the first, a stepped clock moves the second.
type lease struct {
	c       *Conn
	subject string
	data    []byte
	ttl     time.Duration
	renew   time.Duration
	margin  time.Duration
	log     *slog.Logger

	mu        sync.Mutex
	rev       Revision
	validTill time.Time
	validWall time.Time
	// lapse ends when the validity ends, and is replaced when it comes back.
	lapse    context.Context //nolint:containedctx // it is the lease's own state
	endLapse context.CancelFunc
	watchdog *time.Timer
	lost     chan struct{}
	// unanswered is when the first renewal without an answer was sent since the
	// last that had one; only the renewing goroutine uses it.
	unanswered  time.Time
	lostOnce    sync.Once
	stopRenewal context.CancelFunc
	renewalDone chan struct{}
}

// acquireLease creates the key, or takes it over where the former one has
// expired. ErrConflict says that somebody else holds it.
func (c *Conn) acquireLease(ctx context.Context, subject string, data []byte, ttl, renew, margin time.Duration) (*lease, error) {
	l := &lease{
		c: c, subject: subject, data: data, ttl: ttl, renew: renew, margin: margin, log: c.log,
		lost: make(chan struct{}), renewalDone: make(chan struct{}),
	}
	start := time.Now()
	rev, err := c.create(ctx, streamSessions, subject, data, ttl)
	if err != nil {
		return nil, err
	}
	l.rev = rev
	l.lapse, l.endLapse = context.WithCancel(c.ctx)
	l.watchdog = time.AfterFunc(time.Hour, l.lapsed)
	l.extend(start, rev)
	rctx, stop := context.WithCancel(c.ctx)
	l.stopRenewal = stop
	go l.keep(rctx) //nolint:contextcheck // The lease outlives the call that took it.
	return l, nil
}

// create writes a key that must not exist. A marker of an expired key counts
// as absent, but its revision has to be expected.
func (c *Conn) create(ctx context.Context, stream, subject string, data []byte, ttl time.Duration) (Revision, error) {
	var expect Revision
	rev, err := c.put(ctx, subject, data, &expect, ttl)
	if !errors.Is(err, ErrConflict) && !errors.Is(err, ErrOutcomeUnknown) {
		return rev, err
	}
	got, gerr := c.leaderGet(ctx, stream, subject)
	switch {
	case errors.Is(gerr, ErrNotFound):
		return 0, err
	case gerr != nil:
		return 0, gerr
	case bytes.Equal(got.data, data) && !got.expired():
		// An earlier try of ours arrived and its answer was lost.
		return got.rev, nil
	case !got.expired():
		return 0, fmt.Errorf("create %s: %w", subject, ErrConflict)
	}
	return c.put(ctx, subject, data, &got.rev, ttl)
}

// valid reports whether the lease certainly holds now.
func (l *lease) valid() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.validLocked()
}

func (l *lease) validLocked() bool {
	select {
	case <-l.lost:
		return false
	default:
	}
	now := time.Now()
	return now.Before(l.validTill) && now.Round(0).Before(l.validWall)
}

// remaining is how long the lease is still certain, for metrics.
func (l *lease) remaining() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Until(l.validTill)
}

// context returns a context that ends when the validity of the lease ends. A
// renewal moves that moment.
func (l *lease) context(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	l.mu.Lock()
	lapse := l.lapse
	l.mu.Unlock()
	stop := context.AfterFunc(lapse, func() { cancel(ErrSessionLost) })
	return ctx, func() {
		stop()
		cancel(context.Canceled)
	}
}

func (l *lease) extend(sent time.Time, rev Revision) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rev = rev
	till := sent.Add(l.ttl - l.margin)
	l.validTill, l.validWall = till, till.Round(0)
	if l.lapse.Err() != nil {
		l.lapse, l.endLapse = context.WithCancel(l.c.ctx)
	}
	l.watchdog.Reset(time.Until(till))
}

// lapsed runs when no renewal arrived in time.
func (l *lease) lapsed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.validLocked() {
		l.endLapse()
	}
}

func (l *lease) keep(ctx context.Context) {
	defer close(l.renewalDone)
	tick := time.NewTicker(l.renew)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if !l.renewOnce(ctx) {
			l.markLost()
			return
		}
	}
}

// renewOnce reports false when the lease is certainly lost.
func (l *lease) renewOnce(ctx context.Context) bool {
	l.mu.Lock()
	rev := l.rev
	l.mu.Unlock()
	// An answer counts from when its renewal was sent, so a late one is worth
	// waiting for; a second try must still fit into the validity.
	ctx, cancel := context.WithTimeout(ctx, max(l.renew, (l.ttl-l.margin)/2))
	defer cancel()
	sent := time.Now()
	next, err := l.c.put(ctx, l.subject, l.data, &rev, l.ttl)
	if err == nil {
		l.unanswered = time.Time{}
		l.extend(sent, next)
		return true
	}
	if !errors.Is(err, ErrConflict) {
		if l.unanswered.IsZero() {
			l.unanswered = sent
		}
		l.log.Warn("lease not renewed", "subject", l.subject, "err", err)
		return true
	}
	got, gerr := l.c.leaderGet(ctx, streamSessions, l.subject)
	switch {
	case errors.Is(gerr, ErrNotFound):
		return false
	case gerr != nil:
		return true
	case got.expired() || !bytes.Equal(got.data, l.data):
		return false
	}
	l.found(rev, got.rev)
	return true
}

// found takes in that a renewal that expected one revision was refused, and that
// the key is our own all the same. If it has another revision, an earlier renewal
// arrived although its answer was lost: the key lives from then on, which is no
// earlier than the first one was sent. With the same revision a renewal is still
// under way in the cluster, and may come to nothing: it proves nothing.
func (l *lease) found(expected, revision Revision) {
	if revision == expected {
		return
	}
	if l.unanswered.IsZero() {
		l.mu.Lock()
		l.rev = revision
		l.mu.Unlock()
		return
	}
	l.extend(l.unanswered, revision)
	l.unanswered = time.Time{}
}

func (l *lease) markLost() {
	l.lostOnce.Do(func() { close(l.lost) })
	l.stopRenewal()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.endLapse()
	l.watchdog.Stop()
}

// release ends the lease at once, so that others need not wait for its expiry.
// It removes only its own revision of the key.
func (l *lease) release(ctx context.Context) error {
	l.stopRenewal()
	<-l.renewalDone
	l.mu.Lock()
	rev := l.rev
	l.mu.Unlock()
	l.markLost()
	if err := l.c.eraseMessage(ctx, streamSessions, rev); err != nil && !errors.Is(err, ErrNotFound) {
		return fmt.Errorf("release lease %s: %w", l.subject, err)
	}
	return nil
}
