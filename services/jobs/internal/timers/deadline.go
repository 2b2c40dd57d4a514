// SPDX-License-Identifier: Apache-2.0

package timers

import (
	"context"
	"errors"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/services/jobs/internal/outcome"
)

// Messages of jobs that passed a deadline.
const (
	textAgentLost   = "no agent of the node's family is alive"
	textQueueExpiry = "no worker took the job before its queue deadline"
	textRunExpiry   = "the job ran longer than its run limit"
)

// deadline ends a job that waits or runs too long.
func (h *Handler) deadline(ctx context.Context, r job.Record, now time.Time) error {
	if r.Kind == job.KindParent {
		return h.expireBatch(ctx, &r, now)
	}
	cp, rev, err := h.Conn.Checkpoint(ctx, node.Family(r.Family), r.ID)
	claimed := err == nil
	switch {
	case errors.Is(err, bus.ErrNotFound):
	case err != nil:
		return err
	case cp.GetDone():
		return outcome.Report(ctx, h.Conn, cp)
	}
	if due := dueTime(&r, cp); due.After(now) {
		// A claim that the fold has not seen yet has moved the deadline.
		return h.rearm(ctx, bus.TimerDeadline, r.ID, due)
	}
	if !claimed {
		return h.expireQueued(ctx, &r, now)
	}
	gone, err := h.ownerGone(ctx, &r, cp)
	if err != nil {
		return err
	}
	if gone {
		return outcome.Claimed(ctx, h.Conn, &r, cp, rev, expired(&r, cp), now)
	}
	return h.stopExpired(ctx, &r, cp, rev, now)
}

func dueTime(r *job.Record, cp *rackbusv1.JobCheckpoint) time.Time {
	if d := cp.GetDeadline(); d != nil && d.AsTime().After(r.Deadline) {
		return d.AsTime()
	}
	return r.Deadline
}

// expireQueued ends a job that nobody has taken. It says whether there was
// anybody who could have.
func (h *Handler) expireQueued(ctx context.Context, r *job.Record, now time.Time) error {
	alive, err := h.Conn.FamilyAlive(ctx, node.Family(r.Family))
	if err != nil {
		return err
	}
	v := outcome.Verdict{
		State: job.StateTimedOut, Failure: job.NewFailure(job.FailureQueueDeadline, textQueueExpiry),
	}
	if !alive {
		v = outcome.Verdict{State: job.StateFailed, Failure: job.NewFailure(job.FailureAgentLost, textAgentLost)}
	}
	return outcome.Unclaimed(ctx, h.Conn, r, v, now)
}

// expired is the outcome of a job that was past its deadline when it had no owner.
func expired(r *job.Record, cp *rackbusv1.JobCheckpoint) outcome.Verdict {
	text := textRunExpiry
	if s := outcome.UnderWay(r, cp); s.Uninterruptible {
		text = job.CutText(textRunExpiry+" and was left by its worker", s, cp.GetInFlight())
	}
	return outcome.Verdict{State: job.StateTimedOut, Failure: job.NewFailure(job.FailureDeadlineExceeded, text)}
}

// expireBatch asks a batch that is past its deadline to stop, and some time later to
// stop by force. Its cancel timer passes that on to the children, which end timed
// out. The events are the same each time.
func (h *Handler) expireBatch(ctx context.Context, r *job.Record, now time.Time) error {
	if r.Deadline.IsZero() {
		return nil
	}
	if r.Deadline.After(now) {
		return h.rearm(ctx, bus.TimerDeadline, r.ID, r.Deadline)
	}
	ask := job.Cancel{Mode: job.CancelGraceful, Reason: job.CancelReasonDeadline, RequestedBy: outcome.Owner, RequestedAt: r.Deadline}
	if r.Cancel != nil {
		by := r.Deadline
		if r.Cancel.RequestedAt.After(by) {
			by = r.Cancel.RequestedAt
		}
		switch by = by.Add(h.Limits.DeadlineGrace); {
		case r.Cancel.Mode == job.CancelTerminate:
			return nil // the cancellation sees to the rest
		case by.After(now):
			return h.rearm(ctx, bus.TimerDeadline, r.ID, by)
		}
		ask.Mode, ask.RequestedAt = job.CancelTerminate, by
	}
	h.Log.Info("batch past its deadline asked to stop", "job_id", r.ID.String(), "rack", r.RackID, "mode", ask.Mode.String())
	err := h.Conn.PublishEvent(ctx, &job.Event{
		Kind: job.EventCancelRequested, ID: r.ID, RackID: r.RackID, Type: r.Type, Cancel: &ask, At: ask.RequestedAt,
	})
	if err != nil {
		return err
	}
	return h.rearm(ctx, bus.TimerDeadline, r.ID, now.Add(h.Limits.DeadlineRound))
}

// stopExpired makes a living owner stop a job whose run limit is over: first at
// a safe point, then by force, at last by taking its session away.
func (h *Handler) stopExpired(ctx context.Context, r *job.Record, cp *rackbusv1.JobCheckpoint, rev bus.Revision, now time.Time) error {
	asked := cp.GetCancel()
	since := now.Sub(asked.GetRequestedAt().AsTime())
	mode := job.CancelMode(asked.GetMode())
	switch {
	case mode == job.CancelTerminate && since >= h.Limits.StopLimit:
		return h.fence(ctx, bus.TimerDeadline, r, cp, now)
	case mode == job.CancelNone:
		mode = job.CancelGraceful
	case mode == job.CancelGraceful && since >= h.Limits.DeadlineGrace:
		mode = job.CancelTerminate
	default:
		return h.wake(ctx, bus.TimerDeadline, r, now.Add(h.Limits.DeadlineRound))
	}
	flag := &job.Cancel{Mode: mode, Reason: job.CancelReasonDeadline, RequestedBy: outcome.Owner, RequestedAt: now.UTC()}
	if err := h.flag(ctx, cp, rev, flag); err != nil {
		return err
	}
	h.Log.Info("job past its deadline asked to stop", "job_id", r.ID.String(), "rack", r.RackID, "node", r.NodeID,
		"epoch", cp.GetEpoch(), "mode", mode.String())
	return h.wake(ctx, bus.TimerDeadline, r, now.Add(h.Limits.DeadlineRound))
}

// flag asks whoever owns a job, now or later, to stop it.
func (h *Handler) flag(ctx context.Context, cp *rackbusv1.JobCheckpoint, rev bus.Revision, c *job.Cancel) error {
	flagged := proto.CloneOf(cp)
	flagged.Cancel = job.CancelToProto(c)
	_, err := h.Conn.PutCheckpoint(ctx, flagged, rev)
	return err
}

// wake tells the agents to look at the job's checkpoint, and comes back later.
func (h *Handler) wake(ctx context.Context, kind bus.TimerKind, r *job.Record, again time.Time) error {
	if err := h.Conn.WakeCancel(node.Family(r.Family), r.ID); err != nil {
		h.Log.Debug("agents not woken", "job_id", r.ID.String(), "err", err)
	}
	return h.rearm(ctx, kind, r.ID, again)
}
