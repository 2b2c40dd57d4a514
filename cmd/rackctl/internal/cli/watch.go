// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

// change is one thing that a watch tells.
type change struct {
	job *rackbusv1.Job
	// own says that it is the watched job, not a child.
	own bool
	// note is something about the watch itself.
	note string
	// err ends the watch.
	err error
}

// watcher follows one job and its children.
type watcher struct {
	s      *server
	timing Timing
	id     string
	// out is where changes go; whoever reads it ends the context when it has seen enough.
	out chan<- change
}

func (w *watcher) tell(ctx context.Context, c change) {
	select {
	case w.out <- c:
	case <-ctx.Done():
	}
}

// run follows the job until the context ends or the job cannot be followed. It
// takes streams, and asks again and again where the server has none.
func (w *watcher) run(ctx context.Context) {
	first, err := w.first(ctx)
	if unimplemented(err) {
		w.poll(ctx)
		return
	}
	if err != nil {
		w.tell(ctx, change{err: err})
		return
	}
	j := first.GetJob()
	w.id = j.GetJobId() // as the server writes it
	for _, child := range first.GetChildren() {
		w.tell(ctx, change{job: child})
	}
	w.tell(ctx, change{job: j, own: true})
	if terminal(j.GetState()) {
		return
	}
	// No filter selects by id. These members never change, so that the stream brings
	// the job and few others.
	own := &rackbusv1.JobFilter{
		Types: nonEmpty(j.GetType()), RackId: j.GetRackId(), NodeId: j.GetNodeId(), ParentJobId: j.GetParentJobId(),
		TopLevelOnly: j.GetParentJobId() == "",
	}
	if j.GetCreatedAt() != nil {
		own.CreatedSince = timestamppb.New(j.GetCreatedAt().AsTime().Add(-time.Second))
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		if j.GetKind() == rackbusv1.JobKind_JOB_KIND_PARENT {
			w.stream(ctx, &rackbusv1.JobFilter{ParentJobId: w.id})
		}
	}()
	w.stream(ctx, own)
	cancel()
	<-done
}

// first reads the job, through short absences of the server.
func (w *watcher) first(ctx context.Context) (*rackbusv1.GetJobResponse, error) {
	pause := w.patience()
	for {
		resp, err := w.s.jobs.GetJob(ctx, &rackbusv1.GetJobRequest{JobId: w.id, IncludeChildren: true})
		if err == nil || !passing(err) || !pause(ctx, w, err) {
			return resp, err
		}
	}
}

// stream gives every change that the filter selects, across lost connections.
func (w *watcher) stream(ctx context.Context, filter *rackbusv1.JobFilter) {
	token := ""
	pause := w.patience()
	for {
		err := w.once(ctx, filter, &token, func() { pause = w.patience() })
		switch {
		case ctx.Err() != nil:
			return
		case status.Code(err) == codes.FailedPrecondition:
			token = "" // too old to go on from; begin with a picture of everything
		case !passing(err):
			w.tell(ctx, change{err: w.s.explain(rackbusv1.Jobs_WatchJobs_FullMethodName, err)})
			return
		}
		if !pause(ctx, w, err) {
			if ctx.Err() == nil {
				w.tell(ctx, change{err: w.s.explain(rackbusv1.Jobs_WatchJobs_FullMethodName, err)})
			}
			return
		}
	}
}

// once follows one stream to its end. The token is that of the last change; alive
// is called with every answer.
func (w *watcher) once(ctx context.Context, filter *rackbusv1.JobFilter, token *string, alive func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := w.s.jobs.WatchJobs(ctx, &rackbusv1.WatchJobsRequest{Filter: filter, ResumeToken: *token})
	if err != nil {
		return err
	}
	for {
		resp, err := stream.Recv()
		if err != nil {
			return err
		}
		alive()
		if resp.GetRemoved() {
			if resp.GetJob().GetJobId() == w.id {
				return status.Errorf(codes.NotFound, "job %s is no longer kept", w.id)
			}
		} else if j := resp.GetJob(); j.GetJobId() == w.id || j.GetParentJobId() == w.id && j != nil {
			w.tell(ctx, change{job: j, own: j.GetJobId() == w.id})
		}
		*token = resp.GetResumeToken()
	}
}

// passing says that an error may be gone when one tries again.
func passing(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.ResourceExhausted, codes.Aborted, codes.FailedPrecondition:
		return true
	case codes.Unknown:
		return errors.Is(err, io.EOF) // the stream was closed without a reason
	default:
		return false
	}
}

