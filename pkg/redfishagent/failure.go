// SPDX-License-Identifier: Apache-2.0

package redfishagent

import (
	"context"
	"errors"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/cause"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/redfish"
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

// phaseRule is how a failure in a phase is told.
type phaseRule struct {
	// prefix of the message; the target's label follows where it has one.
	prefix string
	// other says that callers see the error class "other" for anything but a
	// failed precondition.
	other bool
	// code is what an error without a more telling one counts as.
	code job.FailureCode
}

func ruleOf(phase string) phaseRule {
	switch phase {
	case phaseUpdate:
		return phaseRule{prefix: "Upload failed for target ", code: job.FailureUploadFailed}
	case phasePoll:
		return phaseRule{prefix: "Poll failed for target ", other: true, code: job.FailureTaskException}
	case phaseActivation:
		return phaseRule{prefix: "Firmware flashed but activation failed", other: true, code: job.FailureActivationFailed}
	case phaseVerify:
		return phaseRule{other: true, code: job.FailureVersionMismatch}
	default:
		return phaseRule{code: job.FailurePreconditionFailed}
	}
}

// fail gives an error of a phase the form in which the record tells it. Reasons
// to stop, and errors that have a form already, pass unchanged. An unknown outcome
// stays one: its form counts once the device shows that it never took the change.
func fail(phase, label string, err error) error {
	if unknown, is := err.(*agent.UnknownError); is { //nolint:errorlint // only a bare one is given a form
		return agent.Unknown(fail(phase, label, unknown.Err))
	}
	if err == nil || passes(err) {
		return err
	}
	rule := ruleOf(phase)
	code, answer := causeOf(err, rule.code)
	message := err.Error()
	if rule.prefix != "" {
		message = rule.prefix + label + ": " + message
	}
	out := agent.Fail(code, phase, message, err)
	out.Failure.Device = answer
	if rule.other && out.Failure.Code != job.CodeFailedPrecondition {
		out.Failure.Code = job.CodeOther
	}
	return out
}

// passes tells errors that are not the device's.
func passes(err error) bool {
	var failure *agent.FailureError
	var unknown *agent.UnknownError
	return errors.As(err, &failure) || errors.As(err, &unknown) ||
		errors.Is(err, agent.ErrNotHeld) || errors.Is(err, redfish.ErrNotHeld) || errors.Is(err, agent.ErrHandedOver) || errors.Is(err, agent.ErrCancelled) ||
		errors.Is(err, agent.ErrTerminated) || errors.Is(err, agent.ErrDeadline) || errors.Is(err, context.Canceled)
}

func causeOf(err error, fallback job.FailureCode) (job.FailureCode, *job.DeviceAnswer) {
	var task *redfish.TaskError
	if errors.As(err, &task) {
		return job.FailureTaskException, cause.RedfishAnswer(task)
	}
	switch {
	case errors.Is(err, redfish.ErrTaskLimit):
		return job.FailureTaskTimeout, nil
	case errors.As(err, new(*redfish.ExpectedInventoryError)):
		return job.FailureInventoryIncomplete, nil
	case errors.As(err, new(*redfish.WriteProtectError)):
		return job.FailureWriteProtected, nil
	case errors.As(err, new(*redfish.BackgroundCopyError)):
		return job.FailureBackgroundCopyPending, nil
	case errors.As(err, new(*redfish.VersionError)):
		return job.FailureVersionMismatch, nil
	case errors.Is(err, redfish.ErrPowerState):
		return job.FailureActivationFailed, nil
	case errors.Is(err, errNodeType):
		return job.FailureInvalidArgument, nil
	}
	var device *redfish.Error
	if !errors.As(err, &device) {
		return fallback, nil
	}
	if device.Method == "" && device.Code == redfish.CodeTimeout && fallback == job.FailureActivationFailed {
		// Not a request, but what it should have brought about, took too long.
		return fallback, cause.RedfishAnswer(device)
	}
	return cause.Redfish(device, fallback), cause.RedfishAnswer(device)
}

// uncertain marks an error after which the device may have taken the change.
func uncertain(err error) error {
	var device *redfish.Error
	if errors.As(err, &device) && device.OutcomeUnknown() {
		return agent.Unknown(err)
	}
	return err
}

// again marks an error that a later try may cure.
func again(err error) error {
	if !transient(err) || passes(err) {
		return err
	}
	var device *redfish.Error
	errors.As(err, &device)
	return agent.Retry(device.RetryAfter, err)
}

// transient reports a device that does not answer, or asks to come back later.
func transient(err error) bool {
	var device *redfish.Error
	return errors.As(err, &device) && device.Transient()
}
