// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// execute runs a claimed job to its end and reports it. track is called once the
// job can be asked to stop.
func (t *Task) execute(root context.Context, track func()) {
	root, end := t.trace(root)
	defer end()
	ctx, cancel := context.WithCancelCause(root)
	defer cancel(context.Canceled)
	t.cancel = cancel
	if err := t.ask(t.ck.GetCancel()); err != nil {
		t.log.Error("request to stop not readable", "err", err)
	}
	left := time.Until(t.ck.GetDeadline().AsTime())
	limited := t.ck.GetDeadline() != nil
	if limited && left <= 0 {
		cancel(ErrDeadline)
	}
	// The start is reported under root: cut short, it might arrive behind the outcome.
	started := t.picture(job.EventStarted)
	if started.Description == "" {
		started.Description = "Started"
	}
	t.log.Info("job started", "op", t.Command().GetType(), "epoch", started.Epoch, "attempt", started.Attempt)
	t.reporter = startReporter(root, t.f.progressInterval, t.publishProgress)
	if limited {
		defer time.AfterFunc(left, t.expire).Stop()
		defer time.AfterFunc(left+t.f.deadlineGrace, func() { cancel(ErrDeadline) }).Stop()
	}
	track()
	if err := t.f.events.PublishEvent(root, &started); err != nil {
		t.log.Warn("start not reported", "err", err)
	}
	outcome, err := t.runHandler(ctx)
	t.conclude(root, ctx, outcome, err)
}

// expire asks a job that has passed its deadline to stop, as the jobs service does.
func (t *Task) expire() {
	t.log.Info("run deadline passed, the job is to stop at its next safe point")
	err := t.ask(job.CancelToProto(&job.Cancel{
		Mode: job.CancelGraceful, Reason: job.CancelReasonDeadline, RequestedBy: t.f.instance, RequestedAt: now(),
	}))
	if err != nil {
		t.log.Error("job not asked to stop", "err", err)
	}
}

// runHandler turns a panic into an error, and keeps the process alive.
func (t *Task) runHandler(ctx context.Context) (o Outcome, err error) {
	h, ok := t.f.handlers[job.Type(t.Command().GetType())]
	if !ok {
		return o, Fail(job.FailureJobTypeUnsupported, "dispatch",
			fmt.Sprintf("no agent of family %s does jobs of type %s", t.f.family, t.Command().GetType()), nil)
	}
	defer func() {
		if p := recover(); p != nil {
			t.log.Error("job panicked", "panic", panicText(p), "stack", string(debug.Stack()))
			t.failCurrent(job.AbandonedMessage)
			err = Fail(job.FailurePanic, t.stageName(), job.AbandonedMessage, fmt.Errorf("panic: %s", panicText(p)))
		}
	}()
	// What an earlier owner has begun is left only at the end of its stage, which
	// the stages themselves take care of.
	if err := t.boundary(ctx, t.Epoch() > 1); err != nil {
		return o, err
	}
	return h(ctx, t)
}

// panicText tells what has panicked. Only the Go runtime's own texts are certain
// to hold nothing secret.
func panicText(p any) string {
	if err, ok := p.(runtime.Error); ok {
		return err.Error()
	}
	return fmt.Sprintf("value of type %T", p)
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
func (t *Task) conclude(root, ctx context.Context, o Outcome, err error) {
	cause := context.Cause(ctx)
	var crash *crashError
	switch {
	case errors.As(err, &crash):
		t.reporter.abort()
		return
	case errors.Is(err, ErrHandedOver), errors.Is(cause, ErrHandedOver) && err != nil:
		t.handOver(root)
		return
	}
	v := t.mask.verdict(t.verdict(cause, o, err))
	t.found = t.mask.findings(o.Diagnostics)
	// A workflow that ended as the process was cut has an outcome all the same.
	sctx, cancel := outlast(root, t.f.releaseTimeout)
	defer cancel()
	serr := t.seal(sctx, v)
	if errors.Is(serr, bus.ErrTooLarge) {
		t.log.Error("outcome too large to be kept", "err", serr)
		t.found = nil
		serr = t.seal(sctx, tooLarge(v))
	}
	if serr != nil {
		t.reporter.abort()
		t.log.Warn("outcome not sealed, the job is left to its next owner", "err", serr)
		return
	}
	if err := t.Failpoint(FailAfterDone); err != nil {
		t.reporter.abort()
		return
	}
	t.reporter.close()
	t.report(sctx)
}

// outlast is ctx with some more time after its end.
func outlast(ctx context.Context, more time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(more, func() { cancel(context.Cause(ctx)) })
		context.AfterFunc(longer, func() { timer.Stop() })
	})
	return longer, func() {
		stop()
		cancel(context.Canceled)
	}
}

