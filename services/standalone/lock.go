// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// lockName is the file below the data directory whose lock says that it is used.
const lockName = "lock"

// lockData takes a data directory for this process until the file is closed or
// the process ends, however it ends. The nats-server does not protect its store,
// and two on one store damage it.
func lockData(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make data directory: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock data directory: %w", err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = fmt.Errorf("%s is used by another rackbus serve%s; stop that one or choose another --data", dir, holder(f))
	}
	if err == nil {
		err = noteHolder(f)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock data directory: %w", err), f.Close())
	}
	return f, nil
}

// noteHolder writes the process id for the message that others get.
func noteHolder(f *os.File) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

// holder names the process that noted itself in the file, when it can be read.
func holder(f *os.File) string {
	note := make([]byte, 32)
	n, _ := f.ReadAt(note, 0)
	pid, err := strconv.Atoi(strings.TrimSpace(string(note[:n])))
	if err != nil {
		return ""
	}
	return fmt.Sprintf(" (process %d)", pid)
}
