// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// request is one request to stop.
type request struct {
	mode   job.CancelMode
	reason string
}

func TestRequestsToStop(t *testing.T) {
	t.Parallel()
	s := newSite(t, quickTiming())
	graceful := request{job.CancelGraceful, job.CancelReasonOperator}
	terminate := request{job.CancelTerminate, job.CancelReasonOperator}
	late := request{job.CancelGraceful, job.CancelReasonDeadline}
	lateByForce := request{job.CancelTerminate, job.CancelReasonDeadline}
	// The job waits in its stage "work" when it is asked. A stage that is not cut
	// by the request goes on when it was seen.
	cases := map[string]struct {
		asked         []request
		resume        agent.Resume
		interruptible bool
		// follows is how the stage behind "work" resumes.
		follows agent.Resume
		state   job.State
		code    job.FailureCode
		// ran are the stages that ended, in order.
		ran []string
	}{
		"graceful, interruptible":                {[]request{graceful}, agent.Repeatable, true, agent.Repeatable, job.StateCancelled, job.FailureCancelledByOperator, nil},
		"graceful, interruptible resumable":      {[]request{graceful}, agent.Resumable, true, agent.Repeatable, job.StateCancelled, job.FailureCancelledByOperator, nil},
		"graceful, repeatable":                   {[]request{graceful}, agent.Repeatable, false, agent.Repeatable, job.StateCancelled, job.FailureCancelledByOperator, []string{"work"}},
		"graceful, once":                         {[]request{graceful}, agent.Once, false, agent.Repeatable, job.StateCancelled, job.FailureCancelledByOperator, []string{"work"}},
		"graceful, once that goes on":            {[]request{graceful}, agent.Once, false, agent.Resumable, job.StateCancelled, job.FailureCancelledByOperator, []string{"work", "next"}},
		"graceful, repeatable before resumable":  {[]request{graceful}, agent.Repeatable, false, agent.Resumable, job.StateCancelled, job.FailureCancelledByOperator, []string{"work"}},
		"terminate, interruptible":               {[]request{terminate}, agent.Resumable, true, agent.Repeatable, job.StateTerminated, job.FailureTerminatedByOperator, nil},
		"terminate, once":                        {[]request{terminate}, agent.Once, false, agent.Repeatable, job.StateTerminated, job.FailureTerminatedByOperator, nil},
		"graceful in vain, then terminate":       {[]request{graceful, terminate}, agent.Once, false, agent.Repeatable, job.StateTerminated, job.FailureTerminatedByOperator, nil},
		"past its deadline":                      {[]request{late}, agent.Repeatable, true, agent.Repeatable, job.StateTimedOut, job.FailureDeadlineExceeded, nil},
		"past its deadline, once":                {[]request{late}, agent.Once, false, agent.Repeatable, job.StateTimedOut, job.FailureDeadlineExceeded, []string{"work"}},
		"past its deadline in vain, then forced": {[]request{late, lateByForce}, agent.Once, false, agent.Repeatable, job.StateTimedOut, job.FailureDeadlineExceeded, nil},
	}
	type running struct {
		id   job.ID
		gate *gate
		ran  []string
	}
	sc := newScripts()
	p := s.start("a", only(sc.handler), nil)
	jobs := map[string]*running{}
	for name, c := range cases {
		r := &running{gate: newGate()}
		stage := func(name string, resume agent.Resume, run func(context.Context) error) agent.Stage {
			return agent.Stage{
				Name: name, Resume: resume,
				Observe: func(context.Context) (agent.Observation, error) { return agent.ObservedUnknown, nil },
				Run: func(ctx context.Context) error {
					if err := run(ctx); err != nil {
						return err
					}
					r.ran = append(r.ran, name)
					return nil
				},
			}
		}
		r.id = sc.add(s, order{}, func(ctx context.Context, task *agent.Task) (agent.Outcome, error) {
			work := stage("work", c.resume, r.gate.pass)
			work.Interruptible = c.interruptible
			return agent.Outcome{ResultJSON: `{"so":"far"}`}, task.RunStages(ctx, []agent.Stage{
				work, stage("next", c.follows, noop), stage("last", agent.Repeatable, noop),
			})
		})
		jobs[name] = r
	}
	for name, c := range cases {
		r := jobs[name]
		r.gate.awaitReached(t)
		for _, q := range c.asked {
			s.ask(r.id, q.mode, q.reason)
		}
		if len(c.ran) > 0 {
			// The stage ends on its own; by then the request was seen.
			p.awaitAsked(r.id)
			close(r.gate.open)
		}
	}
	for name, c := range cases {
		end := last(s.await(jobs[name].id))
		require.Equal(t, c.state.String(), end.State.String(), name)
		require.Equal(t, c.code, end.Failure.FailureCode, name)
		require.Equal(t, c.ran, jobs[name].ran, name)
		require.NotNil(t, end.Cancel, name)
		require.Equal(t, c.asked[len(c.asked)-1].mode, end.Cancel.Mode, name)
		require.JSONEq(t, `{"so":"far"}`, end.ResultJSON, name)
		for i, st := range end.Stages {
			require.NotEqual(t, job.StageRunning.String(), st.Status.String(), "%s: stage %d of an ended job", name, i)
			if i >= len(c.ran)+1 {
				require.Equal(t, job.StageSkipped.String(), st.Status.String(), "%s: stage %d", name, i)
				require.Zero(t, st.StartedAt, "%s: stage %d", name, i)
			}
		}
	}
}

