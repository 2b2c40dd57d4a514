// SPDX-License-Identifier: Apache-2.0

package fold

import (
	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
)

// known is a record as it is committed, with the revision that its next
// replacement must expect. Only parents are replaced with an expectation; the
// fold alone writes the records of other kinds.
type known struct {
	record job.Record
	rev    bus.Revision
}

// cache keeps the records used last. It has two generations: when the young one
// is full, the old one is dropped and the young one grows old, which costs less
// than keeping an order of use.
//
// What was used since the last release is pinned beyond that: an event whose
// record is dropped between its loading and its commit would count as that of an
// unknown job.
type cache struct {
	limit      int
	young, old map[job.ID]known
	pinned     map[job.ID]known
}

// newCache keeps at least half of limit records and at most limit, besides the
// pinned ones.
func newCache(limit int) *cache {
	return &cache{limit: max(limit/2, 1), young: make(map[job.ID]known), pinned: make(map[job.ID]known)}
}

func (c *cache) get(id job.ID) (known, bool) {
	if k, ok := c.pinned[id]; ok {
		return k, true
	}
	k, ok := c.young[id]
	if !ok {
		k, ok = c.old[id]
	}
	if ok {
		c.put(id, k)
	}
	return k, ok
}

func (c *cache) put(id job.ID, k known) {
	c.pinned[id] = k
	if len(c.young) >= c.limit {
		c.old, c.young = c.young, make(map[job.ID]known, c.limit)
	}
	c.young[id] = k
}

func (c *cache) drop(id job.ID) {
	delete(c.pinned, id)
	delete(c.young, id)
	delete(c.old, id)
}

// release ends the pinning of what the last commit has used.
func (c *cache) release() { clear(c.pinned) }
