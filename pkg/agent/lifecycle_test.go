// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

func TestJobFromCommandToFinished(t *testing.T) {
	t.Parallel()
	s := newSite(t, quickTiming())
	dev := newDevice()
	type state struct{ Handle string }
	p := s.start("a", only(func(ctx context.Context, task *agent.Task) (agent.Outcome, error) {
		var st state
		found, err := task.Load(&st)
		if err != nil || found {
			return agent.Outcome{}, fmt.Errorf("a fresh job has state: %v %w", st, err)
		}
		err = task.RunStages(ctx, []agent.Stage{
			{Name: "check", Description: "Checking", Run: func(context.Context) error { task.Progress(10, "looked"); return nil }},
			{Name: "idle", Description: "Idling", Run: func(context.Context) error { return agent.Skip("already there") }},
			{
				Name: "flash", Description: "Flashing", Resume: agent.Once,
				Observe: func(context.Context) (agent.Observation, error) { return agent.ObservedUnknown, nil },
				Run: func(context.Context) error {
					if err := dev.write(task); err != nil {
						return err
					}
					return task.Set(state{"task/1"})
				},
			},
			{Name: "wait", Description: "Waiting", Resume: agent.Resumable, Run: func(ctx context.Context) error {
				polls := 0
				return task.Poll(ctx, time.Millisecond, func(context.Context) (bool, time.Duration, error) {
					polls++
					task.Progress(10+polls*30, fmt.Sprintf("poll %d", polls))
					return polls == 3, 0, nil
				})
			}},
		})
		return agent.Outcome{Description: "All done", ResultJSON: `{"ok":true}`}, err
	}), nil)
	id := s.admit(order{limit: time.Minute})
	events := s.await(id)

	first, end := events[0], last(events)
	require.Equal(t, job.EventStarted, first.Kind)
	require.EqualValues(t, 1, first.N)
	require.WithinDuration(t, first.StartedAt.Add(time.Minute), first.Deadline, time.Second)
	require.Equal(t, "a", first.Agent)
	requireOrdered(t, events)

	require.Equal(t, job.StateCompleted, end.State)
	require.Equal(t, "All done", end.Description)
	require.JSONEq(t, `{"ok":true}`, end.ResultJSON)
	require.EqualValues(t, 100, end.Percent)
	require.NotZero(t, end.CommandSeq)
	var statuses []string
	for _, st := range end.Stages {
		statuses = append(statuses, st.Name+"="+st.Status.String())
		require.False(t, st.FinishedAt.Before(st.StartedAt), st.Name)
	}
	require.Equal(t, []string{"check=completed", "idle=skipped", "flash=completed", "wait=completed"}, statuses)
	require.Equal(t, []uint64{1}, dev.epochs(id))

	require.NoError(t, p.stop())
	ck, _ := s.checkpoint(id)
	require.True(t, ck.GetDone())
	require.Empty(t, ck.GetData(), "a sealed job keeps no workflow state")
	unacked, waiting := s.commands()
	require.Zero(t, unacked, "the command is acknowledged")
	require.Zero(t, waiting)
	require.InDelta(t, 1, p.metric("rackbus_agent_claims_total", "claimed"), 0)
}

// requireOrdered checks what every job's events have in common.
func requireOrdered(t testing.TB, events []job.Event) {
	t.Helper()
	var epoch, n uint64
	finished := false
	for i, e := range events {
		require.Falsef(t, finished, "event %d (%s) behind the outcome", i, e.Kind)
		if e.Epoch > epoch {
			epoch, n = e.Epoch, 0
		}
		require.Equal(t, epoch, e.Epoch, "an owner speaks after the next one has")
		require.Greaterf(t, e.N, n, "event %d (%s)", i, e.Kind)
		n = e.N
		finished = e.Kind == job.EventFinished
	}
}

