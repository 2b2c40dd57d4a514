// SPDX-License-Identifier: Apache-2.0

package ssh

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"
)

// keepAliveRequest is what OpenSSH uses; servers that do not know it answer too.
const keepAliveRequest = "keepalive@openssh.com"

// watchedConn notes when the peer was last heard, and how the connection ended.
type watchedConn struct {
	net.Conn
	heard atomic.Int64

	mu  sync.Mutex
	err error
}

func (c *watchedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.heard.Store(time.Now().UnixNano())
	}
	c.note(err)
	return n, err
}

func (c *watchedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.note(err)
	return n, err
}

func (c *watchedConn) note(err error) {
	if err == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
	}
}

// broken returns the first error of the connection.
func (c *watchedConn) broken() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

func (c *watchedConn) silence() time.Duration {
	return time.Duration(time.Now().UnixNano() - c.heard.Load())
}

// link is one connection after its login.
type link struct {
	conn   *watchedConn
	client *ssh.Client
	// gone is closed when the connection has ended.
	gone chan struct{}

	mu sync.Mutex
	// lapsed is why the hold of the node has ended, nil while it has not.
	lapsed error
	// calls is how many calls use the connection; retired says that no more may.
	calls   int
	retired bool
}

// lapse cuts the connection because the hold of the node has ended.
func (l *link) lapse(cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lapsed = cause
	l.cut()
}

// notHeld is why nothing may be sent on the connection, nil while something may.
func (l *link) notHeld() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lapsed == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrNotHeld, l.lapsed)
}

// join takes the connection into use.
func (l *link) join() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.retired || l.dead() {
		return false
	}
	l.calls++
	return true
}

func (l *link) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls--
}

// retire closes the connection, unless another call is using it.
func (l *link) retire() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.calls > 1 {
		return false
	}
	l.retired = true
	l.cut()
	return true
}

// newLink keeps a connection alive until it ends, or the hold of the node does.
func (c *Client) newLink(ctx context.Context, conn *watchedConn, client *ssh.Client) (*link, error) {
	l := &link{conn: conn, client: client, gone: make(chan struct{})}
	// The connection outlives the call that has made it.
	held, release := c.opts.Guard.Context(context.WithoutCancel(ctx))
	stop := context.AfterFunc(held, func() { l.lapse(context.Cause(held)) })
	ok := c.spawn(func() {
		// The watch on the hold ends first, since its release looks like its end.
		defer release()
		defer stop()
		defer close(l.gone)
		// How it ended is told by what was going on on it.
		_ = client.Wait()
	}) && c.spawn(func() { c.watch(l) })
	if !ok {
		stop()
		release()
		l.cut()
		return nil, ErrClosed
	}
	return l, nil
}

// watch asks a silent peer for a sign of life, and closes the connection when
// none comes. Any byte counts: a slow upload delays the answer, not the signs.
func (c *Client) watch(l *link) {
	interval := c.opts.Timing.KeepAlive
	tick := time.NewTicker(interval)
	defer tick.Stop()
	asking := make(chan struct{}, 1)
	for {
		select {
		case <-l.gone:
			return
		case <-tick.C:
		}
		silence := l.conn.silence()
		if silence >= time.Duration(c.opts.Timing.Misses+1)*interval {
			c.opts.Logger.Warn("ssh peer is silent, connection closed", "addr", c.addr, "silence", silence)
			l.cut()
			return
		}
		if silence < interval {
			continue
		}
		select {
		case asking <- struct{}{}:
			c.spawn(func() {
				defer func() { <-asking }()
				// A refusal is a sign of life as well.
				_, _, _ = l.client.SendRequest(keepAliveRequest, true, nil)
			})
		default:
		}
	}
}

// cut ends the connection without a farewell, for which a dead peer would be
// waited for.
func (l *link) cut() { _ = l.conn.Close() }

// dead reports whether the connection has ended.
func (l *link) dead() bool {
	select {
	case <-l.gone:
		return true
	default:
		return l.conn.broken() != nil
	}
}
