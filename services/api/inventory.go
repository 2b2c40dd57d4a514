// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

// inventoryTries bounds the races of one change with other replicas.
const inventoryTries = 20

// CreateNodes registers nodes; each that fails has a line in the message.
func (m *rackManager) CreateNodes(ctx context.Context, req *rackmanager.CreateNodesRequest) (*rackmanager.CreateNodesResponse, error) {
	nodes, err := selectNodes(req.GetNodes())
	if err != nil {
		return nil, err
	}
	if len(nodes) == 0 {
		return &rackmanager.CreateNodesResponse{Response: failure("no nodes to create"), Stats: &rackmanager.NodeOperationStats{}}, nil
	}
	faults := make([]error, len(nodes))
	racks := make(map[string][]int)
	records := make([]*rackbusv1.NodeRecord, len(nodes))
	targets := m.newTargets()
	for i := range nodes {
		if records[i], faults[i] = m.register(targets, &nodes[i]); faults[i] == nil {
			rack := nodes[i].ref.RackID
			racks[rack] = append(racks[rack], i)
		}
	}
	for _, rack := range slices.Sorted(maps.Keys(racks)) {
		if err := m.addToRack(ctx, rack, racks[rack], nodes, records, faults); err != nil {
			return nil, err
		}
	}
	var lines []string
	failed := 0
	for i := range nodes {
		if faults[i] != nil {
			failed++
			lines = append(lines, fmt.Sprintf("%s: %v", nodes[i].ref.NodeID, faults[i]))
		}
	}
	lines = append(lines, fmt.Sprintf("%d added, %d failed", len(nodes)-failed, failed))
	return &rackmanager.CreateNodesResponse{
		Response: &rackmanager.OperationResponse{Status: statusOf(failed == 0), Message: strings.Join(lines, "\n")},
		Stats:    stats(len(nodes), failed),
	}, nil
}

// register makes the record of a node. Errors are for the caller.
func (m *rackManager) register(targets *targetBuilder, n *selected) (*rackbusv1.NodeRecord, error) {
	if err := n.profile.Check(m.knownProfile); err != nil {
		return nil, err
	}
	t, err := targets.build(n, forRegistration)
	if err != nil {
		return nil, err
	}
	if err := checkIdentity(n.ref); err != nil {
		return nil, err
	}
	if t.GetBmc().GetCredentials() == nil {
		return nil, fmt.Errorf("create_%s: missing credentials for %s (provide username/password)", n.typ.Family, n.ref.NodeID)
	}
	now := timestamppb.Now()
	return &rackbusv1.NodeRecord{
		V: 1, Target: t, CreatedAt: now, UpdatedAt: now, DescriptorAttributes: attributesOf(n),
	}, nil
}

func (s *Server) knownProfile(name string) bool { return slices.Contains(s.opts.Profiles, name) }

// attributesOf returns the canonical descriptor of a registered node.
func attributesOf(n *selected) map[string]string {
	attributes := n.typ.Descriptor()
	if n.profile.Set {
		attributes[node.AttrInventoryProfile] = n.profile.Name
	}
	return attributes
}

