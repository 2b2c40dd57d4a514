// SPDX-License-Identifier: Apache-2.0

package nvswitch

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/rackbus/rackbus/sim/internal/door"
)

// Names of the services.
const (
	serviceNVUE      = "nvue"
	serviceSSH       = "ssh"
	serviceNMXC      = "nmxc"
	serviceTelemetry = "telemetry"
	serviceGNMI      = "gnmi"
	serviceBMC       = "bmc"
)

// service is one port with its connections.
type service struct {
	sw   *Switch
	name string
	door *door.Door

	mu    sync.Mutex
	conns map[*conn]struct{}
}

// conn is a client's connection to a service.
type conn struct {
	net.Conn
	service *service
}

// Close closes the connection in order and forgets it.
func (c *conn) Close() error {
	c.service.mu.Lock()
	delete(c.service.conns, c)
	c.service.mu.Unlock()
	return c.Conn.Close()
}

// Reset closes the connection with a TCP reset.
func (c *conn) Reset() {
	door.Reset(c.Conn)
	_ = c.Close()
}

// cut resets all connections.
func (v *service) cut() {
	v.mu.Lock()
	open := make([]*conn, 0, len(v.conns))
	for c := range v.conns {
		open = append(open, c)
	}
	v.mu.Unlock()
	for _, c := range open {
		c.Reset()
	}
}

// admit takes a new connection where the service listens and no fault says otherwise.
func (v *service) admit(c net.Conn) (net.Conn, bool) {
	s := v.sw
	s.lock()
	open, garbage := s.openLocked(v.name), slices.Contains(s.knobs.Garbage, v.name)
	s.mu.Unlock()
	if _, refused := s.opts.Faults.RefuseConnection(s.opts.ID); refused || !open {
		door.Reset(c)
		return nil, false
	}
	if garbage {
		_, _ = c.Write([]byte("\x00\x01 not the service you are looking for\r\n"))
		_ = c.Close()
		return nil, false
	}
	tracked := &conn{Conn: c, service: v}
	v.mu.Lock()
	v.conns[tracked] = struct{}{}
	v.mu.Unlock()
	if s.ctx.Err() != nil {
		tracked.Reset()
		return nil, false
	}
	if _, mute := s.opts.Faults.MuteConnection(s.opts.ID); mute {
		return nil, false
	}
	return tracked, true
}

// openLocked reports whether a service takes connections.
func (s *Switch) openLocked(name string) bool {
	if s.dark || slices.Contains(s.knobs.Refuse, name) || s.opts.Faults.Refusing(s.opts.ID) {
		return false
	}
	switch name {
	case serviceBMC:
		return true
	case serviceNMXC:
		return s.up && s.managerOpen(controllerApp)
	case serviceTelemetry:
		return s.up && s.managerOpen(telemetryApp)
	case serviceGNMI:
		return s.up && s.running.text(gnmiPath, "state") == stateEnabled
	default:
		return s.up
	}
}

// Reconcile brings listeners and connections in line with the state.
func (s *Switch) Reconcile() {
	// One after the other: an older look at the state must not win.
	s.reconciling.Lock()
	defer s.reconciling.Unlock()
	s.lock()
	cuts := s.cuts
	s.cuts = map[string]bool{}
	open := map[string]bool{}
	for name := range s.services {
		open[name] = s.openLocked(name)
	}
	closed := s.closed
	s.armLocked()
	s.mu.Unlock()
	if closed {
		return
	}
	for name, one := range s.services {
		if err := one.door.Set(open[name]); err != nil {
			s.opts.Logger.Error("reopening a switch failed", "node", s.opts.ID, "service", name, "err", err)
		}
		if !open[name] || cuts[name] {
			one.cut()
		}
	}
}

// CutConnections resets the connections that clients have open to the given services, to all without any.
func (s *Switch) CutConnections(services ...string) {
	for name, one := range s.services {
		if len(services) == 0 || slices.Contains(services, name) {
			one.cut()
		}
	}
}

// listen opens all doors and starts to serve.
func (s *Switch) listen() error {
	p := s.opts.Ports
	for name, port := range map[string]int{
		serviceNVUE: p.NVUE, serviceSSH: p.SSH, serviceNMXC: p.NMXC, serviceTelemetry: p.Telemetry,
		serviceGNMI: p.GNMI, serviceBMC: p.BMC,
	} {
		one := &service{sw: s, name: name, conns: map[*conn]struct{}{}}
		var err error
		if one.door, err = door.Open(s.opts.Listen, port, one.admit); err != nil {
			return fmt.Errorf("listen for %s: %w", name, err)
		}
		s.services[name] = one
	}
	s.serveHTTP(serviceNVUE, s.newNVUE(), s.nvueTLS)
	s.serveHTTP(serviceBMC, s.newBMC(), s.bmcTLS)
	s.serveControllers()
	s.wg.Go(s.serveSSH)
	s.Reconcile()
	return nil
}

// connKey finds the conn of an HTTP request in its context.
type connKey struct{}

// serveHTTP serves a service over TLS; config is asked for each connection.
func (s *Switch) serveHTTP(name string, handler http.Handler, config func() *tls.Config) {
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	server := &http.Server{
		Handler: handler, Protocols: protocols, ReadHeaderTimeout: 30 * time.Second, IdleTimeout: s.opts.IdleTimeout,
		BaseContext: func(net.Listener) context.Context { return s.ctx },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, c.(*tls.Conn).NetConn().(*conn))
		},
		// Handshakes that clients give up are nothing to report.
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	s.https = append(s.https, server)
	listener := tls.NewListener(s.services[name].door, &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return config(), nil },
	})
	s.wg.Go(func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			s.opts.Logger.Error("serving a switch ended", "node", s.opts.ID, "service", name, "err", err)
		}
	})
}
