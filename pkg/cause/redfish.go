// SPDX-License-Identifier: Apache-2.0

package cause

import (
	"errors"

	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/redfish"
)

// Redfish is the failure code of a Redfish error. fallback is the one for errors
// that say no more than that something did not work.
func Redfish(err *redfish.Error, fallback job.FailureCode) job.FailureCode {
	switch err.Code {
	case redfish.CodeUnauthenticated, redfish.CodeForbidden:
		return job.FailureBMCAuthFailed
	case redfish.CodeTimeout, redfish.CodeUnavailable, redfish.CodeConnectionRefused, redfish.CodeDNS, redfish.CodeTLS:
		return connection(err)
	case redfish.CodeInvalidResponse:
		return job.FailureBMCInvalidResponse
	case redfish.CodeNotFound:
		return job.FailureTargetNotFound
	case redfish.CodeConflict, redfish.CodeInternal:
		return job.FailureBMCRefused
	case redfish.CodeFailedPrecondition:
		return job.FailurePreconditionFailed
	case redfish.CodeInvalidArgument, redfish.CodeCanceled:
		return fallback
	default:
		return fallback
	}
}

func connection(err *redfish.Error) job.FailureCode {
	if err.Status != 0 {
		return job.FailureBMCRefused // it answered, if only that it cannot
	}
	reason := ReasonOf(err)
	if reason == Timeout && err.Method == "" {
		return job.FailureBMCUnreachable // a wait for the controller to come up
	}
	return reason.Code(job.FailureBMCUnreachable, job.FailureBMCUnreachable)
}

// RedfishAnswer is what a controller said in an error, nil when it said nothing.
func RedfishAnswer(err error) *job.DeviceAnswer {
	var task *redfish.TaskError
	if errors.As(err, &task) {
		return taskAnswer(task.Task)
	}
	var e *redfish.Error
	if !errors.As(err, &e) || e.Status == 0 && e.MessageID == "" {
		return nil
	}
	return &job.DeviceAnswer{
		MessageID: e.MessageID, Message: e.Message, Severity: string(e.Severity),
		Resolution: e.Resolution, HTTPStatus: int32(e.Status),
	}
}

// taskAnswer is what a controller said of its task.
func taskAnswer(t redfish.TaskStatus) *job.DeviceAnswer {
	answer := &job.DeviceAnswer{MessageID: t.MessageID, Message: t.Text, Severity: string(t.Health)}
	for _, m := range t.Messages {
		if m.MessageID != t.MessageID || m.MessageID == "" {
			continue
		}
		answer.Resolution = m.Resolution
		if m.MessageSeverity != "" {
			answer.Severity = string(m.MessageSeverity)
		}
		if m.Message != "" {
			answer.Message = m.Message
		}
	}
	return answer
}
