// SPDX-License-Identifier: Apache-2.0

package timers

import (
	"context"
	"fmt"
	"time"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// announce makes a batch known that had failed when it was created, unless its
// admission has done so.
func (h *Handler) announce(ctx context.Context, r *job.Record) error {
	if r.PublicN > 0 {
		return nil
	}
	return h.Conn.PublishEvent(ctx, &job.Event{
		Kind: job.EventQueued, ID: r.ID, RackID: r.RackID, Type: r.Type, At: r.CreatedAt,
	})
}

// admit closes an admission whose process has died between two chunks. The
// children that were attached run; the batch says that others were not reached.
// The fold marks the parent admitted, so that its state follows at once.
func (h *Handler) admit(ctx context.Context, r job.Record, rev bus.Revision) error {
	switch {
	case r.Kind != job.KindParent:
		return nil
	case r.State.Terminal():
		return h.announce(ctx, &r)
	case r.Admitted:
		return nil
	}
	note, err := h.Conn.Admission(ctx, r.ID)
	if err != nil {
		return err
	}
	if len(note.GetRefused()) == 0 {
		tx := h.Conn.Begin()
		// The parent must be as it was read: a chunk that arrives now is in time.
		tx.ReplaceRecord(&r, rev)
		tx.PutAdmission(r.ID, &rackbusv1.AdmissionRecord{V: 1, Refused: []*rackbusv1.RefusedNode{{
			RackId: r.RackID, Index: r.Total,
			Message: fmt.Sprintf("the admission was cut off after %d nodes; later ones were not reached", r.Total),
		}}})
		if _, err := tx.Commit(ctx); err != nil {
			return err
		}
	}
	h.Log.Warn("cut-off admission closed", "job_id", r.ID.String(), "rack", r.RackID, "children", r.Total)
	return h.Conn.PublishEvent(ctx, &job.Event{
		Kind: job.EventAdmitted, ID: r.ID, RackID: r.RackID, Type: r.Type, Total: r.Total, At: time.Now().UTC(),
	})
}
