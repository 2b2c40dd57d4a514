// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"context"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rackbus/rackbus/pkg/job"
)

// RecordUpdate is one message of a record watch.
type RecordUpdate struct {
	// Record as it is now; only its ID is set when Gone.
	Record   job.Record
	Revision Revision
	// Gone says that the whole family of the record's id has left.
	Gone bool
	// Current says that every record stored when the watch began has been seen.
	Current bool
}

// WatchRecords gives every job record to each, oldest change first, and then
// every change, until ctx ends. It survives reconnects: the ordered consumer
// below starts again where it was.
func (c *Conn) WatchRecords(ctx context.Context, each func(RecordUpdate)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cons, err := c.js.OrderedConsumer(ctx, streamState, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{subjJobPrefix + ">", subjGonePrefix + ">"},
		DeliverPolicy:  jetstream.DeliverLastPerSubjectPolicy, InactiveThreshold: readerLife,
	})
	if err != nil {
		return classify("watch records", err, false)
	}
	defer c.dropReader(streamState, cons)
	info, err := cons.Info(ctx)
	if err != nil {
		return classify("watch records", err, false)
	}
	if info.NumPending == 0 {
		each(RecordUpdate{Current: true})
	}
	it, err := cons.Messages(jetstream.PullExpiry(pullExpiry), jetstream.PullHeartbeat(pullHeartbeat))
	if err != nil {
		return classify("watch records", err, false)
	}
	defer it.Stop()
	stop := context.AfterFunc(ctx, it.Stop)
	defer stop()
	for {
		m, err := it.Next()
		if err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return classify("watch records", err, false)
		}
		u, err := recordUpdate(m)
		if err != nil {
			c.log.Error("record not readable", "subject", m.Subject(), "err", err)
			continue
		}
		each(u)
	}
}

func recordUpdate(m jetstream.Msg) (RecordUpdate, error) {
	meta, err := m.Metadata()
	if err != nil {
		return RecordUpdate{}, fmt.Errorf("metadata: %w", err)
	}
	u := RecordUpdate{Revision: Revision(meta.Sequence.Stream), Current: meta.NumPending == 0}
	if prefix, ok := strings.CutPrefix(m.Subject(), subjGonePrefix); ok {
		u.Gone = true
		u.Record.ID, err = familyOf(prefix)
		return u, err
	}
	u.Record, err = job.UnmarshalRecord(m.Data())
	return u, err
}

// familyOf rebuilds the top-level id from the hex prefix that its family shares.
func familyOf(prefix string) (job.ID, error) {
	if len(prefix) != 24 {
		return job.ID{}, fmt.Errorf("bus: job prefix %q is not 24 digits", prefix)
	}
	return job.ParseID(prefix[0:8] + "-" + prefix[8:12] + "-" + prefix[12:16] + "-" + prefix[16:20] + "-" + prefix[20:24] + "00000000")
}
