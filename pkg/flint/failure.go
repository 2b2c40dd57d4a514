// SPDX-License-Identifier: Apache-2.0

package flint

import (
	"context"
	"errors"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/cause"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/redfish"
	"github.com/rackbus/rackbus/pkg/ssh"
)

// Phases of an update, as a failed job's result names them.
const (
	phaseValidation = "validation"
	phaseUpdate     = "update"
	phaseActivation = "activation"
	phaseVerify     = "post_activation_version_check"
)

// fail gives an error of a phase the form in which the record tells it. Reasons to
// stop, and errors that have a form already, pass unchanged.
func fail(phase, doing string, err error) error {
	if err == nil || passes(err) {
		return err
	}
	out := agent.Fail(codeOf(err), phase, doing+": "+err.Error(), err)
	out.Failure.Device = answerOf(err)
	return out
}

// passes tells errors that are not the host's.
func passes(err error) bool {
	return errors.As(err, new(*agent.FailureError)) || errors.As(err, new(*agent.UnknownError)) ||
		errors.As(err, new(*agent.RetryError)) ||
		errors.Is(err, agent.ErrNotHeld) || errors.Is(err, ssh.ErrNotHeld) || errors.Is(err, agent.ErrHandedOver) ||
		errors.Is(err, agent.ErrCancelled) || errors.Is(err, agent.ErrTerminated) || errors.Is(err, agent.ErrDeadline) ||
		errors.Is(err, context.Canceled)
}

func codeOf(err error) job.FailureCode {
	switch {
	case errors.Is(err, ErrIncompatible):
		return job.FailureIncompatibleFirmware
	case errors.Is(err, ErrDevices):
		return job.FailureTargetNotFound
	case errors.As(err, new(*notReadyError)) && transient(err):
		return job.FailureHostUnreachable
	case ssh.IsKind(err, ssh.KindTimeout):
		return job.FailureDeviceTimeout
	case ssh.IsKind(err, ssh.KindRefused, ssh.KindProtocol, ssh.KindFile):
		return job.FailureHostRefused
	}
	if code, is := cause.SSHLogin(err); is {
		return code
	}
	var bmc *redfish.Error
	switch {
	case ssh.IsKind(err, ssh.KindClosed), errors.As(err, new(*notReadyError)):
		return job.FailureHostUnreachable
	case errors.As(err, &bmc):
		return cause.Redfish(bmc, job.FailureBMCRefused)
	default:
		return job.FailurePreconditionFailed
	}
}

// answerOf is what the host or its management controller said.
func answerOf(err error) *job.DeviceAnswer {
	if answer := cause.RedfishAnswer(err); answer != nil {
		return answer
	}
	return cause.SSHAnswer(err)
}

// transient reports a host that does not answer, and may later.
func transient(err error) bool {
	var e *ssh.Error
	return errors.As(err, &e) && e.Transient() && !errors.Is(err, ssh.ErrNotHeld)
}

// again marks an error that a later try may cure.
func again(err error) error {
	if transient(err) {
		return agent.Retry(0, err)
	}
	return err
}

// curable reports a host that an AUX power cycle may bring back: it does not
// answer, or devices are missing or do not answer.
func curable(err error) bool {
	return transient(err) || errors.Is(err, ErrDevices) || errors.Is(err, ErrUnreadable) ||
		errors.As(err, new(*notReadyError)) || errors.As(err, new(*deviceError))
}

// notReadyError says that the host did not come up in time.
type notReadyError struct{ last error }

func (e *notReadyError) Error() string { return "the host is not ready: " + e.last.Error() }

func (e *notReadyError) Unwrap() error { return e.last }

// deviceError says that a device could not be read.
type deviceError struct {
	path string
	err  error
}

func (e *deviceError) Error() string { return "query " + e.path + ": " + e.err.Error() }

func (e *deviceError) Unwrap() error { return e.err }
