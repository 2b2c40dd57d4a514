// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"fmt"
	"strings"

	"github.com/rackbus/rackbus/pkg/admission"
	"github.com/rackbus/rackbus/pkg/firmware/artifact"
	"github.com/rackbus/rackbus/pkg/firmware/catalog"
	"github.com/rackbus/rackbus/pkg/firmware/manifest"
	"github.com/rackbus/rackbus/pkg/job"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

const textImageApplyCreated = "Created switch system image apply jobs. Stage 0 downloads the image artifact; " +
	"use GetSwitchSystemImageJobStatus with response.job_id or node job IDs to track progress."

// ApplyStoredSwitchSystemImage installs the switch image of a stored object.
func (m *rackManager) ApplyStoredSwitchSystemImage(ctx context.Context, req *rackmanager.ApplyStoredSwitchSystemImageRequest,
) (*rackmanager.ApplyStoredSwitchSystemImageResponse, error) {
	nodes, err := selectNodes(req.GetNodes())
	if err != nil {
		return nil, err
	}
	meta, idem, err := m.jobCall(ctx, "ApplyStoredSwitchSystemImage", req)
	if err != nil {
		return nil, err
	}
	replay, found, err := m.admitter.Lookup(ctx, idem, refsOf(nodes))
	if err != nil {
		return nil, err
	}
	update := &rackbusv1.SwitchImageUpdate{}
	b := imageJobs(nodes, update)
	o, refusal, err := m.findImage(ctx, req, update)
	answer := func(r *rackmanager.NodeBatchResponse) *rackmanager.ApplyStoredSwitchSystemImageResponse {
		return &rackmanager.ApplyStoredSwitchSystemImageResponse{
			Response: r, ObjectId: o.GetId(), ImageFilename: update.GetImageFilename(),
		}
	}
	created := func(res admission.Result) *rackmanager.ApplyStoredSwitchSystemImageResponse {
		out := answer(b.answer(res))
		out.Jobs = imageJobInfos(res)
		return out
	}
	if found {
		return created(replay), nil // whatever has become of the object since
	}
	if err != nil {
		return nil, err
	}
	switch {
	case refusal != "":
	case len(nodes) == 0:
		refusal = "no nodes specified in request"
	case req.GetAllowOnieRecovery():
		refusal = textNoRecovery
	}
	if refusal != "" {
		return answer(batchFailure("%s", refusal)), nil
	}
	res, err := m.admitSwitches(ctx, b, meta.request(nodes[0].ref.RackID, idem))
	if refused, ok := b.refused(err); ok {
		return answer(refused), nil
	}
	if err != nil {
		return nil, err
	}
	m.recordApply(ctx, &apply{rackID: req.GetRackId(), firmwareType: req.GetSoftwareType(), nodes: nodes}, o, &res)
	return created(res), nil
}

// findImage finds the object that a request means and its image; refusal says why it
// has none that could be installed.
func (s *Server) findImage(ctx context.Context, req *rackmanager.ApplyStoredSwitchSystemImageRequest, update *rackbusv1.SwitchImageUpdate,
) (o *catalog.Object, refusal string, err error) {
	if o, err = s.findObject(ctx, req.GetObjectId(), req.GetHardwareType()); err != nil {
		return nil, "", err
	}
	refusal, err = s.storedImage(ctx, o, req.GetSoftwareType(), update)
	return o, refusal, err
}

// storedImage fills in the image that a stored object has for a software type;
// refusal says why it has none that could be installed.
func (s *Server) storedImage(ctx context.Context, o *catalog.Object, softwareType string, update *rackbusv1.SwitchImageUpdate,
) (refusal string, err error) {
	if !o.GetAvailable() {
		return notAvailable(o), nil
	}
	data, err := inCatalog(ctx, s, func(ctx context.Context) ([]byte, error) { return s.catalog.Lookup(ctx, o.GetId()) })
	if err != nil {
		return "", err
	}
	table, err := manifest.DecodeLookup(data)
	if err != nil {
		return fmt.Sprintf("failed to parse firmware object %s lookup table: %v", o.GetId(), err), nil
	}
	if err := imageOf(table, o.GetId(), softwareType, update); err != nil {
		return err.Error(), nil
	}
	update.Artifact.Cache = o.GetId()
	records, err := inCatalog(ctx, s, func(ctx context.Context) ([]*catalog.Artifact, error) {
		return s.catalog.CacheArtifacts(ctx, o.GetId())
	})
	if err != nil {
		return "", err
	}
	for _, r := range records {
		if r.GetPath() != update.GetArtifact().GetPath() {
			continue
		}
		if r.GetState() == rackbusv1.ArtifactState_ARTIFACT_STATE_AVAILABLE {
			update.Sha256, update.SizeBytes = r.GetSha256(), r.GetBytesDone()
			return "", nil
		}
		// An image that is not required does not keep its object from being available.
		return strings.TrimSuffix(fmt.Sprintf("switch system image %s of firmware object %s was not downloaded: %s",
			update.GetImageFilename(), o.GetId(), r.GetFailure()), ": "), nil
	}
	return fmt.Sprintf("switch system image %s of firmware object %s was not downloaded", update.GetImageFilename(), o.GetId()), nil
}

