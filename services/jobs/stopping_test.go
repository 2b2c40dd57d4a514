// SPDX-License-Identifier: Apache-2.0

package jobs_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	admit "github.com/rackbus/rackbus/pkg/admission"
	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/seal"
	"github.com/rackbus/rackbus/pkg/secret"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/services/jobs"
)

// agent runs the runtime of the compute agents until the test ends.
func (r *rig) agent(name string, h agent.Handler) {
	r.t.Helper()
	seed, _, err := seal.GenerateFamilyKey()
	require.NoError(r.t, err)
	opener, err := seal.NewOpener([]secret.Value{seed}, seal.OpenerOptions{})
	require.NoError(r.t, err)
	a, err := agent.New(agent.Options{
		Conn: r.connect("agent-" + name), Family: node.FamilyCompute, Instance: name, Opener: opener,
		Handlers: map[job.Type]agent.Handler{job.TypeFirmwareUpdate: h}, ProgressInterval: 10 * time.Millisecond,
		DrainTimeout: time.Second, CutTimeout: 6 * time.Second, DeadlineGrace: 300 * time.Millisecond, Logger: r.log,
	})
	require.NoError(r.t, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(r.t.Context()))
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	r.t.Cleanup(func() {
		stop()
		select {
		case <-done:
		case <-time.After(patience):
			r.t.Error("the agent does not stop")
		}
	})
}

// armBatch gives a batch of the fixture a deadline.
func (r *rig) armBatch(id job.ID, deadline time.Time) {
	r.t.Helper()
	r.await("the batch to have its deadline", func() bool {
		parent, rev, err := r.conn.Record(r.t.Context(), id)
		require.NoError(r.t, err)
		parent.Deadline = deadline.UTC().Round(0)
		tx := r.conn.Begin()
		tx.ReplaceRecord(&parent, rev)
		tx.ArmTimer(bus.TimerDeadline, id, deadline)
		_, err = tx.Commit(r.t.Context())
		return err == nil
	})
}

// TestDeadlineOfABatch ends the children that are left when their batch is past its
// deadline, however they are.
func TestDeadlineOfABatch(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.admission().batch("r", 4, false)
	s := r.session()
	r.claim(id.Child(2), s.ID()) // its owner stops when asked
	r.claim(id.Child(3), "dead") // its owner is gone
	r.armBatch(id, time.Now())   // before the service folds anything of it
	stubborn := r.session()      // never confirms
	r.claim(id.Child(4), stubborn.ID())
	r.start(hasty, func(o *jobs.Options) { o.Limits.DeadlineGrace = 6 * time.Second })

	r.await("the request to stop", func() bool {
		cp, rev := r.checkpoint(id.Child(2))
		if cp.GetCancel() == nil {
			return false
		}
		require.Equal(t, job.CancelReasonDeadline, cp.GetCancel().GetReason())
		require.Equal(t, rackbusv1.CancelMode_CANCEL_MODE_GRACEFUL, cp.GetCancel().GetMode())
		rec := r.record(id.Child(2))
		e := said(&rec, job.EventFinished, 3, 5)
		e.State = job.StateTimedOut
		done := proto.CloneOf(cp)
		done.Done, done.Outcome = true, job.EventToProto(e)
		_, err := r.conn.PutCheckpoint(t.Context(), done, rev)
		return err == nil
	})
	require.Equal(t, job.FailureQueueDeadline, r.awaitState(id.Child(1), job.StateTimedOut).Failure.FailureCode)
	r.awaitState(id.Child(2), job.StateTimedOut)
	require.Equal(t, job.FailureDeadlineExceeded, r.awaitState(id.Child(3), job.StateTimedOut).Failure.FailureCode)
	r.awaitState(id.Child(4), job.StateTimedOut)
	require.False(t, stubborn.Valid(), "it was fenced")
	parent := r.awaitState(id, job.StateTimedOut)
	require.Equal(t, job.FailureChildrenTimedOut, parent.Failure.FailureCode)
	for i := 1; i <= 4; i++ {
		r.requireFree(ref("r", i), id.Child(uint32(i)))
	}
}

