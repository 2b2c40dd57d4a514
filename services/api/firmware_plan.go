// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/rackbus/rackbus/pkg/firmware/catalog"
	"github.com/rackbus/rackbus/pkg/firmware/flashplan"
	"github.com/rackbus/rackbus/pkg/firmware/manifest"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// planPrefix begins the id of every plan.
const planPrefix = "fwplan-"

// planSource is the manifest that a plan is made from.
type planSource struct {
	object *catalog.Object
	// config is the manifest of a plan without a stored object.
	config []byte
}

// digest is that of the manifest.
func (p *planSource) digest() []byte {
	if p.object != nil {
		return p.object.GetConfigSha256()
	}
	sum := sha256.Sum256(p.config)
	return sum[:]
}

// resolve finds out what the manifest means for the nodes.
func (p *planSource) resolve(ctx context.Context, s *Server, a *apply) error {
	if p.object != nil {
		return s.resolveStored(ctx, a, p.object)
	}
	parsed, err := manifest.Parse(p.config)
	if err != nil {
		return err
	}
	return s.resolveInline(a, parsed)
}

// freeze writes down what an apply means. Nodes stand in the order of their ids, so
// that the order in which a caller names them does not matter.
func (s *Server) freeze(a *apply, source *planSource, hardwareType string) (*rackbusv1.FirmwarePlan, error) {
	p := &rackbusv1.FirmwarePlan{
		V: 1, ObjectId: a.objectID, Stored: source.object != nil, RackId: a.rackID, HardwareType: hardwareType,
		FirmwareType: a.firmwareType, ForceUpdate: a.force, ConfigSha256: source.digest(),
	}
	for i := range a.nodes {
		p.Nodes = append(p.Nodes, s.planNode(a, &a.nodes[i]))
	}
	slices.SortFunc(p.Nodes, func(x, y *rackbusv1.FirmwarePlanNode) int {
		return cmp.Or(cmp.Compare(x.GetRackId(), y.GetRackId()), cmp.Compare(x.GetNodeId(), y.GetNodeId()))
	})
	for _, t := range node.Types() {
		if names, ok := a.selection.Filters[t]; ok {
			p.Filters = append(p.Filters, &rackbusv1.FirmwarePlanFilter{NodeType: t.ID, Components: names})
		}
	}
	p.Artifacts = planArtifacts(a)
	id, err := snapshotID(p)
	if err != nil {
		return nil, err
	}
	p.SnapshotId = id
	return p, nil
}

// planNode is one node of a plan, with why it takes no part, if it does not.
func (s *Server) planNode(a *apply, n *selected) *rackbusv1.FirmwarePlanNode {
	out := &rackbusv1.FirmwarePlanNode{
		RackId: n.ref.RackID, NodeId: n.ref.NodeID, NodeType: n.typ.ID, InventoryProfile: n.profile.Name,
		BmcAddress: n.info.GetBmcEndpoint().GetInterface().GetIpAddress(), BmcPort: n.info.GetBmcEndpoint().GetPort(),
		BmcMac:      n.info.GetBmcEndpoint().GetInterface().GetMacAddress(),
		HostAddress: n.info.GetHostEndpoint().GetInterface().GetIpAddress(),
	}
	if refusal := s.refuseNode(a, n); refusal != nil {
		out.Refusal = refusal.Message
		return out
	}
	for _, t := range a.targets[n.typ] {
		out.Targets = append(out.Targets, &rackbusv1.FirmwarePlanTarget{
			Key: t.Key, Component: t.Component, SourceComponent: t.Source, Path: t.Path, Version: t.Version,
			ExpectedVersion: t.ExpectedVersion,
		})
	}
	return out
}

// planArtifacts are the files that an apply uses, by path. Of stored ones, the
// digests that were fetched are part of the plan as far as they are known.
func planArtifacts(a *apply) []*rackbusv1.FirmwarePlanArtifact {
	byPath := make(map[string]*rackbusv1.FirmwarePlanArtifact)
	for _, f := range a.artifacts {
		byPath[f.Path] = &rackbusv1.FirmwarePlanArtifact{
			Path: f.Path, Location: manifest.Redact(f.Location), LocationType: f.LocationType, WantSha256: f.WantSHA256,
		}
	}
	for t, targets := range a.targets {
		for _, target := range targets {
			if f := a.files[target.Path]; f != nil && flashplan.Supported(t.ID) {
				byPath[f.GetPath()] = &rackbusv1.FirmwarePlanArtifact{
					Path: f.GetPath(), Location: f.GetLocation(), LocationType: f.GetLocationType(), WantSha256: f.GetWantSha256(),
				}
			}
		}
	}
	var out []*rackbusv1.FirmwarePlanArtifact
	for _, path := range slices.Sorted(maps.Keys(byPath)) {
		out = append(out, byPath[path])
	}
	return out
}

