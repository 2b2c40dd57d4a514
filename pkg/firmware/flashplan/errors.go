// SPDX-License-Identifier: Apache-2.0

package flashplan

import (
	"fmt"

	"github.com/rackbus/rackbus/pkg/job"
)

// Error is a set of packages that cannot be worked on as it is.
type Error struct {
	// Code is the cause: FailureInvalidArgument for what the node type does not
	// take, FailurePreconditionFailed for what another request would allow.
	Code job.FailureCode
	text string
}

// Error says what is wrong, and what would be right.
func (e *Error) Error() string { return e.text }

func invalid(format string, args ...any) *Error {
	return &Error{job.FailureInvalidArgument, fmt.Sprintf(format, args...)}
}

func precondition(format string, args ...any) *Error {
	return &Error{job.FailurePreconditionFailed, fmt.Sprintf(format, args...)}
}
