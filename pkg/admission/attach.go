// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"fmt"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/tracing"
)

// Texts of a whole request that its parent cannot take, beside that of pkg/job.
const (
	textStopping = "job %s takes no child: it was asked to stop"
	textNoBatch  = "job %s takes no child: it is not a batch"
	textInWaves  = "job %s takes no child: it starts its nodes in waves"
)

// What a request to attach must not come with. A repetition needs no key to be
// harmless, as its nodes are held by the first; and the directories to remove
// are those that the parent was admitted with.
var (
	errKeyOnAttach     = errors.New("admission: attaching takes no idempotency key")
	errCleanupOnAttach = errors.New("admission: attaching takes no directories to remove")
)

// Attach gives the nodes of the request jobs of their own, as further children of
// a batch that has not ended. It waits for the batch's own admission to be
// complete. The children may start at once, chunk by chunk, and the parent does
// not end without them.
//
// A *Refusal is the refusal of the whole request: the parent does not exist, has
// ended, was asked to stop, or is no batch. A parent for which that becomes true
// meanwhile refuses the nodes that are left. Refused nodes are told to the caller
// only; what is kept of the parent's are those of its own admission. Jobs on a
// single node and coordinators take no children: the fold alone writes their
// records.
func (a *Admitter) Attach(ctx context.Context, parent job.ID, req Request) (Result, error) {
	if req.Idempotency.Key != "" {
		return Result{}, errKeyOnAttach
	}
	if len(req.Cleanup) > 0 {
		return Result{}, errCleanupOnAttach
	}
	if req.Reserve != nil {
		return Result{}, errReservation
	}
	if req.Rollout != nil {
		return Result{}, errRollout
	}
	ctx, cancel := context.WithTimeout(ctx, a.opts.Limit)
	defer cancel()
	if a.draining.Load() {
		return Result{}, &Refusal{Code: job.FailureShuttingDown, Message: job.ShutdownText()}
	}
	if err := a.awaitAdmitted(ctx, parent); err != nil {
		return Result{}, err
	}
	b := newBatch(a, &req, parent, false)
	b.traceparent = tracing.Parent(ctx)
	b.extends, b.created = true, true
	return a.finish(ctx, b, b.admitAll(ctx))
}

// awaitAdmitted waits until the parent's own children are attached, so that their
// indexes stay in one piece. It waits here and not in the committing goroutine,
// which others need.
func (a *Admitter) awaitAdmitted(ctx context.Context, id job.ID) error {
	if id.IsZero() || !id.IsTopLevel() {
		return unusable(job.ParentUnusableText(id))
	}
	for {
		var r job.Record
		err := a.ride(ctx, func(ctx context.Context) error {
			var err error
			if r, _, err = a.opts.Conn.Record(ctx, id); errors.Is(err, bus.ErrNotFound) {
				return nil // the zero record
			}
			return err
		})
		if err != nil {
			return err
		}
		if refusal := takesChildren(id, &r); refusal != nil {
			return refusal
		}
		if r.Admitted {
			return nil
		}
		if err := pause(ctx, a.opts.BrokerPause); err != nil {
			return fmt.Errorf("admission of job %s is still under way: %w: %w", id, bus.ErrUnavailable, err)
		}
	}
}

// takesChildren returns why a job takes no further children, as an error that is
// a *Refusal, and nil when it does. r is the zero record for a job that does not
// exist.
func takesChildren(id job.ID, r *job.Record) error {
	switch {
	case !r.Exists(), r.State.Terminal():
		return unusable(job.ParentUnusableText(id))
	case r.Kind != job.KindParent:
		return unusable(fmt.Sprintf(textNoBatch, id))
	case r.Rollout != nil:
		return unusable(fmt.Sprintf(textInWaves, id))
	case r.Cancel != nil:
		return unusable(fmt.Sprintf(textStopping, id))
	}
	return nil
}

func unusable(message string) *Refusal {
	return &Refusal{Code: job.FailureParentUnusable, Message: message}
}

// planParent takes over the parent as it was read for this round. done says that
// it takes none of the share's nodes.
func (s *share) planParent(parent *job.Record, rev bus.Revision) (done bool, err error) {
	s.parent, s.parentRev = *parent, rev
	if s.b.extends {
		err := takesChildren(s.b.id, parent)
		if err == nil {
			return false, nil
		}
		if s.b.attached == 0 {
			return false, err
		}
		s.refuseAll(err.Error())
		return true, nil
	}
	switch {
	case parent.Admitted || parent.State.Terminal():
		s.refuseAll(fmt.Sprintf(textClosed, s.b.id))
		return true, nil
	case parent.Cancel != nil:
		s.b.closed = textStopped
	}
	return false, nil
}
