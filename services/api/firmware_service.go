// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/rackbus/rackbus/pkg/admission"
	"github.com/rackbus/rackbus/pkg/firmware/catalog"
	"github.com/rackbus/rackbus/pkg/firmware/manifest"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// firmwareService is rackbus.v1.Firmware.
type firmwareService struct {
	rackbusv1.UnimplementedFirmwareServer
	*Server
}

// planChecked is the description of a job that has checked a plan.
const planChecked = "PLAN_CHECKED"

// planNodeID stands for the node of such jobs, which work on none.
const planNodeID = "firmware-plan"

// planCheckResult is the result of such a job.
type planCheckResult struct {
	SnapshotID   string `json:"snapshot_id"`
	ObjectID     string `json:"object_id"`
	Nodes        int    `json:"nodes"`
	RefusedNodes int    `json:"refused_nodes"`
	Targets      int    `json:"targets"`
}

// CheckFirmwarePlan resolves a manifest for nodes and keeps the outcome.
func (f *firmwareService) CheckFirmwarePlan(ctx context.Context, req *rackbusv1.CheckFirmwarePlanRequest,
) (*rackbusv1.CheckFirmwarePlanResponse, error) {
	a, err := f.planRequest(req)
	if err != nil {
		return nil, err
	}
	meta, err := jobMetaOf(ctx, time.Now())
	if err != nil {
		return nil, err
	}
	idem, err := meta.idempotency(ctx, "CheckFirmwarePlan", req)
	if err != nil {
		return nil, err
	}
	ref := node.Ref{RackID: a.nodes[0].ref.RackID, NodeID: planNodeID}
	if res, found, err := f.admitter.Lookup(ctx, idem, []node.Ref{ref}); err != nil || found {
		return f.checkedBefore(ctx, res, err)
	}
	source := &planSource{config: []byte(req.GetConfigJson())}
	hardwareType := req.GetHardwareType()
	if len(source.config) == 0 {
		if source.object, err = f.findObject(ctx, req.GetObjectId(), hardwareType); err != nil {
			return nil, err
		}
		hardwareType = source.object.GetHardwareType()
	}
	if err := source.resolve(ctx, f.Server, a); err != nil {
		return nil, manifestError(err)
	}
	plan, err := f.freeze(a, source, hardwareType)
	if err != nil {
		return nil, err
	}
	if err := keepable(a); err != nil {
		return nil, err
	}
	if err := f.keepPlan(ctx, plan, source.config); err != nil {
		return nil, err
	}
	// As it is kept: an equal one may have been made before.
	if plan, _, err = f.keptPlan(ctx, plan.GetSnapshotId()); err != nil {
		return nil, err
	}
	res, err := f.admitter.AdmitLeaf(ctx, admission.Request{
		Type: job.TypeFirmwarePlanCheck, Name: meta.name, RackID: ref.RackID, OnBusy: admission.OnBusyRefuse, Idempotency: idem,
		Nodes: []admission.Node{{Ref: ref, Ended: &admission.Ended{
			State: job.StateCompleted, Description: planChecked, ResultJSON: planResult(plan),
		}}},
	})
	f.metrics.leafAdmission(job.TypeFirmwarePlanCheck, err)
	if err != nil {
		return nil, refusedCall(err)
	}
	if res.Replayed {
		return f.checkedBefore(ctx, res, nil)
	}
	return &rackbusv1.CheckFirmwarePlanResponse{JobId: res.JobID.String(), Plan: f.showPlan(ctx, plan)}, nil
}

// keepable refuses a plan whose files are at URLs with parts that may be secret: it keeps
// its manifest until it is applied, and secrets must not lie on a disk.
func keepable(a *apply) error {
	for i := range a.artifacts {
		if f := &a.artifacts[i]; f.Sensitive() {
			return errorf(CodeInvalidArgument, "the location %s has user info or a query, which a plan cannot keep; "+
				"store the manifest with AddFirmwareObject, and make the plan from the object", manifest.Redact(f.Location))
		}
	}
	return nil
}

