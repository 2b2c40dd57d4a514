// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"

	"google.golang.org/grpc/codes"
)

// Exit codes of every command.
const (
	// ExitOK: done, and all is well.
	ExitOK = 0
	// ExitFailed: it did not come about, or not for every node, or the file is damaged.
	ExitFailed = 1
	// ExitUsage: the command line, a file or the configuration makes no sense; nothing
	// was begun.
	ExitUsage = 2
	// ExitUnknown: how it ended, or what a file is, cannot be known.
	ExitUnknown = 3
	// ExitNotFound: there is no such job, rack, node or object.
	ExitNotFound = 4
	// ExitRefused: the server does not let the caller do it.
	ExitRefused = 5
	// ExitUnreachable: the server cannot be reached, or cannot work at the moment.
	ExitUnreachable = 6
	// ExitJob: the job has ended and has not completed.
	ExitJob = 7
	// ExitUnsupported: the server has no such call.
	ExitUnsupported = 8
	// ExitInterrupted: the command was interrupted; a job that it has started goes on.
	ExitInterrupted = 130
)

const exitHelp = `Exit codes: 0 done, 1 failed (the reason is on standard error), 2 usage,
3 the outcome is unknown, 4 not found, 5 refused by the server, 6 the server
cannot be reached, 7 the job has ended and has not completed, 8 the server has no
such call, 130 interrupted.`

// exitError is an error with the exit code that goes with it.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

func failed(err error) error { return &exitError{ExitFailed, err} }

func failedf(format string, args ...any) error {
	return &exitError{ExitFailed, fmt.Errorf(format, args...)}
}

func usagef(format string, args ...any) error {
	return &exitError{ExitUsage, fmt.Errorf(format, args...)}
}

// exitOfCode is the exit code of a call that ended with a gRPC status.
func exitOfCode(c codes.Code) int {
	switch c {
	case codes.OK:
		return ExitOK
	case codes.InvalidArgument, codes.OutOfRange:
		return ExitUsage
	case codes.NotFound:
		return ExitNotFound
	case codes.PermissionDenied, codes.Unauthenticated:
		return ExitRefused
	case codes.Unavailable:
		return ExitUnreachable
	case codes.Unimplemented:
		return ExitUnsupported
	case codes.DeadlineExceeded:
		return ExitUnknown // it may have come about all the same
	case codes.Canceled:
		return ExitInterrupted
	default:
		return ExitFailed
	}
}

func notFoundf(format string, args ...any) error {
	return &exitError{ExitNotFound, fmt.Errorf(format, args...)}
}
