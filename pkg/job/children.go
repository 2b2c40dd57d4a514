// SPDX-License-Identifier: Apache-2.0

package job

import "iter"

// MaxChildren is the most children a job may have. Their states then take 512 KiB,
// half of what one message may carry by default.
const MaxChildren = 1 << 20

// ChildStates holds the states of a parent's children in four bits each: child i,
// counted from 1, is in byte (i-1)/2, odd children in the low half. A child that
// is not known yet reads StateUnspecified. The bytes are never changed in place.
type ChildStates []byte

// Get returns the state of child i.
func (v ChildStates) Get(i uint32) State {
	if i == 0 || int((i-1)/2) >= len(v) {
		return StateUnspecified
	}
	return State(v[(i-1)/2] >> shift(i) & 0x0f)
}

// With returns a copy in which child i is in state s, grown as needed. It returns
// v itself when i is not in 1..MaxChildren.
func (v ChildStates) With(i uint32, s State) ChildStates {
	if i == 0 || i > MaxChildren {
		return v
	}
	w := v.resized(i)
	w.set(i, s)
	return w
}

// Fill returns a copy in which every unknown child of 1..total is in state s, and
// how many those were.
func (v ChildStates) Fill(total uint32, s State) (ChildStates, uint32) {
	if total == 0 || total > MaxChildren {
		return v, 0
	}
	w := v.resized(total)
	var filled uint32
	for i := uint32(1); i <= total; i++ {
		if w.Get(i) == StateUnspecified {
			w.set(i, s)
			filled++
		}
	}
	return w, filled
}

// Select yields the indexes of the children whose state is wanted, in order.
// Unknown children are never asked for.
func (v ChildStates) Select(wanted func(State) bool) iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		for i := uint32(1); i <= uint32(2*len(v)); i++ {
			if s := v.Get(i); s != StateUnspecified && wanted(s) && !yield(i) {
				return
			}
		}
	}
}

// resized returns a copy with room for child i.
func (v ChildStates) resized(i uint32) ChildStates {
	w := make(ChildStates, max(len(v), int((i+1)/2)))
	copy(w, v)
	return w
}

func (v ChildStates) set(i uint32, s State) {
	b := &v[(i-1)/2]
	*b = *b&^(0x0f<<shift(i)) | byte(s)<<shift(i)
}

// shift is 0 for odd children and 4 for even ones.
func shift(i uint32) uint32 { return (i - 1) % 2 * 4 }
