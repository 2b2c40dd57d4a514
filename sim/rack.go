// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/rackbus/rackbus/sim/bmc"
	"github.com/rackbus/rackbus/sim/faults"
	"github.com/rackbus/rackbus/sim/internal/door"
	"github.com/rackbus/rackbus/sim/internal/exchange"
	"github.com/rackbus/rackbus/sim/internal/selfsigned"
	"github.com/rackbus/rackbus/sim/nvswitch"
	"github.com/rackbus/rackbus/sim/reqlog"
)

// Rack is a running simulation. Its methods are safe for concurrent use.
type Rack struct {
	opts    Options
	devices []*Device
	byID    map[string]*Device
	// switches stand beside the devices: their BMC is the least of what they serve.
	switches []*nvswitch.Switch
	faults   faults.Set
	log      *reqlog.Log
	cert     tls.Certificate

	ctx     context.Context
	cancel  context.CancelFunc
	server  *http.Server
	control *controlServer
	// serving waits for accept loops.
	serving   sync.WaitGroup
	exchanges *exchange.Server
	closing   sync.Once
	closeErr  error
}

// Start makes the devices and listens for all of them. The rack runs until Close, or until ctx ends: then requests
// are cut off, and Close is still needed.
func Start(ctx context.Context, opts Options) (*Rack, error) {
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	// All devices share one, as the BMCs of a batch do.
	cert, err := selfsigned.New("racksim", netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback())
	if err != nil {
		return nil, err
	}
	r := &Rack{
		opts: opts, byID: map[string]*Device{}, cert: cert,
		log: reqlog.New(reqlog.Options{Writer: opts.RequestLog, Keep: opts.KeepRequests}),
	}
	r.ctx, r.cancel = context.WithCancel(ctx)
	for _, rule := range opts.Faults {
		if _, err := r.faults.Add(rule); err != nil {
			r.cancel()
			return nil, err
		}
	}
	if r.devices, err = newDevices(r); err != nil {
		r.cancel()
		return nil, err
	}
	for _, d := range r.devices {
		r.byID[d.id] = d
	}
	r.exchanges = &exchange.Server{Faults: &r.faults, Log: r.log, Protocol: reqlog.Redfish, ErrorBody: redfishError}
	r.server = r.newServer()
	if err := r.listen(); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	if r.switches, err = startSwitches(r); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	if err := askHosts(opts, r.devices); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	r.reconcile()
	return r, nil
}

func (r *Rack) newServer() *http.Server {
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	return &http.Server{
		Handler:           http.HandlerFunc(r.serve),
		Protocols:         protocols,
		ReadHeaderTimeout: 30 * time.Second,
		IdleTimeout:       r.opts.IdleTimeout,
		BaseContext:       func(net.Listener) context.Context { return r.ctx },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, c.(*tls.Conn).NetConn().(*deviceConn))
		},
		// Handshakes that clients give up are nothing to report.
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
}

// listen opens all listeners, then starts to serve.
func (r *Rack) listen() error {
	listeners, err := r.openListeners()
	if err != nil {
		return err
	}
	if r.opts.Control != "" {
		if r.control, err = newControlServer(r); err != nil {
			for _, l := range listeners {
				_ = l.Close()
			}
			return err
		}
	}
	config := &tls.Config{
		Certificates: []tls.Certificate{r.cert}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
	}
	for _, l := range listeners {
		r.serving.Go(func() {
			err := r.server.Serve(tls.NewListener(l, config))
			if !errors.Is(err, http.ErrServerClosed) {
				r.opts.Logger.Error("serving a device ended", "addr", l.Addr().String(), "err", err)
			}
		})
	}
	return nil
}

func (r *Rack) openListeners() (out []net.Listener, err error) {
	defer func() {
		if err != nil {
			for _, l := range out {
				_ = l.Close()
			}
			out = nil
		}
	}()
	if len(r.devices) > PortLimit {
		l, err := door.Listen("tcp4", fmt.Sprintf("0.0.0.0:%d", r.opts.PortBase))
		if err != nil {
			return nil, fmt.Errorf("listen for %d devices: %w", len(r.devices), err)
		}
		port := l.Addr().(*net.TCPAddr).AddrPort().Port()
		h := &hall{Listener: l, devices: make(map[netip.Addr]*Device, len(r.devices))}
		for i, d := range r.devices {
			d.addr = netip.AddrPortFrom(loopbackAddress(i), port)
			h.devices[d.addr.Addr()] = d
		}
		return []net.Listener{h}, nil
	}
	ip := netip.MustParseAddr(r.opts.Listen)
	for i, d := range r.devices {
		port := 0
		if r.opts.PortBase > 0 {
			port = r.opts.PortBase + i
		}
		if d.door, err = door.Open(ip, port, d.admit); err != nil {
			return out, fmt.Errorf("listen for %s: %w", d.id, err)
		}
		d.addr = d.door.AddrPort()
		out = append(out, d.door)
	}
	return out, nil
}

