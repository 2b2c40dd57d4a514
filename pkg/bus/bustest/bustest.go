// SPDX-License-Identifier: Apache-2.0

// Package bustest lets tests of services look at the broker past pkg/bus, and
// put things there that no service would.
package bustest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
)

// ErrForeignEvent says that a message of the public stream is not as the
// contract has it.
var ErrForeignEvent = errors.New("bustest: public event breaks the contract")

// Raw is a connection to a broker without any of the rules of pkg/bus.
type Raw struct {
	nc *nats.Conn
	js jetstream.JetStream
}

// answerLimit is for a broker on a machine that is busy with other tests.
const answerLimit = 30 * time.Second

// Open connects to the broker.
func Open(url string) (*Raw, error) {
	nc, err := nats.Connect(url, nats.MaxReconnects(-1))
	if err != nil {
		return nil, fmt.Errorf("open raw connection: %w", err)
	}
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(answerLimit))
	if err != nil {
		nc.Close()
		return nil, fmt.Errorf("open raw connection: %w", err)
	}
	return &Raw{nc, js}, nil
}

// Close ends the connection.
func (r *Raw) Close() { r.nc.Close() }

// PublicEvents returns everything that the public stream holds, in order.
func (r *Raw) PublicEvents(ctx context.Context) ([]bus.PublicEvent, error) {
	cons, err := r.js.OrderedConsumer(ctx, "RACKBUS_EVENTS", jetstream.OrderedConsumerConfig{})
	if err != nil {
		return nil, fmt.Errorf("read public events: %w", err)
	}
	info, err := cons.Info(ctx)
	if err != nil {
		return nil, fmt.Errorf("read public events: %w", err)
	}
	out := make([]bus.PublicEvent, 0, info.NumPending)
	if info.NumPending == 0 {
		return out, nil
	}
	it, err := cons.Messages()
	if err != nil {
		return nil, fmt.Errorf("read public events: %w", err)
	}
	defer it.Stop()
	for range info.NumPending {
		m, err := it.Next()
		if err != nil {
			return nil, fmt.Errorf("read public events: %w", err)
		}
		var e bus.PublicEvent
		if err := json.Unmarshal(m.Data(), &e); err != nil {
			return nil, fmt.Errorf("read public event: %w", err)
		}
		if id := fmt.Sprintf("%s:%d", e.JobID, e.N); m.Headers().Get("ce-id") != id {
			return nil, fmt.Errorf("%w: ce-id is %q, not %q", ErrForeignEvent, m.Headers().Get("ce-id"), id)
		}
		out = append(out, e)
	}
	return out, nil
}

// DropPublicStream deletes the public stream, as a careless operator does.
func (r *Raw) DropPublicStream(ctx context.Context) error { return r.DropStream(ctx, "RACKBUS_EVENTS") }

// DropStream deletes a stream with all that it holds.
func (r *Raw) DropStream(ctx context.Context, name string) error {
	if err := r.js.DeleteStream(ctx, name); err != nil {
		return fmt.Errorf("delete stream %s: %w", name, err)
	}
	return nil
}

// ArmedTimer tells for which moment a timer is armed.
func (r *Raw) ArmedTimer(ctx context.Context, kind bus.TimerKind, id job.ID) (time.Time, error) {
	s, err := r.js.Stream(ctx, "KV_rb")
	if err != nil {
		return time.Time{}, fmt.Errorf("read timer: %w", err)
	}
	m, err := s.GetLastMsgForSubject(ctx, fmt.Sprintf("rb.timer.%s.%s", kind, id))
	if err != nil {
		return time.Time{}, fmt.Errorf("read timer: %w", err)
	}
	at, err := time.Parse(time.RFC3339Nano, strings.TrimPrefix(m.Header.Get("Nats-Schedule"), "@at "))
	if err != nil {
		return time.Time{}, fmt.Errorf("read timer: %w", err)
	}
	return at, nil
}

// PublishAgain stores an event as it is: without the message id by which the
// broker drops repetitions.
func (r *Raw) PublishAgain(ctx context.Context, e *job.Event) error {
	data, err := job.MarshalEvent(*e)
	if err != nil {
		return err
	}
	return r.publish(ctx, e, data)
}

// PublishGarbage stores bytes that are no event in the partition of a job.
func (r *Raw) PublishGarbage(ctx context.Context, id job.ID) error {
	return r.publish(ctx, &job.Event{ID: id}, []byte{0xff})
}

func (r *Raw) publish(ctx context.Context, e *job.Event, data []byte) error {
	token := func(id string) string {
		if id == "" {
			return "="
		}
		return id
	}
	subject := fmt.Sprintf("rb.evt.v1.%d.%s.%s.%s.%s",
		e.ID.Partition(bus.Partitions), token(e.RackID), token(e.NodeID), e.ID, e.Kind)
	if _, err := r.js.PublishMsg(ctx, &nats.Msg{Subject: subject, Data: data}); err != nil {
		return fmt.Errorf("publish raw event: %w", err)
	}
	return nil
}

// Commands is how many commands of a family are in the hands of agents, and how
// many wait.
func (r *Raw) Commands(ctx context.Context, family node.Family) (unacked int, waiting uint64, err error) {
	cons, err := r.js.Consumer(ctx, "KV_rb", "agent-"+string(family))
	if err != nil {
		return 0, 0, fmt.Errorf("look at commands: %w", err)
	}
	return cons.CachedInfo().NumAckPending, cons.CachedInfo().NumPending, nil
}

// Consumers is how many consumers all streams have, those that nobody uses any more
// included.
func (r *Raw) Consumers(ctx context.Context) (int, error) {
	n, streams := 0, r.js.ListStreams(ctx)
	for info := range streams.Info() {
		n += info.State.Consumers
	}
	if err := streams.Err(); err != nil {
		return 0, fmt.Errorf("count consumers: %w", err)
	}
	return n, nil
}

// CountReads counts the reads of a job's record from now on.
func (r *Raw) CountReads(id job.ID, reads *atomic.Int64) error {
	subject := fmt.Sprintf("$JS.API.DIRECT.GET.KV_rb.$KV.rb.job.%s.%08x", id.Prefix(), id.Index())
	if _, err := r.nc.Subscribe(subject, func(*nats.Msg) { reads.Add(1) }); err != nil {
		return fmt.Errorf("count reads: %w", err)
	}
	return r.nc.Flush()
}
