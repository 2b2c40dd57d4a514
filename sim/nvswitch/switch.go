// SPDX-License-Identifier: Apache-2.0

package nvswitch

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
	"google.golang.org/grpc"

	"github.com/rackbus/rackbus/sim/internal/exchange"
	"github.com/rackbus/rackbus/sim/internal/selfsigned"
	"github.com/rackbus/rackbus/sim/reqlog"
)

// Switch is a running switch. Its methods are safe for concurrent use.
type Switch struct {
	opts Options
	dir  string
	root *os.Root

	ctx      context.Context
	cancel   context.CancelFunc
	services map[string]*service
	nvueHTTP *exchange.Server
	bmcHTTP  *exchange.Server
	https    []*http.Server
	grpcs    []*grpc.Server
	wg       sync.WaitGroup
	closing  sync.Once
	closeErr error
	// reconciling is taken before mu.
	reconciling sync.Mutex

	mu     sync.Mutex
	closed bool
	timing Timing
	knobs  Knobs
	agenda []event
	wake   *time.Timer
	state
}

// state is all that the services share.
type state struct {
	// running and startup are configuration trees, see config.go.
	running, startup document
	revisions        map[string]*revision
	// staged are the edits of the command line that wait for "nv config apply".
	staged  []edit
	serials int
	actions map[string]*action
	// expired are users whose password has to be changed at the next login.
	expired map[string]bool

	apps map[string]*app
	// static is the controller's static configuration: file, key, value.
	static  map[string]map[string]string
	reports int
	// greeted are the connections that have said Hello to the controller.
	greeted map[string]bool

	cas      map[string]*authority
	entities map[string]*entity
	// selfSigned is the certificate of everything that has none, bmcCert that of the BMC.
	selfSigned, bmcCert tls.Certificate

	images   imageState
	installs []Install
	firmware map[string]string
	// pending are installed versions that wait for a power cycle; fetched are firmware files by name.
	pending map[string]string
	fetched map[string]string
	// evidence is the nonce of the last generated evidence of each component.
	evidence map[string]string

	signer ssh.Signer
	// up says that the operating system runs; dark that nothing has power; power is the BMC's PowerState.
	up      bool
	dark    bool
	power   string
	reboots int
	resets  int
	// cuts are services whose connections end at the next Reconcile.
	cuts map[string]bool
}

// Install is an image that was installed.
type Install struct {
	// File is the image file's name, SHA256 that of its content in hex.
	File, SHA256, BuildID string
	// Forced tells installations that reboot by themselves.
	Forced bool
}

// Start makes a switch and listens for it. It runs until Close, or until ctx ends: then requests are cut off, and Close
// is still needed.
func Start(ctx context.Context, opts Options) (*Switch, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Switch{opts: opts, timing: opts.Timing, knobs: opts.Knobs, services: map[string]*service{}}
	s.ctx, s.cancel = context.WithCancel(ctx)
	if s.dir, err = os.MkdirTemp("", "racksim-switch-"); err != nil {
		s.cancel()
		return nil, fmt.Errorf("start a switch: %w", err)
	}
	if err := s.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("start switch %s: %w", opts.ID, err), s.Close())
	}
	return s, nil
}

func (s *Switch) open() error {
	var err error
	if s.root, err = os.OpenRoot(s.dir); err != nil {
		return err
	}
	if err := s.makeDirectories(); err != nil {
		return err
	}
	if s.selfSigned, err = selfsigned.New("nvos", s.opts.Listen); err != nil {
		return err
	}
	if s.bmcCert, err = selfsigned.New("nvos", s.opts.Listen); err != nil {
		return err
	}
	if err := s.newHostKey(); err != nil {
		return err
	}
	s.manufacture()
	return s.listen()
}

// manufacture sets the state of a switch that is installed and has the account of the options.
func (s *Switch) manufacture() {
	s.running = factoryConfig(s.opts.Username, s.opts.Password)
	s.startup = cloneDocument(s.running)
	s.revisions, s.actions, s.expired = map[string]*revision{}, map[string]*action{}, map[string]bool{}
	s.apps = newApps()
	s.static = factoryStatic()
	s.cas, s.entities = map[string]*authority{}, map[string]*entity{}
	s.images = imageState{builds: s.opts.Images, current: 0, next: 0}
	s.firmware = maps.Clone(s.opts.Firmware)
	s.pending, s.fetched, s.evidence = map[string]string{}, map[string]string{}, map[string]string{}
	s.up, s.power = true, powerOn
	s.cuts, s.greeted = map[string]bool{}, map[string]bool{}
	s.freshBoot()
}

