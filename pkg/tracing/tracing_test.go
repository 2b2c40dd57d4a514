// SPDX-License-Identifier: Apache-2.0

package tracing_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/rackbus/rackbus/pkg/tracing"
)

// TestChangeTellsNoTextsOfDevices: spans leave the site, and a device chooses the words
// behind its status.
func TestChangeTellsNoTextsOfDevices(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	ctx, parent := provider.Tracer("test").Start(t.Context(), "stage")
	_, end := tracing.Change(ctx, //nolint:bodyclose // end takes an answer, it gives none
		http.MethodPost, "/redfish/v1/x")
	end(&http.Response{StatusCode: http.StatusUnauthorized, Status: "401 password hunter2 is wrong"}, nil)
	parent.End()
	require.Len(t, spans.Ended(), 2)
	require.Equal(t, "401 Unauthorized", spans.Ended()[0].Status().Description)
	require.Equal(t, parent.SpanContext().SpanID(), spans.Ended()[0].Parent().SpanID())
}
