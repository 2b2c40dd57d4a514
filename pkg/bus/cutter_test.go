// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// cut is what a cutter does to the connection that carries a commit.
type cut int32

const (
	// cutNothing forwards everything.
	cutNothing cut = iota
	// cutRequest ends the connection in place of forwarding the next commit.
	cutRequest
	// cutAnswer forwards the next commit and ends the connection in place of
	// forwarding its answer.
	cutAnswer
	// cutAll ends every connection and lets none through.
	cutAll
)

// cutter is a TCP proxy in front of a broker that loses one message exactly.
type cutter struct {
	t      *testing.T
	target string
	l      net.Listener
	mode   atomic.Int32
	mu     sync.Mutex
	open   map[net.Conn]bool
	wg     sync.WaitGroup
	// refused counts the connections that were not let through.
	refused atomic.Int64
	// meanwhile runs once after the answer to a commit was swallowed.
	meanwhile func()
}

func startCutter(t *testing.T, brokerURL string) *cutter {
	t.Helper()
	u, err := url.Parse(brokerURL)
	require.NoError(t, err)
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c := &cutter{t: t, target: u.Host, l: l, open: make(map[net.Conn]bool)}
	c.wg.Go(c.accept)
	t.Cleanup(func() {
		_ = l.Close()
		c.set(cutAll)
		c.wg.Wait()
	})
	return c
}

func (c *cutter) url() string { return "nats://" + c.l.Addr().String() }

func (c *cutter) set(m cut) {
	c.mode.Store(int32(m))
	if m != cutAll {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.open {
		_ = conn.Close()
	}
}

func (c *cutter) accept() {
	for {
		client, err := c.l.Accept()
		if err != nil {
			return
		}
		if cut(c.mode.Load()) == cutAll {
			c.refused.Add(1)
			_ = client.Close()
			continue
		}
		var d net.Dialer
		server, err := d.DialContext(context.Background(), "tcp", c.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		c.mu.Lock()
		c.open[client], c.open[server] = true, true
		c.mu.Unlock()
		end := func() { _ = client.Close(); _ = server.Close() }
		c.wg.Go(func() { defer end(); c.copy(server, client, c.request) })
		c.wg.Go(func() { defer end(); c.copy(client, server, c.answer) })
	}
}

// copy forwards until pass says no.
func (c *cutter) copy(dst io.Writer, src io.Reader, pass func([]byte) bool) {
	buf := make([]byte, 64<<10)
	for {
		n, err := src.Read(buf)
		if n > 0 {
			if !pass(buf[:n]) {
				return
			}
			if _, err := dst.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// request looks at what the client sends. The header of a commit is written in
// one piece, because the client flushes it with its message.
func (c *cutter) request(data []byte) bool {
	if cut(c.mode.Load()) == cutRequest && bytes.Contains(data, []byte(hdrBatchCommit)) {
		c.mode.Store(int32(cutNothing))
		return false
	}
	return true
}

// answer looks at what the broker sends.
func (c *cutter) answer(data []byte) bool {
	if cut(c.mode.Load()) == cutAnswer && bytes.Contains(data, []byte(`"batch":`)) {
		c.mode.Store(int32(cutNothing))
		if c.meanwhile != nil {
			c.meanwhile()
		}
		return false
	}
	return true
}