// planRequest reads what a plan is asked for.
func (f *firmwareService) planRequest(req *rackbusv1.CheckFirmwarePlanRequest) (*apply, error) {
	nodes, err := selectNodes(req.GetNodes())
	if err != nil {
		return nil, err
	}
	selection, err := selectionOf(req.GetComponentFilters(), req.GetNodeDescriptorComponentFilters(), nil)
	if err != nil {
		return nil, err
	}
	switch {
	case len(nodes) == 0:
		return nil, errorf(CodeInvalidArgument, textNoDevices)
	case req.GetConfigJson() != "" && req.GetObjectId() != "":
		return nil, errorf(CodeInvalidArgument, "give either config_json or object_id")
	case req.GetConfigJson() != "" && strings.TrimSpace(req.GetHardwareType()) == "":
		return nil, errorf(CodeInvalidArgument, textHardwareType)
	}
	seen := make(map[node.Ref]bool, len(nodes))
	for i := range nodes {
		ref := nodes[i].ref
		if err := checkIdentity(ref); err != nil {
			return nil, errorf(CodeInvalidArgument, "%v", err)
		}
		if seen[ref] {
			return nil, errorf(CodeInvalidArgument, "%s", job.DuplicateText(ref.RackID, ref.NodeID))
		}
		seen[ref] = true
	}
	return &apply{
		rackID: req.GetRackId(), firmwareType: req.GetFirmwareType(), nodes: nodes, selection: selection, force: req.GetForceUpdate(),
	}, nil
}

func planResult(p *rackbusv1.FirmwarePlan) string {
	r := planCheckResult{SnapshotID: p.GetSnapshotId(), ObjectID: p.GetObjectId(), Nodes: len(p.GetNodes())}
	for _, n := range p.GetNodes() {
		r.Targets += len(n.GetTargets())
		if n.GetRefusal() != "" {
			r.RefusedNodes++
		}
	}
	data, err := json.Marshal(r)
	if err != nil {
		return ""
	}
	return string(data)
}

// checkedBefore answers a repeated request with the plan of the first one.
func (f *firmwareService) checkedBefore(ctx context.Context, res admission.Result, err error) (*rackbusv1.CheckFirmwarePlanResponse, error) {
	if err != nil {
		return nil, err
	}
	r, _, err := f.readJob(ctx, res.JobID.String())
	if err != nil {
		return nil, noJob(err, res.JobID.String())
	}
	var result planCheckResult
	if err := json.Unmarshal([]byte(r.ResultJSON), &result); err != nil {
		return nil, errorf(CodeInternal, "job %s has no plan", res.JobID)
	}
	plan, _, err := f.keptPlan(ctx, result.SnapshotID)
	if err != nil {
		return nil, err
	}
	return &rackbusv1.CheckFirmwarePlanResponse{JobId: res.JobID.String(), Plan: f.showPlan(ctx, plan)}, nil
}

// refusedCall gives the refusal of a whole request the status that callers get.
func refusedCall(err error) error {
	var refusal *admission.Refusal
	if !errors.As(err, &refusal) {
		return err
	}
	switch refusal.Code {
	case job.FailureShuttingDown, job.FailureCapacity:
		return &Error{CodeUnavailable, refusal.Message, nil}
	default:
		return &Error{CodeFailedPrecondition, refusal.Message, nil}
	}
}

// GetFirmwarePlan returns a kept plan.
func (f *firmwareService) GetFirmwarePlan(ctx context.Context, req *rackbusv1.GetFirmwarePlanRequest,
) (*rackbusv1.GetFirmwarePlanResponse, error) {
	plan, _, err := f.keptPlan(ctx, req.GetSnapshotId())
	if err != nil {
		return nil, err
	}
	return &rackbusv1.GetFirmwarePlanResponse{Plan: f.showPlan(ctx, plan)}, nil
}

// showPlan is a plan as it fits into an answer: what its nodes take is left out first.
func (f *firmwareService) showPlan(ctx context.Context, p *rackbusv1.FirmwarePlan) *rackbusv1.FirmwarePlan {
	if sizeOf(p) <= f.answerBudget() {
		return p
	}
	shown := proto.CloneOf(p)
	for _, n := range shown.GetNodes() {
		n.Targets = nil
	}
	left := "the targets of the nodes are"
	if sizeOf(shown) > f.answerBudget() {
		shown.Nodes, shown.Artifacts = nil, nil
		left = "the nodes and files are"
	}
	tellReason(ctx, left+" left out to keep the answer small")
	return shown
}

