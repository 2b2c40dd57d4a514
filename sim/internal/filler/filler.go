// SPDX-License-Identifier: Apache-2.0

// Package filler makes content of any size without keeping it: the same size and seed give the same bytes.
package filler

import (
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
)

// blockSize is how many bytes share one block; blocks differ in their first eight bytes only.
const blockSize = 64 << 10

// Content is generated content. It is an io.ReadSeeker and an io.ReaderAt; copies are independent.
type Content struct {
	base [blockSize]byte
	size int64
	at   int64
}

// New returns content of size bytes.
func New(size int64, seed uint64) *Content {
	c := &Content{size: size}
	random := rand.New(rand.NewPCG(seed, blockSize))
	for i := 0; i < blockSize; i += 8 {
		binary.LittleEndian.PutUint64(c.base[i:], random.Uint64())
	}
	return c
}

// Size returns the number of bytes.
func (c *Content) Size() int64 { return c.size }

// Fork returns a reader of the same content from its start.
func (c *Content) Fork() *Content {
	out := *c
	out.at = 0
	return &out
}

// ReadAt fills b from an offset.
func (c *Content) ReadAt(b []byte, off int64) (int, error) {
	if off < 0 {
		return 0, errors.New("negative offset")
	}
	n := 0
	for n < len(b) && off < c.size {
		in := int(off % blockSize)
		take := min(len(b)-n, blockSize-in, int(min(c.size-off, blockSize)))
		copy(b[n:n+take], c.base[in:in+take])
		if in < 8 {
			var head [8]byte
			binary.LittleEndian.PutUint64(head[:], binary.LittleEndian.Uint64(c.base[:8])^uint64(off/blockSize))
			copy(b[n:n+take], head[in:])
		}
		n += take
		off += int64(take)
	}
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

// Read reads on from the last position.
func (c *Content) Read(b []byte) (int, error) {
	if c.at >= c.size {
		return 0, io.EOF
	}
	n, _ := c.ReadAt(b, c.at)
	c.at += int64(n)
	return n, nil
}

// Seek sets the position of the next Read.
func (c *Content) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += c.at
	case io.SeekEnd:
		offset += c.size
	}
	if offset < 0 {
		return 0, errors.New("position before the start")
	}
	c.at = offset
	return offset, nil
}
