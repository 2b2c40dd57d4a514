// SPDX-License-Identifier: Apache-2.0

package telemetry_test

import (
	"context"
	"net"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/rackbus/rackbus/pkg/telemetry"
)

func TestGRPCMetrics(t *testing.T) {
	registry := telemetry.NewRegistry()
	metrics := telemetry.NewGRPCMetrics(registry)
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(metrics.UnaryServerInterceptor()))
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	metrics.InitializeMetrics(server)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	defer func() { server.Stop(); require.NoError(t, <-done) }()

	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()
	client := grpc_health_v1.NewHealthClient(conn)
	_, err = client.Check(context.Background(), &grpc_health_v1.HealthCheckRequest{})
	require.NoError(t, err)
	_, err = client.Check(context.Background(), &grpc_health_v1.HealthCheckRequest{Service: "none"})
	require.Error(t, err)

	families, err := registry.Gather()
	require.NoError(t, err)
	for _, family := range families {
		if family.GetName() == "grpc_server_handling_seconds" {
			var bounds []float64
			for _, bucket := range family.GetMetric()[0].GetHistogram().GetBucket() {
				bounds = append(bounds, bucket.GetUpperBound())
			}
			require.Equal(t, []float64{0.01, 0.05, 0.1, 0.5, 1, 5, 10}, bounds)
		}
	}
	want := `
# HELP grpc_server_started_total Total number of RPCs started on the server.
# TYPE grpc_server_started_total counter
grpc_server_started_total{grpc_method="Check",grpc_service="grpc.health.v1.Health",grpc_type="unary"} 2
grpc_server_started_total{grpc_method="List",grpc_service="grpc.health.v1.Health",grpc_type="unary"} 0
grpc_server_started_total{grpc_method="Watch",grpc_service="grpc.health.v1.Health",grpc_type="server_stream"} 0
`
	require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(want), "grpc_server_started_total"))
	count, err := testutil.GatherAndCount(registry, "grpc_server_handled_total", "grpc_server_handling_seconds")
	require.NoError(t, err)
	require.Positive(t, count)
}
