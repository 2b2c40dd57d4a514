// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/tracing"
)

// scope names this package in traces.
const scope = "github.com/rackbus/rackbus/pkg/agent"

// trace begins the span of one owner's work on the job, as a child of the call that
// asked for it. The returned function ends it, with the outcome if there is one.
func (t *Task) trace(ctx context.Context) (context.Context, func()) {
	cmd := t.Command()
	ctx, span := t.f.tracer.Tracer(scope).Start(tracing.WithParent(ctx, cmd.GetTraceparent()), "job "+cmd.GetType(),
		trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(
			attribute.String("job_id", cmd.GetJobId()), attribute.String("rack", cmd.GetTarget().GetRackId()),
			attribute.String("node", cmd.GetTarget().GetNodeId()), attribute.Int64("epoch", int64(t.Epoch())),
		))
	return ctx, func() {
		defer span.End()
		t.mu.Lock()
		outcome := t.ck.GetOutcome()
		t.mu.Unlock()
		if outcome == nil {
			return // left to the next owner
		}
		span.SetAttributes(attribute.String("state", job.State(outcome.GetState()).String()))
		if f := outcome.GetFailure(); f != nil {
			span.SetStatus(codes.Error, f.GetFailureCode())
		}
	}
}

// traceStage begins the span of a stage; the returned function ends it.
func traceStage(ctx context.Context, stage string) (context.Context, func(error)) {
	ctx, span := trace.SpanFromContext(ctx).TracerProvider().Tracer(scope).Start(ctx, "stage "+stage)
	return ctx, func(err error) {
		if err != nil {
			span.SetStatus(codes.Error, "stage not completed")
		}
		span.End()
	}
}