// TestNothingIsReportedBehindTheOutcome lets jobs chatter to their very end.
func TestNothingIsReportedBehindTheOutcome(t *testing.T) {
	t.Parallel()
	s := newSite(t, quickTiming())
	p := s.start("a", only(func(_ context.Context, task *agent.Task) (agent.Outcome, error) {
		for i := range 50 {
			task.Describe(fmt.Sprintf("step %d", i))
			task.Progress(i, "moving")
		}
		return agent.Outcome{}, nil
	}), nil)
	var ids []job.ID
	for range 40 {
		ids = append(ids, s.admit(order{}))
	}
	for _, id := range ids {
		s.await(id)
	}
	require.NoError(t, p.stop())
	for _, id := range ids {
		requireOrdered(t, s.history(id))
	}
}

func TestHowHandlersFail(t *testing.T) {
	t.Parallel()
	s := newSite(t, quickTiming())
	boom := errors.New("boom")
	unknown := func(context.Context) (agent.Observation, error) { return agent.ObservedUnknown, nil }
	absent := func(context.Context) (agent.Observation, error) { return agent.ObservedNotStarted, nil }
	stage := func(st agent.Stage) agent.Handler {
		return func(ctx context.Context, task *agent.Task) (agent.Outcome, error) {
			st := st
			st.Name = "work"
			return agent.Outcome{ResultJSON: `{"partial":1}`}, task.RunStages(ctx, []agent.Stage{st, {Name: "after", Run: noop}})
		}
	}
	runs := func(err error) func(context.Context) error { return func(context.Context) error { return err } }
	cases := map[string]struct {
		typ     job.Type
		handler agent.Handler
		code    job.FailureCode
		phase   string
		message string
		// stages are the statuses at the end.
		stages []job.StageStatus
	}{
		"plain error":  {handler: func(context.Context, *agent.Task) (agent.Outcome, error) { return agent.Outcome{}, boom }, code: job.FailureInternal, message: "boom"},
		"failed stage": {handler: stage(agent.Stage{Run: runs(boom)}), code: job.FailureInternal, phase: "work", message: "stage work: boom", stages: []job.StageStatus{job.StageFailed, job.StageSkipped}},
		"typed failure": {
			handler: stage(agent.Stage{Run: runs(agent.Fail(job.FailureBMCAuthFailed, "login", "no entry", boom))}),
			code:    job.FailureBMCAuthFailed, phase: "login", message: "no entry", stages: []job.StageStatus{job.StageFailed, job.StageSkipped},
		},
		"tries used up": {handler: stage(agent.Stage{Attempts: 3, Pause: time.Millisecond, Run: runs(agent.Retry(0, boom))}), code: job.FailureInternal, phase: "work", message: "stage work: boom"},
		"panic": {
			handler: stage(agent.Stage{Run: func(context.Context) error { panic("secret pl4nted") }}),
			code:    job.FailurePanic, phase: "work", message: job.AbandonedMessage, stages: []job.StageStatus{job.StageFailed, job.StageSkipped},
		},
		"unknown type": {typ: job.TypeSwitchCertificate, code: job.FailureJobTypeUnsupported, phase: "dispatch", message: "no agent of family compute does jobs of type switch_certificate"},
		"answer lost": {
			handler: stage(agent.Stage{Resume: agent.Once, Observe: unknown, Run: runs(agent.Unknown(boom))}),
			code:    job.FailureOutcomeUnknown, phase: "work", message: "interrupted during work: whether the device took the change is unknown, and it was not repeated",
		},
		"answer lost, never arrived": {handler: stage(agent.Stage{Resume: agent.Once, Observe: absent, Run: runs(agent.Unknown(boom))}), code: job.FailureInternal, phase: "work", message: "stage work: boom"},
		"once without observation":   {handler: stage(agent.Stage{Resume: agent.Once, Run: noop}), code: job.FailureInternal, message: "agent: stage work changes the device once but cannot observe it"},
		"once but interruptible":     {handler: stage(agent.Stage{Resume: agent.Once, Interruptible: true, Observe: unknown, Run: noop}), code: job.FailureInternal, message: "agent: stage work changes the device once and must not be interruptible"},
		"two lists of stages": {
			handler: func(ctx context.Context, task *agent.Task) (agent.Outcome, error) {
				return agent.Outcome{}, errors.Join(task.RunStages(ctx, nil), task.RunStages(ctx, nil))
			},
			code: job.FailureInternal, message: "agent: a job runs one list of stages",
		},
		"result too large": {
			handler: func(context.Context, *agent.Task) (agent.Outcome, error) {
				return agent.Outcome{ResultJSON: `"` + strings.Repeat("x", 600<<10) + `"`}, nil
			},
			code: job.FailureResultTooLarge, message: "the job ended as completed, but its result was too large to be kept",
		},
		"findings too large": {
			handler: func(context.Context, *agent.Task) (agent.Outcome, error) {
				return agent.Outcome{Diagnostics: &job.Diagnostics{Summary: strings.Repeat("x", 600<<10)}}, nil
			},
			code: job.FailureResultTooLarge, message: "the job ended as completed, but its result was too large to be kept",
		},
		"message too large": {handler: stage(agent.Stage{Run: runs(errors.New(strings.Repeat("x", 600<<10)))}), code: job.FailureResultTooLarge, message: "the job ended as failed, but its result was too large to be kept"},
	}
	sc := newScripts()
	p := s.start("a", only(sc.handler), nil)
	ids := map[string]job.ID{}
	for name, c := range cases {
		ids[name] = sc.add(s, order{typ: c.typ}, c.handler)
	}
	for name, c := range cases {
		end := last(s.await(ids[name]))
		require.Equal(t, job.StateFailed, end.State, name)
		require.NotNil(t, end.Failure, name)
		require.Equal(t, c.code, end.Failure.FailureCode, name)
		require.Equal(t, c.phase, end.Failure.Phase, name)
		require.Equal(t, c.message, end.Failure.Message, name)
		for i, want := range c.stages {
			require.Equal(t, want.String(), end.Stages[i].Status.String(), "%s: stage %d", name, i)
		}
	}
	require.NoError(t, p.stop())
	unacked, waiting := s.commands()
	require.Zero(t, unacked)
	require.Zero(t, waiting)
}

