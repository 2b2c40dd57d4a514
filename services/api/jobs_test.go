// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/rackbus/rackbus/pkg/admission"
	"github.com/rackbus/rackbus/pkg/job"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

const unknownJob = "00000000-0000-4000-8000-000000000000"

func TestStatusOfUnknownJobs(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	for _, id := range []string{"", "  "} {
		_, err := h.rm.GetJobStatus(t.Context(), &rackmanager.GetJobStatusRequest{JobId: id})
		requireCode(t, err, codes.InvalidArgument, "job_id is required")
		s, err := h.rm.GetSwitchSystemImageJobStatus(t.Context(), &rackmanager.GetSwitchSystemImageJobStatusRequest{JobId: id})
		require.NoError(t, err)
		requireFailure(t, s.GetStatus())
		require.Equal(t, "job_id is required", s.GetMessage())
		c, err := h.rm.GetConfigureSwitchCertificateJobStatus(t.Context(), &rackmanager.GetConfigureSwitchCertificateJobStatusRequest{JobId: id})
		require.NoError(t, err)
		require.Equal(t, "job_id is required", c.GetMessage())
	}
	for _, id := range []string{"", unknownJob, "nonsense", strings.ToUpper(unknownJob), " " + unknownJob} {
		text := "job " + id + " not found"
		f, err := h.rm.GetFirmwareJobStatus(t.Context(), &rackmanager.GetFirmwareJobStatusRequest{JobId: id})
		require.NoError(t, err)
		require.True(t, proto.Equal(&rackmanager.GetFirmwareJobStatusResponse{
			Status: statusOf(false), ErrorMessage: text}, f), "every other field keeps its default: %v", f)
		if id == "" {
			continue
		}
		_, err = h.rm.GetJobStatus(t.Context(), &rackmanager.GetJobStatusRequest{JobId: id})
		requireCode(t, err, codes.NotFound, text)
		s, err := h.rm.GetSwitchSystemImageJobStatus(t.Context(), &rackmanager.GetSwitchSystemImageJobStatusRequest{JobId: id})
		require.NoError(t, err)
		require.Equal(t, text, s.GetMessage())
		require.Equal(t, id, s.GetJobId())
		c, err := h.rm.GetConfigureSwitchCertificateJobStatus(t.Context(), &rackmanager.GetConfigureSwitchCertificateJobStatusRequest{JobId: id})
		require.NoError(t, err)
		require.Equal(t, text, c.GetMessage())
		require.Equal(t, id, c.GetJobId())
	}
}

