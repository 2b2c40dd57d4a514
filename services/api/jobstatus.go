// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

// answerReserve is what an answer holds beside the results of its jobs.
const answerReserve = 64 << 10

// parentResultShare is the part of an answer that the result of a parent may take
// when its children are in the answer too.
const parentResultShare = 4

// GetJobStatus returns a job and, on request, its children.
func (m *rackManager) GetJobStatus(ctx context.Context, req *rackmanager.GetJobStatusRequest) (*rackmanager.GetJobStatusResponse, error) {
	if strings.TrimSpace(req.GetJobId()) == "" {
		return nil, errorf(CodeInvalidArgument, "job_id is required")
	}
	r, rev, err := m.readJob(ctx, req.GetJobId())
	if err != nil {
		return nil, noJob(err, req.GetJobId())
	}
	budget := m.opts.MaxAnswerBytes - answerReserve
	own := budget
	withChildren := req.GetIncludeChildJobStates() && r.Total > 0
	if withChildren {
		own /= parentResultShare
	}
	if r, err = m.withResult(ctx, r, rev, own); err != nil {
		return nil, noJob(err, req.GetJobId())
	}
	resp := &rackmanager.GetJobStatusResponse{JobStates: []*rackmanager.JobStatus{jobStatus(&r)}}
	if !withChildren {
		fitStatuses(resp, budget)
		return resp, nil
	}
	children, err := m.readAll(ctx, childIDs(&r), rev)
	if err != nil {
		return nil, noJob(err, req.GetJobId())
	}
	for i := range children {
		resp.JobStates = append(resp.JobStates, jobStatus(&children[i]))
	}
	if fitStatuses(resp, budget) {
		m.log.InfoContext(ctx, "job status answer cut to size", "job_id", r.ID.String(), "children", len(children))
	}
	return resp, nil
}

// fitStatuses keeps the answer within budget.
func fitStatuses(resp *rackmanager.GetJobStatusResponse, budget int) (cut bool) {
	results := make([]*string, len(resp.JobStates))
	sizes := make([]int, len(resp.JobStates))
	for i, s := range resp.JobStates {
		results[i] = &s.ResultJson
		sizes[i] = proto.Size(s) - len(s.ResultJson) + fieldOverhead
	}
	fit, cut := fitResults(results, sizes, budget)
	resp.JobStates = resp.JobStates[:fit]
	return cut
}

// fieldOverhead is more than tag and length of a repeated message take.
const fieldOverhead = 12

func jobStatus(r *job.Record) *rackmanager.JobStatus {
	s := &rackmanager.JobStatus{
		JobId: r.ID.String(), ExecutionState: rackmanager.JobExecutionState(r.State.Execution()),
		ErrorMessage: errorMessage(r), ErrorCode: rackmanager.JobError(errorCode(r).JobError()),
		ResultJson: r.ResultJSON, StateDescription: r.Description, RackId: &r.RackID, NodeId: &r.NodeID,
		CreatedAt: timestampOf(r.CreatedAt), UpdatedAt: timestampOf(r.UpdatedAt),
	}
	if parent, ok := r.ParentID(); ok {
		text := parent.String()
		s.ParentJobId = &text
	}
	for _, id := range childIDs(r) {
		s.ChildJobIds = append(s.ChildJobIds, id.String())
	}
	return s
}

// errorMessage is empty unless the job did not complete, and never empty then.
func errorMessage(r *job.Record) string {
	switch {
	case !r.State.Terminal() || r.State == job.StateCompleted:
		return ""
	case r.Failure != nil && r.Failure.Message != "":
		return r.Failure.Message
	case r.Description != "":
		return r.Description
	}
	return r.State.String()
}

func errorCode(r *job.Record) job.ErrorCode {
	switch {
	case !r.State.Terminal() || r.State == job.StateCompleted:
		return job.CodeUnspecified
	case r.Failure == nil:
		return job.CodeInternal
	}
	return r.Failure.Code
}