// ApplyFirmwarePlan applies a kept plan, unchanged or not at all: the manifest, the
// nodes and what they take must be as they were.
func (f *firmwareService) ApplyFirmwarePlan(ctx context.Context, req *rackbusv1.ApplyFirmwarePlanRequest,
) (*rackbusv1.ApplyFirmwarePlanResponse, error) {
	nodes, err := selectNodes(req.GetNodes())
	if err != nil {
		return nil, err
	}
	meta, err := jobMetaOf(ctx, time.Now())
	if err != nil {
		return nil, err
	}
	idem, err := meta.idempotency(ctx, "ApplyFirmwarePlan", req)
	if err != nil {
		return nil, err
	}
	plan, config, err := f.keptPlan(ctx, req.GetSnapshotId())
	if err != nil {
		return nil, err
	}
	if res, found, err := f.admitter.Lookup(ctx, idem, refsOf(nodes)); err != nil || found {
		return planAnswer(res, plan), err
	}
	a, source, err := f.planAgain(ctx, plan, config, nodes)
	if err != nil {
		return nil, err
	}
	areq := meta.request(plan.GetRackId(), idem)
	if err := f.checkReady(plan, f.applyNodes(a)); err != nil {
		return nil, err
	}
	var res admission.Result
	if source.object == nil {
		res, err = f.admitInline(ctx, a, areq, req.GetAccessToken(), nil)
	} else {
		areq.Nodes, areq.NothingAdmitted = f.applyNodes(a), textNoApplyJobs
		res, err = f.admitter.Admit(ctx, areq)
	}
	if err != nil {
		return nil, refusedCall(err)
	}
	if source.object != nil {
		f.metrics.batchAdmission(job.TypeFirmwareUpdate, res)
		f.recordApply(ctx, a, source.object, &res)
	}
	return planAnswer(res, plan), nil
}

func planAnswer(res admission.Result, plan *rackbusv1.FirmwarePlan) *rackbusv1.ApplyFirmwarePlanResponse {
	resp, jobs := firmwareJobs(res, "Created firmware object apply jobs for plan "+plan.GetSnapshotId()+".", textNoApplyJobs)
	return &rackbusv1.ApplyFirmwarePlanResponse{Response: resp, ObjectId: plan.GetObjectId(), Jobs: jobs}
}

// planAgain makes the plan anew and requires that it is the same.
func (f *firmwareService) planAgain(ctx context.Context, plan *rackbusv1.FirmwarePlan, config []byte, nodes []selected,
) (*apply, *planSource, error) {
	selection, err := selectionOfPlan(plan)
	if err != nil {
		return nil, nil, err
	}
	a := &apply{
		rackID: plan.GetRackId(), firmwareType: plan.GetFirmwareType(), nodes: nodes, selection: selection, force: plan.GetForceUpdate(),
	}
	source := &planSource{config: config}
	if plan.GetStored() {
		source.object, err = f.object(ctx, plan.GetObjectId())
		if errors.Is(err, catalog.ErrNotFound) {
			return nil, nil, errorf(CodeFailedPrecondition, "plan %s is not applied: firmware object %s was deleted",
				plan.GetSnapshotId(), plan.GetObjectId())
		}
		if err != nil {
			return nil, nil, err
		}
	}
	if err := source.resolve(ctx, f.Server, a); err != nil {
		if text, ok := refusedManifest(err); ok {
			err = errorf(CodeFailedPrecondition, "plan %s is not applied: %s", plan.GetSnapshotId(), text)
		}
		return nil, nil, err
	}
	now, err := f.freeze(a, source, plan.GetHardwareType())
	if err != nil {
		return nil, nil, err
	}
	if err := samePlan(plan, now); err != nil {
		return nil, nil, err
	}
	if source.object != nil && !source.object.GetAvailable() {
		return nil, nil, errorf(CodeFailedPrecondition, "%s", notAvailable(source.object))
	}
	return a, source, nil
}

// checkReady refuses an apply in which a node of the plan would be left out, for
// example for want of credentials. Nodes that the plan leaves out stay so.
func (f *firmwareService) checkReady(plan *rackbusv1.FirmwarePlan, nodes []admission.Node) error {
	out := make(map[node.Ref]bool)
	for _, n := range plan.GetNodes() {
		if n.GetRefusal() != "" {
			out[node.Ref{RackID: n.GetRackId(), NodeID: n.GetNodeId()}] = true
		}
	}
	for i := range nodes {
		if r := nodes[i].Refusal; r != nil && !out[nodes[i].Ref] {
			return errorf(CodeFailedPrecondition, "plan %s is not applied: node %s: %s", plan.GetSnapshotId(), nodes[i].Ref, r.Message)
		}
	}
	return nil
}

