// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// fabricRole is a switch's part in the scale-up fabric of its rack.
type fabricRole uint8

const (
	// roleUnknown: the switch did not tell.
	roleUnknown fabricRole = iota
	// roleNone: its cluster is off.
	roleNone
	// roleManager: its cluster is on, so that its apps serve the fabric.
	roleManager
)

// fabricElsewhere finds the switches of a request whose fabric is served by another
// switch of the rack, one of the request or a registered one. Giving the apps of these
// a certificate would switch a second fabric on. A switch that does not tell its state
// in time counts as none and is not left out: so is a rack that has no fabric yet.
func (m *rackManager) fabricElsewhere(ctx context.Context, nodes []selected, domain string) map[node.Ref]bool {
	asked := m.rackSwitches(ctx, nodes)
	refs := make([]node.Ref, len(asked))
	for i, target := range asked {
		refs[i] = node.Ref{RackID: target.GetRackId(), NodeID: target.GetNodeId()}
	}
	limit := m.opts.Timing.FabricRoleLimit
	if d, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(d)/2) // the rest is for the admission
	}
	roles := make([]fabricRole, len(asked))
	eachNode(refs, m.opts.BatchParallelism, func(i int) {
		doc, err := m.askSwitch(ctx, limit, query{op: opFabricStateGet, target: asked[i], domain: domain}).result()
		if err == nil {
			roles[i] = roleOf(doc)
		}
	})
	managed := make(map[string]bool)
	for i, role := range roles {
		managed[refs[i].RackID] = managed[refs[i].RackID] || role == roleManager
	}
	out := make(map[node.Ref]bool)
	for i, role := range roles {
		if role == roleNone && managed[refs[i].RackID] {
			out[refs[i]] = true
		}
	}
	return out
}

// rackSwitches are the usable switches of a request, and the registered ones of their
// racks.
func (m *rackManager) rackSwitches(ctx context.Context, nodes []selected) []*rackbusv1.NodeTarget {
	var out []*rackbusv1.NodeTarget
	known := make(map[node.Ref]bool)
	var racks []string
	targets := m.newTargets()
	for i := range nodes {
		ref := nodes[i].ref
		target, err := m.switchTarget(targets, &nodes[i], bmcOptional)
		if err != nil || known[ref] {
			continue // the admission tells
		}
		known[ref] = true
		out = append(out, target)
		if !slices.Contains(racks, ref.RackID) {
			racks = append(racks, ref.RackID)
		}
	}
	for _, rack := range racks {
		registered, err := m.opts.Conn.Nodes(ctx, rack)
		if err != nil {
			m.log.WarnContext(ctx, "registered switches not looked at", "rack", rack, "err", err)
			continue
		}
		for _, record := range registered {
			target := record.GetTarget()
			typ, ok := node.ByID(target.GetNodeType())
			ref := node.Ref{RackID: target.GetRackId(), NodeID: target.GetNodeId()}
			if ok && typ.Family == node.FamilySwitch && target.GetHost() != nil && !known[ref] {
				known[ref] = true
				out = append(out, target)
			}
		}
	}
	return out
}

// roleOf reads a switch's document on its cluster.
func roleOf(document string) fabricRole {
	var cluster struct {
		State string `json:"state"`
	}
	if json.Unmarshal([]byte(document), &cluster) != nil {
		return roleUnknown
	}
	switch cluster.State {
	case "enabled", "start":
		return roleManager
	case "disabled":
		return roleNone
	default:
		return roleUnknown
	}
}
