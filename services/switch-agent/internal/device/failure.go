// SPDX-License-Identifier: Apache-2.0

package device

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/cause"
	"github.com/rackbus/rackbus/pkg/credentials"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/redfish"
	"github.com/rackbus/rackbus/pkg/ssh"
	"github.com/rackbus/rackbus/pkg/switchtls"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/services/switch-agent/internal/channel"
	"github.com/rackbus/rackbus/services/switch-agent/internal/gnmi"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nmxc"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nvue"
)

// Passes tells errors that are not the switch's: reasons to stop, and errors that
// have the form of a failure already. Workflows hand them on unchanged.
func Passes(err error) bool {
	for _, reason := range []error{
		agent.ErrNotHeld, nvue.ErrNotHeld, ssh.ErrNotHeld, redfish.ErrNotHeld,
		agent.ErrHandedOver, agent.ErrCancelled, agent.ErrTerminated, agent.ErrDeadline, context.Canceled,
	} {
		if errors.Is(err, reason) {
			return true
		}
	}
	return errors.As(err, new(*agent.FailureError)) || errors.As(err, new(*agent.UnknownError))
}

// Failure gives an error of a phase the form in which a job's record tells it.
// fallback is the cause of errors without a more telling one.
func Failure(phase, prefix string, fallback job.FailureCode, err error) error {
	if err == nil || Passes(err) {
		return err
	}
	message := err.Error()
	if prefix != "" {
		message = prefix + ": " + message
	}
	out := agent.Fail(CodeOf(err, fallback), phase, message, err)
	out.Failure.Device = AnswerOf(err)
	return out
}

// Uncertain marks an error after which the switch may have taken the change.
func Uncertain(err error) error {
	var bmc *redfish.Error
	if nvue.OutcomeUnknown(err) || errors.As(err, &bmc) && bmc.OutcomeUnknown() {
		return agent.Unknown(err)
	}
	return err
}

// CodeOf is the cause of failure that an error of a switch stands for.
func CodeOf(err error, fallback job.FailureCode) job.FailureCode {
	if code, is := cause.SSHLogin(err); is {
		return code
	}
	var own *nvue.Error
	var bmc *redfish.Error
	var link *channel.Error
	var controller *nmxc.Error
	switch {
	case errors.Is(err, credentials.ErrNone):
		return job.FailureCredentialsMissing
	case errors.Is(err, ErrTarget):
		return job.FailureInvalidArgument
	case errors.As(err, new(*switchtls.Error)):
		return job.FailureCertificateMaterial
	case errors.As(err, &link):
		return channelCode(link)
	case errors.As(err, &controller) && (controller.Code == codes.Unauthenticated || controller.Code == codes.PermissionDenied):
		return job.FailureHostAuthFailed
	case errors.As(err, &own):
		return nvueCode(own, fallback)
	case errors.As(err, &bmc) && bmc.Method != "":
		return cause.Redfish(bmc, fallback)
	default:
		return fallback
	}
}

func nvueCode(err *nvue.Error, fallback job.FailureCode) job.FailureCode {
	if err.Method == "" && err.Code == nvue.ErrTimeout {
		// A wait that did not end in time says what was waited for.
		return fallback
	}
	switch err.Code {
	case nvue.ErrUnauthenticated, nvue.ErrForbidden:
		return job.FailureHostAuthFailed
	case nvue.ErrUnreachable, nvue.ErrDNS, nvue.ErrTLS, nvue.ErrServerCertificate:
		return cause.ReasonOf(err).Code(job.FailureHostUnreachable, job.FailureHostUnreachable)
	case nvue.ErrTimeout, nvue.ErrUnavailable:
		switch {
		case err.Status != 0:
			return fallback // it answered, if only that it cannot
		case err.Code == nvue.ErrTimeout:
			return job.FailureDeviceTimeout
		}
		return cause.ReasonOf(err).Code(job.FailureHostUnreachable, job.FailureHostUnreachable)
	case nvue.ErrFailedPrecondition:
		return job.FailurePreconditionFailed
	case nvue.ErrInvalidArgument:
		return job.FailureInvalidArgument
	case nvue.ErrNotFound:
		return job.FailureTargetNotFound
	default:
		return fallback
	}
}

