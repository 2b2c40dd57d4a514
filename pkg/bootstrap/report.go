// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

const (
	modeSecret = 0o600
	modePublic = 0o644
	modeDir    = 0o755
	// modePrivateDir is that of the masters, which nobody else need list.
	modePrivateDir = 0o700
)

// Report is what a run has done.
type Report struct {
	// Made are files and directories that are new.
	Made []string
	// Extended are files that lines were added to.
	Extended []string
	// Different are files that exist and are not what would be written now: somebody
	// has changed them, or they are of other options or of an earlier version.
	Different []string
	// Stale are certificates that end within 30 days, or are not for the hosts of the
	// options.
	Stale []string
	// Copies tell which directory goes where.
	Copies []Copy
}

// Copy is a directory for one process.
type Copy struct {
	// Program that runs with it; empty for people.
	Program string
	// From is below Options.Dir, To is where it belongs on the host of the program.
	From, To string
	// Host is where that is, as far as it is known.
	Host string
}

func (r *Report) made(paths ...string) { r.Made = append(r.Made, paths...) }

// add writes a file in one step unless it is there.
func (r *Report) add(path string, content []byte, mode fs.FileMode) error {
	there, err := os.ReadFile(path)
	if err == nil {
		if !bytes.Equal(there, content) {
			r.Different = append(r.Different, path)
		}
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("look for file: %w", err)
	}
	if err := write(path, content, mode); err != nil {
		return err
	}
	r.made(path)
	return nil
}

func write(path string, content []byte, mode fs.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), modeDir); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".bootstrap-*") // mode 0600
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(content)
	if err = errors.Join(err, tmp.Chmod(mode), tmp.Sync(), tmp.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// copyFile puts a copy of from at to, unless there is one.
func (r *Report) copyFile(from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return fmt.Errorf("read %s: %w", from, err)
	}
	defer clear(content)
	info, err := os.Stat(from)
	if err != nil {
		return fmt.Errorf("read %s: %w", from, err)
	}
	return r.add(to, content, info.Mode().Perm())
}
