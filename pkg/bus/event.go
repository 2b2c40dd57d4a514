// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rackbus/rackbus/pkg/job"
)

// eventPrefetch is how many events a reader holds ahead of its caller.
const eventPrefetch = 2000

// pullExpiry and pullHeartbeat are how soon a reader notices that the server of
// its consumer is gone: after two heartbeats. The library would take 30 s.
const (
	pullExpiry    = 10 * time.Second
	pullHeartbeat = 2 * time.Second
)

// eventRetry is the pause between tries to publish an event.
const eventRetry = 250 * time.Millisecond

// PublishEvent stores an event and returns once the broker has it. The same
// event published again is dropped by the broker for ten minutes, and by the
// fold for ever. It retries until ctx ends, because the order checkpoint, then
// event must not lose the event.
func (c *Conn) PublishEvent(ctx context.Context, e *job.Event) error {
	for {
		m, err := eventMessage(e)
		if err != nil {
			return err
		}
		injectTrace(ctx, m.Header)
		_, err = c.events.write(ctx, m)
		if err == nil {
			return nil
		}
		if errors.Is(err, ErrClosed) || errors.Is(err, ErrTooLarge) || errors.Is(err, ErrMisconfigured) || ctx.Err() != nil {
			return fmt.Errorf("publish %s event of job %s: %w", e.Kind, e.ID, err)
		}
		c.log.Warn("event not published yet", "job_id", e.ID.String(), "event", e.Kind.String(), "err", err)
		if perr := pause(ctx, eventRetry); perr != nil {
			return fmt.Errorf("publish %s event of job %s: %w", e.Kind, e.ID, err)
		}
	}
}

func eventMessage(e *job.Event) (*nats.Msg, error) {
	data, err := job.MarshalEvent(*e)
	if err != nil {
		return nil, fmt.Errorf("encode %s event of job %s: %w", e.Kind, e.ID, err)
	}
	m := newMessage(eventSubject(e.ID.Partition(Partitions), e.RackID, e.NodeID, e.ID, e.Kind.String()), data)
	m.Header.Set(hdrMsgID, eventID(e))
	return m, nil
}

// eventID identifies an event for de-duplication. A job has one outcome per
// epoch, whoever reports it and however often.
func eventID(e *job.Event) string {
	id := e.ID.String()
	switch e.Kind {
	case job.EventFinished:
		return id + ":" + strconv.FormatUint(e.Epoch, 10) + ":finished"
	case job.EventQueued, job.EventAdmitted:
		return id + ":" + e.Kind.String()
	case job.EventNote:
		return fmt.Sprintf("%s:note:%d", id, e.At.UnixNano())
	case job.EventCancelRequested:
		return fmt.Sprintf("%s:cancel:%s:%d", id, e.Cancel.Mode, e.Cancel.RequestedAt.UnixNano())
	default:
		return fmt.Sprintf("%s:%d:%d", id, e.Epoch, e.N)
	}
}

// StoredEvent is an event with its place in the stream.
type StoredEvent struct {
	job.Event
	Sequence uint64
	// Stored is when the broker took it.
	Stored time.Time
	// Pending is how many events of the partition were stored behind it when it
	// was delivered; only an EventReader sets it.
	Pending uint64
}

// EventReader reads the events of a partition in their order.
type EventReader struct {
	ch     chan RawEvent
	cancel context.CancelFunc
	stop   func()
}

// RawEvent is an event that Wait has yielded and Take decodes.
type RawEvent struct {
	data    []byte
	seq     uint64
	stored  time.Time
	pending uint64
}

// ReadEvents starts reading a partition's events behind a sequence.
func (c *Conn) ReadEvents(ctx context.Context, partition int, after uint64) (*EventReader, error) {
	rctx, cancel := context.WithCancel(ctx)
	cons, err := c.js.OrderedConsumer(rctx, streamEvents, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{subjEvtPrefix + strconv.Itoa(partition) + ".>"},
		DeliverPolicy:  jetstream.DeliverByStartSequencePolicy, OptStartSeq: after + 1, InactiveThreshold: readerLife,
	})
	if err != nil {
		cancel()
		return nil, classify("read events", err, false)
	}
	r := &EventReader{ch: make(chan RawEvent, eventPrefetch), cancel: cancel}
	cc, err := cons.Consume(func(m jetstream.Msg) {
		meta, err := m.Metadata()
		if err != nil {
			c.log.Error("event without metadata", "subject", m.Subject(), "err", err)
			return
		}
		select {
		case r.ch <- RawEvent{m.Data(), meta.Sequence.Stream, meta.Timestamp, meta.NumPending}:
		case <-rctx.Done():
		}
	}, jetstream.PullMaxMessages(eventPrefetch), jetstream.PullExpiry(pullExpiry), jetstream.PullHeartbeat(pullHeartbeat), jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) {
		c.log.Debug("event reader interrupted", "partition", partition, "err", err)
	}))
	if err != nil {
		cancel()
		return nil, classify("read events", err, false)
	}
	r.stop = func() {
		cc.Stop()
		c.dropReader(streamEvents, cons)
	}
	return r, nil
}

