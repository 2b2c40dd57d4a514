// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
)

// readParallel bounds the single reads at the leader that one round makes.
const readParallel = 16

// decide plans every node of the share by its lock.
func (s *share) decide(ctx context.Context, locks []bus.Lock) error {
	now := time.Now()
	s.plans = make([]plan, len(s.nodes))
	var busy []*plan
	for i, index := range s.nodes {
		s.plans[i] = plan{index: index, lock: locks[i]}
		if !locks[i].Free(now) {
			busy = append(busy, &s.plans[i])
		}
	}
	err := inParallel(busy, func(p *plan) error { return s.decideBusy(ctx, p) })
	if errors.Is(err, errLanded) {
		s.uncertain = true
	}
	return err
}

// decideBusy decides about a node that looked busy. What looked so on a replica
// may be free at the leader.
func (s *share) decideBusy(ctx context.Context, p *plan) error {
	ref := s.ref(p.index)
	lock, refusal, err := s.lookAgain(ctx, ref)
	if err != nil {
		return err
	}
	p.lock = lock
	if refusal == nil {
		return nil
	}
	policy := s.b.a.opts.onBusy(s.b.req.Type, s.b.req.OnBusy)
	if policy == OnBusyRefuse || s.b.req.Rollout != nil || refusal.Holder.IsZero() || s.b.req.Nodes[p.index].Ended != nil {
		p.refusal = refusal
		return nil
	}
	if waiting := len(lock.GetQueue()); waiting >= s.b.a.opts.MaxParked {
		refusal.Message = job.QueueFullText(ref.RackID, ref.NodeID, refusal.Holder, waiting)
		p.refusal = refusal
		return nil
	}
	if policy == OnBusySupersede {
		started, err := s.b.a.started(ctx, refusal.Holder)
		if err != nil {
			return err
		}
		if started {
			p.refusal = refusal
			return nil
		}
	}
	p.park, p.holder = true, refusal.Holder
	return nil
}

// lookAgain reads at the leader the lock of a node that looked busy, and returns
// why it is, nil when it is not.
func (s *share) lookAgain(ctx context.Context, ref node.Ref) (bus.Lock, *Refusal, error) {
	lock, err := s.b.a.opts.Conn.Lock(ctx, ref)
	if err != nil {
		return lock, nil, err
	}
	refusal := BusyRefusal(ref, lock, time.Now())
	if refusal != nil && !refusal.Holder.IsZero() && refusal.Holder.SameFamily(s.b.id) && !s.sibling(refusal.Holder) {
		// The node is held by this very admission: an earlier try has landed.
		return lock, nil, errLanded
	}
	return lock, refusal, nil
}

// sibling reports whether a child of the batch that the share extends is older
// than this round, and so not what an earlier try of the share has made: the
// round has looked for that after it had read the parent.
func (s *share) sibling(id job.ID) bool { return s.b.extends && id.Index() <= s.parent.Total }

// errLanded makes a round start again, because a node is held by the admission
// that asks for it.
var errLanded = errors.Join(errors.New("admission: an earlier try has been committed"), bus.ErrConflict)

// inParallel calls do for every item, at most readParallel at a time, and returns
// the errors joined.
func inParallel[T any](items []T, do func(T) error) error {
	if len(items) == 1 {
		return do(items[0])
	}
	slots := make(chan struct{}, readParallel)
	errs := make([]error, len(items))
	var wg sync.WaitGroup
	for i, item := range items {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			errs[i] = do(item)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// CheckFree reads a node's lock at the leader and returns why the node is busy,
// nil when it is free or the type's jobs may wait.
func (a *Admitter) CheckFree(ctx context.Context, t job.Type, asked OnBusy, ref node.Ref) (*Refusal, error) {
	if a.opts.onBusy(t, asked) != OnBusyRefuse {
		return nil, nil
	}
	lock, err := a.opts.Conn.Lock(ctx, ref)
	if err != nil {
		return nil, err
	}
	return BusyRefusal(ref, lock, time.Now()), nil
}
