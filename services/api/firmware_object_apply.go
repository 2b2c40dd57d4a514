// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/rackbus/rackbus/pkg/admission"
	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/firmware/artifact"
	"github.com/rackbus/rackbus/pkg/firmware/catalog"
	"github.com/rackbus/rackbus/pkg/firmware/manifest"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

// Texts of batches that apply a firmware object.
const (
	textApplyParentFailed = "failed to create parent firmware object apply job"
	textNoApplyJobs       = "No firmware object apply jobs created"
	textNoDevices         = "No devices specified in request"
	textApplyCreated      = "Created firmware object apply jobs. Stage 0 downloads firmware artifacts; " +
		"use GetFirmwareJobStatus with response.job_id or node job IDs to track progress."
)

// selectionOf folds the filters of a request.
func selectionOf(byNumber map[int32]*rackmanager.FirmwareObjectComponentFilter,
	described []*rackmanager.NodeDescriptorFirmwareObjectComponentFilter, names []string,
) (manifest.Selection, error) {
	var list []node.Described[*rackmanager.FirmwareObjectComponentFilter]
	for _, d := range described {
		list = append(list, node.Described[*rackmanager.FirmwareObjectComponentFilter]{
			Descriptor: descriptorOf(d.GetNodeDescriptor()), Value: d.GetComponentFilter(),
		})
	}
	folded, err := node.FoldByType(byNumber, list)
	if err != nil {
		return manifest.Selection{}, &Error{CodeInvalidArgument, err.Error(), nil}
	}
	s := manifest.Selection{Names: names}
	if len(folded) > 0 {
		s.Filters = make(map[node.Type][]string, len(folded))
	}
	for t, f := range folded {
		s.Filters[t] = f.GetComponents()
	}
	return s, nil
}

// typesOf are the node types of a request, in order of appearance.
func typesOf(nodes []selected) []node.Type {
	var types []node.Type
	for i := range nodes {
		if !slices.Contains(types, nodes[i].typ) {
			types = append(types, nodes[i].typ)
		}
	}
	return types
}

// findObject returns the object that a request means: by id, else the default of
// its hardware type.
func (s *Server) findObject(ctx context.Context, id, hardwareType string) (*catalog.Object, error) {
	if id == "" {
		if hardwareType == "" {
			return nil, errorf(CodeInvalidArgument, "hardware_type is required when object_id is empty")
		}
		return inCatalog(ctx, s, func(ctx context.Context) (*catalog.Object, error) { return s.catalog.FindDefault(ctx, hardwareType) })
	}
	o, err := s.object(ctx, id)
	if err != nil {
		return nil, err
	}
	if hardwareType != "" && hardwareType != o.GetHardwareType() && o.GetHardwareType() != anyHardware {
		return nil, errorf(CodeFailedPrecondition, "firmware object %s hardware type %s does not match request hardware type %s",
			id, o.GetHardwareType(), hardwareType)
	}
	return o, nil
}

// anyHardware is the hardware type of objects that every request may name.
const anyHardware = "any"

// ApplyStoredFirmwareObject updates nodes from a stored object.
func (m *rackManager) ApplyStoredFirmwareObject(ctx context.Context, req *rackmanager.ApplyStoredFirmwareObjectRequest,
) (*rackmanager.ApplyStoredFirmwareObjectResponse, error) {
	nodes, err := selectNodes(req.GetNodes())
	if err != nil {
		return nil, err
	}
	names := req.GetComponents() //nolint:staticcheck // older clients send it
	selection, err := selectionOf(req.GetComponentFilters(), req.GetNodeDescriptorComponentFilters(), names)
	if err != nil {
		return nil, err
	}
	meta, idem, err := m.jobCall(ctx, "ApplyStoredFirmwareObject", req)
	if err != nil {
		return nil, err
	}
	if res, found, err := m.admitter.Lookup(ctx, idem, refsOf(nodes)); err != nil || found {
		return storedAnswer(res, req.GetObjectId()), err
	}
	o, err := m.findObject(ctx, req.GetObjectId(), req.GetHardwareType())
	if err != nil {
		return nil, err
	}
	refuse := func(message string) (*rackmanager.ApplyStoredFirmwareObjectResponse, error) {
		return &rackmanager.ApplyStoredFirmwareObjectResponse{Response: batchFailure("%s", message), ObjectId: o.GetId()}, nil
	}
	switch {
	case !o.GetAvailable():
		return refuse(notAvailable(o))
	case req.GetNodes() == nil:
		return refuse("nodes is required")
	case len(nodes) == 0:
		return refuse("nodes must include at least one device")
	}
	a := apply{rackID: req.GetRackId(), firmwareType: req.GetFirmwareType(), nodes: nodes, selection: selection, force: req.GetForceUpdate()}
	err = m.resolveStored(ctx, &a, o)
	if text, ok := refusedManifest(err); ok {
		return refuse(text)
	}
	if err != nil {
		return nil, err
	}
	areq := meta.request(nodes[0].ref.RackID, idem)
	areq.NothingAdmitted = textNoneCreated
	areq.Nodes = m.applyNodes(&a)
	res, err := m.admitter.Admit(ctx, areq)
	if refused, ok := refusedAs(textParentFailed, err, len(nodes)); ok {
		return &rackmanager.ApplyStoredFirmwareObjectResponse{Response: refused, ObjectId: o.GetId()}, nil
	}
	if err != nil {
		return nil, err
	}
	m.metrics.batchAdmission(job.TypeFirmwareUpdate, res)
	m.recordApply(ctx, &a, o, &res)
	return storedAnswer(res, o.GetId()), nil
}

