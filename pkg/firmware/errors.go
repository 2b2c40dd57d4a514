// SPDX-License-Identifier: Apache-2.0

package firmware

import (
	"errors"
	"fmt"
)

// Reasons why a file is not read. Where one of them has a place in the file it
// comes wrapped in a *FormatError.
var (
	// ErrNotPLDM says that a file does not begin with a known package UUID.
	ErrNotPLDM = errors.New("not a PLDM firmware package")
	// ErrNotArchive says that a file does not begin with a tar header.
	ErrNotArchive = errors.New("not a tar archive")
	// ErrChecksum says that bytes are not those that the checksum was made of.
	ErrChecksum = errors.New("checksum mismatch")
	// ErrNesting says that packages lie in packages too deep, or too many.
	ErrNesting = errors.New("too many nested packages")
	// ErrNoCPLD says that a package has no image for a CPLD.
	ErrNoCPLD = errors.New("no CPLD image in the package")
)

// FormatError is a file that does not hold together.
type FormatError struct {
	// Offset is where the field begins, in bytes from the start of the file.
	Offset int64
	// Field names it.
	Field string
	Err   error
}

// Error gives offset and field.
func (e *FormatError) Error() string {
	return fmt.Sprintf("firmware package, offset %d, %s: %v", e.Offset, e.Field, e.Err)
}

// Unwrap gives the cause, io.ErrUnexpectedEOF for a truncated file.
func (e *FormatError) Unwrap() error { return e.Err }

// shifted moves the offsets in err, which count from the start of a nested
// package, to the start of the file.
func shifted(err error, by int64) error {
	if format, is := errors.AsType[*FormatError](err); is {
		return &FormatError{Offset: format.Offset + by, Field: format.Field, Err: format.Err}
	}
	return err
}
