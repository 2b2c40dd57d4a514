// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/rackbus/rackbus/pkg/firmware/catalog"
	"github.com/rackbus/rackbus/pkg/firmware/manifest"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// FirmwareCatalog is what the RPCs of firmware objects need of a catalog.Store,
// whose comments say what the methods do.
type FirmwareCatalog interface {
	Create(ctx context.Context, o catalog.NewObject) (*catalog.Object, error)
	Find(ctx context.Context, id string) (*catalog.Object, error)
	List(ctx context.Context, f catalog.Filter) ([]*catalog.Object, error)
	SetAvailable(ctx context.Context, id string, lookup []byte) (*catalog.Object, error)
	SetFailure(ctx context.Context, id, reason string) (*catalog.Object, error)
	SetDownloadJob(ctx context.Context, id, jobID string) (*catalog.Object, error)
	RetryDownload(ctx context.Context, id string) (int, error)
	SetDefault(ctx context.Context, id string) (*catalog.Object, error)
	SetDefaultIfNone(ctx context.Context, id string) (*catalog.Object, error)
	FindDefault(ctx context.Context, hardwareType string) (*catalog.Object, error)
	Delete(ctx context.Context, id string) error
	Manifest(ctx context.Context, id string) ([]byte, error)
	Lookup(ctx context.Context, id string) ([]byte, error)

	CreateCache(ctx context.Context, cache string, artifacts []*catalog.Artifact) error
	CacheArtifacts(ctx context.Context, cache string) ([]*catalog.Artifact, error)
	DropCache(ctx context.Context, cache string) error

	RecordApply(ctx context.Context, a *catalog.Apply) error
	ListHistory(ctx context.Context, f catalog.HistoryFilter) ([]catalog.HistoryEntry, error)

	CreatePlan(ctx context.Context, id string, body []byte, life time.Duration) error
	FindPlan(ctx context.Context, id string) (catalog.Plan, error)
}

// inCatalog reads or writes the catalogue, also over a failover of the broker.
func inCatalog[T any](ctx context.Context, s *Server, do func(context.Context) (T, error)) (T, error) {
	var out T
	err := s.ride(ctx, func(ctx context.Context) (err error) {
		out, err = do(ctx)
		return err
	})
	return out, err
}

// object reads one object.
func (s *Server) object(ctx context.Context, id string) (*catalog.Object, error) {
	o, err := inCatalog(ctx, s, func(ctx context.Context) (*catalog.Object, error) { return s.catalog.Find(ctx, id) })
	return o, noObject(err, id)
}

// noObject says of an id that cannot be one what is said of any other that is not there.
func noObject(err error, id string) error {
	if errors.Is(err, catalog.ErrInvalid) {
		return errorf(CodeNotFound, "firmware object %s not found", id)
	}
	return err
}

// catalogCode is the class of an error of the catalogue, and whether it is one.
func catalogCode(err error) (Code, bool) {
	switch {
	case errors.Is(err, catalog.ErrNotFound):
		return CodeNotFound, true
	case errors.Is(err, catalog.ErrExists):
		return CodeAlreadyExists, true
	case errors.Is(err, catalog.ErrInvalid):
		return CodeInvalidArgument, true
	}
	return CodeInternal, false
}

// manifestError is a refused manifest as a gRPC status.
func manifestError(err error) error {
	var fault *manifest.Error
	if errors.As(err, &fault) {
		return &Error{CodeInvalidArgument, fault.Message, nil}
	}
	return err
}

// checkArtifacts refuses files that the download would refuse for where they are. Those
// that may be missing are left to it.
func (s *Server) checkArtifacts(list []manifest.Artifact) error {
	if s.opts.ArtifactPolicy == nil {
		return nil
	}
	for _, a := range list {
		if !a.Required {
			continue
		}
		if _, err := s.opts.ArtifactPolicy.Check(a.LocationType, a.Location); err != nil {
			return errorf(CodeInvalidArgument, "the file of %s cannot be fetched from %s: %v", a.Component, manifest.Redact(a.Location), err)
		}
	}
	return nil
}

// artifactRecords describes files for the catalogue. What must not be shown there, the
// token and locations that may be secret in part, is returned beside them; nil when
// that is nothing.
func artifactRecords(list []manifest.Artifact, token string) ([]*catalog.Artifact, *rackbusv1.DownloadSecrets) {
	secrets := &rackbusv1.DownloadSecrets{AccessToken: strings.TrimSpace(token)}
	var records []*catalog.Artifact
	for _, a := range list {
		shown := manifest.Redact(a.Location)
		if shown != a.Location {
			if secrets.Locations == nil {
				secrets.Locations = make(map[string]string)
			}
			secrets.Locations[a.Path] = a.Location
		}
		records = append(records, &catalog.Artifact{
			Path: a.Path, Location: shown, LocationType: a.LocationType, Component: a.Component,
			Required: a.Required, WantSha256: a.WantSHA256,
		})
	}
	if secrets.GetAccessToken() == "" && len(secrets.GetLocations()) == 0 {
		return records, nil
	}
	return records, secrets
}