func storedAnswer(res admission.Result, objectID string) *rackmanager.ApplyStoredFirmwareObjectResponse {
	resp, jobs := firmwareJobs(res, fmt.Sprintf("Created %d firmware update jobs out of %d nodes. "+
		"Use GetFirmwareJobStatus with job_id to track overall batch status.", res.Admitted(), len(res.Nodes)), textNoneCreated)
	return &rackmanager.ApplyStoredFirmwareObjectResponse{Response: resp, ObjectId: objectID, Jobs: jobs}
}

// notAvailable says why an object cannot be applied yet.
func notAvailable(o *catalog.Object) string {
	text := fmt.Sprintf("firmware object %s is not available", o.GetId())
	if o.GetFailure() != "" {
		text += ": " + o.GetFailure()
	}
	return text
}

// refusedManifest is the text of an error that is about the manifest.
func refusedManifest(err error) (string, bool) {
	var fault *manifest.Error
	if errors.As(err, &fault) {
		return fault.Message, true
	}
	return "", false
}

// refusedAs is the answer to a batch that was refused as a whole.
func refusedAs(text string, err error, total int) (*rackmanager.NodeBatchResponse, bool) {
	var refusal *admission.Refusal
	if !errors.As(err, &refusal) {
		return nil, false
	}
	resp := batchFailure("%s: %s", text, refusal.Message)
	resp.Stats = stats(total, total)
	return resp, true
}

// recordApply notes an apply that was accepted for at least one node. It is not
// worth failing for: the jobs run.
func (s *Server) recordApply(ctx context.Context, a *apply, o *catalog.Object, res *admission.Result) {
	if res.Replayed || res.Admitted() == 0 {
		return
	}
	r := &catalog.Apply{
		ObjectId: o.GetId(), RackId: a.rackID, FirmwareType: a.firmwareType, HardwareType: o.GetHardwareType(), JobId: res.JobID.String(),
	}
	for i := range res.Nodes {
		r.NodeIds = append(r.NodeIds, res.Nodes[i].Ref.NodeID)
		if res.Nodes[i].Refusal != nil {
			r.RefusedNodeIds = append(r.RefusedNodeIds, res.Nodes[i].Ref.NodeID)
		}
	}
	if err := s.ride(ctx, func(ctx context.Context) error { return s.catalog.RecordApply(ctx, r) }); err != nil {
		s.log.WarnContext(ctx, "apply of a firmware object not noted in the history", "object", o.GetId(), "job_id", r.JobId, "err", err)
	}
}

// ApplyFirmwareObject updates nodes from a manifest in the request. A manifest that
// cannot be used fails the jobs, which exist all the same: clients look there.
func (m *rackManager) ApplyFirmwareObject(ctx context.Context, req *rackmanager.ApplyFirmwareObjectRequest,
) (*rackmanager.ApplyFirmwareObjectResponse, error) {
	nodes, err := selectNodes(req.GetNodes())
	if err != nil {
		return nil, err
	}
	selection, err := selectionOf(req.GetComponentFilters(), req.GetNodeDescriptorComponentFilters(), nil)
	if err != nil {
		return nil, err
	}
	if strings.TrimSpace(req.GetHardwareType()) == "" {
		return nil, errorf(CodeInvalidArgument, textHardwareType)
	}
	if len(nodes) == 0 {
		return &rackmanager.ApplyFirmwareObjectResponse{Response: batchFailure(textNoDevices)}, nil
	}
	meta, idem, err := m.jobCall(ctx, "ApplyFirmwareObject", req)
	if err != nil {
		return nil, err
	}
	a := apply{rackID: req.GetRackId(), firmwareType: req.GetFirmwareType(), nodes: nodes, selection: selection, force: req.GetForceUpdate()}
	parsed, fault := manifest.Parse([]byte(req.GetConfigJson()))
	id := ""
	if fault == nil {
		id = parsed.ID()
		fault = m.resolveInline(&a, parsed)
	}
	if res, found, err := m.admitter.Lookup(ctx, idem, refsOf(nodes)); err != nil || found {
		return inlineAnswer(res, id), err
	}
	res, err := m.admitInline(ctx, &a, meta.request(req.GetRackId(), idem), req.GetAccessToken(), fault)
	if refused, ok := refusedAs(textApplyParentFailed, err, len(nodes)); ok {
		return &rackmanager.ApplyFirmwareObjectResponse{Response: refused, ObjectId: id}, nil
	}
	if err != nil {
		return nil, err
	}
	return inlineAnswer(res, id), nil
}