// TestEscalation asks twice and then by force. Only what is firmer changes anything.
func TestEscalation(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start(hasty)
	id := r.admission().leaf(ref("e", 1))
	s := r.session()
	r.claim(id, s.ID())
	flagged := func(mode job.CancelMode) *rackbusv1.JobCheckpoint {
		var cp *rackbusv1.JobCheckpoint
		r.await("the request on the checkpoint", func() bool {
			cp, _ = r.checkpoint(id)
			return job.CancelMode(cp.GetCancel().GetMode()) == mode
		})
		return cp
	}
	r.requestCancel(id, job.CancelGraceful)
	first, rec := flagged(job.CancelGraceful), r.record(id)

	r.requestCancel(id, job.CancelGraceful)
	// An event behind it shows that the request was folded.
	r.started(id, 3)
	r.await("the start in the record", func() bool { return !r.record(id).StartedAt.IsZero() })
	require.Equal(t, rec.Cancel, r.record(id).Cancel)
	cp, _ := r.checkpoint(id)
	require.True(t, proto.Equal(first.GetCancel(), cp.GetCancel()), "nobody is asked again")

	r.requestCancel(id, job.CancelTerminate)
	flagged(job.CancelTerminate)
	require.Equal(t, job.CancelTerminate, r.record(id).Cancel.Mode)
	r.awaitState(id, job.StateTerminated)
}

// TestUnconfirmedTermination: what was in flight is told of a job whose worker does
// not answer.
func TestUnconfirmedTermination(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start(hasty)
	id := r.admission().leaf(ref("u", 1))
	s := r.session()
	r.claim(id, s.ID(), func(cp *rackbusv1.JobCheckpoint) {
		cp.Stage, cp.Phase = "install", rackbusv1.CheckpointPhase_CHECKPOINT_PHASE_INTENT
		cp.InFlight = "task /redfish/v1/TaskService/Tasks/7"
	})
	rec := r.record(id)
	e := said(&rec, job.EventProgress, 3, 1)
	e.StartedAt, e.Deadline, e.Description = e.At, e.At.Add(time.Hour), "Installing"
	e.Stages = []job.Stage{
		{Name: "install", Description: "Installing BMC", Status: job.StageRunning, StartedAt: e.At, Uninterruptible: true, StopLimit: time.Hour},
		{Name: "verify", Status: job.StageQueued},
	}
	r.publish(e)
	r.awaitState(id, job.StateRunning)
	r.requestCancel(id, job.CancelGraceful)
	require.Contains(t, r.record(id).Description, "cannot be cut; it may take up to 60 minutes")
	r.requestCancel(id, job.CancelTerminate)

	rec = r.awaitState(id, job.StateTerminated)
	require.False(t, s.Valid())
	require.Equal(t, "terminated on request without a confirmation of its worker during stage install (Installing BMC): "+
		"hardware state unknown; in flight: task /redfish/v1/TaskService/Tasks/7", rec.Failure.Message)
	require.Equal(t, "install", rec.Failure.Phase)
	require.Equal(t, job.StageFailed, rec.Stages[0].Status)
	require.Equal(t, job.StageSkipped, rec.Stages[1].Status)
	r.requireFree(ref("u", 1), id)
}

