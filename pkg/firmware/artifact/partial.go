// SPDX-License-Identifier: Apache-2.0

package artifact

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"regexp"
	"strings"
)

// copyBuffer is the unit of reading and writing.
const copyBuffer = 256 << 10

// Hidden names beside a file that is being fetched: .<file>.<nonce>.rackbus.part
// is what has arrived so far, and the same with .json says of what.
const (
	partSuffix = ".rackbus.part"
	noteSuffix = ".json"
	nonceBytes = 8
)

// stale are the names of what interrupted downloads leave behind, ours and those
// of the reference implementation.
var stale = regexp.MustCompile(`^\.[A-Za-z0-9._-]+\.([0-9a-f]{16}\.rackbus\.part(\.json(\.tmp)?)?|[0-9a-f-]{36}\.rms\.fw\.[0-9]+\.tmp)$`)

// note says what a partial file is the beginning of.
type note struct {
	Location string `json:"location"`
	// ETag is a strong validator, Modified a weaker one.
	ETag     string `json:"etag,omitempty"`
	Modified string `json:"modified,omitempty"`
	// Total is the size as it was announced.
	Total int64 `json:"total,omitempty"`
	// Want is the promised digest in hexadecimal.
	Want string `json:"want,omitempty"`
}

// agrees reports whether a size can be that of the file. A digest knows better
// than what was announced first.
func (n note) agrees(size int64) bool { return n.Total <= 0 || n.Total == size || n.Want != "" }

// contradicts reports whether an answer with the rest says itself that it is of another
// file: some servers and the caches before them do not heed If-Range.
func (n note) contradicts(res *http.Response) bool {
	etag, modified := res.Header.Get("ETag"), res.Header.Get("Last-Modified")
	switch {
	case n.ETag != "" && etag != "":
		return etag != n.ETag
	default:
		return n.Modified != "" && modified != "" && modified != n.Modified
	}
}

// resumable reports whether the rest of a file can be asked for: its identity is
// verified by the server, or by the digest in the end.
func (n note) resumable() bool { return n.ETag != "" || n.Modified != "" || n.Want != "" }

// place is where a file goes.
type place struct {
	root *os.Root
	dir  string
	name string
}

func (p place) path() string { return path.Join(p.dir, p.name) }

// partial is a file that is not complete yet. Its name is its own: a process that
// was stopped in the middle and runs on later writes the same bytes to the same
// places, or to a file that nobody looks at any more.
type partial struct {
	place
	temp string
	f    *os.File
	sum  hash.Hash
	size int64
	note note
}

// create begins a new partial file and removes earlier ones of the same name.
func (p place) create() (*partial, error) {
	p.removeParts("")
	nonce := make([]byte, nonceBytes)
	if _, err := rand.Read(nonce); err != nil {
		return nil, fmt.Errorf("draw name: %w", err)
	}
	temp := path.Join(p.dir, "."+p.name+"."+hex.EncodeToString(nonce)+partSuffix)
	f, err := p.root.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, fmt.Errorf("create temporary file: %w", err)
	}
	return &partial{place: p, temp: temp, f: f, sum: sha256.New()}, nil
}

// reopen continues the partial file that fits the note, or begins a new one.
func (p place) reopen(ctx context.Context, want note) (*partial, error) {
	for _, temp := range p.parts() {
		data, err := p.root.ReadFile(temp + noteSuffix)
		var n note
		if err != nil || json.Unmarshal(data, &n) != nil {
			continue
		}
		if n.Location != want.Location || n.Want != want.Want || !n.resumable() {
			continue
		}
		part, err := p.resume(ctx, temp, n)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		p.removeParts(temp)
		return part, nil
	}
	return p.create()
}

func (p place) resume(ctx context.Context, temp string, n note) (*partial, error) {
	f, err := p.root.OpenFile(temp, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("open partial file: %w", err)
	}
	part := &partial{place: p, temp: temp, f: f, sum: sha256.New(), note: n}
	if part.size, err = copyContext(ctx, part.sum, f, nil); err != nil {
		return nil, errors.Join(fmt.Errorf("read partial file: %w", err), f.Close())
	}
	return part, nil
}

// parts lists the partial files of the place.
func (p place) parts() []string {
	entries, err := fs.ReadDir(p.root.FS(), p.dir)
	if err != nil {
		return nil // the directory will be made
	}
	var out []string
	for _, e := range entries {
		rest, ok := strings.CutPrefix(e.Name(), "."+p.name+".")
		if ok && strings.HasSuffix(rest, partSuffix) && len(rest) == 2*nonceBytes+len(partSuffix) && e.Type().IsRegular() {
			out = append(out, path.Join(p.dir, e.Name()))
		}
	}
	return out
}

// removeParts removes the partial files of the place but one.
func (p place) removeParts(but string) {
	for _, temp := range p.parts() {
		if temp != but {
			removeBoth(p.root, temp)
		}
	}
}

func removeBoth(root *os.Root, temp string) {
	// What stays is swept later.
	_ = root.Remove(temp)
	_ = root.Remove(temp + noteSuffix)
}

// describe writes down what the file is the beginning of.
func (p *partial) describe(n note) error {
	p.note = n
	data, err := json.Marshal(n)
	if err != nil {
		return fmt.Errorf("describe partial file: %w", err)
	}
	// Replaced in one step, so that a reader finds all of it or the former one.
	temp := p.temp + noteSuffix + ".tmp"
	if err := p.root.WriteFile(temp, data, 0o644); err != nil {
		return fmt.Errorf("describe partial file: %w", err)
	}
	return p.root.Rename(temp, p.temp+noteSuffix)
}

// Write appends to the file.
func (p *partial) Write(b []byte) (int, error) {
	n, err := p.f.WriteAt(b, p.size)
	p.sum.Write(b[:n])
	p.size += int64(n)
	return n, err
}

// close leaves the file for a later try.
func (p *partial) close() error { return p.f.Close() }

// discard removes the file.
func (p *partial) discard() error {
	err := p.f.Close()
	removeBoth(p.root, p.temp)
	return err
}

// finish moves the complete file to its place. It is on disk then.
func (p *partial) finish() error {
	err := p.f.Sync()
	if cerr := p.f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("write file: %w", err)
	}
	if err := p.root.Rename(p.temp, p.path()); err != nil {
		return fmt.Errorf("put file in place: %w", err)
	}
	_ = p.root.Remove(p.temp + noteSuffix) // swept otherwise
	return syncDir(p.root, p.dir)
}

func syncDir(root *os.Root, dir string) error {
	d, err := root.Open(dir)
	if err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	err = d.Sync()
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	return nil
}

// copyContext copies until the end, and looks at ctx before every step. each is
// told of every step; it may be nil.
func copyContext(ctx context.Context, to io.Writer, from io.Reader, each func(n int) error) (int64, error) {
	buf := make([]byte, copyBuffer)
	var total int64
	for {
		if err := context.Cause(ctx); err != nil {
			return total, err
		}
		n, rerr := from.Read(buf)
		if n > 0 {
			if each != nil {
				if err := each(n); err != nil {
					return total, err
				}
			}
			if err := context.Cause(ctx); err != nil {
				return total, err
			}
			w, err := to.Write(buf[:n])
			total += int64(w)
			if err != nil {
				return total, &writeError{err}
			}
		}
		if errors.Is(rerr, io.EOF) {
			return total, nil
		}
		if rerr != nil {
			return total, rerr
		}
	}
}

// writeError tells a full disk from a broken connection.
type writeError struct{ err error }

func (e *writeError) Error() string { return "write file: " + e.err.Error() }
func (e *writeError) Unwrap() error { return e.err }
