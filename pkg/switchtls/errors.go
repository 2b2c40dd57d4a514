// SPDX-License-Identifier: Apache-2.0

package switchtls

import (
	"errors"
	"fmt"
	"strings"
)

var (
	// ErrNoDomain says that neither the request nor the configuration names a domain.
	ErrNoDomain = errors.New("domain was not provided and default_switch_domain is not configured")
	// ErrDomainSyntax says that a domain is not the name of one folder.
	ErrDomainSyntax = errors.New("a switch domain must be one folder name")
	// ErrNoRoot says that the configuration names no directory for the material.
	ErrNoRoot = errors.New("TLS material directory is not configured")
	// ErrMissingFile says that a file of the domain does not exist or is no file.
	ErrMissingFile = errors.New("TLS material is missing a file")
	// ErrInvalid says that a file cannot be read or parsed, or that certificate
	// and key do not belong together.
	ErrInvalid = errors.New("TLS material is unusable")
	// ErrUnstable says that the files kept changing while they were read. A later
	// call may succeed.
	ErrUnstable = errors.New("TLS material keeps changing")
)

// Error is a failure to find the material of a domain. It carries no content of
// any file.
type Error struct {
	// Kind is one of the sentinels of this package.
	Kind error
	// Root is the configuration key of the root, for example "client_tls_root".
	Root string
	// Domain is empty when the fault comes before the domain is known.
	Domain string
	// Path is the file or directory concerned, if there is one.
	Path string

	cause error
}

// Error gives one line with the domain, the root and the file.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Kind.Error())
	if e.Domain != "" {
		fmt.Fprintf(&b, ": domain %q", e.Domain)
	}
	if e.Root != "" {
		fmt.Fprintf(&b, " (%s)", e.Root)
	}
	if e.Path != "" {
		b.WriteString(": " + e.Path)
	}
	if e.cause != nil {
		b.WriteString(": " + e.cause.Error())
	}
	return b.String()
}

// Unwrap gives the kind and the cause.
func (e *Error) Unwrap() []error {
	if e.cause == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.cause}
}

// Transient reports whether the same call may succeed a little later. Every
// other fault has to be repaired in the configuration or on the disk first.
func Transient(err error) bool { return errors.Is(err, ErrUnstable) }
