// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"strings"

	"github.com/rackbus/rackbus/pkg/firmware/artifact"
	"github.com/rackbus/rackbus/pkg/firmware/catalog"
	"github.com/rackbus/rackbus/pkg/firmware/manifest"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

const textHardwareType = "hardware_type is required"

// AddFirmwareObject stores a manifest and begins to download its files.
func (m *rackManager) AddFirmwareObject(ctx context.Context, req *rackmanager.AddFirmwareObjectRequest,
) (*rackmanager.AddFirmwareObjectResponse, error) {
	parsed, err := manifest.Parse([]byte(req.GetConfigJson()))
	var fault *manifest.Error
	identified := errors.As(err, &fault) && fault.Kind != manifest.KindSyntax && fault.Kind != manifest.KindIdentity
	switch {
	case err != nil && !identified:
		return nil, manifestError(err)
	case strings.TrimSpace(req.GetHardwareType()) == "":
		return nil, errorf(CodeInvalidArgument, textHardwareType)
	case err != nil:
		return nil, manifestError(err)
	}
	object, artifacts, err := newObject(parsed, req)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(checkCache(parsed.ID()), m.checkArtifacts(artifacts)); err != nil {
		return nil, err
	}
	records, secrets := artifactRecords(artifacts, req.GetAccessToken())
	object.Artifacts = records
	if _, err := inCatalog(ctx, m.Server, func(ctx context.Context) (*catalog.Object, error) {
		return m.catalog.Create(ctx, object)
	}); err != nil {
		return nil, err
	}
	m.log.InfoContext(ctx, "firmware object added", "object", object.ID, "artifacts", len(records))
	o, err := inCatalog(ctx, m.Server, func(ctx context.Context) (*catalog.Object, error) {
		if req.GetSetDefault() {
			return m.catalog.SetDefault(ctx, object.ID)
		}
		return m.catalog.SetDefaultIfNone(ctx, object.ID)
	})
	if err != nil {
		return nil, err
	}
	m.beginDownload(ctx, parsed, object, secrets)
	shown, err := m.showObject(ctx, o, object.Manifest, object.Lookup, m.answerBudget())
	if err != nil {
		return nil, err
	}
	return &rackmanager.AddFirmwareObjectResponse{Object: shown}, nil
}

// newObject is what is stored of a manifest, once all of it is found to be in order.
func newObject(parsed *manifest.Manifest, req *rackmanager.AddFirmwareObjectRequest) (catalog.NewObject, []manifest.Artifact, error) {
	o := catalog.NewObject{ID: parsed.ID(), HardwareType: req.GetHardwareType()}
	if err := parsed.Check(); err != nil {
		return o, nil, manifestError(err)
	}
	artifacts, err := parsed.Artifacts()
	if err != nil {
		return o, nil, manifestError(err)
	}
	if o.Manifest, err = manifest.Conceal([]byte(req.GetConfigJson())); err != nil {
		return o, nil, manifestError(err)
	}
	lookup, err := parsed.Lookup()
	if err != nil {
		return o, nil, manifestError(err)
	}
	if lookup != nil {
		if o.Lookup, err = lookup.Encode(); err != nil {
			return o, nil, err
		}
	}
	return o, artifacts, nil
}

// beginDownload starts the download of a new object, or settles one without files.
// The object is stored by now, so what fails here is told by the object.
func (m *rackManager) beginDownload(ctx context.Context, parsed *manifest.Manifest, o catalog.NewObject, secrets *rackbusv1.DownloadSecrets) {
	var err error
	switch {
	case len(o.Artifacts) > 0:
		_, err = m.startDownload(ctx, o.ID, secrets)
	case len(parsed.Boards) == 0:
		err = errors.New("the manifest has no boards, so there is nothing to make available")
	default:
		_, err = inCatalog(ctx, m.Server, func(ctx context.Context) (*catalog.Object, error) {
			return m.catalog.SetAvailable(ctx, o.ID, o.Lookup)
		})
	}
	if err == nil {
		return
	}
	m.log.WarnContext(ctx, "download of a firmware object not started", "object", o.ID, "err", err)
	if _, err := inCatalog(ctx, m.Server, func(ctx context.Context) (*catalog.Object, error) {
		return m.catalog.SetFailure(ctx, o.ID, "download not started: "+reasonOf(err))
	}); err != nil {
		m.log.WarnContext(ctx, "failure of a firmware object not stored", "object", o.ID, "err", err)
	}
}

// GetFirmwareObject returns one object.
func (m *rackManager) GetFirmwareObject(ctx context.Context, req *rackmanager.GetFirmwareObjectRequest,
) (*rackmanager.GetFirmwareObjectResponse, error) {
	o, err := m.object(ctx, req.GetId())
	if err != nil {
		return nil, err
	}
	shown, err := m.readAndShow(ctx, o, m.answerBudget())
	if err != nil {
		return nil, err
	}
	return &rackmanager.GetFirmwareObjectResponse{Object: shown}, nil
}

