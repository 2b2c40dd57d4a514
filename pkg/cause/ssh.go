// SPDX-License-Identifier: Apache-2.0

package cause

import (
	"errors"

	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/ssh"
)

// SSHLogin is the failure code of an SSH connection that did not come up, and false
// for every other error.
func SSHLogin(err error) (job.FailureCode, bool) {
	var e *ssh.Error
	if !errors.As(err, &e) {
		return "", false
	}
	switch e.Kind {
	case ssh.KindAuth:
		return job.FailureHostAuthFailed, true
	case ssh.KindHostKey:
		return job.FailureHostKeyRefused, true
	case ssh.KindNegotiation:
		return job.FailureHostSSHIncompatible, true
	case ssh.KindUnreachable:
		return ReasonOf(e.Err).Code(job.FailureHostUnreachable, job.FailureHostUnreachable), true
	case ssh.KindTimeout:
		return job.FailureDeviceTimeout, e.Connecting()
	case ssh.KindClosed, ssh.KindRefused, ssh.KindProtocol, ssh.KindFile:
	}
	return "", false
}

// maxAnswer bounds what is kept of the output of a command, in bytes.
const maxAnswer = 512

// SSHAnswer is what a command on a host said when it failed, nil when it said nothing.
func SSHAnswer(err error) *job.DeviceAnswer {
	var exit *ssh.ExitError
	if !errors.As(err, &exit) || exit.Output == "" {
		return nil
	}
	text := exit.Output
	if len(text) > maxAnswer {
		text = text[len(text)-maxAnswer:] // tools tell the cause at the end
	}
	return &job.DeviceAnswer{Message: text}
}
