// SPDX-License-Identifier: Apache-2.0

package firmware

import (
	"errors"
	"fmt"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/redfish"
	"github.com/rackbus/rackbus/services/switch-agent/internal/device"
)

// Phases of an update, as a failed job's result names them.
const (
	phasePlanning   = "planning"
	phaseValidation = "validation"
	phaseCancelled  = "cancelled"
	phaseUpdate     = "update"
	phasePoll       = "poll"
	phaseActivation = "activation"
	phaseVerify     = "post_activation_version_check"
)

// fail gives an error of a phase the form in which the record tells it. Failures
// behind an upload are known to callers as "other".
func fail(phase, label string, err error) error {
	if err == nil {
		return nil
	}
	prefix, code, other := "", job.FailurePreconditionFailed, false
	switch phase {
	case phaseUpdate:
		prefix, code = "Upload failed for target "+label, job.FailureUploadFailed
	case phasePoll:
		prefix, code, other = "Poll failed for target "+label, job.FailureTaskException, true
	case phaseActivation:
		prefix, code, other = "Firmware flashed but activation failed", job.FailureActivationFailed, true
	case phaseVerify:
		code, other = job.FailureVersionMismatch, true
	}
	if errors.As(err, new(*redfish.VersionError)) {
		code = job.FailureVersionMismatch
	}
	out := device.Failure(phase, prefix, code, err)
	var f *agent.FailureError
	if other && errors.As(out, &f) && f.Failure.Code != job.CodeFailedPrecondition {
		f.Failure.Code = job.CodeOther
	}
	return out
}

// failureOf is what ended the update. One that was stopped is told as such.
func (u *update) failureOf(err error) *job.Failure {
	var f *agent.FailureError
	if errors.As(err, &f) {
		return f.Failure
	}
	text, code := err.Error(), job.FailureInternal
	switch {
	case errors.Is(err, agent.ErrTerminated):
		text, code = "firmware update job terminated: hardware state unknown", job.FailureTerminatedByOperator
	case errors.Is(err, agent.ErrDeadline):
		text, code = "firmware update job passed its deadline", job.FailureDeadlineExceeded
	case errors.Is(err, agent.ErrCancelled) && u.state.Cycle.over():
		text, code = "firmware update job cancelled before the new versions were verified", job.FailureCancelledByOperator
	case errors.Is(err, agent.ErrCancelled) && u.applied():
		text, code = "firmware update job cancelled before activation", job.FailureCancelledByOperator
	case errors.Is(err, agent.ErrCancelled):
		text, code = "firmware update job cancelled before starting the next target", job.FailureCancelledByOperator
	}
	failure := job.NewFailure(code, text)
	if code != job.FailureInternal {
		failure.Phase = phaseCancelled
	}
	return failure
}

// errNoCycle says that a switch did not restart.
var errNoCycle = errors.New("the switch did not go down and come back")

func noCycle(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errNoCycle, fmt.Sprintf(format, args...))
}
