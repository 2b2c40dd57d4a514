// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"github.com/rackbus/rackbus/pkg/admission"
	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/certs"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

func TestCodes(t *testing.T) {
	t.Parallel()
	for c, want := range map[Code]codes.Code{
		CodeNotFound: codes.NotFound, CodeAlreadyExists: codes.AlreadyExists, CodeInvalidArgument: codes.InvalidArgument,
		CodeTimeout: codes.DeadlineExceeded, CodeFailedPrecondition: codes.FailedPrecondition, CodeUnavailable: codes.Unavailable,
		CodeUnimplemented: codes.Unimplemented, CodeResourceExhausted: codes.ResourceExhausted, CodePermissionDenied: codes.PermissionDenied, CodeInternal: codes.Internal, codeCount: codes.Internal,
	} {
		require.Equal(t, want, c.GRPC())
		require.Equal(t, want, status.Code(&Error{Code: c}))
	}
	for name, c := range map[string]struct {
		err  error
		code codes.Code
	}{
		"nil":        {nil, codes.OK},
		"away":       {bus.ErrUnavailable, codes.Unavailable},
		"away, late": {errors.Join(bus.ErrUnavailable, context.DeadlineExceeded), codes.Unavailable},
		"unknown":    {bus.ErrOutcomeUnknown, codes.Unavailable},
		"contention": {bus.ErrConflict, codes.Unavailable},
		"closing":    {admission.ErrClosed, codes.Unavailable},
		"late":       {context.DeadlineExceeded, codes.DeadlineExceeded},
		"cancelled":  {context.Canceled, codes.Canceled},
		"key":        {admission.ErrKeyReused, codes.FailedPrecondition},
		"setup":      {bus.ErrMisconfigured, codes.Internal},
		"other":      {errors.New("secret detail"), codes.Internal},
	} {
		err := asStatus(statusError(c.err))
		require.Equal(t, c.code, status.Code(err), name)
		if err != nil {
			require.NotContains(t, err.Error(), "secret detail")
		}
	}
}

func TestVersionAnswersWithoutTheBus(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register(compute("r1", "a"))
	h.firmware("fw.pkg", "x")
	h.stop()
	h.start(func(o *Options) { o.Timing.BrokerLimit = 300 * time.Millisecond })
	h.broker.Close()
	version, err := h.rm.GetVersion(t.Context(), &rackmanager.GetVersionRequest{})
	require.NoError(t, err)
	require.NotEmpty(t, version.GetVersion())
	nodes := set(compute("r1", "a"))
	for name, call := range map[string]func(context.Context) error{
		"CreateNodes": func(ctx context.Context) error {
			_, err := h.rm.CreateNodes(ctx, &rackmanager.CreateNodesRequest{Nodes: nodes})
			return err
		},
		"UpdateFirmware": func(ctx context.Context) error {
			_, err := h.rm.UpdateFirmware(ctx, &rackmanager.UpdateFirmwareRequest{RackId: "r1", NodeId: "a", Filename: "fw.pkg"})
			return err
		},
		"BatchUpdateFirmware": func(ctx context.Context) error {
			_, err := h.rm.BatchUpdateFirmware(ctx, &rackmanager.BatchUpdateFirmwareRequest{Nodes: nodes, FirmwareTargets: map[int32]*rackmanager.FirmwareTargetList{
				1: {Targets: []*rackmanager.FirmwareTarget{{Filename: "fw.pkg"}}}}})
			return err
		},
		"GetFirmwareJobStatus": func(ctx context.Context) error {
			_, err := h.rm.GetFirmwareJobStatus(ctx, &rackmanager.GetFirmwareJobStatusRequest{JobId: unknownJob})
			return err
		},
		"BatchSetPowerState": func(ctx context.Context) error {
			_, err := h.rm.BatchSetPowerState(ctx, &rackmanager.BatchSetPowerStateRequest{Nodes: nodes, Operation: opOn})
			return err
		},
		"GetPowerState": func(ctx context.Context) error {
			_, err := h.rm.GetPowerState(ctx, &rackmanager.GetPowerStateRequest{RackId: "r1", NodeId: "a"})
			return err
		},
		"ListRacks": func(ctx context.Context) error {
			_, err := h.rm.ListRacks(ctx, &rackmanager.ListRacksRequest{})
			return err
		},
		"CancelJob": func(ctx context.Context) error {
			_, err := h.jobs.CancelJob(ctx, &rackbusv1.CancelJobRequest{JobId: unknownJob})
			return err
		},
	} {
		start := time.Now()
		requireCode(t, call(t.Context()), codes.Unavailable, "")
		require.Less(t, time.Since(start), 15*time.Second, name)
	}
	health := healthpb.NewHealthClient(h.cc)
	require.Eventually(t, func() bool {
		resp, err := health.Check(t.Context(), &healthpb.HealthCheckRequest{})
		return err == nil && resp.GetStatus() == healthpb.HealthCheckResponse_NOT_SERVING
	}, 20*time.Second, 10*time.Millisecond)
}

