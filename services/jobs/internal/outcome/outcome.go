// SPDX-License-Identifier: Apache-2.0

// Package outcome ends jobs that no worker ends: it writes the outcome into the
// job's checkpoint by compare and set, and only then reports it. So nobody works
// on a job that was ended this way, and whoever meets the checkpoint later
// reports the same outcome again.
package outcome

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// Owner is the owner in the checkpoint of a job that the jobs service ended.
const Owner = "jobs"

// firstEpoch is the epoch of a job that ends without having been claimed.
const firstEpoch = 1

// Verdict is how a job ends.
type Verdict struct {
	State       job.State
	Failure     *job.Failure
	Description string
	// Cancel is the request to stop that the outcome answers, if any.
	Cancel *job.Cancel
}

// Unclaimed ends a job that nobody has claimed. An error that wraps
// bus.ErrConflict says that somebody just did.
func Unclaimed(ctx context.Context, conn *bus.Conn, r *job.Record, v Verdict, now time.Time) error {
	cp := &rackbusv1.JobCheckpoint{
		V: 1, JobId: r.ID.String(), RackId: r.RackID, NodeId: r.NodeID,
		Type: string(r.Type), Family: r.Family, Epoch: firstEpoch,
	}
	if parent, ok := r.ParentID(); ok {
		cp.ParentJobId = parent.String()
	}
	seq, err := commandOf(ctx, conn, r)
	if err != nil {
		return err
	}
	cp.CommandSeq = uint64(seq)
	cp.Superseded = v.State == job.StateSuperseded
	return Claimed(ctx, conn, r, cp, bus.Absent, v, now)
}

// Claimed ends a job whose owner is certainly gone. The epoch stays as it is,
// because nobody takes the job over. An error that wraps bus.ErrConflict says
// that somebody did.
func Claimed(ctx context.Context, conn *bus.Conn, r *job.Record, cp *rackbusv1.JobCheckpoint, rev bus.Revision, v Verdict, now time.Time) error {
	done := proto.CloneOf(cp)
	e := event(r, cp, v, now)
	done.Owner, done.Done, done.At = Owner, true, timestamppb.New(now)
	done.Cancel = job.CancelToProto(v.Cancel)
	done.Outcome = job.EventToProto(e)
	if _, err := conn.PutCheckpoint(ctx, done, rev); err != nil {
		return err
	}
	return conn.PublishEvent(ctx, &e)
}

// Report publishes the outcome that a checkpoint holds. The broker and the fold
// drop it when it is known already.
func Report(ctx context.Context, conn *bus.Conn, cp *rackbusv1.JobCheckpoint) error {
	e, err := job.EventFromProto(cp.GetOutcome())
	if err != nil {
		return fmt.Errorf("outcome of job %s: %w", cp.GetJobId(), err)
	}
	return conn.PublishEvent(ctx, &e)
}

// UnderWay is the stage that a job was in when its owner was lost, as far as the
// record and the checkpoint tell; the zero stage when it was in none.
func UnderWay(r *job.Record, cp *rackbusv1.JobCheckpoint) job.Stage {
	if s, ok := job.RunningStage(stages(r, cp)); ok {
		return s
	}
	if cp.GetPhase() == rackbusv1.CheckpointPhase_CHECKPOINT_PHASE_INTENT {
		return job.Stage{Name: cp.GetStage(), Uninterruptible: true}
	}
	return job.Stage{}
}

// stages are those of the record, which an event brings soon after they begin, or
// those of the checkpoint when no event has come.
func stages(r *job.Record, cp *rackbusv1.JobCheckpoint) []job.Stage {
	if len(r.Stages) > 0 {
		return r.Stages
	}
	kept, err := job.StagesFromProto(cp.GetStages())
	if err != nil {
		return nil
	}
	return kept
}

func event(r *job.Record, cp *rackbusv1.JobCheckpoint, v Verdict, now time.Time) job.Event {
	message := ""
	if v.Failure != nil {
		message = v.Failure.Message
	}
	e := job.Event{
		Kind: job.EventFinished, ID: r.ID, RackID: r.RackID, NodeID: r.NodeID, Type: r.Type, Family: r.Family,
		Epoch: cp.GetEpoch(), N: r.EventN + 1, Attempt: cp.GetAttempt(),
		State: v.State, Description: v.Description, Percent: r.Percent,
		Stages:  job.EndStages(r.ID, stages(r, cp), message, now.UTC()),
		Failure: v.Failure, ResultJSON: job.FailureResult(v.Failure), At: now.UTC(),
		Cancel: v.Cancel, CommandSeq: cp.GetCommandSeq(),
	}
	if cp.GetStartedAt() != nil {
		e.StartedAt = cp.GetStartedAt().AsTime()
	}
	return e
}

// commandOf finds the stored command of a job, so that its sealed content can be
// erased; zero when there is none.
func commandOf(ctx context.Context, conn *bus.Conn, r *job.Record) (bus.Revision, error) {
	cmd, rev, err := conn.Command(ctx, node.Family(r.Family), node.Ref{RackID: r.RackID, NodeID: r.NodeID})
	switch {
	case errors.Is(err, bus.ErrNotFound):
		return 0, nil
	case err != nil:
		return 0, err
	case cmd.GetJobId() != r.ID.String():
		return 0, nil
	}
	return rev, nil
}
