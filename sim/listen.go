// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"
)

// deviceConn is a client's connection to a device.
type deviceConn struct {
	net.Conn
	device *Device
}

// Close closes the connection in order and forgets it.
func (c *deviceConn) Close() error {
	c.device.mu.Lock()
	delete(c.device.conns, c)
	c.device.mu.Unlock()
	return c.Conn.Close()
}

// reset closes the connection with a TCP reset.
func (c *deviceConn) reset() {
	resetConn(c.Conn)
	_ = c.Close()
}

func resetConn(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		// Linger 0 makes the close a reset; a failure leaves an orderly close.
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

// admit takes a new connection for the device, or resets it where connections are refused. A muted one is kept open
// and served by nobody until it is cut.
func (d *Device) admit(c net.Conn) (net.Conn, bool) {
	_, refusing := d.refusing(time.Now())
	if !refusing {
		_, refusing = d.rack.faults.RefuseConnection(d.id)
	}
	if refusing {
		resetConn(c)
		return nil, false
	}
	conn := &deviceConn{Conn: c, device: d}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.conns == nil {
		d.conns = map[*deviceConn]struct{}{}
	}
	d.conns[conn] = struct{}{}
	if d.rack.ctx.Err() != nil {
		return conn, true
	}
	if _, mute := d.rack.faults.MuteConnection(d.id); mute {
		return nil, false
	}
	return conn, true
}

// door is the listener of one device. While shut, its port refuses connections but stays reserved.
type door struct {
	device *Device
	addr   netip.AddrPort
	// holder is a bound socket that never listens: it keeps the port from others while the door is shut.
	holder int

	mu       sync.Mutex
	listener net.Listener
	changed  chan struct{}
	closed   bool
}

const noHolder = -1

// openDoor listens on an address; port 0 takes a free one.
func openDoor(d *Device, ip netip.Addr, port int) (*door, error) {
	p := &door{device: d, holder: noHolder, changed: make(chan struct{})}
	if ip.Is4() {
		fd, bound, err := holdPort(ip, port)
		if err != nil {
			return nil, fmt.Errorf("reserve %s port %d: %w", ip, port, err)
		}
		p.holder, port = fd, bound
	}
	p.addr = netip.AddrPortFrom(ip, uint16(port))
	l, err := listenTCP("tcp", p.addr.String())
	if err != nil {
		_ = p.Close()
		return nil, fmt.Errorf("listen for %s: %w", d.id, err)
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

// set opens or shuts the door.
func (p *door) set(open bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || open == (p.listener != nil) {
		return
	}
	if open {
		l, err := listenTCP("tcp", p.addr.String())
		if err != nil {
			p.device.rack.opts.Logger.Error("reopening a device failed", "node", p.device.id, "err", err)
			return
		}
		p.listener = l
	} else {
		_ = p.listener.Close()
		p.listener = nil
	}
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *door) state() (net.Listener, chan struct{}, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.listener, p.changed, p.closed
}

// Accept waits for a connection that the device takes, also across times in which the door is shut.
func (p *door) Accept() (net.Conn, error) {
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
		if conn, ok := p.device.admit(c); ok {
			return conn, nil
		}
	}
}

// Close closes the door for good.
func (p *door) Close() error {
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

// Addr returns the device's address.
func (p *door) Addr() net.Addr { return net.TCPAddrFromAddrPort(p.addr) }

// hall is the one listener of many devices, told apart by the local address of a connection.
type hall struct {
	net.Listener
	devices map[netip.Addr]*Device
}

func (h *hall) Accept() (net.Conn, error) {
	for {
		c, err := h.Listener.Accept()
		if err != nil {
			return nil, err
		}
		local := c.LocalAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
		d := h.devices[local]
		if d == nil {
			resetConn(c)
			continue
		}
		if conn, ok := d.admit(c); ok {
			return conn, nil
		}
	}
}

// loopbackAddress returns the address of the i-th device, from 127.1.0.1 on, leaving out .0 and .255.
func loopbackAddress(i int) netip.Addr {
	block := i / 254
	return netip.AddrFrom4([4]byte{127, byte(1 + block/256), byte(block % 256), byte(i%254 + 1)})
}

// listenTCP listens without a context: a device's listener lives until it is closed.
func listenTCP(network, address string) (net.Listener, error) {
	return net.Listen(network, address) //nolint:noctx // there is no call it belongs to
}
