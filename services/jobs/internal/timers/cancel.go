// SPDX-License-Identifier: Apache-2.0

package timers

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
	"github.com/rackbus/rackbus/services/jobs/internal/outcome"
)

const (
	textNotStarted  = "stopped on request before it started"
	textOwnerless   = "terminated on request while no worker held it"
	textUnconfirmed = "terminated on request without a confirmation of its worker"
)

// cancel drives the cancellation of a job until it has ended.
func (h *Handler) cancel(ctx context.Context, r job.Record, now time.Time) error {
	switch {
	case r.Cancel == nil:
		return nil
	case r.Kind == job.KindParent:
		return h.cancelChildren(ctx, &r, now)
	}
	cp, rev, err := h.Conn.Checkpoint(ctx, node.Family(r.Family), r.ID)
	switch {
	case errors.Is(err, bus.ErrNotFound) && r.Cancel.Reason == job.CancelReasonDeadline:
		return h.expireQueued(ctx, &r, now)
	case errors.Is(err, bus.ErrNotFound):
		return outcome.Unclaimed(ctx, h.Conn, &r, notStarted(r.Cancel), now)
	case err != nil:
		return err
	case cp.GetDone():
		return outcome.Report(ctx, h.Conn, cp)
	}
	gone, err := h.ownerGone(ctx, &r, cp)
	if err != nil {
		return err
	}
	if gone {
		return h.cancelOwnerless(ctx, &r, cp, rev, now)
	}
	flag := cp.GetCancel()
	switch since := now.Sub(flag.GetRequestedAt().AsTime()); {
	case job.CancelMode(flag.GetMode()) < r.Cancel.Mode:
		if err := h.flag(ctx, cp, rev, asked(r.Cancel, now)); err != nil {
			return err
		}
		return h.wake(ctx, bus.TimerCancel, &r, now.Add(h.Limits.CancelRoundMin))
	case flag.GetMode() == rackbusv1.CancelMode_CANCEL_MODE_TERMINATE && since >= h.Limits.StopLimit:
		return h.fence(ctx, bus.TimerCancel, &r, cp, now)
	default:
		// The pause is as long as the wait so far, so it doubles.
		return h.wake(ctx, bus.TimerCancel, &r, now.Add(min(max(since, h.Limits.CancelRoundMin), h.Limits.CancelRoundMax)))
	}
}

// cancelOwnerless leaves a job that has started and has no owner to the next
// owner, which looks at the device and stops at a safe point. If nobody comes,
// or a termination is overdue, the job ends here.
func (h *Handler) cancelOwnerless(ctx context.Context, r *job.Record, cp *rackbusv1.JobCheckpoint, rev bus.Revision, now time.Time) error {
	flag := cp.GetCancel()
	mode := job.CancelMode(flag.GetMode())
	cut := mode == job.CancelTerminate && now.Sub(flag.GetRequestedAt().AsTime()) >= h.Limits.StopLimit
	if cut || cp.GetOwner() == "" && mode != job.CancelNone && now.Sub(cp.GetAt().AsTime()) >= h.Limits.TakeoverLimit {
		return outcome.Claimed(ctx, h.Conn, r, cp, rev, abandoned(r, cp), now)
	}
	if cp.GetOwner() != "" || mode < r.Cancel.Mode {
		// From here on counts how long nobody takes the job up. A dead owner is
		// replaced by none, which a claim treats alike.
		free := proto.CloneOf(cp)
		free.Owner, free.At = "", timestamppb.New(now)
		if mode < r.Cancel.Mode {
			free.Cancel = job.CancelToProto(asked(r.Cancel, now))
		}
		if _, err := h.Conn.PutCheckpoint(ctx, free, rev); err != nil {
			return err
		}
	}
	return h.rearm(ctx, bus.TimerCancel, r.ID, now.Add(min(h.Limits.CancelRoundMax, h.Limits.TakeoverLimit)))
}

// asked is a request as the worker gets it: its time is when the worker was
// asked, so that the limits count from there.
func asked(c *job.Cancel, now time.Time) *job.Cancel {
	return &job.Cancel{Mode: c.Mode, Reason: c.Reason, RequestedBy: c.RequestedBy, RequestedAt: now.UTC(), Note: c.Note}
}

// abandoned is the outcome of a job that had started, was asked to stop, and has
// nobody who could say how far it is.
func abandoned(r *job.Record, cp *rackbusv1.JobCheckpoint) outcome.Verdict {
	if r.Cancel.Reason == job.CancelReasonDeadline {
		return expired(r, cp)
	}
	how, code := textOwnerless, job.FailureTerminatedByOperator
	if cp.GetOwner() != "" {
		how = textUnconfirmed
	}
	if r.Cancel.Reason == job.CancelReasonShutdown {
		code = job.FailureShuttingDown
	}
	s := outcome.UnderWay(r, cp)
	f := job.NewFailure(code, job.CutText(how, s, cp.GetInFlight()))
	f.Phase = s.Name
	return outcome.Verdict{State: job.StateTerminated, Failure: f, Description: f.Message, Cancel: r.Cancel}
}

// notStarted is the outcome of a job whose node was never touched.
func notStarted(c *job.Cancel) outcome.Verdict {
	code := job.FailureCancelledByOperator
	if c.Reason == job.CancelReasonShutdown {
		code = job.FailureShuttingDown
	}
	return outcome.Verdict{
		State: job.StateCancelled, Failure: job.NewFailure(code, textNotStarted), Description: textNotStarted, Cancel: c,
	}
}

// cancelChildren passes the request of a batch on to its children that have not
// ended. The events are the same each time, so repeating them is harmless.
func (h *Handler) cancelChildren(ctx context.Context, r *job.Record, now time.Time) error {
	var ids []job.ID
	for i := range r.Children.Select(func(s job.State) bool { return !s.Terminal() }) {
		ids = append(ids, r.ID.Child(i))
	}
	children, err := h.Conn.Records(ctx, ids, 0)
	if err != nil {
		return err
	}
	err = inParallel(ids, func(id job.ID) error {
		c := children[id]
		return h.Conn.PublishEvent(ctx, &job.Event{
			Kind: job.EventCancelRequested, ID: id, RackID: c.RackID, NodeID: c.NodeID, Type: r.Type, Family: c.Family,
			Cancel: r.Cancel, At: r.Cancel.RequestedAt,
		})
	})
	if err != nil {
		return fmt.Errorf("pass cancellation of job %s on: %w", r.ID, err)
	}
	if !r.Admitted {
		return h.rearm(ctx, bus.TimerCancel, r.ID, now.Add(h.Limits.AdmitRound))
	}
	return nil
}
