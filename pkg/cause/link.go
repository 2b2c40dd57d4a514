// SPDX-License-Identifier: Apache-2.0

package cause

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"reflect"
	"syscall"

	"github.com/rackbus/rackbus/pkg/job"
)

// Reason is why a connection failed: "transport error" alone sends people to the
// network when a certificate has expired. The zero Reason is no fault of a connection.
type Reason string

// The reasons.
const (
	// NameUnresolved: the host name could not be resolved.
	NameUnresolved Reason = "name_unresolved"
	// Refused: the host is there, but nothing listens on the port.
	Refused Reason = "connection_refused"
	// Unreachable: there is no way to the host.
	Unreachable Reason = "unreachable"
	// Timeout: the connection, the handshake or the answer did not come in time.
	Timeout Reason = "timeout"
	// Untrusted: the device's certificate was not issued by a CA that is trusted, or
	// is not valid at this time or for this use.
	Untrusted Reason = "certificate_untrusted"
	// NameMismatch: the device's certificate is for another name.
	NameMismatch Reason = "certificate_name_mismatch"
	// ClientRefused: the device did not accept our certificate, or misses one.
	ClientRefused Reason = "client_certificate_refused"
	// TLS: the handshake failed otherwise, for example since the port speaks none.
	TLS Reason = "tls"
)

// ReasonOf tells why the connection failed that err is about. The certificate faults come
// first: they are the cause, whatever else the chain of errors says.
func ReasonOf(err error) Reason {
	switch {
	case err == nil:
		return ""
	case is[x509.HostnameError](err):
		return NameMismatch
	case is[x509.UnknownAuthorityError](err), is[x509.CertificateInvalidError](err), is[*tls.CertificateVerificationError](err):
		return Untrusted
	case is[*net.DNSError](err):
		return NameUnresolved
	}
	if alert, ok := remoteAlert(err); ok {
		if refusesClient(alert) {
			return ClientRefused
		}
		return TLS
	}
	switch {
	case is[tls.RecordHeaderError](err), is[tls.AlertError](err), localAlert(err):
		return TLS
	case timedOut(err):
		return Timeout
	case errors.Is(err, syscall.ECONNREFUSED):
		return Refused
	case dialFailed(err):
		return Unreachable
	default:
		return ""
	}
}

// Code is the failure code of a job that failed for this reason. unreachable is the
// one for a device that cannot be connected to, fallback for the zero Reason.
func (r Reason) Code(unreachable, fallback job.FailureCode) job.FailureCode {
	switch r {
	case NameUnresolved:
		return job.FailureNameUnresolved
	case Refused, Unreachable:
		return unreachable
	case Timeout:
		return job.FailureDeviceTimeout
	case Untrusted:
		return job.FailureCertificateUntrusted
	case NameMismatch:
		return job.FailureCertificateName
	case ClientRefused:
		return job.FailureClientCertificateRefused
	case TLS:
		return job.FailureTLSFailed
	default:
		return fallback
	}
}

// remoteAlert is the number of the alert that the device has sent. crypto/tls gives
// it as a *net.OpError around a number whose type it does not export.
func remoteAlert(err error) (uint8, bool) {
	return alertIn(err, "remote error")
}

// localAlert reports an alert that we have sent.
func localAlert(err error) bool {
	_, ok := alertIn(err, "local error")
	return ok
}

func alertIn(err error, op string) (uint8, bool) {
	e, ok := errors.AsType[*net.OpError](err)
	if !ok || e.Op != op || e.Err == nil {
		return 0, false
	}
	if v := reflect.ValueOf(e.Err); v.Kind() == reflect.Uint8 {
		return uint8(v.Uint()), true
	}
	return 0, true
}

// refusesClient reports the alerts of RFC 8446 6.2 and RFC 5246 7.2.2 that blame
// the certificate of the other side: bad_certificate, unsupported_certificate,
// certificate_revoked, _expired, _unknown, unknown_ca, access_denied,
// certificate_required.
func refusesClient(alert uint8) bool {
	switch alert {
	case 42, 43, 44, 45, 46, 48, 49, 116:
		return true
	default:
		return false
	}
}

func timedOut(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) ||
		errors.As(err, &timeout) && timeout.Timeout()
}

func dialFailed(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
