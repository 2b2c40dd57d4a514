// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// ErrBusy says that another run is at work in the same directory.
var ErrBusy = errors.New("bootstrap: another run is at work")

// lockName is the file below secrets/ whose lock a run holds. It stays there: who removed it could take the lock of a
// file that a third run has open no longer.
const lockName = ".lock"

// maxNote bounds what is read of the number of a process, in bytes.
const maxNote = 32

// lock takes the directory of the secrets until the file is closed or the process ends, however it ends. Two runs at
// once would make two authorities and two of each key, and mix them.
func lock(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, modeSecret)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = fmt.Errorf("%w in %s%s: wait for its end, then run this one again", ErrBusy, filepath.Dir(dir), holder(f))
		return nil, errors.Join(err, f.Close())
	}
	if err == nil {
		err = noteHolder(f)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", dir, err), f.Close())
	}
	return f, nil
}

// noteHolder writes the number of this process for the message that others get.
func noteHolder(f *os.File) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

// holder names the process that noted itself in the file, when it can be read.
func holder(f *os.File) string {
	note, err := io.ReadAll(io.NewSectionReader(f, 0, maxNote))
	if err != nil {
		return ""
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(note)))
	if err != nil {
		return ""
	}
	return fmt.Sprintf(" (process %d)", pid)
}
