// SPDX-License-Identifier: Apache-2.0

package api

import (
	"github.com/rackbus/rackbus/pkg/job"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/services/api/internal/jobview"
)

// jobMessage is a job as rackbus.v1.Jobs shows it.
func jobMessage(r *job.Record) *rackbusv1.Job {
	rec := job.RecordToProto(*r)
	if rec.GetRollout() != nil {
		rec.Rollout.Members, rec.Rollout.Places = nil, nil // for the jobs service only
	}
	advise(rec.GetFailure())
	return &rackbusv1.Job{
		JobId: rec.GetJobId(), ParentJobId: rec.GetParentJobId(), Name: rec.GetName(), Type: rec.GetType(), Kind: rec.GetKind(),
		RackId: rec.GetRackId(), NodeId: rec.GetNodeId(), State: rec.GetState(), StateDescription: rec.GetDescription(),
		Percent: rec.GetPercent(), Failure: rec.GetFailure(), ResultJson: rec.GetResultJson(), Stages: rec.GetStages(),
		Attempt: rec.GetAttempt(), Agent: rec.GetAgent(), CreatedAt: rec.GetCreatedAt(), StartedAt: rec.GetStartedAt(),
		UpdatedAt: rec.GetUpdatedAt(), FinishedAt: rec.GetFinishedAt(), Deadline: rec.GetDeadline(), Cancel: rec.GetCancel(),
		ChildrenTotal: rec.GetTotal(), Children: rec.GetCounts(), WaitsFor: rec.GetWaitsFor(),
		AboutJobId: rec.GetAboutJobId(), NodeDiagnostics: rec.GetNodeDiagnostics(),
		ReservedNodeIds: rec.GetReservedNodeIds(), RackPower: rec.GetRackPower(), Rollout: rec.GetRollout(),
	}
}

// advise adds what the table of failure codes says.
func advise(f *rackbusv1.JobFailure) {
	info, ok := job.FailureCode(f.GetFailureCode()).Info()
	if !ok {
		return
	}
	f.Retry, f.Advice, f.Runbook = rackbusv1.FailureRetry(info.Retry), info.Advice, info.Runbook()
}

// filterOf reads the filter of a request.
func filterOf(f *rackbusv1.JobFilter) (jobview.Filter, error) {
	out := jobview.Filter{
		RackID: f.GetRackId(), NodeID: f.GetNodeId(), TopLevelOnly: f.GetTopLevelOnly(), Name: f.GetName(),
	}
	for _, s := range f.GetStates() {
		state := job.State(s)
		if int32(s) < 0 || !state.Valid() {
			return out, errorf(CodeInvalidArgument, "unknown job state %d", int32(s))
		}
		out.States = append(out.States, state)
	}
	for _, t := range f.GetTypes() {
		out.Types = append(out.Types, job.Type(t))
	}
	if since := f.GetCreatedSince(); since != nil {
		if err := since.CheckValid(); err != nil {
			return out, errorf(CodeInvalidArgument, "created_since: %v", err)
		}
		out.CreatedSince = since.AsTime()
	}
	if text := f.GetAboutJobId(); text != "" {
		id, err := job.ParseID(text)
		if err != nil {
			return out, errorf(CodeInvalidArgument, "about_job_id: %v", err)
		}
		out.About = id
	}
	if text := f.GetParentJobId(); text != "" {
		id, err := job.ParseID(text)
		if err != nil {
			return out, errorf(CodeInvalidArgument, "parent_job_id: %v", err)
		}
		out.Parent = id
	}
	return out, nil
}
