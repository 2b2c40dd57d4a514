// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// checkpointTTL outlives every run limit and the time until a job is reported.
const checkpointTTL = 168 * time.Hour

// doneCheckpointTTL is how long a checkpoint with an outcome is kept. It is needed
// while the job's command may come once more, which ends when the outcome is folded:
// two days, a weekend in which nobody folds, are ample. It is by far the larger part
// of all checkpoints.
const doneCheckpointTTL = 48 * time.Hour

// MaxCheckpointBytes bounds an encoded checkpoint.
const MaxCheckpointBytes = 512 << 10

// Checkpoint reads a job's checkpoint at the leader; ErrNotFound when nobody
// has claimed the job.
func (c *Conn) Checkpoint(ctx context.Context, family node.Family, id job.ID) (*rackbusv1.JobCheckpoint, Revision, error) {
	v := &rackbusv1.JobCheckpoint{}
	rev, err := c.getProto(ctx, streamCheckpoints, checkpointSubject(family, id), v)
	return v, rev, err
}

// PutCheckpoint writes a checkpoint that must still have the expected revision,
// and returns its new one. ErrConflict says that somebody else has written it.
// A write whose answer was lost is recognised by its content.
func (c *Conn) PutCheckpoint(ctx context.Context, v *rackbusv1.JobCheckpoint, expect Revision) (Revision, error) {
	id, err := job.ParseID(v.GetJobId())
	if err != nil {
		return 0, err
	}
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(v)
	if err != nil {
		return 0, fmt.Errorf("encode checkpoint of job %s: %w", id, err)
	}
	if len(data) > MaxCheckpointBytes {
		return 0, fmt.Errorf("checkpoint of job %s: %w: %d bytes, at most %d", id, ErrTooLarge, len(data), MaxCheckpointBytes)
	}
	m := newMessage(checkpointSubject(node.Family(v.GetFamily()), id), data)
	m.Header.Set(hdrExpectedLast, strconv.FormatUint(uint64(expect), 10))
	if v.GetDone() {
		setTTL(m, doneCheckpointTTL)
	} else {
		setTTL(m, checkpointTTL)
	}
	rev, err := c.ckpts.write(ctx, m)
	if err == nil {
		return rev, nil
	}
	if !errors.Is(err, ErrConflict) && !errors.Is(err, ErrOutcomeUnknown) {
		return 0, fmt.Errorf("checkpoint of job %s: %w", id, err)
	}
	got, gerr := c.leaderGet(ctx, streamCheckpoints, m.Subject)
	if gerr == nil && bytes.Equal(got.data, data) {
		return got.rev, nil
	}
	return 0, fmt.Errorf("checkpoint of job %s: %w", id, err)
}
