// SPDX-License-Identifier: Apache-2.0

package sshtest

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Proxy is a network between a client and a server.
type Proxy struct {
	target atomic.Value
	l      net.Listener
	// delay of every byte, one way, in nanoseconds.
	delay    atomic.Int64
	frozen   atomic.Bool
	accepted atomic.Int64
	wg       sync.WaitGroup
	closed   chan struct{}

	mu    sync.Mutex
	conns map[net.Conn]struct{}
}

// StartProxy forwards connections to target until the test ends.
func StartProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // at once
	require.NoError(t, err)
	p := &Proxy{l: l, closed: make(chan struct{}), conns: map[net.Conn]struct{}{}}
	p.To(target)
	p.wg.Go(p.serve)
	t.Cleanup(func() {
		close(p.closed)
		l.Close()
		p.Cut()
		p.wg.Wait()
	})
	return p
}

// Port is where the proxy listens.
func (p *Proxy) Port() uint16 { return uint16(p.l.Addr().(*net.TCPAddr).Port) }

// To puts another server behind the proxy; connections that stand are not moved.
func (p *Proxy) To(target string) { p.target.Store(target) }

// Delay makes every byte take so long, each way.
func (p *Proxy) Delay(d time.Duration) { p.delay.Store(int64(d)) }

// Freeze swallows everything from now on, as a network does that drops packets.
func (p *Proxy) Freeze(on bool) { p.frozen.Store(on) }

// Accepted is how many connections came.
func (p *Proxy) Accepted() int64 { return p.accepted.Load() }

// Cut closes all connections.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
	}
}

func (p *Proxy) serve() {
	for {
		in, err := p.l.Accept()
		if err != nil {
			return
		}
		p.accepted.Add(1)
		out, err := net.Dial("tcp", p.target.Load().(string)) //nolint:noctx // on loopback
		if err != nil {
			in.Close()
			continue
		}
		p.keep(in, out)
		p.wg.Go(func() { p.pipe(out, in) })
		p.wg.Go(func() { p.pipe(in, out) })
	}
}

func (p *Proxy) keep(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		p.conns[c] = struct{}{}
	}
}

// parcel is some bytes with the time they are due.
type parcel struct {
	data []byte
	due  time.Time
}

// pipe carries bytes one way. Many may be under way at a time, as on a long line.
func (p *Proxy) pipe(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	line := make(chan parcel, 4096)
	p.wg.Go(func() {
		defer to.Close()
		for got := range line {
			select {
			case <-time.After(time.Until(got.due)):
			case <-p.closed:
			}
			if _, err := to.Write(got.data); err != nil {
				from.Close()
			}
		}
	})
	defer close(line)
	for {
		buf := make([]byte, 32<<10)
		n, err := from.Read(buf)
		if n > 0 && !p.frozen.Load() {
			select {
			case line <- parcel{buf[:n], time.Now().Add(time.Duration(p.delay.Load()))}:
			case <-p.closed:
				return
			}
		}
		if err != nil {
			return
		}
	}
}
