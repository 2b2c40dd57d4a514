// SPDX-License-Identifier: Apache-2.0

package redfish

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
	"time"

	"github.com/stmcginnis/gofish/schemas"
)

// ErrorCode classes an Error for callers that decide what to do next.
type ErrorCode string

// The codes.
const (
	// CodeUnauthenticated: the device refused the credentials (401).
	CodeUnauthenticated ErrorCode = "unauthenticated"
	// CodeForbidden: the account may not do this, or its password has to be
	// changed first (403).
	CodeForbidden ErrorCode = "forbidden"
	// CodeNotFound: the resource does not exist (404, 410).
	CodeNotFound ErrorCode = "not_found"
	// CodeConflict: the device is in a state that forbids this now (409).
	CodeConflict ErrorCode = "conflict"
	// CodeTimeout: no answer in time (or 408).
	CodeTimeout ErrorCode = "timeout"
	// CodeUnavailable: the device or its service is not up to it now (429, 502,
	// 503, 504, or the connection broke).
	CodeUnavailable ErrorCode = "unavailable"
	// CodeConnectionRefused: no connection could be made.
	CodeConnectionRefused ErrorCode = "connection_refused"
	// CodeDNS: the host name could not be resolved.
	CodeDNS ErrorCode = "dns"
	// CodeTLS: the TLS handshake failed.
	CodeTLS ErrorCode = "tls"
	// CodeInvalidResponse: the device answered something unusable.
	CodeInvalidResponse ErrorCode = "invalid_response"
	// CodeInvalidArgument: the request makes no sense, here or for the device.
	CodeInvalidArgument ErrorCode = "invalid_argument"
	// CodeFailedPrecondition: something else has to happen first.
	CodeFailedPrecondition ErrorCode = "failed_precondition"
	// CodeCanceled: the caller's context was cancelled.
	CodeCanceled ErrorCode = "canceled"
	// CodeInternal: every other failure.
	CodeInternal ErrorCode = "internal"
)

// maxText bounds each text taken over from a device into an Error.
const maxText = 1200

// Error is a failed operation on a device. It carries no credentials.
type Error struct {
	// Op names the operation, for example "read power state".
	Op string
	// Method and Path are those of the request that failed, if there was one.
	Method string
	Path   string
	// Status is the HTTP status, 0 when no answer came.
	Status int
	Code   ErrorCode
	// MessageID, Message, Severity and Resolution are the device's own words,
	// from the first message of @Message.ExtendedInfo that is not a success.
	MessageID  string
	Message    string
	Severity   schemas.Health
	Resolution string
	// RetryAfter is what the device asked to wait, 0 when it said nothing.
	RetryAfter time.Duration
	// Sent reports whether the request may have reached the device.
	Sent bool

	reason string
	cause  error
}

// Error gives one line: operation, request, status, the device's words.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Op)
	if e.Method != "" {
		fmt.Fprintf(&b, ": %s %s", e.Method, e.Path)
	}
	if e.Status != 0 {
		fmt.Fprintf(&b, ": HTTP %d", e.Status)
	}
	for _, part := range []string{e.MessageID, e.Message, e.reason} {
		if part != "" {
			b.WriteString(": " + part)
		}
	}
	if e.cause != nil {
		b.WriteString(": " + e.cause.Error())
	}
	if e.Resolution != "" && e.Resolution != "None." && e.Resolution != "None" {
		b.WriteString(" Resolution: " + e.Resolution)
	}
	return b.String()
}

// Unwrap gives the cause, for errors.Is with ErrNotHeld, context errors and the
// sentinels of this package.
func (e *Error) Unwrap() error { return e.cause }

// CredentialFault reports whether the device rejects who we are. Repeating the
// request would only lock the account.
func (e *Error) CredentialFault() bool {
	return e.Code == CodeUnauthenticated || e.Code == CodeForbidden
}

// OutcomeUnknown reports whether the request may have changed the device
// although it failed: it was sent, and the device did not clearly refuse it.
func (e *Error) OutcomeUnknown() bool {
	if !e.Sent || e.Method == "" || safeMethod(e.Method) {
		return false
	}
	switch {
	case e.Status == 0, e.Status < 300, e.Status == http.StatusRequestTimeout,
		e.Status == http.StatusBadGateway, e.Status == http.StatusGatewayTimeout:
		return true
	default:
		return false
	}
}

// Transient reports whether the same request may well succeed a little later.
func (e *Error) Transient() bool {
	switch e.Code {
	case CodeTimeout, CodeUnavailable, CodeConnectionRefused, CodeDNS, CodeTLS:
		return true
	case CodeInvalidResponse:
		return e.Method != ""
	case CodeInternal:
		return e.Status >= 500
	default:
		return false
	}
}

// CodeOf gives the code of the first *Error in err's chain, or "" if there is none.
func CodeOf(err error) ErrorCode {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return ""
}

// invalid builds an error about the caller's input; nothing was sent.
func invalid(op, reason string) *Error {
	return &Error{Op: op, Code: CodeInvalidArgument, reason: reason}
}

// fault builds an error that no single request caused.
func fault(op string, code ErrorCode, format string, args ...any) *Error {
	return &Error{Op: op, Code: code, reason: fmt.Sprintf(format, args...)}
}

// statusCode maps an HTTP status that is no success.
func statusCode(status int) ErrorCode {
	switch status {
	case http.StatusUnauthorized:
		return CodeUnauthenticated
	case http.StatusForbidden:
		return CodeForbidden
	case http.StatusNotFound, http.StatusGone:
		return CodeNotFound
	case http.StatusRequestTimeout:
		return CodeTimeout
	case http.StatusConflict:
		return CodeConflict
	case http.StatusPreconditionFailed, http.StatusPreconditionRequired:
		return CodeFailedPrecondition
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return CodeUnavailable
	default:
		return CodeInternal
	}
}

// transportCode maps an error that came instead of an answer.
func transportCode(err error) ErrorCode {
	var (
		dns       *net.DNSError
		op        *net.OpError
		unknownCA x509.UnknownAuthorityError
		host      x509.HostnameError
		record    tls.RecordHeaderError
		timeout   interface{ Timeout() bool }
	)
	switch {
	case errors.Is(err, ErrNotHeld):
		return CodeFailedPrecondition
	case errors.Is(err, context.Canceled):
		return CodeCanceled
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return CodeTimeout
	case errors.As(err, &dns):
		return CodeDNS
	case errors.As(err, &timeout) && timeout.Timeout():
		return CodeTimeout
	case errors.Is(err, errTLS), errors.As(err, &unknownCA), errors.As(err, &host), errors.As(err, &record):
		return CodeTLS
	case errors.As(err, &op) && op.Op == "dial":
		return CodeConnectionRefused
	default:
		return CodeUnavailable
	}
}

func asError(err error) (*Error, bool) { return errors.AsType[*Error](err) }
