// SPDX-License-Identifier: Apache-2.0

// Package timers does what is due when nobody else does it: it closes cut-off
// admissions, ends jobs whose deadline has passed, drives cancellations, and
// removes what ended jobs leave behind and families whose retention has ended.
//
// Every handler may run twice and on several replicas at once. What it has done
// so far is read from the bus each time, and what must happen once is decided by
// compare and set. Only a job that has no owner, or whose owner's session is
// gone, is ended here.
package timers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/failpoint"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/services/jobs/internal/observe"
)

// Crash points.
const (
	PointBefore      = "timer.before"
	PointReapBetween = "reap.between"
	// PointRolloutBefore and PointRolloutAfter are around each transaction that starts
	// children of a wave, PointRolloutEnd before each child that a stop ends.
	PointRolloutBefore = "rollout.before_commit"
	PointRolloutAfter  = "rollout.after_commit"
	PointRolloutEnd    = "rollout.end"
)

// workers handle timers at the same time.
const workers = 4

// Limits say how long whom to wait for.
type Limits struct {
	// DeadlineGrace is how long a job past its deadline may take to stop at a
	// safe point before it is terminated.
	DeadlineGrace time.Duration
	// DeadlineRound is the pause between looks at such a job.
	DeadlineRound time.Duration
	// StopLimit is how long an agent may take to confirm a termination before
	// its session is taken away.
	StopLimit time.Duration
	// TakeoverLimit is how long a cancelled job without owner waits for one who
	// stops it at a safe point, before it ends as terminated.
	TakeoverLimit time.Duration
	// CancelRoundMin and CancelRoundMax bound the pause between looks at a job
	// that was asked to stop; it doubles in between.
	CancelRoundMin time.Duration
	CancelRoundMax time.Duration
	// AdmitRound is the pause until a batch that is still taking in children is
	// looked at again when it was asked to stop.
	AdmitRound time.Duration
	// CleanupPause is the pause until a directory that could not be removed is
	// tried again.
	CleanupPause time.Duration
}

// DefaultLimits returns the limits of an installation. They are Rackbus choices.
func DefaultLimits() Limits {
	return Limits{
		DeadlineGrace: time.Minute, DeadlineRound: 30 * time.Second,
		StopLimit: 2 * time.Minute, TakeoverLimit: 2 * time.Minute,
		CancelRoundMin: time.Second, CancelRoundMax: 30 * time.Second,
		AdmitRound: time.Second, CleanupPause: time.Minute,
	}
}

// Handler handles the timers of jobs.
type Handler struct {
	Conn   *bus.Conn
	Limits Limits
	// FirmwareDir is the directory below which ended jobs have directories
	// removed; while it is empty, none are.
	FirmwareDir string
	// Caches are dropped with the directories of inline applies; nil drops none.
	Caches Caches
	// Retention is how long the record of an ended job is kept, and with it its
	// cleanup plan.
	Retention time.Duration
	// QueueDeadline is how long a child that its wave has started may wait for an
	// agent.
	QueueDeadline time.Duration
	// Diagnoses start the examination of nodes whose jobs have failed; nil starts
	// none.
	Diagnoses  Diagnoses
	Log        *slog.Logger
	Metrics    *observe.Metrics
	Failpoints *failpoint.Points

	// reaping lets one family go at a time: all of them change the same counter
	// and would only get in each other's way.
	reaping sync.Mutex
}

// Run handles timers until ctx ends.
func (h *Handler) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			if err := h.Conn.HandleTimers(ctx, h.Handle); err != nil && ctx.Err() == nil {
				h.Log.Error("timers stopped", "err", err)
			}
		})
	}
	wg.Wait()
}

// Handle does what is due when a timer fires. After an error the timer fires
// again.
func (h *Handler) Handle(ctx context.Context, t bus.Timer) error {
	err := h.Failpoints.Hit(PointBefore)
	if err == nil {
		err = h.dispatch(ctx, t)
	}
	h.Metrics.Timer(t.Kind, err)
	return err
}

func (h *Handler) dispatch(ctx context.Context, t bus.Timer) error {
	if t.Kind == bus.TimerReap {
		return h.reap(ctx, t.ID)
	}
	r, rev, err := h.Conn.Record(ctx, t.ID)
	if errors.Is(err, bus.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	now := firedAt(t)
	if t.Kind == bus.TimerCleanup {
		return h.cleanup(ctx, &r, now)
	}
	if t.Kind == bus.TimerDiagnose {
		return h.diagnose(ctx, &r)
	}
	if r.State.Terminal() && t.Kind != bus.TimerAdmit {
		return nil
	}
	switch t.Kind {
	case bus.TimerAdmit:
		return h.admit(ctx, r, rev)
	case bus.TimerRollout:
		return h.rollout(ctx, r, rev, now)
	case bus.TimerDeadline:
		if r.Rollout != nil {
			return h.expireRollout(ctx, r, rev, now)
		}
		return h.deadline(ctx, r, now)
	case bus.TimerCancel:
		return h.cancel(ctx, r, now)
	case bus.TimerReap, bus.TimerCleanup, bus.TimerDiagnose:
	}
	h.Log.Error("timer of an unknown kind dropped", "timer", string(t.Kind), "job_id", t.ID.String())
	return nil
}

// firedAt is the current time to whoever handles a timer. The broker decides when
// a timer fires: a host whose clock is behind it must not find the moment still to
// come, nor arm the timer for one that is over, because it would fire over and
// over.
func firedAt(t bus.Timer) time.Time {
	now := time.Now()
	if t.At.After(now) {
		return t.At
	}
	return now
}

// rearm lets a timer fire again.
func (h *Handler) rearm(ctx context.Context, kind bus.TimerKind, id job.ID, at time.Time) error {
	return h.Conn.ArmTimer(ctx, kind, id, at)
}

// ownerGone reports whether nobody can be working on a claimed job.
func (h *Handler) ownerGone(ctx context.Context, r *job.Record, cp *rackbusv1.JobCheckpoint) (bool, error) {
	if cp.GetOwner() == "" {
		return true, nil
	}
	alive, err := h.Conn.SessionAlive(ctx, node.Family(r.Family), cp.GetOwner())
	if err != nil {
		return false, fmt.Errorf("look up owner of job %s: %w", r.ID, err)
	}
	return !alive, nil
}

// fence takes the owner's session away. When it has run out, the owner counts as
// gone and the timer, which comes back then, ends the job.
func (h *Handler) fence(ctx context.Context, kind bus.TimerKind, r *job.Record, cp *rackbusv1.JobCheckpoint, now time.Time) error {
	h.Log.Warn("agent does not confirm that a job has stopped; its session is taken away",
		"job_id", r.ID.String(), "rack", r.RackID, "node", r.NodeID, "epoch", cp.GetEpoch(), "session", cp.GetOwner())
	if err := h.Conn.FenceSession(ctx, node.Family(r.Family), cp.GetOwner()); err != nil {
		return err
	}
	return h.rearm(ctx, kind, r.ID, now.Add(h.Conn.Timing().SessionTTL))
}
