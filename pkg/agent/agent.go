// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
)

// Waits of the runtime itself.
const (
	// fetchMax is how many commands one pull asks for.
	fetchMax = 50
	// retryPause is the pause after a fault of the broker.
	retryPause = 500 * time.Millisecond
	// pendingShare is the part of the parent pause for which a batch is believed
	// not to be admitted yet.
	pendingShare = 4
)

// errStuckHandlers says that workflows did not return although they were cut.
var errStuckHandlers = errors.New("agent: jobs or queries did not end when they were cut")

// Agent drives the nodes of one family.
type Agent struct {
	opts    Options
	metrics *metrics
	slots   chan struct{}
	// frame is what the tasks get of this process.
	frame *frame

	mu       sync.Mutex
	running  map[job.ID]*Task
	claiming map[job.ID]bool
	sess     *bus.Session
	sessNew  chan struct{}

	// drained ends when the agent stops taking work.
	drained    context.Context //nolint:containedctx // a signal that stages wait for
	startDrain context.CancelFunc
	tasks      sync.WaitGroup
	wakes      sync.WaitGroup
	nodes      *turns
	batches    *batches
}

// New checks the options and returns an agent that does nothing yet.
func New(opts Options) (*Agent, error) {
	if err := opts.withDefaults(); err != nil {
		return nil, err
	}
	drained, startDrain := context.WithCancel(context.Background())
	m := newMetrics(opts.Registerer, opts.Family)
	return &Agent{
		drained: drained, startDrain: startDrain, frame: newFrame(drained, &opts, m),
		opts: opts, metrics: m,
		slots:   make(chan struct{}, opts.MaxInFlight),
		running: map[job.ID]*Task{}, claiming: map[job.ID]bool{},
		sessNew: make(chan struct{}), nodes: newTurns(), batches: newBatches(),
	}, nil
}

// Run takes commands and queries until ctx ends. It then drains: short stages
// end, other jobs are handed back where they can be resumed, within the drain
// timeout.
func (a *Agent) Run(ctx context.Context) error {
	if err := a.opts.Conn.Verify(ctx); err != nil {
		return fmt.Errorf("start %s agent: %w", a.opts.Family, err)
	}
	// Jobs outlive ctx until they are drained, the session outlives the jobs.
	root, stopAll := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stopAll(context.Canceled)
	if err := a.opts.Conn.OnCancel(root, a.opts.Family, func(id job.ID) { a.wake(root, id) }); err != nil {
		return err
	}
	queries, err := a.serveQueries(root)
	if err != nil {
		return err
	}
	kctx, stopKeeping := context.WithCancel(context.WithoutCancel(ctx))
	defer stopKeeping()
	var background sync.WaitGroup
	background.Go(func() { a.keepSession(kctx) })
	background.Go(func() { a.heartbeat(kctx) })
	a.opts.Logger.Info("agent started", "family", string(a.opts.Family), "instance", a.opts.Instance)
	a.take(ctx, root)
	closed := make(chan error, 1)
	go func() { closed <- queries.Close() }()
	err = a.drain(stopAll, closed)
	stopAll(context.Canceled)
	a.wakes.Wait()
	// Only now is nobody left who could open another session.
	stopKeeping()
	background.Wait()
	a.closeSession(ctx)
	a.opts.Logger.Info("agent stopped", "family", string(a.opts.Family), "instance", a.opts.Instance)
	return err
}

// Ready returns nil while the agent has a certain session.
func (a *Agent) Ready() error {
	if err := a.opts.Conn.Ready(); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.sess == nil || !a.sess.Valid() {
		return errors.New("agent: no certain session")
	}
	return nil
}

// take pulls as many commands as there are free slots, and no more.
func (a *Agent) take(ctx, root context.Context) {
	for ctx.Err() == nil {
		commands, err := a.opts.Conn.Commands(ctx, a.opts.Family)
		if err != nil {
			a.pauseAfter(ctx, "commands not opened", err)
			continue
		}
		for ctx.Err() == nil {
			n := a.acquire(ctx)
			if n == 0 {
				return
			}
			taken := 0
			err := commands.Fetch(ctx, n, func(d *bus.Delivery) {
				taken++
				a.tasks.Go(func() {
					defer func() { <-a.slots }()
					a.handle(root, d)
				})
			})
			for range n - taken {
				<-a.slots
			}
			if err != nil && ctx.Err() == nil {
				a.pauseAfter(ctx, "commands not fetched", err)
				break
			}
		}
	}
}

