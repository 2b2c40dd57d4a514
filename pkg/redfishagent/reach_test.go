// SPDX-License-Identifier: Apache-2.0

package redfishagent

import (
	"context"
	"fmt"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/redfish"
	"github.com/rackbus/rackbus/pkg/secret"
)

func TestNoConnection(t *testing.T) {
	dial := func(err error) error {
		return fmt.Errorf("read power state: %w", &net.OpError{Op: "dial", Net: "tcp", Err: err})
	}
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"refused":                 {dial(os.NewSyscallError("connect", syscall.ECONNREFUSED)), true},
		"no route to host":        {dial(os.NewSyscallError("connect", syscall.EHOSTUNREACH)), true},
		"host down":               {dial(os.NewSyscallError("connect", syscall.EHOSTDOWN)), true},
		"no connection in time":   {dial(os.ErrDeadlineExceeded), true},
		"own network is away":     {dial(os.NewSyscallError("connect", syscall.ENETUNREACH)), false},
		"too many open files":     {dial(os.NewSyscallError("socket", syscall.EMFILE)), false},
		"no such name":            {dial(&net.DNSError{Err: "no such host"}), false},
		"connection broke":        {&net.OpError{Op: "read", Err: syscall.ECONNRESET}, false},
		"no answer in time":       {&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, false},
		"the caller did not wait": {context.DeadlineExceeded, false},
		"HTTP 408":                {&redfish.Error{Code: redfish.CodeTimeout, Status: 408}, false},
	} {
		require.Equal(t, c.want, noConnection(c.err), name)
	}
}

// TestUnreachableIsTold asks at addresses where nothing answers, or something that
// is no controller.
func TestUnreachableIsTold(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer silent.Close()
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, gone.Close())
	for name, c := range map[string]struct {
		at   net.Addr
		want string
	}{
		"nobody listens":     {gone.Addr(), agent.CodeUnreachable},
		"nobody shakes hand": {silent.Addr(), string(redfish.CodeTimeout)},
	} {
		t.Run(name, func(t *testing.T) {
			pool := redfish.NewPool(redfish.PoolOptions{Connect: time.Second, Handshake: 100 * time.Millisecond})
			defer pool.Close()
			profile, ok := redfish.LookupProfile("compute_gb200_nvidia")
			require.True(t, ok)
			at := c.at.(*net.TCPAddr)
			client, err := redfish.New(redfish.Endpoint{
				Address: at.IP.String(), Port: uint16(at.Port), Username: "u", Password: secret.New("p"),
			}, redfish.Options{Profile: profile, Pool: pool})
			require.NoError(t, err)
			_, err = client.PowerState(t.Context())
			require.Equal(t, c.want, refuse(err).GetError().GetCode(), err)
		})
	}
}
