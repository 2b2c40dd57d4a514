// SPDX-License-Identifier: Apache-2.0

// Package firmwarefile finds the firmware files that requests name, below one
// directory and nowhere else, and tells what is in them.
package firmwarefile

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// ErrUnusable is wrapped by every refusal of a file: it does not exist, lies
// outside the directory, or holds nothing.
var ErrUnusable = errors.New("unusable firmware file")

// refusal is an error whose text is for the caller and which is ErrUnusable.
type refusal string

func (r refusal) Error() string   { return string(r) }
func (r refusal) Is(e error) bool { return e == ErrUnusable }

func refusef(format string, args ...any) error { return refusal(fmt.Sprintf(format, args...)) }

// copyBuffer is how much is read between two looks at the context.
const copyBuffer = 1 << 20

// File is a firmware file at one moment.
type File struct {
	// Path below the directory, with symbolic links followed.
	Path   string
	Size   int64
	SHA256 [sha256.Size]byte
}

// version tells whether a file is still the one that was hashed.
type version struct {
	size    int64
	modTime time.Time
}

// entry is a file's digest, or the work on it. sum and err are set once ready is
// closed.
type entry struct {
	version version
	ready   chan struct{}
	sum     [sha256.Size]byte
	err     error
}

// Dir is the firmware directory. It is safe for concurrent use.
type Dir struct {
	root string

	mu      sync.Mutex
	digests map[string]*entry // by real path

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// Open returns the directory, which must exist. Close ends the work on it.
func Open(dir string) (*Dir, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return nil, fmt.Errorf("open firmware directory: %w", err)
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("open firmware directory: %s is no directory", dir)
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open firmware directory: %w", err)
	}
	d := &Dir{root: abs, digests: make(map[string]*entry)}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	return d, nil
}

// Close stops the hashing of files and waits for it.
func (d *Dir) Close() {
	d.cancel()
	d.wg.Wait()
}

// Find returns the file of a name: relative to the directory, or absolute within
// it. Symbolic links are followed and must end within it too. Refusals wrap
// ErrUnusable and have a text for the caller.
func (d *Dir) Find(ctx context.Context, name string) (File, error) {
	path := name
	if !filepath.IsAbs(path) {
		path = filepath.Join(d.root, path)
	}
	root, err := filepath.EvalSymlinks(d.root)
	if err != nil {
		return File{}, refusef("the firmware directory %s cannot be resolved: %v", d.root, reason(err))
	}
	resolved, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		if outside(d.root, filepath.Clean(path)) && outside(root, filepath.Clean(path)) {
			return File{}, refusef("firmware file %s is outside firmware directory %s", path, d.root)
		}
		return File{}, refusef("firmware file not found: %s", path)
	}
	if err != nil {
		return File{}, refusef("firmware file %s cannot be resolved: %v", path, reason(err))
	}
	if outside(root, resolved) {
		return File{}, refusef("firmware file %s is outside firmware directory %s", path, d.root)
	}
	info, err := os.Stat(resolved)
	if err != nil {
		return File{}, refusef("firmware file not found: %s", path)
	}
	switch {
	case !info.Mode().IsRegular():
		return File{}, refusef("firmware file %s is not a regular file", path)
	case info.Size() == 0:
		return File{}, refusef("firmware file %s is empty", path)
	}
	sum, err := d.digest(ctx, resolved, version{info.Size(), info.ModTime()})
	if err != nil {
		return File{}, err
	}
	rel, err := filepath.Rel(root, resolved)
	if err != nil {
		return File{}, refusef("firmware file %s is outside firmware directory %s", path, d.root)
	}
	return File{Path: filepath.ToSlash(rel), Size: info.Size(), SHA256: sum}, nil
}

func outside(root, path string) bool {
	return path == root || !strings.HasPrefix(path, strings.TrimSuffix(root, string(filepath.Separator))+string(filepath.Separator))
}

// reason is the cause without the path, which the text has already.
func reason(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// digest returns the SHA-256 of a file, computed once per version however many
// callers wait for it. A caller that goes away does not stop the work: hashing a
// large image can take longer than a client waits, and its retry finds it done.
func (d *Dir) digest(ctx context.Context, path string, v version) ([sha256.Size]byte, error) {
	d.mu.Lock()
	e, known := d.digests[path]
	if !known || e.version != v {
		if d.ctx.Err() != nil {
			d.mu.Unlock()
			return [sha256.Size]byte{}, fmt.Errorf("hash firmware file: %w", d.ctx.Err())
		}
		e = &entry{version: v, ready: make(chan struct{})}
		d.digests[path] = e
		d.wg.Go(func() { d.compute(path, e) })
	}
	d.mu.Unlock()
	select {
	case <-e.ready:
		return e.sum, e.err
	case <-ctx.Done():
		return [sha256.Size]byte{}, fmt.Errorf("hash firmware file: %w", ctx.Err())
	}
}

func (d *Dir) compute(path string, e *entry) {
	e.sum, e.err = hashFile(d.ctx, path, e.version)
	if e.err != nil {
		d.forget(path, e)
	}
	close(e.ready)
}

func (d *Dir) forget(path string, e *entry) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.digests[path] == e {
		delete(d.digests, path)
	}
}

func hashFile(ctx context.Context, path string, v version) (sum [sha256.Size]byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return sum, refusef("firmware file %s cannot be read: %v", path, reason(err))
	}
	defer f.Close()
	h := sha256.New()
	var n int64
	for {
		if err := ctx.Err(); err != nil {
			return sum, fmt.Errorf("hash firmware file: %w", err)
		}
		m, err := io.CopyN(h, f, copyBuffer)
		n += m
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return sum, refusef("firmware file %s cannot be read: %v", path, reason(err))
		}
	}
	info, err := f.Stat()
	if err != nil || n != v.size || info.Size() != v.size || !info.ModTime().Equal(v.modTime) {
		return sum, refusef("firmware file %s is being changed", path)
	}
	h.Sum(sum[:0])
	return sum, nil
}