func noop(context.Context) error { return nil }

// TestOnceIsNotRepeatedBlindly: a retry that hides a lost answer must not send
// the change again before the device was asked.
func TestOnceIsNotRepeatedBlindly(t *testing.T) {
	t.Parallel()
	s := newSite(t, quickTiming())
	boom := errors.New("connection reset")
	cases := map[string]struct {
		err      error
		observed []agent.Observation
		state    job.State
		writes   int
	}{
		"unknown in retry, done":          {agent.Retry(0, agent.Unknown(boom)), []agent.Observation{agent.ObservedDone}, job.StateCompleted, 1},
		"retry in unknown, done":          {agent.Unknown(agent.Retry(0, boom)), []agent.Observation{agent.ObservedDone}, job.StateCompleted, 1},
		"unknown in retry, unknown":       {agent.Retry(0, agent.Unknown(boom)), []agent.Observation{agent.ObservedUnknown}, job.StateFailed, 1},
		"not started twice, then done":    {agent.Unknown(boom), []agent.Observation{agent.ObservedNotStarted, agent.ObservedNotStarted, agent.ObservedDone}, job.StateCompleted, 3},
		"never started":                   {agent.Unknown(boom), []agent.Observation{agent.ObservedNotStarted, agent.ObservedNotStarted, agent.ObservedNotStarted}, job.StateFailed, 3},
		"refused in so many words, again": {agent.Retry(0, boom), nil, job.StateFailed, 3},
	}
	sc, dev := newScripts(), newDevice()
	s.start("a", only(sc.handler), nil)
	ids := map[string]job.ID{}
	for name, c := range cases {
		looks := 0
		ids[name] = sc.add(s, order{}, func(ctx context.Context, task *agent.Task) (agent.Outcome, error) {
			return agent.Outcome{}, task.RunStages(ctx, []agent.Stage{{
				Name: "flash", Resume: agent.Once, Attempts: 3, Pause: time.Millisecond,
				Run: func(context.Context) error { return errors.Join(dev.write(task), c.err) },
				Observe: func(context.Context) (agent.Observation, error) {
					looks++
					return c.observed[looks-1], nil
				},
			}})
		})
	}
	for name, c := range cases {
		require.Equal(t, c.state.String(), last(s.await(ids[name])).State.String(), name)
		require.Len(t, dev.epochs(ids[name]), c.writes, name)
	}
}

