// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

const textDeviceInfo = "Device info retrieved successfully"

// hasDeviceInfo reports whether nodes of the type know where they sit.
func hasDeviceInfo(t node.Type) bool { return t.Family != node.FamilyPowerShelf }

// GetNodeDeviceInfo reads where one registered node sits.
func (m *rackManager) GetNodeDeviceInfo(ctx context.Context, req *rackmanager.GetNodeDeviceInfoRequest) (*rackmanager.GetNodeDeviceInfoResponse, error) {
	refuse := func(message string) (*rackmanager.GetNodeDeviceInfoResponse, error) {
		return &rackmanager.GetNodeDeviceInfoResponse{Status: statusOf(false), Message: message}, nil
	}
	if req.GetRackId() == "" || req.GetNodeId() == "" {
		return refuse("rack_id and node_id are required")
	}
	target, refusal, err := m.findNode(ctx, node.Ref{RackID: req.GetRackId(), NodeID: req.GetNodeId()})
	if err != nil {
		return nil, err
	}
	if refusal != "" {
		return refuse(refusal)
	}
	info, err := m.deviceInfo(ctx, target)
	switch {
	case err != nil:
		return refuse(err.Error())
	case info == nil:
		return &rackmanager.GetNodeDeviceInfoResponse{
			Status: statusOf(true), Message: "Device info is not available for this node type",
		}, nil
	}
	return &rackmanager.GetNodeDeviceInfoResponse{Status: statusOf(true), Message: textDeviceInfo, DeviceInfo: info}, nil
}

// deviceInfo asks one node; nil without error means that its type has none.
func (m *rackManager) deviceInfo(ctx context.Context, target *rackbusv1.NodeTarget) (*rackmanager.NodeDeviceInfo, error) {
	typ, ok := node.ByID(target.GetNodeType())
	if ok && !hasDeviceInfo(typ) {
		return nil, nil
	}
	out := m.ask(ctx, query{op: opDeviceInfo, target: target, limit: m.deviceInfoLimit(typ.Family)})
	if out.err != nil {
		return nil, out.err
	}
	d := out.reply.GetDeviceInfo()
	if d == nil {
		return nil, nil
	}
	return &rackmanager.NodeDeviceInfo{
		NodeId: target.GetNodeId(), ChassisSn: d.ChassisSn, SlotNumber: d.SlotNumber, TrayIndex: d.TrayIndex,
	}, nil
}

// ListNodeDeviceInfoByNodeType reads all registered nodes of one type in a rack.
func (m *rackManager) ListNodeDeviceInfoByNodeType(ctx context.Context, req *rackmanager.ListNodeDeviceInfoByNodeTypeRequest,
) (*rackmanager.ListNodeDeviceInfoByNodeTypeResponse, error) {
	r, err := resolve(req.GetNodeType(), req.GetNodeDescriptor())
	if err != nil {
		return nil, err
	}
	refuse := func(message string) (*rackmanager.ListNodeDeviceInfoByNodeTypeResponse, error) {
		return &rackmanager.ListNodeDeviceInfoByNodeTypeResponse{
			Status: statusOf(false), Message: message, Stats: &rackmanager.NodeOperationStats{},
		}, nil
	}
	if req.GetRackId() == "" {
		return refuse("rack_id is required")
	}
	targets, refusal, err := m.rackTargets(ctx, req.GetRackId(), r.Type)
	if err != nil {
		return nil, err
	}
	if refusal != "" {
		return refuse(refusal)
	}
	refs := make([]node.Ref, len(targets))
	for i, t := range targets {
		refs[i] = node.Ref{RackID: t.GetRackId(), NodeID: t.GetNodeId()}
	}
	all := m.deviceInfos(refs, func(i int) (*rackmanager.NodeDeviceInfo, error) { return m.deviceInfo(ctx, targets[i]) })
	return &rackmanager.ListNodeDeviceInfoByNodeTypeResponse{
		Status: statusOf(all.failed == 0), Message: all.message, NodeDeviceDetails: all.details, Stats: stats(len(refs), all.failed),
	}, nil
}

// BatchGetNodeDeviceInfo reads nodes the caller describes, in request order.
func (m *rackManager) BatchGetNodeDeviceInfo(ctx context.Context, req *rackmanager.BatchGetNodeDeviceInfoRequest,
) (*rackmanager.BatchGetNodeDeviceInfoResponse, error) {
	nodes, err := selectNodes(req.GetNodes())
	if err != nil {
		return nil, err
	}
	if len(nodes) == 0 {
		return &rackmanager.BatchGetNodeDeviceInfoResponse{
			Status: statusOf(false), Message: textNoNodes, Stats: &rackmanager.NodeOperationStats{},
		}, nil
	}
	if err := m.awaitBus(ctx); err != nil {
		return nil, err
	}
	targets := m.newTargets()
	all := m.deviceInfos(refsOf(nodes), func(i int) (*rackmanager.NodeDeviceInfo, error) {
		if !hasDeviceInfo(nodes[i].typ) {
			return nil, nil
		}
		target, err := targets.build(&nodes[i], forDeviceInfo)
		if err != nil {
			return nil, err
		}
		return m.deviceInfo(ctx, target)
	})
	return &rackmanager.BatchGetNodeDeviceInfoResponse{
		Status: statusOf(all.failed == 0), Message: all.message, NodeDeviceDetails: all.details, Stats: stats(len(nodes), all.failed),
	}, nil
}

// deviceInfoResult is the outcome of reading several nodes.
type deviceInfoResult struct {
	details []*rackmanager.NodeDeviceInfo
	failed  int
	message string
}

// deviceInfos reads nodes in parallel. One without device info is no failure.
func (m *rackManager) deviceInfos(refs []node.Ref, read func(i int) (*rackmanager.NodeDeviceInfo, error)) deviceInfoResult {
	infos := make([]*rackmanager.NodeDeviceInfo, len(refs))
	errs := make([]error, len(refs))
	eachNode(refs, m.opts.BatchParallelism, func(i int) { infos[i], errs[i] = read(i) })
	all := deviceInfoResult{message: textDeviceInfo}
	var lines []string
	for i := range refs {
		switch {
		case errs[i] != nil:
			all.failed++
			lines = append(lines, fmt.Sprintf("node_id=%s: %v", refs[i].NodeID, errs[i]))
		case infos[i] != nil:
			all.details = append(all.details, infos[i])
		}
	}
	if all.failed > 0 {
		all.message = "Completed with errors: " + strings.Join(lines, "; ")
	}
	return all
}

// rackTargets returns the registered nodes of a rack, those of one type unless
// the type is zero, in the order of their ids.
func (m *rackManager) rackTargets(ctx context.Context, rackID string, typ node.Type) (targets []*rackbusv1.NodeTarget, refusal string, err error) {
	var records []*rackbusv1.NodeRecord
	err = m.ride(ctx, func(ctx context.Context) error {
		var err error
		if _, _, refusal, err = m.findRack(ctx, rackID); err != nil || refusal != "" {
			return err
		}
		records, err = m.opts.Conn.Nodes(ctx, rackID)
		return err
	})
	if err != nil || refusal != "" {
		return nil, refusal, err
	}
	for _, n := range records {
		if typ == (node.Type{}) || n.GetTarget().GetNodeType() == typ.ID {
			targets = append(targets, n.GetTarget())
		}
	}
	slices.SortFunc(targets, func(a, b *rackbusv1.NodeTarget) int { return strings.Compare(a.GetNodeId(), b.GetNodeId()) })
	return targets, "", nil
}
