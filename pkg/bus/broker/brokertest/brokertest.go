// SPDX-License-Identifier: Apache-2.0

// Package brokertest starts the brokers of tests, with their stores in memory:
// a broker syncs every write, which on a disk takes most of a test's time, and
// only tests that cut its power could tell the difference.
package brokertest

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"
	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/bus/broker"
	"github.com/rackbus/rackbus/pkg/porttest"
)

// memory is where Linux mounts a file system that has no disk.
const memory = "/dev/shm"

// Start runs a single server, as most installations have it, until the test ends.
func Start(t testing.TB) *broker.Broker {
	t.Helper()
	return StartIn(t, StoreDir(t), -1)
}

// StartIn runs a server on a store and a port of 127.0.0.1 until the test ends,
// for tests that start it anew on what another has left. Port -1 picks a free one.
func StartIn(t testing.TB, store string, port int) *broker.Broker {
	t.Helper()
	b, err := broker.Start(broker.Options{Name: "test", StoreDir: store, Host: "127.0.0.1", Port: port})
	require.NoError(t, err)
	t.Cleanup(b.Close)
	return b
}

// StartRefusing runs a server until the test ends that knows one user. It returns its
// address and the seed of another.
func StartRefusing(t testing.TB) (url string, seed []byte) {
	t.Helper()
	known, err := nkeys.CreateUser()
	require.NoError(t, err)
	public, err := known.PublicKey()
	require.NoError(t, err)
	stranger, err := nkeys.CreateUser()
	require.NoError(t, err)
	seed, err = stranger.Seed()
	require.NoError(t, err)
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, NoLog: true, NoSigs: true, Nkeys: []*server.NkeyUser{{Nkey: public}}})
	require.NoError(t, err)
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	require.True(t, s.ReadyForConnections(startLimit))
	return s.ClientURL(), seed
}

// startLimit bounds the start of a server without streams.
const startLimit = 10 * time.Second

// StoreDir returns an empty folder that is removed after the test: in memory
// where there is such a file system, else that of [testing.TB.TempDir].
func StoreDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp(memory, "rackbus-test-") //nolint:usetesting // The folder of the test is on a disk.
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}

// ClusterOptions are those of three servers on this host.
func ClusterOptions(t testing.TB) []broker.Options {
	t.Helper()
	ports := porttest.Free(t, 3)
	options := make([]broker.Options, len(ports))
	for i := range options {
		options[i] = broker.Options{
			Name: fmt.Sprintf("n%d", i), StoreDir: StoreDir(t), Host: "127.0.0.1", Port: -1,
			Cluster: &broker.Cluster{Name: "test", Port: ports[i], Peers: ports},
		}
	}
	return options
}

// StartCluster runs servers, three unless options are given, until the test ends.
func StartCluster(t testing.TB, options ...broker.Options) []*broker.Broker {
	t.Helper()
	if len(options) == 0 {
		options = ClusterOptions(t)
	}
	brokers := make([]*broker.Broker, len(options))
	started := make(chan error, len(options))
	for i, o := range options {
		go func() {
			var err error
			brokers[i], err = broker.Start(o)
			started <- err
		}()
	}
	var err error
	for range brokers {
		err = errors.Join(err, <-started)
	}
	for _, b := range brokers {
		if b != nil {
			t.Cleanup(b.Close)
		}
	}
	require.NoError(t, err)
	return brokers
}
