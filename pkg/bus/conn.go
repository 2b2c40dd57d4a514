// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Waits of the client connection.
const (
	reconnectWait   = 250 * time.Millisecond
	reconnectJitter = 100 * time.Millisecond
	// A frozen server is noticed after two missed pings; the library's default
	// would take minutes.
	pingInterval    = 2 * time.Second
	pingOutstanding = 2
	// asyncPending bounds publishes whose answers are outstanding.
	asyncPending = 4096
)

// Oldest nats-server that has every mechanism used here: 2.15.
const (
	minServerMajor = 2
	minServerMinor = 15
)

// Options configure a connection.
type Options struct {
	// URLs of the brokers. Empty when InProcess is set.
	URLs []string
	// InProcess connects to a broker in the same process.
	InProcess nats.InProcessConnProvider
	// Name of the process, shown by the broker.
	Name string
	// Role is the kind of process, for example "api" or "agent-compute". The
	// broker's permissions are per role.
	Role string
	// TLSRoots returns the roots that the broker's certificate must be signed by;
	// nil means plaintext. TLSCertificate returns the own certificate; nil
	// presents none. Both are asked before each connection.
	TLSRoots       func() (*x509.CertPool, error)
	TLSCertificate func() (tls.Certificate, error)
	// TLSHandshakeFirst makes the client start TLS before the broker speaks.
	TLSHandshakeFirst bool
	// NKeySeedFile and CredsFile authenticate; at most one is set.
	NKeySeedFile string
	CredsFile    string
	// Replicas of every stream: 1 or 3.
	Replicas int
	// Timing of leases and waits; zero means DefaultTiming(Replicas).
	Timing Timing
	// ReconnectWait is the pause between tries to connect; zero is 250 ms.
	ReconnectWait time.Duration
	// Logger receives connection changes; nil discards them.
	Logger *slog.Logger
}

// Conn is a connection to the bus. It reconnects for ever, unless the broker
// refuses the process.
type Conn struct {
	nc       *nats.Conn
	js       jetstream.JetStream
	opts     Options
	timing   Timing
	log      *slog.Logger
	events   *coalescer
	ckpts    *coalescer
	verified atomic.Bool
	health   *health

	mu         sync.Mutex
	versionErr error
	refusal    error

	// refused is closed when the broker will not be asked again.
	refused chan struct{}

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// Connect opens a connection. It succeeds while the broker is away: the
// connection then comes up later, and Ready says so.
func Connect(opts Options) (*Conn, error) {
	if opts.Replicas == 0 {
		opts.Replicas = 1
	}
	if opts.Timing == (Timing{}) {
		opts.Timing = DefaultTiming(opts.Replicas)
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.ReconnectWait == 0 {
		opts.ReconnectWait = reconnectWait
	}
	c := &Conn{opts: opts, timing: opts.Timing, log: opts.Logger, refused: make(chan struct{})}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.health = newHealth(c)
	natsOpts, err := c.natsOptions()
	if err != nil {
		c.cancel()
		return nil, err
	}
	c.nc, err = nats.Connect(strings.Join(opts.URLs, ","), natsOpts...)
	if err != nil {
		c.cancel()
		return nil, fmt.Errorf("connect to nats at %s: %w", strings.Join(opts.URLs, ", "), err)
	}
	c.checkServer(c.nc)
	c.js, err = jetstream.New(c.nc, jetstream.WithPublishAsyncMaxPending(asyncPending),
		jetstream.WithDefaultTimeout(opts.Timing.Request))
	if err != nil {
		c.nc.Close()
		c.cancel()
		return nil, fmt.Errorf("open jetstream: %w", err)
	}
	c.events = newCoalescer(c, streamEvents)
	c.ckpts = newCoalescer(c, streamCheckpoints)
	return c, nil
}

func (c *Conn) natsOptions() ([]nats.Option, error) {
	o := []nats.Option{
		nats.Name(c.opts.Name),
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(c.opts.ReconnectWait),
		nats.ReconnectJitter(reconnectJitter, reconnectJitter),
		nats.PingInterval(pingInterval),
		nats.MaxPingsOutstanding(pingOutstanding),
		// Publishes of a disconnected process must fail, not be sent later.
		nats.ReconnectBufSize(-1),
		nats.CustomInboxPrefix("_INBOX_" + c.opts.Role),
		nats.ConnectHandler(c.onConnect),
		nats.ReconnectHandler(c.onConnect),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				c.log.Warn("bus connection lost", "err", err)
			}
		}),
		nats.ClosedHandler(c.onClosed),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			c.log.Warn("bus reported an error", "err", err)
		}),
	}
	if c.opts.InProcess != nil {
		o = append(o, nats.InProcessServer(c.opts.InProcess))
	}
	if c.opts.TLSRoots != nil {
		o = append(o, func(no *nats.Options) error {
			// The client sets the server name of each URL it dials.
			no.Secure, no.TLSConfig = true, &tls.Config{MinVersion: tls.VersionTLS13}
			no.RootCAsCB, no.TLSCertCB = c.opts.TLSRoots, c.opts.TLSCertificate
			return nil
		})
	}
	if c.opts.TLSHandshakeFirst {
		o = append(o, nats.TLSHandshakeFirst())
	}
	switch {
	case c.opts.NKeySeedFile != "" && c.opts.CredsFile != "":
		return nil, errors.New("bus: nkey_seed_file and creds_file cannot both be set")
	case c.opts.NKeySeedFile != "":
		nkey, err := nats.NkeyOptionFromSeed(c.opts.NKeySeedFile)
		if err != nil {
			return nil, fmt.Errorf("read nkey seed %s: %w", c.opts.NKeySeedFile, err)
		}
		o = append(o, nkey)
	case c.opts.CredsFile != "":
		o = append(o, nats.UserCredentials(c.opts.CredsFile))
	}
	return o, nil
}

