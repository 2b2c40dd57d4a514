// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/rackbus/rackbus/pkg/bus"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// storedArtifact is an artifact with its place on the bus.
type storedArtifact struct {
	*Artifact
	key bus.CatalogKey
	rev bus.Revision
}

// cacheWrites stores the artifacts of a new cache.
func cacheWrites(cache string, artifacts []*Artifact) ([]bus.CatalogWrite, error) {
	writes := make([]bus.CatalogWrite, len(artifacts))
	for i, a := range artifacts {
		key, err := bus.CatalogArtifact(cache, i)
		if err != nil {
			return nil, fmt.Errorf("%w: cache: %w", ErrInvalid, err)
		}
		writes[i] = bus.CatalogWrite{Key: key, Value: a, Blind: true}
	}
	return writes, nil
}

// cache reads the artifacts of a cache in their order.
func (s *Bus) cache(ctx context.Context, cache string) ([]storedArtifact, error) {
	r, err := bus.CatalogCache(cache)
	if err != nil {
		return nil, fmt.Errorf("%w: cache: %w", ErrInvalid, err)
	}
	var out []storedArtifact
	err = s.conn.CatalogEntries(ctx, r, func(e bus.CatalogEntry) error {
		a := &Artifact{}
		out = append(out, storedArtifact{a, e.Key, e.Revision})
		return e.Decode(a)
	})
	slices.SortFunc(out, func(a, b storedArtifact) int { return cmp.Compare(a.key.String(), b.key.String()) })
	return out, err
}

// CreateCache implements Artifacts.
func (s *Bus) CreateCache(ctx context.Context, cache string, artifacts []*Artifact) error {
	list, err := pending(cache, true, artifacts)
	if err != nil || len(list) == 0 {
		return err
	}
	writes, err := cacheWrites(cache, list)
	if err != nil {
		return err
	}
	// The first one decides whether the cache exists.
	writes[0].Blind = false
	return again(ctx, func() error {
		rev, err := s.conn.CatalogEntry(ctx, writes[0].Key, &Artifact{})
		if err == nil {
			return fmt.Errorf("cache %s %w", cache, ErrExists)
		}
		if !errors.Is(err, bus.ErrNotFound) {
			return err
		}
		writes[0].Expect = rev
		_, err = s.conn.CommitCatalog(ctx, writes...)
		return err
	})
}

// CacheArtifacts implements Artifacts.
func (s *Bus) CacheArtifacts(ctx context.Context, cache string) ([]*Artifact, error) {
	stored, err := s.cache(ctx, cache)
	if err != nil {
		return nil, err
	}
	out := make([]*Artifact, len(stored))
	for i, a := range stored {
		out[i] = a.Artifact
	}
	return out, nil
}

// UpdateArtifact implements Artifacts.
func (s *Bus) UpdateArtifact(ctx context.Context, cache, path string, change func(*Artifact)) error {
	return again(ctx, func() error {
		a, err := s.artifact(ctx, cache, path)
		if err != nil {
			return err
		}
		change(a.Artifact)
		a.UpdatedAt = timestamppb.Now()
		_, err = s.conn.CommitCatalog(ctx, bus.CatalogWrite{Key: a.key, Value: a.Artifact, Expect: a.rev})
		return err
	})
}

// artifact reads one artifact, at the place where it was last time if it is still
// there.
func (s *Bus) artifact(ctx context.Context, cache, path string) (storedArtifact, error) {
	name := artifactName{cache, path}
	s.mu.Lock()
	key, known := s.keys[name]
	s.mu.Unlock()
	if known {
		a := &Artifact{}
		rev, err := s.conn.CatalogEntry(ctx, key, a)
		if err == nil && a.GetPath() == path {
			return storedArtifact{a, key, rev}, nil
		}
		if err != nil && !errors.Is(err, bus.ErrNotFound) {
			return storedArtifact{}, err
		}
	}
	stored, err := s.cache(ctx, cache)
	if err != nil {
		return storedArtifact{}, err
	}
	i := slices.IndexFunc(stored, func(a storedArtifact) bool { return a.GetPath() == path })
	if i < 0 {
		return storedArtifact{}, artifactNotFound(cache, path)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.keys) >= keysKept {
		clear(s.keys)
	}
	s.keys[name] = stored[i].key
	return stored[i], nil
}