// patience returns a function that waits before the next try, longer each time,
// and returns false once the server was away for too long or the context ended.
func (w *watcher) patience() func(context.Context, *watcher, error) bool {
	pause, since, told := w.timing.Reconnect, time.Now(), false
	return func(ctx context.Context, w *watcher, err error) bool {
		if time.Since(since) > w.timing.GiveUp {
			return false
		}
		if !told {
			told = true
			w.tell(ctx, change{note: fmt.Sprintf("connection lost (%s); trying again", briefly(err))})
		}
		timer := time.NewTimer(pause)
		defer timer.Stop()
		pause = min(2*pause, w.timing.ReconnectMax)
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
			return true
		}
	}
}

// poll asks for the job again and again, as every server of the published API
// can answer.
func (w *watcher) poll(ctx context.Context) {
	pause := w.patience()
	for {
		jobs, err := w.s.published(ctx, w.id)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !passing(err):
			w.tell(ctx, change{err: err})
			return
		case err != nil:
			if !pause(ctx, w, err) {
				w.tell(ctx, change{err: err})
				return
			}
			continue
		}
		pause = w.patience()
		for _, j := range jobs[1:] {
			w.tell(ctx, change{job: j})
		}
		w.tell(ctx, change{job: jobs[0], own: true})
		if terminal(jobs[0].GetState()) {
			return
		}
		timer := time.NewTimer(w.timing.Poll)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// published reads a job and its children by GetJobStatus. The job comes first.
func (s *server) published(ctx context.Context, id string) ([]*rackbusv1.Job, error) {
	resp, err := s.racks.GetJobStatus(ctx, &rackmanager.GetJobStatusRequest{JobId: id, IncludeChildJobStates: true})
	if err != nil {
		return nil, err
	}
	if len(resp.GetJobStates()) == 0 {
		return nil, &exitError{ExitNotFound, fmt.Errorf("the server knows no job %s", id)}
	}
	out := make([]*rackbusv1.Job, len(resp.GetJobStates()))
	for i, st := range resp.GetJobStates() {
		out[i] = fromPublished(st)
	}
	if len(out) > 1 {
		out[0].Children = counts(out[1:])
	}
	return out, nil
}

// counts sums up children, of which only those states are known that the published
// API has.
func counts(children []*rackbusv1.Job) *rackbusv1.JobCounts {
	c := &rackbusv1.JobCounts{}
	for _, j := range children {
		switch j.GetState() {
		case rackbusv1.JobState_JOB_STATE_QUEUED:
			c.Queued++
		case rackbusv1.JobState_JOB_STATE_COMPLETED:
			c.Completed++
		case rackbusv1.JobState_JOB_STATE_FAILED:
			c.Failed++
		default:
			c.Running++
		}
	}
	return c
}

// fromPublished shows what GetJobStatus tells as a job.
func fromPublished(st *rackmanager.JobStatus) *rackbusv1.Job {
	j := &rackbusv1.Job{
		JobId: st.GetJobId(), ParentJobId: st.GetParentJobId(), RackId: st.GetRackId(), NodeId: st.GetNodeId(),
		StateDescription: st.GetStateDescription(), ResultJson: st.GetResultJson(), Kind: rackbusv1.JobKind_JOB_KIND_LEAF,
		CreatedAt: st.GetCreatedAt(), UpdatedAt: st.GetUpdatedAt(), ChildrenTotal: uint32(len(st.GetChildJobIds())),
	}
	if j.ChildrenTotal > 0 {
		j.Kind = rackbusv1.JobKind_JOB_KIND_PARENT
	}
	switch st.GetExecutionState() {
	case rackmanager.JobExecutionState_JOB_EXECUTION_STATE_QUEUED:
		j.State = rackbusv1.JobState_JOB_STATE_QUEUED
	case rackmanager.JobExecutionState_JOB_EXECUTION_STATE_RUNNING:
		j.State = rackbusv1.JobState_JOB_STATE_RUNNING
	case rackmanager.JobExecutionState_JOB_EXECUTION_STATE_COMPLETED:
		j.State = rackbusv1.JobState_JOB_STATE_COMPLETED
	case rackmanager.JobExecutionState_JOB_EXECUTION_STATE_FAILED:
		j.State = rackbusv1.JobState_JOB_STATE_FAILED
		j.Failure = &rackbusv1.JobFailure{Message: st.GetErrorMessage(), FailureCode: enumWordUpper(st.GetErrorCode())}
	default: // a state that this version does not know is no end
	}
	if terminal(j.State) {
		j.FinishedAt = st.GetUpdatedAt()
	}
	return j
}

// enumWordUpper is the class of a failure as the published API names it.
func enumWordUpper(e rackmanager.JobError) string {
	if e == rackmanager.JobError_JOB_ERROR_UNSPECIFIED {
		return ""
	}
	return e.String()
}
