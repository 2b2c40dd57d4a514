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
	"github.com/rackbus/rackbus/services/api/internal/firmwarefile"
)

const textParentFailed = "failed to create parent firmware update job"

// BatchUpdateFirmwareByNodeType updates all registered nodes of one type in a rack.
func (m *rackManager) BatchUpdateFirmwareByNodeType(ctx context.Context, req *rackmanager.BatchUpdateFirmwareByNodeTypeRequest,
) (*rackmanager.BatchUpdateFirmwareByNodeTypeResponse, error) {
	r, err := resolve(req.GetNodeType(), req.GetNodeDescriptor())
	if err != nil {
		return nil, err
	}
	typ := r.Type
	refuse := func(message string) (*rackmanager.BatchUpdateFirmwareByNodeTypeResponse, error) {
		return &rackmanager.BatchUpdateFirmwareByNodeTypeResponse{Response: batchFailure("%s", message)}, nil
	}
	created := func(res admission.Result) *rackmanager.BatchUpdateFirmwareByNodeTypeResponse {
		nothing := "no firmware update jobs created"
		if len(res.Nodes) == 0 {
			nothing = textNoMatching
		}
		done := fmt.Sprintf("Created %d firmware update jobs for rack %s", res.Admitted(), req.GetRackId())
		resp, jobs := firmwareJobs(res, done, nothing)
		return &rackmanager.BatchUpdateFirmwareByNodeTypeResponse{Response: resp, Jobs: jobs}
	}
	meta, idem, err := m.jobCall(ctx, "BatchUpdateFirmwareByNodeType", req)
	if err != nil {
		return nil, err
	}
	if res, found, err := m.admitter.Lookup(ctx, idem, nil); err != nil || found {
		return created(res), err
	}
	targets, refusal, err := m.rackTargets(ctx, req.GetRackId(), typ)
	if err != nil {
		return nil, err
	}
	if refusal != "" {
		return refuse(refusal)
	}
	files, err := m.resolveTargets(ctx, typ, req.GetFirmwareTargets(), req.GetFilename(), req.GetTarget())
	if isTargetRefusal(err) {
		return refuse(err.Error())
	}
	if err != nil {
		return nil, err
	}
	if err := checkWorkflow(typ, files, req.GetActivate()); err != nil {
		return refuse(err.Error())
	}
	update := &rackbusv1.FirmwareUpdate{Targets: files, Activate: req.GetActivate(), Force: req.GetForceUpdate()}
	areq := meta.request(req.GetRackId(), idem)
	for _, t := range targets {
		areq.Nodes = append(areq.Nodes, firmwareNode(node.Ref{RackID: t.GetRackId(), NodeID: t.GetNodeId()}, typ, t, update))
	}
	areq.NothingAdmitted = "no firmware update jobs created"
	if len(targets) == 0 {
		areq.NothingAdmitted = textNoMatching
	}
	res, err := m.admitter.Admit(ctx, areq)
	if refused, ok := parentRefused(err, len(targets)); ok {
		return &rackmanager.BatchUpdateFirmwareByNodeTypeResponse{Response: refused}, nil
	}
	if err != nil {
		return nil, err
	}
	m.metrics.batchAdmission(job.TypeFirmwareUpdate, res)
	return created(res), nil
}

const textNoMatching = "no matching nodes found"