// verdict is how a job ends.
type verdict struct {
	state       job.State
	description string
	failure     *job.Failure
	result      string
}

// tooLarge is what is told of a job whose outcome no checkpoint can hold.
func tooLarge(v verdict) verdict {
	state := v.state
	if state == job.StateCompleted {
		state = job.StateFailed
	}
	f := job.NewFailure(job.FailureResultTooLarge, "the job ended as "+v.state.String()+", but its result was too large to be kept")
	return verdict{state: state, description: f.Message, failure: f}
}

// verdict maps how a handler ended to the job's terminal state. What cut the
// job weighs more than the error the cut has led to.
func (t *Task) verdict(cause error, o Outcome, err error) verdict {
	t.mu.Lock()
	asked := t.asked
	t.mu.Unlock()
	byDeadline := asked != nil && asked.Reason == job.CancelReasonDeadline
	stage := t.stageName()
	var fail *FailureError
	switch {
	case err == nil:
		return verdict{job.StateCompleted, o.Description, nil, o.ResultJSON}
	case errors.Is(cause, ErrTerminated), errors.Is(err, ErrTerminated):
		if byDeadline {
			return t.deadlineVerdict(true, o)
		}
		code := job.FailureTerminatedByOperator
		if asked != nil && asked.Reason == job.CancelReasonShutdown {
			code = job.FailureShuttingDown
		}
		f := job.NewFailure(code, t.cutText("terminated"))
		f.Phase = stage
		return verdict{job.StateTerminated, f.Message, f, o.ResultJSON}
	case errors.Is(cause, ErrDeadline), byDeadline && errors.Is(err, ErrCancelled):
		return t.deadlineVerdict(errors.Is(cause, ErrDeadline), o)
	case errors.Is(err, ErrCancelled):
		f := job.NewFailure(job.FailureCancelledByOperator, "cancelled at a safe point, "+place(stage))
		f.Phase = "cancelled"
		if errors.As(err, &fail) {
			f.Message = fail.Failure.Message // the workflow says where it stopped
		}
		return verdict{job.StateCancelled, "Cancelled", f, o.ResultJSON}
	case errors.As(err, &fail):
		return verdict{job.StateFailed, "", fail.Failure, o.ResultJSON}
	default:
		f := job.NewFailure(job.FailureInternal, err.Error())
		f.Phase = stage
		return verdict{job.StateFailed, "", f, o.ResultJSON}
	}
}

// deadlineVerdict is that of a job which has passed its deadline. cut says that it
// did not reach a safe point.
func (t *Task) deadlineVerdict(cut bool, o Outcome) verdict {
	stage := t.stageName()
	text := "the job passed its deadline and stopped at a safe point, " + place(stage)
	if s, _ := t.underWay(); cut && s.Uninterruptible {
		text = t.cutText("the job passed its deadline and was cut")
	} else if cut {
		text = "the job passed its deadline and was cut, " + place(stage)
	}
	f := job.NewFailure(job.FailureDeadlineExceeded, text)
	f.Phase = stage
	return verdict{job.StateTimedOut, "Timed out", f, o.ResultJSON}
}

// cutText tells what was under way when the job was cut.
func (t *Task) cutText(how string) string {
	s, inFlight := t.underWay()
	if s.Name == "" {
		switch begun := t.stageName() != ""; {
		case begun:
			how += " between stages"
		case t.Epoch() > 1:
			how += " after its worker was lost"
		default:
			how += " before its first stage"
		}
	}
	return job.CutText(how, s, inFlight)
}

