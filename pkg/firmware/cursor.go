// SPDX-License-Identifier: Apache-2.0

package firmware

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"strings"
	"time"
	"unicode/utf16"
)

// cursor reads little-endian fields one after the other. After the first error it
// reads zeros, so that a reader of many fields looks at err once.
type cursor struct {
	r      io.Reader
	offset int64
	// sum takes all bytes that are read; nil takes none.
	sum hash.Hash32
	// room is how many more bytes may be kept; 0 is no bound.
	room int
	err  error
}

func (c *cursor) fail(at int64, field string, err error) {
	if c.err == nil {
		c.err = &FormatError{Offset: at, Field: field, Err: err}
	}
}

func (c *cursor) bytes(field string, n int) []byte {
	if c.err == nil && c.room > 0 && n >= c.room {
		c.fail(c.offset, field, fmt.Errorf("a header has at most %d bytes", maxHeader))
	}
	if c.err != nil {
		return nil
	}
	if c.room > 0 {
		c.room -= n
	}
	buf := make([]byte, n)
	read, err := io.ReadFull(c.r, buf)
	if err != nil {
		c.fail(c.offset, field, truncated(err))
		return nil
	}
	if c.sum != nil {
		c.sum.Write(buf)
	}
	c.offset += int64(read)
	return buf
}

// skip passes over n bytes and tells where they lie.
func (c *cursor) skip(field string, n int64) Section {
	s := Section{Offset: c.offset, Size: n}
	if c.err != nil {
		return Section{}
	}
	sink := io.Discard
	if c.sum != nil {
		sink = c.sum
	}
	skipped, err := io.CopyN(sink, c.r, n)
	if err != nil {
		c.fail(c.offset, field, truncated(err))
		return Section{}
	}
	c.offset += skipped
	return s
}

func truncated(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func (c *cursor) u8(field string) uint8 {
	if b := c.bytes(field, 1); b != nil {
		return b[0]
	}
	return 0
}

func (c *cursor) u16(field string) uint16 {
	if b := c.bytes(field, 2); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

func (c *cursor) u32(field string) uint32 {
	if b := c.bytes(field, 4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

// record reads the length of a record and gives a cursor over its rest. What the
// rest holds behind the last field that is known is left alone: later revisions
// of the standard append fields.
func (c *cursor) record(field string) *cursor {
	at := c.offset
	length := int(c.u16(field + " length"))
	if c.err == nil && length < 2 {
		c.fail(at, field+" length", fmt.Errorf("%d is too short", length))
	}
	start := c.offset
	raw := c.bytes(field, max(length-2, 0))
	return &cursor{r: bytes.NewReader(raw), offset: start, err: c.err}
}

// bitmap reads a component bitmap of a width in bits.
func (c *cursor) bitmap(width int) uint64 {
	var mask uint64
	for i, b := range c.bytes("component bitmap", (width+7)/8) {
		mask |= uint64(b) << (8 * i)
	}
	return mask
}

// text reads a string of one of the string types of DSP0267: 1 ASCII, 2 UTF-8, 3
// and 4 UTF-16 little-endian, 5 UTF-16 big-endian. Others are read as UTF-8.
func (c *cursor) text(field string, kind uint8, length int) string {
	raw := c.bytes(field, length)
	var order binary.ByteOrder = binary.LittleEndian
	switch kind {
	case 5:
		order = binary.BigEndian
	case 3, 4:
	default:
		return strings.TrimRight(strings.ToValidUTF8(string(raw), "\uFFFD"), "\x00")
	}
	units := make([]uint16, 0, len(raw)/2)
	for i := 0; i+1 < len(raw); i += 2 {
		units = append(units, order.Uint16(raw[i:]))
	}
	return strings.TrimRight(strings.TrimPrefix(string(utf16.Decode(units)), "\uFEFF"), "\x00")
}

// timestamp reads a timestamp104 of DSP0240: offset in minutes, microseconds,
// second, minute, hour, day, month, year, resolution.
func timestamp(b []byte) time.Time {
	if len(b) != 13 {
		return time.Time{}
	}
	zone := int(int16(binary.LittleEndian.Uint16(b)))
	micros := int(b[2]) | int(b[3])<<8 | int(b[4])<<16
	year, month, day := int(binary.LittleEndian.Uint16(b[10:])), int(b[9]), int(b[8])
	hour, minute, second := int(b[7]), int(b[6]), int(b[5])
	if year == 0 || month < 1 || month > 12 || day < 1 || day > 31 || hour > 23 || minute > 59 || second > 60 || micros > 999_999 {
		return time.Time{}
	}
	at := time.Date(year, time.Month(month), day, hour, minute, second, micros*1000, time.UTC)
	return at.Add(-time.Duration(zone) * time.Minute)
}