// Wait returns a channel that yields when an event can be had with Take.
// It is used in a select beside timers; the yielded token must go to Take.
func (r *EventReader) Wait() <-chan RawEvent { return r.ch }

// Take decodes what Wait has yielded. An undecodable event keeps its sequence
// and comes with an error, so that the reader can step over it.
func (r *EventReader) Take(raw RawEvent) (StoredEvent, error) {
	e, err := job.UnmarshalEvent(raw.data)
	return StoredEvent{Event: e, Sequence: raw.seq, Stored: raw.stored, Pending: raw.pending}, err
}

// Close stops reading.
func (r *EventReader) Close() {
	r.cancel()
	r.stop()
}

// NewestJobEvents returns the newest of the stored history of one job behind a sequence,
// oldest first: at most limit events, which take no more than maxBytes on the bus.
// omitted is how many others there are behind it. No more than what it returns is kept
// in memory meanwhile, however long the history is.
func (c *Conn) NewestJobEvents(ctx context.Context, id job.ID, after uint64, limit, maxBytes int) (events []StoredEvent, omitted int, err error) {
	type raw struct {
		data   []byte
		seq    uint64
		stored time.Time
	}
	var kept []raw
	size, all := 0, 0
	from := jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{jobEventsFilter(id)}, DeliverPolicy: jetstream.DeliverByStartSequencePolicy,
		// The client counts on from here, and must not come to 0.
		OptStartSeq: min(after, math.MaxInt64) + 1,
	}
	err = c.replayFrom(ctx, streamEvents, from, func(m jetstream.Msg, meta *jetstream.MsgMetadata) (bool, error) {
		kept = append(kept, raw{m.Data(), meta.Sequence.Stream, meta.Timestamp})
		size += len(m.Data())
		all++
		drop := 0
		for len(kept)-drop > limit || size > maxBytes {
			size -= len(kept[drop].data)
			drop++
		}
		kept = slices.Delete(kept, 0, drop)
		return true, nil
	})
	if err != nil {
		return nil, 0, err
	}
	for _, r := range kept {
		e, err := job.UnmarshalEvent(r.data)
		if err != nil {
			c.log.Warn("event of a history not decodable", "sequence", r.seq, "err", err)
			continue
		}
		events = append(events, StoredEvent{Event: e, Sequence: r.seq, Stored: r.stored})
	}
	return events, all - len(events), nil
}

func jobEventsFilter(id job.ID) string {
	return strings.Join([]string{subjEvtPrefix + strconv.Itoa(id.Partition(Partitions)), "*", "*", id.String(), ">"}, ".")
}

// replay gives every stored message that matches to each, until it has seen the
// last one or each returns false.
func (c *Conn) replay(ctx context.Context, stream, filter string, policy jetstream.DeliverPolicy,
	each func(jetstream.Msg, *jetstream.MsgMetadata) (bool, error),
) error {
	return c.replayFrom(ctx, stream, jetstream.OrderedConsumerConfig{FilterSubjects: []string{filter}, DeliverPolicy: policy}, each)
}

// replayFrom does so for the messages that a consumer selects.
func (c *Conn) replayFrom(ctx context.Context, stream string, selection jetstream.OrderedConsumerConfig,
	each func(jetstream.Msg, *jetstream.MsgMetadata) (bool, error),
) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	selection.InactiveThreshold = readerLife
	cons, err := c.js.OrderedConsumer(ctx, stream, selection)
	if err != nil {
		return classify("replay "+stream, err, false)
	}
	defer c.dropReader(stream, cons)
	info, err := cons.Info(ctx)
	if err != nil {
		return classify("replay "+stream, err, false)
	}
	left := info.NumPending
	if left == 0 {
		return nil
	}
	it, err := cons.Messages(jetstream.PullExpiry(pullExpiry), jetstream.PullHeartbeat(pullHeartbeat))
	if err != nil {
		return classify("replay "+stream, err, false)
	}
	defer it.Stop()
	stop := context.AfterFunc(ctx, it.Stop)
	defer stop()
	for left > 0 {
		m, err := it.Next()
		if err != nil {
			if ctx.Err() != nil {
				return fmt.Errorf("replay %s: %w", stream, ctx.Err())
			}
			return classify("replay "+stream, err, false)
		}
		meta, err := m.Metadata()
		if err != nil {
			return fmt.Errorf("replay %s: %w", stream, err)
		}
		left = meta.NumPending
		more, err := each(m, meta)
		if err != nil || !more {
			return err
		}
	}
	return nil
}
