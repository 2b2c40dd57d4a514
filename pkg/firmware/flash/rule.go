// SPDX-License-Identifier: Apache-2.0

package flash

import (
	"fmt"
	"strings"
)

// Rule is where a product leaves the ways of its family. The zero Rule follows
// them.
type Rule struct {
	// Item is asked first; ok false leaves the target to the family. Its errors are
	// *Refusal.
	Item func(Target) (item Item, ok bool, err error)
	// Arrange makes the groups, in their order, of all items of a request. Its
	// errors are *Refusal.
	Arrange func([]Item, Options) ([]Group, error)
}

// File tells packages apart by the names of their files.
type File struct {
	// Suffix and Word are in the lower-case base name: one at its end, the other
	// anywhere.
	Suffix, Word string
}

// Fits reports whether a file is meant. The zero File means every one.
func (f File) Fits(name string) bool {
	name = strings.ToLower(name)
	return strings.HasSuffix(name, f.Suffix) && strings.Contains(name, f.Word)
}

// Refusal is why packages cannot be worked on as they are.
type Refusal struct {
	// Precondition says that another request would be taken, for example one with
	// activate; else it is something the product does not take at all.
	Precondition bool
	text         string
}

// Error says what is wrong, and what would be right.
func (r *Refusal) Error() string { return r.text }

// Invalid refuses what a product does not take.
func Invalid(format string, args ...any) *Refusal {
	return &Refusal{text: fmt.Sprintf(format, args...)}
}

// Precondition refuses what another request would allow.
func Precondition(format string, args ...any) *Refusal {
	return &Refusal{Precondition: true, text: fmt.Sprintf(format, args...)}
}
