// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/job"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// flashing is a workflow that reads, writes an image, and follows the device's
// task. Each stage waits at its gate.
type flashing struct{ read, prepare, write, follow *gate }

func newFlashing() *flashing { return &flashing{newGate(), newGate(), newGate(), newGate()} }

const flashTask = "task /redfish/v1/TaskService/Tasks/7"

func (f *flashing) handler(ctx context.Context, task *agent.Task) (agent.Outcome, error) {
	return agent.Outcome{}, task.RunStages(ctx, []agent.Stage{
		{Name: "read", Description: "Reading", Interruptible: true, Run: f.read.pass},
		{
			Name: "write", Description: "Writing the image", Resume: agent.Once, Limit: 20 * time.Minute,
			Prepare: f.prepare.pass,
			Run: func(ctx context.Context) error {
				task.InFlight(flashTask)
				if err := task.Save(ctx, "sent"); err != nil {
					return err
				}
				return f.write.pass(ctx)
			},
			Observe: func(context.Context) (agent.Observation, error) { return agent.ObservedDone, nil },
		},
		{Name: "follow", Description: "Following the task", Resume: agent.Resumable, Limit: 40 * time.Minute, Run: f.follow.pass},
		{Name: "last", Description: "Checking", Run: noop},
	})
}

// asked is the request that the API publishes, for the record.
func (s *site) asked(id job.ID, mode job.CancelMode) {
	s.t.Helper()
	now := time.Now().UTC()
	require.NoError(s.t, s.api.PublishEvent(s.t.Context(), &job.Event{
		Kind: job.EventCancelRequested, ID: id, RackID: "r1", At: now,
		Cancel: &job.Cancel{Mode: mode, Reason: job.CancelReasonOperator, RequestedAt: now},
	}))
	s.ask(id, mode, job.CancelReasonOperator)
}

// awaitDescription waits until the record of a job says so.
func (s *site) awaitDescription(id job.ID, want string) {
	s.t.Helper()
	require.Eventually(s.t, func() bool { return s.folded(id).Description == want }, patience, 5*time.Millisecond,
		"the record does not say %q", want)
}

func TestStageThatCannotBeCutSaysSo(t *testing.T) {
	t.Parallel()
	s := newSite(t, quickTiming())
	sc := newScripts()
	s.start("a", only(sc.handler), func(o *agent.Options) { o.ProgressInterval = time.Hour })

	t.Run("while the image is written and the device works", func(t *testing.T) {
		f := newFlashing()
		id := sc.add(s, order{}, f.handler)
		close(f.read.open)
		close(f.prepare.open)
		f.write.awaitReached(t)
		s.asked(id, job.CancelGraceful)
		s.awaitDescription(id, `Stopping at the next safe point: Writing the image (stage write, "Writing the image", `+
			`cannot be cut; it may take up to 60 minutes. Terminating the job would leave the hardware state unknown)`)
		close(f.write.open)
		f.follow.awaitReached(t)
		s.awaitDescription(id, `Stopping at the next safe point: Following the task (stage follow, "Following the task", `+
			`cannot be cut; it may take up to 40 minutes. Terminating the job would leave the hardware state unknown)`)
		close(f.follow.open)
		require.Equal(t, job.StateCancelled, last(s.await(id)).State)
	})
	t.Run("but not while it is prepared", func(t *testing.T) {
		f := newFlashing()
		id := sc.add(s, order{}, f.handler)
		close(f.read.open)
		f.prepare.awaitReached(t)
		s.asked(id, job.CancelGraceful)
		events := s.await(id)
		require.Equal(t, job.StateCancelled, last(events).State)
		for _, e := range events {
			require.False(t, len(e.Stages) > 1 && e.Stages[1].Uninterruptible)
		}
	})
	t.Run("and a termination names what was in flight", func(t *testing.T) {
		f := newFlashing()
		id := sc.add(s, order{}, f.handler)
		close(f.read.open)
		close(f.prepare.open)
		close(f.write.open)
		f.follow.awaitReached(t)
		s.asked(id, job.CancelTerminate)
		end := last(s.await(id))
		require.Equal(t, job.StateTerminated, end.State)
		require.Equal(t, "terminated during stage follow (Following the task): hardware state unknown; in flight: "+flashTask,
			end.Failure.Message)
		require.Equal(t, "follow", end.Failure.Phase)
	})
}

