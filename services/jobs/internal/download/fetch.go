// SPDX-License-Identifier: Apache-2.0

package download

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/firmware/artifact"
	"github.com/rackbus/rackbus/pkg/firmware/catalog"
	"github.com/rackbus/rackbus/pkg/job"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/services/jobs/internal/observe"
)

// message is any protobuf message.
type message = proto.Message

// Crash points.
const (
	// PointFetched is passed when a file is there and its record does not say so yet.
	PointFetched = "download.fetched"
)

// maxNamed is how many failed artifacts a summary names.
const maxNamed = 5

// keepTries is how often content is stored again that was removed meanwhile, which
// takes somebody else who lets go of the same content in that moment.
const keepTries = 10

// fetchAll brings every artifact that is not available yet.
func (d *download) fetchAll(ctx context.Context) error {
	list, err := d.load(ctx)
	if err != nil || len(list) == 0 {
		return err
	}
	limits := d.Fetcher.Limits()
	if len(list) > limits.MaxFiles {
		return agent.Fail(job.FailureArtifactDownloadFailed, phase,
			fmt.Sprintf("there are %d artifacts, at most %d are allowed", len(list), limits.MaxFiles), artifact.ErrLimit)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	r := &round{download: d, cancel: cancel, budget: artifact.NewBudget(limits.MaxTotal), count: len(list)}
	var wg sync.WaitGroup
	wg.Go(func() { r.watch(ctx) })
	wg.Go(func() { r.beat(ctx, list) })
	r.fetch(ctx, list, limits.Concurrent)
	cause := context.Cause(ctx)
	cancel(nil)
	wg.Wait()
	if cause != nil {
		return cause
	}
	return r.verdict()
}

// round is one try at all artifacts of a cache.
type round struct {
	*download
	cancel context.CancelCauseFunc
	budget *artifact.Budget
	count  int

	mu     sync.Mutex
	done   int
	failed []failedArtifact
	// away is an error of the catalogue, which says nothing about an artifact.
	away error
}

type failedArtifact struct {
	*catalog.Artifact
	reason string
}

// watch ends the round when the cache is removed.
func (r *round) watch(ctx context.Context) {
	err := r.Store.WatchCache(ctx, r.cache, func(_ string, c catalog.ArtifactChange) error {
		if c.Artifact == nil {
			return errDeleted
		}
		return nil
	}, func() {})
	if errors.Is(err, errDeleted) {
		r.cancel(errDeleted)
	} else if ctx.Err() == nil {
		// Not needed to be right: the next change of a record notices too.
		r.t.Logger().Warn("cache not watched", "cache", r.cache, "err", err)
	}
}

// beat shows now and then that the download is alive, also while it waits for others
// of this process: whoever hears nothing of it gives up.
func (r *round) beat(ctx context.Context, list []*catalog.Artifact) {
	tick := time.NewTicker(r.Heartbeat)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			// Any record will do; a change that fails says nothing about an artifact.
			_ = r.update(ctx, list[0], func(*catalog.Artifact) {})
		case <-ctx.Done():
			return
		}
	}
}

func (r *round) fetch(ctx context.Context, list []*catalog.Artifact, concurrent int) {
	slots := make(chan struct{}, concurrent)
	var wg sync.WaitGroup
	for _, a := range list {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
		wg.Go(func() {
			defer func() { <-slots }()
			r.one(ctx, a)
		})
	}
	wg.Wait()
}

// one brings one artifact and settles its record, unless the round ends.
func (r *round) one(ctx context.Context, a *catalog.Artifact) {
	err := r.bring(ctx, a)
	if ctx.Err() != nil {
		return
	}
	var retry *agent.RetryError
	switch {
	case errors.Is(err, errDeleted), errors.As(err, new(*crashError)):
		r.cancel(err)
		return
	case errors.As(err, &retry):
		r.mu.Lock()
		r.away = err
		r.mu.Unlock()
		return
	}
	if err != nil {
		reason := err.Error()
		r.OnArtifact(observe.ArtifactFailed)
		r.t.Logger().Warn("artifact not downloaded", "cache", r.cache, "component", a.GetComponent(), "location", a.GetLocation(), "err", err)
		err = r.update(ctx, a, func(a *catalog.Artifact) {
			a.State, a.Failure = rackbusv1.ArtifactState_ARTIFACT_STATE_FAILED, reason
		})
		r.mu.Lock()
		r.failed = append(r.failed, failedArtifact{a, reason})
		if errors.As(err, &retry) {
			r.away = err
		}
		r.mu.Unlock()
	}
	r.mu.Lock()
	r.done++
	done := r.done
	r.mu.Unlock()
	r.t.Progress(100*done/r.count, fmt.Sprintf("Downloading artifacts: %d of %d done", done, r.count))
}

// update changes an artifact's record. Errors end the round or repeat it.
func (r *round) update(ctx context.Context, a *catalog.Artifact, change func(*catalog.Artifact)) error {
	err := r.storeError(ctx, r.Store.UpdateArtifact(ctx, r.cache, a.GetPath(), change))
	if errors.Is(err, errDeleted) {
		r.cancel(errDeleted)
	}
	return err
}

