// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/credentials"
	"github.com/rackbus/rackbus/pkg/failpoint"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// DefaultDirectProgressInterval is the least pause between progress events of a
// direct run, which a person watches.
const DefaultDirectProgressInterval = 500 * time.Millisecond

// DirectOptions configure the run of one job without a bus.
type DirectOptions struct {
	// Command is what to do. A job id is made for it; sealed credentials in it are
	// not looked at.
	Command *rackbusv1.JobCommand
	Handler Handler
	// Credentials of the node's endpoints.
	Credentials map[node.EndpointKind]node.Credentials
	// Instance names the process in events.
	Instance string
	// StateFile keeps the checkpoint, so that a run which was interrupted goes on
	// where it was. It holds no credentials. Empty keeps nothing.
	StateFile string
	// Cancel, when closed, asks the job to stop at its next safe point.
	Cancel <-chan struct{}
	// Events is told of the job's course, one event after the other; nil is not.
	Events func(job.Event)
	// ProgressInterval is the least pause between progress events; a new stage is
	// told at once.
	ProgressInterval time.Duration
	// ReleaseTimeout bounds the last writes of a run that was cut.
	ReleaseTimeout time.Duration
	Failpoints     *failpoint.Points
	// Logger receives one line per change; nil drops them.
	Logger *slog.Logger
}

// ErrInterrupted says that a direct run was cut and can be taken up again with
// its state file.
var ErrInterrupted = errors.New("agent: the run was interrupted, its state is kept")

// errDirectEnded is why nothing may be sent any more in a direct run.
var errDirectEnded = fmt.Errorf("%w: the run was cut", bus.ErrSessionLost)

// RunDirect runs one job without a bus and returns the event with which it has
// ended. It is the same runtime, with the checkpoint in memory or in a file, and a
// hold of the node that lasts until ctx ends. Nobody else is kept off the node.
//
// The end of ctx cuts the job at once: with a state file it can be taken up again
// and RunDirect returns ErrInterrupted, without one the job ends terminated. Other
// errors say that nothing was begun: the options do not fit, the state file is
// not readable, in use (ErrStateInUse), or that of another job (ErrStateOfOther).
func RunDirect(ctx context.Context, o DirectOptions) (job.Event, error) {
	setDefault(&o.ProgressInterval, DefaultDirectProgressInterval)
	setDefault(&o.ReleaseTimeout, DefaultReleaseTimeout)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Handler == nil || o.Command == nil {
		return job.Event{}, errors.New("agent: a direct run needs a command and a handler")
	}
	state, err := openState(o.StateFile)
	if err != nil {
		return job.Event{}, err
	}
	defer state.close()
	d := &direct{o: o, store: &memory{state: state}, hold: newDirectHold()}
	t, err := d.begin(ctx)
	if err != nil {
		return job.Event{}, err
	}
	defer d.hold.end()
	d.run(ctx, t)
	if d.ended == nil {
		return job.Event{}, ErrInterrupted
	}
	return *d.ended, state.remove()
}

// direct is one run.
type direct struct {
	o     DirectOptions
	store *memory
	hold  *directHold
	// ended is the event of the outcome.
	ended *job.Event
}

// begin takes the job, or takes it up again.
func (d *direct) begin(ctx context.Context) (*Task, error) {
	cmd, ck, err := d.store.state.load(d.o.Command)
	if err != nil {
		return nil, err
	}
	at := timestamppb.Now()
	switch {
	case ck == nil:
		id, err := job.NewFamily(rand.Reader)
		if err != nil {
			return nil, fmt.Errorf("start a direct run: %w", err)
		}
		cmd = proto.CloneOf(d.o.Command)
		cmd.V, cmd.JobId, cmd.CreatedAt = 1, id.String(), at
		ck = firstCheckpoint(cmd, d.hold.ID(), at)
	case !ck.GetDone():
		// Whoever starts it again wants it to go on, whatever was asked before.
		ck.Owner, ck.At, ck.Cancel = d.hold.ID(), at, nil
		ck.Epoch++
		ck.Attempt++
	}
	id, err := job.ParseID(cmd.GetJobId())
	if err != nil {
		return nil, fmt.Errorf("state file: %w", err)
	}
	d.store.cmd = cmd
	rev, err := d.store.PutCheckpoint(ctx, ck, bus.Absent)
	if err != nil {
		return nil, err
	}
	return newTask(d.frame(ctx), d.hold, noQueue{}, cmd, id, ck, rev), nil
}

