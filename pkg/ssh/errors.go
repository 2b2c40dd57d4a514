// SPDX-License-Identifier: Apache-2.0

package ssh

import (
	"errors"
	"fmt"
	"strings"
)

// Kind is the class of a failure.
type Kind string

// Classes of failures.
const (
	// KindUnreachable: no connection could be made, or it was closed before the
	// login was over.
	KindUnreachable Kind = "unreachable"
	// KindTimeout: the peer did not answer in time.
	KindTimeout Kind = "timeout"
	// KindAuth: the peer refused the login; see ErrCredentials.
	KindAuth Kind = "auth"
	// KindHostKey: the peer's key is not the recorded one, or is not recorded.
	KindHostKey Kind = "host_key"
	// KindNegotiation: there is no algorithm that both sides offer.
	KindNegotiation Kind = "negotiation"
	// KindProtocol: the peer does not speak SSH as it should.
	KindProtocol Kind = "protocol"
	// KindClosed: the connection was lost after the login.
	KindClosed Kind = "closed"
	// KindRefused: the peer refused a session or a subsystem.
	KindRefused Kind = "refused"
	// KindFile: the peer refused an operation on a file.
	KindFile Kind = "file"
)

// Reasons that errors wrap.
var (
	// ErrCredentials says that user or password is wrong. It took one attempt.
	ErrCredentials = errors.New("credentials rejected")
	// ErrNoLoginMethod says that the server offers no method that the login has
	// the means for.
	ErrNoLoginMethod = errors.New("no usable login method")
	// ErrHostKeyUnknown says that a strict policy has no key of the host.
	ErrHostKeyUnknown = errors.New("host key not recorded")
	// ErrHostKeyChanged says that the host shows another key than the recorded one.
	ErrHostKeyChanged = errors.New("host key changed")
	// ErrHostKeyRevoked says that the key is marked as revoked.
	ErrHostKeyRevoked = errors.New("host key revoked")
	// ErrStalled says that an upload made no progress for too long.
	ErrStalled = errors.New("upload stalled")
	// ErrShortWrite says that the host kept another number of bytes than was sent.
	ErrShortWrite = errors.New("file on the host is incomplete")
	// ErrDigest says that the file on the host has another SHA-256 than was sent.
	ErrDigest = errors.New("file on the host has another digest")
	// ErrClosed says that the Client was closed.
	ErrClosed = errors.New("ssh client closed")
)

// Error is a failure of a connection, a login or a transfer.
type Error struct {
	// Op is what was being done, for example "connect" or "upload".
	Op string
	// Addr is the host's address and port.
	Addr string
	Kind Kind
	// Sent says that the command was handed to the host, or bytes of the file were:
	// what has become of them is unknown.
	Sent bool
	Err  error
}

// Error tells operation, host and cause.
func (e *Error) Error() string {
	return fmt.Sprintf("ssh %s %s: %v", e.Op, e.Addr, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Transient reports whether the same call may succeed later without anybody
// changing anything.
func (e *Error) Transient() bool {
	switch e.Kind {
	case KindUnreachable, KindTimeout, KindClosed:
		return true
	case KindAuth, KindHostKey, KindNegotiation, KindProtocol, KindRefused, KindFile:
		return false
	default:
		return false
	}
}

// Connecting reports whether the connection had not come up yet.
func (e *Error) Connecting() bool { return e.Op == opConnect }

// OutcomeUnknown reports whether the host may have run the command although no
// result came.
func (e *Error) OutcomeUnknown() bool { return e.Sent }

// IsKind reports whether err is an Error of one of the kinds.
func IsKind(err error, kinds ...Kind) bool {
	var e *Error
	if !errors.As(err, &e) {
		return false
	}
	for _, k := range kinds {
		if e.Kind == k {
			return true
		}
	}
	return false
}

// maxShownError bounds what an ExitError shows of the command's output.
const maxShownError = 512

// ExitError says that a command ran and failed.
type ExitError struct {
	// Command is the label of the command.
	Command string
	// Status is the exit status; -1 when a signal ended the command.
	Status int
	// Signal that ended the command, without SIG; empty for none.
	Signal string
	// Output is the end of the command's standard error, else of its standard
	// output, on one line.
	Output string
}

// Error tells the command, how it ended, and what it said.
func (e *ExitError) Error() string {
	how := fmt.Sprintf("exit status %d", e.Status)
	if e.Signal != "" {
		how = "ended by signal " + e.Signal
	}
	if e.Output == "" {
		return fmt.Sprintf("command %q: %s", e.Command, how)
	}
	return fmt.Sprintf("command %q: %s: %s", e.Command, how, e.Output)
}

// oneLine puts text on one line and keeps its end, where tools tell the cause.
func oneLine(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > maxShownError {
		text = strings.ToValidUTF8("..."+text[len(text)-maxShownError+3:], "")
	}
	return text
}