func TestStatusFollowsTheRecord(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	parent, children := h.admit("r1", 3)
	firmware := func(id job.ID) *rackmanager.GetFirmwareJobStatusResponse {
		t.Helper()
		resp, err := h.rm.GetFirmwareJobStatus(t.Context(), &rackmanager.GetFirmwareJobStatusRequest{JobId: id.String()})
		require.NoError(t, err)
		requireSuccess(t, resp.GetStatus(), "the job is known, whatever its state")
		return resp
	}
	require.Equal(t, rackmanager.FirmwareJobState_FIRMWARE_JOB_STATE_RUNNING, firmware(parent).GetJobState())
	queued := firmware(children[0])
	require.Equal(t, rackmanager.FirmwareJobState_FIRMWARE_JOB_STATE_QUEUED, queued.GetJobState())
	require.Equal(t, "n0", queued.GetNodeId())
	require.Equal(t, "r1", queued.GetRackId())
	require.Empty(t, queued.GetErrorMessage())
	require.NotNil(t, queued.GetCreatedAt())

	h.fold(children[0], started())
	require.Equal(t, "Uploading", firmware(children[0]).GetStateDescription())
	h.fold(children[0], finished(job.StateCompleted))
	h.fold(children[1], started(), finished(job.StateFailed))
	h.fold(children[2], finished(job.StateTimedOut))

	failed := firmware(children[1])
	require.Equal(t, rackmanager.FirmwareJobState_FIRMWARE_JOB_STATE_FAILED, failed.GetJobState())
	require.Equal(t, "the task ended with Exception", failed.GetErrorMessage())
	require.Equal(t, rackmanager.FirmwareUpdateError_FIRMWARE_UPDATE_ERROR_TASK_FAILED, failed.GetErrorCode())
	done := firmware(parent)
	require.Equal(t, rackmanager.FirmwareJobState_FIRMWARE_JOB_STATE_FAILED, done.GetJobState())
	require.Equal(t, "Batch complete: 1/3 succeeded, 2 failed", done.GetStateDescription())
	var result struct {
		Completed, Failed, Total int
		FailedJobs               []struct {
			JobID  string `json:"job_id"`
			NodeID string `json:"node_id"`
			Error  string
		} `json:"failed_jobs"`
	}
	require.NoError(t, json.Unmarshal([]byte(done.GetResultJson()), &result))
	require.Equal(t, 1, result.Completed)
	require.Len(t, result.FailedJobs, 2)
	require.Equal(t, children[1].String(), result.FailedJobs[0].JobID)
	require.Equal(t, done.GetResultJson(), firmware(parent).GetResultJson(), "the cached one is the same")

	all, err := h.rm.GetJobStatus(t.Context(), &rackmanager.GetJobStatusRequest{JobId: parent.String(), IncludeChildJobStates: true})
	require.NoError(t, err)
	require.Len(t, all.GetJobStates(), 4)
	p := all.GetJobStates()[0]
	require.Nil(t, p.ParentJobId)
	require.Len(t, p.GetChildJobIds(), 3)
	require.NotNil(t, p.NodeId, "set, though empty")
	for i, s := range all.GetJobStates()[1:] {
		require.Equal(t, children[i].String(), s.GetJobId())
		require.Equal(t, parent.String(), s.GetParentJobId())
		require.Empty(t, s.GetChildJobIds())
	}
	require.Equal(t, rackmanager.JobError_JOB_ERROR_UNSPECIFIED, all.GetJobStates()[1].GetErrorCode())
	require.Equal(t, rackmanager.JobError_JOB_ERROR_OTHER, all.GetJobStates()[2].GetErrorCode())
	alone, err := h.rm.GetJobStatus(t.Context(), &rackmanager.GetJobStatusRequest{JobId: parent.String()})
	require.NoError(t, err)
	require.Len(t, alone.GetJobStates(), 1)
	require.Len(t, alone.GetJobStates()[0].GetChildJobIds(), 3)

	image, err := h.rm.GetSwitchSystemImageJobStatus(t.Context(), &rackmanager.GetSwitchSystemImageJobStatusRequest{JobId: children[1].String()})
	require.NoError(t, err)
	require.Equal(t, "failed", image.GetState())
	require.Equal(t, "the task ended with Exception", image.GetErrorMessage())
	cert, err := h.rm.GetConfigureSwitchCertificateJobStatus(t.Context(), &rackmanager.GetConfigureSwitchCertificateJobStatusRequest{JobId: children[0].String()})
	require.NoError(t, err)
	require.Equal(t, "completed", cert.GetState())
	require.Empty(t, cert.GetErrorMessage())

	_, err = admission.Reap(t.Context(), h.conn, parent)
	require.NoError(t, err)
	_, err = h.rm.GetJobStatus(t.Context(), &rackmanager.GetJobStatusRequest{JobId: parent.String()})
	requireCode(t, err, codes.NotFound, "not found")
}

// A family whose retention ends between two reads of one call is not shown by halves.
func TestNobodySeesHalfAFamily(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	parent, children := h.admit("r1", 3)
	for _, c := range children {
		h.fold(c, finished(job.StateFailed))
	}
	r, rev, err := h.server.readJob(t.Context(), parent.String())
	require.NoError(t, err)
	_, err = admission.Reap(t.Context(), h.conn, parent)
	require.NoError(t, err)
	_, err = h.server.readAll(t.Context(), childIDs(&r), rev)
	require.ErrorIs(t, err, errNoJob)
	_, err = h.server.withResult(t.Context(), r, rev, 1<<20)
	require.ErrorIs(t, err, errNoJob)
	require.Equal(t, codes.NotFound, status.Code(noJob(err, parent.String())))
}