// TestTerminatedAfterATakeover takes over a job that was asked to end by force,
// and whose former owner had begun a change.
func TestTerminatedAfterATakeover(t *testing.T) {
	t.Parallel()
	s := newSite(t, quickTiming())
	id := s.admit(order{})
	s.left(id, "", func(ck *rackbusv1.JobCheckpoint) {
		ck.Stage, ck.Phase, ck.InFlight = "write", rackbusv1.CheckpointPhase_CHECKPOINT_PHASE_INTENT, flashTask
		ck.Stages = []*rackbusv1.JobStage{{
			Name: "write", Description: "Writing the image", Status: rackbusv1.StageStatus_STAGE_STATUS_RUNNING, StartedAt: timestamppb.Now(),
		}}
		ck.Cancel = job.CancelToProto(&job.Cancel{Mode: job.CancelTerminate, Reason: job.CancelReasonShutdown, RequestedAt: time.Now().UTC()})
	})
	ran := make(chan job.ID, 1)
	s.start("a", only(func(_ context.Context, task *agent.Task) (agent.Outcome, error) {
		ran <- task.ID()
		return agent.Outcome{}, nil
	}), nil)
	end := last(s.await(id))
	require.Equal(t, job.StateTerminated, end.State)
	require.Equal(t, job.FailureShuttingDown, end.Failure.FailureCode)
	require.Equal(t, "terminated during stage write (Writing the image): hardware state unknown; in flight: "+flashTask, end.Failure.Message)
	require.Empty(t, ran)
}

// TestHandleIsForgotten: what the device was at work on in one change is not told
// of the next.
func TestHandleIsForgotten(t *testing.T) {
	t.Parallel()
	s := newSite(t, quickTiming())
	sc, g := newScripts(), newGate()
	s.start("a", only(sc.handler), nil)
	once := func(name string, run func(context.Context) error) agent.Stage {
		return agent.Stage{
			Name: name, Resume: agent.Once, Run: run,
			Observe: func(context.Context) (agent.Observation, error) { return agent.ObservedDone, nil },
		}
	}
	id := sc.add(s, order{}, func(ctx context.Context, task *agent.Task) (agent.Outcome, error) {
		return agent.Outcome{}, task.RunStages(ctx, []agent.Stage{
			once("first", func(context.Context) error { task.InFlight(flashTask); return nil }),
			once("second", g.pass),
		})
	})
	g.awaitReached(t)
	ck, _ := s.checkpoint(id)
	require.Empty(t, ck.GetInFlight())
	s.ask(id, job.CancelTerminate, job.CancelReasonOperator)
	require.Equal(t, "terminated during stage second: hardware state unknown", last(s.await(id)).Failure.Message)
}

// longEnough is a run limit within which a job gets to its second stage, on a busy machine too.
const longEnough = 4 * time.Second

// TestDeadlineLetsAStageEnd: past its deadline a job stops at a safe point, if it
// reaches one in time.
func TestDeadlineLetsAStageEnd(t *testing.T) {
	t.Parallel()
	s := newSite(t, quickTiming())
	sc, f := newScripts(), newFlashing()
	s.start("a", only(sc.handler), func(o *agent.Options) { o.DeadlineGrace = time.Hour })
	close(f.read.open)
	close(f.prepare.open)
	close(f.follow.open)
	id := sc.add(s, order{limit: longEnough}, f.handler)
	f.write.awaitReached(t)
	ck, _ := s.checkpoint(id)
	select {
	case <-time.After(time.Until(ck.GetDeadline().AsTime()) + 50*time.Millisecond):
	case <-t.Context().Done():
	}
	close(f.write.open)
	end := last(s.await(id))
	require.Equal(t, job.StateTimedOut, end.State)
	require.Equal(t, job.FailureDeadlineExceeded, end.Failure.FailureCode)
	require.Equal(t, "the job passed its deadline and stopped at a safe point, in or behind stage follow", end.Failure.Message)
	require.Equal(t, job.StageCompleted, end.Stages[2].Status, "the change was seen through")
	require.Equal(t, job.StageSkipped, end.Stages[3].Status)
}

