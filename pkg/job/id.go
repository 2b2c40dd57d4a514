// SPDX-License-Identifier: Apache-2.0

package job

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
)

const (
	idRandomLen = 12 // leading random bytes, shared by a family
	idTextLen   = 36 // lower-case UUID text
	prefixLen   = 2 * idRandomLen
)

// ID names a job. The first 12 bytes are random and shared by a top-level job
// and its children; the last 4 are the child's index in big-endian order, 0 for
// the top-level job. Every ID is a valid version 4 UUID. The zero ID names no job.
type ID [16]byte

// InvalidIDError says that a text is not the id of any job.
type InvalidIDError struct {
	// Text is what was given, cut to 64 bytes.
	Text string
}

// Error describes the text that was refused.
func (e *InvalidIDError) Error() string { return fmt.Sprintf("invalid job id %q", e.Text) }

// NewFamily draws the id of a new top-level job from random. It fails only when
// random does.
func NewFamily(random io.Reader) (ID, error) {
	var id ID
	if _, err := io.ReadFull(random, id[:idRandomLen]); err != nil {
		return ID{}, fmt.Errorf("draw job id: %w", err)
	}
	id[6] = id[6]&0x0f | 0x40 // UUID version 4, RFC 9562 section 5.4
	id[8] = id[8]&0x3f | 0x80 // UUID variant, RFC 9562 section 4.1
	return id, nil
}

// ParseID reads an id in the form that String writes. Any other text, upper-case
// UUIDs included, gives an *InvalidIDError: there is no such job.
func ParseID(text string) (ID, error) {
	var id ID
	if !parseUUID(&id, text) || id[6]>>4 != 4 || id[8]>>6 != 2 {
		return ID{}, &InvalidIDError{Text: text[:min(len(text), 64)]}
	}
	return id, nil
}

// parseUUID fills id from lower-case UUID text without allocating.
func parseUUID(id *ID, text string) bool {
	if len(text) != idTextLen {
		return false
	}
	n := 0
	for i := 0; i < idTextLen; {
		if i == 8 || i == 13 || i == 18 || i == 23 {
			if text[i] != '-' {
				return false
			}
			i++
			continue
		}
		hi, lo := hexDigit(text[i]), hexDigit(text[i+1])
		if hi > 0x0f || lo > 0x0f {
			return false
		}
		id[n] = hi<<4 | lo
		n++
		i += 2
	}
	return true
}

// hexDigit returns the value of a lower-case hex digit, or 0xff.
func hexDigit(c byte) byte {
	switch {
	case c >= '0' && c <= '9':
		return c - '0'
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10
	}
	return 0xff
}

// Child returns the id of the i-th child of id's family, counted from 1.
// Child(0) is the top-level job.
func (id ID) Child(i uint32) ID {
	binary.BigEndian.PutUint32(id[idRandomLen:], i)
	return id
}

// Parent returns the top-level job of the family; a top-level job is its own.
func (id ID) Parent() ID { return id.Child(0) }

// Index returns the position of the job in its family, 0 for the top-level job.
func (id ID) Index() uint32 { return binary.BigEndian.Uint32(id[idRandomLen:]) }

// IsTopLevel reports whether the job has no parent.
func (id ID) IsTopLevel() bool { return id.Index() == 0 }

// IsZero reports whether the id names no job.
func (id ID) IsZero() bool { return id == ID{} }

// SameFamily reports whether both ids share a top-level job.
func (id ID) SameFamily(other ID) bool { return id.Parent() == other.Parent() }

// Prefix returns what all ids of the family begin with, as 24 hex digits.
func (id ID) Prefix() string {
	var b [prefixLen]byte
	hex.Encode(b[:], id[:idRandomLen])
	return string(b[:])
}

// Partition returns which of p fold partitions the family belongs to. The first
// byte is random, so families spread evenly. It panics unless p is in 1..256.
func (id ID) Partition(p int) int {
	if p < 1 || p > 256 {
		panic(fmt.Sprintf("job: %d partitions, want 1 to 256", p))
	}
	return int(id[0]) % p
}

// String returns lower-case UUID text.
func (id ID) String() string {
	var b [idTextLen]byte
	hex.Encode(b[0:8], id[0:4])
	b[8] = '-'
	hex.Encode(b[9:13], id[4:6])
	b[13] = '-'
	hex.Encode(b[14:18], id[6:8])
	b[18] = '-'
	hex.Encode(b[19:23], id[8:10])
	b[23] = '-'
	hex.Encode(b[24:36], id[10:16])
	return string(b[:])
}

// MarshalText gives the UUID text, so that logs and JSON show it.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (id *ID) UnmarshalText(text []byte) error {
	parsed, err := ParseID(string(text))
	if err != nil {
		return err
	}
	*id = parsed
	return nil
}
