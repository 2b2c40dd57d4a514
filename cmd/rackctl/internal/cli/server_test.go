// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/rackbus/rackbus/cmd/rackctl/internal/cli"
	"github.com/rackbus/rackbus/pkg/certs"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
	"github.com/rackbus/rackbus/proto/rackmanagerv2"
)

// noon is what the clock of tests shows.
var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// authority is the CA of all labs.
var authority = sync.OnceValue(func() *certs.CA {
	ca, err := certs.NewCA()
	if err != nil {
		panic(err)
	}
	return ca
})

// answer is what a scripted call does.
type answer func(ctx context.Context, req proto.Message) (proto.Message, error)

// lab is a gRPC server with mutual TLS whose answers a test scripts. Calls without
// a script are UNIMPLEMENTED, as those that a server lacks.
type lab struct {
	t    *testing.T
	addr string
	dir  string

	mu sync.Mutex
	// watch is what WatchJobs does.
	watch   watchScript
	scripts map[string]answer
	calls   map[string][]received
}

// received is one received call.
type received struct {
	req proto.Message
	md  metadata.MD
}

// watchScript answers a watch.
type watchScript func(*rackbusv1.WatchJobsRequest, grpc.ServerStreamingServer[rackbusv1.WatchJobsResponse]) error

type scriptedJobs struct {
	rackbusv1.UnimplementedJobsServer
	lab *lab
}

func (j *scriptedJobs) WatchJobs(req *rackbusv1.WatchJobsRequest, stream grpc.ServerStreamingServer[rackbusv1.WatchJobsResponse]) error {
	j.lab.note(stream.Context(), "WatchJobs", req)
	j.lab.mu.Lock()
	watch := j.lab.watch
	j.lab.mu.Unlock()
	if watch == nil {
		return status.Error(codes.Unimplemented, "no watch here")
	}
	return watch(req, stream)
}

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{t: t, dir: t.TempDir(), scripts: make(map[string]answer), calls: make(map[string][]received)}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l.addr = listener.Addr().String()
	l.write("ca.crt", authority().PEM())
	for name, leaf := range map[string]certs.Leaf{
		"server": {Role: "server", Hosts: []string{"127.0.0.1", "localhost"}}, "me": {Role: "alice"},
	} {
		cert, key, err := authority().Issue(leaf)
		require.NoError(t, err)
		l.write(name+".crt", cert)
		l.write(name+".key", key)
	}
	pair, err := tls.LoadX509KeyPair(l.path("server.crt"), l.path("server.key"))
	require.NoError(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority().PEM())
	server := grpc.NewServer(grpc.UnaryInterceptor(l.unary), grpc.Creds(credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: roots,
	})))
	rackmanager.RegisterRackManagerServer(server, rackmanager.UnimplementedRackManagerServer{})
	rackmanagerv2.RegisterRackManagerV2Server(server, rackmanagerv2.UnimplementedRackManagerV2Server{})
	rackbusv1.RegisterJobsServer(server, &scriptedJobs{lab: l})
	rackbusv1.RegisterFirmwareServer(server, rackbusv1.UnimplementedFirmwareServer{})
	rackbusv1.RegisterAccessServer(server, rackbusv1.UnimplementedAccessServer{})
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		require.NoError(t, <-done)
	})
	return l
}

func (l *lab) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	name := path.Base(info.FullMethod)
	l.note(ctx, name, req.(proto.Message))
	l.mu.Lock()
	script := l.scripts[name]
	l.mu.Unlock()
	if script == nil {
		return handle(ctx, req)
	}
	return script(ctx, req.(proto.Message))
}

func (l *lab) note(ctx context.Context, name string, req proto.Message) {
	md, _ := metadata.FromIncomingContext(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls[name] = append(l.calls[name], received{proto.Clone(req), md})
}

// on scripts a call, by the name of its method.
func (l *lab) on(name string, do answer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.scripts[name] = do
}

// watches scripts WatchJobs.
func (l *lab) watches(do watchScript) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watch = do
}

// says scripts a call with one answer.
func (l *lab) says(name string, m proto.Message) {
	l.on(name, func(context.Context, proto.Message) (proto.Message, error) { return m, nil })
}

// fails scripts a call with one status.
func (l *lab) fails(name string, code codes.Code, text string) {
	l.on(name, func(context.Context, proto.Message) (proto.Message, error) { return nil, status.Error(code, text) })
}

// callsOf are the calls of a method.
func (l *lab) callsOf(name string) []received {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.calls[name]
}

// last is the newest request of a method.
func last[M proto.Message](l *lab, name string) M {
	l.t.Helper()
	calls := l.callsOf(name)
	require.NotEmpty(l.t, calls, "%s was not called", name)
	return calls[len(calls)-1].req.(M)
}

func (l *lab) path(name string) string { return filepath.Join(l.dir, name) }

func (l *lab) write(name string, content []byte) string {
	l.t.Helper()
	require.NoError(l.t, os.WriteFile(l.path(name), content, 0o600))
	return l.path(name)
}

// environment names the lab to rackctl.
func (l *lab) environment() map[string]string {
	return map[string]string{
		"RACKCTL_ADDRESS": l.addr, "RACKCTL_CA": l.path("ca.crt"), "RACKCTL_CERT": l.path("me.crt"), "RACKCTL_KEY": l.path("me.key"),
	}
}

// shortly has no long waits.
var shortly = cli.Timing{Reconnect: time.Millisecond, ReconnectMax: 5 * time.Millisecond, Poll: time.Millisecond, Redraw: time.Millisecond}

// run runs a command line against the lab.
func (l *lab) run(args ...string) call { return l.runIn(func(*cli.Env) {}, args...) }

func (l *lab) runIn(change func(*cli.Env), args ...string) call {
	l.t.Helper()
	return runIn(l.t, func(env *cli.Env) {
		vars := l.environment()
		env.Getenv = func(name string) string { return vars[name] }
		env.Now = func() time.Time { return noon }
		env.Timing = shortly
		change(env)
	}, args...)
}

// with adds variables to the environment.
func with(vars map[string]string) func(*cli.Env) {
	return func(env *cli.Env) {
		former := env.Getenv
		env.Getenv = func(name string) string {
			if v, ok := vars[name]; ok {
				return v
			}
			return former(name)
		}
	}
}
