// SPDX-License-Identifier: Apache-2.0

package upload_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/secret"
	"github.com/rackbus/rackbus/pkg/ssh"
	"github.com/rackbus/rackbus/pkg/switchtls"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/services/switch-agent/internal/device"
	"github.com/rackbus/rackbus/services/switch-agent/internal/source"
	"github.com/rackbus/rackbus/services/switch-agent/internal/upload"
	"github.com/rackbus/rackbus/sim/nvswitch"
	"github.com/rackbus/rackbus/sim/reqlog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const dir = "/host/fw-images/bmc"

// held lets requests through as long as it is nil.
type held struct{ err error }

func (h held) Check() error {
	if h.err != nil {
		return fmt.Errorf("%w: %w", agent.ErrNotHeld, h.err)
	}
	return nil
}

func (held) Context(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithCancel(ctx)
}

type caller struct {
	sim   *nvswitch.Switch
	guard agent.Guard
}

func (c caller) Target() *rackbusv1.NodeTarget {
	return &rackbusv1.NodeTarget{NodeId: "n", NodeType: "switch_gb200_nvidia",
		Host: &rackbusv1.DeviceEndpoint{Address: c.sim.IP(), Port: uint32(c.sim.Ports().NVUE)}}
}

func (c caller) Credentials(node.EndpointKind) (node.Credentials, error) {
	return node.Credentials{User: c.sim.Username(), Password: secret.New(c.sim.Password())}, nil
}

func (c caller) Guard() agent.Guard { return c.guard }

func open(t *testing.T, guard agent.Guard, knobs nvswitch.SFTPKnobs) (*nvswitch.Switch, *device.Switch) {
	t.Helper()
	sim, err := nvswitch.Start(context.WithoutCancel(t.Context()), nvswitch.Options{
		Logger: slog.New(slog.DiscardHandler), Knobs: nvswitch.Knobs{SFTP: knobs},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sim.Close()) })
	keys, err := ssh.OpenHostKeys(ssh.PolicyTrustOnFirstUse, filepath.Join(t.TempDir(), "known_hosts"), nil)
	require.NoError(t, err)
	opener, err := device.NewOpener(device.Options{
		TLS: switchtls.NewStore(switchtls.Settings{Insecure: true}), HostKeys: keys,
		Targets: node.TargetPolicy{AllowLoopback: true}, Ports: device.Ports{SSH: uint16(sim.Ports().SSH)},
	})
	require.NoError(t, err)
	t.Cleanup(opener.Close)
	sw, err := opener.Open(caller{sim, guard}, "", slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(sw.Close)
	return sim, sw
}

func file(content []byte) upload.File {
	return upload.File{Source: io.NewSectionReader(bytes.NewReader(content), 0, int64(len(content))), Dir: dir, Name: "a.bin"}
}

var content = bytes.Repeat([]byte("0123456789abcdef"), 1<<10)

func limits() upload.Limits { return upload.Limits{Total: 10 * time.Second, Stall: 5 * time.Second} }

func TestSend(t *testing.T) {
	sim, sw := open(t, held{}, nvswitch.SFTPKnobs{})
	u := upload.New(1)
	var last int64
	f := file(content)
	f.Progress = func(sent, _ int64) { last = sent }
	done, err := u.Send(t.Context(), sw, f, limits())
	require.NoError(t, err)
	require.EqualValues(t, len(content), done.Sent)
	require.EqualValues(t, len(content), last)
	require.Greater(t, done.Rate(), 0.0)
	got, err := sim.ReadFile(f.Path())
	require.NoError(t, err)
	require.True(t, bytes.Equal(content, got))
	require.Equal(t, []string{f.Path()}, sim.Files(dir), "nothing beside it is left")

	done, err = u.Send(t.Context(), sw, file(content), limits())
	require.NoError(t, err)
	require.True(t, done.Unchanged)
	require.Zero(t, done.Rate())

	require.NoError(t, upload.Remove(t.Context(), sw, f.Path()))
	require.Empty(t, sim.Files(dir))
	require.NoError(t, upload.Remove(t.Context(), sw, f.Path()), "a missing one is no error")

	f.Name = "../a"
	_, err = u.Send(t.Context(), sw, f, limits())
	require.ErrorIs(t, err, source.ErrName)
}

// The window is for what passes by itself; refusals end it at once.
func TestSendAgain(t *testing.T) {
	t.Parallel()
	window := limits()
	window.Window, window.Pause = 10*time.Second, 10*time.Millisecond
	t.Run("no sftp for a while", func(t *testing.T) {
		_, sw := open(t, held{}, nvswitch.SFTPKnobs{RefuseSubsystem: 3})
		_, err := upload.New(1).Send(t.Context(), sw, file(content), window)
		require.NoError(t, err)
	})
	t.Run("once without a window", func(t *testing.T) {
		sim, sw := open(t, held{}, nvswitch.SFTPKnobs{RefuseSubsystem: -1})
		_, err := upload.New(1).Send(t.Context(), sw, file(content), limits())
		require.Error(t, err)
		require.Len(t, sim.Requests(reqlog.Filter{Protocol: reqlog.SSH, Method: "LOGIN"}), 1)
	})
	t.Run("disk full", func(t *testing.T) {
		sim, sw := open(t, held{}, nvswitch.SFTPKnobs{FailAfter: 100})
		_, err := upload.New(1).Send(t.Context(), sw, file(content), window)
		require.True(t, ssh.IsKind(err, ssh.KindFile), "%v", err)
		require.Len(t, sim.Requests(reqlog.Filter{Protocol: reqlog.SSH, Method: "LOGIN"}), 1)
	})
}

// Without the hold nothing is sent; waiting for a slot ends with the caller.
func TestSendStops(t *testing.T) {
	sim, sw := open(t, held{io.EOF}, nvswitch.SFTPKnobs{})
	_, err := upload.New(1).Send(t.Context(), sw, file(content), limits())
	require.ErrorIs(t, err, agent.ErrNotHeld)
	require.Empty(t, sim.Requests(reqlog.Filter{Writes: true, Protocol: reqlog.SFTP}))

	slow, sw := open(t, held{}, nvswitch.SFTPKnobs{BytesPerSecond: 1 << 10})
	u := upload.New(1)
	ctx, cancel := context.WithCancelCause(t.Context())
	first := make(chan error, 1)
	go func() {
		_, err := u.Send(ctx, sw, file(content), limits())
		first <- err
	}()
	_, err = slow.Log().WaitInFlight(t.Context(), reqlog.Filter{Protocol: reqlog.SFTP})
	require.NoError(t, err)
	waiting, stop := context.WithCancelCause(t.Context())
	stop(agent.ErrCancelled)
	_, err = u.Send(waiting, sw, file(content), limits())
	require.ErrorIs(t, err, agent.ErrCancelled)
	cancel(agent.ErrCancelled)
	require.Error(t, <-first)
}