func TestJobsThatAreGivenUp(t *testing.T) {
	t.Parallel()
	s := newSite(t, quickTiming())
	sc := newScripts()
	ran := make(chan job.ID, 10)
	h := func(ctx context.Context, task *agent.Task) (agent.Outcome, error) {
		ran <- task.ID()
		return agent.Outcome{}, task.RunStages(ctx, []agent.Stage{{Name: "poll", Resume: agent.Resumable, Run: func(ctx context.Context) error {
			return task.Sleep(ctx, time.Millisecond)
		}}, {Name: "look", Run: func(context.Context) error {
			ck, _, err := s.api.Checkpoint(ctx, family, task.ID())
			if err != nil || ck.GetStuck() != 0 {
				return fmt.Errorf("stuck is %d behind a poll: %w", ck.GetStuck(), err)
			}
			return nil
		}}})
	}
	deadOwner := func(stuck uint32) func(*rackbusv1.JobCheckpoint) {
		return func(ck *rackbusv1.JobCheckpoint) {
			ck.Epoch, ck.Attempt, ck.Stuck, ck.Stage = 7, 4, stuck, ""
			ck.Data = []byte(`"x"`)
		}
	}
	hopeless := sc.add(s, order{}, h)
	s.left(hopeless, "dead-session", deadOwner(2))
	hopeful := sc.add(s, order{}, h)
	s.left(hopeful, "dead-session", deadOwner(1))
	// Commands are there already, so that both are claimed from these checkpoints.
	s.start("a", only(sc.handler), nil)

	end := last(s.await(hopeless))
	require.Equal(t, job.StateFailed, end.State)
	require.Equal(t, job.FailureAbandoned, end.Failure.FailureCode)
	require.Equal(t, job.AbandonedMessage, end.Failure.Message)
	require.Equal(t, job.AbandonedDescription, end.Description)
	require.EqualValues(t, 8, end.Epoch)
	require.EqualValues(t, 5, end.Attempt)
	require.NotZero(t, end.N)
	require.Equal(t, job.StateCompleted, last(s.await(hopeful)).State)
	require.Equal(t, hopeful, <-ran)
	require.Empty(t, ran, "the given-up job did not run")
}

func TestCheckpointOfAStageThatIsNotListed(t *testing.T) {
	t.Parallel()
	s := newSite(t, quickTiming())
	sc, dev := newScripts(), newDevice()
	id := sc.add(s, order{}, func(ctx context.Context, task *agent.Task) (agent.Outcome, error) {
		return agent.Outcome{}, task.RunStages(ctx, []agent.Stage{{Name: "flash", Run: func(context.Context) error { return dev.write(task) }}})
	})
	s.left(id, "", func(ck *rackbusv1.JobCheckpoint) {
		ck.Stage, ck.Phase = "flash_of_an_older_version", rackbusv1.CheckpointPhase_CHECKPOINT_PHASE_OUTCOME
	})
	s.start("a", only(sc.handler), nil)
	end := last(s.await(id))
	require.Equal(t, job.FailureOutcomeUnknown, end.Failure.FailureCode)
	require.Empty(t, dev.epochs(id))
}

