// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/rackbus/rackbus/pkg/filelock"
)

// ErrBusy says that another run is at work in the same directory.
var ErrBusy = errors.New("bootstrap: another run is at work")

// lockName is the file below secrets/ whose lock a run holds.
const lockName = ".lock"

// lock takes the directory of the secrets until the file is closed or the process ends. Two runs at once would make two
// authorities and two of each key, and mix them.
func lock(dir string) (*os.File, error) {
	f, err := filelock.Take(filepath.Join(dir, lockName))
	var held *filelock.HeldError
	switch {
	case errors.As(err, &held):
		return nil, fmt.Errorf("%w in %s%s: wait for its end, then run this one again", ErrBusy, filepath.Dir(dir), held.Holder())
	case err != nil:
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	return f, nil
}
