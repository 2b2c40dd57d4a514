// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"
)

// Headers of the broker that this package sets.
const (
	hdrExpectedLast = "Nats-Expected-Last-Subject-Sequence"
	hdrBatchID      = "Nats-Batch-Id"
	hdrBatchSeq     = "Nats-Batch-Sequence"
	hdrBatchCommit  = "Nats-Batch-Commit"
	hdrTTL          = "Nats-TTL"
	hdrMsgID        = "Nats-Msg-Id"
	hdrMarker       = "Nats-Marker-Reason"
	hdrSchedule     = "Nats-Schedule"
	hdrScheduleTo   = "Nats-Schedule-Target"
	hdrScheduleTTL  = "Nats-Schedule-TTL"
	hdrScheduleNext = "Nats-Schedule-Next"
	hdrScheduler    = "Nats-Scheduler"
	hdrTraceParent  = "traceparent"
)

// Limits of an atomic batch (ADR-50, nats-server defaults).
const (
	// maxBatch is the broker's limit of messages in one batch.
	maxBatch = 1000
	// batchFlow is after how many messages the sender waits for the broker,
	// whose inbound queue would otherwise drop messages.
	batchFlow = 500
	// batchRetryMin and batchRetryMax bound the pause after the broker refused
	// to open one more batch.
	batchRetryMin = 20 * time.Millisecond
	batchRetryMax = 100 * time.Millisecond
	// witnessTries and witnessPause are how the outcome of a lost commit answer
	// is looked up.
	witnessTries = 3
	witnessPause = 2 * time.Second
)

// Commit is the answer to a committed batch: its messages have the stream
// sequences Last-Count+1 to Last, in their order.
type Commit struct {
	Last  Revision
	Count int
}

// Revision is the stream sequence of a key's value. Zero means the key does
// not exist.
type Revision uint64

// First is the sequence of the batch's first message.
func (c Commit) First() Revision { return c.Last - Revision(c.Count) + 1 }

// At is the sequence of the batch's message i, counted from 0.
func (c Commit) At(i int) Revision { return c.First() + Revision(i) }

type batchAnswer struct {
	Error *apiError `json:"error"`
	Seq   uint64    `json:"seq"`
	Count int       `json:"count"`
}

// commitBatch writes msgs to one stream, all or none. witness is the index of a
// message by whose stored value a lost answer is resolved. The result wraps
// ErrConflict when an expectation did not hold, ErrUnavailable when nothing
// was written, and ErrOutcomeUnknown when even the witness could not be read.
// It wraps ErrOutcomeUnknown beside the other two when an earlier try may have
// been written although the witness does not show it any more.
func (c *Conn) commitBatch(ctx context.Context, stream string, msgs []*nats.Msg, witness int) (Commit, error) {
	if len(msgs) == 0 || len(msgs) > maxBatch {
		return Commit{}, fmt.Errorf("bus: a batch holds 1 to %d messages, not %d", maxBatch, len(msgs))
	}
	lost := false
	var sent []string
	for {
		id := nuid.Next()
		sent = append(sent, id)
		got, err := c.sendBatch(ctx, id, msgs)
		switch {
		case err == nil:
			return got, nil
		case errors.Is(err, errBatchAgain):
			werr := pause(ctx, batchRetryMin+rand.N(batchRetryMax-batchRetryMin)) //nolint:gosec // jitter
			if werr == nil {
				continue
			}
			if err = fmt.Errorf("%w: %w", ErrUnavailable, err); lost {
				err = uncertain(err)
			}
			return Commit{}, err
		case errors.Is(err, ErrConflict) && !lost:
			return Commit{}, err
		case errors.Is(err, ErrConflict), errors.Is(err, ErrOutcomeUnknown):
			first := !lost
			lost = true
			found, werr := c.findWitness(ctx, stream, msgs, witness, sent)
			if werr != nil {
				return Commit{}, fmt.Errorf("%w: %w", ErrOutcomeUnknown, werr)
			}
			if found.Count > 0 {
				return found, nil
			}
			if errors.Is(err, ErrConflict) {
				return Commit{}, uncertain(err)
			}
			if !first {
				c.log.Warn("bus commit answer lost again", "err", err)
			}
		case lost:
			return Commit{}, uncertain(err)
		default:
			return Commit{}, err
		}
	}
}

