// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"errors"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/switchtls"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/services/switch-agent/internal/channel"
	"github.com/rackbus/rackbus/services/switch-agent/internal/device"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nvue"
)

// Reasons that errors of this package wrap.
var (
	// ErrPrecondition says that something else has to happen first.
	ErrPrecondition = errors.New("precondition failed")
	// ErrNotConverged says that a switch took a change but never showed it.
	ErrNotConverged = errors.New("the switch does not show the change")
	// ErrUnreadable says that what has to be known before a change cannot be read.
	ErrUnreadable = errors.New("the state cannot be read")
	// ErrNotTaken says that the controller keeps another value than it was given.
	ErrNotTaken = errors.New("the controller did not take the value")
	// ErrInvalid says that the request makes no sense for these switches.
	ErrInvalid = errors.New("invalid fabric configuration")
)

// codeOf is the cause of failure that an error stands for.
func codeOf(err error) job.FailureCode {
	var told *agent.FailureError
	switch {
	case errors.As(err, &told):
		return told.Failure.FailureCode
	case errors.Is(err, errNoTime):
		return job.FailureDeadlineExceeded
	case errors.Is(err, ErrInvalid):
		return job.FailureInvalidArgument
	case errors.As(err, new(*switchtls.Error)):
		return job.FailureCertificateMaterial
	case errors.Is(err, ErrPrecondition):
		return job.FailurePreconditionFailed
	case errors.As(err, new(*channel.Error)):
		return device.CodeOf(err, job.FailureHostUnreachable)
	case errors.Is(err, ErrNotConverged):
		return job.FailureTaskTimeout
	default:
		return device.CodeOf(err, job.FailureTaskException)
	}
}

// refuse turns an error into the reply that names it.
func refuse(err error) *rackbusv1.NodeReply {
	switch {
	case errors.Is(err, ErrInvalid):
		return agent.Refuse(agent.CodeInvalidArgument, err.Error(), "")
	case errors.Is(err, ErrPrecondition), errors.As(err, new(*switchtls.Error)):
		return agent.Refuse(string(nvue.ErrFailedPrecondition), err.Error(), "")
	case errors.Is(err, ErrNotConverged), errors.As(err, new(*channel.Error)):
		return agent.Refuse(string(nvue.ErrUnavailable), err.Error(), "")
	default:
		return device.Refuse(err)
	}
}
