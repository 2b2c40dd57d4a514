// SPDX-License-Identifier: Apache-2.0

// Package share decides how many partitions one of several replicas takes. It
// only serves an even load: what happens when replicas count differently is
// decided by the leases and cursors of the partitions.
package share

import (
	"context"
	"slices"
	"sync"
)

// Share is what one replica holds of the partitions.
type Share struct {
	mu         sync.Mutex
	partitions int
	replicas   int
	held       map[int]context.CancelFunc
}

// New returns the share of a replica that knows of no other one.
func New(partitions int) *Share {
	return &Share{partitions: partitions, replicas: 1, held: make(map[int]context.CancelFunc)}
}

// fair is how many partitions a replica takes when all are alive.
func fair(partitions, replicas int) int {
	replicas = max(replicas, 1)
	return (partitions + replicas - 1) / replicas
}

// Room reports whether the replica may take one more partition.
func (s *Share) Room() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.held) < fair(s.partitions, s.replicas)
}

// Take notes that the replica is active for a partition until yield is called
// or Drop.
func (s *Share) Take(partition int, yield context.CancelFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[partition] = yield
}

// Drop notes that the replica is no longer active for a partition.
func (s *Share) Drop(partition int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.held, partition)
}

// Held returns the partitions held, in order.
func (s *Share) Held() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]int, 0, len(s.held))
	for p := range s.held {
		out = append(out, p)
	}
	slices.Sort(out)
	return out
}

// Balance takes the number of living replicas and yields what is held beyond the
// fair share. Partition 0 goes last, because more work hangs on it.
func (s *Share) Balance(replicas int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replicas = max(replicas, 1)
	surplus := len(s.held) - fair(s.partitions, s.replicas)
	for p := s.partitions - 1; p >= 0 && surplus > 0; p-- {
		if yield, ok := s.held[p]; ok {
			yield()
			surplus--
		}
	}
}