func TestAnswersKeepWithinTheirLimit(t *testing.T) {
	t.Parallel()
	const limit = 256 << 10
	h := newHarness(t, func(o *Options) { o.MaxAnswerBytes = limit })
	parent, children := h.admit("r1", 8)
	for _, c := range children {
		e := finished(job.StateFailed)
		e.ResultJSON = `{"status":"failed","summary":"` + strings.Repeat("x", 50<<10) + `"}`
		h.fold(c, e)
	}
	all, err := h.rm.GetJobStatus(t.Context(), &rackmanager.GetJobStatusRequest{JobId: parent.String(), IncludeChildJobStates: true})
	require.NoError(t, err)
	require.LessOrEqual(t, proto.Size(all), limit)
	require.Len(t, all.GetJobStates(), 9, "every child is there")
	cut := 0
	for _, s := range all.GetJobStates() {
		require.True(t, json.Valid([]byte(s.GetResultJson())))
		if s.GetResultJson() == resultCut {
			cut++
		}
		require.NotEmpty(t, s.GetErrorMessage())
	}
	require.Positive(t, cut)
	got, err := h.jobs.GetJob(t.Context(), &rackbusv1.GetJobRequest{JobId: parent.String(), IncludeChildren: true})
	require.NoError(t, err)
	require.LessOrEqual(t, proto.Size(got), limit)
	require.True(t, got.GetTruncated())
	require.Len(t, got.GetChildren(), 8)
	one, err := h.rm.GetFirmwareJobStatus(t.Context(), &rackmanager.GetFirmwareJobStatusRequest{JobId: parent.String()})
	require.NoError(t, err)
	require.LessOrEqual(t, proto.Size(one), limit)
	require.True(t, json.Valid([]byte(one.GetResultJson())))
}

func TestFitResults(t *testing.T) {
	t.Parallel()
	text := func(n int) *string { s := strings.Repeat("x", n); return &s }
	results := []*string{text(100), text(1000), text(10)}
	fit, cut := fitResults(results, []int{10, 10, 10}, 400)
	require.Equal(t, 3, fit)
	require.True(t, cut)
	require.Equal(t, []int{100, len(resultCut), 10}, []int{len(*results[0]), len(*results[1]), len(*results[2])})
	fit, cut = fitResults([]*string{text(1), text(1)}, []int{50, 50}, 80)
	require.Equal(t, 1, fit)
	require.True(t, cut)
	fit, cut = fitResults(nil, nil, 0)
	require.Zero(t, fit)
	require.False(t, cut)
}

func TestListJobs(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	parent, children := h.admit("r1", 2)
	h.fold(children[0], started(), finished(job.StateFailed))
	list := func(f *rackbusv1.JobFilter) []*rackbusv1.Job {
		t.Helper()
		resp, err := h.jobs.ListJobs(t.Context(), &rackbusv1.ListJobsRequest{Filter: f})
		require.NoError(t, err)
		return resp.GetJobs()
	}
	require.Eventually(t, func() bool {
		return len(list(&rackbusv1.JobFilter{States: []rackbusv1.JobState{rackbusv1.JobState_JOB_STATE_FAILED}})) == 1
	}, 20*time.Second, 5*time.Millisecond)
	require.Len(t, list(nil), 3)
	require.Len(t, list(&rackbusv1.JobFilter{TopLevelOnly: true, RackId: "r1", Types: []string{"firmware_update"}}), 1)
	require.Len(t, list(&rackbusv1.JobFilter{ParentJobId: parent.String(), NodeId: "n1"}), 1)

	page, err := h.jobs.ListJobs(t.Context(), &rackbusv1.ListJobsRequest{PageSize: 2})
	require.NoError(t, err)
	require.Len(t, page.GetJobs(), 2)
	next, err := h.jobs.ListJobs(t.Context(), &rackbusv1.ListJobsRequest{PageSize: 2, PageToken: page.GetNextPageToken()})
	require.NoError(t, err)
	require.Len(t, next.GetJobs(), 1)
	require.Empty(t, next.GetNextPageToken())
	for text, req := range map[string]*rackbusv1.ListJobsRequest{
		"token":         {PageToken: "x"},
		"job state":     {Filter: &rackbusv1.JobFilter{States: []rackbusv1.JobState{40}}},
		"parent_job_id": {Filter: &rackbusv1.JobFilter{ParentJobId: "x"}},
	} {
		_, err := h.jobs.ListJobs(t.Context(), req)
		requireCode(t, err, codes.InvalidArgument, text)
	}
}

