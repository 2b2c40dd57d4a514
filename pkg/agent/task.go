// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/credentials"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// checkpointRetry is the pause between tries to write a checkpoint while the
// broker is away. The job stands still meanwhile.
const checkpointRetry = 500 * time.Millisecond

// Task is one job in the hands of this process.
type Task struct {
	f      *frame
	hold   hold
	queued queued
	cmd    *rackbusv1.JobCommand
	id     job.ID
	log    *slog.Logger
	cancel context.CancelCauseFunc

	// write serialises changes of the checkpoint.
	write sync.Mutex

	mu          sync.Mutex
	ck          *rackbusv1.JobCheckpoint
	rev         bus.Revision
	n           uint64
	timeline    job.Timeline
	description string
	percent     uint32
	stage       *Stage
	cutStage    context.CancelCauseFunc
	// cutPrepare is set while a Once stage has not changed anything yet.
	cutPrepare context.CancelCauseFunc
	asked      *job.Cancel
	// staged says that the workflow has begun its list of stages.
	staged bool
	// ended says that this process is through with the job.
	ended bool

	// found is what node diagnostics found, once the handler has returned.
	found *job.Diagnostics

	// mask hides what was opened of the job's secrets.
	mask     masker
	act      action
	reporter *reporter
}

// newTask is a job whose checkpoint was read, not claimed yet.
func newTask(f *frame, h hold, q queued, cmd *rackbusv1.JobCommand, id job.ID, ck *rackbusv1.JobCheckpoint, rev bus.Revision) *Task {
	target := cmd.GetTarget()
	t := &Task{
		f: f, hold: h, queued: q, cmd: cmd, id: id, ck: ck, rev: rev, cancel: func(error) {},
		log: f.log.With("job_id", id.String(), "rack", target.GetRackId(), "node", target.GetNodeId()),
	}
	// What an earlier owner has told stays visible until the workflow goes on.
	if stages, err := job.StagesFromProto(ck.GetStages()); err == nil && len(stages) > 0 {
		t.timeline = job.ResumeTimeline(id, timeOf(ck.GetStartedAt()), stages)
	}
	return t
}

func (a *Agent) newTask(sess *bus.Session, d *bus.Delivery, ck *rackbusv1.JobCheckpoint, rev bus.Revision) *Task {
	return newTask(a.frame, sess, d, d.Command, d.ID, ck, rev)
}

// ID is the job's id.
func (t *Task) ID() job.ID { return t.id }

// Command is what was asked for.
func (t *Task) Command() *rackbusv1.JobCommand { return t.cmd }

// Target is the node to work on.
func (t *Task) Target() *rackbusv1.NodeTarget { return t.cmd.GetTarget() }

// Epoch counts the owners of the job, this one included.
func (t *Task) Epoch() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ck.GetEpoch()
}

// Logger carries the job's keys.
func (t *Task) Logger() *slog.Logger { return t.log }

// Guard decides whether requests of this job may be sent.
func (t *Task) Guard() Guard { return taskGuard{t} }

// Credentials opens the login of one endpoint of the node.
func (t *Task) Credentials(kind node.EndpointKind) (node.Credentials, error) {
	c, err := t.f.open(t.Target(), kind)
	switch {
	case err == nil:
		t.mask.login(c)
		return c, nil
	case errors.Is(err, credentials.ErrNone):
		return node.Credentials{}, Fail(job.FailureCredentialsMissing, "credentials", err.Error(), err)
	default:
		return node.Credentials{}, Fail(job.FailureCredentialsUnreadable, "credentials", err.Error(), err)
	}
}

// HasCredentials reports whether an endpoint of the node has a login at all.
func (t *Task) HasCredentials(kind node.EndpointKind) bool {
	c, err := t.f.open(t.Target(), kind)
	c.Password.Wipe()
	return !errors.Is(err, credentials.ErrNone)
}

// Load reads the workflow's state that this or an earlier owner saved into v,
// and reports whether there was any.
func (t *Task) Load(v any) (bool, error) {
	t.mu.Lock()
	data := t.ck.GetData()
	t.mu.Unlock()
	if len(data) == 0 {
		return false, nil
	}
	if err := json.Unmarshal(data, v); err != nil {
		return false, Fail(job.FailureCheckpointUnreadable, "resume", fmt.Sprintf("read the saved state of job %s: %v", t.ID(), err), err)
	}
	return true, nil
}

