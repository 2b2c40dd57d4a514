// SPDX-License-Identifier: Apache-2.0

package timers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/services/jobs/internal/outcome"
)

const (
	// releaseNodes is how many children of a wave one transaction starts: two messages
	// each, and the parent, stay below the broker's 1,000.
	releaseNodes = 400
	// rolloutTries is how often the parent may have moved meanwhile before the timer
	// comes again.
	rolloutTries = 50
	// rolloutCommits bounds the transactions of one firing, so that it ends before the
	// broker offers the timer to another replica.
	rolloutCommits = 20
	// commandSlack is how long a command outlives the limits of its job.
	commandSlack = time.Hour
)

const textStartLost = "the command kept for the job's wave is missing"

// rollout does what a batch that starts in waves needs now: it begins the next wave,
// stores the commands of its children, or ends those that will never be started. All
// of it is decided by the parent's record, which every step must find as it was read,
// so that it may be done twice, by several replicas, and be cut off anywhere.
func (h *Handler) rollout(ctx context.Context, r job.Record, rev bus.Revision, now time.Time) error {
	kept := &keptCommands{found: make(map[uint32]*rackbusv1.JobCommand), lost: make(map[uint32]bool)}
	for commits, conflicts := 0, 0; conflicts < rolloutTries; {
		at, due := r.RolloutDue()
		if !due || at.After(now) {
			return nil // whoever made it due later has armed the timer with that
		}
		if r.Rollout.State == job.RolloutStopped {
			return h.endUnstarted(ctx, &r, rev, now)
		}
		if commits == rolloutCommits {
			return h.rearm(ctx, bus.TimerRollout, r.ID, now)
		}
		done, err := h.advance(ctx, r, rev, kept, now)
		switch {
		case errors.Is(err, bus.ErrConflict):
			conflicts++
		case err != nil || done:
			return err
		default:
			commits++
		}
		if r, rev, err = h.Conn.Record(ctx, r.ID); err != nil {
			if errors.Is(err, bus.ErrNotFound) {
				return nil
			}
			return err
		}
	}
	return fmt.Errorf("rollout of job %s: its record moved %d times: %w", r.ID, rolloutTries, bus.ErrConflict)
}

// advance begins a wave when one is due and starts as many of its children as fit
// into a transaction. done says that the rest is somebody else's turn.
func (h *Handler) advance(ctx context.Context, r job.Record, rev bus.Revision, kept *keptCommands, now time.Time) (done bool, err error) {
	next, begun := job.StartWave(r, now)
	if err := h.fetchKept(ctx, &next, rev, kept, now); err != nil {
		return false, err
	}
	var started []uint32
	for _, i := range next.RolloutPending(releaseNodes + len(kept.lost)) {
		if kept.found[i] != nil && len(started) < releaseNodes {
			started = append(started, i)
		}
	}
	if len(started) == 0 && !begun {
		return true, nil
	}
	if err := h.Failpoints.Hit(PointRolloutBefore); err != nil {
		return false, err
	}
	next = job.Release(next, started, now)
	tx := h.Conn.Begin()
	tx.ReplaceRecord(&next, rev)
	wait := h.queueLimit(&next, now)
	for _, i := range started {
		run := time.Duration(kept.found[i].GetRunLimitSeconds()) * time.Second
		tx.PutCommand(kept.found[i], wait+run+commandSlack)
		tx.ArmTimer(bus.TimerDeadline, r.ID.Child(i), now.Add(wait))
	}
	if _, err := tx.Commit(ctx); err != nil {
		return false, err
	}
	o := next.Rollout
	if o.Wave > r.Rollout.Wave {
		h.Log.Info("wave begun", "job_id", r.ID.String(), "wave", o.Wave, "waves", o.Waves, "nodes", o.Members.Len())
		h.note(ctx, &r, fmt.Sprintf("wave %d of %d begun, nodes in it: %d", o.Wave, o.Waves, o.Members.Len()), now)
	}
	return false, h.Failpoints.Hit(PointRolloutAfter)
}

// note tells the history of a batch what became of its rollout; nothing depends on it.
func (h *Handler) note(ctx context.Context, r *job.Record, text string, now time.Time) {
	err := h.Conn.PublishEvent(ctx, &job.Event{
		Kind: job.EventNote, ID: r.ID, RackID: r.RackID, Type: r.Type, Description: text, At: now.UTC(),
	})
	if err != nil {
		h.Log.Debug("rollout not noted in the history", "job_id", r.ID.String(), "err", err)
	}
}

// queueLimit is how long a started child may wait for an agent.
func (h *Handler) queueLimit(parent *job.Record, now time.Time) time.Duration {
	if parent.Deadline.IsZero() {
		return h.QueueDeadline
	}
	return max(min(h.QueueDeadline, parent.Deadline.Sub(now)), time.Second)
}

