// SPDX-License-Identifier: Apache-2.0

// Package filelock lets one process at a time work in a directory: by an advisory lock on a file in it, which the
// kernel frees however the process ends.
package filelock

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// mode is that of a lock file: only its owner reads which process holds it.
const mode = 0o600

// maxNote bounds what is read of the number of a process, in bytes.
const maxNote = 32

// HeldError says that another process, or another file of this one, has the lock.
type HeldError struct {
	// Path is that of the lock file.
	Path string
	// PID is the number that the holder has noted, 0 when it cannot be read.
	PID int
}

// Error names the file and, when it is known, the process.
func (e *HeldError) Error() string { return e.Path + " is locked" + e.Holder() }

// Holder is " (process N)", and empty when the process is not known.
func (e *HeldError) Holder() string {
	if e.PID == 0 {
		return ""
	}
	return fmt.Sprintf(" (process %d)", e.PID)
}

// Take locks a file, which it makes if need be, until the file is closed or the process ends, and notes the process in
// it. It does not wait: the error is a *HeldError when somebody else has the lock. The file stays when the lock is
// given back: who removed it could take the lock of a file that a third process has open no longer.
func Take(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, mode)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = &HeldError{Path: path, PID: noted(f)}
	}
	if err == nil {
		err = note(f)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func note(f *os.File) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

func noted(f *os.File) int {
	text, err := io.ReadAll(io.NewSectionReader(f, 0, maxNote))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0
	}
	return pid
}
