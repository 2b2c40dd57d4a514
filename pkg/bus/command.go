// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// fetchWait is how long one pull waits at the broker for commands.
const fetchWait = 5 * time.Second

// Commands offers the commands of one family. All agents of the family share
// them; each command goes to one agent at a time.
type Commands struct {
	c      *Conn
	cons   jetstream.Consumer
	family node.Family
}

// Commands opens the family's commands.
func (c *Conn) Commands(ctx context.Context, family node.Family) (*Commands, error) {
	ctx, cancel := c.requestContext(ctx)
	defer cancel()
	cons, err := c.js.Consumer(ctx, streamState, commandConsumer(family))
	if err != nil {
		return nil, classify("open commands of "+string(family), err, false)
	}
	return &Commands{c: c, cons: cons, family: family}, nil
}

// Fetch hands up to n commands to each as they arrive, and returns when it has
// had n, when none came for some seconds, or when ctx ends. It asks for no more
// than n, so that no command waits in the memory of a busy process.
func (q *Commands) Fetch(ctx context.Context, n int, each func(*Delivery)) error {
	fctx, cancel := context.WithTimeout(ctx, fetchWait)
	defer cancel()
	batch, err := q.cons.Fetch(n, jetstream.FetchContext(fctx))
	if err != nil {
		return classify("fetch commands", err, false)
	}
	for m := range batch.Messages() {
		if d := q.deliver(m); d != nil {
			each(d)
		}
	}
	if err := batch.Error(); err != nil && fctx.Err() == nil && !errors.Is(err, nats.ErrTimeout) {
		return classify("fetch commands", err, false)
	}
	return ctx.Err()
}

// deliver parses a command. What can never be worked on is taken out of the
// queue here.
func (q *Commands) deliver(m jetstream.Msg) *Delivery {
	if m.Headers().Get(hdrMarker) != "" {
		q.settle(m.Ack())
		return nil
	}
	meta, err := m.Metadata()
	if err != nil {
		q.settle(m.Term())
		return nil
	}
	cmd := &rackbusv1.JobCommand{}
	if err := proto.Unmarshal(m.Data(), cmd); err != nil {
		q.c.log.Error("unreadable command dropped", "subject", m.Subject(), "err", err)
		q.settle(m.Term())
		return nil
	}
	id, err := job.ParseID(cmd.GetJobId())
	if err != nil {
		q.c.log.Error("command without job id dropped", "subject", m.Subject(), "err", err)
		q.settle(m.Term())
		return nil
	}
	return &Delivery{
		Command: cmd, ID: id, Revision: Revision(meta.Sequence.Stream), Times: meta.NumDelivered, msg: m,
	}
}

func (q *Commands) settle(err error) {
	if err != nil {
		q.c.log.Debug("command not settled", "err", err)
	}
}

// Delivery is a command in the hands of this process. Until it is settled, the
// broker offers it to others after the ack wait; that alone never frees a node.
type Delivery struct {
	Command *rackbusv1.JobCommand
	ID      job.ID
	// Revision of the command in the state stream.
	Revision Revision
	// Times it was delivered, to this process or another.
	Times uint64
	msg   jetstream.Msg
}

// Ref is the node the command is for.
func (d *Delivery) Ref() node.Ref { return refOf(d.Command) }

// Working postpones the redelivery of the command by another ack wait.
func (d *Delivery) Working() error { return d.msg.InProgress() }

// Return offers the command to other agents after a pause.
func (d *Delivery) Return(after time.Duration) error { return d.msg.NakWithDelay(after) }

// Finish takes the command out of the queue. A failure is harmless: the next
// owner finds the job done and finishes again.
func (d *Delivery) Finish(ctx context.Context) error {
	if err := d.msg.DoubleAck(ctx); err != nil {
		return fmt.Errorf("finish command of job %s: %w", d.ID, err)
	}
	return nil
}

// WakeCancel tells the agents of a family that a job's checkpoint asks for its
// end. Losing the message costs only time.
func (c *Conn) WakeCancel(family node.Family, id job.ID) error {
	if err := c.nc.Publish(cancelSubject(family, id), nil); err != nil {
		return classify("wake agents", err, false)
	}
	return nil
}

// OnCancel calls each for every wake-up of the family until ctx ends.
func (c *Conn) OnCancel(ctx context.Context, family node.Family, each func(job.ID)) error {
	prefix := subjCtlPrefix + string(family) + ".cancel."
	sub, err := c.nc.Subscribe(prefix+"*", func(m *nats.Msg) {
		if id, err := job.ParseID(m.Subject[len(prefix):]); err == nil {
			each(id)
		}
	})
	if err != nil {
		return classify("listen for cancellations", err, false)
	}
	context.AfterFunc(ctx, func() {
		if err := sub.Unsubscribe(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
			c.log.Debug("cancel subscription not released", "err", err)
		}
	})
	return nil
}
