// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// Ways in which a command is not taken now.
var (
	errNotAdmitted = errors.New("agent: the batch is not fully admitted yet")
	errOwnerAlive  = errors.New("agent: another process owns the job")
	errJobGone     = errors.New("agent: the job does not exist any more")
	errDraining    = errors.New("agent: the process takes no more jobs")
)

// handle takes one delivered command to its end, or puts it back.
func (a *Agent) handle(ctx context.Context, d *bus.Delivery) {
	if !a.begin(d.ID) {
		a.metrics.claims.WithLabelValues("duplicate").Inc()
		a.copyOf(d)
		return
	}
	defer a.end(d.ID)
	t, err := a.claim(ctx, d)
	switch {
	case errors.Is(err, errJobGone):
		a.metrics.claims.WithLabelValues("gone").Inc()
		a.acknowledge(ctx, d)
	case errors.Is(err, errNotAdmitted):
		a.metrics.claims.WithLabelValues("not_admitted").Inc()
		a.giveBack(d, a.opts.ParentPause)
	case errors.Is(err, errOwnerAlive), errors.Is(err, bus.ErrConflict):
		// Somebody owns the job, or has just won it.
		a.metrics.claims.WithLabelValues("owner_alive").Inc()
		a.giveBack(d, a.opts.Conn.Timing().NakBusy)
	case errors.Is(err, errDraining):
		a.metrics.claims.WithLabelValues("draining").Inc()
		a.giveBack(d, 0)
	case err != nil:
		a.metrics.claims.WithLabelValues("error").Inc()
		a.opts.Logger.Warn("command put back", "job_id", d.ID.String(), "err", err)
		a.giveBack(d, a.opts.Conn.Timing().NakBusy)
	case t.ck.GetDone():
		a.metrics.claims.WithLabelValues("done").Inc()
		t.report(ctx)
	default:
		a.metrics.claims.WithLabelValues("claimed").Inc()
		if err := t.Failpoint(FailAfterClaim); err != nil {
			return
		}
		a.execute(ctx, t)
	}
}

// copyOf settles one more copy of a command whose job this process has in hand.
// A job that is not its own any more is left to others even while its handler
// has not returned.
func (a *Agent) copyOf(d *bus.Delivery) {
	a.mu.Lock()
	t := a.running[d.ID]
	a.mu.Unlock()
	if t != nil && !t.mayHold() {
		a.giveBack(d, a.opts.Conn.Timing().NakBusy)
		return
	}
	if err := d.Working(); err != nil {
		a.opts.Logger.Debug("heartbeat not sent", "job_id", d.ID.String(), "err", err)
	}
}

func (a *Agent) begin(id job.ID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.claiming[id] {
		return false
	}
	a.claiming[id] = true
	return true
}

func (a *Agent) end(id job.ID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.claiming, id)
}

func (a *Agent) giveBack(d *bus.Delivery, after time.Duration) {
	if err := d.Return(after); err != nil {
		a.opts.Logger.Debug("command not put back", "job_id", d.ID.String(), "err", err)
	}
}

func (a *Agent) acknowledge(ctx context.Context, d *bus.Delivery) {
	ctx, cancel := context.WithTimeout(ctx, a.opts.Conn.Timing().Request)
	defer cancel()
	if err := d.Finish(ctx); err != nil {
		// Harmless: the command comes again, and finds its job done.
		a.opts.Logger.Debug("command not acknowledged", "job_id", d.ID.String(), "err", err)
	}
}

// claim makes this process the owner of the job by compare and set on its
// checkpoint. The task of a job that is done comes back without a claim: only
// its outcome is to be reported.
func (a *Agent) claim(ctx context.Context, d *bus.Delivery) (*Task, error) {
	if a.draining() {
		return nil, errDraining
	}
	sess, err := a.session(ctx)
	if err != nil {
		return nil, err
	}
	if err := a.checkAdmitted(ctx, d); err != nil {
		return nil, err
	}
	ck, rev, err := a.opts.Conn.Checkpoint(ctx, a.opts.Family, d.ID)
	if err != nil && !errors.Is(err, bus.ErrNotFound) {
		return nil, err
	}
	if ck.GetDone() {
		return a.newTask(sess, d, ck, rev), nil
	}
	if ck.GetJobId() == "" {
		if err := a.checkOpen(ctx, d); err != nil {
			return nil, err
		}
	}
	next, err := a.ownership(ctx, d, ck, sess)
	if err != nil {
		return nil, err
	}
	if next.GetStuck() >= a.opts.MaxStuck {
		a.sealAbandoned(next, d.Command)
	}
	if !sess.Valid() {
		return nil, fmt.Errorf("claim job %s: %w", d.ID, bus.ErrSessionLost)
	}
	if rev, err = a.opts.Conn.PutCheckpoint(ctx, next, rev); err != nil {
		return nil, fmt.Errorf("claim job %s: %w", d.ID, err)
	}
	t := a.newTask(sess, d, next, rev)
	if next.GetEpoch() > 1 && !next.GetDone() {
		a.metrics.takeovers.Inc()
		t.log.Info("job taken over", "epoch", next.GetEpoch(), "attempt", next.GetAttempt(), "stage", next.GetStage())
	}
	return t, nil
}