// WatchCache implements Artifacts.
func (s *Bus) WatchCache(ctx context.Context, cache string, each func(string, ArtifactChange) error, current func()) error {
	r, err := bus.CatalogCache(cache)
	if err != nil {
		return fmt.Errorf("%w: cache: %w", ErrInvalid, err)
	}
	paths := map[bus.CatalogKey]string{}
	return s.conn.WatchCatalog(ctx, r, func(e bus.CatalogEntry) error {
		if e.Removed {
			path, known := paths[e.Key]
			if !known {
				return nil // of an earlier object of this id
			}
			delete(paths, e.Key)
			return each(path, ArtifactChange{})
		}
		a := &Artifact{}
		if err := e.Decode(a); err != nil {
			return err
		}
		paths[e.Key] = a.GetPath()
		return each(a.GetPath(), ArtifactChange{a})
	}, current)
}

// PendingCaches implements Artifacts.
func (s *Bus) PendingCaches(ctx context.Context) ([]PendingCache, error) {
	found := pendingCaches{}
	err := s.conn.CatalogEntries(ctx, bus.CatalogArtifacts, func(e bus.CatalogEntry) error {
		a := &Artifact{}
		if err := e.Decode(a); err != nil {
			return err
		}
		found.add(a)
		return nil
	})
	return found.list(), err
}

// IdleCaches implements Artifacts.
func (s *Bus) IdleCaches(ctx context.Context, idle time.Duration) ([]string, error) {
	found := idleCaches{}
	err := s.conn.CatalogEntries(ctx, bus.CatalogArtifacts, func(e bus.CatalogEntry) error {
		a := &Artifact{}
		if err := e.Decode(a); err != nil {
			return err
		}
		found.add(a)
		return nil
	})
	return found.list(idle), err
}

// DropCache implements Artifacts.
func (s *Bus) DropCache(ctx context.Context, cache string) error {
	stored, err := s.cache(ctx, cache)
	if err != nil || len(stored) == 0 {
		return err
	}
	writes := make([]bus.CatalogWrite, len(stored))
	digests := make([][]byte, len(stored))
	for i, a := range stored {
		writes[i] = bus.CatalogWrite{Key: a.key, Blind: true}
		digests[i] = a.GetSha256()
	}
	if _, err := s.conn.CommitCatalog(ctx, writes...); err != nil {
		return err
	}
	s.freeDigests(ctx, digests...)
	return nil
}

