// SPDX-License-Identifier: Apache-2.0

package device

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/redfish"
	"github.com/rackbus/rackbus/pkg/ssh"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nvue"
)

// Switch is one opened switch. It may be used by several goroutines.
type Switch struct {
	Ref  node.Ref
	Type node.Type
	// Address is the management IP address, HostName its name, mostly empty.
	Address  string
	HostName string
	// Login is the account of the host endpoint.
	Login node.Credentials
	// NVUE is the REST client; nil when only the BMC was named. Call Initialize
	// before it is used.
	NVUE  *nvue.Client
	Guard agent.Guard
	Log   *slog.Logger

	opener *Opener
	domain string
	bmc    *redfish.Client

	mu          sync.Mutex
	initialized bool
}

// Domain is the domain that was asked for, empty for the default one.
func (s *Switch) Domain() string { return s.domain }

// BMC is the Redfish client, false where the node names no BMC to log in to.
func (s *Switch) BMC() (*redfish.Client, bool) { return s.bmc, s.bmc != nil }

// HasHost reports whether the operating system can be reached at all.
func (s *Switch) HasHost() bool { return s.NVUE != nil }

// Initialize protects the NVUE connections with the TLS material of the domain,
// once; see nvue.Client.Initialize. A failed one is tried again by the next call.
func (s *Switch) Initialize(ctx context.Context) error {
	if s.NVUE == nil {
		return fmt.Errorf("%w: node %s has no host endpoint", ErrTarget, s.Ref.NodeID)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.initialized {
		return nil
	}
	if err := s.NVUE.Initialize(ctx, s.opener.opts.TLS, s.domain); err != nil {
		return err
	}
	s.initialized = true
	return nil
}

// Adopt makes another password the one of the switch's account, after it was
// changed there.
func (s *Switch) Adopt(login node.Credentials) error {
	view, err := s.NVUE.WithCredentials(login.User, login.Password)
	if err != nil {
		return err
	}
	s.Login, s.NVUE = login, view
	return nil
}

// SSHOption changes how an SSH client is made.
type SSHOption func(*ssh.Options)

// NewHostKey accepts another host key than the recorded one, once: for a switch
// that this job has reinstalled or reset itself. Both fingerprints are logged.
func NewHostKey(o *ssh.Options) { o.NewKeyOnce = true }

// SSH returns a client that has not connected yet, logged in with the account of
// the host endpoint. Close it.
func (s *Switch) SSH(options ...SSHOption) (*ssh.Client, error) { return s.SSHAs(s.Login, options...) }

// SSHAs does so with another login.
func (s *Switch) SSHAs(login node.Credentials, options ...SSHOption) (*ssh.Client, error) {
	o := s.opener.opts
	opts := ssh.Options{HostKeys: o.HostKeys, Guard: s.Guard, Legacy: o.Legacy, Timing: o.SSH, Logger: s.Log}
	for _, change := range options {
		change(&opts)
	}
	var names []string
	if s.HostName != "" {
		names = append(names, s.HostName)
	}
	return ssh.New(ssh.Endpoint{Address: s.Address, Port: cmp.Or(o.Ports.SSH, PortSSH), Names: names},
		ssh.Login{User: login.User, Password: login.Password}, opts)
}

// Close closes idle connections.
func (s *Switch) Close() {
	if s.NVUE != nil {
		s.NVUE.Close()
	}
}
