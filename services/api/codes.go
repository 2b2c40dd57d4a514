// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/rackbus/rackbus/pkg/admission"
	"github.com/rackbus/rackbus/pkg/bus"
)

// Code is the class of an error that a caller gets as a gRPC status. Failures of
// business and most of validation are no such errors: they travel in the body.
type Code uint8

// The classes of errors.
const (
	CodeInternal Code = iota
	CodeNotFound
	CodeAlreadyExists
	CodeInvalidArgument
	CodeTimeout
	CodeFailedPrecondition
	CodeUnavailable
	CodeUnimplemented
	CodeResourceExhausted
	CodePermissionDenied

	codeCount
)

// grpcCodes is the one place where classes become gRPC codes.
var grpcCodes = [codeCount]codes.Code{
	CodeInternal:           codes.Internal,
	CodeNotFound:           codes.NotFound,
	CodeAlreadyExists:      codes.AlreadyExists,
	CodeInvalidArgument:    codes.InvalidArgument,
	CodeTimeout:            codes.DeadlineExceeded,
	CodeFailedPrecondition: codes.FailedPrecondition,
	CodeUnavailable:        codes.Unavailable,
	CodeUnimplemented:      codes.Unimplemented,
	CodeResourceExhausted:  codes.ResourceExhausted,
	CodePermissionDenied:   codes.PermissionDenied,
}

// GRPC returns the gRPC code of the class.
func (c Code) GRPC() codes.Code {
	if c < codeCount {
		return grpcCodes[c]
	}
	return codes.Internal
}

// Error is what a caller gets as a gRPC status.
type Error struct {
	Code    Code
	Message string
	// cause is for the log only.
	cause error
}

// Error returns the message and its cause, where that says more.
func (e *Error) Error() string {
	if e.cause == nil || e.cause.Error() == e.Message {
		return e.Message
	}
	return e.Message + ": " + e.cause.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.cause }

// GRPCStatus is what the caller sees: without the cause.
func (e *Error) GRPCStatus() *status.Status { return status.New(e.Code.GRPC(), e.Message) }

func errorf(c Code, format string, args ...any) *Error {
	return &Error{Code: c, Message: fmt.Sprintf(format, args...)}
}

// textUnavailable is what callers read while the broker is away.
const textUnavailable = "the message bus is not available; try again"

// textInternal is what callers read of faults that are none of theirs.
const textInternal = "internal error; see the log of the service"

// statusError gives an error of the lower layers the status that callers get.
func statusError(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	if code, ok := catalogCode(err); ok {
		return &Error{code, err.Error(), nil}
	}
	switch {
	case errors.Is(err, admission.ErrKeyReused):
		return &Error{CodeFailedPrecondition, err.Error(), err}
	case errors.Is(err, context.Canceled):
		return status.FromContextError(context.Canceled).Err()
	case errors.Is(err, bus.ErrOutcomeUnknown):
		return &Error{CodeUnavailable, "the message bus went away and it is not known whether the change was made; look before trying again", err}
	case errors.Is(err, bus.ErrUnavailable), errors.Is(err, bus.ErrClosed), errors.Is(err, admission.ErrClosed):
		return &Error{CodeUnavailable, textUnavailable, err}
	case errors.Is(err, context.DeadlineExceeded):
		return &Error{CodeTimeout, "the call did not end before its deadline", err}
	case errors.Is(err, bus.ErrConflict):
		return &Error{CodeUnavailable, "others keep changing the same data; try again", err}
	}
	return &Error{CodeInternal, textInternal, err}
}

// ride calls do again while the broker is away, so that a failover of some
// seconds is not noticed.
func (s *Server) ride(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.opts.Timing.BrokerLimit)
	defer cancel()
	for {
		err := do(ctx)
		if errors.Is(err, bus.ErrMisconfigured) {
			// Before the bus has been set up its streams are missing; that passes.
			if rerr := s.opts.Conn.Ready(); rerr != nil {
				err = rerr
			}
		}
		if !errors.Is(err, bus.ErrUnavailable) {
			return err
		}
		if perr := pause(ctx, s.opts.Timing.BrokerPause); perr != nil {
			return err
		}
	}
}

// awaitBus waits until the broker is connected, as long as ride would.
func (s *Server) awaitBus(ctx context.Context) error {
	return s.ride(ctx, func(context.Context) error { return s.opts.Conn.Ready() })
}