// PutContent implements Artifacts.
func (s *Bus) PutContent(ctx context.Context, digest [sha256.Size]byte, r io.Reader) error {
	err := s.conn.PutBlob(ctx, digest, r)
	if errors.Is(err, bus.ErrDigest) {
		err = fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return err
}

// KeepContent implements Artifacts.
func (s *Bus) KeepContent(ctx context.Context, digest [sha256.Size]byte) (bool, error) {
	return s.conn.KeepBlob(ctx, digest)
}

// ReadContent implements Artifacts.
func (s *Bus) ReadContent(ctx context.Context, digest [sha256.Size]byte, w io.Writer) error {
	err := s.conn.ReadBlob(ctx, digest, w)
	if errors.Is(err, bus.ErrNotFound) {
		return fmt.Errorf("content %x %w: %w", digest, ErrNotFound, err)
	}
	return err
}

// RecordApply implements History.
func (s *Bus) RecordApply(ctx context.Context, a *Apply) error {
	now := time.Now()
	line := &Apply{
		V: recordVersion, ObjectId: a.GetObjectId(), RackId: a.GetRackId(), FirmwareType: a.GetFirmwareType(),
		HardwareType: a.GetHardwareType(), NodeIds: a.GetNodeIds(), AppliedAt: timestamppb.New(now),
		RefusedNodeIds: a.GetRefusedNodeIds(), JobId: a.GetJobId(),
	}
	// Ids sort by time; the rest keeps those of different processes apart.
	key, err := bus.CatalogApply(fmt.Sprintf("%020d-%s", now.UnixNano(), uuid.NewString()))
	if err != nil {
		return err
	}
	_, err = s.conn.CommitCatalog(ctx, bus.CatalogWrite{Key: key, Value: line, Expect: bus.Absent})
	return err
}

// trimWrites is how many lines are removed in one step.
const trimWrites = 500

// TrimHistory implements History.
func (s *Bus) TrimHistory(ctx context.Context, keep int) (int, error) {
	var keys []bus.CatalogKey
	err := s.conn.CatalogEntries(ctx, bus.CatalogHistory, func(e bus.CatalogEntry) error {
		keys = append(keys, e.Key)
		return nil
	})
	if err != nil || len(keys) <= keep {
		return 0, err
	}
	slices.SortFunc(keys, func(a, b bus.CatalogKey) int { return cmp.Compare(a.String(), b.String()) })
	old := keys[:len(keys)-keep]
	for some := range slices.Chunk(old, trimWrites) {
		writes := make([]bus.CatalogWrite, len(some))
		for i, key := range some {
			writes[i] = bus.CatalogWrite{Key: key, Blind: true}
		}
		if _, err := s.conn.CommitCatalog(ctx, writes...); err != nil {
			return 0, err
		}
	}
	return len(old), nil
}

// ListHistory implements History.
func (s *Bus) ListHistory(ctx context.Context, f HistoryFilter) ([]HistoryEntry, error) {
	type line struct {
		key string
		HistoryEntry
	}
	var lines []line
	err := s.conn.CatalogEntries(ctx, bus.CatalogHistory, func(e bus.CatalogEntry) error {
		a := &Apply{}
		if err := e.Decode(a); err != nil {
			return err
		}
		if applied(a, f) {
			lines = append(lines, line{e.Key.String(), HistoryEntry{Apply: a}})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	available, err := s.List(ctx, Filter{OnlyAvailable: true})
	if err != nil {
		return nil, err
	}
	ids := make(map[string]bool, len(available))
	for _, o := range available {
		ids[o.GetId()] = true
	}
	slices.SortFunc(lines, func(a, b line) int { return cmp.Compare(b.key, a.key) })
	out := make([]HistoryEntry, len(lines))
	for i, l := range lines {
		l.FirmwareAvailable = ids[l.GetObjectId()]
		out[i] = l.HistoryEntry
	}
	return out, nil
}

// CreatePlan implements Plans.
func (s *Bus) CreatePlan(ctx context.Context, id string, body []byte, life time.Duration) error {
	key, err := bus.CatalogPlan(id)
	if err != nil {
		return fmt.Errorf("%w: plan: %w", ErrInvalid, err)
	}
	r := &rackbusv1.FirmwarePlanRecord{V: recordVersion, Id: id, PlanSha256: digestOf(body), CreatedAt: timestamppb.Now()}
	return s.withContent(ctx, [][]byte{body}, func() error {
		return again(ctx, func() error {
			rev, err := s.conn.CatalogEntry(ctx, key, &rackbusv1.FirmwarePlanRecord{})
			if err == nil {
				return planExists(id)
			}
			if !errors.Is(err, bus.ErrNotFound) {
				return err
			}
			_, err = s.conn.CommitCatalog(ctx, bus.CatalogWrite{Key: key, Value: r, Expect: rev, TTL: life})
			return err
		})
	})
}

// FindPlan implements Plans.
func (s *Bus) FindPlan(ctx context.Context, id string) (Plan, error) {
	key, err := bus.CatalogPlan(id)
	if err != nil {
		return Plan{}, fmt.Errorf("%w: plan: %w", ErrInvalid, err)
	}
	var r rackbusv1.FirmwarePlanRecord
	if _, err = s.conn.CatalogEntry(ctx, key, &r); errors.Is(err, bus.ErrNotFound) {
		return Plan{}, planNotFound(id)
	}
	if err != nil {
		return Plan{}, err
	}
	body, err := s.content(ctx, r.GetPlanSha256())
	if err != nil {
		return Plan{}, fmt.Errorf("firmware plan %s: %w", id, err)
	}
	return Plan{Body: body, CreatedAt: r.GetCreatedAt().AsTime()}, nil
}