// ListFirmwareObjects returns the selected objects, newest first.
func (m *rackManager) ListFirmwareObjects(ctx context.Context, req *rackmanager.ListFirmwareObjectsRequest,
) (*rackmanager.ListFirmwareObjectsResponse, error) {
	filter := catalog.Filter{OnlyAvailable: req.GetOnlyAvailable(), HardwareType: req.GetHardwareType()}
	objects, err := inCatalog(ctx, m.Server, func(ctx context.Context) ([]*catalog.Object, error) {
		return m.catalog.List(ctx, filter)
	})
	if err != nil {
		return nil, err
	}
	resp := &rackmanager.ListFirmwareObjectsResponse{}
	left := m.answerBudget()
	for i, o := range objects {
		// What is large may take its share of what is left, so that all are listed.
		shown, err := m.readAndShow(ctx, o, left/(len(objects)-i))
		if errors.Is(err, catalog.ErrNotFound) {
			continue // deleted since
		}
		if err != nil {
			return nil, err
		}
		left -= sizeOf(shown)
		resp.Objects = append(resp.Objects, shown)
	}
	return resp, nil
}

// DeleteFirmwareObject removes an object and its files. A download that is under way
// is stopped. The history stays.
func (m *rackManager) DeleteFirmwareObject(ctx context.Context, req *rackmanager.DeleteFirmwareObjectRequest,
) (*rackmanager.DeleteFirmwareObjectResponse, error) {
	id := req.GetId()
	if err := manifest.CheckID(id); err != nil {
		return nil, manifestError(err)
	}
	o, err := m.object(ctx, id)
	if err != nil {
		return nil, err
	}
	m.cancelDownload(ctx, o.GetDownloadJobId(), "firmware object "+id+" was deleted")
	if err := m.ride(ctx, func(ctx context.Context) error { return m.catalog.Delete(ctx, id) }); err != nil {
		return nil, err
	}
	m.removeFiles(ctx, id, false)
	m.log.InfoContext(ctx, "firmware object deleted", "object", id)
	return &rackmanager.DeleteFirmwareObjectResponse{Response: success("deleted firmware object %s", id)}, nil
}

// removeFiles removes the files of a cache. What is left is only told to the log: the
// cache is gone.
func (s *Server) removeFiles(ctx context.Context, cache string, ephemeral bool) {
	if err := artifact.RemoveCache(s.opts.FirmwareDir, cache, ephemeral); err != nil {
		s.log.WarnContext(ctx, "files of a firmware object not removed", "cache", cache, "err", err)
	}
}

// SetDefaultFirmwareObject makes an object the default of its hardware type.
func (m *rackManager) SetDefaultFirmwareObject(ctx context.Context, req *rackmanager.SetDefaultFirmwareObjectRequest,
) (*rackmanager.SetDefaultFirmwareObjectResponse, error) {
	o, err := inCatalog(ctx, m.Server, func(ctx context.Context) (*catalog.Object, error) {
		return m.catalog.SetDefault(ctx, req.GetObjectId())
	})
	if err != nil {
		return nil, noObject(err, req.GetObjectId())
	}
	shown, err := m.readAndShow(ctx, o, m.answerBudget())
	if err != nil {
		return nil, err
	}
	return &rackmanager.SetDefaultFirmwareObjectResponse{Object: shown}, nil
}

// GetFirmwareObjectHistory tells what was applied, newest first.
func (m *rackManager) GetFirmwareObjectHistory(ctx context.Context, req *rackmanager.GetFirmwareObjectHistoryRequest,
) (*rackmanager.GetFirmwareObjectHistoryResponse, error) {
	filter := catalog.HistoryFilter{ObjectID: req.GetObjectId(), RackIDs: req.GetRackIds()}
	entries, err := inCatalog(ctx, m.Server, func(ctx context.Context) ([]catalog.HistoryEntry, error) {
		return m.catalog.ListHistory(ctx, filter)
	})
	if err != nil {
		return nil, err
	}
	resp := &rackmanager.GetFirmwareObjectHistoryResponse{}
	left := m.answerBudget()
	for _, e := range entries {
		r := &rackmanager.FirmwareObjectHistoryRecord{
			ObjectId: e.GetObjectId(), RackId: e.GetRackId(), FirmwareType: e.GetFirmwareType(), AppliedAt: e.GetAppliedAt(),
			FirmwareAvailable: e.FirmwareAvailable, HardwareType: e.GetHardwareType(), NodeIds: e.GetNodeIds(),
		}
		if left -= sizeOf(r); left < 0 {
			tellReason(ctx, "the oldest lines of the history are left out to keep the answer small; ask for fewer racks")
			break
		}
		resp.Records = append(resp.Records, r)
	}
	return resp, nil
}
