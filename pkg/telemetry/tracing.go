// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"crypto/tls"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc/credentials"
)

// TracingOptions say where spans go. Without an Endpoint there are none.
type TracingOptions struct {
	// Endpoint is the host:port of an OTLP collector that speaks gRPC.
	Endpoint string
	// TLS towards it; nil speaks plaintext.
	TLS *tls.Config
	// SampleRatio is the share of calls that are traced, 0 to 1. A call whose
	// caller has decided already keeps that decision.
	SampleRatio float64
	// Service and Instance name the process.
	Service, Instance string
}

// Tracing makes spans and sends them off.
type Tracing struct {
	// Provider never is nil.
	Provider trace.TracerProvider
	sdk      *sdktrace.TracerProvider
}

// NewTracing starts sending spans to the collector. A collector that is away
// costs spans, never a job.
func NewTracing(ctx context.Context, o TracingOptions) (*Tracing, error) {
	if o.Endpoint == "" {
		return &Tracing{Provider: noop.NewTracerProvider()}, nil
	}
	security := otlptracegrpc.WithInsecure()
	if o.TLS != nil {
		security = otlptracegrpc.WithTLSCredentials(credentials.NewTLS(o.TLS))
	}
	exporter, err := otlptracegrpc.New(ctx, otlptracegrpc.WithEndpoint(o.Endpoint), security)
	if err != nil {
		return nil, fmt.Errorf("send traces to %s: %w", o.Endpoint, err)
	}
	return newTracing(sdktrace.NewBatchSpanProcessor(exporter), o), nil
}

func newTracing(processor sdktrace.SpanProcessor, o TracingOptions) *Tracing {
	sdk := sdktrace.NewTracerProvider(
		sdktrace.WithSpanProcessor(processor),
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(o.SampleRatio))),
		sdktrace.WithResource(resource.NewSchemaless(
			attribute.String("service.name", o.Service), attribute.String("service.instance.id", o.Instance),
			attribute.String("service.version", Version()),
		)),
	)
	return &Tracing{Provider: sdk, sdk: sdk}
}

// Close sends what is left, within the limit, also when ctx has ended.
func (t *Tracing) Close(ctx context.Context, limit time.Duration) error {
	if t.sdk == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	if err := t.sdk.Shutdown(ctx); err != nil {
		return fmt.Errorf("send the last traces: %w", err)
	}
	return nil
}
