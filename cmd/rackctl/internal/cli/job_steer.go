// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

func newJobWatch(p *program) *cobra.Command {
	cmd := jobArg(p, "watch", "Show the progress of a job until it ends", `Show the progress of a job and its children until it ends, then the job. On a
terminal standard error has bars that are redrawn, else a line for each change. A
lost connection is taken up again where it was. A server without WatchJobs is
asked for the job's state every 2 s. Ctrl-C stops watching and nothing else.

The exit code tells how the job has ended: 0 completed, 7 not completed, 3 its
outcome is unknown.`)
	return p.asks(cmd, func(ctx context.Context, r *request) error {
		return r.watchToEnd(ctx, r.args[0])
	})
}

// watchToEnd follows a job, shows its end and judges it.
func (r *request) watchToEnd(ctx context.Context, id string) error {
	end, err := r.p.await(ctx, r.s, id)
	if err != nil {
		return err
	}
	if err := showJob(r.p, r.out, end); err != nil {
		return err
	}
	return judge(end.GetJob())
}

func newJobCancel(p *program) *cobra.Command {
	cmd := jobArg(p, "cancel", "Ask a job to stop", `Ask a job, or all children of a parent, to stop. The job stops at the next point at
which the device can be left; only when it says cancelled has its worker stopped
and is the node free. --terminate cuts the connection to the device now and leaves
the state of the hardware unknown. A later --terminate makes an earlier cancel
firmer. Children of a rollout that have not started end at once.

With --wait the command waits for the end: 0 when the job ended cancelled or
terminated as asked, 7 when it ended in another way first.`)
	flags := cmd.Flags()
	terminate := flags.Bool("terminate", false, "cut the connection to the device now")
	reason := flags.String("reason", "", "`WHY`, for the record")
	wait := flags.Bool("wait", false, "wait until the job has stopped")
	yes := addYes(cmd)
	return p.asks(cmd, func(ctx context.Context, r *request) error {
		id := r.args[0]
		req := &rackbusv1.CancelJobRequest{JobId: id, Mode: rackbusv1.CancelMode_CANCEL_MODE_GRACEFUL, Reason: *reason}
		if *terminate {
			req.Mode = rackbusv1.CancelMode_CANCEL_MODE_TERMINATE
			if err := p.confirm(*yes, "The state of the hardware will be unknown. Terminate job %s", id); err != nil {
				return err
			}
		}
		resp, err := r.s.jobs.CancelJob(ctx, req)
		if err != nil {
			return err
		}
		if !*wait {
			return r.showSteered(resp, resp.GetJob())
		}
		end, err := p.await(ctx, r.s, id)
		if err != nil {
			return err
		}
		if err := showJob(p, r.out, end); err != nil {
			return err
		}
		switch state := end.GetJob().GetState(); state {
		case rackbusv1.JobState_JOB_STATE_CANCELLED, rackbusv1.JobState_JOB_STATE_TERMINATED:
			return nil
		default:
			return &exitError{ExitJob, fmt.Errorf("job %s ended before it was stopped: %s", id, stateWord(state))}
		}
	})
}

// showSteered shows a job after a request about it.
func (r *request) showSteered(resp any, j *rackbusv1.Job) error {
	return r.show(resp, jobTable(r.p.env.now(), []*rackbusv1.Job{j}))
}

func newJobPause(p *program) *cobra.Command {
	cmd := jobArg(p, "pause", "Hold a rollout before its next wave", `Hold a rollout before its next wave. What has started goes on.`)
	reason := cmd.Flags().String("reason", "", "`WHY`, for the record")
	return steer(p, cmd, func(ctx context.Context, s *server, id string) (any, *rackbusv1.Job, error) {
		resp, err := s.jobs.PauseRollout(ctx, &rackbusv1.PauseRolloutRequest{JobId: id, Reason: *reason})
		return resp, resp.GetJob(), err
	})
}

func newJobResume(p *program) *cobra.Command {
	cmd := jobArg(p, "resume", "Let a rollout go on with its next wave", `Let a rollout that is held or pausing go on with its next wave. It is refused when
another wave has begun since the job was read.`)
	return steer(p, cmd, func(ctx context.Context, s *server, id string) (any, *rackbusv1.Job, error) {
		seen, err := s.jobs.GetJob(ctx, &rackbusv1.GetJobRequest{JobId: id})
		if err != nil {
			return nil, nil, err
		}
		req := &rackbusv1.ResumeRolloutRequest{JobId: id}
		if o := seen.GetJob().GetRollout(); o != nil {
			req.ExpectedWave = new(o.GetWave())
		}
		resp, err := s.jobs.ResumeRollout(ctx, req)
		return resp, resp.GetJob(), err
	})
}

func newJobAbort(p *program) *cobra.Command {
	cmd := jobArg(p, "abort", "End a rollout after its started nodes", `End a rollout: nodes that have started go on to their end, all others are cancelled.`)
	reason := cmd.Flags().String("reason", "", "`WHY`, for the record")
	return steer(p, cmd, func(ctx context.Context, s *server, id string) (any, *rackbusv1.Job, error) {
		resp, err := s.jobs.AbortRollout(ctx, &rackbusv1.AbortRolloutRequest{JobId: id, Reason: *reason})
		return resp, resp.GetJob(), err
	})
}

// steer gives a command its body: one call about a job, and the job after it.
func steer(p *program, cmd *cobra.Command, call func(context.Context, *server, string) (any, *rackbusv1.Job, error)) *cobra.Command {
	return p.asks(cmd, func(ctx context.Context, r *request) error {
		resp, j, err := call(ctx, r.s, r.args[0])
		if err != nil {
			return err
		}
		return r.showSteered(resp, j)
	})
}

func newJobEvents(p *program) *cobra.Command {
	cmd := jobArg(p, "events", "Show the history of a job", `Show the history of a job: every step that its workers told, with time and attempt.
It is kept for seven days; of a long one the newest 1,000 events are shown.`)
	return p.asks(cmd, func(ctx context.Context, r *request) error {
		resp, err := r.s.jobs.GetJobEvents(ctx, &rackbusv1.GetJobEventsRequest{JobId: r.args[0]})
		if err != nil {
			return err
		}
		t := &table{columns: columns("TIME", "EVENT", "STATE", ">%", "+SEQUENCE", "+EPOCH", "+AGENT", "WHAT"), empty: "No event of the job is kept any more."}
		for _, e := range resp.GetEvents() {
			text := e.GetDescription()
			if f := e.GetFailure(); f != nil {
				text = fmt.Sprintf("%s (%s)", f.GetMessage(), f.GetFailureCode())
			}
			t.add(e.GetAt().AsTime().Local().Format(time.DateTime), e.GetKind(), stateField(e.GetState()), e.GetPercent(), e.GetSequence(),
				e.GetEpoch(), e.GetAgent(), text)
		}
		if n := resp.GetOmitted(); n > 0 {
			fmt.Fprintf(p.env.Stderr, "%d earlier events are not shown\n", n)
		}
		return r.show(resp, t)
	})
}
