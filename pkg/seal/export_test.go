// SPDX-License-Identifier: Apache-2.0

package seal

// Cached returns the number of data keys in memory.
func (o *Opener) Cached() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.cache.order.Len()
}
