// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/rackbus/rackbus/pkg/admission"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
	"github.com/rackbus/rackbus/services/api/internal/firmwarefile"
)

// UpdateFirmware admits a firmware job on one registered node.
func (m *rackManager) UpdateFirmware(ctx context.Context, req *rackmanager.UpdateFirmwareRequest) (*rackmanager.UpdateFirmwareResponse, error) {
	meta, err := jobMetaOf(ctx, time.Now())
	if err != nil {
		return nil, err
	}
	idem, err := meta.idempotency(ctx, "UpdateFirmware", req)
	if err != nil {
		return nil, err
	}
	if res, found, err := m.admitter.Lookup(ctx, idem, nil); err != nil || found {
		return updateCreated(req.GetNodeId(), res), err
	}
	return m.admitUpdate(ctx, req, meta, idem)
}

// admitUpdate admits a job that no earlier call with the same key is known to have
// admitted.
func (m *rackManager) admitUpdate(ctx context.Context, req *rackmanager.UpdateFirmwareRequest, meta jobMeta, idem admission.Idempotency,
) (*rackmanager.UpdateFirmwareResponse, error) {
	ref := node.Ref{RackID: req.GetRackId(), NodeID: req.GetNodeId()}
	target, refusal, err := m.findNode(ctx, ref)
	if err != nil {
		return nil, err
	}
	if refusal != "" {
		return updateRefused(unspecifiedCode, refusal), nil
	}
	if r, err := m.precheck(ctx, meta, ref); err != nil {
		return nil, err
	} else if r != nil {
		// What holds the node may be the job of an equal call that was admitted
		// after this one had looked for it.
		res, found, err := m.admitter.Lookup(ctx, idem, nil)
		if err == nil && !found {
			err = r
			m.metrics.leafAdmission(job.TypeFirmwareUpdate, r)
		}
		return m.updateOutcome(req.GetNodeId(), res, err)
	}
	typ, ok := node.ByID(target.GetNodeType())
	if !ok {
		return updateRefused(job.CodeClientError, "node type "+target.GetNodeType()+" is not known to this version"), nil
	}
	files, err := m.resolveTargets(ctx, typ, req.GetFirmwareTargets(), req.GetFilename(), req.GetTarget())
	if err != nil {
		return m.updateOutcome(req.GetNodeId(), admission.Result{}, err)
	}
	if err := checkWorkflow(typ, files, req.GetActivate()); err != nil {
		return updateRefused(job.CodeClientError, err.Error()), nil
	}
	update := &rackbusv1.FirmwareUpdate{Targets: files, Activate: req.GetActivate(), Force: req.GetForceUpdate()}
	res, err := m.admitter.AdmitLeaf(ctx, admission.Request{
		Type: job.TypeFirmwareUpdate, Name: meta.name, OnBusy: meta.onBusy, Deadline: meta.deadline, Idempotency: idem,
		Nodes: []admission.Node{firmwareNode(ref, typ, target, update)},
	})
	m.metrics.leafAdmission(job.TypeFirmwareUpdate, err)
	return m.updateOutcome(req.GetNodeId(), res, err)
}

// precheck refuses a job before its files are looked at, which may take long.
func (m *rackManager) precheck(ctx context.Context, meta jobMeta, ref node.Ref) (refusal *admission.Refusal, err error) {
	if m.admitter.Draining() {
		return &admission.Refusal{Code: job.FailureShuttingDown, Message: job.ShutdownText()}, nil
	}
	err = m.ride(ctx, func(ctx context.Context) (err error) {
		refusal, err = m.admitter.CheckFree(ctx, job.TypeFirmwareUpdate, meta.onBusy, ref)
		return err
	})
	return refusal, err
}

// firmwareNode offers the update to a node whose target was validated.
func firmwareNode(ref node.Ref, typ node.Type, target *rackbusv1.NodeTarget, update *rackbusv1.FirmwareUpdate) admission.Node {
	var refused *workflowError
	if errors.As(checkHost(typ, target, update), &refused) {
		return admission.Node{Ref: ref, Refusal: &admission.Refusal{Code: refused.code, Message: refused.message}}
	}
	return admission.Node{Ref: ref, Family: typ.Family, Command: func(job.ID) (*rackbusv1.JobCommand, error) {
		return &rackbusv1.JobCommand{
			Target:    proto.CloneOf(target),
			Operation: &rackbusv1.JobCommand_FirmwareUpdate{FirmwareUpdate: update},
		}, nil
	}}
}

// unspecifiedCode leaves the error code of an answer at 0.
const unspecifiedCode = job.ErrorCode(255)

func updateRefused(code job.ErrorCode, message string) *rackmanager.UpdateFirmwareResponse {
	resp := &rackmanager.UpdateFirmwareResponse{Status: statusOf(false), Message: message}
	if code != unspecifiedCode {
		resp.ErrorCode = rackmanager.FirmwareUpdateError(code.FirmwareUpdateError())
	}
	return resp
}

func updateCreated(nodeID string, res admission.Result) *rackmanager.UpdateFirmwareResponse {
	return &rackmanager.UpdateFirmwareResponse{
		Status: statusOf(true), Message: "Firmware update job created for " + nodeID,
		ErrorCode: rackmanager.FirmwareUpdateError_FIRMWARE_UPDATE_ERROR_SUCCESS, JobId: res.JobID.String(),
	}
}

// updateOutcome is the answer to an admitted or refused update.
func (m *rackManager) updateOutcome(nodeID string, res admission.Result, err error) (*rackmanager.UpdateFirmwareResponse, error) {
	var refusal *admission.Refusal
	switch {
	case err == nil:
		return updateCreated(nodeID, res), nil
	case errors.As(err, &refusal):
		return updateRefused(refusal.Code.ErrorCode(), refusal.Message), nil
	case errors.Is(err, errNoTargets):
		return updateRefused(unspecifiedCode, err.Error()), nil
	case errors.Is(err, firmwarefile.ErrUnusable):
		return updateRefused(job.CodeFileNotFound, err.Error()), nil
	}
	return nil, err
}
