// SPDX-License-Identifier: Apache-2.0

// Package secret holds credentials in memory without letting them be printed.
package secret

import (
	"bytes"
	"log/slog"
)

// mask is what every printing path shows in place of the value.
const mask = "[redacted]"

// Value is a secret kept in memory. Formatting, logging and marshalling show a
// mask; only Reveal and Bytes give the content. The zero Value is empty.
type Value struct{ b []byte }

// New returns a Value with its own copy of s.
func New(s string) Value { return Value{b: []byte(s)} }

// FromBytes returns a Value that takes ownership of b.
func FromBytes(b []byte) Value { return Value{b: b} }

// Reveal returns the secret as text. Call it only where it leaves the process
// over an authenticated channel.
func (v Value) Reveal() string { return string(v.b) }

// Bytes returns the backing bytes. They become zero after Wipe.
func (v Value) Bytes() []byte { return v.b }

// Empty reports whether there is no secret.
func (v Value) Empty() bool { return len(v.b) == 0 }

// Clone returns a Value with bytes of its own, for who wipes what it was given.
func (v Value) Clone() Value { return Value{b: bytes.Clone(v.b)} }

// Wipe overwrites the secret. Copies of the Value share the bytes and are wiped too.
func (v Value) Wipe() { clear(v.b) }

// String masks the value.
func (v Value) String() string { return mask }

// GoString masks the value for %#v.
func (v Value) GoString() string { return mask }

// MarshalText masks the value in JSON, TOML and other encodings.
func (v Value) MarshalText() ([]byte, error) { return []byte(mask), nil }

// UnmarshalText takes the secret from a configuration source.
func (v *Value) UnmarshalText(text []byte) error {
	v.b = append([]byte(nil), text...)
	return nil
}

// LogValue masks the value in slog records.
func (v Value) LogValue() slog.Value { return slog.StringValue(mask) }
