// SPDX-License-Identifier: Apache-2.0

package artifactcache

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rackbus/rackbus/pkg/firmware/artifact"
	"github.com/rackbus/rackbus/pkg/firmware/catalog"
)

const (
	// filesDir is the own directory below artifact.HiddenDir: one directory per
	// digest, whose time of change is when it was used last.
	filesDir = "files"
	// verifiedKept bounds the remembered digests.
	verifiedKept = 1024
	// lagPause is the pause between looks for a file on a share.
	lagPause = 500 * time.Millisecond
	// tempPrefix begins the names of files that are being fetched. One of a process
	// that died is evicted with its directory.
	tempPrefix = ".fetch-"
	// hashBuffer is the unit of reading.
	hashBuffer = 256 << 10
)

// verified is a file as it was when it was hashed.
type verified struct {
	size     int64
	modified time.Time
	sum      [sha256.Size]byte
}

// shared gives a file of the shared firmware directory.
func (c *Cache) shared(ctx context.Context, a *catalog.Artifact) (File, error) {
	below := artifact.CacheDir(a.GetCache(), a.GetEphemeral()) + "/" + a.GetPath()
	for waited := time.Duration(0); ; waited += lagPause {
		f, err := c.verify(ctx, below, a)
		if !errors.Is(err, fs.ErrNotExist) || waited >= c.o.ShareLag {
			return f, err
		}
		if err := sleep(ctx, lagPause); err != nil {
			return File{}, err
		}
	}
}

// verify gives a file below the firmware directory if it is the one that the
// record means. Each file is hashed once as long as it does not change.
func (c *Cache) verify(ctx context.Context, below string, a *catalog.Artifact) (File, error) {
	root, err := os.OpenRoot(c.o.FirmwareDir)
	if err != nil {
		return File{}, fmt.Errorf("open firmware directory: %w", err)
	}
	defer root.Close() //nolint:errcheck // only read
	f, err := root.Open(below)
	if err != nil {
		return File{}, fmt.Errorf("open artifact: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return File{}, fmt.Errorf("open artifact: %w", err)
	}
	if !info.Mode().IsRegular() || a.GetBytesTotal() > 0 && info.Size() != a.GetBytesTotal() {
		return File{}, fmt.Errorf("artifact %s has %d bytes, downloaded were %d: %w", a.GetPath(), info.Size(), a.GetBytesTotal(), ErrDigest)
	}
	file := File{Path: filepath.Join(c.o.FirmwareDir, filepath.FromSlash(below)), Size: info.Size()}
	c.mu.Lock()
	v, known := c.verified[below]
	c.mu.Unlock()
	if !known || v.size != info.Size() || !v.modified.Equal(info.ModTime()) {
		v = verified{size: info.Size(), modified: info.ModTime()}
		if v.sum, err = hashFile(ctx, f); err != nil {
			return File{}, fmt.Errorf("read artifact: %w", err)
		}
		c.remember(below, v)
	}
	file.SHA256 = v.sum
	if string(v.sum[:]) != string(a.GetSha256()) {
		return File{}, fmt.Errorf("artifact %s has SHA-256 %x, downloaded was %x: %w", a.GetPath(), v.sum, a.GetSha256(), ErrDigest)
	}
	return file, nil
}

func (c *Cache) remember(below string, v verified) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.verified) >= verifiedKept {
		clear(c.verified)
	}
	c.verified[below] = v
}

func hashFile(ctx context.Context, r io.Reader) (sum [sha256.Size]byte, err error) {
	h := sha256.New()
	buf := make([]byte, hashBuffer)
	for {
		n, err := r.Read(buf)
		h.Write(buf[:n])
		if errors.Is(err, io.EOF) {
			return [sha256.Size]byte(h.Sum(nil)), nil
		}
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return sum, err
		}
	}
}

// flight is one file that is being fetched.
type flight struct {
	done chan struct{}
	file File
	err  error
	// ended says that only who began it gave up.
	ended bool
}

// stored gives a file of the own directory, which is fetched if it is not there.
func (c *Cache) stored(ctx context.Context, a *catalog.Artifact) (File, error) {
	below := path.Join(artifact.HiddenDir, filesDir, hex.EncodeToString(a.GetSha256()), path.Base(a.GetPath()))
	for {
		c.mu.Lock()
		f := c.flights[below]
		mine := f == nil
		if mine {
			f = &flight{done: make(chan struct{})}
			c.flights[below] = f
		}
		c.mu.Unlock()
		if mine {
			f.file, f.err = c.obtain(ctx, below, a)
			f.ended = f.err != nil && ctx.Err() != nil
			c.mu.Lock()
			delete(c.flights, below)
			c.mu.Unlock()
			close(f.done)
			return f.file, f.err
		}
		select {
		case <-f.done:
			if !f.ended {
				return f.file, f.err
			}
		case <-ctx.Done():
			return File{}, context.Cause(ctx)
		}
	}
}

