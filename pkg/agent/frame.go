// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/proto"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/credentials"
	"github.com/rackbus/rackbus/pkg/failpoint"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// frame is what tasks get of the process they run in: of an agent, whose jobs
// come from the bus, or of a direct run, which has none. All else about a task is
// the same in both.
type frame struct {
	checkpoints checkpoints
	events      events
	handlers    map[job.Type]Handler
	family      node.Family
	instance    string
	// open opens the login of an endpoint, secrets those of a request.
	open    func(*rackbusv1.NodeTarget, node.EndpointKind) (node.Credentials, error)
	secrets func(*rackbusv1.JobCommand, proto.Message) error
	// drained ends when the process stops taking work.
	drained context.Context //nolint:containedctx // a signal that stages wait for
	// finished is told of every outcome that was reported.
	finished         func(job.Event)
	progressInterval time.Duration
	releaseTimeout   time.Duration
	deadlineGrace    time.Duration
	// request bounds one write behind the outcome.
	request    time.Duration
	failpoints *failpoint.Points
	tracer     trace.TracerProvider
	log        *slog.Logger
}

// checkpoints keep how far jobs are, by compare and set. A missing one is
// bus.ErrNotFound, a lost race bus.ErrConflict.
type checkpoints interface {
	Checkpoint(context.Context, node.Family, job.ID) (*rackbusv1.JobCheckpoint, bus.Revision, error)
	PutCheckpoint(context.Context, *rackbusv1.JobCheckpoint, bus.Revision) (bus.Revision, error)
}

// events take what is told of jobs.
type events interface {
	PublishEvent(context.Context, *job.Event) error
}

// hold is the right of this process to act on a node; see bus.Session.
type hold interface {
	ID() string
	Valid() bool
	Lost() <-chan struct{}
	Context(context.Context) (context.Context, context.CancelFunc)
}

// queued is the command where it came from; see bus.Delivery.
type queued interface {
	Working() error
	Return(after time.Duration) error
	Finish(context.Context) error
}

func newFrame(drained context.Context, o *Options, m *metrics) *frame {
	return &frame{
		checkpoints: o.Conn, events: o.Conn, handlers: o.Handlers, family: o.Family, instance: o.Instance,
		open: func(target *rackbusv1.NodeTarget, kind node.EndpointKind) (node.Credentials, error) {
			return credentials.Open(o.Opener, target, kind)
		},
		secrets: func(cmd *rackbusv1.JobCommand, into proto.Message) error {
			return credentials.OpenSecrets(o.Opener, cmd, into)
		},
		drained: drained,
		finished: func(e job.Event) {
			m.finished.WithLabelValues(string(e.Type), e.State.String()).Inc()
		},
		progressInterval: o.ProgressInterval, releaseTimeout: o.ReleaseTimeout, request: o.Conn.Timing().Request,
		deadlineGrace: o.DeadlineGrace,
		failpoints:    o.Failpoints, tracer: o.Tracer, log: o.Logger,
	}
}

func (f *frame) draining() bool { return f.drained.Err() != nil }
