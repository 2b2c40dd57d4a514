// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"runtime"

	grpcprom "github.com/grpc-ecosystem/go-grpc-middleware/providers/prometheus"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// NewRegistry returns a registry with the Go runtime and process collectors and
// rackbus_build_info (labels version, go_version; always 1).
func NewRegistry() *prometheus.Registry {
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "rackbus_build_info",
		Help:        "Version of this process; the value is always 1.",
		ConstLabels: prometheus.Labels{"version": Version(), "go_version": runtime.Version()},
	})
	info.Set(1)
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		info,
	)
	return registry
}

// NewGRPCMetrics registers the conventional gRPC server metrics
// (grpc_server_started_total, grpc_server_handled_total,
// grpc_server_handling_seconds and the message counters). Install its unary and
// stream interceptors in the server, then call InitializeMetrics with it so
// that every method reads zero before its first call.
func NewGRPCMetrics(registerer prometheus.Registerer) *grpcprom.ServerMetrics {
	metrics := grpcprom.NewServerMetrics(grpcprom.WithServerHandlingTimeHistogram(
		// The buckets of the published service, so that dashboards carry over.
		grpcprom.WithHistogramBuckets([]float64{0.01, 0.05, 0.1, 0.5, 1, 5, 10}),
	))
	registerer.MustRegister(metrics)
	return metrics
}
