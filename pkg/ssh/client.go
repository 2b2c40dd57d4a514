// SPDX-License-Identifier: Apache-2.0

package ssh

import (
	"context"
	"sync"
)

// Client talks to one host. It connects at the first call, keeps the connection
// for the next ones, and connects anew when it was lost in between. A command is
// never sent twice. A Client may be used by many goroutines, each of which gets
// sessions of its own.
type Client struct {
	endpoint Endpoint
	login    Login
	opts     Options
	addr     string

	// turn is held by whoever connects.
	turn chan struct{}

	// work counts the goroutines of the Client.
	work sync.WaitGroup

	mu     sync.Mutex
	link   *link
	newKey bool
	closed bool
}

// New checks the options and returns a Client that has not connected yet.
func New(endpoint Endpoint, login Login, opts Options) (*Client, error) {
	opts, err := opts.withDefaults(endpoint, login)
	if err != nil {
		return nil, err
	}
	if _, err := newAuthenticator(login, func() error { return nil }); err != nil {
		return nil, err
	}
	return &Client{
		endpoint: endpoint, login: login, opts: opts, addr: endpoint.hostPort(endpoint.Address),
		turn: make(chan struct{}, 1), newKey: opts.NewKeyOnce,
	}, nil
}

// Addr is the host's address and port.
func (c *Client) Addr() string { return c.addr }

// Connect logs in unless that is done already.
func (c *Client) Connect(ctx context.Context) error {
	t := c.opts.Timing
	ctx, k := c.begin(ctx, opConnect, t.Connect+t.Handshake+t.Login)
	defer k.end()
	l, _, err := c.connected(ctx, k)
	if err == nil {
		l.leave()
	}
	return err
}

const opConnect = "connect"

// Close cuts the connection and waits for what the Client does in the background.
// Calls that are under way end with an error.
func (c *Client) Close() {
	c.mu.Lock()
	l := c.link
	c.link, c.closed = nil, true
	c.mu.Unlock()
	if l != nil {
		l.cut()
	}
	c.work.Wait()
}

// spawn runs f in the background unless the Client is closed.
func (c *Client) spawn(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.work.Go(f)
	return true
}

// connected returns a connection that the call has joined; fresh says that it was
// made just now.
func (c *Client) connected(ctx context.Context, k *call) (l *link, fresh bool, err error) {
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return nil, false, k.expired(ctx, false, nil)
	}
	c.mu.Lock()
	l, closed, newKey := c.link, c.closed, c.newKey
	c.mu.Unlock()
	switch {
	case closed:
		return nil, false, ErrClosed
	case l != nil && l.join():
		return l, false, nil
	case l != nil:
		l.cut()
	}
	if l, err = c.dial(ctx, k, newKey); err != nil {
		return nil, false, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		l.cut()
		return nil, false, ErrClosed
	}
	c.link, c.newKey = l, false
	l.calls = 1
	return l, true, nil
}