func TestDeadlineCutsAWrite(t *testing.T) {
	t.Parallel()
	s := newSite(t, quickTiming())
	sc, f := newScripts(), newFlashing()
	s.start("a", only(sc.handler), nil)
	close(f.read.open)
	close(f.prepare.open)
	id := sc.add(s, order{limit: longEnough}, f.handler)
	end := last(s.await(id))
	require.Equal(t, job.StateTimedOut, end.State)
	require.Equal(t, "the job passed its deadline and was cut during stage write (Writing the image): "+
		"hardware state unknown; in flight: "+flashTask, end.Failure.Message)
}

// TestDeadlineOfTheCommand: a caller's deadline counts however long the job has
// waited.
func TestDeadlineOfTheCommand(t *testing.T) {
	t.Parallel()
	s := newSite(t, quickTiming())
	sc, g := newScripts(), newGate()
	deadline := time.Now().Add(800 * time.Millisecond).UTC()
	id := sc.add(s, order{limit: time.Hour, deadline: deadline}, func(ctx context.Context, task *agent.Task) (agent.Outcome, error) {
		return agent.Outcome{}, task.RunStages(ctx, []agent.Stage{{Name: "work", Interruptible: true, Run: g.pass}})
	})
	s.start("a", only(sc.handler), nil)
	end := last(s.await(id))
	require.Equal(t, job.StateTimedOut, end.State)
	require.Equal(t, deadline, end.Deadline)
	require.False(t, end.At.Before(deadline))
}

// TestFailureBeforeTheFirstStageIsLogged: what a workflow would have said in the end
// is not what its job is logged with.
func TestFailureBeforeTheFirstStageIsLogged(t *testing.T) {
	t.Parallel()
	s := newSite(t, quickTiming())
	id := s.admit(order{})
	log := &lines{}
	p := s.start("a", only(func(context.Context, *agent.Task) (agent.Outcome, error) {
		return agent.Outcome{Description: "Completed"}, agent.Fail(job.FailureInvalidArgument, "check", "no endpoint", errors.New("none"))
	}), func(o *agent.Options) { o.Logger = slog.New(slog.NewTextHandler(log, nil)) })
	end := last(s.await(id))
	require.Equal(t, job.StateFailed, end.State)
	require.Empty(t, end.Description, "a job that failed is not called completed")
	require.NoError(t, p.stop())
	require.Contains(t, log.find("job finished"), `description="no endpoint"`)
}

// lines is a log.
type lines struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(p)
}

// find returns the first line with the text.
func (l *lines) find(text string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.all.String()) {
		if strings.Contains(line, text) {
			return line
		}
	}
	return ""
}

// TestCancelDuringDrain: a process that stops hands over a job that was asked to
// stop and whose device is at work. The next one sees that through, and stops then.
func TestCancelDuringDrain(t *testing.T) {
	t.Parallel()
	s := newSite(t, quickTiming())
	sc, f := newScripts(), newFlashing()
	a := s.start("a", only(sc.handler), nil)
	id := sc.add(s, order{}, f.handler)
	close(f.read.open)
	close(f.prepare.open)
	close(f.follow.open)
	f.write.awaitReached(t)
	s.asked(id, job.CancelGraceful)
	a.awaitAsked(id)
	stopped := make(chan error, 1)
	go func() { stopped <- a.stop() }()
	require.Eventually(t, func() bool { return a.Draining() }, patience, time.Millisecond)
	close(f.write.open)
	require.NoError(t, <-stopped)
	// The device is at work on the image: the next owner sees that through.
	ck, _ := s.checkpoint(id)
	require.False(t, ck.GetDone())
	require.Equal(t, flashTask, ck.GetInFlight())
	s.start("b", only(sc.handler), nil)
	end := last(s.await(id))
	require.Equal(t, job.StateCancelled, end.State)
	require.Equal(t, job.StageCompleted, end.Stages[2].Status)
}
