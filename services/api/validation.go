// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/rackbus/rackbus/pkg/admission"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
	"github.com/rackbus/rackbus/proto/rackmanagerv2"
)

const (
	textNoValidator    = "no validator is configured: set validation.command for the API and the compute agents"
	textNoneValidated  = "No system validation jobs created"
	textValidationJobs = "Created %d system validation jobs out of %d nodes. Use GetJobStatus with job_id to follow them."
)

// StartSystemValidation admits a job for each node that runs the configured
// validator against it.
func (m *rackManagerV2) StartSystemValidation(ctx context.Context, req *rackmanagerv2.StartSystemValidationRequest,
) (*rackmanagerv2.StartSystemValidationResponse, error) {
	nodes, err := selectNodes(req.GetNodes())
	if err != nil {
		return nil, err
	}
	if len(nodes) == 0 {
		return &rackmanagerv2.StartSystemValidationResponse{Response: batchFailure("%s", textNoNodes)}, nil
	}
	meta, err := jobMetaOf(ctx, time.Now())
	if err != nil {
		return nil, err
	}
	idem, err := meta.idempotency(ctx, "StartSystemValidation", req)
	if err != nil {
		return nil, err
	}
	res, found, err := m.admitter.Lookup(ctx, idem, refsOf(nodes))
	if err != nil || found {
		return validationsCreated(res), err
	}
	areq := meta.request(nodes[0].ref.RackID, idem)
	areq.Type, areq.NothingAdmitted = job.TypeSystemValidation, textNoneValidated
	op := &rackbusv1.SystemValidation{ConfigOverride: req.GetConfigOverride()}
	targets := m.newTargets()
	for i := range nodes {
		areq.Nodes = append(areq.Nodes, m.validationNode(targets, &nodes[i], op))
	}
	res, err = m.admitter.Admit(ctx, areq)
	var refusal *admission.Refusal
	if errors.As(err, &refusal) {
		resp := batchFailure("failed to create parent system validation job: %s", refusal.Message)
		resp.Stats = stats(len(nodes), len(nodes))
		return &rackmanagerv2.StartSystemValidationResponse{Response: resp}, nil
	}
	if err != nil {
		return nil, err
	}
	m.metrics.batchAdmission(job.TypeSystemValidation, res)
	return validationsCreated(res), nil
}

// validationNode validates one node of a batch; a refusal concerns that node only.
func (m *rackManagerV2) validationNode(targets *targetBuilder, n *selected, op *rackbusv1.SystemValidation) admission.Node {
	refuse := func(code job.FailureCode, message string) admission.Node {
		return admission.Node{Ref: n.ref, Refusal: &admission.Refusal{Code: code, Message: message}}
	}
	if n.typ.Family != node.FamilyCompute {
		return refuse(job.FailureInvalidArgument, fmt.Sprintf("system validation is for compute nodes, not for node type %s", n.typ.ID))
	}
	target, err := targets.build(n, forValidation)
	if err != nil {
		return refuse(job.FailureInvalidArgument, err.Error())
	}
	if !m.opts.Validator {
		return refuse(job.FailureValidatorMissing, textNoValidator)
	}
	return admission.Node{Ref: n.ref, Family: n.typ.Family, Command: func(job.ID) (*rackbusv1.JobCommand, error) {
		return &rackbusv1.JobCommand{
			Target: proto.CloneOf(target), Operation: &rackbusv1.JobCommand_SystemValidation{SystemValidation: op},
		}, nil
	}}
}

// validationsCreated is the answer to an admitted batch.
func validationsCreated(res admission.Result) *rackmanagerv2.StartSystemValidationResponse {
	out := &rackmanagerv2.StartSystemValidationResponse{}
	var results []*rackmanager.NodeOperationResult
	for i := range res.Nodes {
		n := &res.Nodes[i]
		if n.Refusal != nil {
			results = append(results, nodeResult(n.Ref.NodeID, n.Refusal))
			continue
		}
		results = append(results, nodeResult(n.Ref.NodeID, nil))
		out.Jobs = append(out.Jobs, &rackmanagerv2.NodeSystemValidationJobInfo{NodeId: n.Ref.NodeID, JobId: n.JobID.String()})
	}
	message := textNoneValidated
	if len(out.Jobs) > 0 {
		message = fmt.Sprintf(textValidationJobs, len(out.Jobs), len(results))
	}
	failed := len(results) - len(out.Jobs)
	out.Response = &rackmanager.NodeBatchResponse{
		Status: statusOf(failed == 0 && len(out.Jobs) > 0), Message: message, NodeResults: results,
		JobId: res.JobID.String(), Stats: stats(len(results), failed),
	}
	return out
}