// verdict is what the round means for the job.
func (r *round) verdict() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.away != nil {
		return r.away
	}
	slices.SortFunc(r.failed, func(a, b failedArtifact) int { return cmp.Compare(a.GetPath(), b.GetPath()) })
	var named []string
	required := 0
	for _, f := range r.failed {
		if !f.GetRequired() {
			continue
		}
		if required++; required <= maxNamed {
			named = append(named, fmt.Sprintf("%s (%s): %s", f.GetComponent(), f.GetLocation(), f.reason))
		}
	}
	if required == 0 {
		return nil
	}
	text := fmt.Sprintf("%d required firmware artifact downloads failed: %s", required, strings.Join(named, "; "))
	if more := required - len(named); more > 0 {
		text += fmt.Sprintf("; ...and %d more", more)
	}
	return agent.Fail(job.FailureArtifactDownloadFailed, phase, text, nil)
}

// crashError is what a crash point returns.
type crashError struct{ err error }

func (e *crashError) Error() string { return e.err.Error() }
func (e *crashError) Unwrap() error { return e.err }

// bring makes one artifact available. The error of a file that cannot be had tells
// no secret and is shown.
func (r *round) bring(ctx context.Context, a *catalog.Artifact) error {
	if r.there(ctx, a) {
		r.OnArtifact(observe.ArtifactFound)
		return nil
	}
	l, err := r.Fetcher.Policy().Check(a.GetLocationType(), cmp.Or(r.locations[a.GetPath()], a.GetLocation()))
	if err != nil {
		return err
	}
	if err := artifact.CheckPath(a.GetPath()); err != nil {
		return err
	}
	err = r.update(ctx, a, func(a *catalog.Artifact) {
		a.State, a.Failure = rackbusv1.ArtifactState_ARTIFACT_STATE_DOWNLOADING, ""
		a.Attempts++
	})
	if err != nil {
		return err
	}
	// Agents of other users read it.
	if err := os.MkdirAll(r.FirmwareDir, 0o755); err != nil { //nolint:gosec // see above
		return fmt.Errorf("make firmware directory: %w", err)
	}
	res, err := r.Fetcher.Fetch(ctx, artifact.Request{
		Location: l, Token: r.token, Dir: r.FirmwareDir, Path: r.place(a), Want: a.GetWantSha256(), Budget: r.budget,
		Progress: func(done, total int64) {
			// What it cannot tell, the next report will.
			_ = r.update(ctx, a, func(a *catalog.Artifact) { a.BytesDone, a.BytesTotal = done, max(total, 0) })
		},
	})
	if err != nil {
		return err
	}
	if err := r.t.Failpoint(PointFetched); err != nil {
		return &crashError{err}
	}
	available := func() error {
		if err := r.ours(ctx); err != nil {
			return err
		}
		return r.update(ctx, a, func(a *catalog.Artifact) {
			a.State, a.Failure = rackbusv1.ArtifactState_ARTIFACT_STATE_AVAILABLE, ""
			a.BytesDone, a.BytesTotal, a.Sha256 = res.Size, res.Size, res.SHA256[:]
		})
	}
	if r.InStore {
		err = r.store(ctx, a, res.SHA256, available)
	} else {
		err = available()
	}
	switch {
	case err != nil:
		return err
	case res.Reused:
		r.OnArtifact(observe.ArtifactFound)
	default:
		r.OnArtifact(observe.ArtifactFetched)
	}
	return nil
}

// place is where an artifact's file goes, below the firmware directory.
func (r *round) place(a *catalog.Artifact) string {
	if r.InStore {
		return artifact.IncomingDir(r.cache) + "/" + a.GetPath()
	}
	return artifact.CacheDir(r.cache, r.ephemeral) + "/" + a.GetPath()
}

// there reports whether an artifact that was available before still is.
func (r *round) there(ctx context.Context, a *catalog.Artifact) bool {
	if a.GetState() != rackbusv1.ArtifactState_ARTIFACT_STATE_AVAILABLE || len(a.GetSha256()) != sha256.Size {
		return false
	}
	if r.InStore {
		kept, err := r.Store.KeepContent(ctx, [sha256.Size]byte(a.GetSha256()))
		return err == nil && kept
	}
	info, err := os.Lstat(filepath.Join(r.FirmwareDir, filepath.FromSlash(r.place(a))))
	return err == nil && info.Mode().IsRegular() && info.Size() == a.GetBytesTotal()
}

// store moves a fetched file into the store of the catalogue. The record refers to
// it before the file is kept for good, so that no removal gets in between.
func (r *round) store(ctx context.Context, a *catalog.Artifact, digest [sha256.Size]byte, available func() error) error {
	file := filepath.Join(r.FirmwareDir, filepath.FromSlash(r.place(a)))
	for range keepTries {
		f, err := os.Open(file)
		if err != nil {
			return fmt.Errorf("open fetched file: %w", err)
		}
		err = r.Store.PutContent(ctx, digest, f)
		if cerr := f.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			return r.storeError(ctx, err)
		}
		if err := available(); err != nil {
			return err
		}
		kept, err := r.Store.KeepContent(ctx, digest)
		if err != nil {
			return r.storeError(ctx, err)
		}
		if kept {
			if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
				r.t.Logger().Warn("fetched file not removed", "cache", r.cache, "err", err)
			}
			return nil
		}
	}
	return agent.Retry(0, fmt.Errorf("store %s: it was removed again and again", a.GetPath()))
}
