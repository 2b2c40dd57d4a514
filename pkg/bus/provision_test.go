// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/bus/broker/brokertest"
	"github.com/rackbus/rackbus/pkg/node"
)

func TestProvisionCanBeRepeated(t *testing.T) {
	t.Parallel()
	c, b := provisioned(t)
	require.NoError(t, c.Provision(t.Context()))
	other := open(t, b.URL())
	require.Error(t, other.Ready())
	require.NoError(t, other.Verify(t.Context()))
	require.NoError(t, other.Ready())
}

// TestProvisionNamesEveryDifference changes streams and a consumer as an
// operator might, and expects that nothing is changed back.
func TestProvisionNamesEveryDifference(t *testing.T) {
	t.Parallel()
	c, b := provisioned(t)
	js := rawJetStream(t, b.URL())
	change := func(name string, do func(*jetstream.StreamConfig)) {
		s, err := js.Stream(t.Context(), name)
		require.NoError(t, err)
		cfg := s.CachedInfo().Config
		do(&cfg)
		_, err = js.UpdateStream(t.Context(), cfg)
		require.NoError(t, err)
	}
	change(streamState, func(s *jetstream.StreamConfig) { s.MaxBytes = 1 << 20 })
	change(streamEvents, func(s *jetstream.StreamConfig) { s.MaxAge = time.Hour; s.Duplicates = time.Minute })
	change(streamBlobs, func(s *jetstream.StreamConfig) { s.MaxBytes = 1 << 30 })
	change(streamCatalog, func(s *jetstream.StreamConfig) { s.MaxAge = time.Hour })
	cons, err := js.Consumer(t.Context(), streamState, commandConsumer(node.FamilyCompute))
	require.NoError(t, err)
	cfg := cons.CachedInfo().Config
	cfg.MaxAckPending = 1000
	_, err = js.UpdateConsumer(t.Context(), streamState, cfg)
	require.NoError(t, err)

	for _, check := range []func(context.Context) error{c.Provision, c.Verify} {
		err = check(t.Context())
		require.ErrorIs(t, err, ErrMisconfigured)
		for _, text := range []string{
			"stream KV_rb: max_bytes is 1048576, needed is -1",
			"stream RB_EVT: max_age is 1h0m0s, needed is 168h0m0s",
			"stream RB_EVT: duplicate_window is 1m0s, needed is 10m0s",
			"stream OBJ_rb_fw: max_bytes is 1073741824, needed is -1",
			"stream KV_rb_fw: max_age is 1h0m0s, needed is 0s",
			"consumer agent-compute: max_ack_pending is 1000, needed is 20000",
		} {
			require.ErrorContains(t, err, text)
		}
	}
	s, err := js.Stream(t.Context(), streamState)
	require.NoError(t, err)
	require.Equal(t, int64(1<<20), s.CachedInfo().Config.MaxBytes)
}

func TestVerifyWaitsUntilAnotherProcessHasProvisioned(t *testing.T) {
	t.Parallel()
	b := brokertest.Start(t)
	api, jobs := open(t, b.URL()), open(t, b.URL())
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	verified := make(chan error, 1)
	go func() { verified <- api.Verify(ctx) }()
	require.NoError(t, jobs.Provision(ctx))
	require.NoError(t, <-verified)
}

func TestProvisionWaitsForTheBroker(t *testing.T) {
	t.Parallel()
	c := open(t, "nats://127.0.0.1:1")
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, c.Provision(ctx), context.DeadlineExceeded)
}

func TestCheckServerVersion(t *testing.T) {
	t.Parallel()
	for version, ok := range map[string]bool{
		"2.15.0": true, "2.15.2": true, "2.16.0-RC.1": true, "3.0.0": true, "2.14.9": false, "2.9.25": false, "1.99.0": false, "x": false,
	} {
		err := checkServerVersion(version)
		require.Equal(t, ok, err == nil, version)
		if !ok {
			require.ErrorIs(t, err, ErrServerVersion)
		}
	}
}

// TestSmallPayloadIsRefused starts a broker with the server's own limit.
func TestSmallPayloadIsRefused(t *testing.T) {
	t.Parallel()
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: -1, NoLog: true, NoSigs: true, JetStream: true, StoreDir: t.TempDir(),
	})
	require.NoError(t, err)
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	require.True(t, s.ReadyForConnections(patience))
	c := open(t, s.ClientURL())
	err = c.Provision(t.Context())
	require.ErrorIs(t, err, ErrMisconfigured)
	require.ErrorContains(t, err, "max_payload")
	require.Error(t, c.Ready())
}
