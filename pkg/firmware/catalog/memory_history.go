// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"context"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// RecordApply implements History.
func (m *Memory) RecordApply(_ context.Context, a *Apply) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	a = proto.CloneOf(a)
	a.V, a.AppliedAt = recordVersion, timestamppb.Now()
	m.history = append(m.history, a)
	return nil
}

// TrimHistory implements History.
func (m *Memory) TrimHistory(_ context.Context, keep int) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := max(len(m.history)-keep, 0)
	m.history = slices.Delete(m.history, 0, n)
	return n, nil
}

// ListHistory implements History.
func (m *Memory) ListHistory(_ context.Context, f HistoryFilter) ([]HistoryEntry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []HistoryEntry
	for _, a := range slices.Backward(m.history) {
		if applied(a, f) {
			out = append(out, HistoryEntry{proto.CloneOf(a), m.objects[a.GetObjectId()].GetAvailable()})
		}
	}
	return out, nil
}