// Close stops serving, cuts what is in progress and removes the switch's files.
func (s *Switch) Close() error {
	s.closing.Do(func() {
		s.cancel()
		s.mu.Lock()
		s.closed = true
		if s.wake != nil {
			s.wake.Stop()
		}
		s.mu.Unlock()
		for _, one := range s.services {
			_ = one.door.Close()
			one.cut()
		}
		for _, h := range s.https {
			_ = h.Close()
		}
		for _, g := range s.grpcs {
			g.Stop()
		}
		for _, one := range s.services {
			one.cut()
		}
		s.wg.Wait()
		if s.nvueHTTP != nil {
			s.nvueHTTP.Close()
			s.bmcHTTP.Close()
		}
		var err error
		if s.root != nil {
			err = s.root.Close()
		}
		s.closeErr = errors.Join(err, os.RemoveAll(s.dir))
	})
	return s.closeErr
}

// ID returns the node id.
func (s *Switch) ID() string { return s.opts.ID }

// Model returns the switch's model.
func (s *Switch) Model() Model { return s.opts.Model }

// NodeType returns the node type in the form of the contract's NodeType values.
func (s *Switch) NodeType() string { return s.opts.Model.NodeType() }

// IP returns the address of all services in text form.
func (s *Switch) IP() string { return s.opts.Listen.String() }

// Ports returns the ports of all services.
func (s *Switch) Ports() Ports {
	port := func(name string) int { return int(s.services[name].door.AddrPort().Port()) }
	return Ports{
		NVUE: port(serviceNVUE), SSH: port(serviceSSH), NMXC: port(serviceNMXC), Telemetry: port(serviceTelemetry),
		GNMI: port(serviceGNMI), BMC: port(serviceBMC),
	}
}

// Addr returns "ip:port" of a service: nvue, ssh, nmxc, telemetry, gnmi or bmc.
func (s *Switch) Addr(name string) string { return s.services[name].door.AddrPort().String() }

// Username returns the account name the switch was started with.
func (s *Switch) Username() string { return s.opts.Username }

// Password returns the password the switch was started with.
func (s *Switch) Password() string { return s.opts.Password }

// BMCUsername returns the account name of the BMC.
func (s *Switch) BMCUsername() string { return s.opts.BMCUsername }

// BMCPassword returns the password of the BMC.
func (s *Switch) BMCPassword() string { return s.opts.BMCPassword }

// Log returns the request log; every entry of the switch has its ID as device.
func (s *Switch) Log() *reqlog.Log { return s.opts.Log }

// Requests returns the kept requests to the switch that match.
func (s *Switch) Requests(f reqlog.Filter) []reqlog.Entry {
	f.Device = s.opts.ID
	return s.opts.Log.Select(f)
}

// SelfSigned returns the certificate that NVUE and gRPC services show as long as no other is bound.
func (s *Switch) SelfSigned() *x509.Certificate { return s.selfSigned.Leaf }

// BMCCertificate returns the certificate of the BMC.
func (s *Switch) BMCCertificate() *x509.Certificate { return s.bmcCert.Leaf }

// SetUser gives a user a password, in the running and the saved configuration; expired has to be changed at login.
func (s *Switch) SetUser(name, password string, expired bool) {
	s.lock()
	defer s.mu.Unlock()
	s.setPassword(name, password)
	s.expired[name] = expired
}

// UserPassword returns the password of a user in the running configuration.
func (s *Switch) UserPassword(name string) string {
	s.lock()
	defer s.mu.Unlock()
	password, _ := s.password(name)
	return password
}

// Expired reports whether the user has to change the password.
func (s *Switch) Expired(name string) bool {
	s.lock()
	defer s.mu.Unlock()
	return s.expired[name]
}

// Reboots counts how often the operating system went down.
func (s *Switch) Reboots() int {
	s.lock()
	defer s.mu.Unlock()
	return s.reboots
}

// Up reports whether the operating system runs. Listeners are open, or shut, accordingly when it returns.
func (s *Switch) Up() bool {
	s.Reconcile()
	s.lock()
	defer s.mu.Unlock()
	return s.up && !s.dark
}

// Installs returns the images that were installed, in order.
func (s *Switch) Installs() []Install {
	s.lock()
	defer s.mu.Unlock()
	return slices.Clone(s.installs)
}

// Version returns the version of a firmware component that is in force.
func (s *Switch) Version(component string) string {
	s.lock()
	defer s.mu.Unlock()
	return s.firmware[component]
}

// SetVersion puts a version of a firmware component in force.
func (s *Switch) SetVersion(component, version string) {
	s.lock()
	defer s.mu.Unlock()
	s.firmware[component] = version
}

// Pending returns the firmware versions that wait for a power cycle.
func (s *Switch) Pending() map[string]string {
	s.lock()
	defer s.mu.Unlock()
	return maps.Clone(s.pending)
}