func TestHealthAndMissingMethods(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	health := healthpb.NewHealthClient(h.cc)
	for _, service := range []string{"", "rack_manager.RackManager", "rack_manager_v2.RackManagerV2", "rackbus.v1.Jobs", "rackbus.v1.Firmware"} {
		require.Eventually(t, func() bool {
			resp, err := health.Check(t.Context(), &healthpb.HealthCheckRequest{Service: service})
			return err == nil && resp.GetStatus() == healthpb.HealthCheckResponse_SERVING
		}, 20*time.Second, 10*time.Millisecond, service)
	}
	for _, method := range []string{"/rack_manager.RackManager/OfALaterVersion", "/rack_manager_v2.RackManagerV2/OfALaterVersion"} {
		err := h.cc.Invoke(t.Context(), method, &rackmanager.GetVersionRequest{}, &rackmanager.GetVersionResponse{})
		requireCode(t, err, codes.Unimplemented, "")
	}
	stream, err := reflectionpb.NewServerReflectionClient(h.cc).ServerReflectionInfo(t.Context())
	require.NoError(t, err)
	_, err = stream.Recv()
	requireCode(t, err, codes.Unimplemented, "")
	families, err := h.reg.Gather()
	require.NoError(t, err)
	names := make(map[string]bool)
	for _, f := range families {
		names[f.GetName()] = true
	}
	for _, name := range []string{"grpc_server_handled_total", "rackbus_api_listed_jobs", "rackbus_api_admission_conflicts_total"} {
		require.True(t, names[name], name)
	}
}

func TestReflectionIsASetting(t *testing.T) {
	t.Parallel()
	h := newHarness(t, func(o *Options) { o.Reflection = true })
	stream, err := reflectionpb.NewServerReflectionClient(h.cc).ServerReflectionInfo(t.Context())
	require.NoError(t, err)
	require.NoError(t, stream.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}))
	resp, err := stream.Recv()
	require.NoError(t, err)
	require.Contains(t, resp.String(), "rack_manager.RackManager")
}

// TestD3RequestsBeyondTheLimit names the limit; the largest published request gets in.
func TestD3RequestsBeyondTheLimit(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	big := func(n int) *rackmanager.ApplyFirmwareObjectRequest {
		return &rackmanager.ApplyFirmwareObjectRequest{ConfigJson: strings.Repeat("x", n)}
	}
	_, err := h.rm.ApplyFirmwareObject(t.Context(), big(18<<20))
	requireCode(t, err, codes.ResourceExhausted, "17825792")
	_, err = h.rm.ApplyFirmwareObject(t.Context(), big(16<<20))
	requireCode(t, err, codes.InvalidArgument, "hardware_type is required") // it got in
}

func TestCallsAreLoggedWithoutTheirBody(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register(compute("r1", "a"))
	require.Eventually(t, func() bool { return strings.Contains(h.log.String(), "/rack_manager.RackManager/CreateNodes") }, 20*time.Second, time.Millisecond)
	require.Contains(t, h.log.String(), "code=OK")
	require.Contains(t, h.log.String(), "peer=unknown")
	require.NotContains(t, h.log.String(), plantedPassword)
}