func (c *Cache) obtain(ctx context.Context, below string, a *catalog.Artifact) (File, error) {
	used := filepath.Join(c.o.FirmwareDir, filepath.FromSlash(path.Dir(below)))
	now := time.Now()
	// Used from now on, so that nobody evicts it meanwhile. It may not be there yet.
	_ = os.Chtimes(used, now, now)
	file, err := c.verify(ctx, below, a)
	if err == nil || ctx.Err() != nil {
		return file, err
	}
	if !errors.Is(err, fs.ErrNotExist) {
		c.log.Warn("kept artifact is not what it was, it is fetched again", "cache", a.GetCache(), "path", a.GetPath(), "err", err)
	}
	c.evict(a.GetBytesTotal(), filepath.Base(used))
	for n := 1; ; n++ {
		err := c.fetch(ctx, below, a)
		if err == nil {
			return c.verify(ctx, below, a)
		}
		if errors.Is(err, ErrGone) || ctx.Err() != nil || n >= c.o.Attempts {
			return File{}, err
		}
		c.log.Warn("artifact to be fetched again", "cache", a.GetCache(), "path", a.GetPath(), "attempt", n, "err", err)
		if err := sleep(ctx, c.o.Pause); err != nil {
			return File{}, err
		}
	}
}

// fetch reads a file from the store of the catalogue.
func (c *Cache) fetch(ctx context.Context, below string, a *catalog.Artifact) error {
	file := filepath.Join(c.o.FirmwareDir, filepath.FromSlash(below))
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		return fmt.Errorf("make directory for artifacts: %w", err)
	}
	temp, err := os.CreateTemp(filepath.Dir(file), tempPrefix+"*")
	if err != nil {
		return fmt.Errorf("create file for artifact: %w", err)
	}
	digest := [sha256.Size]byte(a.GetSha256())
	err = c.o.Store.ReadContent(ctx, digest, temp)
	if err == nil {
		err = temp.Sync()
	}
	if cerr := temp.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(temp.Name(), file)
	}
	if err == nil {
		// The store has verified what it gave.
		if info, serr := os.Stat(file); serr == nil {
			c.remember(below, verified{size: info.Size(), modified: info.ModTime(), sum: digest})
		}
	}
	if err != nil {
		_ = os.Remove(temp.Name()) // evicted otherwise
		if errors.Is(err, catalog.ErrNotFound) {
			err = fmt.Errorf("%w: %w", ErrGone, err)
		}
		return fmt.Errorf("fetch artifact %s of %s: %w", a.GetPath(), a.GetCache(), err)
	}
	c.log.Info("artifact fetched", "cache", a.GetCache(), "path", a.GetPath(), "bytes", a.GetBytesTotal())
	return nil
}

// kept is one digest's directory.
type kept struct {
	name string
	size int64
	used time.Time
}

// evict makes room for some bytes by removing what was not used for the longest
// time, but nothing that was used a short time ago.
func (c *Cache) evict(room int64, but string) {
	dir := filepath.Join(c.o.FirmwareDir, artifact.HiddenDir, filesDir)
	list, total := keptIn(dir)
	slices.SortFunc(list, func(a, b kept) int { return cmp.Or(a.used.Compare(b.used), cmp.Compare(a.name, b.name)) })
	for _, k := range list {
		if total+room <= c.o.MaxBytes {
			return
		}
		if k.name == but || time.Since(k.used) < c.o.Pin {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, k.name)); err != nil {
			c.log.Warn("kept artifact not removed", "err", err)
			continue
		}
		total -= k.size
	}
	if total+room > c.o.MaxBytes {
		c.log.Warn("kept artifacts exceed their limit, all of them are in use", "bytes", total+room, "limit", c.o.MaxBytes)
	}
}

// keptIn lists what is kept. What cannot be read is left out: it is being removed.
func keptIn(dir string) (list []kept, total int64) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, 0
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			continue
		}
		k := kept{name: e.Name(), used: info.ModTime()}
		files, err := os.ReadDir(filepath.Join(dir, e.Name()))
		if err != nil {
			continue
		}
		for _, f := range files {
			if info, err := f.Info(); err == nil {
				k.size += info.Size()
				if strings.HasPrefix(f.Name(), tempPrefix) && info.ModTime().After(k.used) {
					k.used = info.ModTime() // it is being fetched
				}
			}
		}
		list = append(list, k)
		total += k.size
	}
	return list, total
}
