// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/failpoint"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/seal"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// Defaults of Options.
const (
	DefaultMaxInFlight      = 10_000
	DefaultMaxQueries       = 1_024
	DefaultMaxStuck         = 8
	DefaultDrainTimeout     = 30 * time.Second
	DefaultCutTimeout       = 10 * time.Second
	DefaultReleaseTimeout   = 5 * time.Second
	DefaultDeadlineGrace    = time.Minute
	DefaultProgressInterval = 5 * time.Second
	DefaultParentPause      = 250 * time.Millisecond
)

// Handler runs one job to its end. The context ends when the job is terminated,
// the session is lost or the run deadline has passed; the runtime then decides
// what becomes of the job. A nil error completes the job; an error fails it, as
// told by the *FailureError in it.
type Handler func(ctx context.Context, t *Task) (Outcome, error)

// Outcome is what a finished workflow tells.
type Outcome struct {
	// Description is shown as the last state text of a job that completed.
	Description string
	// ResultJSON is the workflow's result, also of a failed job.
	ResultJSON string
	// Diagnostics is what node diagnostics found, also of a failed job; nil for
	// every other type.
	Diagnostics *job.Diagnostics
}

// QueryHandler answers one synchronous request on one node.
type QueryHandler func(ctx context.Context, q *Query) *rackbusv1.NodeReply

// Options configure an agent.
type Options struct {
	// Conn is the bus.
	Conn *bus.Conn
	// Family of nodes this agent drives.
	Family node.Family
	// Instance names the process in records, for example its host name.
	Instance string
	// Version of the build, shown by the bus.
	Version string
	// Opener opens the family's sealed credentials.
	Opener *seal.Opener
	// Handlers by job type.
	Handlers map[job.Type]Handler
	// Queries by operation.
	Queries map[string]QueryHandler
	// MaxInFlight bounds the jobs of this process.
	MaxInFlight int
	// MaxQueries bounds the queries worked on at a time.
	MaxQueries int
	// MaxStuck is after how many owners in a row that died without any progress
	// of the job it is given up. A process that dies takes all its jobs along, so
	// a low number would end innocent ones while agents restart in quick
	// succession.
	MaxStuck uint32
	// DrainTimeout bounds a graceful stop. What has not ended by then is cut.
	DrainTimeout time.Duration
	// CutTimeout is how long what was cut may take to return. It has to exceed
	// ReleaseTimeout.
	CutTimeout time.Duration
	// ReleaseTimeout bounds the last writes of a stopping process: outcomes,
	// hand-overs, the end of its session.
	ReleaseTimeout time.Duration
	// DeadlineGrace is how long a job that has passed its run deadline may take to
	// stop at a safe point before it is cut.
	DeadlineGrace time.Duration
	// ProgressInterval is the least pause between progress reports of one job;
	// a new stage is reported at once.
	ProgressInterval time.Duration
	// ParentPause is how long a command is put back whose batch is not fully
	// admitted yet.
	ParentPause time.Duration
	// Failpoints let crash tests end a job at named points; nil has none.
	Failpoints *failpoint.Points
	// Registerer takes the metrics; nil drops them.
	Registerer prometheus.Registerer
	// Tracer makes the spans of jobs, stages and requests; nil makes none.
	Tracer trace.TracerProvider
	// Logger receives one line per change; nil drops them.
	Logger *slog.Logger
}

func (o *Options) withDefaults() error {
	switch {
	case o.Conn == nil:
		return errors.New("agent: no bus connection")
	case o.Opener == nil:
		return errors.New("agent: no opener for sealed credentials")
	case o.Family == "":
		return errors.New("agent: no family")
	case o.Instance == "":
		return errors.New("agent: no instance name")
	}
	setDefault(&o.MaxInFlight, DefaultMaxInFlight)
	setDefault(&o.MaxQueries, DefaultMaxQueries)
	setDefault(&o.MaxStuck, DefaultMaxStuck)
	setDefault(&o.DrainTimeout, DefaultDrainTimeout)
	setDefault(&o.CutTimeout, DefaultCutTimeout)
	setDefault(&o.ReleaseTimeout, DefaultReleaseTimeout)
	setDefault(&o.DeadlineGrace, DefaultDeadlineGrace)
	setDefault(&o.ProgressInterval, DefaultProgressInterval)
	setDefault(&o.ParentPause, DefaultParentPause)
	if o.Version == "" {
		o.Version = "0.0.0"
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Registerer == nil {
		o.Registerer = prometheus.NewRegistry()
	}
	if o.Tracer == nil {
		o.Tracer = noop.NewTracerProvider()
	}
	return nil
}

func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}