func inlineAnswer(res admission.Result, objectID string) *rackmanager.ApplyFirmwareObjectResponse {
	resp, jobs := firmwareJobs(res, textApplyCreated, textNoApplyJobs)
	return &rackmanager.ApplyFirmwareObjectResponse{Response: resp, ObjectId: objectID, Jobs: jobs}
}

// admitInline admits an apply with a manifest of its own. The download comes first:
// no node may wait for files that nobody fetches. fault fails every job at once.
func (s *Server) admitInline(ctx context.Context, a *apply, areq admission.Request, token string, fault error) (admission.Result, error) {
	areq.NothingAdmitted = textNoApplyJobs
	if fault != nil {
		areq.Nodes = s.failedNodes(a, fault)
		res, err := s.admitter.Admit(ctx, areq)
		s.metrics.batchAdmission(job.TypeFirmwareUpdate, res)
		return res, err
	}
	var download job.ID
	areq.Nodes = s.applyNodes(a)
	if needsFiles(areq.Nodes) {
		var err error
		if download, err = s.prepareCache(ctx, a, token); err != nil {
			s.dropEphemeral(ctx, a.cache, download)
			return admission.Result{}, err
		}
		areq.Cleanup = []string{artifact.CacheDir(a.cache, true)}
	}
	res, err := s.admitter.Admit(ctx, areq)
	if len(areq.Cleanup) > 0 && unused(&res, err) {
		s.dropEphemeral(ctx, a.cache, download)
	}
	if err == nil {
		s.metrics.batchAdmission(job.TypeFirmwareUpdate, res)
	}
	return res, err
}

// unused reports whether certainly no job of an admission uses what was prepared for
// it.
func unused(res *admission.Result, err error) bool {
	if err != nil {
		return !errors.Is(err, bus.ErrOutcomeUnknown)
	}
	return res.Replayed || res.Admitted() == 0
}

// needsFiles reports whether any node is left to be updated.
func needsFiles(nodes []admission.Node) bool {
	return slices.ContainsFunc(nodes, func(n admission.Node) bool { return n.Refusal == nil })
}

// prepareCache lists the files of an apply in the catalogue and begins to fetch them.
func (s *Server) prepareCache(ctx context.Context, a *apply, token string) (job.ID, error) {
	if err := checkCache(a.objectID); err != nil {
		return job.ID{}, err
	}
	records, secrets := artifactRecords(a.artifacts, token)
	if err := s.ride(ctx, func(ctx context.Context) error { return s.catalog.CreateCache(ctx, a.cache, records) }); err != nil {
		return job.ID{}, err
	}
	return s.admitDownload(ctx, a.cache, secrets)
}

// failedNodes are the nodes of an apply whose manifest cannot be used.
func (s *Server) failedNodes(a *apply, fault error) []admission.Node {
	failure := manifestFailure(fault)
	ended := &admission.Ended{State: job.StateFailed, Failure: failure, ResultJSON: planningFailure(failure)}
	out := s.applyNodes(a)
	for i := range out {
		if out[i].Refusal == nil {
			out[i].Command, out[i].Ended = nil, ended
		}
	}
	return out
}

// manifestFailure is a refused manifest as the failure of a job. The classes are
// published: what cannot be read is the caller's fault, what fits no node is not.
func manifestFailure(err error) *job.Failure {
	f := job.NewFailure(job.FailureManifestInvalid, err.Error())
	switch {
	case errors.Is(err, &manifest.Error{Kind: manifest.KindTargets}):
		f = job.NewFailure(job.FailureTargetNotFound, err.Error())
		f.Code = job.CodeInvalidResponse
	case errors.Is(err, &manifest.Error{Kind: manifest.KindNoTargets}):
		f = job.NewFailure(job.FailureTargetNotFound, err.Error())
	}
	f.Phase = phasePlanning
	return f
}

// firmwareTargets are the packages of a node as its agent gets them.
func firmwareTargets(cache string, targets []manifest.Target, files map[string]*catalog.Artifact) []*rackbusv1.FirmwareUpdateTarget {
	out := make([]*rackbusv1.FirmwareUpdateTarget, len(targets))
	for i, t := range targets {
		out[i] = &rackbusv1.FirmwareUpdateTarget{
			Component: t.Component, Key: t.Key, Version: t.Version, ExpectedVersion: t.ExpectedVersion,
			Artifact: &rackbusv1.ArtifactRef{Cache: cache, Path: t.Path},
		}
		if f := files[t.Path]; f.GetState() == rackbusv1.ArtifactState_ARTIFACT_STATE_AVAILABLE {
			out[i].Sha256 = f.GetSha256()
		}
	}
	return out
}