func TestWatchJobsResumes(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	parent, children := h.admit("r1", 1)
	watch := func(token string) (rackbusv1.Jobs_WatchJobsClient, context.CancelFunc) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		w, err := h.jobs.WatchJobs(ctx, &rackbusv1.WatchJobsRequest{
			Filter: &rackbusv1.JobFilter{NodeId: "n0"}, ResumeToken: token})
		require.NoError(t, err)
		return w, cancel
	}
	require.Eventually(t, func() bool { _, ok := h.server.view.Get(children[0]); return ok }, 20*time.Second, time.Millisecond)
	w, cancel := watch("")
	first, err := w.Recv()
	require.NoError(t, err)
	require.Equal(t, children[0].String(), first.GetJob().GetJobId())
	require.Equal(t, rackbusv1.JobState_JOB_STATE_QUEUED, first.GetJob().GetState())
	end, err := w.Recv()
	require.NoError(t, err)
	require.True(t, end.GetSnapshotComplete())
	h.fold(children[0], started())
	change, err := w.Recv()
	require.NoError(t, err)
	require.Equal(t, rackbusv1.JobState_JOB_STATE_RUNNING, change.GetJob().GetState())
	cancel()

	h.fold(children[0], finished(job.StateCompleted))
	w, cancel = watch(change.GetResumeToken())
	defer cancel()
	missed, err := w.Recv()
	require.NoError(t, err)
	for missed.GetSnapshotComplete() { // the change may not have arrived yet
		missed, err = w.Recv()
		require.NoError(t, err)
	}
	require.Equal(t, rackbusv1.JobState_JOB_STATE_COMPLETED, missed.GetJob().GetState())
	_, err = admission.Reap(t.Context(), h.conn, parent)
	require.NoError(t, err)
	for {
		gone, err := w.Recv()
		require.NoError(t, err)
		if gone.GetRemoved() {
			require.Equal(t, parent.String(), gone.GetJob().GetJobId())
			break
		}
	}
	bad, err := h.jobs.WatchJobs(t.Context(), &rackbusv1.WatchJobsRequest{ResumeToken: "x"})
	require.NoError(t, err)
	_, err = bad.Recv()
	requireCode(t, err, codes.InvalidArgument, "token")
}

