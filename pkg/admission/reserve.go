// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// MaxReserved is how many nodes one job may keep from others: they are locked and
// released in one transaction each.
const MaxReserved = 240

// Reservation is what a job keeps from others beside its own node, all of it or
// nothing.
type Reservation struct {
	// Nodes of the same rack. The first that is busy refuses the job.
	Nodes []node.Ref
	// RackPower takes the power guard of the rack too.
	RackPower bool
	// Operation names the job to who meets the guard.
	Operation string
}

var errReservation = errors.New("admission: unusable reservation")

// AdmitCoordinator admits one top-level job that drives several nodes of a rack,
// which are reserved for it in the same transaction. Its own node, the only one of
// the request, stands for what may run once at a time. Nothing waits: a busy node
// or rack is a *Refusal, and other errors are those of AdmitLeaf.
func (a *Admitter) AdmitCoordinator(ctx context.Context, req Request) (Result, error) {
	if err := checkReservation(&req); err != nil {
		return Result{}, err
	}
	req.OnBusy = OnBusyRefuse
	return a.AdmitLeaf(ctx, req)
}

func checkReservation(req *Request) error {
	switch {
	case req.Reserve == nil || len(req.Nodes) != 1:
		return fmt.Errorf("%w: a coordinator has one node of its own and reserves others", errReservation)
	case len(req.Reserve.Nodes) > MaxReserved:
		return &Refusal{
			Code: job.FailureInvalidArgument, Message: fmt.Sprintf("%d nodes are more than the %d that one job can reserve",
				len(req.Reserve.Nodes), MaxReserved),
		}
	}
	own := req.Nodes[0].Ref
	seen := map[node.Ref]bool{own: true}
	for _, ref := range req.Reserve.Nodes {
		if err := bus.CheckRef(ref); err != nil {
			return &Refusal{Code: job.FailureInvalidArgument, Message: err.Error()}
		}
		if ref.RackID != own.RackID || seen[ref] {
			return fmt.Errorf("%w: node %s is of another rack or named twice", errReservation, ref)
		}
		seen[ref] = true
	}
	return nil
}

// reserved returns the nodes that are locked beside those that get jobs.
func (s *share) reserved() []node.Ref {
	if s.b.req.Reserve == nil {
		return nil
	}
	return s.b.req.Reserve.Nodes
}

// refs returns every node whose lock the share changes: those that get jobs, then
// the reserved ones.
func (s *share) refs() []node.Ref {
	refs := make([]node.Ref, 0, len(s.nodes)+len(s.reserved()))
	for _, index := range s.nodes {
		refs = append(refs, s.ref(index))
	}
	return append(refs, s.reserved()...)
}

// decideReserved refuses the coordinator when something that it needs is not free:
// the rack's power guard, then the first busy node. locks are those of the
// reserved nodes.
func (s *share) decideReserved(ctx context.Context, locks []bus.Lock) error {
	r := s.b.req.Reserve
	if r == nil {
		return nil
	}
	p, now := &s.plans[0], time.Now()
	s.locks = append(s.locks[:0], locks...)
	if r.RackPower {
		rack := s.ref(p.index).RackID
		guard, err := s.b.a.opts.Conn.RackGuard(ctx, rack)
		if err != nil {
			return err
		}
		switch {
		case guard.Free(now):
			s.guard = guard.Revision
		case guard.GetHolder() == s.b.id.String():
			s.uncertain = true
			return errLanded
		default:
			p.refusal = &Refusal{Code: job.FailureNodeBusy, Message: job.RackBusyText(rack)}
			return nil
		}
	}
	for i, ref := range r.Nodes {
		if s.locks[i].Free(now) {
			continue
		}
		lock, refusal, err := s.lookAgain(ctx, ref)
		if errors.Is(err, errLanded) {
			s.uncertain = true
		}
		if err != nil {
			return err
		}
		if refusal != nil {
			p.refusal = refusal
			return nil
		}
		s.locks[i] = lock
	}
	return nil
}

// writeReserved adds the locks of the reserved nodes and the guard of their rack.
func (s *share) writeReserved(tx *bus.Tx, id job.ID) {
	r := s.b.req.Reserve
	if r == nil {
		return
	}
	for i, ref := range r.Nodes {
		tx.HoldNode(ref, &rackbusv1.NodeLock{
			V: 1, JobId: id.String(), Type: string(s.b.req.Type), Since: timestamppb.New(s.now),
		}, s.locks[i].Revision)
	}
	if r.RackPower {
		tx.HoldRack(s.ref(s.nodes[0]).RackID, &rackbusv1.RackPower{
			V: 1, Holder: id.String(), Operation: r.Operation,
		}, s.guard)
	}
}

// topRecord is the record of a job without parent.
func (s *share) topRecord(spec job.Spec) job.Record {
	r := s.b.req.Reserve
	if r == nil {
		return job.NewLeaf(spec)
	}
	ids := make([]string, len(r.Nodes))
	for i, ref := range r.Nodes {
		ids[i] = ref.NodeID
	}
	return job.NewCoordinator(spec, ids, r.RackPower)
}
