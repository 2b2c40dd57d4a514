// SPDX-License-Identifier: Apache-2.0

package device_test

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/credentials"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/redfish"
	"github.com/rackbus/rackbus/pkg/secret"
	"github.com/rackbus/rackbus/pkg/ssh"
	"github.com/rackbus/rackbus/pkg/switchtls"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/services/switch-agent/internal/device"
	"github.com/rackbus/rackbus/services/switch-agent/internal/gnmi"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nmxc"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nvue"
)

// caller opens a switch with the logins that a test wants.
type caller struct {
	target *rackbusv1.NodeTarget
	logins map[node.EndpointKind]node.Credentials
}

func (c caller) Target() *rackbusv1.NodeTarget { return c.target }

func (c caller) Credentials(kind node.EndpointKind) (node.Credentials, error) {
	login, ok := c.logins[kind]
	if !ok {
		return node.Credentials{}, fmt.Errorf("%s: %w", kind, credentials.ErrNone)
	}
	return login, nil
}

func (c caller) Guard() agent.Guard { return nil }

func newCaller(change ...func(*caller)) caller {
	login := node.Credentials{User: "admin", Password: secret.New("pw")}
	sealed := &rackbusv1.Sealed{}
	c := caller{
		target: &rackbusv1.NodeTarget{
			RackId: "r", NodeId: "n", NodeType: "switch_gb300_nvidia",
			Host: &rackbusv1.DeviceEndpoint{Address: "10.1.2.3", HostName: "sw1", Credentials: sealed},
			Bmc:  &rackbusv1.DeviceEndpoint{Address: "10.1.2.4", Port: 443, Credentials: sealed},
		},
		logins: map[node.EndpointKind]node.Credentials{node.EndpointHost: login, node.EndpointBMC: login},
	}
	for _, f := range change {
		f(&c)
	}
	return c
}

func opener(t *testing.T, change ...func(*device.Options)) *device.Opener {
	t.Helper()
	opts := device.Options{TLS: switchtls.NewStore(switchtls.Settings{Insecure: true}), HostKeys: ssh.AnyHostKey{}}
	for _, f := range change {
		f(&opts)
	}
	o, err := device.NewOpener(opts)
	require.NoError(t, err)
	t.Cleanup(o.Close)
	return o
}

func TestOpen(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	s, err := opener(t).Open(newCaller(), "d", log)
	require.NoError(t, err)
	defer s.Close()
	require.Equal(t, "d", s.Domain())
	require.Equal(t, "10.1.2.3:9370", s.NMXController())
	require.Equal(t, "10.1.2.3:9352", s.NMXTelemetry())
	require.Equal(t, "10.1.2.3:9339", s.GNMI())
	require.Equal(t, "sw1", s.ServerName())
	_, ok := s.BMC()
	require.True(t, ok)
	shell, err := opener(t, func(o *device.Options) { o.Ports.SSH = 2222 }).Open(newCaller(), "", log)
	require.NoError(t, err)
	require.NotNil(t, shell.NVUE)

	// The SSH port, none, and what is no port all mean that of NVUE.
	for port, want := range map[uint32]uint16{0: 443, 22: 443, 8765: 8765, 70000: 443} {
		s, err := opener(t).Open(newCaller(func(c *caller) { c.target.Host.Port = port }), "", log)
		require.NoError(t, err)
		require.Equal(t, want, s.NVUE.Endpoint().Port, port)
	}
	// A BMC that cannot be logged in to is none.
	for name, change := range map[string]func(*caller){
		"no address":  func(c *caller) { c.target.Bmc.Address = "" },
		"no port":     func(c *caller) { c.target.Bmc.Port = 0 },
		"no login":    func(c *caller) { c.target.Bmc.Credentials = nil },
		"no user":     func(c *caller) { c.logins[node.EndpointBMC] = node.Credentials{Password: secret.New("x")} },
		"no password": func(c *caller) { c.logins[node.EndpointBMC] = node.Credentials{User: "x"} },
	} {
		s, err := opener(t).Open(newCaller(change), "", log)
		require.NoError(t, err, name)
		_, ok := s.BMC()
		require.False(t, ok, name)
	}
	// The BMC alone is enough for what goes through it.
	s, err = opener(t).Open(newCaller(func(c *caller) { c.target.Host = nil }), "", log)
	require.NoError(t, err)
	require.False(t, s.HasHost())
	require.ErrorIs(t, s.Initialize(t.Context()), device.ErrTarget)
}

