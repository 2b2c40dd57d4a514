// SPDX-License-Identifier: Apache-2.0

package manifest

import "fmt"

// Kind is what is wrong with a manifest, or with what is asked of it.
type Kind string

// The kinds of errors.
const (
	// KindSyntax is text that is no JSON object.
	KindSyntax Kind = "syntax"
	// KindIdentity is a manifest from which no id can be made.
	KindIdentity Kind = "identity"
	// KindFirmware is a fault among the firmware packages.
	KindFirmware Kind = "firmware"
	// KindImage is a fault among the switch images.
	KindImage Kind = "image"
	// KindDigest is a digest that is none.
	KindDigest Kind = "digest"
	// KindSelection is a component filter that cannot be followed.
	KindSelection Kind = "selection"
	// KindTargets is a node type for which the manifest holds nothing.
	KindTargets Kind = "targets"
	// KindNoTargets says that nothing was left of the node types.
	KindNoTargets Kind = "no_targets"
)

// Error is a refused manifest or request. Decide by Kind; the message is for people.
type Error struct {
	Kind    Kind
	Message string
}

// Error returns the message for people.
func (e *Error) Error() string { return e.Message }

// Is reports whether target is an *Error of the same kind.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Kind == e.Kind
}

// What callers put in front of faults, by the part of the manifest they are in.
const (
	prefixFirmware = "invalid firmware release catalog in config_json: "
	prefixImage    = "invalid switch system image data: "
	prefixSyntax   = "invalid config_json: "
)

func errorf(k Kind, format string, args ...any) *Error {
	return &Error{Kind: k, Message: fmt.Sprintf(format, args...)}
}
