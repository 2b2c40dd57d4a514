// SPDX-License-Identifier: Apache-2.0

// Package coordinator runs the jobs of the family "rack": those that drive the
// nodes of a rack through requests to their agents, and those that concern no
// device at all. They run on the runtime that hardware agents use, so a job of a
// process that died is taken over and goes on where it was.
package coordinator

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/failpoint"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/seal"
)

// Options configure the worker of one process. Conn and Handlers are required.
type Options struct {
	// Conn is the connection to the bus. It is not closed.
	Conn *bus.Conn
	// Instance names the process in records.
	Instance string
	// Opener opens the secrets of requests. It has the keys of the family "rack"
	// only, with which no node's credentials are sealed. Nil opens nothing.
	Opener *seal.Opener
	// Handlers by job type.
	Handlers map[job.Type]agent.Handler
	// DrainTimeout bounds a graceful stop and ProgressInterval the reports of one
	// job; zero takes the defaults of the runtime.
	DrainTimeout     time.Duration
	ProgressInterval time.Duration
	Failpoints       *failpoint.Points
	Registerer       prometheus.Registerer
	Tracer           trace.TracerProvider
	Logger           *slog.Logger
}

// Run works on jobs until ctx ends, then drains. It returns an error only when
// the bus is not usable, or jobs did not end when they were cut.
func Run(ctx context.Context, o Options) error {
	if o.Opener == nil {
		none, err := seal.NewOpener(nil, seal.OpenerOptions{})
		if err != nil {
			return fmt.Errorf("coordinator: %w", err)
		}
		o.Opener = none
	}
	//nolint:contextcheck // the worker drains behind the end of ctx
	a, err := agent.New(agent.Options{
		Conn: o.Conn, Family: node.FamilyRack, Instance: o.Instance, Opener: o.Opener, Handlers: o.Handlers,
		DrainTimeout: o.DrainTimeout, ProgressInterval: o.ProgressInterval,
		Failpoints: o.Failpoints, Registerer: o.Registerer, Tracer: o.Tracer, Logger: o.Logger,
	})
	if err != nil {
		return fmt.Errorf("coordinator: %w", err)
	}
	return a.Run(ctx)
}
