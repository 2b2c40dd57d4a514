// SPDX-License-Identifier: Apache-2.0

package ssh

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/rackbus/rackbus/pkg/telemetry"
)

// dialer is one attempt to connect and log in.
type dialer struct {
	c      *Client
	k      *call
	conn   *watchedConn
	auth   *authenticator
	newKey bool
	// recorded are the host's known keys.
	recorded []ssh.PublicKey
	// shown is the key that the host has proved; replace says that it takes the
	// place of the recorded ones.
	shown   ssh.PublicKey
	replace bool
	// keyError is why the key was refused.
	keyError error
	// phase is what the peer is being waited for.
	phase atomic.Value
}

// Phases of a handshake.
const (
	phaseKeyExchange = "key exchange"
	phaseLogin       = "login"
)

// dial connects and logs in. The whole handshake runs under deadlines of the TCP
// connection, which are lifted once it is over.
func (c *Client) dial(ctx context.Context, k *call, newKey bool) (*link, error) {
	if err := check(c.opts.Guard); err != nil {
		return nil, err
	}
	d := &dialer{c: c, k: k, newKey: newKey}
	var err error
	if d.recorded, err = c.opts.HostKeys.Recorded(c.endpoint.addresses()); err != nil {
		return nil, d.fail(KindHostKey, err)
	}
	limit, cancel := context.WithTimeoutCause(ctx, c.opts.Timing.Connect, os.ErrDeadlineExceeded)
	defer cancel()
	raw, err := c.opts.Dial(limit, "tcp", c.addr)
	switch {
	case ctx.Err() != nil:
		if err == nil {
			raw.Close()
		}
		return nil, k.expired(ctx, false, nil)
	case err != nil && (limit.Err() != nil || isTimeout(err)):
		return nil, d.fail(KindTimeout, fmt.Errorf("no connection within %s: %w", c.opts.Timing.Connect, err))
	case err != nil:
		return nil, d.fail(KindUnreachable, err)
	}
	d.conn = &watchedConn{Conn: raw}
	d.conn.heard.Store(time.Now().UnixNano())
	client, err := d.handshake(ctx)
	if err != nil {
		raw.Close()
		return nil, err
	}
	return c.newLink(ctx, d.conn, client)
}

func (d *dialer) fail(kind Kind, err error) error {
	return &Error{Op: opConnect, Addr: d.c.addr, Kind: kind, Err: err}
}

func (d *dialer) handshake(ctx context.Context) (*ssh.Client, error) {
	c := d.c
	var err error
	if d.auth, err = newAuthenticator(c.login, d.conn.broken); err != nil {
		return nil, err
	}
	a := algorithms(c.opts.Legacy)
	config := &ssh.ClientConfig{
		Config: ssh.Config{KeyExchanges: a.KeyExchanges, Ciphers: a.Ciphers, MACs: a.MACs},
		User:   c.login.User, AuthCallback: d.auth.next,
		HostKeyCallback:   d.checkKey,
		HostKeyAlgorithms: a.HostKeys,
		ClientVersion:     "SSH-2.0-Rackbus_" + versionToken(telemetry.Version()),
	}
	if !d.newKey {
		config.HostKeyAlgorithms = hostKeyAlgorithms(a.HostKeys, d.recorded)
	}
	if len(config.HostKeyAlgorithms) == 0 {
		return nil, d.fail(KindNegotiation, fmt.Errorf(
			"the recorded host key %s needs legacy algorithms, which are off for this host", fingerprints(d.recorded)))
	}
	stop := context.AfterFunc(ctx, func() { _ = d.conn.Close() })
	defer stop()
	d.phase.Store(phaseKeyExchange)
	if err := d.conn.SetDeadline(time.Now().Add(c.opts.Timing.Handshake)); err != nil {
		return nil, d.fail(KindUnreachable, err)
	}
	conn, channels, requests, err := ssh.NewClientConn(d.conn, c.addr, config)
	if err == nil {
		err = d.conn.SetDeadline(time.Time{})
	}
	if err == nil && d.shown != nil {
		err = c.opts.HostKeys.Record(c.endpoint.addresses(), d.shown, d.replace)
		d.keyError = err
	}
	if err != nil {
		return nil, d.failed(ctx, err)
	}
	return ssh.NewClient(conn, channels, requests), nil
}

// checkKey is called when the host has proved that it owns a key. What follows is
// the login, which has a limit of its own.
func (d *dialer) checkKey(_ string, _ net.Addr, key ssh.PublicKey) error {
	addresses := d.c.endpoint.addresses()
	err := d.c.opts.HostKeys.Check(addresses, key)
	acceptable := errors.Is(err, ErrHostKeyChanged) || errors.Is(err, ErrHostKeyUnknown)
	switch {
	case err == nil:
	case d.newKey && acceptable:
		d.replace = true
	default:
		d.keyError = err
		return err
	}
	d.shown = key
	d.phase.Store(phaseLogin)
	return d.conn.SetDeadline(time.Now().Add(d.c.opts.Timing.Login))
}

// failed tells why a handshake did not succeed. What is certain goes first: the
// library's own error is often only the consequence.
func (d *dialer) failed(ctx context.Context, err error) error {
	c := d.c
	text, disjoint := negotiation(err, c.opts.Legacy)
	switch {
	case ctx.Err() != nil:
		return d.k.expired(ctx, false, nil)
	case d.keyError != nil:
		return d.fail(KindHostKey, d.keyError)
	case disjoint && isHostKeyNegotiation(err) && len(d.recorded) > 0 && !d.newKey:
		return d.fail(KindHostKey, fmt.Errorf("%w: recorded is %s; %s", ErrHostKeyChanged, fingerprints(d.recorded), text))
	case disjoint:
		return d.fail(KindNegotiation, errors.New(text))
	case errors.Is(err, ErrCredentials), errors.Is(err, ErrNoLoginMethod):
		return d.fail(KindAuth, err)
	}
	phase := d.phase.Load()
	broken := d.conn.broken()
	switch {
	case isTimeout(broken):
		return d.fail(KindTimeout, fmt.Errorf("the host does not go on with the %s: %w", phase, os.ErrDeadlineExceeded))
	case broken != nil:
		return d.fail(KindUnreachable, fmt.Errorf("the host closed the connection during the %s: %w", phase, broken))
	case phase == phaseLogin && d.auth.tried():
		// The host ended the session by a message, as it does after too many tries.
		return d.fail(KindAuth, fmt.Errorf("%w for user %s: %w", ErrCredentials, c.login.User, err))
	default:
		return d.fail(KindProtocol, err)
	}
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}

// versionToken fits a version into the greeting, which allows no blanks and
// dashes (RFC 4253 4.2).
func versionToken(version string) string {
	out := []byte(version)
	for i, b := range out {
		if b <= ' ' || b > '~' || b == '-' {
			out[i] = '.'
		}
	}
	return string(out)
}