func (c *Conn) onConnect(nc *nats.Conn) {
	c.checkServer(nc)
	url := nc.ConnectedUrlRedacted()
	if c.opts.InProcess != nil {
		url = "in process" // the client library invents one
	}
	c.log.Info("bus connected", "url", url, "server_version", nc.ConnectedServerVersion())
}

// onClosed tells an end that this process has asked for from one that the client
// library has decided on: it gives up when a broker refuses the credentials twice.
func (c *Conn) onClosed(nc *nats.Conn) {
	if c.ctx.Err() != nil {
		return
	}
	err := nc.LastError()
	c.log.Error("bus connection given up", "err", err)
	c.mu.Lock()
	c.refusal = err
	c.mu.Unlock()
	close(c.refused)
}

// Refused is closed when the broker has refused this process for good, as with
// credentials that it does not take. The connection does not come back: the
// process has to be started again, with credentials that it reads anew.
func (c *Conn) Refused() <-chan struct{} { return c.refused }

// Refusal is why the connection does not come back; it wraps ErrClosed. It is nil
// before Refused is closed.
func (c *Conn) Refusal() error {
	select {
	case <-c.refused:
	default:
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Errorf("%w: the broker refuses this process: %w", ErrClosed, c.refusal)
}

// checkServer remembers whether the connected broker is recent enough.
func (c *Conn) checkServer(nc *nats.Conn) {
	version := nc.ConnectedServerVersion()
	if version == "" {
		return
	}
	err := checkServerVersion(version)
	c.mu.Lock()
	c.versionErr = err
	c.mu.Unlock()
	if err != nil {
		c.log.Error("bus broker refused", "err", err)
	}
}

func checkServerVersion(version string) error {
	major, rest, _ := strings.Cut(version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	ma, errMajor := strconv.Atoi(major)
	mi, errMinor := strconv.Atoi(minor)
	if errMajor != nil || errMinor != nil {
		return fmt.Errorf("%w: cannot read version %q", ErrServerVersion, version)
	}
	if ma > minServerMajor || ma == minServerMajor && mi >= minServerMinor {
		return nil
	}
	return fmt.Errorf("%w: it is %s, at least %d.%d is needed", ErrServerVersion, version, minServerMajor, minServerMinor)
}

// Ready returns nil while the broker is connected, recent enough, and its
// streams have been found as they should be and take writes.
func (c *Conn) Ready() error {
	if !c.nc.IsConnected() {
		return fmt.Errorf("%w: not connected (%s)", ErrUnavailable, c.nc.Status())
	}
	c.mu.Lock()
	err := c.versionErr
	c.mu.Unlock()
	if err != nil {
		return err
	}
	if !c.verified.Load() {
		return fmt.Errorf("%w: streams not verified yet", ErrUnavailable)
	}
	return c.health.check()
}

// Timing returns the leases and waits in force.
func (c *Conn) Timing() Timing { return c.timing }

// Close ends the connection and everything that was started on it.
func (c *Conn) Close() {
	c.cancel()
	c.events.close()
	c.ckpts.close()
	c.nc.Close()
	c.wg.Wait()
}

// requestContext bounds one broker request by the configured limit.
func (c *Conn) requestContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, c.timing.Request)
}