func timestampOf(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// readStatus reads a job with its result for the status RPCs of one job.
func (m *rackManager) readStatus(ctx context.Context, id string) (job.Record, error) {
	r, rev, err := m.readJob(ctx, id)
	if err != nil {
		return r, err
	}
	budget := m.opts.MaxAnswerBytes - answerReserve
	if r, err = m.withResult(ctx, r, rev, budget); err == nil && len(r.ResultJSON) > budget {
		r.ResultJSON = resultCut
	}
	return r, err
}

// GetFirmwareJobStatus returns any job; clients of firmware updates poll it.
func (m *rackManager) GetFirmwareJobStatus(ctx context.Context, req *rackmanager.GetFirmwareJobStatusRequest,
) (*rackmanager.GetFirmwareJobStatusResponse, error) {
	r, err := m.readStatus(ctx, req.GetJobId())
	if errors.Is(err, errNoJob) {
		return &rackmanager.GetFirmwareJobStatusResponse{
			Status: statusOf(false), ErrorMessage: "job " + req.GetJobId() + " not found",
		}, nil
	}
	if err != nil {
		return nil, err
	}
	return &rackmanager.GetFirmwareJobStatusResponse{
		Status: statusOf(true), JobId: r.ID.String(), JobState: rackmanager.FirmwareJobState(r.State.Execution()),
		StateDescription: r.Description, RackId: r.RackID, NodeId: r.NodeID,
		ErrorCode:    rackmanager.FirmwareUpdateError(errorCode(&r).FirmwareUpdateError()),
		ErrorMessage: errorMessage(&r), ResultJson: r.ResultJSON,
		CreatedAt: timestampOf(r.CreatedAt), UpdatedAt: timestampOf(r.UpdatedAt),
	}, nil
}

// findStatus reads a job for the status RPCs that tell a missing id or an unknown
// job in their answer; the refusal is then not empty.
func (m *rackManager) findStatus(ctx context.Context, id string) (r job.Record, refusal string, err error) {
	if strings.TrimSpace(id) == "" {
		return r, "job_id is required", nil
	}
	r, err = m.readStatus(ctx, id)
	if errors.Is(err, errNoJob) {
		return r, "job " + id + " not found", nil
	}
	return r, "", err
}

// GetSwitchSystemImageJobStatus returns any job; clients of switch images poll it.
func (m *rackManager) GetSwitchSystemImageJobStatus(ctx context.Context, req *rackmanager.GetSwitchSystemImageJobStatusRequest,
) (*rackmanager.GetSwitchSystemImageJobStatusResponse, error) {
	r, refusal, err := m.findStatus(ctx, req.GetJobId())
	if err != nil {
		return nil, err
	}
	if refusal != "" {
		return &rackmanager.GetSwitchSystemImageJobStatusResponse{Status: statusOf(false), JobId: req.GetJobId(), Message: refusal}, nil
	}
	return &rackmanager.GetSwitchSystemImageJobStatusResponse{
		Status: statusOf(true), JobId: r.ID.String(), State: r.State.Wire(), Message: r.Description,
		RackId: r.RackID, NodeId: r.NodeID, ErrorMessage: errorMessage(&r), ResultJson: r.ResultJSON,
		CreatedAt: timestampOf(r.CreatedAt), UpdatedAt: timestampOf(r.UpdatedAt),
	}, nil
}

// GetConfigureSwitchCertificateJobStatus returns any job; clients of switch
// certificates poll it.
func (m *rackManager) GetConfigureSwitchCertificateJobStatus(ctx context.Context, req *rackmanager.GetConfigureSwitchCertificateJobStatusRequest,
) (*rackmanager.GetConfigureSwitchCertificateJobStatusResponse, error) {
	r, refusal, err := m.findStatus(ctx, req.GetJobId())
	if err != nil {
		return nil, err
	}
	if refusal != "" {
		return &rackmanager.GetConfigureSwitchCertificateJobStatusResponse{
			Status: statusOf(false), JobId: req.GetJobId(), Message: refusal,
		}, nil
	}
	return &rackmanager.GetConfigureSwitchCertificateJobStatusResponse{
		Status: statusOf(true), JobId: r.ID.String(), State: r.State.Wire(), Message: r.Description,
		RackId: r.RackID, NodeId: r.NodeID, ErrorMessage: errorMessage(&r), ResultJson: r.ResultJSON,
		CreatedAt: timestampOf(r.CreatedAt), UpdatedAt: timestampOf(r.UpdatedAt),
	}, nil
}