// Close stops serving, cuts what is in progress, and writes out the request log. It returns the log's write error.
func (r *Rack) Close() error {
	r.closing.Do(func() {
		r.cancel()
		for _, d := range r.devices {
			d.stop()
		}
		if r.control != nil {
			r.control.close()
		}
		for _, s := range r.switches {
			r.closeErr = errors.Join(r.closeErr, s.Close())
		}
		_ = r.server.Close()
		r.serving.Wait()
		r.exchanges.Close()
		r.closeErr = errors.Join(r.closeErr, r.log.Close())
	})
	return r.closeErr
}

// Devices returns all devices but the switches, compute trays first.
func (r *Rack) Devices() []*Device { return r.devices }

// Device returns the device with a node id, nil if there is none.
func (r *Rack) Device(id string) *Device { return r.byID[id] }

// ID returns the rack id.
func (r *Rack) ID() string { return r.opts.RackID }

// Certificate returns the certificate of all devices.
func (r *Rack) Certificate() *x509.Certificate { return r.cert.Leaf }

// ControlAddr returns the control listener's "ip:port", "" without one.
func (r *Rack) ControlAddr() string {
	if r.control == nil {
		return ""
	}
	return r.control.addr
}

// AddFault puts a fault rule in force and returns its id.
func (r *Rack) AddFault(rule faults.Rule) (string, error) {
	id, err := r.faults.Add(rule)
	if err == nil && (rule.Action.Refuse || rule.Action.Mute) {
		r.reconcile()
		r.cutRefused(rule)
	}
	return id, err
}

// cutRefused resets connections of devices that will refuse or mute new ones.
func (r *Rack) cutRefused(rule faults.Rule) {
	for _, d := range r.devices {
		if rule.AppliesTo(d.id) {
			d.CutConnections()
		}
	}
	for _, s := range r.switches {
		if rule.AppliesTo(s.ID()) {
			s.CutConnections()
		}
	}
}

// RemoveFault takes a rule out and reports whether it was there.
func (r *Rack) RemoveFault(id string) bool {
	found := r.faults.Remove(id)
	r.reconcile()
	return found
}

// ClearFaults takes all rules out.
func (r *Rack) ClearFaults() {
	r.faults.Clear()
	r.reconcile()
}

// Faults returns the rules in force with what remains of them.
func (r *Rack) Faults() []faults.Rule { return r.faults.Rules() }

func (r *Rack) reconcile() {
	for _, d := range r.devices {
		d.reconcile()
	}
	for _, s := range r.switches {
		s.Reconcile()
	}
}

// Requests returns the kept requests to a device (a pattern; "" for all) that match the filter.
func (r *Rack) Requests(device string, f reqlog.Filter) []reqlog.Entry {
	f.Device = device
	return r.log.Select(f)
}

// Uploads returns the kept firmware uploads to a device (a pattern; "" for all).
func (r *Rack) Uploads(device string) []reqlog.Entry {
	return r.log.Select(reqlog.Filter{Device: device, Uploads: true})
}

// WaitRequests returns once at least n kept requests to a device match, or with the context's error. Requests count
// from their end.
func (r *Rack) WaitRequests(ctx context.Context, device string, f reqlog.Filter, n int) ([]reqlog.Entry, error) {
	f.Device = device
	return r.log.Wait(ctx, f, n)
}

// WaitInFlight returns a matching request that is in progress on a device (a pattern; "" for all), as soon as there
// is one, or the context's error. The filter's Uploads and After are not used.
func (r *Rack) WaitInFlight(ctx context.Context, device string, f reqlog.Filter) (reqlog.Entry, error) {
	f.Device = device
	return r.log.WaitInFlight(ctx, f)
}

// couplePower takes the power from the compute trays and switches when all shelves are off, and gives it back.
func (r *Rack) couplePower() {
	lit := false
	for _, d := range r.devices {
		lit = lit || d.Model().Shelf() && d.PowerState() == bmc.PowerOn
	}
	for _, d := range r.devices {
		if d.Model().Compute() {
			d.CutPower(!lit)
		}
	}
	for _, s := range r.switches {
		s.CutPower(!lit)
	}
}