// keptCommands are commands of children that have not been started, by child index.
// They never change, so they serve every try: between the look at the parent, which
// moves all the time, and the transaction, nothing slow is left to do.
type keptCommands struct {
	found map[uint32]*rackbusv1.JobCommand
	// lost are the children whose commands are missing.
	lost map[uint32]bool
}

// fetchKept reads the commands of the children to be started next that are not read
// yet. A child whose command is lost ends here.
func (h *Handler) fetchKept(ctx context.Context, parent *job.Record, rev bus.Revision, kept *keptCommands, now time.Time) error {
	var ids []job.ID
	for _, i := range parent.RolloutPending(releaseNodes + len(kept.lost)) {
		if kept.found[i] == nil && !kept.lost[i] {
			ids = append(ids, parent.ID.Child(i))
		}
	}
	children, err := h.Conn.Records(ctx, ids, rev)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	err = inParallel(ids, func(id job.ID) error {
		c, ok := children[id]
		if !ok {
			return fmt.Errorf("job %s, which is to be started: %w", id, bus.ErrNotFound)
		}
		cmd, err := h.Conn.ParkedCommand(ctx, node.Ref{RackID: c.RackID, NodeID: c.NodeID}, id)
		lost := errors.Is(err, bus.ErrNotFound)
		if lost {
			err = h.endUnclaimed(ctx, &c, outcome.Verdict{
				State: job.StateFailed, Failure: job.NewFailure(job.FailureCommandLost, textStartLost),
			}, now)
		}
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		if lost {
			kept.lost[id.Index()] = true
		} else {
			kept.found[id.Index()] = cmd
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("commands of a wave of job %s: %w", parent.ID, err)
	}
	return nil
}

// endUnstarted ends the children that a stopped rollout leaves. None of them can be
// claimed any more: their commands are offered only by a transaction that finds the
// rollout going on.
func (h *Handler) endUnstarted(ctx context.Context, r *job.Record, rev bus.Revision, now time.Time) error {
	var ids []job.ID
	for i := range r.RolloutUnstarted() {
		ids = append(ids, r.ID.Child(i))
	}
	children, err := h.Conn.Records(ctx, ids, rev)
	if err != nil {
		return err
	}
	state, failure := r.Rollout.NotStarted()
	h.Log.Info("rollout stopped", "job_id", r.ID.String(), "wave", r.Rollout.Wave, "not_started", len(ids), "reason", r.Rollout.Reason)
	h.note(ctx, r, fmt.Sprintf("%s; nodes not started: %d", r.Rollout.Reason, len(ids)), now)
	err = inParallel(ids, func(id job.ID) error {
		c, ok := children[id]
		if !ok || c.State.Terminal() {
			return nil
		}
		if err := h.Failpoints.Hit(PointRolloutEnd); err != nil {
			return err
		}
		return h.endUnclaimed(ctx, &c, outcome.Verdict{State: state, Failure: failure, Description: failure.Message}, now)
	})
	if err != nil {
		return fmt.Errorf("end what the rollout of job %s has not started: %w", r.ID, err)
	}
	return nil
}

// endUnclaimed ends a job that nobody has claimed. One that has ended already, for
// whatever reason, is told of again: who ended it may have died before it did.
func (h *Handler) endUnclaimed(ctx context.Context, r *job.Record, v outcome.Verdict, now time.Time) error {
	err := outcome.Unclaimed(ctx, h.Conn, r, v, now)
	if !errors.Is(err, bus.ErrConflict) {
		return err
	}
	cp, _, err := h.Conn.Checkpoint(ctx, node.Family(r.Family), r.ID)
	switch {
	case errors.Is(err, bus.ErrNotFound):
		return nil
	case err != nil:
		return err
	case cp.GetDone():
		return outcome.Report(ctx, h.Conn, cp)
	}
	return nil // it was started after all, and ends as others do
}

// expireRollout stops a rollout that has not begun all of its waves in time.
func (h *Handler) expireRollout(ctx context.Context, r job.Record, rev bus.Revision, now time.Time) error {
	if r.Deadline.After(now) {
		return h.rearm(ctx, bus.TimerDeadline, r.ID, r.Deadline)
	}
	for range rolloutTries {
		next, ok := job.ExpireRollout(r, now)
		if !ok {
			return nil
		}
		tx := h.Conn.Begin()
		tx.ReplaceRecord(&next, rev)
		tx.ArmTimer(bus.TimerRollout, r.ID, now)
		_, err := tx.Commit(ctx)
		if !errors.Is(err, bus.ErrConflict) {
			return err
		}
		if r, rev, err = h.Conn.Record(ctx, r.ID); err != nil {
			if errors.Is(err, bus.ErrNotFound) {
				return nil
			}
			return err
		}
	}
	return fmt.Errorf("deadline of the rollout of job %s: its record moved %d times: %w", r.ID, rolloutTries, bus.ErrConflict)
}