// BatchUpdateFirmware updates nodes the caller describes, with targets by type.
func (m *rackManager) BatchUpdateFirmware(ctx context.Context, req *rackmanager.BatchUpdateFirmwareRequest,
) (*rackmanager.BatchUpdateFirmwareResponse, error) {
	nodes, err := selectNodes(req.GetNodes())
	if err != nil {
		return nil, err
	}
	lists, err := targetLists(req)
	if err != nil {
		return nil, err
	}
	refuse := func(message string) (*rackmanager.BatchUpdateFirmwareResponse, error) {
		return &rackmanager.BatchUpdateFirmwareResponse{Response: batchFailure("%s", message)}, nil
	}
	if len(nodes) == 0 {
		return refuse(textNoNodes)
	}
	if len(lists) == 0 {
		return refuse("No firmware targets specified in request")
	}
	created := func(res admission.Result) *rackmanager.BatchUpdateFirmwareResponse {
		resp, jobs := firmwareJobs(res, fmt.Sprintf("Created %d firmware update jobs out of %d nodes. "+
			"Use GetFirmwareJobStatus with job_id to track overall batch status.", res.Admitted(), len(res.Nodes)), textNoneCreated)
		return &rackmanager.BatchUpdateFirmwareResponse{Response: resp, Jobs: jobs}
	}
	meta, idem, err := m.jobCall(ctx, "BatchUpdateFirmware", req)
	if err != nil {
		return nil, err
	}
	if res, found, err := m.admitter.Lookup(ctx, idem, refsOf(nodes)); err != nil || found {
		return created(res), err
	}
	updates, refusal, err := m.updatesByType(ctx, lists, req)
	if err != nil {
		return nil, err
	}
	if refusal != "" {
		return refuse(refusal)
	}
	areq := meta.request(nodes[0].ref.RackID, idem)
	areq.NothingAdmitted = textNoneCreated
	targets := m.newTargets()
	for i := range nodes {
		areq.Nodes = append(areq.Nodes, m.batchNode(targets, &nodes[i], updates))
	}
	res, err := m.admitter.Admit(ctx, areq)
	if refused, ok := parentRefused(err, len(nodes)); ok {
		return &rackmanager.BatchUpdateFirmwareResponse{Response: refused}, nil
	}
	if err != nil {
		return nil, err
	}
	m.metrics.batchAdmission(job.TypeFirmwareUpdate, res)
	return created(res), nil
}

const textNoneCreated = "No firmware update jobs created"

// jobCall reads what the metadata of a call says about its jobs.
func (m *rackManager) jobCall(ctx context.Context, rpc string, req proto.Message) (jobMeta, admission.Idempotency, error) {
	meta, err := jobMetaOf(ctx, time.Now())
	if err != nil {
		return meta, admission.Idempotency{}, err
	}
	idem, err := meta.idempotency(ctx, rpc, req)
	return meta, idem, err
}

// request begins the admission of a batch.
func (m jobMeta) request(rackID string, idem admission.Idempotency) admission.Request {
	return admission.Request{
		Type: job.TypeFirmwareUpdate, Name: m.name, RackID: rackID, OnBusy: m.onBusy, Deadline: m.deadline, Idempotency: idem, Rollout: m.rollout,
	}
}

// targetLists merges the two forms in which targets are given by type.
func targetLists(req *rackmanager.BatchUpdateFirmwareRequest) (map[node.Type]*rackmanager.FirmwareTargetList, error) {
	var described []node.Described[*rackmanager.FirmwareTargetList]
	for _, d := range req.GetNodeDescriptorFirmwareTargets() {
		described = append(described, node.Described[*rackmanager.FirmwareTargetList]{
			Descriptor: descriptorOf(d.GetNodeDescriptor()), Value: d.GetFirmwareTargets(),
		})
	}
	lists, err := node.FoldByType(req.GetFirmwareTargets(), described)
	if err != nil {
		return nil, &Error{CodeInvalidArgument, err.Error(), nil}
	}
	return lists, nil
}

