// SPDX-License-Identifier: Apache-2.0

// Package broker runs an embedded nats-server with the settings Rackbus needs.
// Standalone and the tests use it; an external server takes the same settings
// from its configuration file.
package broker

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/rackbus/rackbus/pkg/secret"
)

// Limits of the broker.
const (
	maxPayload      = 8 << 20
	maxMemory       = 1 << 30
	batchesInStream = 500
	batchesTotal    = 2000
	unbounded       = 1 << 50
	// startTimeout covers the recovery of a large store.
	startTimeout = 60 * time.Second
)

// ErrStart says that the embedded server did not come up.
var ErrStart = errors.New("broker: nats-server did not start")

// Options configure an embedded server.
type Options struct {
	// Name of the server; unique in a cluster.
	Name string
	// StoreDir keeps the streams. It is created with mode 0700.
	StoreDir string
	// Host and Port to listen on; Port -1 picks a free one. DontListen serves
	// in-process connections only.
	Host       string
	Port       int
	DontListen bool
	// MaxStore bounds what streams may claim, in bytes; 0 sets no bound. The
	// broker's own default, three quarters of the free space, would refuse to
	// create streams whose upper limit a small disk could not hold.
	MaxStore int64
	// AtRestKey encrypts the store (ChaCha20-Poly1305); empty leaves it plain.
	AtRestKey secret.Value
	// Cluster makes the server one of several.
	Cluster *Cluster
	// Logger receives the server's warnings and errors; nil drops them.
	Logger *slog.Logger
}

// Cluster is a server's place among its peers.
type Cluster struct {
	Name string
	Port int
	// Peers are the cluster ports of all members on the same host.
	Peers []int
}

// Broker is a running server.
type Broker struct{ s *server.Server }

// Start runs a server. With sync-always every acknowledged write is on disk.
func Start(o Options) (*Broker, error) {
	if o.MaxStore == 0 {
		o.MaxStore = unbounded
	}
	if err := os.MkdirAll(o.StoreDir, 0o700); err != nil {
		return nil, fmt.Errorf("create broker store: %w", err)
	}
	so := &server.Options{
		ServerName: o.Name, Host: o.Host, Port: o.Port, DontListen: o.DontListen,
		NoSigs: true, NoLog: o.Logger == nil,
		JetStream: true, StoreDir: o.StoreDir, SyncAlways: true,
		JetStreamMaxMemory: maxMemory, JetStreamMaxStore: o.MaxStore,
		MaxPayload: maxPayload,
	}
	so.JetStreamLimits.MaxBatchInflightPerStream = batchesInStream
	so.JetStreamLimits.MaxBatchInflightTotal = batchesTotal
	if !o.AtRestKey.Empty() {
		so.JetStreamKey = o.AtRestKey.Reveal()
		so.JetStreamCipher = server.ChaCha
	}
	if cl := o.Cluster; cl != nil {
		so.Cluster = server.ClusterOpts{Name: cl.Name, Host: o.Host, Port: cl.Port}
		for _, port := range cl.Peers {
			u, err := url.Parse(fmt.Sprintf("nats://%s:%d", o.Host, port))
			if err != nil {
				return nil, fmt.Errorf("broker: route: %w", err)
			}
			so.Routes = append(so.Routes, u)
		}
	}
	s, err := server.NewServer(so)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStart, err)
	}
	if o.Logger != nil {
		s.SetLoggerV2(serverLog{o.Logger}, false, false, false)
	}
	s.Start()
	if !s.ReadyForConnections(startTimeout) {
		s.Shutdown()
		return nil, fmt.Errorf("%w within %s (store %s)", ErrStart, startTimeout, o.StoreDir)
	}
	return &Broker{s: s}, nil
}

// URL is where clients connect.
func (b *Broker) URL() string { return b.s.ClientURL() }

// Server gives the in-process connection.
func (b *Broker) Server() *server.Server { return b.s }

// ClusterReady reports whether the members have elected a leader that knows n
// of them.
func (b *Broker) ClusterReady(n int) bool {
	return b.s.JetStreamIsLeader() && len(b.s.JetStreamClusterPeers()) == n
}

// Close shuts the server down and waits for it.
func (b *Broker) Close() {
	b.s.Shutdown()
	b.s.WaitForShutdown()
}

// serverLog adapts the server's logger interface.
type serverLog struct{ log *slog.Logger }

func (l serverLog) Noticef(format string, v ...any) {
	l.log.Debug("nats-server", "text", fmt.Sprintf(format, v...))
}

func (l serverLog) Warnf(format string, v ...any) {
	l.log.Warn("nats-server", "text", fmt.Sprintf(format, v...))
}

func (l serverLog) Fatalf(format string, v ...any) {
	l.log.Error("nats-server", "text", fmt.Sprintf(format, v...))
}

func (l serverLog) Errorf(format string, v ...any) {
	l.log.Error("nats-server", "text", fmt.Sprintf(format, v...))
}

func (l serverLog) Debugf(string, ...any) {}
func (l serverLog) Tracef(string, ...any) {}
