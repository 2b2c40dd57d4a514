// SPDX-License-Identifier: Apache-2.0

package nmxc

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/rackbus/rackbus/pkg/telemetry"
	"github.com/rackbus/rackbus/proto/nmxc"
)

// ErrNotHeld says that the Guard refused a change, or that the hold was lost under
// way.
var ErrNotHeld = errors.New("node not held")

// ReturnCode is the controller's own verdict on a call, an error unless it is
// ReturnSuccess. The list is open: controllers may send other numbers.
type ReturnCode int32

// The return codes that have names.
const (
	ReturnUndefined          = ReturnCode(nmxc.ST_ReturnCode_NMX_ST_UNDEFINED)
	ReturnSuccess            = ReturnCode(nmxc.ST_ReturnCode_NMX_ST_SUCCESS)
	ReturnBadParam           = ReturnCode(nmxc.ST_ReturnCode_NMX_ST_BADPARAM)
	ReturnGenericError       = ReturnCode(nmxc.ST_ReturnCode_NMX_ST_GENERIC_ERROR)
	ReturnNotSupported       = ReturnCode(nmxc.ST_ReturnCode_NMX_ST_NOT_SUPPORTED)
	ReturnUninitialized      = ReturnCode(nmxc.ST_ReturnCode_NMX_ST_UNINITIALIZED)
	ReturnTimeout            = ReturnCode(nmxc.ST_ReturnCode_NMX_ST_TIMEOUT)
	ReturnInternalError      = ReturnCode(nmxc.ST_ReturnCode_NMX_ST_INTERNAL_ERROR)
	ReturnInUse              = ReturnCode(nmxc.ST_ReturnCode_NMX_ST_IN_USE)
	ReturnNotConfigured      = ReturnCode(nmxc.ST_ReturnCode_NMX_ST_NOT_CONFIGURED)
	ReturnConnectionNotValid = ReturnCode(nmxc.ST_ReturnCode_NMX_ST_CONNECTION_NOT_VALID)
)

// Name is the name of the code, "" for one without.
func (r ReturnCode) Name() string { return nmxc.ST_ReturnCode_name[int32(r)] }

// Error gives name and number.
func (r ReturnCode) Error() string {
	if name := r.Name(); name != "" {
		return fmt.Sprintf("the controller answers %s (%d)", name, r)
	}
	return fmt.Sprintf("the controller answers with the code %d", r)
}

// Error is a call that failed.
type Error struct {
	// Op names the call.
	Op string
	// Code is the gRPC status. It is OK when the controller answered, with a return
	// code that Err wraps or without a header.
	Code codes.Code
	Err  error
}

// Error gives one line.
func (e *Error) Error() string { return e.Op + ": " + e.Err.Error() }

// Unwrap gives the cause, which may be a ReturnCode.
func (e *Error) Unwrap() error { return e.Err }

// OutcomeUnknown reports whether a change may have taken place although the call
// failed.
func (e *Error) OutcomeUnknown() bool {
	switch e.Code {
	case codes.Unauthenticated, codes.PermissionDenied, codes.Unimplemented, codes.InvalidArgument:
		return false
	default:
		return true
	}
}

// errNoHeader is an answer that says nothing about the call.
var errNoHeader = errors.New("the controller's answer has no header")

func judge(op string, header *nmxc.NmxServerHeader, err error) error {
	switch code := ReturnCode(header.GetReturnCode()); {
	case err != nil:
		s := status.Convert(err)
		return &Error{Op: op, Code: s.Code(), Err: fmt.Errorf("%s: %s", s.Code(), telemetry.RedactText(s.Message()))}
	case header == nil:
		return &Error{Op: op, Err: errNoHeader}
	case code != ReturnSuccess:
		return &Error{Op: op, Err: code}
	default:
		return nil
	}
}

// Unavailable reports whether a controller that was connected said that it is not
// up to it yet.
func Unavailable(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Code == codes.Unavailable
}
