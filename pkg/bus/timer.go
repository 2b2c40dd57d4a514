// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rackbus/rackbus/pkg/job"
)

// timerRetry is the pause before a timer whose handler failed fires again.
const timerRetry = time.Second

// timerSlots is how many fired timers one call of HandleTimers works on at a time.
const timerSlots = 64

// Timer is a timer that has fired.
type Timer struct {
	Kind TimerKind
	ID   job.ID
	// At is when it fired by the broker's clock, which decides when timers fire;
	// zero when it is not known.
	At time.Time
}

// ArmTimer fires kind for the job at a moment, replacing an earlier one.
func (c *Conn) ArmTimer(ctx context.Context, kind TimerKind, id job.ID, at time.Time) error {
	if _, err := c.publish(ctx, timerMessage(kind, id, at)); err != nil {
		return fmt.Errorf("arm %s timer of job %s: %w", kind, id, err)
	}
	return nil
}

func timerMessage(kind TimerKind, id job.ID, at time.Time) *nats.Msg {
	m := newMessage(timerSubject(kind, id), nil)
	m.Header.Set(hdrSchedule, "@at "+at.UTC().Format(time.RFC3339Nano))
	m.Header.Set(hdrScheduleTo, fireSubject(kind, id))
	m.Header.Set(hdrScheduleTTL, strconv.FormatInt(int64(timerTTL/time.Second), 10)+"s")
	return m
}

// HandleTimers calls handle for every fired timer until ctx ends, for several at
// a time. Each timer goes to one process; a handler that returns an error gets it
// again, so it must be repeatable.
func (c *Conn) HandleTimers(ctx context.Context, handle func(context.Context, Timer) error) error {
	h := &timerHandler{c: c, handle: handle, slots: make(chan struct{}, timerSlots)}
	defer h.wg.Wait()
	for ctx.Err() == nil {
		if err := h.fetch(ctx); err != nil && ctx.Err() == nil {
			c.log.Warn("timers not fetched", "err", err)
			if err := pause(ctx, timerRetry); err != nil {
				break
			}
		}
	}
	return ctx.Err()
}

// timerHandler is one call of HandleTimers. A timer that takes long keeps its slot, and
// nobody else from being fetched.
type timerHandler struct {
	c      *Conn
	handle func(context.Context, Timer) error
	slots  chan struct{} // one for each timer at work
	wg     sync.WaitGroup
}

func (h *timerHandler) fetch(ctx context.Context) error {
	rctx, cancel := h.c.requestContext(ctx)
	cons, err := h.c.js.Consumer(rctx, streamState, timersConsumer)
	cancel()
	if err != nil {
		return classify("open timers", err, false)
	}
	for ctx.Err() == nil {
		if err := h.fetchBatch(ctx, cons); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// take waits for a free slot, and takes all that are free then.
func (h *timerHandler) take(ctx context.Context) int {
	select {
	case h.slots <- struct{}{}:
	case <-ctx.Done():
		return 0
	}
	for n := 1; ; n++ {
		select {
		case h.slots <- struct{}{}:
		default:
			return n
		}
	}
}

func (h *timerHandler) fetchBatch(ctx context.Context, cons jetstream.Consumer) error {
	free := h.take(ctx)
	defer func() {
		for range free {
			<-h.slots
		}
	}()
	if free == 0 {
		return ctx.Err()
	}
	fctx, cancel := context.WithTimeout(ctx, fetchWait)
	defer cancel()
	batch, err := cons.Fetch(free, jetstream.FetchContext(fctx))
	if err != nil {
		return classify("fetch timers", err, false)
	}
	for m := range batch.Messages() {
		free--
		// Together, so that their writes share the broker's batches.
		h.wg.Go(func() {
			defer func() { <-h.slots }()
			h.fire(ctx, m)
		})
	}
	if err := batch.Error(); err != nil && fctx.Err() == nil && !errors.Is(err, nats.ErrTimeout) {
		return classify("fetch timers", err, false)
	}
	return nil
}

func (h *timerHandler) fire(ctx context.Context, m jetstream.Msg) {
	t, ok := parseTimer(m.Subject())
	if meta, err := m.Metadata(); err == nil {
		t.At = meta.Timestamp
	}
	var err error
	if ok && m.Headers().Get(hdrMarker) == "" {
		err = h.handle(ctx, t)
	}
	if err != nil {
		h.c.log.Warn("timer to be handled again", "timer", string(t.Kind), "job_id", t.ID.String(), "err", err)
		err = m.NakWithDelay(timerRetry)
	} else {
		err = m.DoubleAck(ctx)
	}
	if err != nil {
		h.c.log.Debug("timer not settled", "timer", string(t.Kind), "job_id", t.ID.String(), "err", err)
	}
}

func parseTimer(subject string) (Timer, bool) {
	kind, id, ok := strings.Cut(strings.TrimPrefix(subject, subjFirePrefix), ".")
	if !ok {
		return Timer{}, false
	}
	parsed, err := job.ParseID(id)
	return Timer{Kind: TimerKind(kind), ID: parsed}, err == nil
}