// acquire waits for one free slot and takes what else is free at once.
func (a *Agent) acquire(ctx context.Context) int {
	select {
	case a.slots <- struct{}{}:
	case <-ctx.Done():
		return 0
	}
	for n := 1; ; n++ {
		if n == fetchMax {
			return n
		}
		select {
		case a.slots <- struct{}{}:
		default:
			return n
		}
	}
}

func (a *Agent) pauseAfter(ctx context.Context, what string, err error) {
	a.opts.Logger.Warn(what, "err", err) //nolint:sloglint // what is one of two constants
	if serr := sleep(ctx, retryPause); serr != nil {
		return
	}
}

func (a *Agent) draining() bool { return a.drained.Err() != nil }

// drain lets every job reach a boundary and every query end. What has not after
// the timeout is cut and left to the next owner, which looks at the device first.
func (a *Agent) drain(stopAll context.CancelCauseFunc, queries <-chan error) error {
	a.startDrain()
	done := make(chan error, 1)
	go func() {
		a.tasks.Wait()
		done <- <-queries
	}()
	timer := time.NewTimer(a.opts.DrainTimeout)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		a.opts.Logger.Warn("drain timeout passed, remaining jobs are left to other agents")
	}
	stopAll(ErrHandedOver)
	timer.Reset(a.opts.CutTimeout)
	select {
	case err := <-done:
		return err
	case <-timer.C:
		// Their guard refuses everything once the session is given up.
		return errStuckHandlers
	}
}

// keepSession holds a session at all times. A lost one is replaced; its jobs
// have been cut by then.
func (a *Agent) keepSession(ctx context.Context) {
	for ctx.Err() == nil {
		s, err := a.opts.Conn.OpenSession(ctx, a.opts.Family, a.opts.Instance)
		if err != nil {
			a.pauseAfter(ctx, "session not opened", err)
			continue
		}
		a.setSession(s)
		select {
		case <-ctx.Done():
			return
		case <-s.Lost():
			a.opts.Logger.Warn("session lost", "session", s.ID())
			a.metrics.sessionsLost.Inc()
			a.cutTasks(s)
		}
	}
}

func (a *Agent) setSession(s *bus.Session) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sess = s
	close(a.sessNew)
	a.sessNew = make(chan struct{})
}

// session returns a session that is certain now, and waits for one unless the
// process drains.
func (a *Agent) session(ctx context.Context) (*bus.Session, error) {
	for {
		a.mu.Lock()
		s, next := a.sess, a.sessNew
		a.mu.Unlock()
		if s != nil && s.Valid() {
			return s, nil
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-a.drained.Done():
			return nil, errDraining
		case <-next:
		case <-time.After(holdPause):
		}
	}
}

func (a *Agent) closeSession(ctx context.Context) {
	a.mu.Lock()
	s := a.sess
	a.mu.Unlock()
	if s == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.opts.ReleaseTimeout)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		a.opts.Logger.Warn("session not released", "err", err)
	}
}

// heartbeat keeps the commands of all running jobs from being offered to others.
func (a *Agent) heartbeat(ctx context.Context) {
	tick := time.NewTicker(a.opts.Conn.Timing().WorkInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		a.mu.Lock()
		commands := make(map[job.ID]queued, len(a.running))
		for _, t := range a.running {
			// The signal has no owner: for a lost job it would keep the next one off.
			if t.mayHold() {
				commands[t.id] = t.queued
			}
		}
		if a.sess != nil {
			a.metrics.sessionValidity.Set(a.sess.Remaining().Seconds())
		}
		a.mu.Unlock()
		for id, d := range commands {
			if err := d.Working(); err != nil {
				a.opts.Logger.Debug("heartbeat not sent", "job_id", id.String(), "err", err)
			}
		}
	}
}

// wake looks at a job's checkpoint because somebody may have asked it to stop.
func (a *Agent) wake(ctx context.Context, id job.ID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.running[id]
	if t == nil {
		return
	}
	// Under the lock, so that none is added when all jobs are through.
	a.wakes.Go(func() { t.wake(ctx) })
}
