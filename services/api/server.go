// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"

	grpcprom "github.com/grpc-ecosystem/go-grpc-middleware/providers/prometheus"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/rackbus/rackbus/pkg/admission"
	"github.com/rackbus/rackbus/pkg/firmware/catalog"
	"github.com/rackbus/rackbus/pkg/telemetry"
	"github.com/rackbus/rackbus/pkg/tracing"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
	"github.com/rackbus/rackbus/proto/rackmanagerv2"
	"github.com/rackbus/rackbus/services/api/internal/evidence"
	"github.com/rackbus/rackbus/services/api/internal/firmwarefile"
	"github.com/rackbus/rackbus/services/api/internal/jobview"
)

// Server is the API of one process.
type Server struct {
	opts     Options
	log      *slog.Logger
	admitter *admission.Admitter
	view     *jobview.View
	files    *firmwarefile.Dir
	catalog  FirmwareCatalog
	results  *resultCache
	metrics  *metrics
	audit    *auditor
	browsers *browsers // nil without an HTTP listener
	// links and evidence sign and serve links to evidence; nil without a key.
	links    *evidence.Signer
	evidence *evidence.Handler

	grpc   *grpc.Server
	health *health.Server
	// What every call passes, whatever way it comes.
	unaryChain  []grpc.UnaryServerInterceptor
	streamChain []grpc.StreamServerInterceptor
	stopped     chan struct{} // closed when streams must end
	stop        sync.Once
}

// New returns a server that serves once Run is called.
func New(opts Options) (*Server, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	files, err := firmwarefile.Open(opts.FirmwareDir)
	if err != nil {
		return nil, err
	}
	s := &Server{
		opts: opts, log: opts.Logger, files: files, results: newResultCache(),
		metrics: newMetrics(opts.Registerer), stopped: make(chan struct{}),
		catalog: opts.Catalog,
	}
	if s.catalog == nil {
		s.catalog = catalog.NewBus(opts.Conn, opts.Logger)
	}
	s.view = jobview.New(jobview.Options{
		Conn: opts.Conn, Retry: opts.Timing.WatchRetry, Logger: opts.Logger, OnSize: s.metrics.viewJobs.Set, OnRollouts: s.metrics.setRollouts,
	})
	s.metrics.capacity.Set(float64(opts.Admission.MaxTrackedJobs))
	adm := opts.Admission
	adm.Conn, adm.Logger, adm.OnConflict = opts.Conn, opts.Logger, s.metrics.conflicts.Inc
	if adm.BrokerLimit == 0 {
		adm.BrokerLimit = opts.Timing.BrokerLimit
	}
	if s.admitter, err = admission.New(adm); err != nil {
		return nil, err
	}
	s.audit = newAuditor(opts.Conn, opts.Timing, s.metrics.auditLost, opts.Logger)
	s.newEvidence()
	s.grpc = s.newGRPC()
	if opts.HTTP != nil {
		if s.browsers, err = s.newBrowsers(*opts.HTTP); err != nil {
			s.admitter.Close()
			return nil, err
		}
	}
	opts.Readiness.Add("bus", func(context.Context) error { return opts.Conn.Ready() })
	opts.Readiness.Add("job_view", func(context.Context) error { return s.view.Ready() })
	return s, nil
}

func (s *Server) newGRPC() *grpc.Server {
	grpcMetrics := telemetry.NewGRPCMetrics(s.opts.Registerer)
	// The calls of the console pass the same interceptors.
	s.unaryChain = []grpc.UnaryServerInterceptor{grpcMetrics.UnaryServerInterceptor(), s.guard, s.unary, s.authorize, rolloutOnlyForBatches}
	s.streamChain = []grpc.StreamServerInterceptor{grpcMetrics.StreamServerInterceptor(), s.guardStream, s.stream, s.authorizeStream, rolloutOnlyForBatchesStream}
	o := []grpc.ServerOption{
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime: s.opts.KeepaliveMinTime, PermitWithoutStream: true,
		}),
		grpc.MaxRecvMsgSize(s.opts.MaxRequestBytes),
		grpc.ChainUnaryInterceptor(s.unaryChain...),
		grpc.ChainStreamInterceptor(s.streamChain...),
	}
	if s.opts.Tracer != nil {
		o = append(o, grpc.StatsHandler(otelgrpc.NewServerHandler(
			otelgrpc.WithTracerProvider(s.opts.Tracer), otelgrpc.WithPropagators(tracing.Propagator()))))
	}
	if s.opts.TLS != nil {
		o = append(o, grpc.Creds(credentials.NewTLS(s.opts.TLS)))
	}
	g := grpc.NewServer(o...)
	s.register(g)
	s.health = health.NewServer()
	healthpb.RegisterHealthServer(g, s.health)
	if s.opts.Reflection {
		reflection.Register(g)
	}
	initialize(grpcMetrics, g)
	return g
}

