// SPDX-License-Identifier: Apache-2.0

package artifact

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"
)

// Causes that callers decide with.
var (
	// ErrLimit says that a file, or all of a cache together, are too large or too many.
	ErrLimit = errors.New("limit of artifact downloads exceeded")
	// ErrDigest says that a file is not what the manifest promises.
	ErrDigest = errors.New("sha256 mismatch")
	// ErrEmpty says that there was not a single byte.
	ErrEmpty = errors.New("it has no bytes")
	// ErrNotRegular says that a file's place is taken by something else, or that a
	// local file is none.
	ErrNotRegular = errors.New("no regular file")
	// ErrStatus says that a server answered with something else than the file.
	ErrStatus = errors.New("download refused")
	// errStalled ends a try that gets no bytes.
	errStalled = errors.New("no byte arrived in time")
)

// transientError is a failure that a later try may cure.
type transientError struct {
	err error
	// after is how long the server asks to wait; 0 when it does not.
	after time.Duration
}

func (e *transientError) Error() string { return e.err.Error() }
func (e *transientError) Unwrap() error { return e.err }

func transient(err error) error { return &transientError{err: err} }

// classify decides what an error of the HTTP client means. The client's own text
// quotes URLs with their queries, so that it is left out.
func classify(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	var dns *net.DNSError
	var cert *tls.CertificateVerificationError
	var unknown x509.UnknownAuthorityError
	switch {
	case errors.Is(err, ErrRefused), errors.Is(err, ErrLimit), errors.Is(err, context.Canceled):
		return err
	case errors.As(err, &dns) && dns.IsNotFound:
		return err
	case errors.As(err, &cert), errors.As(err, &unknown):
		return fmt.Errorf("the server's certificate is not accepted: %w", err)
	}
	return transient(err)
}
