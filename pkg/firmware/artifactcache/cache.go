// SPDX-License-Identifier: Apache-2.0

package artifactcache

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/rackbus/rackbus/pkg/firmware/artifact"
	"github.com/rackbus/rackbus/pkg/firmware/catalog"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// Errors of Wait.
var (
	// ErrFailed says that the download of the file has failed.
	ErrFailed = errors.New("the download failed")
	// ErrGone says that the file is not in the catalogue, or was removed from it.
	ErrGone = errors.New("it is not in the firmware catalogue")
	// ErrSilent says that nothing was heard of the download for too long.
	ErrSilent = errors.New("nothing was heard of its download")
	// ErrDigest says that the file is not the one that was downloaded.
	ErrDigest = errors.New("it is not the file that was downloaded")
)

// Store is what is needed of the firmware catalogue.
type Store interface {
	WatchCache(ctx context.Context, cache string, each func(path string, c catalog.ArtifactChange) error, current func()) error
	ReadContent(ctx context.Context, digest [sha256.Size]byte, w io.Writer) error
}

// Options configure a Cache. Store and FirmwareDir are required. The defaults are
// Rackbus choices.
type Options struct {
	Store       Store
	FirmwareDir string
	// InStore reads files from the store; otherwise the firmware directory is shared.
	InStore bool
	// MaxBytes is what the own directory may hold; default 64 GiB. Files that were
	// used within Pin stay, even if that is more.
	MaxBytes int64
	// Pin is how long a file stays after it was asked for; default 10 min.
	Pin time.Duration
	// Silence is how long the download of a cache may not be heard of; default 75 min,
	// more than a job may wait for a worker.
	Silence time.Duration
	// Appear is how long an artifact may be missing from the catalogue, because the
	// job that needs it was faster; default 30 s.
	Appear time.Duration
	// ShareLag is how long a shared directory may take to show a new file; default
	// 30 s. NFS clients remember for some seconds that a file was not there.
	ShareLag time.Duration
	// Attempts and Pause are how often, and how long after each other, a file is
	// read from the store while the bus is away; defaults 20 and 3 s.
	Attempts int
	Pause    time.Duration
	// Logger receives what is not of one job; nil drops it.
	Logger *slog.Logger
}

// File is a verified local file.
type File struct {
	// Path is the file's path. Ask again before the file is opened once more later
	// than Pin.
	Path   string
	Size   int64
	SHA256 [sha256.Size]byte
}

// Cache gives files. It is safe for concurrent use.
type Cache struct {
	o   Options
	log *slog.Logger

	mu      sync.Mutex
	watches map[string]*watch
	flights map[string]*flight
	// verified remembers what was hashed by this process.
	verified map[string]verified
}

// New returns a Cache. It runs nothing while nobody waits.
func New(o Options) *Cache {
	setDefault(&o.MaxBytes, 64<<30)
	setDefault(&o.Pin, 10*time.Minute)
	setDefault(&o.Silence, 75*time.Minute)
	setDefault(&o.Appear, 30*time.Second)
	setDefault(&o.ShareLag, 30*time.Second)
	setDefault(&o.Attempts, 20)
	setDefault(&o.Pause, 3*time.Second)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Cache{o: o, log: o.Logger, watches: map[string]*watch{}, flights: map[string]*flight{}, verified: map[string]verified{}}
}

func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// Wait waits until an artifact is available, and returns it as a verified local
// file. progress is told of its download; it may be nil. Errors wrap ErrFailed,
// ErrGone, ErrSilent or ErrDigest when waiting longer does not help.
func (c *Cache) Wait(ctx context.Context, ref *rackbusv1.ArtifactRef, progress func(done, total int64)) (File, error) {
	if err := errors.Join(artifact.CheckCache(ref.GetCache()), artifact.CheckPath(ref.GetPath())); err != nil {
		return File{}, fmt.Errorf("%w: %w", ErrGone, err)
	}
	a, err := c.await(ctx, ref, progress)
	if err != nil {
		return File{}, err
	}
	if len(a.GetSha256()) != sha256.Size {
		return File{}, fmt.Errorf("%w: its record has no digest", ErrDigest)
	}
	if c.o.InStore {
		return c.stored(ctx, a)
	}
	return c.shared(ctx, a)
}
