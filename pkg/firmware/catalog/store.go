// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"context"
	"crypto/sha256"
	"io"
	"time"

	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// Records as the catalogue stores them. What a store returns is the caller's own.
type (
	// Object is a stored firmware object.
	Object = rackbusv1.FirmwareObjectRecord
	// Artifact is one file of a cache.
	Artifact = rackbusv1.ArtifactRecord
	// Apply is one line of the apply history.
	Apply = rackbusv1.FirmwareApplyRecord
)

// MaxArtifacts is how many artifacts one cache can have: they are written in one
// step.
const MaxArtifacts = 900

// NewObject is what a firmware object is created from.
type NewObject struct {
	ID           string
	HardwareType string
	// Manifest as it was given, and the lookup table, which may be empty.
	Manifest []byte
	Lookup   []byte
	// Artifacts to download; the store sets their cache, and their state to pending.
	Artifacts []*Artifact
}

// Filter selects objects; its parts are combined with AND.
type Filter struct {
	OnlyAvailable bool
	// HardwareType is exact; empty is any.
	HardwareType string
}

// HistoryFilter selects lines of the history; its parts are combined with AND.
type HistoryFilter struct {
	ObjectID string
	RackIDs  []string
}

// HistoryEntry is one line of the history with what is now of its object.
type HistoryEntry struct {
	*Apply
	// FirmwareAvailable says that an object of that id exists now and is available.
	FirmwareAvailable bool
}

// PendingCache is a cache that is not downloaded yet.
type PendingCache struct {
	Cache     string
	Ephemeral bool
	// Changed is when one of its artifacts changed last.
	Changed time.Time
}

// ArtifactChange is one step of a watch.
type ArtifactChange struct {
	// Artifact as it is now; nil when it was removed.
	*Artifact
}

// Plan is a frozen plan.
type Plan struct {
	Body      []byte
	CreatedAt time.Time
}

// Store is the firmware catalogue. Every method may be called by any process at
// any time.
type Store interface {
	Objects
	Artifacts
	History
	Plans
	// Collect frees content that nothing refers to, and what interrupted writes
	// have left behind for at least idle. It returns how much it freed.
	Collect(ctx context.Context, idle time.Duration) (int, error)
}

// Objects are the stored firmware objects.
type Objects interface {
	// Create stores an object that is neither available nor a default, with its
	// artifacts, in one step. It wraps ErrExists when the id is taken.
	Create(ctx context.Context, o NewObject) (*Object, error)
	// Find wraps ErrNotFound, like every method below that takes an id.
	Find(ctx context.Context, id string) (*Object, error)
	// List returns the selected objects, newest first.
	List(ctx context.Context, f Filter) ([]*Object, error)
	// SetAvailable makes an object available and replaces its lookup table, in one
	// step.
	SetAvailable(ctx context.Context, id string, lookup []byte) (*Object, error)
	// SetFailure says why the download of an object did not succeed.
	SetFailure(ctx context.Context, id, reason string) (*Object, error)
	// SetDownloadJob names the job that downloads, or has downloaded.
	SetDownloadJob(ctx context.Context, id, jobID string) (*Object, error)
	// RetryDownload prepares another download: artifacts that are not available
	// become pending, and the failure is forgotten. It returns how many are pending.
	RetryDownload(ctx context.Context, id string) (int, error)
	// SetDefault makes an object the only default of its hardware type.
	SetDefault(ctx context.Context, id string) (*Object, error)
	// SetDefaultIfNone makes an object the default if its hardware type has none.
	SetDefaultIfNone(ctx context.Context, id string) (*Object, error)
	// FindDefault returns the default object of a hardware type.
	FindDefault(ctx context.Context, hardwareType string) (*Object, error)
	// Delete removes an object with its artifacts and frees their content.
	Delete(ctx context.Context, id string) error
	// Manifest and Lookup return an object's content; the lookup table may be empty.
	Manifest(ctx context.Context, id string) ([]byte, error)
	Lookup(ctx context.Context, id string) ([]byte, error)
}

// Artifacts are the files of caches: those of stored objects, whose cache is the
// object's id, and those of inline applies.
type Artifacts interface {
	// CreateCache stores the artifacts of an inline apply, all pending. It wraps
	// ErrExists when the cache has some.
	CreateCache(ctx context.Context, cache string, artifacts []*Artifact) error
	// CacheArtifacts returns the artifacts of a cache in their order.
	CacheArtifacts(ctx context.Context, cache string) ([]*Artifact, error)
	// UpdateArtifact changes a record until the change is stored; change may be
	// called more than once. It wraps ErrNotFound when the artifact was removed.
	UpdateArtifact(ctx context.Context, cache, path string, change func(*Artifact)) error
	// WatchCache gives the artifacts of a cache and then their changes to each,
	// until ctx ends or each returns an error, which it returns. current is called
	// once, when all that existed has been given.
	WatchCache(ctx context.Context, cache string, each func(path string, c ArtifactChange) error, current func()) error
	// PendingCaches returns the caches with artifacts that are neither available nor
	// failed.
	PendingCaches(ctx context.Context) ([]PendingCache, error)
	// IdleCaches returns the caches of inline applies whose artifacts have not changed
	// for some time.
	IdleCaches(ctx context.Context, idle time.Duration) ([]string, error)
	// DropCache removes the artifacts of an inline apply and frees their content.
	// A cache that does not exist is fine.
	DropCache(ctx context.Context, cache string) error

	// PutContent stores the content of an artifact by its digest. It needs little
	// memory. PutContent does nothing when it is there already.
	PutContent(ctx context.Context, digest [sha256.Size]byte, r io.Reader) error
	// KeepContent protects content from a concurrent removal once a record refers
	// to it. It returns false when the removal came first: put it again then.
	KeepContent(ctx context.Context, digest [sha256.Size]byte) (bool, error)
	// ReadContent writes content to w and verifies it. It wraps ErrNotFound.
	ReadContent(ctx context.Context, digest [sha256.Size]byte, w io.Writer) error
}

// History is what was applied, whatever has become of the objects.
type History interface {
	// RecordApply appends a line and sets its time.
	RecordApply(ctx context.Context, a *Apply) error
	// TrimHistory removes the oldest lines beyond a number, and returns how many.
	TrimHistory(ctx context.Context, keep int) (int, error)
	// ListHistory returns the selected lines, newest first.
	ListHistory(ctx context.Context, f HistoryFilter) ([]HistoryEntry, error)
}

// Plans are frozen plans, which never change.
type Plans interface {
	// CreatePlan stores a plan for some time. It wraps ErrExists.
	CreatePlan(ctx context.Context, id string, body []byte, life time.Duration) error
	// FindPlan returns a plan; it wraps ErrNotFound.
	FindPlan(ctx context.Context, id string) (Plan, error)
}
