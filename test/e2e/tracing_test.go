// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/rackbus/rackbus/proto/rackmanager"
	"github.com/rackbus/rackbus/sim"
	"github.com/rackbus/rackbus/sim/bmc"
	"github.com/rackbus/rackbus/test/cluster"
)

// TestTracesFollowAJobAcrossTheBus updates a tray within a trace of the caller's: the call, the work of the agent, its stages
// and what it sent to the device are all part of it, each below the one that caused it.
func TestTracesFollowAJobAcrossTheBus(t *testing.T) {
	t.Parallel()
	spans := startCollector(t)
	c := cluster.Start(t, cluster.Options{
		Settings: map[string]string{"tracing.endpoint": fmt.Sprintf("%q", spans.address), "tracing.insecure": "true", "tracing.sample_ratio": "0"},
		Racks:    []sim.Options{{RackID: "traced", Compute: 1, Timing: bmc.Timing{Task: 100 * time.Millisecond, BMCOutage: 50 * time.Millisecond}}},
	})
	s := &scene{Cluster: c, Client: c.Client(0)}
	ctx := within(t)
	_, err := s.CreateNodes(ctx, &rackmanager.CreateNodesRequest{Nodes: c.NodeSet(c.Racks[0])})
	require.NoError(t, err)
	c.WriteTrayPackage("tray.fwpkg", "2.0")

	const trace, caller = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	traced := metadata.AppendToOutgoingContext(ctx, "traceparent", "00-"+trace+"-"+caller+"-01")
	node := c.Racks[0].NodeSet().Nodes[0]
	out, err := s.UpdateFirmware(traced, &rackmanager.UpdateFirmwareRequest{
		RackId: node.RackID, NodeId: node.NodeID, Filename: "tray.fwpkg", Activate: true,
	})
	require.NoError(t, err)
	s.completed(ctx, t, out.GetJobId())

	call := spans.await(ctx, t, "rack_manager.RackManager/UpdateFirmware")
	require.Equal(t, caller, hex.EncodeToString(call.GetParentSpanId()))
	work := spans.await(ctx, t, "job firmware_update")
	require.Equal(t, call.GetSpanId(), work.GetParentSpanId())
	upload := spans.await(ctx, t, "stage upload")
	require.Equal(t, work.GetSpanId(), upload.GetParentSpanId())
	sent := spans.await(ctx, t, "POST /redfish/v1/UpdateService/update-multipart")
	require.Equal(t, upload.GetSpanId(), sent.GetParentSpanId())
	spans.mu.Lock()
	defer spans.mu.Unlock()
	for name, span := range spans.byName {
		require.Equal(t, trace, hex.EncodeToString(span.GetTraceId()), "%s: what has no caller's trace is not sampled", name)
	}
}

// spanCollector takes spans as an OTLP collector does.
type spanCollector struct {
	collector.UnimplementedTraceServiceServer
	address string

	mu     sync.Mutex
	byName map[string]*tracepb.Span
	more   chan struct{}
}

func startCollector(t *testing.T) *spanCollector {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &spanCollector{address: listener.Addr().String(), byName: map[string]*tracepb.Span{}, more: make(chan struct{}, 1)}
	server := grpc.NewServer()
	collector.RegisterTraceServiceServer(server, s)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		require.NoError(t, <-served)
	})
	return s
}

// Export takes spans.
func (s *spanCollector) Export(_ context.Context, req *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, resource := range req.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				s.byName[span.GetName()] = span
			}
		}
	}
	select {
	case s.more <- struct{}{}:
	default:
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// await waits for a span, which comes a few seconds after its end.
func (s *spanCollector) await(ctx context.Context, t *testing.T, name string) *tracepb.Span {
	t.Helper()
	for {
		s.mu.Lock()
		span, names := s.byName[name], len(s.byName)
		s.mu.Unlock()
		if span != nil {
			return span
		}
		select {
		case <-s.more:
		case <-ctx.Done():
			require.FailNow(t, "no such span", "%s, among %d", name, names)
		}
	}
}
