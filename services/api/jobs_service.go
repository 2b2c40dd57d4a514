// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/diagnostics"
	"github.com/rackbus/rackbus/pkg/job"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/services/api/internal/jobview"
)

// Bounds of lists.
const (
	defaultPage = 100
	maxPage     = 500
	maxHistory  = 1000
	// maxHistoryBytes bounds what a history takes while it is read.
	maxHistoryBytes = 16 << 20
	maxReasonID     = 256
)

// ListJobs pages through jobs, newest first. What it returns has no results and
// no stages; GetJob has them.
func (j *jobsService) ListJobs(_ context.Context, req *rackbusv1.ListJobsRequest) (*rackbusv1.ListJobsResponse, error) {
	filter, err := filterOf(req.GetFilter())
	if err != nil {
		return nil, err
	}
	size := int(min(req.GetPageSize(), maxPage))
	if size == 0 {
		size = defaultPage
	}
	jobs, next, err := j.view.List(filter, size, req.GetPageToken())
	if err != nil {
		return nil, viewError(err)
	}
	resp := &rackbusv1.ListJobsResponse{NextPageToken: next}
	for i := range jobs {
		resp.Jobs = append(resp.Jobs, jobMessage(&jobs[i]))
	}
	return resp, nil
}

// WatchJobs sends the selected jobs and then every change of them.
func (j *jobsService) WatchJobs(req *rackbusv1.WatchJobsRequest, stream grpc.ServerStreamingServer[rackbusv1.WatchJobsResponse]) error {
	filter, err := filterOf(req.GetFilter())
	if err != nil {
		return err
	}
	w, err := j.view.Watch(filter, req.GetResumeToken())
	if err != nil {
		return viewError(err)
	}
	defer w.Close()
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	go func() {
		select {
		case <-j.stopped:
			cancel()
		case <-ctx.Done():
		}
	}()
	for {
		c, err := w.Next(ctx)
		if err != nil {
			if stream.Context().Err() == nil && ctx.Err() != nil {
				return errorf(CodeUnavailable, "%s", "the server is shutting down; resume with the last token")
			}
			return viewError(err)
		}
		if err := stream.Send(watchMessage(c)); err != nil {
			return err
		}
	}
}

func watchMessage(c jobview.Change) *rackbusv1.WatchJobsResponse {
	resp := &rackbusv1.WatchJobsResponse{ResumeToken: c.Token(), SnapshotComplete: c.SnapshotComplete}
	switch {
	case c.Record != nil:
		resp.Job = jobMessage(c.Record)
	case !c.SnapshotComplete:
		resp.Removed, resp.Job = true, &rackbusv1.Job{JobId: c.RemovedID.String()}
	}
	return resp
}

// GetJob returns one job with everything that is known of it.
func (j *jobsService) GetJob(ctx context.Context, req *rackbusv1.GetJobRequest) (*rackbusv1.GetJobResponse, error) {
	r, rev, err := j.require(ctx, req.GetJobId())
	if err != nil {
		return nil, err
	}
	budget := j.opts.MaxAnswerBytes - answerReserve
	resp := &rackbusv1.GetJobResponse{}
	if r.Kind == job.KindParent {
		if err := j.refused(ctx, r.ID, resp); err != nil {
			return nil, err
		}
	}
	left := budget - proto.Size(resp)
	own := left
	if req.GetIncludeChildren() && r.Total > 0 {
		own /= parentResultShare
	}
	if r, err = j.withResult(ctx, r, rev, max(own, minResult)); err != nil {
		return nil, noJob(err, req.GetJobId())
	}
	resp.Job = jobMessage(&r)
	jobs := []*rackbusv1.Job{resp.Job}
	if req.GetIncludeChildren() {
		children, err := j.readAll(ctx, childIDs(&r), rev)
		if err != nil {
			return nil, noJob(err, req.GetJobId())
		}
		for i := range children {
			jobs = append(jobs, jobMessage(&children[i]))
		}
	}
	fit, cut := fitJobs(jobs, left)
	resp.Children, resp.Truncated = jobs[1:max(fit, 1)], resp.Truncated || cut
	return resp, nil
}

// minResult is the least size that the result of a failed batch is cut to.
const minResult = 1 << 10

// refused fills in the nodes of a batch that got no job, as many as fit into half
// of the answer.
func (j *jobsService) refused(ctx context.Context, id job.ID, resp *rackbusv1.GetJobResponse) error {
	var rec *rackbusv1.AdmissionRecord
	err := j.ride(ctx, func(ctx context.Context) (err error) {
		rec, err = j.opts.Conn.Admission(ctx, id)
		return err
	})
	if err != nil {
		return err
	}
	left := j.opts.MaxAnswerBytes / 2
	for _, n := range rec.GetRefused() {
		if left -= proto.Size(n) + fieldOverhead; left < 0 {
			resp.Truncated = true
			break
		}
		resp.RefusedNodes = append(resp.RefusedNodes, n)
	}
	return nil
}

func fitJobs(jobs []*rackbusv1.Job, budget int) (fit int, cut bool) {
	results := make([]*string, len(jobs))
	sizes := make([]int, len(jobs))
	for i, m := range jobs {
		results[i] = &m.ResultJson
		sizes[i] = proto.Size(m) - len(m.ResultJson) + fieldOverhead
	}
	return fitResults(results, sizes, budget)
}

