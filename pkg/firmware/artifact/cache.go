// SPDX-License-Identifier: Apache-2.0

package artifact

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"
)

// Directories of caches below the firmware directory, as published.
const (
	storedDir    = "firmware_objects"
	ephemeralDir = "firmware_objects_ephemeral"
)

// HiddenDir is where processes keep copies of their own below the firmware
// directory.
const HiddenDir = ".artifacts"

// CacheDir is the directory of a cache below the firmware directory, with
// slashes: that of a stored object, or that of an inline apply.
func CacheDir(cache string, ephemeral bool) string {
	if ephemeral {
		return path.Join(ephemeralDir, cache)
	}
	return path.Join(storedDir, cache)
}

// EphemeralCache returns the cache of an inline apply whose directory it is.
func EphemeralCache(dir string) (cache string, ok bool) {
	cache, ok = strings.CutPrefix(dir, ephemeralDir+"/")
	return cache, ok && CheckCache(cache) == nil
}

// CheckCache refuses names of caches that are not one element of a path. Errors
// wrap ErrLocation.
func CheckCache(cache string) error {
	if cache == "" || cache == "." || cache == ".." || strings.ContainsAny(cache, "/\\\x00") {
		return fmt.Errorf("%w: %q is not one element of a path", ErrLocation, cache)
	}
	return nil
}

// CheckPath refuses paths of artifacts that are not a type directory and a file
// name. Errors wrap ErrLocation.
func CheckPath(p string) error {
	dir, name, ok := strings.Cut(p, "/")
	if !ok {
		return fmt.Errorf("%w: %q is no type directory and file name", ErrLocation, p)
	}
	if err := CheckName(dir); err != nil {
		return err
	}
	return CheckName(name)
}

// RemoveCache removes the directory of a cache, which may be missing.
func RemoveCache(firmwareDir, cache string, ephemeral bool) error {
	if err := CheckCache(cache); err != nil {
		return err
	}
	return removeBelow(firmwareDir, CacheDir(cache, ephemeral))
}

func removeBelow(firmwareDir, dir string) error {
	root, err := os.OpenRoot(firmwareDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open firmware directory: %w", err)
	}
	defer root.Close() //nolint:errcheck // nothing was written through it
	if err := root.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove %s: %w", dir, err)
	}
	return nil
}

// Sweep removes what downloads that were broken off have left below a directory,
// if nothing was added to it for the given time. Other hidden files stay. It
// returns how many files there were.
func Sweep(ctx context.Context, dir string, idle time.Duration) (int, error) {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("open firmware directory: %w", err)
	}
	defer root.Close() //nolint:errcheck // nothing was written through it
	swept := 0
	err = fs.WalkDir(root.FS(), ".", func(file string, e fs.DirEntry, err error) error {
		if cerr := ctx.Err(); cerr != nil {
			return cerr
		}
		if err != nil || !e.Type().IsRegular() || !stale.MatchString(e.Name()) {
			return nil // what cannot be read is not ours
		}
		info, err := e.Info()
		if err != nil || time.Since(info.ModTime()) < idle {
			return nil //nolint:nilerr // gone meanwhile
		}
		if err := root.Remove(file); err == nil {
			swept++
		}
		return nil
	})
	return swept, err
}

// IncomingDir is where the files of a cache are fetched to below the firmware
// directory before they go to the store of the catalogue.
func IncomingDir(cache string) string { return path.Join(HiddenDir, "incoming", cache) }

// RemoveIncoming removes what was fetched of a cache and not stored.
func RemoveIncoming(firmwareDir, cache string) error {
	if err := CheckCache(cache); err != nil {
		return err
	}
	return removeBelow(firmwareDir, IncomingDir(cache))
}
