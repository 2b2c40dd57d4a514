// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Memory is a Store that lives as long as its process.
type Memory struct {
	mu       sync.Mutex
	objects  map[string]*Object
	defaults map[string]string
	caches   map[string][]*kept
	history  []*Apply
	plans    map[string]memoryPlan
	content  map[[sha256.Size]byte][]byte
	revision uint64
	// changed is closed and replaced when an artifact changes.
	changed chan struct{}
}

// kept is an artifact with the moment of its last change.
type kept struct {
	*Artifact
	revision uint64
}

type memoryPlan struct {
	Plan
	until time.Time
}

var _ Store = (*Memory)(nil)

// NewMemory returns an empty store.
func NewMemory() *Memory {
	return &Memory{
		objects: map[string]*Object{}, defaults: map[string]string{}, caches: map[string][]*kept{},
		plans: map[string]memoryPlan{}, content: map[[sha256.Size]byte][]byte{}, changed: make(chan struct{}),
	}
}

// Create implements Objects.
func (m *Memory) Create(_ context.Context, o NewObject) (*Object, error) {
	if o.ID == "" || o.HardwareType == "" {
		return nil, fmt.Errorf("%w: an object needs an id and a hardware type", ErrInvalid)
	}
	artifacts, err := pending(o.ID, false, o.Artifacts)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.objects[o.ID] != nil {
		return nil, objectExists(o.ID)
	}
	r := newRecord(o)
	m.put(o.Manifest)
	m.put(o.Lookup)
	m.objects[o.ID] = r
	m.putCache(o.ID, artifacts)
	return proto.CloneOf(r), nil
}

func (m *Memory) put(content []byte) {
	if len(content) > 0 {
		m.content[sha256.Sum256(content)] = slices.Clone(content)
	}
}

func (m *Memory) putCache(cache string, artifacts []*Artifact) {
	m.revision++
	list := make([]*kept, len(artifacts))
	for i, a := range artifacts {
		list[i] = &kept{a, m.revision}
	}
	m.caches[cache] = list
	m.notify()
}

func (m *Memory) notify() {
	close(m.changed)
	m.changed = make(chan struct{})
}

// Find implements Objects.
func (m *Memory) Find(_ context.Context, id string) (*Object, error) {
	return m.change(id, func(*Object) {})
}

// change changes an object under the lock and returns a copy.
func (m *Memory) change(id string, do func(*Object)) (*Object, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := m.objects[id]
	if o == nil {
		return nil, objectNotFound(id)
	}
	do(o)
	return proto.CloneOf(o), nil
}

// List implements Objects.
func (m *Memory) List(_ context.Context, f Filter) ([]*Object, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []*Object
	for _, o := range m.objects {
		if selected(o, f) {
			out = append(out, proto.CloneOf(o))
		}
	}
	newestObjectFirst(out)
	return out, nil
}

// SetAvailable implements Objects.
func (m *Memory) SetAvailable(_ context.Context, id string, lookup []byte) (*Object, error) {
	return m.change(id, func(o *Object) {
		m.put(lookup)
		setAvailable(o, lookup)
		m.free()
	})
}

// SetFailure implements Objects.
func (m *Memory) SetFailure(_ context.Context, id, reason string) (*Object, error) {
	return m.change(id, func(o *Object) { setFailure(o, reason) })
}

// SetDownloadJob implements Objects.
func (m *Memory) SetDownloadJob(_ context.Context, id, jobID string) (*Object, error) {
	return m.change(id, func(o *Object) { setDownloadJob(o, jobID) })
}

// RetryDownload implements Objects.
func (m *Memory) RetryDownload(_ context.Context, id string) (int, error) {
	n := 0
	_, err := m.change(id, func(o *Object) {
		setFailure(o, "")
		m.revision++
		for _, a := range m.caches[id] {
			if retry(a.Artifact) {
				a.revision = m.revision
				n++
			}
		}
		m.notify()
	})
	return n, err
}

// SetDefault implements Objects.
func (m *Memory) SetDefault(_ context.Context, id string) (*Object, error) {
	return m.change(id, m.setDefault)
}