// checkAdmitted holds a child back until all children of its batch exist.
func (a *Agent) checkAdmitted(ctx context.Context, d *bus.Delivery) error {
	if d.ID.IsTopLevel() {
		return nil
	}
	parent := d.ID.Parent()
	return a.batches.check(ctx, parent, a.opts.ParentPause/pendingShare, func() (bool, error) {
		r, _, err := a.opts.Conn.Record(ctx, parent)
		if errors.Is(err, bus.ErrNotFound) {
			return false, fmt.Errorf("%w: parent %s", errJobGone, parent)
		}
		return r.Admitted, err
	})
}

// checkOpen refuses a job without checkpoint that has ended: the command was
// delivered before, and the checkpoint cleared away meanwhile.
func (a *Agent) checkOpen(ctx context.Context, d *bus.Delivery) error {
	r, _, err := a.opts.Conn.Record(ctx, d.ID)
	if errors.Is(err, bus.ErrNotFound) || err == nil && r.State.Terminal() {
		return fmt.Errorf("%w: job %s", errJobGone, d.ID)
	}
	return err
}

// ownership returns the checkpoint with which this process owns the job, or
// errOwnerAlive while the former owner's session may still act.
func (a *Agent) ownership(ctx context.Context, d *bus.Delivery, ck *rackbusv1.JobCheckpoint, sess *bus.Session) (*rackbusv1.JobCheckpoint, error) {
	at := timestamppb.Now()
	if ck.GetJobId() == "" {
		cmd := d.Command
		first := firstCheckpoint(cmd, sess.ID(), at)
		first.CommandSeq = uint64(d.Revision)
		return first, nil
	}
	next := proto.CloneOf(ck)
	next.Owner, next.Epoch, next.CommandSeq, next.At = sess.ID(), ck.GetEpoch()+1, uint64(d.Revision), at
	switch owner := ck.GetOwner(); owner {
	case "", sess.ID():
		// Handed back, or lost by this process while its session held.
	default:
		alive, err := a.opts.Conn.SessionAlive(ctx, a.opts.Family, owner)
		if err != nil {
			return nil, err
		}
		if alive {
			return nil, fmt.Errorf("%w: session %s", errOwnerAlive, owner)
		}
		next.Attempt++
		next.Stuck++
	}
	return next, nil
}

// firstCheckpoint is that of a job which nobody has worked on yet. Its run limit
// counts from now; a deadline of the command counts all the same.
func firstCheckpoint(cmd *rackbusv1.JobCommand, owner string, at *timestamppb.Timestamp) *rackbusv1.JobCheckpoint {
	first := &rackbusv1.JobCheckpoint{
		V: 1, JobId: cmd.GetJobId(), ParentJobId: cmd.GetParentJobId(), Type: cmd.GetType(), Family: cmd.GetFamily(),
		RackId: cmd.GetTarget().GetRackId(), NodeId: cmd.GetTarget().GetNodeId(),
		Owner: owner, Epoch: 1, Attempt: 1, StartedAt: at, At: at,
	}
	if limit := time.Duration(cmd.GetRunLimitSeconds()) * time.Second; limit > 0 {
		first.Deadline = timestamppb.New(at.AsTime().Add(limit))
	}
	if d := cmd.GetDeadline(); d != nil && (first.GetDeadline() == nil || d.AsTime().Before(first.GetDeadline().AsTime())) {
		first.Deadline = d
	}
	return first
}

// sealAbandoned ends a job over which several owners died without any progress:
// it would go on killing its workers.
func (a *Agent) sealAbandoned(ck *rackbusv1.JobCheckpoint, cmd *rackbusv1.JobCommand) {
	f := job.NewFailure(job.FailureAbandoned, job.AbandonedMessage)
	f.Phase = ck.GetStage()
	ck.Done = true
	e := outcomeEvent(ck, cmd, verdict{state: job.StateFailed, description: job.AbandonedDescription, failure: f})
	e.Agent, e.N = a.opts.Instance, 1
	ck.Outcome = job.EventToProto(e)
	ck.Data = nil
}
