// SPDX-License-Identifier: Apache-2.0

package api

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/credentials"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/seal"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// purpose is what a target is built for; it decides which endpoint must bring what.
type purpose uint8

const (
	forRegistration purpose = iota
	forPower
	forFirmwareInventory
	forDeviceInfo
	forFirmwareUpdate
	forValidation
)

// targetBuilder turns the nodes of one request into what agents get, with the
// credentials sealed. It draws one data key per family.
type targetBuilder struct {
	sealer *seal.Sealer

	mu       sync.Mutex
	sessions map[node.Family]*seal.Session
}

func (s *Server) newTargets() *targetBuilder {
	return &targetBuilder{sealer: s.opts.Sealer, sessions: make(map[node.Family]*seal.Session)}
}

func (b *targetBuilder) session(f node.Family) (*seal.Session, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s, ok := b.sessions[f]; ok {
		return s, nil
	}
	s, err := b.sealer.NewSession(f)
	if err != nil {
		return nil, err
	}
	b.sessions[f] = s
	return s, nil
}

// build validates a node and returns its target. Errors are for the caller.
func (b *targetBuilder) build(n *selected, p purpose) (*rackbusv1.NodeTarget, error) {
	bmc, host := endpointRequest(n.info.GetBmcEndpoint()), endpointRequest(n.info.GetHostEndpoint())
	if err := checkTokens(n.typ, bmc, host); err != nil {
		return nil, err
	}
	if p != forRegistration {
		if err := checkIdentity(n.ref); err != nil {
			return nil, err
		}
		if err := checkCredentials(n, p, bmc, host); err != nil {
			return nil, err
		}
	}
	t := &rackbusv1.NodeTarget{
		RackId: n.ref.RackID, NodeId: n.ref.NodeID, NodeType: n.typ.ID, InventoryProfile: n.profile.Name,
	}
	var err error
	if needsBMC(n.typ, p) || bmc != nil {
		if t.Bmc, err = b.endpoint(n, node.EndpointBMC, bmc, p); err != nil {
			return nil, err
		}
	}
	if p == forPower && n.typ.Family == node.FamilySwitch {
		return t, nil // its power goes through the BMC alone
	}
	if needsHost(n.typ, p) || host != nil {
		if t.Host, err = b.endpoint(n, node.EndpointHost, host, p); err != nil {
			return nil, err
		}
	}
	return t, nil
}

func needsBMC(t node.Type, p purpose) bool {
	return p == forRegistration || p == forPower || t.Family != node.FamilySwitch
}

func needsHost(t node.Type, p purpose) bool {
	return t.Family == node.FamilySwitch && p != forRegistration && p != forPower
}

// endpoint validates one endpoint and seals its credentials.
func (b *targetBuilder) endpoint(n *selected, kind node.EndpointKind, in *node.EndpointRequest, p purpose) (*rackbusv1.DeviceEndpoint, error) {
	e, err := node.RulesFor(n.typ, kind, p == forRegistration).Endpoint(in)
	if err != nil {
		return nil, err
	}
	if err := checkAddress(kind, e.Address); err != nil {
		return nil, err
	}
	out := &rackbusv1.DeviceEndpoint{Address: e.Address, Port: uint32(e.Port), Mac: e.MAC, HostName: e.HostName}
	if e.Credentials.Empty() {
		return out, nil
	}
	out.Credentials, err = b.seal(n.typ.Family, n.ref, kind, e.Credentials)
	return out, err
}

func (b *targetBuilder) seal(f node.Family, ref node.Ref, kind node.EndpointKind, c node.Credentials) (*rackbusv1.Sealed, error) {
	defer c.Password.Wipe()
	session, err := b.session(f)
	if err != nil {
		return nil, err
	}
	return credentials.Seal(session, ref, kind, c)
}

// checkTokens refuses credentials of a kind that no node takes, the ones that
// would be used first.
func checkTokens(t node.Type, bmc, host *node.EndpointRequest) error {
	kinds := []node.EndpointKind{node.EndpointBMC, node.EndpointHost}
	if node.CredentialKind(t.Family, false) == node.EndpointHost {
		kinds = []node.EndpointKind{node.EndpointHost, node.EndpointBMC}
	}
	for _, kind := range kinds {
		in := bmc
		if kind == node.EndpointHost {
			in = host
		}
		if in != nil && in.SessionToken {
			return fmt.Errorf("%s endpoint credentials use unsupported session_token auth; use user_pass credentials", kind)
		}
	}
	return nil
}

// checkIdentity refuses ids that cannot be used.
func checkIdentity(ref node.Ref) error {
	switch {
	case ref.RackID == "":
		return errors.New("rack ID cannot be empty")
	case ref.NodeID == "":
		return errors.New("missing node ID")
	}
	return bus.CheckRef(ref)
}

// checkCredentials refuses a node that brings nothing to log in with where the
// operation needs it.
func checkCredentials(n *selected, p purpose, bmc, host *node.EndpointRequest) error {
	kind := node.CredentialKind(n.typ.Family, p == forPower)
	in := bmc
	if kind == node.EndpointHost {
		in = host
	}
	if in == nil && p != forPower && p != forFirmwareUpdate && p != forValidation {
		return fmt.Errorf("missing %s endpoint", kind)
	}
	if p == forPower && n.typ.Family == node.FamilySwitch && (in == nil || strings.TrimSpace(in.Address) == "") {
		return fmt.Errorf("Missing BMC IP address for node %s", n.ref.NodeID) //nolint:staticcheck // published text
	}
	if in != nil && !in.Credentials.Empty() {
		return nil
	}
	switch p {
	case forPower, forFirmwareUpdate, forValidation:
		return fmt.Errorf("Missing %s credentials for node %s", kind, n.ref.NodeID) //nolint:staticcheck // published text
	default:
		return fmt.Errorf("missing %s credentials", kind)
	}
}

// checkAddress refuses what can be neither an IP address nor a host name.
func checkAddress(kind node.EndpointKind, address string) error {
	for _, c := range address {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case strings.ContainsRune(".:-_%[]", c):
		default:
			return fmt.Errorf("malformed %s endpoint ip_address %q", kind, address)
		}
	}
	return nil
}
