// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

func (a *Agent) taskLogger(d *bus.Delivery) *slog.Logger {
	ref := d.Ref()
	return a.opts.Logger.With("job_id", d.ID.String(), "rack", ref.RackID, "node", ref.NodeID)
}

// execute runs a claimed job to its end and reports it.
func (a *Agent) execute(root context.Context, t *Task) {
	ctx, cancel := context.WithCancelCause(root)
	defer cancel(context.Canceled)
	t.cancel = cancel
	if err := t.ask(t.ck.GetCancel()); err != nil {
		t.log.Error("request to stop not readable", "err", err)
	}
	stopLost := cutWhenLost(t.sess, cancel)
	defer stopLost()
	if deadline := t.ck.GetDeadline(); deadline != nil {
		timer := time.AfterFunc(time.Until(deadline.AsTime()), func() { cancel(ErrDeadline) })
		defer timer.Stop()
	}
	t.reporter = startReporter(root, t, a.opts.ProgressInterval)
	a.track(t)
	defer a.untrack(t)

	started := t.picture(job.EventStarted)
	started.Description = "Started"
	if err := a.opts.Conn.PublishEvent(ctx, &started); err != nil {
		t.log.Warn("start not reported", "err", err)
	}
	t.log.Info("job started", "op", t.Command().GetType(), "epoch", t.Epoch(), "attempt", t.ck.GetAttempt())
	outcome, err := a.runHandler(ctx, t)
	t.reporter.close()
	a.conclude(root, ctx, t, outcome, err)
}

// cutWhenLost ends a task when its session is gone for good.
func cutWhenLost(s *bus.Session, cancel context.CancelCauseFunc) (stop func()) {
	done := make(chan struct{})
	go func() {
		select {
		case <-s.Lost():
			cancel(ErrHandedOver)
		case <-done:
		}
	}()
	return func() { close(done) }
}

func (a *Agent) track(t *Task) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.running[t.ID()] = t
	a.metrics.inFlight.Set(float64(len(a.running)))
}

func (a *Agent) untrack(t *Task) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.running, t.ID())
	a.metrics.inFlight.Set(float64(len(a.running)))
}

// runHandler turns a panic into an error, and keeps the process alive.
func (a *Agent) runHandler(ctx context.Context, t *Task) (o Outcome, err error) {
	h, ok := a.opts.Handlers[job.Type(t.Command().GetType())]
	if !ok {
		return o, Fail(job.FailureInvalidArgument, "dispatch",
			fmt.Sprintf("no agent of family %s does jobs of type %s", a.opts.Family, t.Command().GetType()), nil)
	}
	defer func() {
		if p := recover(); p != nil {
			t.log.Error("job panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			err = Fail(job.FailurePanic, t.stageName(), job.AbandonedMessage, fmt.Errorf("panic: %v", p))
		}
	}()
	if err := t.SafePoint(ctx); err != nil {
		return o, err
	}
	return h(ctx, t)
}

func (t *Task) stageName() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stage == nil {
		return ""
	}
	return t.stage.Name
}

// conclude decides what becomes of a job whose handler has returned.
func (a *Agent) conclude(root, ctx context.Context, t *Task, o Outcome, err error) {
	cause := context.Cause(ctx)
	if errors.Is(cause, ErrHandedOver) || err != nil && errors.Is(err, ErrHandedOver) {
		a.handOver(root, t)
		return
	}
	state, description, failure := t.verdict(cause, o, err)
	if serr := a.seal(root, t, state, description, failure, o.ResultJSON); serr != nil {
		t.log.Warn("outcome not sealed, the job is left to its next owner", "err", serr)
		return
	}
	a.report(root, t)
}

// verdict maps how a handler ended to the job's terminal state. What cut the
// job weighs more than the error the cut has led to.
func (t *Task) verdict(cause error, o Outcome, err error) (job.State, string, *job.Failure) {
	t.mu.Lock()
	asked := t.asked
	t.mu.Unlock()
	byDeadline := asked != nil && asked.Reason == job.CancelReasonDeadline
	stage := t.stageName()
	var fail *FailureError
	switch {
	case err == nil:
		return job.StateCompleted, o.Description, nil
	case errors.Is(cause, ErrTerminated), errors.Is(err, ErrTerminated):
		if byDeadline {
			return deadlineVerdict(stage)
		}
		f := job.NewFailure(job.FailureTerminatedByOperator,
			"terminated during "+orStart(stage)+": hardware state unknown")
		f.Phase = stage
		return job.StateTerminated, f.Message, f
	case errors.Is(cause, ErrDeadline), byDeadline && errors.Is(err, ErrCancelled):
		return deadlineVerdict(stage)
	case errors.Is(err, ErrCancelled):
		f := job.NewFailure(job.FailureCancelledByOperator, "cancelled before "+orStart(stage)+" was left")
		f.Phase = "cancelled"
		return job.StateCancelled, "Cancelled", f
	case errors.As(err, &fail):
		return job.StateFailed, o.Description, fail.Failure
	default:
		f := job.NewFailure(job.FailureInternal, err.Error())
		f.Phase = stage
		return job.StateFailed, o.Description, f
	}
}