// awaitAsked waits until the agent has seen that a job is to stop.
func (p *process) awaitAsked(id job.ID) {
	require.Eventually(p.s.t, func() bool { return p.Asked(id) }, patience, time.Millisecond)
}

func TestStopRequestRacesCompletion(t *testing.T) {
	t.Parallel()
	s := newSite(t, quickTiming())
	sc := newScripts()
	p := s.start("a", only(sc.handler), nil)
	g := newGate()
	id := sc.add(s, order{}, func(ctx context.Context, task *agent.Task) (agent.Outcome, error) {
		return agent.Outcome{}, task.RunStages(ctx, []agent.Stage{{Name: "work", Run: g.pass}})
	})
	g.awaitReached(t)
	s.ask(id, job.CancelGraceful, job.CancelReasonOperator)
	p.awaitAsked(id)
	close(g.open)
	end := last(s.await(id))
	require.Equal(t, job.StateCompleted, end.State, "it won the race")
	require.NotNil(t, end.Cancel)
}

// TestStopRequestMeetsTheNextOwner: the request lies in the checkpoint of a job
// that has no owner.
func TestStopRequestMeetsTheNextOwner(t *testing.T) {
	t.Parallel()
	s := newSite(t, quickTiming())
	const intent = rackbusv1.CheckpointPhase_CHECKPOINT_PHASE_INTENT
	const outcome = rackbusv1.CheckpointPhase_CHECKPOINT_PHASE_OUTCOME
	cases := map[string]struct {
		mode     job.CancelMode
		stage    string
		phase    rackbusv1.CheckpointPhase
		observed agent.Observation
		state    job.State
		ran      []string
	}{
		"untouched":                    {job.CancelGraceful, "", 0, 0, job.StateCancelled, nil},
		"untouched, by force":          {job.CancelTerminate, "", 0, 0, job.StateTerminated, nil},
		"the device has taken it":      {job.CancelGraceful, "flash", intent, agent.ObservedDone, job.StateCancelled, []string{"look", "wait"}},
		"the device never got it":      {job.CancelGraceful, "flash", intent, agent.ObservedNotStarted, job.StateCancelled, []string{"look"}},
		"nobody knows":                 {job.CancelGraceful, "flash", intent, agent.ObservedUnknown, job.StateFailed, []string{"look"}},
		"the device works":             {job.CancelGraceful, "flash", outcome, 0, job.StateCancelled, []string{"wait"}},
		"the device works, by force":   {job.CancelTerminate, "flash", outcome, 0, job.StateTerminated, nil},
		"the device is through":        {job.CancelGraceful, "wait", outcome, 0, job.StateCancelled, nil},
		"past every stage that counts": {job.CancelGraceful, "verify", outcome, 0, job.StateCompleted, nil},
	}
	sc := newScripts()
	ids, ran := map[string]job.ID{}, map[string]*[]string{}
	for name, c := range cases {
		var steps []string
		step := func(name string) func(context.Context) error {
			return func(context.Context) error { steps = append(steps, name); return nil }
		}
		ids[name] = sc.add(s, order{}, func(ctx context.Context, task *agent.Task) (agent.Outcome, error) {
			return agent.Outcome{}, task.RunStages(ctx, []agent.Stage{
				{Name: "check", Run: step("check")},
				{Name: "flash", Resume: agent.Once, Run: step("flash"), Observe: func(ctx context.Context) (agent.Observation, error) {
					return c.observed, step("look")(ctx)
				}},
				{Name: "wait", Resume: agent.Resumable, Run: step("wait")},
				{Name: "verify", Run: step("verify")},
			})
		})
		ran[name] = &steps
		s.left(ids[name], "", func(ck *rackbusv1.JobCheckpoint) {
			ck.Stage, ck.Phase = c.stage, c.phase
			ck.Cancel = job.CancelToProto(&job.Cancel{Mode: c.mode, Reason: job.CancelReasonOperator, RequestedAt: time.Now().UTC()})
		})
	}
	s.start("a", only(sc.handler), nil)
	for name, c := range cases {
		end := last(s.await(ids[name]))
		require.Equal(t, c.state.String(), end.State.String(), name)
		require.EqualValues(t, 2, end.Epoch, name)
		require.EqualValues(t, 1, end.Attempt, "%s: it was handed back", name)
		require.Equal(t, c.ran, *ran[name], name)
	}
}