// register offers the services of the API to callers of one kind.
func (s *Server) register(r grpc.ServiceRegistrar) {
	rackmanager.RegisterRackManagerServer(r, &rackManager{Server: s})
	rackmanagerv2.RegisterRackManagerV2Server(r, &rackManagerV2{Server: s})
	rackbusv1.RegisterJobsServer(r, &jobsService{Server: s})
	rackbusv1.RegisterFirmwareServer(r, &firmwareService{Server: s})
	rackbusv1.RegisterAccessServer(r, &accessService{Server: s})
}

// initialize makes every method read zero before its first call.
func initialize(m *grpcprom.ServerMetrics, g *grpc.Server) { m.InitializeMetrics(g) }

// rackManager is the published service. RPCs of later versions answer
// UNIMPLEMENTED.
type rackManager struct {
	rackmanager.UnimplementedRackManagerServer
	*Server
}

// rackManagerV2 is the second published service.
type rackManagerV2 struct {
	rackmanagerv2.UnimplementedRackManagerV2Server
	*Server
}

// jobsService is rackbus.v1.Jobs.
type jobsService struct {
	rackbusv1.UnimplementedJobsServer
	*Server
}

// Run serves until ctx ends, then drains: new jobs are refused, running calls
// may end within the drain timeout, and it returns nil. A listener that cannot be
// had or fails is an error.
func (s *Server) Run(ctx context.Context) error {
	defer s.files.Close()
	defer s.audit.close()
	defer s.admitter.Close()
	lis := s.opts.Listener
	if lis == nil {
		var config net.ListenConfig
		var err error
		if lis, err = config.Listen(ctx, "tcp", s.opts.Addr); err != nil {
			return fmt.Errorf("listen for gRPC: %w", err)
		}
	}
	// The view and the health status outlive ctx: they serve while draining.
	background, end := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() { s.view.Run(background) })
	wg.Go(func() { s.followReadiness(background, ctx) })
	defer wg.Wait()
	defer end()

	failed := make(chan error, 1)
	stopHTTP := func(context.Context) {}
	if s.browsers != nil {
		l, err := s.browsers.listen(ctx)
		if err != nil {
			return errors.Join(err, lis.Close())
		}
		stopHTTP = s.browsers.start(background, l, func(err error) { failed <- err })
	}
	served := make(chan error, 1)
	go func() { served <- s.grpc.Serve(lis) }()
	s.log.InfoContext(ctx, "api serving", "addr", lis.Addr().String(), "tls", s.opts.TLS != nil, "version", telemetry.Version())
	select {
	case err := <-served:
		s.endStreams()
		s.grpc.Stop()
		stopHTTP(background)
		return fmt.Errorf("serve gRPC: %w", err)
	case err := <-failed:
		s.endStreams()
		s.grpc.Stop()
		stopHTTP(background)
		if second := <-served; second != nil && !errors.Is(second, grpc.ErrServerStopped) {
			err = errors.Join(err, second)
		}
		return err
	case <-ctx.Done():
	}
	s.drain(context.WithoutCancel(ctx), stopHTTP)
	if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serve gRPC: %w", err)
	}
	return nil
}

// drain goes on answering reads while calls end, and cuts what is left.
func (s *Server) drain(ctx context.Context, stopHTTP func(context.Context)) {
	s.log.InfoContext(ctx, "api draining", "timeout", s.opts.DrainTimeout)
	s.admitter.Drain()
	limit, cancel := context.WithTimeout(ctx, s.opts.DrainTimeout)
	defer cancel()
	if err := pause(limit, min(s.opts.Timing.DrainGrace, s.opts.DrainTimeout)); err != nil {
		s.log.DebugContext(ctx, "api drain grace cut", "err", err)
	}
	s.endStreams()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		var wg sync.WaitGroup
		wg.Go(func() { stopHTTP(limit) })
		s.grpc.GracefulStop()
		wg.Wait()
	}()
	select {
	case <-ended:
	case <-limit.Done():
		s.log.WarnContext(ctx, "api stopped with calls running")
		s.grpc.Stop()
		<-ended
	}
	s.log.InfoContext(ctx, "api stopped")
}

// endStreams ends what would otherwise never end by itself.
func (s *Server) endStreams() { s.stop.Do(func() { close(s.stopped) }) }

// followReadiness keeps the gRPC health status in line with the readiness. Once
// serving ends, no further calls are invited.
func (s *Server) followReadiness(ctx, serving context.Context) {
	for {
		status := healthpb.HealthCheckResponse_SERVING
		if err := s.opts.Readiness.Check(ctx); err != nil || serving.Err() != nil {
			status = healthpb.HealthCheckResponse_NOT_SERVING
		}
		s.health.SetServingStatus("", status)
		for name := range s.grpc.GetServiceInfo() {
			s.health.SetServingStatus(name, status)
		}
		if err := pause(ctx, s.opts.Timing.HealthInterval); err != nil {
			return
		}
	}
}
