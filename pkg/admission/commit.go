// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
)

// maxTxMessages is what a transaction of several shares may hold: the capacity
// counter comes with it.
const maxTxMessages = bus.MaxTxMessages - 1

// run commits what waits. Being alone, the admissions of one process do not race
// each other for the capacity counter; they share transactions instead.
func (a *Admitter) run() {
	var waiting []*share
	for try := 0; ; try++ {
		waiting = a.receive(waiting)
		if a.ctx.Err() != nil {
			for _, s := range waiting {
				s.settle(ErrClosed)
			}
			return
		}
		group, rest := pick(waiting)
		again, wait := a.round(group, try)
		waiting = append(again, rest...)
		if len(again) == 0 {
			try = -1
			continue
		}
		if err := pause(a.ctx, wait); err != nil {
			continue
		}
	}
}

// receive adds what has arrived, and waits for something when there is nothing.
func (a *Admitter) receive(waiting []*share) []*share {
	if len(waiting) == 0 {
		select {
		case s := <-a.queue:
			waiting = append(waiting, s)
		case <-a.ctx.Done():
			return nil
		}
	}
	for {
		select {
		case s := <-a.queue:
			waiting = append(waiting, s)
		default:
			return waiting
		}
	}
}

// pick takes as many shares as fit into a transaction, in their order. Shares
// that name the same node, bring the same idempotency key, or extend the same
// batch do not go together: the broker refuses a transaction that expects the
// same of a key twice.
func pick(waiting []*share) (group, rest []*share) {
	taken, keys, parents := make(map[node.Ref]bool), make(map[string]bool), make(map[job.ID]bool)
	messages := 0
	for _, s := range waiting {
		fits := messages+s.messages() <= maxTxMessages && (len(group) == 0 || !s.alone && !group[0].alone)
		refs := s.refs()
		for _, ref := range refs {
			fits = fits && !taken[ref]
		}
		fits = fits && (s.b.key == "" || !keys[s.b.key]) && (!s.b.extends || !parents[s.b.id])
		if !fits {
			rest = append(rest, s)
			continue
		}
		group = append(group, s)
		messages += s.messages()
		keys[s.b.key], parents[s.b.id] = true, true
		for _, ref := range refs {
			taken[ref] = true
		}
	}
	return group, rest
}

// round tries to commit the group once. It returns the shares that need another
// try, and how long to wait before it.
func (a *Admitter) round(group []*share, try int) (again []*share, wait time.Duration) {
	group = dropEnded(group)
	if len(group) == 0 {
		return nil, 0
	}
	start := time.Now()
	ctx, cancel := context.WithDeadline(a.ctx, a.limit(group, start))
	defer cancel()
	open, err := a.attempt(ctx, group)
	if err == nil {
		a.failing = time.Time{}
		for _, s := range open {
			s.apply()
			s.settle(nil)
		}
		return nil, 0
	}
	return a.sortOut(ctx, open, err, try, start)
}

// attempt plans the group and commits it. It returns the shares that are not
// settled yet: the committed ones, or with an error all that need another try.
func (a *Admitter) attempt(ctx context.Context, group []*share) ([]*share, error) {
	var refs []node.Ref
	for _, s := range group {
		refs = append(refs, s.refs()...)
	}
	locks, err := a.opts.Conn.Locks(ctx, refs)
	if err != nil {
		return group, err
	}
	records, rev, err := a.opts.Conn.Capacity(ctx)
	if err != nil {
		return group, err
	}
	open, err := a.planAll(ctx, group, locks, int64(a.opts.MaxTrackedJobs)-records)
	if err != nil || len(open) == 0 {
		return open, err
	}
	tx := a.opts.Conn.Begin()
	for _, s := range open {
		records += s.records()
	}
	tx.SetCapacity(records, rev)
	for _, s := range open {
		if err := s.write(tx); err != nil {
			return open, err
		}
	}
	_, err = tx.Commit(ctx)
	return open, err
}

// limit is until when a round may go on: no longer than the first of its shares
// has, so that none waits beyond its time.
func (a *Admitter) limit(group []*share, start time.Time) time.Time {
	limit := start.Add(a.opts.BrokerLimit)
	for _, s := range group {
		if d, ok := s.ctx.Deadline(); ok && d.Before(limit) {
			limit = d
		}
		if d := a.giveUp(s); !a.failing.IsZero() && d.Before(limit) {
			limit = d
		}
	}
	return limit
}

// giveUp is when a share has waited long enough for a broker that is away. Time
// in the queue behind others that wait for it counts.
func (a *Admitter) giveUp(s *share) time.Time {
	since := a.failing
	if s.askedAt.After(since) {
		since = s.askedAt
	}
	return since.Add(a.opts.BrokerLimit)
}

// dropEnded settles the shares whose caller has gone.
func dropEnded(group []*share) []*share {
	var open []*share
	for _, s := range group {
		if err := s.ctx.Err(); err != nil {
			s.settle(s.ended(err))
			continue
		}
		open = append(open, s)
	}
	return open
}

// ended is the error of a share that is given up.
func (s *share) ended(cause error) error {
	if s.uncertain {
		return fmt.Errorf("admission: %w: %w", bus.ErrOutcomeUnknown, cause)
	}
	return fmt.Errorf("admission: %w: %w", bus.ErrUnavailable, cause)
}