// TestFencedAgentLosesItsOtherJobs: one workflow does not return although it is
// terminated. Its process is fenced, and what else it did goes on elsewhere.
func TestFencedAgentLosesItsOtherJobs(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start(hasty)
	a := r.admission()
	stuck, other := a.leaf(ref("f", 1)), a.leaf(ref("f", 2))
	release := make(chan struct{})
	t.Cleanup(func() { close(release) }) // before the agents are stopped
	reached := make(chan job.ID, 2)
	resumed := make(chan error, 1)
	handler := func(ctx context.Context, task *agent.Task) (agent.Outcome, error) {
		err := task.RunStages(ctx, []agent.Stage{{
			Name: "work", Resume: agent.Resumable,
			Run: func(ctx context.Context) error {
				if task.ID() == other && task.Epoch() > 1 {
					resumed <- task.Guard().Check()
					return nil
				}
				task.InFlight("task 7")
				if err := task.Save(ctx, "sent"); err != nil {
					return err
				}
				reached <- task.ID()
				if task.ID() == stuck {
					<-release // deaf to everything
					return task.Guard().Check()
				}
				<-ctx.Done()
				return context.Cause(ctx)
			},
		}})
		return agent.Outcome{Description: fmt.Sprintf("epoch %d", task.Epoch())}, err
	}
	r.agent("first", handler)
	<-reached
	<-reached
	r.agent("second", handler)
	cp, _ := r.checkpoint(stuck)
	r.awaitState(stuck, job.StateRunning)

	r.requestCancel(stuck, job.CancelTerminate)
	rec := r.awaitState(stuck, job.StateTerminated)
	require.Contains(t, rec.Failure.Message, " during stage work: hardware state unknown; in flight: task 7")
	r.requireFree(ref("f", 1), stuck)
	alive, err := r.conn.SessionAlive(t.Context(), node.FamilyCompute, cp.GetOwner())
	require.NoError(t, err)
	require.False(t, alive)

	require.NoError(t, <-resumed, "its new owner may act")
	rec = r.awaitState(other, job.StateCompleted)
	require.Equal(t, "epoch 2", rec.Description)
	require.Nil(t, rec.Cancel, "nobody asked it to stop")
}

// TestQueuedAndParkedEndAtOnce: what waits behind another job ends at once too.
func TestQueuedAndParkedEndAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start(hasty)
	a, at := r.admission(), ref("p", 1)
	holder := a.leaf(at)
	parked := a.park(at, true)
	r.claim(holder, r.session().ID(), func(cp *rackbusv1.JobCheckpoint) { cp.Deadline = timestamppb.New(time.Now().Add(time.Hour)) })
	r.requestCancel(parked, job.CancelTerminate)
	rec := r.awaitState(parked, job.StateCancelled)
	require.Equal(t, "stopped on request before it started", rec.Failure.Message)
	l := r.lock(at)
	require.Equal(t, holder.String(), l.GetJobId())
	require.Empty(t, l.GetQueue())
	require.False(t, r.record(holder).State.Terminal())
}

// TestSupersede replaces a job that has not started, and then meets one that has.
func TestSupersede(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start(hasty)
	a, err := admit.New(admit.Options{Conn: r.connect("api"), Logger: r.log})
	require.NoError(t, err)
	t.Cleanup(a.Close)
	req := asked("s", 0, 1)
	at := req.Nodes[0].Ref
	old, err := a.AdmitLeaf(t.Context(), req)
	require.NoError(t, err)
	req.OnBusy = admit.OnBusySupersede
	newer, err := a.AdmitLeaf(t.Context(), req)
	require.NoError(t, err)

	rec := r.awaitState(old.JobID, job.StateSuperseded)
	require.Equal(t, job.FailureSuperseded, rec.Failure.FailureCode)
	require.Contains(t, rec.Failure.Message, newer.JobID.String(), "it says by whom")
	require.Contains(t, rec.Description, newer.JobID.String())
	require.Equal(t, newer.JobID.String(), r.lock(at).GetJobId(), "the node is handed over in the same commit")

	r.claim(newer.JobID, r.session().ID())
	_, err = a.AdmitLeaf(t.Context(), req)
	var refusal *admit.Refusal
	require.ErrorAs(t, err, &refusal)
	require.Equal(t, newer.JobID, refusal.Holder)
	require.Contains(t, refusal.Message, newer.JobID.String())
}
