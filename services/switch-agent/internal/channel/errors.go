// SPDX-License-Identifier: Apache-2.0

package channel

import (
	"errors"
	"fmt"
)

// Kinds of failures to connect, for errors.Is.
var (
	// ErrUnreachable: no TCP connection could be made.
	ErrUnreachable = errors.New("unreachable")
	// ErrTimeout: the connection was not up in time.
	ErrTimeout = errors.New("timeout")
	// ErrCertificate: the certificate of the switch was not accepted.
	ErrCertificate = errors.New("certificate of the switch refused")
	// ErrTLS: every other failure of TLS, among them that the switch refused our
	// certificate or speaks no TLS.
	ErrTLS = errors.New("tls")
	// ErrProtocol: the peer does not speak HTTP/2.
	ErrProtocol = errors.New("protocol")
	// ErrCanceled: the caller gave up.
	ErrCanceled = errors.New("canceled")
)

// Error is a connection that did not come up. Nothing was asked over it.
type Error struct {
	// Address is where it was tried.
	Address string
	// Kind is one of this package's errors.
	Kind error
	Err  error
}

// Error gives one line.
func (e *Error) Error() string {
	return fmt.Sprintf("connect to %s: %v: %v", e.Address, e.Kind, e.Err)
}

// Unwrap gives the kind and the cause.
func (e *Error) Unwrap() []error { return []error{e.Kind, e.Err} }