func TestCancelJob(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	_, children := h.admit("r1", 2)
	cancel := func(id string, mode rackbusv1.CancelMode) (*rackbusv1.Job, error) {
		resp, err := h.jobs.CancelJob(t.Context(), &rackbusv1.CancelJobRequest{JobId: id, Mode: mode, Reason: "maintenance"})
		return resp.GetJob(), err
	}
	_, err := cancel("", 0)
	requireCode(t, err, codes.InvalidArgument, "job_id is required")
	_, err = cancel(unknownJob, 0)
	requireCode(t, err, codes.NotFound, "not found")
	_, err = cancel(children[0].String(), 9)
	requireCode(t, err, codes.InvalidArgument, "unknown cancel mode")

	_, err = cancel(children[0].String(), 0)
	require.NoError(t, err)
	requests := func() (out []job.Event) {
		events, _, err := h.conn.NewestJobEvents(t.Context(), children[0], 0, 10, 16<<20)
		require.NoError(t, err)
		for i := range events {
			if events[i].Kind == job.EventCancelRequested {
				out = append(out, events[i].Event)
			}
		}
		return out
	}
	require.Len(t, requests(), 1)
	request := requests()[0]
	require.Equal(t, job.CancelGraceful, request.Cancel.Mode)
	require.Equal(t, job.CancelReasonOperator, request.Cancel.Reason)
	require.Equal(t, "maintenance", request.Description)
	require.Equal(t, "maintenance", request.Cancel.Note)
	h.fold(children[0], request)

	got, err := cancel(children[0].String(), rackbusv1.CancelMode_CANCEL_MODE_GRACEFUL)
	require.NoError(t, err)
	require.Equal(t, rackbusv1.JobState_JOB_STATE_CANCELLATION_REQUESTED, got.GetState())
	require.Equal(t, "maintenance", got.GetCancel().GetNote())
	require.Equal(t, job.CancelReasonOperator, got.GetCancel().GetReason())
	require.Len(t, requests(), 1, "asking again changes nothing")
	_, err = cancel(children[0].String(), rackbusv1.CancelMode_CANCEL_MODE_TERMINATE)
	require.NoError(t, err)
	require.Len(t, requests(), 2, "asking more firmly does")

	h.fold(children[1], finished(job.StateCompleted))
	_, err = cancel(children[1].String(), 0)
	requireCode(t, err, codes.FailedPrecondition, "has ended already (completed)")

	stopped := finished(job.StateCancelled)
	stopped.Cancel = request.Cancel
	h.fold(children[0], stopped)
	got, err = cancel(children[0].String(), rackbusv1.CancelMode_CANCEL_MODE_GRACEFUL)
	require.NoError(t, err, "asking again for what has happened is no error")
	require.Equal(t, rackbusv1.JobState_JOB_STATE_CANCELLED, got.GetState())
	_, err = cancel(children[0].String(), rackbusv1.CancelMode_CANCEL_MODE_TERMINATE)
	requireCode(t, err, codes.FailedPrecondition, "has ended already (cancelled)")
	require.Len(t, requests(), 2)

	history, err := h.jobs.GetJobEvents(t.Context(), &rackbusv1.GetJobEventsRequest{JobId: children[0].String()})
	require.NoError(t, err)
	kinds := make(map[string]int)
	for _, e := range history.GetEvents() {
		kinds[e.GetKind()]++
	}
	require.Equal(t, 2, kinds["cancel_requested"])
	all := history.GetEvents()
	rest, err := h.jobs.GetJobEvents(t.Context(), &rackbusv1.GetJobEventsRequest{JobId: children[0].String(), AfterSequence: all[0].GetSequence()})
	require.NoError(t, err)
	require.Len(t, rest.GetEvents(), len(all)-1)
	require.Equal(t, all[1].GetSequence(), rest.GetEvents()[0].GetSequence())
	require.Zero(t, rest.GetOmitted())
	_, err = h.jobs.GetJobEvents(t.Context(), &rackbusv1.GetJobEventsRequest{JobId: unknownJob})
	requireCode(t, err, codes.NotFound, "not found")
	_, err = h.jobs.GetJob(t.Context(), &rackbusv1.GetJobRequest{JobId: unknownJob})
	requireCode(t, err, codes.NotFound, "not found")
}

// error_message is empty exactly when the job did not fail: clients take any text
// for a failure.
func TestErrorMessageIsEmptyOnSuccess(t *testing.T) {
	t.Parallel()
	for s := job.StateQueued; s <= job.StateTimedOut; s++ {
		failed := s.Terminal() && s != job.StateCompleted
		for _, failure := range []*job.Failure{nil, {}, job.NewFailure(job.FailureBMCAuthFailed, "refused")} {
			r := &job.Record{State: s, Failure: failure}
			require.Equal(t, failed, errorMessage(r) != "", "%s %v", s, failure)
			require.Equal(t, failed && (failure == nil || failure.Code != 0), errorCode(r) != job.CodeUnspecified, "%s %v", s, failure)
		}
	}
	require.Empty(t, nodeResult("n", nil).GetErrorMessage())
	require.NotEmpty(t, nodeResult("n", errors.New("x")).GetErrorMessage())
}
