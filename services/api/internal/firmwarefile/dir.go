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

// entry is a file's digest, or the work on it.
type entry struct {
	version version
	ready   chan struct{} // closed when sum or err is set
	sum     [sha256.Size]byte
	err     error
}

// Dir is the firmware directory. It is safe for concurrent use.
type Dir struct {
	root string

	mu      sync.Mutex
	digests map[string]*entry // by real path
}

// Open returns the directory, which must exist.
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
	return &Dir{root: abs, digests: make(map[string]*entry)}, nil
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
// callers wait for it.
func (d *Dir) digest(ctx context.Context, path string, v version) ([sha256.Size]byte, error) {
	for {
		d.mu.Lock()
		e, known := d.digests[path]
		mine := !known || e.version != v
		if mine {
			e = &entry{version: v, ready: make(chan struct{})}
			d.digests[path] = e
		}
		d.mu.Unlock()
		if mine {
			e.sum, e.err = hashFile(ctx, path, v)
			if e.err != nil {
				d.forget(path, e)
			}
			close(e.ready)
			return e.sum, e.err
		}
		select {
		case <-e.ready:
		case <-ctx.Done():
			return e.sum, fmt.Errorf("hash firmware file: %w", ctx.Err())
		}
		if e.err == nil || !errors.Is(e.err, context.Canceled) && !errors.Is(e.err, context.DeadlineExceeded) {
			return e.sum, e.err
		}
		// The one who computed it was cancelled; that says nothing about the file.
	}
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
