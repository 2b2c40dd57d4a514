// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"container/list"
	"crypto/cipher"
	"time"
)

// cacheID is everything that authenticates a wrapped data key. The sender is
// part of it so that a box with a forged sender does not profit from the cache.
type cacheID struct {
	keyID   string
	sender  string
	wrapped string
}

type cachedKey struct {
	id    cacheID
	aead  cipher.AEAD
	until time.Time
}

// keyCache keeps the most recently used data keys. Use renews an entry, so the
// list is ordered by expiry as well as by use. It does no locking.
type keyCache struct {
	size  int
	ttl   time.Duration
	order *list.List // of *cachedKey, most recently used first
	byID  map[cacheID]*list.Element
}

func newKeyCache(size int, ttl time.Duration) *keyCache {
	return &keyCache{size: size, ttl: ttl, order: list.New(), byID: make(map[cacheID]*list.Element)}
}

func (c *keyCache) get(id cacheID, now time.Time) (cipher.AEAD, bool) {
	c.dropExpired(now)
	e, ok := c.byID[id]
	if !ok {
		return nil, false
	}
	k := e.Value.(*cachedKey)
	k.until = now.Add(c.ttl)
	c.order.MoveToFront(e)
	return k.aead, true
}

func (c *keyCache) put(id cacheID, aead cipher.AEAD, now time.Time) {
	c.byID[id] = c.order.PushFront(&cachedKey{id: id, aead: aead, until: now.Add(c.ttl)})
	for c.order.Len() > c.size {
		c.remove(c.order.Back())
	}
}

func (c *keyCache) dropExpired(now time.Time) {
	for e := c.order.Back(); e != nil && !now.Before(e.Value.(*cachedKey).until); e = c.order.Back() {
		c.remove(e)
	}
}

func (c *keyCache) remove(e *list.Element) {
	delete(c.byID, e.Value.(*cachedKey).id)
	c.order.Remove(e)
}
