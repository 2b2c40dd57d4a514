// SPDX-License-Identifier: Apache-2.0

package device

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/redfish"
	"github.com/rackbus/rackbus/pkg/ssh"
	"github.com/rackbus/rackbus/pkg/switchtls"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nvue"
)

// Ports of NVOS that no endpoint names.
const (
	PortSSH           = 22
	PortNMXController = 9370
	PortNMXTelemetry  = 9352
	PortGNMI          = 9339

	portNVUE = 443
)

// Ports replace the fixed ports, for simulated switches; 0 is the fixed one.
type Ports struct {
	SSH           uint16
	NMXController uint16
	NMXTelemetry  uint16
	GNMI          uint16
}

// Options configure an Opener. TLS and HostKeys are required.
type Options struct {
	// TLS is the material of the domains.
	TLS *switchtls.Store
	// NVUE are the waits and limits of the NVUE client.
	NVUE nvue.Timing
	// SSH are those of logins, commands and uploads.
	SSH ssh.Timing
	// HostKeys is the policy for SSH host keys, Legacy also offers old algorithms.
	HostKeys ssh.HostKeys
	Legacy   bool
	// Pool holds the connections to BMCs, Redfish are the waits of their client.
	Pool    *redfish.Pool
	Redfish redfish.Timing
	// Targets limits the addresses that are connected to.
	Targets node.TargetPolicy
	// Ports replace fixed ports.
	Ports Ports
	// Version of the build, for the User-Agent towards BMCs.
	Version string
}

// Opener opens switches.
type Opener struct{ opts Options }

// NewOpener returns an Opener.
func NewOpener(opts Options) (*Opener, error) {
	if opts.TLS == nil || opts.HostKeys == nil {
		return nil, errors.New("device: TLS material and a host key policy are required")
	}
	if opts.Pool == nil {
		opts.Pool = redfish.NewPool(redfish.PoolOptions{})
	}
	return &Opener{opts: opts}, nil
}

// TLS is the material of the domains.
func (o *Opener) TLS() *switchtls.Store { return o.opts.TLS }

// Close closes the idle connections to BMCs.
func (o *Opener) Close() { o.opts.Pool.Close() }

// Caller is on whose behalf a switch is opened: a task or a query.
type Caller interface {
	Target() *rackbusv1.NodeTarget
	Credentials(kind node.EndpointKind) (node.Credentials, error)
	Guard() agent.Guard
}

// ErrTarget says that a switch cannot be opened as it was named.
var ErrTarget = errors.New("unusable switch target")

// Open opens a switch. domain selects the TLS material; empty is the configured
// default. The errors wrap ErrTarget or those of the credentials. Nothing is sent.
func (o *Opener) Open(caller Caller, domain string, log *slog.Logger) (*Switch, error) {
	target := caller.Target()
	typ, ok := node.ByID(target.GetNodeType())
	if !ok || typ.Family != node.FamilySwitch {
		return nil, fmt.Errorf("%w: this agent does not drive nodes of the type %q", ErrTarget, target.GetNodeType())
	}
	s := &Switch{
		Ref: node.Ref{RackID: target.GetRackId(), NodeID: target.GetNodeId()}, Type: typ,
		Guard: caller.Guard(), Log: log, opener: o, domain: domain,
	}
	if err := s.openBMC(caller); err != nil {
		return nil, err
	}
	if host := target.GetHost(); host.GetAddress() != "" {
		if err := s.openHost(caller, host); err != nil {
			return nil, err
		}
	} else if s.bmc == nil {
		return nil, fmt.Errorf("%w: node %s has no host endpoint", ErrTarget, s.Ref.NodeID)
	}
	return s, nil
}

func (s *Switch) openHost(caller Caller, host *rackbusv1.DeviceEndpoint) error {
	o := s.opener.opts
	if err := o.Targets.Check(host.GetAddress()); err != nil {
		return fmt.Errorf("%w: %w", ErrTarget, err)
	}
	login, err := caller.Credentials(node.EndpointHost)
	if err != nil {
		return err
	}
	if login.User == "" || login.Password.Empty() {
		return fmt.Errorf("%w: missing host credentials", ErrTarget)
	}
	s.Login = login
	s.Address = strings.Trim(host.GetAddress(), "[]")
	s.HostName = host.GetHostName()
	s.NVUE, err = nvue.New(nvue.Endpoint{
		Address: s.Address, Port: nvuePort(host.GetPort()), HostName: s.HostName,
		Username: login.User, Password: login.Password,
	}, nvue.Options{Guard: s.Guard, Timing: o.NVUE, Logger: s.Log})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrTarget, err)
	}
	return nil
}

// nvuePort: inventories name the SSH port, or none, where they mean NVUE.
func nvuePort(port uint32) uint16 {
	if port == 0 || port == PortSSH || port > 1<<16-1 {
		return portNVUE
	}
	return uint16(port)
}

// openBMC makes the Redfish client when the node names a BMC with a port and a
// login; without any of these the switch has no path through it.
func (s *Switch) openBMC(caller Caller) error {
	bmc := caller.Target().GetBmc()
	if bmc.GetAddress() == "" || bmc.GetPort() == 0 || bmc.GetCredentials() == nil {
		return nil
	}
	login, err := caller.Credentials(node.EndpointBMC)
	if err != nil {
		return err
	}
	if login.User == "" || login.Password.Empty() {
		return nil
	}
	profile, ok := redfish.SwitchProfile(s.Type.ID)
	if !ok {
		return fmt.Errorf("%w: no BMC profile for node type %s", ErrTarget, s.Type.ID)
	}
	o := s.opener.opts
	if err := o.Targets.Check(bmc.GetAddress()); err != nil {
		return fmt.Errorf("%w: BMC: %w", ErrTarget, err)
	}
	s.bmc, err = redfish.New(redfish.Endpoint{
		Address: bmc.GetAddress(), Port: uint16(bmc.GetPort()), HostName: bmc.GetHostName(),
		Username: login.User, Password: login.Password,
	}, redfish.Options{
		Profile: profile, Guard: s.Guard, Pool: o.Pool, Timing: o.Redfish, UserAgent: "Rackbus/" + o.Version, Logger: s.Log,
	})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrTarget, err)
	}
	return nil
}

func (s *Switch) hostPort(test uint16, fixed uint16) string {
	return net.JoinHostPort(s.Address, strconv.Itoa(int(cmp.Or(test, fixed))))
}

// NMXController is the address of the fabric controller's gRPC service.
func (s *Switch) NMXController() string {
	return s.hostPort(s.opener.opts.Ports.NMXController, PortNMXController)
}

// NMXTelemetry is the address of the telemetry app's gRPC service.
func (s *Switch) NMXTelemetry() string {
	return s.hostPort(s.opener.opts.Ports.NMXTelemetry, PortNMXTelemetry)
}

// GNMI is the address of the gNMI server.
func (s *Switch) GNMI() string { return s.hostPort(s.opener.opts.Ports.GNMI, PortGNMI) }

// ServerName is the TLS server name of every service of the switch.
func (s *Switch) ServerName() string { return s.opener.opts.TLS.ServerName(s.HostName, s.Address) }
