// SPDX-License-Identifier: Apache-2.0

package artifact

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path"
	"sync/atomic"
	"time"

	"github.com/rackbus/rackbus/pkg/secret"
)

// Request asks for one file.
type Request struct {
	Location Location
	// Token goes to servers whose location type asks for it.
	Token secret.Value
	// Dir is an existing directory, and Path the file's place below it, with slashes.
	Dir  string
	Path string
	// Want is the promised SHA-256; nil when none is promised.
	Want []byte
	// Budget is what all files of a cache may have together; nil is no bound.
	Budget *Budget
	// Progress is told how far it is, now and then and at the end; total is 0 while
	// it is unknown. It may be nil.
	Progress func(done, total int64)
}

// Result is a file in its place.
type Result struct {
	SHA256 [sha256.Size]byte
	Size   int64
	// Reused says that it was there already, Resumed that some of it was.
	Reused  bool
	Resumed bool
	// Attempts counts the tries; 0 when the file was there.
	Attempts int
}

// Budget bounds the bytes of several files together. It is safe for concurrent
// use.
type Budget struct {
	left atomic.Int64
	all  int64
}

// NewBudget returns a budget of so many bytes.
func NewBudget(bytes int64) *Budget {
	b := &Budget{all: bytes}
	b.left.Store(bytes)
	return b
}

func (b *Budget) take(n int64) error {
	if b == nil || b.left.Add(-n) >= 0 {
		return nil
	}
	return fmt.Errorf("%w: all files together have more than %d bytes", ErrLimit, b.all)
}

// Fetcher fetches files. It is safe for concurrent use.
type Fetcher struct {
	o     Options
	web   *web
	slots chan struct{}
	log   *slog.Logger
}

// New returns a Fetcher.
func New(o Options) *Fetcher {
	o = o.withDefaults()
	f := &Fetcher{o: o, slots: make(chan struct{}, o.Limits.Concurrent), log: o.Logger}
	f.web = newWeb(&f.o)
	return f
}

// Policy is the policy in force.
func (f *Fetcher) Policy() *Policy { return &f.o.Policy }

// Limits are the limits in force.
func (f *Fetcher) Limits() Limits { return f.o.Limits }

// Close closes idle connections.
func (f *Fetcher) Close() { f.web.transport.CloseIdleConnections() }

// Fetch brings a file to its place, unless it is there already, and continues
// what an earlier call had begun. It tries again after errors that may pass. When
// ctx ends it returns its cause and leaves what it has for the next call. Errors
// tell no secret.
func (f *Fetcher) Fetch(ctx context.Context, r Request) (Result, error) {
	select {
	case f.slots <- struct{}{}:
		defer func() { <-f.slots }()
	case <-ctx.Done():
		return Result{}, context.Cause(ctx)
	}
	limited, cancel := context.WithTimeoutCause(ctx, f.o.Timing.File,
		fmt.Errorf("%w: it took longer than %s", ErrLimit, f.o.Timing.File))
	defer cancel()
	root, err := os.OpenRoot(r.Dir)
	if err != nil {
		return Result{}, fmt.Errorf("open directory for artifacts: %w", err)
	}
	defer root.Close() //nolint:errcheck // what was written is closed already
	p := place{root: root, dir: path.Dir(r.Path), name: path.Base(r.Path)}
	if err := CheckName(p.name); err != nil {
		return Result{}, err
	}
	if err := root.MkdirAll(p.dir, 0o755); err != nil {
		return Result{}, fmt.Errorf("create directory: %w", err)
	}
	j := &fetch{f: f, r: r, place: p, start: time.Now()}
	res, err := j.run(limited)
	if err != nil && ctx.Err() != nil {
		return res, context.Cause(ctx)
	}
	return res, err
}

// fetch is the work on one file.
type fetch struct {
	f *Fetcher
	r Request
	place
	start time.Time

	attempts int
	resumed  bool
	// most is the most that one try has got so far.
	most     int64
	reported time.Time
}