// addToRack registers nodes of one rack in as few steps as possible. Faults of
// single nodes go into faults; the error is that of the broker.
func (m *rackManager) addToRack(ctx context.Context, rackID string, indexes []int, nodes []selected,
	records []*rackbusv1.NodeRecord, faults []error,
) error {
	left := indexes
	for len(left) > 0 {
		part := left[:min(len(left), bus.MaxAddNodes)]
		left = left[len(part):]
		err := m.ride(ctx, func(ctx context.Context) error {
			return m.addPart(ctx, rackID, part, nodes, records, faults)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (m *rackManager) addPart(ctx context.Context, rackID string, part []int, nodes []selected,
	records []*rackbusv1.NodeRecord, faults []error,
) error {
	for try := 0; ; try++ {
		rack, rev, err := m.opts.Conn.Rack(ctx, rackID)
		known := err == nil
		if err != nil && !errors.Is(err, bus.ErrNotFound) {
			return err
		}
		present := make(map[string]bool)
		if known {
			stored, err := m.opts.Conn.Nodes(ctx, rackID)
			if err != nil {
				return err
			}
			for _, n := range stored {
				present[n.GetTarget().GetNodeId()] = true
			}
		} else {
			rack = &rackbusv1.RackRecord{V: 1, RackId: rackID, RackType: string(nodes[part[0]].typ.Rack), CreatedAt: timestamppb.Now()}
		}
		var add []*rackbusv1.NodeRecord
		for _, i := range part {
			faults[i] = addFault(rack, present, &nodes[i])
			if faults[i] == nil {
				present[nodes[i].ref.NodeID] = true
				add = append(add, records[i])
			}
		}
		if len(add) == 0 {
			return nil
		}
		rack.PowerOnOrder = nil // it named every node of the rack
		err = m.opts.Conn.AddNodes(ctx, rack, rev, add...)
		if !errors.Is(err, bus.ErrConflict) || try >= inventoryTries {
			return err
		}
	}
}

// addFault is why a node cannot be added to a rack, nil when it can.
func addFault(rack *rackbusv1.RackRecord, present map[string]bool, n *selected) error {
	switch {
	case rack.GetRackType() != string(n.typ.Rack):
		return fmt.Errorf("rack %s already exists as type %s but was requested as %s", rack.GetRackId(), rack.GetRackType(), n.typ.Rack)
	case present[n.ref.NodeID]:
		return fmt.Errorf("node %s already exists in rack %s", n.ref.NodeID, rack.GetRackId())
	}
	return nil
}

// ListNodeInventory returns every registered node, without credentials.
func (m *rackManager) ListNodeInventory(ctx context.Context, _ *rackmanager.ListNodeInventoryRequest) (*rackmanager.ListNodeInventoryResponse, error) {
	var nodes []*rackbusv1.NodeRecord
	err := m.ride(ctx, func(ctx context.Context) (err error) {
		nodes, err = m.opts.Conn.Nodes(ctx, "")
		return err
	})
	if err != nil {
		return nil, err
	}
	resp := &rackmanager.ListNodeInventoryResponse{Nodes: make([]*rackmanager.NodeInventoryInfo, 0, len(nodes))}
	for _, n := range nodes {
		resp.Nodes = append(resp.Nodes, inventoryInfo(n))
	}
	return resp, nil
}

func inventoryInfo(n *rackbusv1.NodeRecord) *rackmanager.NodeInventoryInfo {
	t := n.GetTarget()
	typ, _ := node.ByID(t.GetNodeType())
	info := &rackmanager.NodeInventoryInfo{
		NodeId: t.GetNodeId(), RackId: t.GetRackId(), Type: rackmanager.NodeType(typ.Number),
		IpAddress: t.GetBmc().GetAddress(), Port: t.GetBmc().GetPort(), MacAddress: t.GetBmc().GetMac(),
		NodeDescriptor: &rackmanager.NodeDescriptor{Attributes: n.GetDescriptorAttributes()},
	}
	if info.Port == 0 {
		info.Port = uint32(node.PortHTTPS)
	}
	if h := t.GetHost(); h != nil {
		info.HostIpAddresses = []string{h.GetAddress()}
		if h.GetMac() != "" {
			info.HostMacAddresses = []string{h.GetMac()}
		}
	}
	return info
}

// ListRacks returns the ids of all racks, also of those without nodes.
func (m *rackManager) ListRacks(ctx context.Context, _ *rackmanager.ListRacksRequest) (*rackmanager.ListRacksResponse, error) {
	var racks []*rackbusv1.RackRecord
	err := m.ride(ctx, func(ctx context.Context) (err error) {
		racks, err = m.opts.Conn.Racks(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	resp := &rackmanager.ListRacksResponse{RackIds: make([]string, 0, len(racks))}
	for _, r := range racks {
		resp.RackIds = append(resp.RackIds, r.GetRackId())
	}
	return resp, nil
}

// DeleteNode removes a node that neither a power operation nor a job concerns.
func (m *rackManager) DeleteNode(ctx context.Context, req *rackmanager.DeleteNodeRequest) (*rackmanager.DeleteNodeResponse, error) {
	ref := node.Ref{RackID: req.GetRackId(), NodeID: req.GetNodeId()}
	var message string
	// asked says that the broker may have removed the node although its answer was
	// lost. A node that is gone afterwards was removed by this call.
	asked := false
	err := m.ride(ctx, func(ctx context.Context) (err error) {
		for range inventoryTries {
			if message, err = m.deleteNode(ctx, ref, &asked); !errors.Is(err, bus.ErrConflict) {
				return err
			}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if message != "" {
		return &rackmanager.DeleteNodeResponse{Response: failure("%s", message)}, nil
	}
	return &rackmanager.DeleteNodeResponse{Response: success("node %s removed", ref.NodeID)}, nil
}

// deleteNode returns why the node is not removed, "" when it is. It sets asked when
// it cannot know.
func (m *rackManager) deleteNode(ctx context.Context, ref node.Ref, asked *bool) (string, error) {
	rack, rackRev, refusal, err := m.findRack(ctx, ref.RackID)
	if err != nil || refusal != "" {
		return refusal, err
	}
	held, err := m.rackPowerHeld(ctx, ref.RackID)
	if err != nil {
		return "", err
	}
	if held {
		return "rack power operation in progress", nil
	}
	_, rev, err := m.opts.Conn.Node(ctx, ref)
	if *asked && errors.Is(err, bus.ErrNotFound) {
		return "", nil
	}
	if ref.NodeID == "" || errors.Is(err, bus.ErrNotFound) {
		return fmt.Sprintf("node %s not found in rack %s", ref.NodeID, ref.RackID), nil
	}
	if err != nil {
		return "", err
	}
	busy, err := m.busy(ctx, ref)
	if err != nil || busy != "" {
		return busy, err
	}
	if len(rack.GetPowerOnOrder()) > 0 {
		rack.PowerOnOrder = nil
		if err := m.opts.Conn.ReplaceRack(ctx, rack, rackRev); err != nil {
			return "", err
		}
	}
	err = m.opts.Conn.RemoveNode(ctx, rev)
	*asked = *asked || errors.Is(err, bus.ErrUnavailable)
	if errors.Is(err, bus.ErrNotFound) {
		return "", fmt.Errorf("remove node %s: %w", ref, bus.ErrConflict) // it has changed: look again
	}
	return "", err
}

// findRack reads a rack; refusal says that it is unknown.
func (m *rackManager) findRack(ctx context.Context, rackID string) (rack *rackbusv1.RackRecord, rev bus.Revision, refusal string, err error) {
	if rackID == "" {
		return nil, 0, "rack not found: ", nil
	}
	rack, rev, err = m.opts.Conn.Rack(ctx, rackID)
	if errors.Is(err, bus.ErrNotFound) {
		return nil, 0, "rack not found: " + rackID, nil
	}
	return rack, rev, "", err
}

// findNode reads a registered node; refusal says what is unknown.
func (m *rackManager) findNode(ctx context.Context, ref node.Ref) (target *rackbusv1.NodeTarget, refusal string, err error) {
	err = m.ride(ctx, func(ctx context.Context) error {
		var n *rackbusv1.NodeRecord
		var err error
		if _, _, refusal, err = m.findRack(ctx, ref.RackID); err != nil || refusal != "" {
			return err
		}
		if ref.NodeID == "" {
			refusal = "node not found: "
			return nil
		}
		n, _, err = m.opts.Conn.Node(ctx, ref)
		if errors.Is(err, bus.ErrNotFound) {
			refusal = "node not found: " + ref.NodeID
			return nil
		}
		target = n.GetTarget()
		return err
	})
	return target, refusal, err
}

// rackPowerHeld reports whether a power operation holds the rack.
func (m *rackManager) rackPowerHeld(ctx context.Context, rackID string) (bool, error) {
	guard, err := m.opts.Conn.RackPower(ctx, rackID)
	if errors.Is(err, bus.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	d := guard.GetDeadline()
	return d == nil || time.Now().Before(d.AsTime()), nil
}