func deadlineVerdict(stage string) (job.State, string, *job.Failure) {
	f := job.NewFailure(job.FailureDeadlineExceeded, "the job passed its deadline during "+orStart(stage))
	f.Phase = stage
	return job.StateTimedOut, "Timed out", f
}

func orStart(stage string) string {
	if stage == "" {
		return "its start"
	}
	return stage
}

// seal fixes the outcome in the checkpoint. From here on the job has ended,
// whoever reports it; a former owner cannot get here, because its compare and
// set fails.
func (a *Agent) seal(ctx context.Context, t *Task, state job.State, description string, f *job.Failure, result string) error {
	t.mu.Lock()
	t.ended = true
	t.description = description
	t.mu.Unlock()
	return t.update(ctx, func(ck *rackbusv1.JobCheckpoint) {
		ck.Done = true
		e := outcomeEvent(ck, t.Command(), state, description, f, result)
		e.Agent = a.opts.Instance
		t.mu.Lock()
		t.n++
		e.N, e.Percent = t.n, t.percent
		t.mu.Unlock()
		ck.Outcome = job.EventToProto(e)
		ck.Data = nil
	})
}

// outcomeEvent is the terminal event of a job, as its checkpoint keeps it.
func outcomeEvent(ck *rackbusv1.JobCheckpoint, cmd *rackbusv1.JobCommand, state job.State, description string, f *job.Failure, result string) job.Event {
	id, _ := job.ParseID(cmd.GetJobId()) // checked when the command was delivered
	stages, err := job.StagesFromProto(ck.GetStages())
	if err != nil {
		stages = nil
	}
	asked, err := job.CancelFromProto(ck.GetCancel())
	if err != nil {
		asked = nil
	}
	return job.Event{
		Kind: job.EventFinished, ID: id, RackID: cmd.GetTarget().GetRackId(), NodeID: cmd.GetTarget().GetNodeId(),
		Type: job.Type(cmd.GetType()), Family: cmd.GetFamily(),
		Epoch: ck.GetEpoch(), Attempt: ck.GetAttempt(), State: state, Description: description,
		Failure: f, ResultJSON: result, Stages: stages, At: now(),
		StartedAt: ck.GetStartedAt().AsTime(), Deadline: ck.GetDeadline().AsTime(),
		Cancel: asked, CommandSeq: ck.GetCommandSeq(),
	}
}

// report publishes the sealed outcome and takes the command out of the queue.
// When it fails, the command comes again and the next owner repeats it.
func (a *Agent) report(ctx context.Context, t *Task) {
	e, err := job.EventFromProto(t.ck.GetOutcome())
	if err != nil {
		t.log.Error("sealed outcome not readable", "err", err)
		return
	}
	if err := a.opts.Conn.PublishEvent(ctx, &e); err != nil {
		t.log.Warn("outcome not reported yet", "err", err)
		return
	}
	a.metrics.finished.WithLabelValues(string(e.Type), e.State.String()).Inc()
	level := slog.LevelInfo
	if e.State != job.StateCompleted {
		level = slog.LevelWarn
	}
	t.log.Log(ctx, level, "job finished", "state", e.State.String(), "description", e.Description, "epoch", e.Epoch)
	a.acknowledge(ctx, t.delivery)
}

// handOver gives a job back at a boundary. A job whose session is lost has
// another owner already, and its checkpoint does not take this write.
func (a *Agent) handOver(ctx context.Context, t *Task) {
	t.mu.Lock()
	t.ended = true
	ck, rev := proto.CloneOf(t.ck), t.rev
	t.mu.Unlock()
	if !t.sess.Valid() {
		t.log.Info("job left to its next owner", "epoch", ck.GetEpoch())
		return
	}
	ck.Owner, ck.At = "", timestamppb.Now()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	if _, err := a.opts.Conn.PutCheckpoint(ctx, ck, rev); err != nil {
		t.log.Warn("job not handed back", "err", err)
		return
	}
	t.log.Info("job handed back", "epoch", ck.GetEpoch())
	a.giveBack(t.delivery, 0)
}