func (m *Memory) setDefault(o *Object) {
	if old := m.objects[m.defaults[o.GetHardwareType()]]; old != nil && old != o {
		setDefault(old, false)
	}
	m.defaults[o.GetHardwareType()] = o.GetId()
	setDefault(o, true)
}

// SetDefaultIfNone implements Objects.
func (m *Memory) SetDefaultIfNone(_ context.Context, id string) (*Object, error) {
	return m.change(id, func(o *Object) {
		if m.defaults[o.GetHardwareType()] == "" {
			m.setDefault(o)
		}
	})
}

// FindDefault implements Objects.
func (m *Memory) FindDefault(_ context.Context, hardwareType string) (*Object, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := m.objects[m.defaults[hardwareType]]
	if o == nil {
		return nil, defaultNotFound(hardwareType)
	}
	return proto.CloneOf(o), nil
}

// Delete implements Objects.
func (m *Memory) Delete(_ context.Context, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := m.objects[id]
	if o == nil {
		return objectNotFound(id)
	}
	delete(m.objects, id)
	if m.defaults[o.GetHardwareType()] == id {
		delete(m.defaults, o.GetHardwareType())
	}
	m.dropCache(id)
	return nil
}

func (m *Memory) dropCache(cache string) {
	delete(m.caches, cache)
	m.free()
	m.notify()
}

// free removes content that nothing refers to, and returns how much there was.
func (m *Memory) free() int {
	used := map[[sha256.Size]byte]bool{}
	for _, o := range m.objects {
		references(used, o.GetConfigSha256(), o.GetLookupSha256())
	}
	for _, list := range m.caches {
		for _, a := range list {
			references(used, a.GetSha256())
		}
	}
	for id, p := range m.plans {
		if time.Now().After(p.until) {
			delete(m.plans, id)
			continue
		}
		references(used, digestOf(p.Body))
	}
	n := 0
	for d := range m.content {
		if !used[d] {
			delete(m.content, d)
			n++
		}
	}
	return n
}

// Manifest implements Objects.
func (m *Memory) Manifest(ctx context.Context, id string) ([]byte, error) {
	return m.contentOf(ctx, id, (*Object).GetConfigSha256)
}

// Lookup implements Objects.
func (m *Memory) Lookup(ctx context.Context, id string) ([]byte, error) {
	return m.contentOf(ctx, id, (*Object).GetLookupSha256)
}

func (m *Memory) contentOf(ctx context.Context, id string, digest func(*Object) []byte) ([]byte, error) {
	o, err := m.Find(ctx, id)
	if err != nil || len(digest(o)) == 0 {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.content[[sha256.Size]byte(digest(o))]), nil
}

// CreateCache implements Artifacts.
func (m *Memory) CreateCache(_ context.Context, cache string, artifacts []*Artifact) error {
	list, err := pending(cache, true, artifacts)
	if err != nil || len(list) == 0 {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.caches[cache]) > 0 {
		return fmt.Errorf("cache %s %w", cache, ErrExists)
	}
	m.putCache(cache, list)
	return nil
}

// CacheArtifacts implements Artifacts.
func (m *Memory) CacheArtifacts(_ context.Context, cache string) ([]*Artifact, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]*Artifact, len(m.caches[cache]))
	for i, a := range m.caches[cache] {
		out[i] = proto.CloneOf(a.Artifact)
	}
	return out, nil
}

// UpdateArtifact implements Artifacts.
func (m *Memory) UpdateArtifact(_ context.Context, cache, path string, change func(*Artifact)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range m.caches[cache] {
		if a.GetPath() == path {
			m.revision++
			a.revision = m.revision
			change(a.Artifact)
			a.UpdatedAt = timestamppb.Now()
			m.notify()
			return nil
		}
	}
	return artifactNotFound(cache, path)
}

