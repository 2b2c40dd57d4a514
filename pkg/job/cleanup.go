// SPDX-License-Identifier: Apache-2.0

package job

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// MaxCleanup is how many directories one job may have removed, since they are
// written with every change of its record. It is a Rackbus choice.
const MaxCleanup = 16

// ErrInvalidCleanup is wrapped by the errors of CheckCleanup.
var ErrInvalidCleanup = errors.New("invalid cleanup plan")

// CheckCleanup refuses a cleanup plan that names anything but directories below
// the firmware directory: absolute paths, "." and ".." elements, and the firmware
// directory itself. Paths are separated by slashes. Errors wrap ErrInvalidCleanup.
func CheckCleanup(directories []string) error {
	if len(directories) > MaxCleanup {
		return fmt.Errorf("%w: %d directories, at most %d are allowed", ErrInvalidCleanup, len(directories), MaxCleanup)
	}
	for _, d := range directories {
		if d == "." || !fs.ValidPath(d) || strings.ContainsRune(d, 0) {
			return fmt.Errorf("%w: %q is not a path below the firmware directory", ErrInvalidCleanup, d)
		}
	}
	return nil
}
