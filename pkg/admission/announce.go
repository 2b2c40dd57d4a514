// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"sync"
	"time"

	"github.com/rackbus/rackbus/pkg/job"
)

// announce tells the fold of new jobs, so that subscribers hear of them before an
// agent takes them. Nothing depends on it: the records are stored already.
func (a *Admitter) announce(ctx context.Context, b *batch) {
	if !b.created {
		return
	}
	now := time.Now()
	if !b.leaf {
		a.announceParent(ctx, b, now)
	}
	events := make([]job.Event, 0, len(b.results))
	for i := range b.results {
		r := &b.results[i]
		if r.JobID.IsZero() {
			continue
		}
		events = append(events, job.Event{
			Kind: job.EventQueued, ID: r.JobID, RackID: r.Ref.RackID, NodeID: r.Ref.NodeID,
			Type: b.req.Type, Family: string(b.req.Nodes[i].Family), At: now,
		})
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.closed {
		a.announcing.Go(func() { a.publishAll(events) })
	}
}

// announceParent publishes that the parent exists and that all its children are
// attached. A batch that was cut off is closed by the jobs service instead.
func (a *Admitter) announceParent(ctx context.Context, b *batch, now time.Time) {
	ctx, cancel := context.WithTimeout(ctx, a.opts.AnnounceLimit)
	defer cancel()
	e := job.Event{Kind: job.EventQueued, ID: b.id, RackID: b.req.RackID, Type: b.req.Type, At: now}
	var err error
	if !b.extends {
		err = a.opts.Conn.PublishEvent(ctx, &e)
	}
	if err == nil && (b.extends && b.attached > 0 || !b.extends && b.complete()) {
		e.Kind, e.Total = job.EventAdmitted, b.total
		err = a.opts.Conn.PublishEvent(ctx, &e)
	}
	if err != nil {
		a.opts.Logger.Warn("batch not announced", "job_id", b.id.String(), "err", err)
	}
}

// complete reports whether the last chunk was committed.
func (b *batch) complete() bool {
	for _, i := range b.candidates {
		r := &b.results[i]
		if r.JobID.IsZero() && (r.Refusal == nil || r.Refusal.Code == job.FailureAdmissionFailed) {
			return false
		}
	}
	return true
}

// publishAll publishes events while the Admitter runs.
func (a *Admitter) publishAll(events []job.Event) {
	var wg sync.WaitGroup
	for i := range events {
		select {
		case a.announcers <- struct{}{}:
		case <-a.ctx.Done():
			wg.Wait()
			return
		}
		wg.Go(func() {
			defer func() { <-a.announcers }()
			if err := a.opts.Conn.PublishEvent(a.ctx, &events[i]); err != nil {
				a.opts.Logger.Debug("job not announced", "job_id", events[i].ID.String(), "err", err)
			}
		})
	}
	wg.Wait()
}
