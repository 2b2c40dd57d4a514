// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"context"
	"fmt"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"
)

// coalesceMin is from how many messages on a batch is cheaper than single
// writes: a batch costs the broker some milliseconds of its own.
const coalesceMin = 4

// coalesceMax bounds one group of writes.
const coalesceMax = 500

// coalesceInFlight bounds how many groups wait for the broker at a time.
const coalesceInFlight = 4

// write is one message that waits to be written.
type write struct {
	msg  *nats.Msg
	done chan writeResult
}

type writeResult struct {
	rev Revision
	err error
}

// coalescer groups the writes of many jobs to one stream into atomic batches,
// because with sync-always every single write waits for its own fsync. When the
// broker refuses a group, its messages are written singly, so that one refused
// expectation or duplicate does not fail the others.
type coalescer struct {
	c      *Conn
	stream string
	in     chan write
	slots  chan struct{}
	wg     sync.WaitGroup
}

func newCoalescer(c *Conn, stream string) *coalescer {
	w := &coalescer{c: c, stream: stream, in: make(chan write, coalesceMax), slots: make(chan struct{}, coalesceInFlight)}
	w.wg.Go(w.run)
	return w
}

// write hands a message over and waits for its revision. Two messages of one
// subject must not be under way at the same time.
func (w *coalescer) write(ctx context.Context, m *nats.Msg) (Revision, error) {
	wr := write{msg: m, done: make(chan writeResult, 1)}
	select {
	case w.in <- wr:
	case <-ctx.Done():
		return 0, fmt.Errorf("write %s: %w: %w", m.Subject, ErrUnavailable, ctx.Err())
	case <-w.c.ctx.Done():
		return 0, fmt.Errorf("write %s: %w", m.Subject, ErrClosed)
	}
	select {
	case r := <-wr.done:
		return r.rev, r.err
	case <-ctx.Done():
		return 0, fmt.Errorf("write %s: %w: %w", m.Subject, ErrOutcomeUnknown, ctx.Err())
	case <-w.c.ctx.Done():
		// The message may have come too late to be seen by run.
		return 0, fmt.Errorf("write %s: %w", m.Subject, ErrClosed)
	}
}

func (w *coalescer) run() {
	for {
		select {
		case <-w.c.ctx.Done():
			w.refuseRest()
			return
		case first := <-w.in:
			w.dispatch(w.collect(first))
		}
	}
}

// collect waits for company for at most the coalescing time.
func (w *coalescer) collect(first write) []write {
	group := []write{first}
	ctx, cancel := context.WithTimeout(w.c.ctx, w.c.timing.Coalesce)
	defer cancel()
	for len(group) < coalesceMax {
		select {
		case next := <-w.in:
			group = append(group, next)
		case <-ctx.Done():
			return group
		}
	}
	return group
}

func (w *coalescer) dispatch(group []write) {
	w.slots <- struct{}{}
	w.wg.Go(func() {
		defer func() { <-w.slots }()
		if len(group) >= coalesceMin && w.writeBatch(group) {
			return
		}
		w.writeSingly(group)
	})
}

// writeBatch reports whether the group is written; if not, nothing of it is,
// or the single writes find out.
func (w *coalescer) writeBatch(group []write) bool {
	msgs := make([]*nats.Msg, len(group))
	for i, g := range group {
		msgs[i] = copyMessage(g.msg)
	}
	ctx, cancel := context.WithTimeout(w.c.ctx, w.c.timing.Request)
	defer cancel()
	commit, err := w.c.sendBatch(ctx, nuid.Next(), msgs)
	if err != nil {
		w.c.log.Debug("bus group write refused, writing singly", "stream", w.stream, "messages", len(group), "err", err)
		return false
	}
	for i, g := range group {
		g.done <- writeResult{rev: commit.At(i)}
	}
	return true
}

func (w *coalescer) writeSingly(group []write) {
	var wg sync.WaitGroup
	for _, g := range group {
		wg.Go(func() {
			rev, err := w.c.publish(w.c.ctx, g.msg)
			g.done <- writeResult{rev, err}
		})
	}
	wg.Wait()
}

func (w *coalescer) refuseRest() {
	for {
		select {
		case g := <-w.in:
			g.done <- writeResult{err: ErrClosed}
		default:
			return
		}
	}
}

func (w *coalescer) close() { w.wg.Wait() }

// copyMessage keeps batch headers out of a message that may be sent again.
func copyMessage(m *nats.Msg) *nats.Msg {
	header := make(nats.Header, len(m.Header)+3)
	for k, v := range m.Header {
		header[k] = v
	}
	return &nats.Msg{Subject: m.Subject, Data: m.Data, Header: header}
}
