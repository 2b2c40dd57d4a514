// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/tracing"
)

// Admitter admits jobs. All admissions of a process should go through one, since
// it commits together what waits together. It is safe for concurrent use.
type Admitter struct {
	opts     Options
	queue    chan *share
	draining atomic.Bool
	reaper   reaper
	// failing is since when the broker gives no answer, zero while it does. Only
	// the committing goroutine knows it.
	failing time.Time

	ctx    context.Context
	cancel context.CancelFunc
	loop   sync.WaitGroup
	// announcing counts the batches whose first events are being published; mu
	// keeps further ones out once closed.
	mu         sync.Mutex
	closed     bool
	announcing sync.WaitGroup
	announcers chan struct{}
}

// announceParallel bounds how many events are under way to the broker at a time.
const announceParallel = 128

// New returns an Admitter that runs until Close.
func New(opts Options) (*Admitter, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	a := &Admitter{opts: opts, queue: make(chan *share), announcers: make(chan struct{}, announceParallel)}
	a.ctx, a.cancel = context.WithCancel(context.Background())
	a.loop.Go(a.run)
	return a, nil
}

// Drain refuses every further admission. What is under way goes on.
func (a *Admitter) Drain() { a.draining.Store(true) }

// Draining reports whether Drain was called.
func (a *Admitter) Draining() bool { return a.draining.Load() }

// Close drains, gives the first events of admitted jobs a moment to reach the
// broker, and ends. Admissions under way fail with ErrClosed.
func (a *Admitter) Close() {
	a.Drain()
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	published := make(chan struct{})
	go func() {
		defer close(published)
		a.announcing.Wait()
	}()
	limit := time.NewTimer(a.opts.AnnounceLimit)
	defer limit.Stop()
	select {
	case <-published:
	case <-limit.C:
	}
	a.cancel()
	a.loop.Wait()
	<-published
}

// AdmitLeaf admits one top-level job on the only node of the request. A refusal
// comes as a *Refusal; other errors are those of the bus, ErrKeyReused,
// ErrClosed and job.ErrInvalidCleanup.
func (a *Admitter) AdmitLeaf(ctx context.Context, req Request) (Result, error) {
	if len(req.Nodes) != 1 {
		return Result{}, fmt.Errorf("admission: a leaf job has one node, not %d", len(req.Nodes))
	}
	if r := req.Nodes[0].Refusal; r != nil {
		return Result{}, r
	}
	res, err := a.admit(ctx, &req, true)
	if err != nil {
		return res, err
	}
	if r := res.Nodes[0].Refusal; r != nil {
		// What holds the node may be the job of an equal request that came between
		// the looks at the key and at the node. A batch would have met its key.
		if prior, found, err := a.Lookup(ctx, req.Idempotency, req.refs()); err != nil || found {
			return prior, err
		}
		return res, r
	}
	return res, nil
}

// Admit admits a batch: a parent and one job for each node that is not refused.
// A batch without any admitted node has a parent all the same, which has failed.
// A *Refusal is the refusal of the whole request, and no job exists then. When
// the broker goes away between chunks, the result names the parent, and the nodes
// that were not reached are refused.
func (a *Admitter) Admit(ctx context.Context, req Request) (Result, error) {
	return a.admit(ctx, &req, false)
}

func (a *Admitter) admit(ctx context.Context, req *Request, leaf bool) (Result, error) {
	if err := job.CheckCleanup(req.Cleanup); err != nil {
		return Result{}, err
	}
	if req.Reserve != nil && !leaf {
		return Result{}, errReservation
	}
	if err := checkRollout(req, leaf); err != nil {
		return Result{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, a.opts.Limit)
	defer cancel()
	if res, found, err := a.Lookup(ctx, req.Idempotency, req.refs()); err != nil || found {
		return res, err
	}
	if a.draining.Load() {
		return Result{}, &Refusal{Code: job.FailureShuttingDown, Message: job.ShutdownText()}
	}
	id, err := job.NewFamily(a.opts.Random)
	if err != nil {
		return Result{}, err
	}
	b := newBatch(a, req, id, leaf)
	b.traceparent = tracing.Parent(ctx)
	err = b.admitAll(ctx)
	if errors.Is(err, errKeyTaken) {
		// The same key was used at the same moment; its admission stands.
		res, found, rerr := a.Lookup(ctx, req.Idempotency, req.refs())
		if rerr != nil || found {
			return res, rerr
		}
		return Result{}, fmt.Errorf("%w: idempotency key", bus.ErrConflict)
	}
	return a.finish(ctx, b, err)
}

// finish makes the result of a batch that ended with err, and announces its jobs.
func (a *Admitter) finish(ctx context.Context, b *batch, err error) (Result, error) {
	// Whoever extends a batch without success has nothing to tell of it.
	if err != nil && (!b.created || b.extends && b.attached == 0) {
		return Result{}, err
	}
	req := b.req
	if err != nil {
		a.opts.Logger.Warn("admission cut off", "job_id", b.id.String(), "nodes", len(req.Nodes), "attached", b.attached, "err", err)
		b.refuseRest(err)
	}
	res := Result{JobID: b.id, Nodes: b.results}
	if b.created {
		a.opts.Logger.Info("job admitted", "job_id", b.id.String(), "type", string(req.Type), "rack", req.RackID,
			"nodes", len(req.Nodes), "refused", len(req.Nodes)-res.Admitted(), "further", b.extends)
	}
	a.announce(ctx, b)
	a.supersedeAll(ctx, b)
	return res, nil
}

// pause waits d or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
