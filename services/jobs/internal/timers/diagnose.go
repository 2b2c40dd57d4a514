// SPDX-License-Identifier: Apache-2.0

package timers

import (
	"context"

	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/services/jobs/internal/diagnose"
)

// Diagnoses start examinations; a *diagnose.Starter does. Start may be repeated.
type Diagnoses interface {
	Start(ctx context.Context, failed *job.Record) error
}

// diagnose has the node of a failed job examined.
func (h *Handler) diagnose(ctx context.Context, r *job.Record) error {
	if h.Diagnoses == nil || !diagnose.Wanted(r) {
		return nil // the setting has changed since the timer was armed
	}
	return h.Diagnoses.Start(ctx, r)
}

// dropEvidence removes what diagnoses of a family have left. Evidence of a family
// whose record is gone already ages out.
func (h *Handler) dropEvidence(ctx context.Context, r *job.Record) error {
	if r.Type != job.TypeNodeDiagnostics {
		return nil
	}
	if r.Kind != job.KindParent {
		return h.Conn.DropEvidence(ctx, r.ID)
	}
	// Side by side: those of thousands of nodes take longer than a timer may otherwise.
	ids := make([]job.ID, r.Total)
	for i := range r.Total {
		ids[i] = r.ID.Child(i + 1)
	}
	return inParallel(ids, func(id job.ID) error { return h.Conn.DropEvidence(ctx, id) })
}
