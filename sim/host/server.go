// SPDX-License-Identifier: Apache-2.0

package host

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"
)

// Server is a running host. Its methods are safe for concurrent use.
type Server struct {
	opts Options
	l    net.Listener
	dir  string
	root *os.Root

	stop chan struct{}
	wg   sync.WaitGroup

	mu     sync.Mutex
	signer ssh.Signer
	faults Faults
	conns  map[net.Conn]struct{}
	// boots and cycles are those of the machine that were taken in; up is since when the host has power.
	boots, cycles int
	up            time.Time
	// started says that the mst driver is loaded.
	started bool
	devices []*nic
	log     []Entry
	running map[string]int
	changed chan struct{}
	logins  []string
}

// nic is the state of a device.
type nic struct {
	Device
	// written waits for the next AUX power cycle; empty is nothing.
	written string
	flashes int
	busy    bool
}

// Start makes a host and listens for it, until Close.
func Start(opts Options) (*Server, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "racksim-host-")
	if err != nil {
		return nil, fmt.Errorf("start a host: %w", err)
	}
	s := &Server{
		opts: opts, dir: dir, stop: make(chan struct{}), conns: map[net.Conn]struct{}{},
		running: map[string]int{}, changed: make(chan struct{}),
		boots: opts.Machine.Boots(), cycles: opts.Machine.AUXCycles(),
	}
	for _, d := range opts.Devices {
		s.devices = append(s.devices, &nic{Device: d})
	}
	if err := s.open(); err != nil {
		_ = os.RemoveAll(dir)
		return nil, fmt.Errorf("start a host: %w", err)
	}
	s.wg.Go(s.serve)
	return s, nil
}

func (s *Server) open() error {
	if err := os.Mkdir(s.dir+"/tmp", 0o700); err != nil {
		return err
	}
	var err error
	if s.root, err = os.OpenRoot(s.dir); err != nil {
		return err
	}
	if err := s.NewHostKey(); err != nil {
		return err
	}
	s.l, err = net.Listen("tcp", s.opts.Listen) //nolint:noctx // it ends with Close
	return err
}

// NewHostKey gives the host another key, as an installation does.
func (s *Server) NewHostKey() error {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.signer = signer
	return nil
}

// Close ends the host and removes its files.
func (s *Server) Close() error {
	close(s.stop)
	err := s.l.Close()
	s.CutConnections()
	s.wg.Wait()
	return errors.Join(err, s.root.Close(), os.RemoveAll(s.dir))
}

// Address is the IP address the host listens on, Port its port.
func (s *Server) Address() string { return s.l.Addr().(*net.TCPAddr).IP.String() }

// Port is the TCP port of the host.
func (s *Server) Port() int { return s.l.Addr().(*net.TCPAddr).Port }

// Username is the account of the host, Password its password.
func (s *Server) Username() string { return s.opts.Username }

// Password is that of the account.
func (s *Server) Password() string { return s.opts.Password }

// Version is the version of a device that is in force, by its path.
func (s *Server) Version(path string) string {
	s.sync()
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.find(path); n != nil {
		return n.Version
	}
	return ""
}

// Flashes is how often a device was written.
func (s *Server) Flashes(path string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.find(path); n != nil {
		return n.flashes
	}
	return 0
}

// Paths are those of the devices.
func (s *Server) Paths() []string {
	var out []string
	for _, d := range s.opts.Devices {
		out = append(out, d.Path)
	}
	return out
}

// Files are the names in the host's directory for temporary files.
func (s *Server) Files() []string {
	entries, err := os.ReadDir(s.dir + "/tmp")
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// Logins are the outcomes of the logins so far: "ok" and "refused".
func (s *Server) Logins() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.logins...)
}

// CutConnections closes all connections.
func (s *Server) CutConnections() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		_ = c.Close()
	}
}

// find needs the lock.
func (s *Server) find(path string) *nic {
	for _, n := range s.devices {
		if n.Path == path {
			return n
		}
	}
	return nil
}