// underWay is the stage that has begun and has not ended well, the zero one when
// there is none, and what the device is at work on. An earlier owner may have been
// in the stage behind the last that it has recorded.
func (t *Task) underWay() (job.Stage, string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, ok := t.timeline.Current()
	began := s.Status == job.StageRunning || s.Status == job.StageFailed
	if !ok || !began && (t.stage != nil || t.ck.GetEpoch() == 1) {
		s = job.Stage{}
	}
	return s, t.ck.GetInFlight()
}

// place is where a job was, stage being the last that it has begun.
func place(stage string) string {
	if stage == "" {
		return "before its first stage"
	}
	return "in or behind stage " + stage
}

// seal fixes the outcome in the checkpoint. From here on the job has ended,
// whoever reports it; a former owner cannot get here, because its compare and
// set fails.
func (t *Task) seal(ctx context.Context, v verdict) error {
	return t.finish(ctx, func(ck *rackbusv1.JobCheckpoint) {
		ck.Done = true
		e := outcomeEvent(ck, t.Command(), v)
		e.Agent, e.Diagnostics = t.f.instance, t.found
		t.mu.Lock()
		t.n++
		e.N, e.Percent = t.n, t.percent
		t.mu.Unlock()
		ck.Outcome = job.EventToProto(e)
		ck.Data = nil
	})
}

// outcomeEvent is the terminal event of a job, as its checkpoint keeps it.
func outcomeEvent(ck *rackbusv1.JobCheckpoint, cmd *rackbusv1.JobCommand, v verdict) job.Event {
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
		Epoch: ck.GetEpoch(), Attempt: ck.GetAttempt(), State: v.state, Description: v.description,
		Failure: v.failure, ResultJSON: v.result, Stages: stages, At: now(),
		StartedAt: timeOf(ck.GetStartedAt()), Deadline: timeOf(ck.GetDeadline()),
		Cancel: asked, CommandSeq: ck.GetCommandSeq(),
	}
}

// report publishes the sealed outcome and takes the command out of the queue.
// When it fails, the command comes again and the next owner repeats it.
func (t *Task) report(ctx context.Context) {
	t.mu.Lock()
	outcome := t.ck.GetOutcome()
	t.mu.Unlock()
	e, err := job.EventFromProto(outcome)
	if err != nil {
		t.log.Error("sealed outcome not readable", "err", err)
		return
	}
	if err := t.f.events.PublishEvent(ctx, &e); err != nil {
		t.log.Warn("outcome not reported yet", "err", err)
		return
	}
	t.f.finished(e)
	level := slog.LevelInfo
	if e.State != job.StateCompleted {
		level = slog.LevelWarn
	}
	description := e.Description
	if e.Failure != nil {
		description = e.Failure.Message
	}
	t.log.Log(ctx, level, "job finished", "state", e.State.String(), "description", description, "epoch", e.Epoch)
	if err := t.Failpoint(FailBeforeAck); err != nil {
		return
	}
	actx, cancel := context.WithTimeout(ctx, t.f.request)
	defer cancel()
	if err := t.queued.Finish(actx); err != nil {
		// Harmless: the command comes again, and finds its job done.
		t.log.Debug("command not acknowledged", "err", err)
	}
}

// handOver gives a job back at a boundary. A job whose session is lost has
// another owner already, and its checkpoint does not take this write.
func (t *Task) handOver(root context.Context) {
	t.reporter.abort()
	if !t.hold.Valid() {
		t.log.Info("job left to its next owner", "epoch", t.Epoch())
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(root), t.f.releaseTimeout)
	defer cancel()
	if err := t.finish(ctx, func(ck *rackbusv1.JobCheckpoint) { ck.Owner = "" }); err != nil {
		t.log.Warn("job not handed back", "err", err)
		return
	}
	t.log.Info("job handed back", "epoch", t.Epoch())
	if err := t.queued.Return(0); err != nil {
		t.log.Debug("command not put back", "err", err)
	}
}
