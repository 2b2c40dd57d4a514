// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/services/jobs/internal/capacity"
	"github.com/rackbus/rackbus/services/jobs/internal/fold"
)

// familyJobs is the family under which replicas of this service hold sessions,
// so that they can count each other.
const familyJobs node.Family = "jobs"

// lead becomes active for a partition whenever it can, until ctx ends.
func (s *Service) lead(ctx context.Context, partition int) {
	timing := s.o.Conn.Timing()
	for ctx.Err() == nil {
		if !s.share.Room() {
			// Others have the first try; a partition that nobody takes is taken
			// all the same.
			if rest(ctx, jitter(timing.FoldTTL)) != nil {
				return
			}
		}
		lease, err := s.o.Conn.LeadFold(ctx, partition, s.o.Instance)
		if err != nil {
			if !errors.Is(err, bus.ErrConflict) && ctx.Err() == nil {
				// The connection tells when the broker is away, once for all.
				level := slog.LevelWarn
				if errors.Is(err, bus.ErrUnavailable) {
					level = slog.LevelDebug
				}
				s.log.Log(ctx, level, "partition not led", "partition", partition, "err", err)
			}
			if rest(ctx, jitter(timing.FoldRenew)) != nil {
				return
			}
			continue
		}
		if !s.term(ctx, partition, lease) {
			// The lease is free again; others shall have it.
			if rest(ctx, jitter(timing.FoldRenew)) != nil {
				return
			}
		}
	}
}

// term is active for a partition until the lease is lost, the partition is
// yielded, ctx ends, or the fold fails. It reports whether the lease was lost,
// so that nobody needs to be let in.
func (s *Service) term(ctx context.Context, partition int, lease *bus.FoldLease) (lost bool) {
	tctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.share.Take(partition, cancel)
	var wg sync.WaitGroup
	wg.Go(func() {
		select {
		case <-lease.Lost():
			cancel()
		case <-tctx.Done():
		}
	})
	if partition == 0 {
		wg.Go(func() { s.keepCapacity(tctx) })
	}
	err := fold.Run(tctx, fold.Options{
		Conn: s.o.Conn, Partition: partition, Retention: s.o.Retention, CommitInterval: s.o.CommitInterval,
		Retry: s.o.Retry, ParkedLife: s.o.ParkedLife, CachedRecords: s.o.CachedRecords,
		Diagnose: s.o.Diagnose,
		Log:      s.log, Metrics: s.metrics, Failpoints: s.o.Failpoints,
	})
	if tctx.Err() == nil {
		s.log.Warn("fold ended, its partition goes to the next", "partition", partition, "err", err)
	}
	cancel()
	wg.Wait()
	s.share.Drop(partition)
	select {
	case <-lease.Lost():
		lost = true
	default:
	}
	s.release(ctx, partition, lease.Release)
	return lost
}

func (s *Service) keepCapacity(ctx context.Context) {
	keeper := capacity.Keeper{
		Conn: s.o.Conn, Every: s.o.CapacityEvery, Recount: s.o.Recount, Settle: s.o.RecountSettle,
		Log: s.log, Metrics: s.metrics,
	}
	keeper.Run(ctx)
}

// release gives a lease back even when ctx has ended.
func (s *Service) release(ctx context.Context, partition int, release func(context.Context) error) {
	rctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.o.StopTimeout)
	defer cancel()
	if err := release(rctx); err != nil {
		s.log.Warn("lease not released, it will expire", "partition", partition, "err", err)
	}
}

// balance keeps a session, so that other replicas see this one, and yields
// partitions when there are more replicas than before.
func (s *Service) balance(ctx context.Context) {
	for ctx.Err() == nil {
		session, err := s.o.Conn.OpenSession(ctx, familyJobs, s.o.Instance)
		if err != nil {
			if ctx.Err() == nil {
				s.log.Warn("replica not announced", "err", err)
			}
			if rest(ctx, jitter(s.o.Balance)) != nil {
				return
			}
			continue
		}
		s.watchReplicas(ctx, session.Lost())
		rctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.o.StopTimeout)
		if err := session.Close(rctx); err != nil {
			s.log.Debug("replica session not closed, it will expire", "err", err)
		}
		cancel()
	}
}

func (s *Service) watchReplicas(ctx context.Context, lost <-chan struct{}) {
	tick := time.NewTicker(s.o.Balance)
	defer tick.Stop()
	for {
		n, err := s.o.Conn.Sessions(ctx, familyJobs)
		if err == nil {
			s.share.Balance(n)
		} else if ctx.Err() == nil {
			s.log.Debug("replicas not counted", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-lost:
			return
		case <-tick.C:
		}
	}
}

// jitter is d to 1.5 d, so that replicas do not try in step.
func jitter(d time.Duration) time.Duration { return d + rand.N(d/2+1) } //nolint:gosec // no secret

func rest(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
