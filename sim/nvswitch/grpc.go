// SPDX-License-Identifier: Apache-2.0

package nvswitch

import (
	"context"
	"crypto/tls"
	"net"
	"strings"

	"github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/rackbus/rackbus/proto/nmxc"
	"github.com/rackbus/rackbus/sim/reqlog"
)

// serveControllers serves the gRPC services of the apps and gNMI. Whoever speaks anything else gets a closed
// connection.
func (s *Switch) serveControllers() {
	controller := s.grpcServer(func() *tls.Config { return s.appTLS(controllerApp) }, serviceNMXC)
	nmxc.RegisterNMX_ControllerServer(controller.server, &controllerService{sw: s})
	controller.serve()
	s.grpcServer(func() *tls.Config { return s.appTLS(telemetryApp) }, serviceTelemetry).serve()
	telemetry := s.grpcServer(s.gnmiTLS, serviceGNMI)
	gnmi.RegisterGNMIServer(telemetry.server, &gnmiService{sw: s})
	telemetry.serve()
}

// grpcServer is a gRPC server with its listener.
type grpcServer struct {
	sw       *Switch
	server   *grpc.Server
	listener net.Listener
}

func (s *Switch) grpcServer(config func() *tls.Config, name string) *grpcServer {
	g := &grpcServer{
		sw:       s,
		server:   grpc.NewServer(grpc.UnaryInterceptor(s.recordCall)),
		listener: &secured{Listener: s.services[name].door, config: config},
	}
	s.grpcs = append(s.grpcs, g.server)
	return g
}

func (g *grpcServer) serve() {
	g.sw.wg.Go(func() { _ = g.server.Serve(g.listener) }) // ends when the switch is closed
}

// secured is a listener whose connections speak TLS whenever there is a configuration for it.
type secured struct {
	net.Listener
	config func() *tls.Config
}

// Accept waits for a connection.
func (l *secured) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if config := l.config(); config != nil {
		return tls.Server(c, config), nil
	}
	return c, nil
}

// appTLS is the TLS of an app's port, nil for plaintext.
func (s *Switch) appTLS(name string) *tls.Config {
	s.lock()
	defer s.mu.Unlock()
	a := s.apps[name]
	if a.encryption != "mtls" {
		return nil
	}
	return s.serverTLS(a.certificate, a.authority, "h2")
}

// gnmiTLS is the TLS of gNMI, which is always on.
func (s *Switch) gnmiTLS() *tls.Config {
	s.lock()
	defer s.mu.Unlock()
	return s.serverTLS(s.running.text(gnmiPath, "certificate"), s.running.text(gnmiMTLS, "ca-certificate"), "h2")
}

// recordCall puts calls into the request log.
func (s *Switch) recordCall(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	o := s.begin(reqlog.Entry{
		Protocol: reqlog.GRPC, Method: "CALL", Path: info.FullMethod, ReadOnly: !strings.HasSuffix(info.FullMethod, "/SetStaticConfig"),
		UserAgent: strings.Join(metadata.ValueFromIncomingContext(ctx, "user-agent"), " "),
	})
	out, err := handler(ctx, req)
	o.end(int(status.Code(err)), true)
	return out, err
}

// gnmiService is the part of gNMI that clients use to see whether a switch answers.
type gnmiService struct {
	gnmi.UnimplementedGNMIServer
	sw *Switch
}

// Capabilities tells the models and encodings, to users only.
func (g *gnmiService) Capabilities(ctx context.Context, _ *gnmi.CapabilityRequest) (*gnmi.CapabilityResponse, error) {
	s := g.sw
	s.lock()
	defer s.mu.Unlock()
	if spend(&s.knobs.GNMIUnavailable) {
		return nil, status.Error(codes.Unavailable, "the server is starting")
	}
	one := func(name string) string {
		if values := metadata.ValueFromIncomingContext(ctx, name); len(values) == 1 {
			return values[0]
		}
		return ""
	}
	if user := one("username"); s.expired[user] || !s.accepts(user, one("password")) {
		return nil, status.Error(codes.Unauthenticated, "the credentials were not accepted")
	}
	return &gnmi.CapabilityResponse{
		SupportedModels:    []*gnmi.ModelData{{Name: "openconfig-interfaces", Organization: "OpenConfig working group", Version: "3.0.2"}},
		SupportedEncodings: []gnmi.Encoding{gnmi.Encoding_JSON_IETF, gnmi.Encoding_PROTO},
		GNMIVersion:        "0.10.0",
	}, nil
}
