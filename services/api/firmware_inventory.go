// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"

	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

// GetNodeFirmwareInventory reads the firmware of one registered node.
func (m *rackManager) GetNodeFirmwareInventory(ctx context.Context, req *rackmanager.GetNodeFirmwareInventoryRequest,
) (*rackmanager.GetNodeFirmwareInventoryResponse, error) {
	target, refusal, err := m.findNode(ctx, node.Ref{RackID: req.GetRackId(), NodeID: req.GetNodeId()})
	if err != nil {
		return nil, err
	}
	if refusal != "" {
		tellReason(ctx, refusal)
		return &rackmanager.GetNodeFirmwareInventoryResponse{Status: statusOf(false)}, nil
	}
	out := m.ask(ctx, query{op: opFirmwareInventory, target: target, limit: m.opts.Timing.InventoryLimit})
	if out.err != nil {
		tellReason(ctx, out.err.Error())
		return &rackmanager.GetNodeFirmwareInventoryResponse{Status: statusOf(false)}, nil
	}
	return &rackmanager.GetNodeFirmwareInventoryResponse{Status: statusOf(true), FirmwareList: firmwareList(out.reply)}, nil
}

// GetRackFirmwareInventory reads all registered nodes of a rack; those that could
// not be read are left out.
func (m *rackManager) GetRackFirmwareInventory(ctx context.Context, req *rackmanager.GetRackFirmwareInventoryRequest,
) (*rackmanager.GetRackFirmwareInventoryResponse, error) {
	targets, refusal, err := m.rackTargets(ctx, req.GetRackId(), node.Type{})
	if err != nil {
		return nil, err
	}
	if refusal != "" {
		tellReason(ctx, refusal)
		return &rackmanager.GetRackFirmwareInventoryResponse{Status: statusOf(false)}, nil
	}
	refs := make([]node.Ref, len(targets))
	for i, t := range targets {
		refs[i] = node.Ref{RackID: t.GetRackId(), NodeID: t.GetNodeId()}
	}
	outs := make([]outcome, len(targets))
	eachNode(refs, m.opts.BatchParallelism, func(i int) {
		outs[i] = m.ask(ctx, query{op: opFirmwareInventory, target: targets[i], limit: m.opts.Timing.InventoryLimit})
	})
	resp := &rackmanager.GetRackFirmwareInventoryResponse{Status: statusOf(true)}
	for i, out := range outs {
		if out.err != nil {
			resp.Status = statusOf(false)
			continue
		}
		resp.Nodes = append(resp.Nodes, &rackmanager.NodeFirmwareInventory{
			NodeId: refs[i].NodeID, FirmwareList: firmwareList(out.reply),
		})
	}
	return resp, nil
}

// BatchGetFirmwareInventory reads nodes the caller describes, in request order.
func (m *rackManager) BatchGetFirmwareInventory(ctx context.Context, req *rackmanager.BatchGetFirmwareInventoryRequest,
) (*rackmanager.BatchGetFirmwareInventoryResponse, error) {
	nodes, err := selectNodes(req.GetNodes())
	if err != nil {
		return nil, err
	}
	if len(nodes) == 0 {
		return &rackmanager.BatchGetFirmwareInventoryResponse{Response: batchFailure(textNoNodes)}, nil
	}
	replies, results, err := m.askAll(ctx, nodes, forFirmwareInventory, opFirmwareInventory, m.inventoryLimit)
	if err != nil {
		return nil, err
	}
	resp := &rackmanager.BatchGetFirmwareInventoryResponse{Response: batchResponse(results,
		"Firmware inventory queried for %d/%d nodes",
		"Firmware inventory query completed with %d successes and %d failures out of %d nodes")}
	for i, reply := range replies {
		if reply != nil {
			resp.Nodes = append(resp.Nodes, &rackmanager.NodeFirmwareInventory{
				NodeId: nodes[i].ref.NodeID, FirmwareList: firmwareList(reply),
			})
		}
	}
	return resp, nil
}

func firmwareList(reply *rackbusv1.NodeReply) []*rackmanager.FirmwareInventoryInfo {
	out := make([]*rackmanager.FirmwareInventoryInfo, len(reply.GetFirmware()))
	for i, f := range reply.GetFirmware() {
		out[i] = &rackmanager.FirmwareInventoryInfo{
			Name: f.GetName(), Version: f.GetVersion(), Updateable: f.GetUpdateable(),
			Target: f.GetTarget(), Health: f.GetHealth(), FirmwareType: f.GetFirmwareType(),
		}
	}
	return out
}