// channelCode is for a gRPC connection that did not come up.
func channelCode(err *channel.Error) job.FailureCode {
	reason := cause.ReasonOf(err.Err)
	if reason == "" && errors.Is(err, channel.ErrTimeout) {
		reason = cause.Timeout
	}
	return reason.Code(job.FailureHostUnreachable, job.FailureHostUnreachable)
}

// AnswerOf is what a switch, its BMC or a command on it said, nil for nothing.
func AnswerOf(err error) *job.DeviceAnswer {
	var own *nvue.Error
	if errors.As(err, &own) && (own.Status != 0 || own.Issue != "") {
		return &job.DeviceAnswer{Message: own.Issue, HTTPStatus: int32(own.Status)}
	}
	if answer := cause.RedfishAnswer(err); answer != nil {
		return answer
	}
	var returned nmxc.ReturnCode
	var controller *nmxc.Error
	var telemetry *gnmi.Error
	switch {
	case errors.As(err, &returned):
		return &job.DeviceAnswer{MessageID: returned.Name(), Message: returned.Error()}
	case errors.As(err, &controller):
		return &job.DeviceAnswer{MessageID: controller.Code.String(), Message: controller.Err.Error()}
	case errors.As(err, &telemetry) && telemetry.Connected:
		return &job.DeviceAnswer{MessageID: telemetry.Code.String(), Message: telemetry.Err.Error()}
	}
	return cause.SSHAnswer(err)
}

// Refuse turns an error into the reply that names it. The words of the code are
// those of the transports; agent.CodeUnreachable is used only where certainly no
// connection could be made.
func Refuse(err error) *rackbusv1.NodeReply {
	var own *nvue.Error
	var bmc *redfish.Error
	var failure *agent.FailureError
	switch {
	case errors.As(err, &failure):
		return agent.Refuse(failureWord(failure.Failure.FailureCode), err.Error(), "")
	case Unreachable(err):
		return agent.Refuse(agent.CodeUnreachable, err.Error(), "")
	case errors.Is(err, ErrTarget), errors.Is(err, credentials.ErrNone):
		return agent.Refuse(agent.CodeInvalidArgument, err.Error(), "")
	case errors.As(err, &own):
		return agent.Refuse(word(own.Code), err.Error(), "")
	case errors.As(err, &bmc):
		return agent.Refuse(string(bmc.Code), err.Error(), bmc.MessageID)
	default:
		return agent.Refuse(sshWord(err), err.Error(), "")
	}
}

// word is a code of NVUE as NodeError.code has it. A connection that could not be
// made, but of which that is no proof, is none that is unreachable.
func word(code nvue.Code) string {
	switch code {
	case nvue.ErrUnreachable, nvue.ErrDNS, nvue.ErrTLS, nvue.ErrServerCertificate:
		return string(nvue.ErrUnavailable)
	case nvue.ErrConflict:
		return string(nvue.ErrFailedPrecondition)
	default:
		return string(code)
	}
}

// failureWord is for what is wrong on our side, mostly with a file.
func failureWord(code job.FailureCode) string {
	if code == job.FailureInvalidArgument {
		return agent.CodeInvalidArgument
	}
	return string(nvue.ErrFailedPrecondition)
}

func sshWord(err error) string {
	var e *ssh.Error
	if !errors.As(err, &e) {
		return agent.CodeInternal
	}
	switch e.Kind {
	case ssh.KindUnreachable, ssh.KindClosed, ssh.KindRefused:
		return string(nvue.ErrUnavailable)
	case ssh.KindTimeout:
		return agent.CodeTimeout
	case ssh.KindAuth:
		return string(nvue.ErrUnauthenticated)
	case ssh.KindHostKey, ssh.KindNegotiation:
		return string(nvue.ErrFailedPrecondition)
	case ssh.KindProtocol, ssh.KindFile:
		return agent.CodeInternal
	default:
		return agent.CodeInternal
	}
}