// TestSealedBeforeItWasClaimed: the jobs service has ended the job in the queue.
func TestSealedBeforeItWasClaimed(t *testing.T) {
	t.Parallel()
	s := newSite(t, quickTiming())
	id := s.admit(order{})
	s.left(id, "jobs", func(ck *rackbusv1.JobCheckpoint) {
		ck.Done = true
		ck.Outcome = job.EventToProto(job.Event{
			Kind: job.EventFinished, ID: id, RackID: "r1", NodeID: "n1", Epoch: 1, N: 1, State: job.StateCancelled, At: time.Now().UTC(),
		})
	})
	ran := make(chan job.ID, 1)
	p := s.start("a", only(func(_ context.Context, task *agent.Task) (agent.Outcome, error) {
		ran <- task.ID()
		return agent.Outcome{}, nil
	}), nil)
	require.Equal(t, job.StateCancelled, last(s.await(id)).State)
	require.NoError(t, p.stop())
	require.Empty(t, ran)
	unacked, waiting := s.commands()
	require.Zero(t, unacked)
	require.Zero(t, waiting)
}

func TestRunDeadline(t *testing.T) {
	t.Parallel()
	s := newSite(t, quickTiming())
	sc := newScripts()
	p := s.start("a", only(sc.handler), nil)
	wait := func(ctx context.Context, task *agent.Task) (agent.Outcome, error) {
		return agent.Outcome{}, task.RunStages(ctx, []agent.Stage{{
			Name: "work", Resume: agent.Once, Run: func(ctx context.Context) error { return task.Sleep(ctx, time.Hour) },
			Observe: func(context.Context) (agent.Observation, error) { return agent.ObservedUnknown, nil },
		}})
	}
	running := sc.add(s, order{limit: longEnough}, wait)
	end := last(s.await(running))
	require.Equal(t, job.StateTimedOut, end.State)
	require.Equal(t, job.FailureDeadlineExceeded, end.Failure.FailureCode)
	require.Equal(t, "work", end.Failure.Phase)
	require.NoError(t, p.stop())
}

func TestDeadlineThatHasPassedBeforeTheClaim(t *testing.T) {
	t.Parallel()
	s := newSite(t, quickTiming())
	id := s.admit(order{})
	s.left(id, "", func(ck *rackbusv1.JobCheckpoint) { ck.Deadline = timestamppb.New(time.Now().Add(-time.Second)) })
	ran := make(chan job.ID, 1)
	s.start("a", only(func(_ context.Context, task *agent.Task) (agent.Outcome, error) {
		ran <- task.ID()
		return agent.Outcome{}, nil
	}), nil)
	require.Equal(t, job.StateTimedOut, last(s.await(id)).State)
	require.Empty(t, ran)
}

// TestLostWakeUp: without the wake-up, the next checkpoint write notices.
func TestLostWakeUp(t *testing.T) {
	t.Parallel()
	s := newSite(t, quickTiming())
	sc, g := newScripts(), newGate()
	s.start("a", only(sc.handler), nil)
	id := sc.add(s, order{}, func(ctx context.Context, task *agent.Task) (agent.Outcome, error) {
		return agent.Outcome{}, task.RunStages(ctx, []agent.Stage{
			{Name: "work", Resume: agent.Resumable, Run: g.pass}, {Name: "more", Run: noop},
		})
	})
	g.awaitReached(t)
	ck, rev := s.checkpoint(id)
	ck.Cancel = job.CancelToProto(&job.Cancel{Mode: job.CancelGraceful, Reason: job.CancelReasonOperator, RequestedAt: time.Now().UTC()})
	newer, err := s.api.PutCheckpoint(t.Context(), ck, rev)
	require.NoError(t, err)
	require.NotEqual(t, bus.Absent, newer)
	close(g.open)
	require.Equal(t, job.StateCancelled, last(s.await(id)).State)
}