// Set puts the workflow's state into the checkpoint, which the next stage
// boundary writes.
func (t *Task) Set(v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("save the state of job %s: %w", t.ID(), err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ck.Data = data
	return nil
}

// InFlight tells, in words for people, what the device is at work on for the job,
// for example the URI of its task; "" when that is over. The next checkpoint takes
// it along, so that it can be told of a job that was cut. A stage that reads, or
// makes another change, begins without.
func (t *Task) InFlight(what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ck.InFlight = what
}

// Save writes the workflow's state now.
func (t *Task) Save(ctx context.Context, v any) error {
	if err := t.Set(v); err != nil {
		return err
	}
	return t.update(ctx, func(ck *rackbusv1.JobCheckpoint) { ck.Stuck = 0 })
}

// checkpoint records how far a stage has come.
func (t *Task) checkpoint(ctx context.Context, stage string, phase rackbusv1.CheckpointPhase) error {
	return t.update(ctx, func(ck *rackbusv1.JobCheckpoint) {
		ck.Stage, ck.Phase, ck.Stuck = stage, phase, 0
	})
}

// alive tells the checkpoint, once after a takeover, that the job makes
// progress: only owners that died without any count against it.
func (t *Task) alive(ctx context.Context) error {
	t.mu.Lock()
	stuck := t.ck.GetStuck()
	t.mu.Unlock()
	if stuck == 0 {
		return nil
	}
	return t.update(ctx, func(ck *rackbusv1.JobCheckpoint) { ck.Stuck = 0 })
}

// update changes the checkpoint by compare and set. While the broker is away it
// waits; when somebody else owns the job, the task ends.
func (t *Task) update(ctx context.Context, change func(*rackbusv1.JobCheckpoint)) error {
	t.write.Lock()
	defer t.write.Unlock()
	t.mu.Lock()
	ended := t.ended
	t.mu.Unlock()
	if ended {
		return ErrHandedOver
	}
	return t.writeCheckpoint(ctx, change)
}

// finish makes the last change of the checkpoint by this process. Nothing else
// is written or reported of the job's course afterwards.
func (t *Task) finish(ctx context.Context, change func(*rackbusv1.JobCheckpoint)) error {
	t.write.Lock()
	defer t.write.Unlock()
	t.mu.Lock()
	t.ended = true
	t.mu.Unlock()
	return t.writeCheckpoint(ctx, change)
}

// writeCheckpoint needs the write lock.
func (t *Task) writeCheckpoint(ctx context.Context, change func(*rackbusv1.JobCheckpoint)) error {
	for {
		t.mu.Lock()
		next := proto.CloneOf(t.ck)
		rev := t.rev
		next.Stages = job.StagesToProto(t.timeline.Visible())
		t.mu.Unlock()
		change(next)
		next.At = timestamppb.Now()
		written, err := t.f.checkpoints.PutCheckpoint(ctx, next, rev)
		switch {
		case err == nil:
			t.mu.Lock()
			// The workflow may have set newer data meanwhile; it waits for the next write.
			data, inFlight := t.ck.GetData(), t.ck.GetInFlight()
			t.ck, t.rev = next, written
			t.ck.Data, t.ck.InFlight = data, inFlight
			t.mu.Unlock()
			return nil
		case errors.Is(err, bus.ErrConflict):
			if done, rerr := t.refresh(ctx); done || rerr != nil {
				return rerr
			}
		case errors.Is(err, bus.ErrUnavailable), errors.Is(err, bus.ErrOutcomeUnknown):
			t.log.Warn("checkpoint not written yet", "err", err)
			if werr := sleep(ctx, checkpointRetry); werr != nil {
				return werr
			}
		default:
			return err
		}
	}
}

// refresh reads the checkpoint again. It may have been asked to stop; or the
// job has another owner, and this one must go. done says that it holds the
// outcome which this process has sealed: the answer to that write was lost.
func (t *Task) refresh(ctx context.Context) (done bool, err error) {
	got, rev, err := t.f.checkpoints.Checkpoint(ctx, t.f.family, t.ID())
	switch {
	case errors.Is(err, bus.ErrUnavailable):
		t.log.Warn("checkpoint not read yet", "err", err)
		return false, sleep(ctx, checkpointRetry)
	case errors.Is(err, bus.ErrNotFound):
		// The job was ended, reported and cleared away by somebody else.
	case err != nil:
		return false, err
	}
	t.mu.Lock()
	mine := err == nil && got.GetOwner() == t.hold.ID() && got.GetEpoch() == t.ck.GetEpoch()
	done = mine && got.GetDone()
	switch {
	case done:
		t.ck, t.rev = got, rev
	case mine:
		t.rev = rev
		t.ck.Cancel = got.GetCancel()
	}
	t.mu.Unlock()
	if !mine {
		t.cancel(ErrHandedOver)
		return false, ErrHandedOver
	}
	return done, t.ask(got.GetCancel())
}

// wake looks at the checkpoint because somebody may have asked the job to stop.
func (t *Task) wake(ctx context.Context) {
	t.write.Lock()
	defer t.write.Unlock()
	ctx, cancel := context.WithTimeout(ctx, t.f.releaseTimeout)
	defer cancel()
	if _, err := t.refresh(ctx); err != nil && !errors.Is(err, ErrHandedOver) {
		t.log.Warn("request to stop not read", "err", err)
	}
}

// ask takes in a request to stop. A termination cuts the task at once.
func (t *Task) ask(c *rackbusv1.JobCancel) error {
	asked, err := job.CancelFromProto(c)
	if err != nil || asked == nil {
		return err
	}
	t.mu.Lock()
	if t.asked != nil && t.asked.Mode > asked.Mode {
		t.mu.Unlock()
		return nil
	}
	t.asked = asked
	stage, cut, cutPrepare := t.stage, t.cutStage, t.cutPrepare
	current, _ := t.timeline.Current()
	t.mu.Unlock()
	if current.Uninterruptible && t.reporter != nil {
		t.reporter.note(true) // those who have asked are to see that it goes on
	}
	switch {
	case asked.Mode == job.CancelTerminate:
		t.cancel(ErrTerminated)
	case stage != nil && stage.Interruptible:
		cut(ErrCancelled)
	case cutPrepare != nil:
		cutPrepare(ErrCancelled)
	}
	return t.Failpoint(FailAsked)
}

// stopped returns why the job may not go on, nil while it may.
func (t *Task) stopped() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.ended:
		return ErrHandedOver
	case t.asked != nil && t.asked.Mode == job.CancelTerminate:
		return ErrTerminated
	default:
		return nil
	}
}