// sortOut decides what becomes of shares whose round failed.
func (a *Admitter) sortOut(ctx context.Context, open []*share, err error, try int, start time.Time) ([]*share, time.Duration) {
	conflict := errors.Is(err, bus.ErrConflict)
	broker := errors.Is(err, bus.ErrUnavailable) || errors.Is(err, bus.ErrOutcomeUnknown) || ctx.Err() != nil
	switch {
	case conflict:
		a.failing = time.Time{}
		a.opts.OnConflict()
	case broker && a.failing.IsZero():
		a.failing = start
	}
	var again []*share
	for _, s := range open {
		s.uncertain = s.uncertain || errors.Is(err, bus.ErrOutcomeUnknown)
		switch {
		case conflict:
			again = append(again, s)
		case broker:
			if !time.Now().Before(a.giveUp(s)) || s.ctx.Err() != nil {
				s.settle(s.ended(err))
				continue
			}
			again = append(again, s)
		case len(open) > 1:
			// One of them cannot be committed at all; it must not fail the others.
			s.alone = true
			again = append(again, s)
		default:
			s.settle(err)
		}
	}
	switch {
	case conflict:
		most := min(a.opts.ConflictPause*time.Duration(try+1), a.opts.MaxConflictPause)
		return again, a.opts.ConflictPause + rand.N(most) //nolint:gosec // Jitter needs no secrecy.
	case broker:
		return again, a.opts.BrokerPause
	}
	return again, 0
}

// keyTaken tells a share whose idempotency key somebody else has used meanwhile.
func (s *share) keyTaken(ctx context.Context) error {
	if s.b.key == "" || s.b.created {
		return nil
	}
	v, err := s.b.a.opts.Conn.Idempotency(ctx, s.b.key)
	switch {
	case errors.Is(err, bus.ErrNotFound):
		return nil
	case err != nil:
		return err
	case v.GetJobId() == s.b.id.String():
		s.uncertain = true
		return errLanded
	}
	return errKeyTaken
}

// planAll decides for every node of the group, whose locks are given in order.
// It returns the shares that are not settled without a commit.
func (a *Admitter) planAll(ctx context.Context, group []*share, locks []bus.Lock, room int64) ([]*share, error) {
	open := make([]*share, 0, len(group))
	var settled []*share
	for _, s := range group {
		n := len(s.nodes) + len(s.reserved())
		own := locks[:n]
		locks = locks[n:]
		done, err := a.planOne(ctx, s, own, &room)
		switch {
		case isRefusal(err), errors.Is(err, errKeyTaken), errors.Is(err, bus.ErrMisconfigured):
			s.settle(err)
		case err != nil:
			// The others of the group are planned anew with it.
			return without(group, settled), err
		case done:
			s.settle(nil)
		default:
			open = append(open, s)
			continue
		}
		settled = append(settled, s)
	}
	return open, nil
}

// without returns the shares of group that are not in settled, never nil.
func without(group, settled []*share) []*share {
	open := make([]*share, 0, len(group))
	for _, s := range group {
		found := false
		for _, t := range settled {
			found = found || s == t
		}
		if !found {
			open = append(open, s)
		}
	}
	return open
}

// planOne plans one share. done says that nothing is left to commit.
func (a *Admitter) planOne(ctx context.Context, s *share, locks []bus.Lock, room *int64) (done bool, err error) {
	var parent job.Record
	var rev bus.Revision
	grows := s.b.created && !s.b.leaf
	if grows {
		// Read before the look for an earlier try: one that lands after both
		// changes the revision that this round expects.
		parent, rev, err = a.opts.Conn.Record(ctx, s.b.id)
		if err != nil && (!s.b.extends || !errors.Is(err, bus.ErrNotFound)) {
			return false, err
		}
	}
	if s.uncertain {
		if found, err := s.landed(ctx); err != nil || found {
			return found, err
		}
	}
	// Looked up after the locks were read: what holds the nodes may be the job of
	// an equal request.
	if err := s.keyTaken(ctx); err != nil {
		return false, err
	}
	if grows {
		done, err := s.planParent(&parent, rev)
		if done {
			s.apply()
		}
		if done || err != nil {
			return done, err
		}
	}
	if s.b.closed != "" {
		s.refuseAll(fmt.Sprintf(s.b.closed, s.b.id))
	} else if err := s.decide(ctx, locks); err != nil {
		return false, err
	} else if err := s.decideReserved(ctx, locks[len(s.nodes):]); err != nil {
		return false, err
	}
	if err := a.fit(ctx, s, room); err != nil {
		return false, err
	}
	if s.empty() {
		s.apply()
		return true, nil
	}
	*room -= s.records()
	return false, nil
}

func (s *share) refuseAll(message string) {
	s.plans = s.plans[:0]
	for _, index := range s.nodes {
		s.plans = append(s.plans, plan{index: index, refusal: unusable(message)})
	}
}

// fit refuses what exceeds the limit of tracked jobs, from the end.
func (a *Admitter) fit(ctx context.Context, s *share, room *int64) error {
	if s.records() > *room && s.accepted() > 0 {
		freed, err := a.reapAtLimit(ctx)
		if err != nil {
			return err
		}
		if freed {
			return fmt.Errorf("admission: %w: the counter of tracked jobs", bus.ErrConflict)
		}
	}
	limit := a.opts.MaxTrackedJobs
	full := func() *Refusal {
		current := limit - int(max(*room, 0))
		return &Refusal{Code: job.FailureCapacity, Message: job.CapacityText(current, limit)}
	}
	if s.creates() && *room < 1 {
		return full()
	}
	refusal := full()
	for i := len(s.plans) - 1; i >= 0 && s.records() > *room; i-- {
		if s.plans[i].refusal == nil {
			s.plans[i].refusal = refusal
		}
	}
	return nil
}

func isRefusal(err error) bool {
	var r *Refusal
	return errors.As(err, &r)
}