func TestOpenRefuses(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	for name, change := range map[string]func(*caller){
		"compute":     func(c *caller) { c.target.NodeType = "compute_gb200_nvidia" },
		"unknown":     func(c *caller) { c.target.NodeType = "x" },
		"loopback":    func(c *caller) { c.target.Host.Address = "127.0.0.1" },
		"mapped":      func(c *caller) { c.target.Host.Address = "::ffff:127.0.0.1" },
		"multicast":   func(c *caller) { c.target.Host.Address = "224.0.0.1" },
		"link-local":  func(c *caller) { c.target.Host.Address = "fe80::1" },
		"unspecified": func(c *caller) { c.target.Host.Address = "0.0.0.0" },
		"a name":      func(c *caller) { c.target.Host.Address = "switch.example" },
		"BMC":         func(c *caller) { c.target.Bmc.Address = "127.0.0.1" },
		"mapped BMC":  func(c *caller) { c.target.Bmc.Address = "[::ffff:169.254.0.1]" },
		"no user":     func(c *caller) { c.logins[node.EndpointHost] = node.Credentials{Password: secret.New("x")} },
		"nothing":     func(c *caller) { c.target.Host, c.target.Bmc = nil, nil },
	} {
		_, err := opener(t).Open(newCaller(change), "", log)
		require.ErrorIs(t, err, device.ErrTarget, name)
		require.Equal(t, agent.CodeInvalidArgument, device.Refuse(err).GetError().GetCode(), name)
		require.Equal(t, job.FailureInvalidArgument, device.CodeOf(err, job.FailureInternal), name)
	}
	_, err := opener(t).Open(newCaller(func(c *caller) { delete(c.logins, node.EndpointHost) }), "", log)
	require.ErrorIs(t, err, credentials.ErrNone)
	_, err = device.NewOpener(device.Options{})
	require.Error(t, err)
}

func dial(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }

// Evidence that nothing is there, and all that is none.
func TestUnreachable(t *testing.T) {
	for _, err := range []error{
		dial(os.NewSyscallError("connect", syscall.ECONNREFUSED)), dial(os.NewSyscallError("connect", syscall.EHOSTUNREACH)),
		dial(os.ErrDeadlineExceeded), fmt.Errorf("read: %w", dial(syscall.EHOSTDOWN)),
	} {
		require.True(t, device.Unreachable(err), err)
	}
	for _, err := range []error{
		dial(os.NewSyscallError("connect", syscall.ENETUNREACH)), &net.OpError{Op: "read", Err: syscall.ECONNREFUSED},
		errors.New("connection refused"), fs.ErrNotExist, nil,
	} {
		require.False(t, device.Unreachable(err), err)
	}
}