// mayHold reports whether the job may still be this process's own.
func (t *Task) mayHold() bool {
	select {
	case <-t.hold.Lost():
		return false
	default:
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	// A sealed job is in hand until its outcome is reported.
	return !t.ended || t.ck.GetDone()
}

// SafePoint returns why the job should stop here, where the device is in a
// state that can be left: it was asked to, or the process drains.
func (t *Task) SafePoint(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	t.mu.Lock()
	asked := t.asked
	t.mu.Unlock()
	switch {
	case asked != nil && asked.Mode == job.CancelTerminate:
		return ErrTerminated
	case asked != nil:
		return ErrCancelled
	case t.f.draining():
		return ErrHandedOver
	default:
		return nil
	}
}

// Sleep waits, and ends early with the reason when the stage is cut.
func (t *Task) Sleep(ctx context.Context, d time.Duration) error {
	if err := sleep(ctx, d); err != nil {
		return err
	}
	return t.alive(ctx)
}

// Poll calls probe until it reports an end, with a pause between the calls. A
// probe's own pause, when longer, is kept (Retry-After).
func (t *Task) Poll(ctx context.Context, interval time.Duration, probe func(context.Context) (done bool, after time.Duration, err error)) error {
	for {
		done, after, err := probe(ctx)
		if err != nil || done {
			return err
		}
		if err := t.Sleep(ctx, max(interval, after)); err != nil {
			return err
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return context.Cause(ctx) // what is to stop does not go on because time was up too
}

// timeOf is the time of a timestamp that may be missing.
func timeOf(ts *timestamppb.Timestamp) time.Time {
	if ts == nil {
		return time.Time{}
	}
	return ts.AsTime()
}