// sync takes in what has become of the machine, and reports whether the host has power.
func (s *Server) sync() bool {
	on, boots, cycles := s.opts.Machine.PowerState() == "On", s.opts.Machine.Boots(), s.opts.Machine.AUXCycles()
	s.mu.Lock()
	defer s.mu.Unlock()
	if cycles != s.cycles {
		for _, n := range s.devices {
			if n.written != "" && !s.faults.VersionsUnchanged {
				n.Version = n.written
			}
			n.written = ""
		}
		s.faults.UnreachableUntilAUX = false
		if s.faults.HiddenUntilAUX {
			s.faults.Hidden, s.faults.HiddenUntilAUX = nil, false
		}
	}
	if boots != s.boots || cycles != s.cycles {
		s.boots, s.cycles, s.up, s.started = boots, cycles, time.Time{}, false
		_ = os.RemoveAll(s.dir + "/tmp")
		_ = os.Mkdir(s.dir+"/tmp", 0o700)
	}
	switch {
	case !on:
		s.up = time.Time{}
	case s.up.IsZero():
		s.up = time.Now()
	}
	return on && !s.faults.Unreachable && !s.faults.UnreachableUntilAUX
}

func (s *Server) serve() {
	for {
		c, err := s.l.Accept()
		if err != nil {
			return
		}
		if !s.sync() {
			_ = c.(*net.TCPConn).SetLinger(0)
			_ = c.Close()
			continue
		}
		s.mu.Lock()
		s.conns[c] = struct{}{}
		s.mu.Unlock()
		s.wg.Go(func() { s.connection(c) })
	}
}

func (s *Server) connection(c net.Conn) {
	gone := make(chan struct{})
	defer func() {
		_ = c.Close()
		close(gone)
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
	}()
	s.wg.Go(func() { s.watch(c, gone) })
	_, channels, requests, err := ssh.NewServerConn(c, s.config())
	if err != nil {
		return
	}
	s.wg.Go(func() { ssh.DiscardRequests(requests) })
	for n := range channels {
		if n.ChannelType() != "session" {
			_ = n.Reject(ssh.UnknownChannelType, "sessions only")
			continue
		}
		ch, reqs, err := n.Accept()
		if err != nil {
			return
		}
		s.wg.Go(func() { s.session(c, ch, reqs) })
	}
}

// watch cuts a connection when the host loses its power or is restarted.
func (s *Server) watch(c net.Conn, gone <-chan struct{}) {
	tick := time.NewTicker(s.opts.Poll)
	defer tick.Stop()
	boots, cycles := s.opts.Machine.Boots(), s.opts.Machine.AUXCycles()
	for {
		select {
		case <-gone:
			return
		case <-tick.C:
		}
		if !s.sync() || s.opts.Machine.Boots() != boots || s.opts.Machine.AUXCycles() != cycles {
			_ = c.Close()
			return
		}
	}
}

func (s *Server) config() *ssh.ServerConfig {
	config := &ssh.ServerConfig{
		MaxAuthTries:  -1,
		ServerVersion: "SSH-2.0-OpenSSH_9.6p1",
		PasswordCallback: func(meta ssh.ConnMetadata, password []byte) (*ssh.Permissions, error) {
			ok := meta.User() == s.opts.Username && subtle.ConstantTimeCompare(password, []byte(s.opts.Password)) == 1
			s.mu.Lock()
			defer s.mu.Unlock()
			if !ok {
				s.logins = append(s.logins, "refused")
				return nil, errors.New("refused")
			}
			s.logins = append(s.logins, "ok")
			return nil, nil
		},
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	config.AddHostKey(s.signer)
	return config
}

func (s *Server) session(c net.Conn, ch ssh.Channel, reqs <-chan *ssh.Request) {
	defer func() { _ = ch.Close() }()
	for r := range reqs {
		switch r.Type {
		case "exec":
			var p struct{ Line string }
			if err := ssh.Unmarshal(r.Payload, &p); err != nil {
				_ = r.Reply(false, nil)
				continue
			}
			_ = r.Reply(true, nil)
			// The end of the channel ends a command that hangs.
			left := make(chan struct{})
			s.wg.Go(func() {
				defer close(left)
				ssh.DiscardRequests(reqs)
			})
			s.exec(c, ch, p.Line, left)
			return
		case "subsystem":
			_ = r.Reply(true, nil)
			s.wg.Go(func() { ssh.DiscardRequests(reqs) })
			f := sftp.NewRequestServer(ch, s.files(c))
			_ = f.Serve()
			_ = f.Close()
			return
		default:
			_ = r.Reply(false, nil)
		}
	}
}