// updatesByType resolves the targets of every type. One bad list refuses the
// whole batch, also when no node is of its type.
func (m *rackManager) updatesByType(ctx context.Context, lists map[node.Type]*rackmanager.FirmwareTargetList,
	req *rackmanager.BatchUpdateFirmwareRequest,
) (updates map[node.Type]*rackbusv1.FirmwareUpdate, refusal string, err error) {
	updates = make(map[node.Type]*rackbusv1.FirmwareUpdate, len(lists))
	for _, typ := range node.Types() {
		list, ok := lists[typ]
		if !ok {
			continue
		}
		if len(list.GetTargets()) == 0 {
			return nil, fmt.Sprintf("Failed to resolve firmware targets for node type %s: empty list", typ), nil
		}
		files, err := m.resolveTargets(ctx, typ, list.GetTargets(), "", "")
		if isTargetRefusal(err) {
			return nil, fmt.Sprintf("Failed to resolve firmware targets for node type %s: %v", typ, err), nil
		}
		if err != nil {
			return nil, "", err
		}
		if err := checkWorkflow(typ, files, req.GetActivate()); err != nil && checkUpdatable(typ) == nil {
			return nil, fmt.Sprintf("Invalid firmware workflow for node type %s: %v", typ, err), nil
		}
		updates[typ] = &rackbusv1.FirmwareUpdate{Targets: files, Activate: req.GetActivate(), Force: req.GetForceUpdate()}
	}
	return updates, "", nil
}

// batchNode validates one node of a batch; a refusal concerns that node only.
func (m *rackManager) batchNode(targets *targetBuilder, n *selected, updates map[node.Type]*rackbusv1.FirmwareUpdate) admission.Node {
	refuse := func(err error) admission.Node {
		return admission.Node{Ref: n.ref, Refusal: &admission.Refusal{Code: job.FailureInvalidArgument, Message: err.Error()}}
	}
	update, ok := updates[n.typ]
	if !ok {
		return refuse(fmt.Errorf("No firmware targets provided for node type %s", n.typ)) //nolint:staticcheck // published text
	}
	if err := checkUpdatable(n.typ); err != nil {
		return refuse(err)
	}
	if err := n.profile.Check(m.knownProfile); err != nil {
		return refuse(err)
	}
	target, err := targets.build(n, forFirmwareUpdate)
	if err != nil {
		var fault *node.Error
		if errors.As(err, &fault) && fault.Code != node.CodeCredentialsUnsupported {
			err = fmt.Errorf("Failed to construct node for type %s: %w", n.typ, err) //nolint:staticcheck // published text
		}
		return refuse(err)
	}
	return firmwareNode(n.ref, n.typ, target, update)
}

// isTargetRefusal reports whether targets were refused, and did not just fail to
// be looked at.
func isTargetRefusal(err error) bool {
	return errors.Is(err, errNoTargets) || errors.Is(err, firmwarefile.ErrUnusable)
}

// parentRefused is the answer to a batch that was refused as a whole.
func parentRefused(err error, total int) (*rackmanager.NodeBatchResponse, bool) {
	var refusal *admission.Refusal
	if !errors.As(err, &refusal) {
		return nil, false
	}
	resp := batchFailure("%s: %s", textParentFailed, refusal.Message)
	resp.Stats = stats(total, total)
	return resp, true
}

// firmwareJobs is the answer to an admitted batch.
func firmwareJobs(res admission.Result, done, nothing string) (*rackmanager.NodeBatchResponse, []*rackmanager.NodeFirmwareJobInfo) {
	results := make([]*rackmanager.NodeOperationResult, len(res.Nodes))
	var jobs []*rackmanager.NodeFirmwareJobInfo
	for i := range res.Nodes {
		n := &res.Nodes[i]
		var err error
		if n.Refusal != nil {
			err = n.Refusal
		} else {
			jobs = append(jobs, &rackmanager.NodeFirmwareJobInfo{NodeId: n.Ref.NodeID, JobId: n.JobID.String()})
		}
		results[i] = nodeResult(n.Ref.NodeID, err)
	}
	failed := len(results) - len(jobs)
	message := done
	if len(jobs) == 0 {
		message = nothing
	}
	return &rackmanager.NodeBatchResponse{
		Status: statusOf(failed == 0 && len(jobs) > 0), Message: message, NodeResults: results,
		JobId: res.JobID.String(), Stats: stats(len(results), failed),
	}, jobs
}