// require reads a job or says that there is none.
func (j *jobsService) require(ctx context.Context, id string) (job.Record, bus.Revision, error) {
	if strings.TrimSpace(id) == "" {
		return job.Record{}, 0, errorf(CodeInvalidArgument, "job_id is required")
	}
	r, rev, err := j.readJob(ctx, id)
	return r, rev, noJob(err, id)
}

// CancelJob asks a job to stop. Asking again, no more firmly than before, changes
// nothing. The answer shows the job once the request is in its record, or as it
// is after a moment.
func (j *jobsService) CancelJob(ctx context.Context, req *rackbusv1.CancelJobRequest) (*rackbusv1.CancelJobResponse, error) {
	mode := job.CancelGraceful
	switch req.GetMode() {
	case rackbusv1.CancelMode_CANCEL_MODE_UNSPECIFIED, rackbusv1.CancelMode_CANCEL_MODE_GRACEFUL:
	case rackbusv1.CancelMode_CANCEL_MODE_TERMINATE:
		mode = job.CancelTerminate
	default:
		return nil, errorf(CodeInvalidArgument, "unknown cancel mode %d", int32(req.GetMode()))
	}
	r, _, err := j.require(ctx, req.GetJobId())
	if err != nil {
		return nil, err
	}
	switch {
	case stoppedBy(&r, mode):
		return &rackbusv1.CancelJobResponse{Job: jobMessage(&r)}, nil
	case r.State.Terminal():
		return nil, errorf(CodeFailedPrecondition, "job %s has ended already (%s)", r.ID, r.State)
	case r.Cancel != nil && r.Cancel.Mode >= mode:
		return &rackbusv1.CancelJobResponse{Job: jobMessage(&r)}, nil
	}
	now, note := time.Now(), printable(req.GetReason(), maxReasonID)
	event := job.Event{
		Kind: job.EventCancelRequested, ID: r.ID, RackID: r.RackID, NodeID: r.NodeID, Type: r.Type, Family: r.Family,
		Description: note, At: now,
		Cancel: &job.Cancel{Mode: mode, Reason: job.CancelReasonOperator, RequestedBy: callerOf(ctx), RequestedAt: now, Note: note},
	}
	limit, cancel := context.WithTimeout(ctx, j.opts.Timing.BrokerLimit)
	defer cancel()
	if err := j.opts.Conn.PublishEvent(limit, &event); err != nil {
		return nil, err
	}
	j.log.InfoContext(ctx, "cancellation requested", "job_id", r.ID.String(), "mode", mode.String(), "peer", callerOf(ctx))
	r = j.awaitCancel(ctx, r, mode)
	return &rackbusv1.CancelJobResponse{Job: jobMessage(&r)}, nil
}

// stoppedBy reports whether a job has ended because of a request at least as firm as
// mode: asking again changes nothing, and is no error.
func stoppedBy(r *job.Record, mode job.CancelMode) bool {
	return (r.State == job.StateCancelled || r.State == job.StateTerminated) && r.Cancel != nil && r.Cancel.Mode >= mode
}

// awaitCancel gives the fold a moment to take the request in.
func (j *jobsService) awaitCancel(ctx context.Context, r job.Record, mode job.CancelMode) job.Record {
	ctx, cancel := context.WithTimeout(ctx, j.opts.Timing.CancelWait)
	defer cancel()
	for {
		next, _, err := j.opts.Conn.Record(ctx, r.ID)
		if err != nil {
			return r
		}
		r = next
		if r.State.Terminal() || r.Cancel != nil && r.Cancel.Mode >= mode {
			return r
		}
		if err := pause(ctx, j.opts.Timing.CancelPoll); err != nil {
			return r
		}
	}
}

// GetJobEvents returns the history of one job: of a long one its end.
func (j *jobsService) GetJobEvents(ctx context.Context, req *rackbusv1.GetJobEventsRequest) (*rackbusv1.GetJobEventsResponse, error) {
	r, _, err := j.require(ctx, req.GetJobId())
	if err != nil {
		return nil, err
	}
	var events []bus.StoredEvent
	var omitted int
	err = j.ride(ctx, func(ctx context.Context) (err error) {
		events, omitted, err = j.opts.Conn.NewestJobEvents(ctx, r.ID, req.GetAfterSequence(), maxHistory, maxHistoryBytes)
		return err
	})
	if err != nil {
		return nil, err
	}
	resp := &rackbusv1.GetJobEventsResponse{Omitted: uint32(omitted)}
	for i := range events {
		resp.Events = append(resp.Events, diagnostics.HistoryEntry(&events[i]))
	}
	return resp, nil
}

// viewError gives errors of the view the status that callers get.
func viewError(err error) error {
	switch {
	case errors.Is(err, jobview.ErrNotReady):
		return &Error{CodeUnavailable, err.Error(), err}
	case errors.Is(err, jobview.ErrBadToken):
		return &Error{CodeInvalidArgument, err.Error(), nil}
	case errors.Is(err, jobview.ErrTokenTooOld):
		return &Error{CodeFailedPrecondition, err.Error(), nil}
	case errors.Is(err, jobview.ErrSlow):
		return status.Error(codes.ResourceExhausted, err.Error())
	}
	return err
}

// shorten cuts a text of a caller.
func shorten(text string, limit int) string {
	if len(text) > limit {
		return text[:limit] // half a character is repaired when the event is encoded
	}
	return text
}
