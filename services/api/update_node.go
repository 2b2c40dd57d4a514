// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

// UpdateNode replaces what the request brings and keeps the rest, the sealed
// credentials included.
func (m *rackManager) UpdateNode(ctx context.Context, req *rackmanager.UpdateNodeRequest) (*rackmanager.UpdateNodeResponse, error) {
	ref := node.Ref{RackID: req.GetRackId(), NodeID: req.GetNodeId()}
	var refusal error
	err := m.ride(ctx, func(ctx context.Context) (err error) {
		for range inventoryTries {
			if refusal, err = m.updateNode(ctx, ref, req.GetUpdateInfo()); !errors.Is(err, bus.ErrConflict) {
				return err
			}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if refusal != nil {
		return &rackmanager.UpdateNodeResponse{Response: failure("%v", refusal)}, nil
	}
	return &rackmanager.UpdateNodeResponse{Response: success("node %s updated", ref.NodeID)}, nil
}

// updateNode returns why the node is not updated, nil when it is.
func (m *rackManager) updateNode(ctx context.Context, ref node.Ref, info *rackmanager.NodeUpdateInfo) (refusal, err error) {
	_, _, text, err := m.findRack(ctx, ref.RackID)
	if err != nil {
		return nil, err
	}
	if text != "" {
		return errors.New(text), nil
	}
	if ref.NodeID == "" {
		return fmt.Errorf("node %s not found in rack %s", ref.NodeID, ref.RackID), nil
	}
	n, rev, err := m.opts.Conn.Node(ctx, ref)
	if errors.Is(err, bus.ErrNotFound) {
		return fmt.Errorf("node %s not found in rack %s", ref.NodeID, ref.RackID), nil
	}
	if err != nil {
		return nil, err
	}
	if info.GetBmcEndpoint() == nil && info.GetHostEndpoint() == nil {
		return errors.New("nothing to update: neither bmc_endpoint nor host_endpoint is set"), nil
	}
	typ, ok := node.ByID(n.GetTarget().GetNodeType())
	if !ok {
		return fmt.Errorf("node type %q is not known to this version", n.GetTarget().GetNodeType()), nil
	}
	next := proto.CloneOf(n)
	targets := m.newTargets()
	t := next.GetTarget()
	if t.Bmc, refusal = m.mergeEndpoint(targets, typ, ref, node.EndpointBMC, t.GetBmc(), info.GetBmcEndpoint()); refusal != nil {
		return refusal, nil
	}
	if t.Host, refusal = m.mergeEndpoint(targets, typ, ref, node.EndpointHost, t.GetHost(), info.GetHostEndpoint()); refusal != nil {
		return refusal, nil
	}
	next.UpdatedAt = timestamppb.Now()
	return nil, m.opts.Conn.ReplaceNode(ctx, next, rev)
}

// mergeEndpoint lays what the request brings over the stored endpoint and
// validates the outcome.
func (m *rackManager) mergeEndpoint(targets *targetBuilder, typ node.Type, ref node.Ref, kind node.EndpointKind,
	stored *rackbusv1.DeviceEndpoint, given *rackmanager.Endpoint,
) (*rackbusv1.DeviceEndpoint, error) {
	if given == nil {
		return stored, nil
	}
	in := endpointRequest(given)
	if in.Address == "" {
		in.Address = stored.GetAddress()
	}
	if in.MAC == "" {
		in.MAC = stored.GetMac()
	}
	if in.Port == 0 {
		in.Port = stored.GetPort()
	}
	if given.GetInterface() == nil || given.GetInterface().HostName == nil {
		in.HostName = stored.GetHostName() // unset keeps it, empty clears it
	}
	n := &selected{ref: ref, typ: typ}
	out, err := targets.endpoint(n, kind, in, forRegistration)
	if err != nil {
		return nil, err
	}
	if out.GetCredentials() == nil {
		out.Credentials = stored.GetCredentials()
	}
	return out, nil
}
