// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"net"
	"net/netip"
	"time"

	"github.com/rackbus/rackbus/sim/internal/door"
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

// Reset closes the connection with a TCP reset.
func (c *deviceConn) Reset() {
	door.Reset(c.Conn)
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
		door.Reset(c)
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
			door.Reset(c)
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
