// SPDX-License-Identifier: Apache-2.0

package job

import (
	"iter"
	"math/bits"
)

// ChildSet is a set of children in one bit each: child i, counted from 1, is bit
// (i-1)%8 of byte (i-1)/8, bit 0 being the lowest. The bytes are never changed in
// place.
type ChildSet []byte

// Has reports whether child i is in the set.
func (s ChildSet) Has(i uint32) bool {
	return i > 0 && int((i-1)/8) < len(s) && s[(i-1)/8]>>((i-1)%8)&1 == 1
}

// With returns a copy that has the children too. Those not in 1..MaxChildren are
// left out.
func (s ChildSet) With(children ...uint32) ChildSet {
	var most uint32
	for _, i := range children {
		if i <= MaxChildren {
			most = max(most, i)
		}
	}
	w := make(ChildSet, max(len(s), int((most+7)/8)))
	copy(w, s)
	for _, i := range children {
		if i > 0 && i <= MaxChildren {
			w[(i-1)/8] |= 1 << ((i - 1) % 8)
		}
	}
	return w
}

// Len is how many children the set has.
func (s ChildSet) Len() uint32 {
	var n uint32
	for _, b := range s {
		n += uint32(bits.OnesCount8(b))
	}
	return n
}

// All yields the children of the set in order.
func (s ChildSet) All() iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		for at, b := range s {
			for ; b != 0; b &= b - 1 {
				i := uint32(8*at + bits.TrailingZeros8(b) + 1)
				if !yield(i) {
					return
				}
			}
		}
	}
}
