// SPDX-License-Identifier: Apache-2.0

package nvue

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
)

// Code classes an Error. The codes are errors themselves, for errors.Is.
type Code string

// Error gives the code in words.
func (c Code) Error() string { return strings.ReplaceAll(string(c), "_", " ") }

// The codes.
const (
	// ErrInvalidArgument: the request makes no sense; nothing was sent.
	ErrInvalidArgument Code = "invalid_argument"
	// ErrFailedPrecondition: something else has to happen first.
	ErrFailedPrecondition Code = "failed_precondition"
	// ErrNotHeld: the Guard refused, or the hold was lost under way.
	ErrNotHeld Code = "node_not_held"
	// ErrUnauthenticated: the switch refused the credentials (401).
	ErrUnauthenticated Code = "unauthenticated"
	// ErrForbidden: the account may not do this (403).
	ErrForbidden Code = "forbidden"
	// ErrNotFound: the resource does not exist (404, 410).
	ErrNotFound Code = "not_found"
	// ErrConflict: the switch is in a state that forbids this now (409).
	ErrConflict Code = "conflict"
	// ErrTimeout: no answer in time (or 408), or a wait that did not end in time.
	ErrTimeout Code = "timeout"
	// ErrUnavailable: the switch or its service is not up to it now (429, 502,
	// 503, 504), or the connection broke.
	ErrUnavailable Code = "unavailable"
	// ErrUnreachable: no TCP connection could be made.
	ErrUnreachable Code = "unreachable"
	// ErrDNS: a name could not be resolved.
	ErrDNS Code = "dns"
	// ErrServerCertificate: the certificate of the switch was not accepted.
	ErrServerCertificate Code = "server_certificate"
	// ErrTLS: every other failure of the TLS handshake, among them that the switch
	// refused our certificate or speaks no TLS.
	ErrTLS Code = "tls"
	// ErrBadResponse: the switch answered something unusable.
	ErrBadResponse Code = "bad_response"
	// ErrRevisionFailed: the switch did not take a configuration; Issue says why.
	ErrRevisionFailed Code = "revision_failed"
	// ErrActionFailed: an action ended badly; Issue says why.
	ErrActionFailed Code = "action_failed"
	// ErrActionGone: the switch does not know the action (any more). What became
	// of it has to be judged by the state of the device.
	ErrActionGone Code = "action_gone"
	// ErrCanceled: the caller's context was cancelled.
	ErrCanceled Code = "canceled"
	// ErrInternal: every other refusal.
	ErrInternal Code = "internal"
)

// maxText bounds each text taken over from a switch into an Error.
const maxText = 1200

// Error is a failed operation on a switch. It carries no secrets.
type Error struct {
	// Op names the operation, for example "apply revision".
	Op string
	// Method and Path are those of the request that failed, if there was one. A
	// path that was refused as outside the API is not repeated.
	Method string
	Path   string
	// Status is the HTTP status, 0 when no answer came.
	Status int
	Code   Code
	// Issue is the switch's own words: from the body of a refusal, the issues of a
	// revision or those of an action.
	Issue string
	// Sent reports whether the request may have reached the switch.
	Sent bool

	reason string
	cause  error
}

// Error gives one line: operation, request, status, the switch's words.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Op)
	if e.Method != "" {
		fmt.Fprintf(&b, ": %s %s", e.Method, e.Path)
	}
	if e.Status != 0 {
		fmt.Fprintf(&b, ": HTTP %d", e.Status)
	}
	for _, part := range []string{e.reason, e.Issue} {
		if part != "" {
			b.WriteString(": " + part)
		}
	}
	if e.cause != nil {
		b.WriteString(": " + e.cause.Error())
	}
	return b.String()
}

// Is reports whether target is this error's Code.
func (e *Error) Is(target error) bool {
	code, ok := target.(Code)
	return ok && e.Code == code
}

// Unwrap gives the cause: the guard's error, a context error, a TLS error.
func (e *Error) Unwrap() error { return e.cause }

// OutcomeUnknown reports whether the request may have changed the switch
// although it failed: it was sent, and the switch did not clearly refuse it.
func (e *Error) OutcomeUnknown() bool {
	if !e.Sent || e.Method == "" || e.Method == http.MethodGet {
		return false
	}
	switch {
	case e.Status == 0, e.Status >= 200 && e.Status < 300, e.Status == http.StatusRequestTimeout,
		e.Status == http.StatusBadGateway, e.Status == http.StatusGatewayTimeout:
		return true
	default:
		return false
	}
}

// CodeOf gives the code of the first *Error in err's chain, or "".
func CodeOf(err error) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return ""
}

// Retryable reports whether the transport failed in a way that passes: no
// connection (TCP or TLS), no answer, or a service that is not up. A switch that
// reboots, or that is changing its certificate, fails in these ways.
func Retryable(err error) bool {
	switch CodeOf(err) {
	case ErrUnreachable, ErrTimeout, ErrUnavailable, ErrDNS, ErrTLS, ErrServerCertificate:
		return true
	default:
		return false
	}
}

// OutcomeUnknown reports whether err is of a change that may have taken place.
func OutcomeUnknown(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.OutcomeUnknown()
}

// interrupted reports an end that says nothing about the switch: the caller gave
// up, or may not act any more.
func interrupted(ctx context.Context, err error) bool {
	return ctx.Err() != nil || errors.Is(err, ErrNotHeld)
}

func invalid(op, reason string) *Error {
	return &Error{Op: op, Code: ErrInvalidArgument, reason: reason}
}

// statusCode maps an HTTP status that is no success.
func statusCode(status int) Code {
	switch status {
	case http.StatusUnauthorized:
		return ErrUnauthenticated
	case http.StatusForbidden:
		return ErrForbidden
	case http.StatusNotFound, http.StatusGone:
		return ErrNotFound
	case http.StatusRequestTimeout:
		return ErrTimeout
	case http.StatusConflict:
		return ErrConflict
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return ErrUnavailable
	default:
		if status >= 300 && status < 400 {
			return ErrBadResponse
		}
		return ErrInternal
	}
}

// errHandshake marks failures of the TLS handshake.
var errHandshake = errors.New("tls handshake")

// transportCode maps an error that came instead of an answer.
func transportCode(err error) Code {
	var timeout interface{ Timeout() bool }
	switch {
	case errors.Is(err, ErrNotHeld):
		return ErrNotHeld
	case errors.Is(err, context.Canceled):
		return ErrCanceled
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return ErrTimeout
	case is[*net.DNSError](err):
		return ErrDNS
	case serverCertificate(err):
		return ErrServerCertificate
	case errors.As(err, &timeout) && timeout.Timeout():
		return ErrTimeout
	case errors.Is(err, errHandshake), is[tls.AlertError](err), is[tls.RecordHeaderError](err):
		return ErrTLS
	case dialFailed(err):
		return ErrUnreachable
	default:
		return remoteAlert(err)
	}
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

func serverCertificate(err error) bool {
	return is[*tls.CertificateVerificationError](err) || is[x509.UnknownAuthorityError](err) ||
		is[x509.HostnameError](err) || is[x509.CertificateInvalidError](err)
}

func dialFailed(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

// remoteAlert finds the refusal of our certificate under TLS 1.3, which arrives
// with the first read after the handshake.
func remoteAlert(err error) Code {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "remote error" {
		return ErrTLS
	}
	return ErrUnavailable
}