func TestPanicIsAnInternalError(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	_, err := h.server.unary(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "/x/Y"},
		func(context.Context, any) (any, error) { panic("boom") })
	requireCode(t, err, codes.Internal, "internal error")
	require.NotContains(t, err.Error(), "boom")
	err = h.server.stream(nil, streamOf{ctx: t.Context()}, &grpc.StreamServerInfo{FullMethod: "/x/Z"},
		func(any, grpc.ServerStream) error { panic("boom") })
	requireCode(t, err, codes.Internal, "internal error")
	require.Contains(t, h.log.String(), "boom")
}

type streamOf struct {
	grpc.ServerStream
	ctx context.Context
}

func (s streamOf) Context() context.Context { return s.ctx }

// TestD1PingsAreTolerated: clients ping every 10 s, also without a call in flight.
// What they may do is tested with a thousandth of the times; the default is checked
// by its value. The next call goes over the same connection.
func TestD1PingsAreTolerated(t *testing.T) {
	t.Parallel()
	const minTime = 5 * time.Millisecond
	h := newHarness(t, func(o *Options) { o.KeepaliveMinTime = minTime })
	conn, err := net.Dial("tcp", h.addr)
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.Write([]byte(http2.ClientPreface))
	require.NoError(t, err)
	framer := http2.NewFramer(conn, conn)
	require.NoError(t, framer.WriteSettings())
	require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	ping := func(n int) (answered int, goAway bool) {
		for i := range n {
			if framer.WritePing(false, [8]byte{byte(i)}) != nil {
				return answered, true
			}
			for got := false; !got; {
				f, err := framer.ReadFrame()
				if err != nil {
					return answered, true
				}
				switch f := f.(type) {
				case *http2.GoAwayFrame:
					return answered, true
				case *http2.PingFrame:
					got = f.IsAck()
				}
			}
			answered++
			<-time.After(2 * minTime) // the pause between pings is what is tested
		}
		return answered, false
	}
	answered, goAway := ping(10)
	require.False(t, goAway, "pings twice as rare as the limit")
	require.Equal(t, 10, answered)
	callOver(t, conn, framer)
	o, err := Options{Conn: h.conn, Sealer: h.server.opts.Sealer, Plaintext: true, Addr: "x", FirmwareDir: "x"}.withDefaults()
	require.NoError(t, err)
	require.Equal(t, 5*time.Second, o.KeepaliveMinTime)
}

// callOver makes one call over an HTTP/2 connection that is already open.
func callOver(t *testing.T, conn net.Conn, framer *http2.Framer) {
	t.Helper()
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for _, f := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", rackmanager.RackManager_GetVersion_FullMethodName},
		{":authority", conn.RemoteAddr().String()}, {"content-type", "application/grpc"}, {"te", "trailers"},
	} {
		require.NoError(t, enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}))
	}
	const stream = 1
	require.NoError(t, framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndHeaders: true}))
	require.NoError(t, framer.WriteData(stream, true, make([]byte, 5))) // an empty message
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	for {
		f, err := framer.ReadFrame()
		require.NoError(t, err)
		_, goAway := f.(*http2.GoAwayFrame)
		require.False(t, goAway)
		if h, ok := f.(*http2.MetaHeadersFrame); ok && h.StreamEnded() {
			for _, field := range h.Fields {
				if field.Name == "grpc-status" {
					require.Equal(t, "0", field.Value)
					return
				}
			}
			require.Fail(t, "the answer has no status")
		}
	}
}

// writeCerts makes a CA and a pair for the server below dir.
func writeCerts(t *testing.T, dir string) *certs.CA {
	t.Helper()
	ca, err := certs.NewCA()
	require.NoError(t, err)
	cert, key, err := ca.Issue(certs.Leaf{Role: "server", Hosts: []string{"127.0.0.1"}})
	require.NoError(t, err)
	require.NoError(t, certs.WritePair(dir, "tls", cert, key))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ca.crt"), ca.PEM(), 0o644))
	return ca
}

func clientTLS(t *testing.T, ca *certs.CA, role string) grpc.DialOption {
	t.Helper()
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(ca.PEM()))
	config := &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	if role != "" {
		cert, key, err := ca.Issue(certs.Leaf{Role: role})
		require.NoError(t, err)
		pair, err := tls.X509KeyPair(cert, key)
		require.NoError(t, err)
		config.Certificates = []tls.Certificate{pair}
	}
	return grpc.WithTransportCredentials(credentials.NewTLS(config))
}

func TestMutualTLSFollowsItsFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca := writeCerts(t, dir)
	source, err := certs.Load(certs.Files{
		Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key"), CA: filepath.Join(dir, "ca.crt")}, certs.Options{})
	require.NoError(t, err)
	config, err := source.MutualServer()
	require.NoError(t, err)
	h := newHarness(t, func(o *Options) { o.TLS, o.Plaintext = config, false })
	version := func() error {
		_, err := h.rm.GetVersion(t.Context(), &rackmanager.GetVersionRequest{})
		return err
	}
	h.dial(clientTLS(t, ca, "nico"))
	require.NoError(t, version())
	require.Eventually(t, func() bool { return strings.Contains(h.log.String(), "spiffe://rackbus/nico") }, 20*time.Second, time.Millisecond)
	h.dial(clientTLS(t, ca, ""))
	require.Error(t, version(), "a client certificate is required")

	// A new CA and a new certificate on disk hold for the next connection.
	next := writeCerts(t, dir)
	h.dial(clientTLS(t, ca, "nico"))
	require.Error(t, version(), "the former CA is not trusted any more")
	h.dial(clientTLS(t, next, "nico"))
	require.NoError(t, version())
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	good := func() Options { return Options{Conn: &bus.Conn{}, Plaintext: true, Addr: "x", FirmwareDir: "x"} }
	for name, change := range map[string]func(*Options){
		"no bus":       func(o *Options) { o.Conn = nil },
		"no sealer":    func(*Options) {},
		"no transport": func(o *Options) { o.Plaintext = false },
		"no address":   func(o *Options) { o.Addr = "" },
		"no directory": func(o *Options) { o.FirmwareDir = "" },
	} {
		o := good()
		change(&o)
		_, err := New(o)
		require.ErrorIs(t, err, ErrInvalidOptions, name)
	}
}

// While the server drains it refuses new jobs with a text and goes on reading.
func TestDrain(t *testing.T) {
	t.Parallel()
	h := newHarness(t, func(o *Options) { o.Timing.DrainGrace = time.Minute; o.DrainTimeout = 3 * time.Second })
	h.register(compute("r1", "a"))
	h.firmware("fw.pkg", "x")
	parent, _ := h.admit("r2", 1)
	watch, err := h.jobs.WatchJobs(t.Context(), &rackbusv1.WatchJobsRequest{})
	require.NoError(t, err)
	_, err = watch.Recv()
	require.NoError(t, err)

	stopped := make(chan struct{})
	go func() { defer close(stopped); h.stop() }()
	require.Eventually(t, h.server.admitter.Draining, 20*time.Second, time.Millisecond)
	up, err := h.rm.UpdateFirmware(t.Context(), &rackmanager.UpdateFirmwareRequest{RackId: "r1", NodeId: "a", Filename: "fw.pkg"})
	require.NoError(t, err)
	requireFailure(t, up.GetStatus())
	require.Contains(t, up.GetMessage(), "shutting down")
	require.Equal(t, rackmanager.FirmwareUpdateError_FIRMWARE_UPDATE_ERROR_EXCEPTION, up.GetErrorCode())
	batch, err := h.rm.BatchUpdateFirmwareByNodeType(t.Context(), &rackmanager.BatchUpdateFirmwareByNodeTypeRequest{RackId: "r1", NodeType: 1, Filename: "fw.pkg"})
	require.NoError(t, err)
	require.Contains(t, batch.GetResponse().GetMessage(), textParentFailed)
	require.Contains(t, batch.GetResponse().GetMessage(), "shutting down")
	read, err := h.rm.GetFirmwareJobStatus(t.Context(), &rackmanager.GetFirmwareJobStatusRequest{JobId: parent.String()})
	require.NoError(t, err)
	requireSuccess(t, read.GetStatus(), "")
	for err == nil {
		_, err = watch.Recv()
	}
	require.Equal(t, codes.Unavailable, status.Code(err))
	<-stopped
}