// snapshotID is the id of a plan: the digest of its content.
func snapshotID(p *rackbusv1.FirmwarePlan) (string, error) {
	content := proto.CloneOf(p)
	content.SnapshotId, content.CreatedAt = "", nil
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(content)
	if err != nil {
		return "", &Error{CodeInternal, "the plan could not be encoded", err}
	}
	sum := sha256.Sum256(data)
	return planPrefix + hex.EncodeToString(sum[:20]), nil
}

// keepPlan stores a plan. An equal one may be there already.
func (s *Server) keepPlan(ctx context.Context, p *rackbusv1.FirmwarePlan, config []byte) error {
	body, err := proto.Marshal(&rackbusv1.StoredFirmwarePlan{Plan: p, ConfigJson: config})
	if err != nil {
		return &Error{CodeInternal, "the plan could not be encoded", err}
	}
	err = s.ride(ctx, func(ctx context.Context) error {
		return s.catalog.CreatePlan(ctx, p.GetSnapshotId(), body, s.opts.PlanLife)
	})
	if errors.Is(err, catalog.ErrExists) {
		return nil
	}
	return err
}

// keptPlan reads a plan back.
func (s *Server) keptPlan(ctx context.Context, id string) (*rackbusv1.FirmwarePlan, []byte, error) {
	if id == "" {
		return nil, nil, errorf(CodeInvalidArgument, "snapshot_id is required")
	}
	kept, err := inCatalog(ctx, s, func(ctx context.Context) (catalog.Plan, error) { return s.catalog.FindPlan(ctx, id) })
	if err != nil {
		return nil, nil, err
	}
	stored := &rackbusv1.StoredFirmwarePlan{}
	if err := proto.Unmarshal(kept.Body, stored); err != nil {
		return nil, nil, fmt.Errorf("decode firmware plan %s: %w", id, err)
	}
	stored.GetPlan().CreatedAt = timestamppb.New(kept.CreatedAt)
	return stored.GetPlan(), stored.GetConfigJson(), nil
}

// selectionOfPlan are the filters of a plan.
func selectionOfPlan(p *rackbusv1.FirmwarePlan) (manifest.Selection, error) {
	var s manifest.Selection
	for _, f := range p.GetFilters() {
		t, ok := node.ByID(f.GetNodeType())
		if !ok {
			return s, errorf(CodeFailedPrecondition, "node type %q of the plan is not known to this version", f.GetNodeType())
		}
		if s.Filters == nil {
			s.Filters = make(map[node.Type][]string)
		}
		s.Filters[t] = f.GetComponents()
	}
	return s, nil
}

// samePlan refuses a plan that would not be what was checked.
func samePlan(kept, now *rackbusv1.FirmwarePlan) error {
	if kept.GetSnapshotId() == now.GetSnapshotId() {
		return nil
	}
	what := "what the manifest means for the nodes"
	switch {
	case !bytes.Equal(kept.GetConfigSha256(), now.GetConfigSha256()):
		what = "the manifest of firmware object " + kept.GetObjectId()
	case !sameNodes(kept, now):
		what = "the set of nodes"
	}
	return errorf(CodeFailedPrecondition, "plan %s is not applied: %s is not the same as when it was checked; check a new plan",
		kept.GetSnapshotId(), what)
}

// sameNodes reports whether two plans are for the same nodes in the same places.
func sameNodes(a, b *rackbusv1.FirmwarePlan) bool {
	return slices.EqualFunc(a.GetNodes(), b.GetNodes(), func(x, y *rackbusv1.FirmwarePlanNode) bool {
		x, y = proto.CloneOf(x), proto.CloneOf(y)
		for _, n := range []*rackbusv1.FirmwarePlanNode{x, y} {
			n.Targets, n.Refusal = nil, ""
		}
		return proto.Equal(x, y)
	})
}
