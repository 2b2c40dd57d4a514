// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

// jobFlags are the flags of commands that start jobs.
type jobFlags struct {
	wait                                 bool
	name, deadline, key, onBusy, rollout string
	// waitGiven says that --wait was set, one way or the other.
	waitGiven func() bool
}

// waitHelp tells how commands that start jobs end.
const waitHelp = `The command waits for the job and shows its progress when standard error is a
terminal, and returns once the job is admitted when it is not; --wait and
--wait=false choose. Without waiting, standard output has the job's id, or with
-o json the answer of the call; after waiting it has the job. Ctrl-C stops waiting
and leaves the job running.

`

func addJobFlags(cmd *cobra.Command, batch bool) *jobFlags {
	f := &jobFlags{waitGiven: func() bool { return cmd.Flags().Changed("wait") }}
	flags := cmd.Flags()
	flags.BoolVar(&f.wait, "wait", false, "wait for the end of the job (default: only on a terminal)")
	flags.StringVar(&f.name, "name", "", "`NAME` of the job, for people")
	flags.StringVar(&f.deadline, "deadline", "", "`WHEN` the job has to have ended: a moment (RFC 3339) or a time from now such as 90m")
	flags.StringVar(&f.key, "idempotency-key", "", "`KEY` that makes a repeated call find the job of the first")
	flags.StringVar(&f.onBusy, "on-busy", "", "`WHAT` to do where another job holds a node: refuse, queue or supersede")
	oneOf(cmd, "on-busy", "refuse", "queue", "supersede")
	if batch {
		flags.StringVar(&f.rollout, "rollout", "", "`PLAN` by which the nodes start in waves; see docs/rackctl.md")
	}
	return f
}

// waits says whether to wait for the end.
func (f *jobFlags) waits(env *Env) bool {
	if f.waitGiven() {
		return f.wait
	}
	return env.Redraw
}

// context gives a call the metadata of the flags.
func (f *jobFlags) context(ctx context.Context) context.Context {
	for key, value := range map[string]string{
		"rackbus-job-name": f.name, "rackbus-deadline": f.deadline, "rackbus-idempotency-key": f.key,
		"rackbus-on-busy": f.onBusy, "rackbus-rollout": f.rollout,
	} {
		if value != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, key, value)
		}
	}
	return ctx
}

// started is a job that a call has admitted, or why it has not.
type started struct {
	answer proto.Message
	jobID  string
	// failure is why the call failed, or that some nodes were refused; nil when all is well.
	failure error
}

// startedBatch judges the answer of a call that starts jobs.
func startedBatch(answer proto.Message, b *rackmanager.NodeBatchResponse) started {
	return started{answer: answer, jobID: b.GetJobId(), failure: batchFailure(b)}
}

// batchFailure is why a batch failed, with a line for each node; nil when it did not.
func batchFailure(b *rackmanager.NodeBatchResponse) error {
	if succeeded(b.GetStatus()) {
		return nil
	}
	text := cell(b.GetMessage())
	for _, r := range b.GetNodeResults() {
		if !succeeded(r.GetStatus()) {
			text += fmt.Sprintf("\n  %s: %s", cell(r.GetNodeId()), cell(r.GetErrorMessage()))
		}
	}
	return failedf("%s", text)
}

// follow shows a started job, waits for it when that is wanted, and judges it.
func (f *jobFlags) follow(ctx context.Context, r *request, st started) error {
	p, out := r.p, r.out
	if st.jobID == "" {
		if out.data() {
			if err := out.write(p.env.Stdout, st.answer); err != nil {
				return err
			}
		}
		if st.failure == nil {
			st.failure = failedf("the server has told no job")
		}
		return st.failure
	}
	if !f.waits(p.env) {
		if out.data() {
			if err := out.write(p.env.Stdout, st.answer); err != nil {
				return err
			}
		} else {
			fmt.Fprintln(p.env.Stdout, cell(st.jobID))
		}
		fmt.Fprintf(p.env.Stderr, "rackctl: watch the job with: rackctl job watch %s\n", cell(st.jobID))
		return st.failure
	}
	if st.failure != nil {
		fmt.Fprintf(p.env.Stderr, "rackctl: %v\n", st.failure)
	}
	end, err := p.await(ctx, r.s, st.jobID)
	if err != nil {
		return err
	}
	if err := showJob(p, out, end); err != nil {
		return err
	}
	if err := judge(end.GetJob()); err != nil {
		return err
	}
	return st.failure
}

// judge turns the end of a job into the exit code.
func judge(j *rackbusv1.Job) error {
	state := j.GetState()
	if state == rackbusv1.JobState_JOB_STATE_COMPLETED {
		return nil
	}
	code := ExitJob
	if state == rackbusv1.JobState_JOB_STATE_TERMINATED {
		code = ExitUnknown // the state of the hardware is unknown
	}
	reason := cell(j.GetStateDescription())
	if f := j.GetFailure(); f != nil {
		reason = cell(f.GetMessage())
		if f.GetFailureCode() != "" {
			reason += " (" + cell(f.GetFailureCode()) + ")"
		}
		if f.GetAdvice() != "" {
			reason += "\n  " + cell(f.GetAdvice())
		}
		for _, open := range openEnds {
			if f.GetFailureCode() == string(open) {
				code = ExitUnknown
			}
		}
	}
	return &exitError{code, fmt.Errorf("job %s is %s: %s", j.GetJobId(), stateWord(state), reason)}
}
