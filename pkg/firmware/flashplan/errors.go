// SPDX-License-Identifier: Apache-2.0

package flashplan

import (
	"errors"

	"github.com/rackbus/rackbus/pkg/firmware/flash"
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

// errorOf is the error for what the rules refuse.
func errorOf(err error) error {
	var refused *flash.Refusal
	switch {
	case !errors.As(err, &refused):
		return err
	case refused.Precondition:
		return &Error{job.FailurePreconditionFailed, refused.Error()}
	default:
		return &Error{job.FailureInvalidArgument, refused.Error()}
	}
}
