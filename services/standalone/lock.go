// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/rackbus/rackbus/pkg/filelock"
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
	f, err := filelock.Take(filepath.Join(dir, lockName))
	var held *filelock.HeldError
	switch {
	case errors.As(err, &held):
		return nil, fmt.Errorf("lock data directory: %s is used by another rackbus serve%s; stop that one or choose another --data", dir, held.Holder())
	case err != nil:
		return nil, fmt.Errorf("lock data directory: %w", err)
	}
	return f, nil
}
