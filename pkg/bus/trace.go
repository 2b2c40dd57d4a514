// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"context"

	"github.com/nats-io/nats.go"

	"github.com/rackbus/rackbus/pkg/tracing"
)

// headers carry the context of a trace as W3C traceparent and tracestate, so
// that what an agent or the jobs service does belongs to the call that asked for
// it. Without a trace nothing is added.
type headers nats.Header

// Get returns the value of a header; NATS headers are case sensitive.
func (h headers) Get(key string) string { return nats.Header(h).Get(key) }

// Set sets a header.
func (h headers) Set(key, value string) { nats.Header(h).Set(key, value) }

// Keys lists the headers.
func (h headers) Keys() []string {
	keys := make([]string, 0, len(h))
	for k := range h {
		keys = append(keys, k)
	}
	return keys
}

func injectTrace(ctx context.Context, h nats.Header) { tracing.Propagator().Inject(ctx, headers(h)) }

func extractTrace(ctx context.Context, h nats.Header) context.Context {
	return tracing.Propagator().Extract(ctx, headers(h))
}
