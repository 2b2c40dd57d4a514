// SPDX-License-Identifier: Apache-2.0

// Package door has listeners that can be shut for a while without losing their port.
package door

import (
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
)

// Admit takes a new connection and returns what is to be served, or deals with the connection itself and returns
// false.
type Admit func(net.Conn) (net.Conn, bool)

// Door is a listener. While shut, its port refuses connections but stays reserved. It is safe for concurrent use.
type Door struct {
	addr  netip.AddrPort
	admit Admit
	// holder is a bound socket that never listens: it keeps the port from others while the door is shut.
	holder int

	mu       sync.Mutex
	listener net.Listener
	changed  chan struct{}
	closed   bool
}

const noHolder = -1

// Open listens on an address; port 0 takes a free one.
func Open(ip netip.Addr, port int, admit Admit) (*Door, error) {
	p := &Door{admit: admit, holder: noHolder, changed: make(chan struct{})}
	if ip.Is4() {
		fd, bound, err := holdPort(ip, port)
		if err != nil {
			return nil, fmt.Errorf("reserve %s port %d: %w", ip, port, err)
		}
		p.holder, port = fd, bound
	}
	p.addr = netip.AddrPortFrom(ip, uint16(port))
	l, err := Listen("tcp", p.addr.String())
	if err != nil {
		_ = p.Close()
		return nil, fmt.Errorf("listen on %s: %w", p.addr, err)
	}
	p.listener = l
	if port == 0 {
		p.addr = netip.AddrPortFrom(ip, uint16(l.Addr().(*net.TCPAddr).Port))
	}
	return p, nil
}

// holdPort binds a socket with SO_REUSEADDR, beside which a listener can still come and go on the same port.
func holdPort(ip netip.Addr, port int) (fd, bound int, err error) {
	fd, err = syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return noHolder, 0, err
	}
	defer func() {
		if err != nil {
			_ = syscall.Close(fd)
		}
	}()
	if err = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return noHolder, 0, err
	}
	if err = syscall.Bind(fd, &syscall.SockaddrInet4{Addr: ip.As4(), Port: port}); err != nil {
		return noHolder, 0, err
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		return noHolder, 0, err
	}
	return fd, name.(*syscall.SockaddrInet4).Port, nil
}

// Set opens or shuts the door. Opening fails when the port cannot be listened on any more.
func (p *Door) Set(open bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || open == (p.listener != nil) {
		return nil
	}
	if open {
		l, err := Listen("tcp", p.addr.String())
		if err != nil {
			return fmt.Errorf("listen again on %s: %w", p.addr, err)
		}
		p.listener = l
	} else {
		_ = p.listener.Close()
		p.listener = nil
	}
	close(p.changed)
	p.changed = make(chan struct{})
	return nil
}

func (p *Door) state() (net.Listener, chan struct{}, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.listener, p.changed, p.closed
}

// Accept waits for a connection that is admitted, also across times in which the door is shut.
func (p *Door) Accept() (net.Conn, error) {
	for {
		listener, changed, closed := p.state()
		switch {
		case closed:
			return nil, net.ErrClosed
		case listener == nil:
			<-changed
			continue
		}
		c, err := listener.Accept()
		if err != nil {
			if current, _, closed := p.state(); !closed && current == listener {
				return nil, err
			}
			continue
		}
		if conn, ok := p.admit(c); ok {
			return conn, nil
		}
	}
}

// Close closes the door for good.
func (p *Door) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	close(p.changed)
	if p.holder != noHolder {
		_ = syscall.Close(p.holder)
	}
	if p.listener != nil {
		return p.listener.Close()
	}
	return nil
}

// AddrPort returns the address with its port.
func (p *Door) AddrPort() netip.AddrPort { return p.addr }

// Addr returns the same as a net.Addr.
func (p *Door) Addr() net.Addr { return net.TCPAddrFromAddrPort(p.addr) }

// Reset closes a connection with a TCP reset.
func Reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		// Linger 0 makes the close a reset; a failure leaves an orderly close.
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

// Listen listens without a context: a device's listener lives until it is closed.
func Listen(network, address string) (net.Listener, error) {
	return net.Listen(network, address) //nolint:noctx // there is no call it belongs to
}
