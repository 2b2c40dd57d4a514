// SPDX-License-Identifier: Apache-2.0

package redfish

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// TLSOptions is the certificate policy of a Pool. BMCs ship with self-signed
// certificates, so verification is off unless asked for.
type TLSOptions struct {
	// Verify checks the certificate against RootCAs, or the system's roots.
	Verify bool
	// RootCAs, when set, turns verification on.
	RootCAs *x509.CertPool
	// MinVersion defaults to TLS 1.2, the newest that all shelves speak.
	MinVersion uint16
}

// PoolOptions configures a Pool. The zero value is usable.
type PoolOptions struct {
	TLS TLSOptions
	// Connect bounds the TCP connect, Handshake the TLS handshake. 10 s each.
	Connect   time.Duration
	Handshake time.Duration
	// Idle closes a connection that served no request for so long. Short, since
	// one process watches thousands of devices and BMCs have few slots. 2 s.
	Idle time.Duration
	// Continue is how long an upload waits for "100 Continue" before it sends
	// the body anyway. 2 s.
	Continue time.Duration
	// Dial replaces the TCP dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// sessionCache bounds the remembered TLS sessions; resuming one spares a BMC the
// signature, which takes some of them a second.
const sessionCache = 16384

// Pool holds the connections of any number of Clients. Connections are kept per
// address and port. A Pool may be used by many goroutines.
type Pool struct {
	reads  *http.Transport
	writes *http.Transport
	idle   time.Duration
}

// errTLS marks failures of the TLS handshake.
var errTLS = errors.New("tls handshake failed")

type serverNameKey struct{}

// NewPool returns a pool without connections.
func NewPool(o PoolOptions) *Pool {
	for _, f := range []struct {
		field *time.Duration
		value time.Duration
	}{{&o.Connect, 10 * time.Second}, {&o.Handshake, 10 * time.Second}, {&o.Idle, 2 * time.Second}, {&o.Continue, 2 * time.Second}} {
		if *f.field <= 0 {
			*f.field = f.value
		}
	}
	if o.Dial == nil {
		o.Dial = (&net.Dialer{}).DialContext
	}
	if o.TLS.MinVersion == 0 {
		o.TLS.MinVersion = tls.VersionTLS12
	}
	config := &tls.Config{
		MinVersion: o.TLS.MinVersion,
		RootCAs:    o.TLS.RootCAs,
		// The owner of the rack decides; see TLSOptions.
		InsecureSkipVerify: !o.TLS.Verify && o.TLS.RootCAs == nil, //nolint:gosec // BMCs are self-signed
		NextProtos:         []string{"http/1.1"},
		ClientSessionCache: tls.NewLRUClientSessionCache(sessionCache),
	}
	// Proxies from the environment are never used: BMC networks are not behind
	// them. HTTP/2 stays off, since few BMCs speak it well. Compression stays off,
	// since some BMCs answer broken when it is offered.
	reads := &http.Transport{
		DialTLSContext:        dialTLS(o, config, nil),
		DialContext:           refusePlain,
		DisableCompression:    true,
		IdleConnTimeout:       o.Idle,
		MaxIdleConnsPerHost:   1,
		ExpectContinueTimeout: o.Continue,
	}
	writes := reads.Clone()
	// A change gets a connection of its own, so it can never be lost to a kept
	// one that the device closed in that very moment.
	writes.DisableKeepAlives = true
	writes.DialTLSContext = dialTLS(o, config, checkGuard)
	writes.WriteBufferSize = 32 << 10
	return &Pool{reads: reads, writes: writes, idle: o.Idle}
}

// Close closes idle connections. Requests under way are not disturbed.
func (p *Pool) Close() {
	p.reads.CloseIdleConnections()
	p.writes.CloseIdleConnections()
}

func refusePlain(context.Context, string, string) (net.Conn, error) {
	return nil, errors.New("plain http is refused: credentials would travel in clear")
}

func dialTLS(o PoolOptions, base *tls.Config, ready func(context.Context) error) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		dialCtx, cancel := context.WithTimeout(ctx, o.Connect)
		defer cancel()
		raw, err := o.Dial(dialCtx, network, address)
		if err != nil {
			return nil, dialError(err)
		}
		config := base.Clone()
		config.ServerName, _ = ctx.Value(serverNameKey{}).(string)
		if config.ServerName == "" {
			config.ServerName, _, _ = net.SplitHostPort(address)
		}
		conn := tls.Client(raw, config)
		handshakeCtx, cancel := context.WithTimeout(ctx, o.Handshake)
		defer cancel()
		if err := conn.HandshakeContext(handshakeCtx); err != nil {
			_ = raw.Close()
			return nil, fmt.Errorf("%w: %w", errTLS, err)
		}
		if ready != nil {
			if err := ready(ctx); err != nil {
				_ = raw.Close()
				return nil, err
			}
		}
		return &cutConn{Conn: conn, raw: raw}, nil
	}
}

// cutConn closes at once. The farewell of TLS would wait up to five seconds for
// a device that takes nothing, while a lost hold has to end the request now.
type cutConn struct {
	*tls.Conn
	raw net.Conn
}

// Close cuts the connection.
func (c *cutConn) Close() error { return c.raw.Close() }

// dialError makes sure that every failed connect is recognised as one.
func dialError(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return err
	}
	return &net.OpError{Op: "dial", Net: "tcp", Err: err}
}