func (d *direct) frame(ctx context.Context) *frame {
	return &frame{
		checkpoints: d.store, events: d, family: node.Family(d.o.Command.GetFamily()), instance: d.o.Instance,
		handlers: map[job.Type]Handler{job.Type(d.o.Command.GetType()): d.o.Handler},
		open: func(target *rackbusv1.NodeTarget, kind node.EndpointKind) (node.Credentials, error) {
			c, ok := d.o.Credentials[kind]
			if !ok {
				return c, fmt.Errorf("%s endpoint of node %s: %w", kind, target.GetNodeId(), credentials.ErrNone)
			}
			// Whoever asks wipes it afterwards, and may ask again.
			c.Password = c.Password.Clone()
			return c, nil
		},
		secrets:  func(*rackbusv1.JobCommand, proto.Message) error { return credentials.ErrNone },
		drained:  context.WithoutCancel(ctx), // a direct run is stopped or cut, never drained
		finished: func(job.Event) {}, progressInterval: d.o.ProgressInterval,
		deadlineGrace:  DefaultDeadlineGrace,
		releaseTimeout: d.o.ReleaseTimeout, request: d.o.ReleaseTimeout, failpoints: d.o.Failpoints,
		tracer: noop.NewTracerProvider(), log: d.o.Logger,
	}
}

// run brings the task to its end.
func (d *direct) run(ctx context.Context, t *Task) {
	root, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var background sync.WaitGroup
	defer background.Wait()
	defer stop()
	if t.ck.GetDone() {
		t.report(root)
		return
	}
	t.execute(root, func() {
		cut := t.cancel
		background.Go(func() { d.watch(ctx, root, t, cut) })
	})
}

// watch passes a request to stop, and the end of ctx, on to the task.
func (d *direct) watch(ctx, root context.Context, t *Task, cut context.CancelCauseFunc) {
	cancel := d.o.Cancel
	for {
		select {
		case <-root.Done():
			return
		case <-cancel:
			cancel = nil
			d.store.ask(&job.Cancel{Mode: job.CancelGraceful, Reason: job.CancelReasonOperator, RequestedAt: now()})
			t.wake(root)
		case <-ctx.Done():
			reason := ErrTerminated
			if d.store.state != nil {
				reason = ErrHandedOver
			}
			// First the reason, then the hold: what fails for want of the hold
			// finds out why.
			cut(reason)
			d.hold.end()
			return
		}
	}
}

// PublishEvent keeps the outcome, and tells all events.
func (d *direct) PublishEvent(_ context.Context, e *job.Event) error {
	if d.o.Events != nil {
		d.o.Events(*e)
	}
	if e.Kind == job.EventFinished {
		ended := *e
		d.ended = &ended
	}
	return nil
}

// noQueue: a direct command came from no queue.
type noQueue struct{}

func (noQueue) Working() error               { return nil }
func (noQueue) Return(time.Duration) error   { return nil }
func (noQueue) Finish(context.Context) error { return nil }

// directHold is a hold that lasts until it is ended.
type directHold struct {
	held context.Context //nolint:containedctx // the hold itself
	end  context.CancelFunc
}

func newDirectHold() *directHold {
	held, end := context.WithCancel(context.Background())
	return &directHold{held: held, end: end}
}

func (h *directHold) ID() string            { return "direct" }
func (h *directHold) Lost() <-chan struct{} { return h.held.Done() }
func (h *directHold) Valid() bool           { return h.held.Err() == nil }

func (h *directHold) Context(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	stop := context.AfterFunc(h.held, func() { cancel(errDirectEnded) })
	return ctx, func() {
		stop()
		cancel(context.Canceled)
	}
}