// WatchCache implements Artifacts.
func (m *Memory) WatchCache(ctx context.Context, cache string, each func(string, ArtifactChange) error, current func()) error {
	seen := map[string]uint64{}
	for first := true; ; first = false {
		m.mu.Lock()
		changed := m.changed
		var news []*Artifact
		there := map[string]bool{}
		for _, a := range m.caches[cache] {
			there[a.GetPath()] = true
			if seen[a.GetPath()] != a.revision {
				seen[a.GetPath()] = a.revision
				news = append(news, proto.CloneOf(a.Artifact))
			}
		}
		m.mu.Unlock()
		for _, a := range news {
			if err := each(a.GetPath(), ArtifactChange{a}); err != nil {
				return err
			}
		}
		for path := range seen {
			if !there[path] {
				delete(seen, path)
				if err := each(path, ArtifactChange{}); err != nil {
					return err
				}
			}
		}
		if first {
			current()
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// PendingCaches implements Artifacts.
func (m *Memory) PendingCaches(context.Context) ([]PendingCache, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	found := pendingCaches{}
	for _, list := range m.caches {
		for _, a := range list {
			found.add(a.Artifact)
		}
	}
	return found.list(), nil
}

// IdleCaches implements Artifacts.
func (m *Memory) IdleCaches(_ context.Context, idle time.Duration) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	found := idleCaches{}
	for _, list := range m.caches {
		for _, a := range list {
			found.add(a.Artifact)
		}
	}
	return found.list(idle), nil
}

// DropCache implements Artifacts.
func (m *Memory) DropCache(_ context.Context, cache string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dropCache(cache)
	return nil
}

// PutContent implements Artifacts.
func (m *Memory) PutContent(_ context.Context, digest [sha256.Size]byte, r io.Reader) error {
	data, err := io.ReadAll(r)
	if err != nil {
		return fmt.Errorf("read content: %w", err)
	}
	if sha256.Sum256(data) != digest {
		return fmt.Errorf("%w: the content does not have its digest", ErrInvalid)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.content[digest] = data
	return nil
}

// KeepContent implements Artifacts.
func (m *Memory) KeepContent(_ context.Context, digest [sha256.Size]byte) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.content[digest]
	return ok, nil
}

// ReadContent implements Artifacts.
func (m *Memory) ReadContent(_ context.Context, digest [sha256.Size]byte, w io.Writer) error {
	m.mu.Lock()
	data, ok := m.content[digest]
	m.mu.Unlock()
	if !ok {
		return fmt.Errorf("content %x %w", digest, ErrNotFound)
	}
	_, err := w.Write(data)
	return err
}

// CreatePlan implements Plans.
func (m *Memory) CreatePlan(_ context.Context, id string, body []byte, life time.Duration) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p, ok := m.plans[id]; ok && time.Now().Before(p.until) {
		return planExists(id)
	}
	m.plans[id] = memoryPlan{Plan{slices.Clone(body), time.Now()}, time.Now().Add(life)}
	return nil
}

// FindPlan implements Plans.
func (m *Memory) FindPlan(_ context.Context, id string) (Plan, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, ok := m.plans[id]
	if !ok || time.Now().After(p.until) {
		return Plan{}, planNotFound(id)
	}
	return Plan{slices.Clone(p.Body), p.CreatedAt}, nil
}

// Collect implements Store.
func (m *Memory) Collect(context.Context, time.Duration) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.free(), nil
}

// setAvailable, setFailure, setDownloadJob and setDefault are the changes of an
// object that every store makes.
func setAvailable(o *Object, lookup []byte) {
	o.Available, o.Failure, o.LookupSha256 = true, "", nil
	if len(lookup) > 0 {
		o.LookupSha256 = digestOf(lookup)
	}
	o.UpdatedAt = timestamppb.Now()
}

func setFailure(o *Object, reason string) {
	o.Failure = reason
	o.UpdatedAt = timestamppb.Now()
}

func setDownloadJob(o *Object, jobID string) {
	o.DownloadJobId = jobID
	o.UpdatedAt = timestamppb.Now()
}

func setDefault(o *Object, is bool) {
	o.IsDefault = is
	o.UpdatedAt = timestamppb.Now()
}