// uncertain marks the failure of a repeated batch. What the first try has
// written may have been changed by others since, or be what this one met.
func uncertain(err error) error { return fmt.Errorf("%w (%w)", err, ErrOutcomeUnknown) }

// errBatchAgain says that the broker has dropped the batch and takes it again.
var errBatchAgain = errors.New("bus: batch to be sent again")

func (c *Conn) sendBatch(ctx context.Context, id string, msgs []*nats.Msg) (Commit, error) {
	last := len(msgs) - 1
	for i, m := range msgs {
		m.Header.Set(hdrBatchID, id)
		m.Header.Set(hdrBatchSeq, strconv.Itoa(i+1))
		if i == last {
			m.Header.Set(hdrBatchCommit, "1")
			return c.commitRequest(ctx, m)
		}
		if i != 0 && i%batchFlow != 0 {
			if err := c.nc.PublishMsg(m); err != nil {
				return Commit{}, classify("publish in batch", err, false)
			}
			continue
		}
		rctx, cancel := c.requestContext(ctx)
		reply, err := c.nc.RequestMsgWithContext(rctx, m)
		cancel()
		if err != nil {
			// Nothing is committed before the last message, so nothing changed.
			return Commit{}, classify("open batch", err, false)
		}
		if len(reply.Data) > 0 {
			var a batchAnswer
			if err := json.Unmarshal(reply.Data, &a); err == nil && a.Error != nil {
				return Commit{}, batchError(a.Error)
			}
		}
	}
	return Commit{}, errors.New("bus: empty batch")
}

func (c *Conn) commitRequest(ctx context.Context, m *nats.Msg) (Commit, error) {
	rctx, cancel := c.requestContext(ctx)
	defer cancel()
	reply, err := c.nc.RequestMsgWithContext(rctx, m)
	if err != nil {
		return Commit{}, unanswered(ctx, classify("commit batch", err, true))
	}
	var a batchAnswer
	if err := json.Unmarshal(reply.Data, &a); err != nil {
		return Commit{}, fmt.Errorf("commit batch: %w: unreadable answer: %w", ErrOutcomeUnknown, err)
	}
	if a.Error != nil {
		return Commit{}, batchError(a.Error)
	}
	return Commit{Last: Revision(a.Seq), Count: max(a.Count, 1)}, nil
}

func batchError(e *apiError) error {
	if e.ErrCode == codeBatchIncomplete || e.ErrCode == codeTooManyBatches {
		return fmt.Errorf("%w: broker code %d: %s", errBatchAgain, e.ErrCode, e.Description)
	}
	return e.asError("commit batch")
}

// findWitness tells whether the batch was committed under one of the ids it was
// sent with, by reading one key of it at the leader. The broker keeps the id on
// the stored messages; the content alone would not do, because another process
// may have written the same. A zero Commit means that it was not.
func (c *Conn) findWitness(ctx context.Context, stream string, msgs []*nats.Msg, witness int, sent []string) (Commit, error) {
	w := msgs[witness]
	var lastErr error
	for i := range witnessTries {
		if i > 0 {
			if err := pause(ctx, witnessPause); err != nil {
				return Commit{}, errors.Join(err, lastErr)
			}
		}
		got, err := c.leaderGet(ctx, stream, w.Subject)
		if errors.Is(err, ErrNotFound) {
			return Commit{}, nil
		}
		if err != nil {
			lastErr = err
			continue
		}
		if !slices.Contains(sent, got.header.Get(hdrBatchID)) {
			return Commit{}, nil
		}
		after := Revision(len(msgs) - 1 - witness)
		return Commit{Last: got.rev + after, Count: len(msgs)}, nil
	}
	return Commit{}, lastErr
}

// pause waits d or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