func (j *fetch) run(ctx context.Context) (Result, error) {
	res, ok, err := j.reuse(ctx)
	if err != nil || ok {
		return res, err
	}
	t := j.f.o.Timing
	pause := t.PauseMin
	for failed := 0; ; {
		j.attempts++
		before := j.most
		res, err := j.attempt(ctx)
		if err == nil {
			return res, nil
		}
		if cause := context.Cause(ctx); cause != nil {
			return Result{}, cause
		}
		var again *transientError
		if !errors.As(err, &again) {
			return Result{}, err
		}
		failed++
		if j.most > before {
			failed, pause = 1, t.PauseMin
		}
		if failed >= t.Attempts {
			return Result{}, fmt.Errorf("%w (tried %d times)", err, j.attempts)
		}
		j.f.log.Warn("artifact download to be tried again",
			"location", j.r.Location.String(), "attempt", j.attempts, "bytes", j.most, "err", err)
		if err := sleep(ctx, max(pause, again.after)); err != nil {
			return Result{}, err
		}
		pause = min(2*pause, t.PauseMax)
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (j *fetch) attempt(ctx context.Context) (Result, error) {
	if j.r.Location.Transport == File {
		return j.copyLocal(ctx)
	}
	return j.download(ctx)
}

// came counts bytes that have come and are about to be written.
func (j *fetch) came(p *partial, n int, total int64) error {
	j.f.o.OnBytes(n)
	return j.progress(p.size+int64(n), total)
}

// progress counts bytes of this try and reports them now and then.
func (j *fetch) progress(done, total int64) error {
	if done > j.f.o.Limits.MaxFile {
		return fmt.Errorf("%w: the file has more than %d bytes", ErrLimit, j.f.o.Limits.MaxFile)
	}
	if done > j.most {
		if err := j.r.Budget.take(done - j.most); err != nil {
			return err
		}
		j.most = done
	}
	if j.r.Progress != nil && time.Since(j.reported) >= j.f.o.Timing.Progress {
		j.reported = time.Now()
		j.r.Progress(done, total)
	}
	return nil
}

// checkSize refuses an announced size.
func (j *fetch) checkSize(total int64) error {
	if total > j.f.o.Limits.MaxFile {
		return fmt.Errorf("%w: the file has %d bytes, at most %d are allowed", ErrLimit, total, j.f.o.Limits.MaxFile)
	}
	return nil
}

// complete verifies a file that has all its bytes and puts it in its place.
func (j *fetch) complete(p *partial, total int64) (Result, error) {
	res := Result{Size: p.size, Resumed: j.resumed, Attempts: j.attempts}
	p.sum.Sum(res.SHA256[:0])
	err := j.progress(p.size, total)
	switch {
	case err != nil:
	case total > 0 && p.size != total:
		err = fmt.Errorf("%w: %d bytes were announced and %d came", ErrStatus, total, p.size)
	case p.size == 0:
		err = ErrEmpty
	case j.r.Want != nil && hex.EncodeToString(j.r.Want) != hex.EncodeToString(res.SHA256[:]):
		err = fmt.Errorf("%w: expected %x, got %x", ErrDigest, j.r.Want, res.SHA256)
		if j.resumed {
			// The two parts may be of different files.
			err = transient(err)
		}
	}
	if err != nil {
		return Result{}, errors.Join(err, p.discard())
	}
	if err := p.finish(); err != nil {
		return Result{}, err
	}
	if j.r.Progress != nil {
		j.r.Progress(res.Size, res.Size)
	}
	return res, nil
}

// copyLocal copies a local file.
func (j *fetch) copyLocal(ctx context.Context) (res Result, err error) {
	src, info, err := j.openLocal()
	if err != nil {
		return Result{}, err
	}
	defer src.Close()
	if err := j.checkSize(info.Size()); err != nil {
		return Result{}, err
	}
	p, err := j.create()
	if err != nil {
		return Result{}, err
	}
	if _, err := copyContext(ctx, p, src, func(n int) error { return j.came(p, n, info.Size()) }); err != nil {
		return Result{}, errors.Join(err, p.discard())
	}
	return j.complete(p, info.Size())
}

func (j *fetch) openLocal() (*os.File, fs.FileInfo, error) {
	dir, below, err := j.f.o.Policy.fileIn(j.r.Location)
	if err != nil {
		return nil, nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("open directory of artifacts: %w", err)
	}
	defer root.Close() //nolint:errcheck // only read
	// Looked at before it is opened: opening a named pipe would wait.
	info, err := root.Stat(below)
	if err == nil && !info.Mode().IsRegular() {
		return nil, nil, ErrNotRegular
	}
	if err == nil && info.Size() == 0 {
		return nil, nil, ErrEmpty
	}
	if err != nil {
		return nil, nil, fmt.Errorf("open artifact: %w", err)
	}
	f, err := root.Open(below)
	if err != nil {
		return nil, nil, fmt.Errorf("open artifact: %w", err)
	}
	if info, err = f.Stat(); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("open artifact: %w", err), f.Close())
	}
	return f, info, nil
}