// What a job's record, and a query's answer, say of errors of each transport.
func TestErrors(t *testing.T) {
	for _, tt := range []struct {
		err  error
		code job.FailureCode
		word string
	}{
		{&nvue.Error{Code: nvue.ErrUnauthenticated, Method: "GET", Status: 401}, job.FailureHostAuthFailed, "unauthenticated"},
		{&nvue.Error{Code: nvue.ErrUnreachable, Method: "GET"}, job.FailureHostUnreachable, "unavailable"},
		{&nvue.Error{Code: nvue.ErrTimeout, Method: "GET"}, job.FailureDeviceTimeout, "timeout"},
		{&nvue.Error{Code: nvue.ErrUnavailable, Method: "GET", Status: 503}, job.FailureInternal, "unavailable"},
		{&nvue.Error{Code: nvue.ErrTimeout}, job.FailureInternal, "timeout"},
		{&nvue.Error{Code: nvue.ErrFailedPrecondition}, job.FailurePreconditionFailed, "failed_precondition"},
		{&nvue.Error{Code: nvue.ErrNotFound, Method: "GET", Status: 404}, job.FailureTargetNotFound, "not_found"},
		{&nvue.Error{Code: nvue.ErrInternal, Method: "GET", Status: 500}, job.FailureInternal, "internal"},
		{&ssh.Error{Kind: ssh.KindAuth, Err: ssh.ErrCredentials}, job.FailureHostAuthFailed, "unauthenticated"},
		{&ssh.Error{Kind: ssh.KindHostKey, Err: ssh.ErrHostKeyChanged}, job.FailureHostKeyRefused, "failed_precondition"},
		{&ssh.Error{Kind: ssh.KindUnreachable, Err: errors.New("x")}, job.FailureHostUnreachable, "unavailable"},
		{&ssh.Error{Kind: ssh.KindTimeout, Err: ssh.ErrStalled}, job.FailureInternal, "timeout"},
		{&ssh.Error{Kind: ssh.KindFile, Err: fs.ErrPermission}, job.FailureInternal, "internal"},
		{&redfish.Error{Code: redfish.CodeUnavailable}, job.FailureInternal, "unavailable"},
		{&redfish.Error{Code: redfish.CodeUnauthenticated, Method: "GET", Status: 401}, job.FailureBMCAuthFailed, "unauthenticated"},
		{&ssh.Error{Kind: ssh.KindNegotiation, Err: errors.New("x")}, job.FailureHostSSHIncompatible, "failed_precondition"},
		{&nvue.Error{Code: nvue.ErrUnavailable, Method: "GET"}, job.FailureHostUnreachable, "unavailable"},
		{agent.Fail(job.FailureFileChanged, "p", "m", nil), job.FailureInternal, "failed_precondition"},
		{errors.New("x"), job.FailureInternal, "internal"},
	} {
		require.Equal(t, tt.code, device.CodeOf(tt.err, job.FailureInternal), "%v", tt.err)
		require.Equal(t, tt.word, device.Refuse(tt.err).GetError().GetCode(), "%v", tt.err)
	}
	for _, tt := range []struct {
		err    error
		answer *job.DeviceAnswer
	}{
		{
			&nvue.Error{Method: "POST", Status: 400, Issue: "no such leaf"},
			&job.DeviceAnswer{Message: "no such leaf", HTTPStatus: 400},
		}, {
			&redfish.Error{Method: "POST", Status: 409, MessageID: "Base.1.0.ResourceInUse", Message: "m", Severity: "Warning", Resolution: "r"},
			&job.DeviceAnswer{MessageID: "Base.1.0.ResourceInUse", Message: "m", Severity: "Warning", Resolution: "r", HTTPStatus: 409},
		}, {
			&nmxc.Error{Op: "hello", Err: nmxc.ReturnInUse},
			&job.DeviceAnswer{MessageID: "NMX_ST_IN_USE", Message: nmxc.ReturnInUse.Error()},
		}, {
			&nmxc.Error{Op: "hello", Code: codes.Unavailable, Err: errors.New("starting")},
			&job.DeviceAnswer{MessageID: "Unavailable", Message: "starting"},
		}, {
			&gnmi.Error{Connected: true, Code: codes.PermissionDenied, Err: errors.New("no right")},
			&job.DeviceAnswer{MessageID: "PermissionDenied", Message: "no right"},
		}, {
			&ssh.ExitError{Command: "c", Status: 1, Output: "nv: no such command"},
			&job.DeviceAnswer{Message: "nv: no such command"},
		},
		{&gnmi.Error{Err: errors.New("not connected")}, nil},
		{&redfish.Error{Code: redfish.CodeConnectionRefused, Method: "GET"}, nil},
		{errors.New("x"), nil},
	} {
		require.Equal(t, tt.answer, device.AnswerOf(fmt.Errorf("try: %w", tt.err)), "%v", tt.err)
	}
	var f *agent.FailureError
	require.ErrorAs(t, device.Failure("phase", "prefix", job.FailureInternal, &nvue.Error{Code: nvue.ErrInternal, Method: "GET", Status: 500, Issue: "why"}), &f)
	require.Equal(t, "phase", f.Failure.Phase)
	require.Contains(t, f.Failure.Message, "prefix: ")
	require.Equal(t, int32(500), f.Failure.Device.HTTPStatus)
	require.Equal(t, "why", f.Failure.Device.Message)
	for _, reason := range []error{nil, agent.ErrCancelled, agent.ErrHandedOver, &nvue.Error{Code: nvue.ErrNotHeld}, ssh.ErrNotHeld, agent.Unknown(errors.New("x"))} {
		require.Equal(t, reason, device.Failure("p", "", job.FailureInternal, reason), "handed on unchanged")
	}
	require.ErrorAs(t, device.Uncertain(&nvue.Error{Method: "POST", Sent: true}), new(*agent.UnknownError))
	require.NotErrorAs(t, device.Uncertain(&nvue.Error{Method: "POST", Sent: true, Status: 400}), new(*agent.UnknownError))
}
