// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// sealOwner owns the checkpoints of jobs that end without an agent.
const sealOwner = "jobs"

// started reports whether a job has a worker, or had one, or cannot be replaced.
func (a *Admitter) started(ctx context.Context, id job.ID) (bool, error) {
	r, _, err := a.opts.Conn.Record(ctx, id)
	if err != nil {
		return false, err
	}
	if r.Kind != job.KindLeaf || r.State != job.StateQueued {
		return true, nil
	}
	_, _, err = a.opts.Conn.Checkpoint(ctx, node.Family(r.Family), id)
	if errors.Is(err, bus.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// supersedeAll ends the jobs that the parked ones of the batch are to replace.
func (a *Admitter) supersedeAll(ctx context.Context, b *batch) {
	if a.opts.onBusy(b.req.Type, b.req.OnBusy) != OnBusySupersede || len(b.parked) == 0 {
		return
	}
	err := inParallel(b.parked, func(index int) error {
		res := &b.results[index]
		refusal, err := a.supersede(ctx, res.Ref, res.JobID)
		res.Refusal = refusal
		return err
	})
	if err != nil {
		// The new jobs wait in the queue, as if that had been asked for.
		a.opts.Logger.Warn("jobs not superseded", "job_id", b.id.String(), "err", err)
	}
}

// supersede ends every job on the node that stands before id. When the holder has
// started meanwhile, the new job is ended instead and the refusal returned.
func (a *Admitter) supersede(ctx context.Context, ref node.Ref, id job.ID) (*Refusal, error) {
	lock, err := a.opts.Conn.Lock(ctx, ref)
	if err != nil {
		return nil, err
	}
	refusal := BusyRefusal(ref, lock, time.Now())
	if refusal == nil || refusal.Holder == id || refusal.Holder.IsZero() {
		return nil, nil // promoted meanwhile
	}
	by := fmt.Sprintf("replaced by job %s before it started", id)
	holder, err := a.sealUnstarted(ctx, refusal.Holder, job.StateSuperseded, job.NewFailure(job.FailureSuperseded, by))
	switch {
	case errors.Is(err, bus.ErrConflict):
		// It has started: the new job must go.
		own, serr := a.sealUnstarted(ctx, id, job.StateFailed, job.NewFailure(job.FailureNodeBusy, refusal.Message))
		if serr != nil {
			return refusal, serr
		}
		return refusal, a.opts.Conn.PublishEvent(ctx, &own)
	case err != nil:
		return nil, err
	}
	// Those that wait are ended before the holder, so that none is promoted.
	for _, text := range lock.GetQueue() {
		waiting, err := job.ParseID(text)
		if err != nil || waiting == id {
			break
		}
		e, err := a.sealUnstarted(ctx, waiting, job.StateSuperseded, job.NewFailure(job.FailureSuperseded, by))
		if errors.Is(err, bus.ErrConflict) || errors.Is(err, bus.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if err := a.opts.Conn.PublishEvent(ctx, &e); err != nil {
			return nil, err
		}
	}
	return nil, a.opts.Conn.PublishEvent(ctx, &holder)
}

// sealUnstarted ends a job that nobody has claimed, by creating its checkpoint
// with the outcome, and returns the event to publish. ErrConflict says that
// somebody has claimed it. Should the event get lost, whoever meets the
// checkpoint publishes it again.
func (a *Admitter) sealUnstarted(ctx context.Context, id job.ID, state job.State, failure *job.Failure) (job.Event, error) {
	r, _, err := a.opts.Conn.Record(ctx, id)
	if err != nil {
		return job.Event{}, err
	}
	now := time.Now()
	e := job.Event{
		Kind: job.EventFinished, ID: id, RackID: r.RackID, NodeID: r.NodeID, Type: r.Type, Family: r.Family,
		Epoch: 1, N: 1, State: state, Failure: failure, At: now,
	}
	if state == job.StateSuperseded {
		e.Description = "Superseded: " + failure.Message // it names the new job
	}
	_, err = a.opts.Conn.PutCheckpoint(ctx, &rackbusv1.JobCheckpoint{
		V: 1, JobId: id.String(), ParentJobId: parentText(id), RackId: r.RackID, NodeId: r.NodeID,
		Type: string(r.Type), Family: r.Family, Owner: sealOwner, Epoch: 1,
		Done: true, Superseded: state == job.StateSuperseded, Outcome: job.EventToProto(e), At: timestamppb.New(now),
	}, bus.Absent)
	return e, err
}

func parentText(id job.ID) string {
	if id.IsTopLevel() {
		return ""
	}
	return id.Parent().String()
}
