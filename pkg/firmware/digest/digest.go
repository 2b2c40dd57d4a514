// SPDX-License-Identifier: Apache-2.0

// Package digest takes the SHA-256 of firmware files, once however many devices get
// a file.
package digest

import (
	"context"
	"crypto/sha256"
	"io"
	"os"
	"sync"
	"time"
)

// maxFiles bounds what is remembered.
const maxFiles = 256

// Files remembers the digests of files. It is safe for concurrent use; its zero value
// is ready.
type Files struct {
	mu    sync.Mutex
	known map[version]*digest
}

// version is a file as it was when its digest was taken.
type version struct {
	path     string
	size     int64
	modified time.Time
}

type digest struct {
	once sync.Once
	sum  [sha256.Size]byte
	err  error
}

// Sum returns the digest of an open file. It does not move the offset of f. A file that
// could not be read is read again the next time.
func (s *Files) Sum(ctx context.Context, f *os.File) ([sha256.Size]byte, error) {
	info, err := f.Stat()
	if err != nil {
		return [sha256.Size]byte{}, err
	}
	v := version{f.Name(), info.Size(), info.ModTime()}
	d := s.of(v)
	d.once.Do(func() {
		h := sha256.New()
		_, d.err = io.Copy(h, io.NewSectionReader(f, 0, v.size))
		h.Sum(d.sum[:0])
	})
	if d.err != nil {
		s.forget(v, d)
		return d.sum, d.err
	}
	return d.sum, ctx.Err()
}

func (s *Files) of(v version) *digest {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.known[v]
	if d == nil {
		if len(s.known) >= maxFiles {
			clear(s.known)
		}
		if s.known == nil {
			s.known = make(map[version]*digest)
		}
		d = &digest{}
		s.known[v] = d
	}
	return d
}

func (s *Files) forget(v version, d *digest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known[v] == d {
		delete(s.known, v)
	}
}