// reuse looks at what is in the file's place already, and removes it unless it
// can be used.
func (j *fetch) reuse(ctx context.Context) (Result, bool, error) {
	info, err := j.root.Lstat(j.path())
	if errors.Is(err, fs.ErrNotExist) {
		return Result{}, false, nil
	}
	if err != nil {
		return Result{}, false, fmt.Errorf("look at the file's place: %w", err)
	}
	if !info.Mode().IsRegular() {
		return Result{}, false, fmt.Errorf("the file's place %s: %w", j.path(), ErrNotRegular)
	}
	if info.Size() > 0 && j.r.Want == nil {
		size, ok := j.remoteSize(ctx)
		if err := context.Cause(ctx); err != nil {
			return Result{}, false, err
		}
		if !ok || size >= 0 && size != info.Size() {
			return Result{}, false, j.remove()
		}
	}
	if info.Size() == 0 {
		return Result{}, false, j.remove()
	}
	res, err := j.hashPlace(ctx)
	if err != nil {
		return Result{}, false, err
	}
	if j.r.Want != nil && string(j.r.Want) != string(res.SHA256[:]) {
		return Result{}, false, j.remove()
	}
	j.removeParts("")
	if err := j.checkSize(res.Size); err != nil {
		return Result{}, false, err
	}
	return res, true, j.r.Budget.take(res.Size)
}

func (j *fetch) remove() error {
	if err := j.root.Remove(j.path()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove former file: %w", err)
	}
	return nil
}

// remoteSize asks how large the file is at its source; -1 is unknown. False
// means that it cannot be had there.
func (j *fetch) remoteSize(ctx context.Context) (int64, bool) {
	if j.r.Location.Transport == File {
		f, info, err := j.openLocal()
		if err != nil {
			return 0, false
		}
		_ = f.Close() // not read
		return info.Size(), true
	}
	ctx, _, end := watchStall(ctx, j.f.o.Timing.Stall)
	defer end()
	res, err := j.f.web.do(ctx, http.MethodHead, j.r.Location, j.r.Token, http.Header{})
	if err != nil {
		return 0, false
	}
	discard(res)
	return res.ContentLength, res.StatusCode >= 200 && res.StatusCode < 300
}

func (j *fetch) hashPlace(ctx context.Context) (Result, error) {
	f, err := j.root.Open(j.path())
	if err != nil {
		return Result{}, fmt.Errorf("read former file: %w", err)
	}
	defer f.Close()
	sum := sha256.New()
	res := Result{Reused: true}
	if res.Size, err = copyContext(ctx, sum, io.Reader(f), nil); err != nil {
		return Result{}, fmt.Errorf("read former file: %w", err)
	}
	sum.Sum(res.SHA256[:0])
	return res, nil
}
