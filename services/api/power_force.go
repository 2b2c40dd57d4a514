// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"fmt"
	"time"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
)

// besideJob stands in place of a lock for a change that goes beside a job. No
// message has this revision.
const besideJob = ^bus.Revision(0)

// goBeside writes into the history of the job that holds the node what is about to
// be done to it, and by whom. Without that nothing is done. A job that has ended, is
// gone, or has left the node by the time its history has the note is bus.ErrNotFound:
// the lock was read before, and whoever holds the node now must be told. Asked again
// with the same at, it writes one note.
func (h *hold) goBeside(ctx context.Context, ref node.Ref, holder job.ID, at time.Time) error {
	r, _, err := h.s.opts.Conn.Record(ctx, holder)
	if err != nil {
		return err
	}
	if r.State.Terminal() {
		return fmt.Errorf("job %s, which has ended: %w", holder, bus.ErrNotFound)
	}
	who := callerOf(ctx)
	note := job.Event{
		Kind: job.EventNote, ID: holder, RackID: r.RackID, NodeID: r.NodeID, Type: r.Type, Family: r.Family, At: at,
		Description: fmt.Sprintf("%s of node %s is forced beside this job by %s", h.op, ref, who),
	}
	if err := h.s.opts.Conn.PublishEvent(ctx, &note); err != nil {
		return err
	}
	lock, err := h.s.opts.Conn.Lock(ctx, ref)
	if err != nil {
		return err
	}
	if lock.GetJobId() != holder.String() {
		return fmt.Errorf("job %s, which has left the node: %w", holder, bus.ErrNotFound)
	}
	tellBeside(ctx, holder)
	h.s.log.WarnContext(ctx, "power operation forced beside a job", "rack", ref.RackID, "node", ref.NodeID,
		"job_id", holder.String(), "op", h.op, "caller", who)
	return nil
}
