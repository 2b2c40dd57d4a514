// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/credentials"
	"github.com/rackbus/rackbus/pkg/job"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// TestWorkflowSeesItsJob lets a workflow look at its deadline, its stages and the
// secrets of its request, and say in its own words where it was cancelled.
func TestWorkflowSeesItsJob(t *testing.T) {
	t.Parallel()
	s := newSite(t, quickTiming())
	waiting := make(chan struct{})
	var deadline time.Time
	var before, after job.Timeline
	var secrets error
	s.start("a", map[job.Type]agent.Handler{job.TypeFirmwareUpdate: func(ctx context.Context, task *agent.Task) (agent.Outcome, error) {
		deadline = task.Deadline()
		secrets = task.Secrets(&rackbusv1.DownloadSecrets{})
		err := task.RunStages(ctx, []agent.Stage{
			{Name: "first", Description: "First stage", Run: func(context.Context) error { task.Progress(100, "sent"); return nil }},
			{
				Name: "second", Description: "Second stage", Text: "Step 2: second stage", Interruptible: true,
				Run: func(ctx context.Context) error {
					before = task.Timeline()
					close(waiting)
					<-ctx.Done()
					return agent.Fail(job.FailureInternal, "second", "cancelled in the middle of it", context.Cause(ctx))
				},
			},
		})
		after = task.Timeline()
		return agent.Outcome{ResultJSON: `{"x":1}`}, err
	}}, nil)
	id := s.admit(order{limit: time.Hour})
	<-waiting
	second := last(s.awaitEvent(id, func(e job.Event) bool { return e.Description == "Step 2: second stage" }))
	require.Zero(t, second.Percent, "of this stage")
	s.ask(id, job.CancelGraceful, job.CancelReasonOperator)
	end := last(s.await(id))

	require.Equal(t, job.StateCancelled, end.State)
	require.Equal(t, job.FailureCancelledByOperator, end.Failure.FailureCode)
	require.Equal(t, "cancelled in the middle of it", end.Failure.Message)
	require.Equal(t, `{"x":1}`, end.ResultJSON)
	require.Equal(t, "Second stage", end.Stages[1].Description)
	require.WithinDuration(t, time.Now().Add(time.Hour), deadline, time.Minute)
	require.ErrorIs(t, secrets, credentials.ErrNone)
	require.Equal(t, 1, before.Cursor)
	require.Equal(t, job.StageRunning, before.Stages[1].Status)
	require.Equal(t, job.StageFailed, after.Stages[1].Status)
	require.Equal(t, "cancelled in the middle of it", after.Stages[1].Message)
}