// imageOf fills in what the table has for a software type.
func imageOf(table *manifest.Lookup, objectID, softwareType string, update *rackbusv1.SwitchImageUpdate) error {
	image, ok := table.Image(softwareType)
	if !ok {
		return fmt.Errorf("firmware object %s has no switch system image for firmware type %s", objectID, softwareType)
	}
	path := image.Path()
	if path == "" || !switchFileName.MatchString(image.ImageFilename) {
		return fmt.Errorf("firmware object %s: %s", objectID, badFileName("image name", image.ImageFilename))
	}
	build, err := buildOf(image.ImageFilename)
	if err != nil {
		return err
	}
	update.ImageFilename, update.TargetBuildId = image.ImageFilename, build
	update.Artifact = &rackbusv1.ArtifactRef{Path: path}
	return nil
}

// ApplySwitchSystemImage installs the switch image of a manifest in the request. A
// manifest that cannot be used fails the jobs, which exist all the same: clients look
// there.
func (m *rackManager) ApplySwitchSystemImage(ctx context.Context, req *rackmanager.ApplySwitchSystemImageRequest,
) (*rackmanager.ApplySwitchSystemImageResponse, error) {
	nodes, err := selectNodes(req.GetNodes())
	if err != nil {
		return nil, err
	}
	switch {
	case strings.TrimSpace(req.GetHardwareType()) == "":
		return nil, errorf(CodeInvalidArgument, textHardwareType)
	case len(nodes) == 0:
		return &rackmanager.ApplySwitchSystemImageResponse{Response: batchFailure(textNoDevices)}, nil
	case req.GetAllowOnieRecovery():
		return &rackmanager.ApplySwitchSystemImageResponse{Response: batchFailure("%s", textNoRecovery)}, nil
	}
	meta, idem, err := m.jobCall(ctx, "ApplySwitchSystemImage", req)
	if err != nil {
		return nil, err
	}
	update := &rackbusv1.SwitchImageUpdate{}
	b := imageJobs(nodes, update)
	b.noun = "switch system image apply"
	a := apply{rackID: req.GetRackId(), firmwareType: req.GetSoftwareType(), nodes: nodes}
	fault := m.resolveImage(&a, []byte(req.GetConfigJson()), update)
	answer := func(r *rackmanager.NodeBatchResponse) *rackmanager.ApplySwitchSystemImageResponse {
		return &rackmanager.ApplySwitchSystemImageResponse{Response: r, ObjectId: a.objectID}
	}
	created := func(res admission.Result) *rackmanager.ApplySwitchSystemImageResponse {
		out := answer(b.answer(res))
		if res.Admitted() > 0 {
			out.Response.Message = textImageApplyCreated
		}
		out.Jobs = imageJobInfos(res)
		return out
	}
	if res, found, err := m.admitter.Lookup(ctx, idem, refsOf(nodes)); err != nil || found {
		return created(res), err
	}
	res, err := m.admitImage(ctx, b, &a, meta.request(req.GetRackId(), idem), req.GetAccessToken(), fault)
	if refused, ok := b.refused(err); ok {
		return answer(refused), nil
	}
	if err != nil {
		return nil, err
	}
	return created(res), nil
}

// resolveImage finds out which image a manifest means, and whether it may be fetched.
func (s *Server) resolveImage(a *apply, config []byte, update *rackbusv1.SwitchImageUpdate) error {
	parsed, err := manifest.Parse(config)
	if err != nil {
		return err
	}
	a.objectID, a.cache = parsed.ID(), ephemeralCache(parsed.ID())
	table, err := parsed.Lookup()
	if err != nil {
		return err
	}
	if err := imageOf(table, a.objectID, a.firmwareType, update); err != nil {
		return err
	}
	update.Artifact.Cache = a.cache
	if a.artifacts, err = parsed.ArtifactsFor([]manifest.Target{{Path: update.GetArtifact().GetPath()}}); err != nil {
		return err
	}
	for i := range a.artifacts {
		a.artifacts[i].Required = true // the jobs wait for it
	}
	return s.checkArtifacts(a.artifacts)
}

// admitImage admits an apply with a manifest of its own. The download comes first: no
// switch may wait for a file that nobody fetches. fault fails every job at once.
func (s *Server) admitImage(ctx context.Context, b *switchJobs, a *apply, areq admission.Request, token string, fault error,
) (admission.Result, error) {
	targets := s.newTargets()
	areq.Type, areq.NothingAdmitted = b.typ, b.nothing()
	areq.Nodes = make([]admission.Node, len(b.nodes))
	for i := range b.nodes {
		areq.Nodes[i] = s.switchNode(b, targets, &b.nodes[i])
	}
	if fault != nil {
		failure := job.NewFailure(job.FailureInvalidArgument, fault.Error())
		failure.Code, failure.Phase = job.CodeOther, phasePlanning
		for i := range areq.Nodes {
			if n := &areq.Nodes[i]; n.Refusal == nil {
				n.Command, n.Ended = nil, &admission.Ended{State: job.StateFailed, Failure: failure}
			}
		}
		return s.admitBatch(ctx, areq)
	}
	if !needsFiles(areq.Nodes) {
		return s.admitBatch(ctx, areq)
	}
	download, err := s.prepareCache(ctx, a, token)
	if err != nil {
		s.dropEphemeral(ctx, a.cache, download)
		return admission.Result{}, err
	}
	areq.Cleanup = []string{artifact.CacheDir(a.cache, true)}
	res, err := s.admitBatch(ctx, areq)
	if unused(&res, err) {
		s.dropEphemeral(ctx, a.cache, download)
	}
	return res, err
}