// GetFirmwareObjectStatus tells where the artifacts of a stored object stand.
func (f *firmwareService) GetFirmwareObjectStatus(ctx context.Context, req *rackbusv1.GetFirmwareObjectStatusRequest,
) (*rackbusv1.GetFirmwareObjectStatusResponse, error) {
	o, err := f.object(ctx, req.GetObjectId())
	if err != nil {
		return nil, err
	}
	records, err := inCatalog(ctx, f.Server, func(ctx context.Context) ([]*catalog.Artifact, error) {
		return f.catalog.CacheArtifacts(ctx, o.GetId())
	})
	if err != nil {
		return nil, err
	}
	resp := &rackbusv1.GetFirmwareObjectStatusResponse{Object: o}
	left := f.answerBudget()
	for _, r := range records {
		resp.BytesDone += r.GetBytesDone()
		resp.BytesTotal += max(r.GetBytesTotal(), r.GetBytesDone())
		if r.GetState() == rackbusv1.ArtifactState_ARTIFACT_STATE_AVAILABLE {
			resp.ArtifactsAvailable++
		}
		if r.GetState() == rackbusv1.ArtifactState_ARTIFACT_STATE_FAILED {
			resp.ArtifactsFailed++
		}
		if left -= sizeOf(r); left >= 0 {
			resp.Artifacts = append(resp.Artifacts, r)
		}
	}
	if left < 0 {
		tellReason(ctx, "the last files are left out to keep the answer small; the counts are those of all")
	}
	return resp, nil
}

// RetryFirmwareObjectDownload downloads anew what a stored object lacks.
func (f *firmwareService) RetryFirmwareObjectDownload(ctx context.Context, req *rackbusv1.RetryFirmwareObjectDownloadRequest,
) (*rackbusv1.RetryFirmwareObjectDownloadResponse, error) {
	o, err := f.object(ctx, req.GetObjectId())
	if err != nil {
		return nil, err
	}
	if o.GetAvailable() {
		return nil, errorf(CodeFailedPrecondition, "firmware object %s is available already", o.GetId())
	}
	busy, err := f.admitter.CheckFree(ctx, job.TypeArtifactDownload, admission.OnBusyRefuse, cacheRef(o.GetId()))
	if err != nil {
		return nil, err
	}
	if busy != nil {
		return nil, errorf(CodeFailedPrecondition, "firmware object %s is being downloaded: %s", o.GetId(), busy.Message)
	}
	secrets, err := f.secretsOf(ctx, o.GetId(), req.GetAccessToken())
	if err != nil {
		return nil, err
	}
	pending, err := inCatalog(ctx, f.Server, func(ctx context.Context) (int, error) { return f.catalog.RetryDownload(ctx, o.GetId()) })
	if err != nil {
		return nil, err
	}
	id, err := f.startDownload(ctx, o.GetId(), secrets)
	if err != nil {
		return nil, refusedCall(err)
	}
	return &rackbusv1.RetryFirmwareObjectDownloadResponse{JobId: id.String(), Artifacts: uint32(pending)}, nil
}

// secretsOf are what the download of an object's files must not show. Locations of which
// a part was not kept can be had from the caller only.
func (f *firmwareService) secretsOf(ctx context.Context, id, token string) (*rackbusv1.DownloadSecrets, error) {
	config, err := inCatalog(ctx, f.Server, func(ctx context.Context) ([]byte, error) { return f.catalog.Manifest(ctx, id) })
	if err != nil {
		return nil, err
	}
	parsed, err := manifest.Parse(config)
	if err != nil {
		return nil, manifestError(err)
	}
	artifacts, err := parsed.Artifacts()
	if err != nil {
		return nil, manifestError(err)
	}
	if len(artifacts) == 0 {
		return nil, errorf(CodeFailedPrecondition, "firmware object %s has no file to download", id)
	}
	records, err := inCatalog(ctx, f.Server, func(ctx context.Context) ([]*catalog.Artifact, error) { return f.catalog.CacheArtifacts(ctx, id) })
	if err != nil {
		return nil, err
	}
	available := make(map[string]bool)
	for _, r := range records {
		available[r.GetPath()] = r.GetState() == rackbusv1.ArtifactState_ARTIFACT_STATE_AVAILABLE
	}
	for i := range artifacts {
		if a := &artifacts[i]; a.Concealed() && !available[a.Path] {
			return nil, errorf(CodeFailedPrecondition, "the location of %s had user info or a query, which are not kept; "+
				"delete firmware object %s and add it again", a.Path, id)
		}
	}
	_, secrets := artifactRecords(artifacts, token)
	return secrets, nil
}
