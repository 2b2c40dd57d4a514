// SPDX-License-Identifier: Apache-2.0

// Package tracing is how work that crosses processes stays one trace: its context
// as text in messages and commands, and a span for every change of a device.
//
// Spans are made by the provider of the span they belong to, so nothing here
// needs one, and without a trace nothing happens.
package tracing

import (
	"context"
	"fmt"
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Propagator writes and reads W3C traceparent and tracestate.
func Propagator() propagation.TextMapPropagator { return propagation.TraceContext{} }

// parentKey is the W3C name of the header.
const parentKey = "traceparent"

// Parent returns the W3C traceparent of the span in ctx, "" without one.
func Parent(ctx context.Context) string {
	carrier := propagation.MapCarrier{}
	Propagator().Inject(ctx, carrier)
	return carrier[parentKey]
}

// WithParent returns ctx as one whose spans are children of that traceparent. What
// cannot be read is ignored.
func WithParent(ctx context.Context, parent string) context.Context {
	if parent == "" {
		return ctx
	}
	return Propagator().Extract(ctx, propagation.MapCarrier{parentKey: parent})
}

// Change begins the span of a request that changes a device; the returned function
// ends it. Reads have no spans: a job of hours polls thousands of times.
func Change(ctx context.Context, method, path string) (context.Context, func(*http.Response, error)) {
	ctx, span := trace.SpanFromContext(ctx).TracerProvider().Tracer("github.com/rackbus/rackbus/pkg/tracing").
		Start(ctx, method+" "+path, trace.WithSpanKind(trace.SpanKindClient),
			trace.WithAttributes(attribute.String("http.request.method", method), attribute.String("url.path", path)))
	return ctx, func(resp *http.Response, err error) {
		defer span.End()
		switch {
		case err != nil:
			span.SetStatus(codes.Error, "no answer")
		case resp.StatusCode >= http.StatusBadRequest:
			// The words of the status are the device's own.
			span.SetStatus(codes.Error, fmt.Sprintf("%d %s", resp.StatusCode, http.StatusText(resp.StatusCode)))
			fallthrough
		default:
			span.SetAttributes(attribute.Int("http.response.status_code", resp.StatusCode))
		}
	}
}