func TestChildrenWaitForTheirBatch(t *testing.T) {
	t.Parallel()
	s := newSite(t, quickTiming())
	ran := make(chan job.ID, 10)
	p := s.start("a", only(func(_ context.Context, task *agent.Task) (agent.Outcome, error) {
		ran <- task.ID()
		return agent.Outcome{}, nil
	}), nil)

	parent := job.NewParent(job.Spec{ID: s.newID(), Type: job.TypeFirmwareUpdate, RackID: "r1", CreatedAt: time.Now().UTC()}, 1, false)
	tx := s.api.Begin()
	tx.CreateRecord(&parent)
	_, err := tx.Commit(t.Context())
	require.NoError(t, err)
	child := s.admit(order{parent: parent.ID, index: 1})
	require.Eventually(t, func() bool { return p.metric("rackbus_agent_claims_total", "not_admitted") >= 3 }, patience, 5*time.Millisecond)
	require.Empty(t, ran)

	r, rev, err := s.api.Record(t.Context(), parent.ID)
	require.NoError(t, err)
	r.Admitted = true
	tx = s.api.Begin()
	tx.ReplaceRecord(&r, rev)
	_, err = tx.Commit(t.Context())
	require.NoError(t, err)
	require.Equal(t, job.StateCompleted, last(s.await(child)).State)

	orphan := s.admit(order{parent: s.newID(), index: 1})
	require.Eventually(t, func() bool { return p.metric("rackbus_agent_claims_total", "gone") == 1 }, patience, 5*time.Millisecond)
	require.NoError(t, p.stop())
	require.Empty(t, s.history(orphan))
	unacked, waiting := s.commands()
	require.Zero(t, unacked)
	require.Zero(t, waiting)
}

// TestChildrenShareTheLookAtTheirBatch: however many children wait for their
// batch, its record is read a few times a second only.
func TestChildrenShareTheLookAtTheirBatch(t *testing.T) {
	t.Parallel()
	const children = 40
	s := newSite(t, quickTiming())
	parent := job.NewParent(job.Spec{ID: s.newID(), Type: job.TypeFirmwareUpdate, RackID: "r1", CreatedAt: time.Now().UTC()}, children, false)
	tx := s.api.Begin()
	tx.CreateRecord(&parent)
	_, err := tx.Commit(t.Context())
	require.NoError(t, err)
	for i := range children {
		s.admit(order{parent: parent.ID, index: uint32(i) + 1})
	}
	var reads atomic.Int64
	require.NoError(t, s.raw.CountReads(parent.ID, &reads))
	p := s.start("a", only(func(context.Context, *agent.Task) (agent.Outcome, error) { return agent.Outcome{}, nil }),
		func(o *agent.Options) { o.ParentPause = 200 * time.Millisecond })
	turnedAway := func() float64 { return p.metric("rackbus_agent_claims_total", "not_admitted") }
	require.Eventually(t, func() bool { return turnedAway() >= 5*children }, patience, 5*time.Millisecond)
	require.NoError(t, p.stop())
	require.Positive(t, reads.Load())
	require.Less(t, float64(reads.Load()), turnedAway()/4)
}

// TestEndedJobWithoutCheckpoint: a command may come once more after its job was
// ended and the checkpoint cleared away.
func TestEndedJobWithoutCheckpoint(t *testing.T) {
	t.Parallel()
	s := newSite(t, quickTiming())
	ran := make(chan job.ID, 10)
	id := s.admit(order{})
	r, _, err := s.api.Record(t.Context(), id)
	require.NoError(t, err)
	r.State = job.StateTimedOut
	tx := s.api.Begin()
	tx.SealRecord(&r, time.Hour, nil)
	tx.SetCursor(0, 1, bus.Absent) // as the fold does
	_, err = tx.Commit(t.Context())
	require.NoError(t, err)
	p := s.start("a", only(func(_ context.Context, task *agent.Task) (agent.Outcome, error) {
		ran <- task.ID()
		return agent.Outcome{}, nil
	}), nil)
	require.Eventually(t, func() bool { return p.metric("rackbus_agent_claims_total", "gone") == 1 }, patience, 5*time.Millisecond)
	require.NoError(t, p.stop())
	require.Empty(t, ran)
}
