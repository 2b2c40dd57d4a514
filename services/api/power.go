// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"fmt"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

// checkOperation refuses what is no power operation.
func checkOperation(op rackmanager.PowerOperation) error {
	_, known := rackmanager.PowerOperation_name[int32(op)]
	if !known || op == rackmanager.PowerOperation_POWER_OPERATION_UNSPECIFIED {
		return errorf(CodeInvalidArgument, "invalid operation: %d", int32(op))
	}
	return nil
}

// SetPowerState changes the power of a registered node. Its answer has no room
// for a reason; that goes into the log and the trailer.
func (m *rackManager) SetPowerState(ctx context.Context, req *rackmanager.SetPowerStateRequest) (*rackmanager.SetPowerStateResponse, error) {
	if err := checkOperation(req.GetOperation()); err != nil {
		return nil, err
	}
	reason, err := m.setRegistered(ctx, node.Ref{RackID: req.GetRackId(), NodeID: req.GetNodeId()}, req.GetOperation())
	if err != nil {
		return nil, err
	}
	if reason != nil {
		m.log.InfoContext(ctx, "power change refused", "rack", req.GetRackId(), "node", req.GetNodeId(),
			"op", req.GetOperation().String(), "err", reason)
		tellReason(ctx, reason.Error())
	}
	return &rackmanager.SetPowerStateResponse{Status: statusOf(reason == nil)}, nil
}

// setRegistered holds the rack's power guard while it changes the node. reason is
// why the change was not made; err is a fault of the bus.
func (m *rackManager) setRegistered(ctx context.Context, ref node.Ref, op rackmanager.PowerOperation) (reason, err error) {
	var refusal string
	err = m.ride(ctx, func(ctx context.Context) (err error) {
		_, _, refusal, err = m.findRack(ctx, ref.RackID)
		return err
	})
	if err != nil {
		return nil, err
	}
	if refusal != "" {
		return errors.New(refusal), nil
	}
	hold := m.newHold(ctx, op.String(), m.opts.Timing.PowerLimit)
	guard, err := hold.takeRack(ctx, ref.RackID)
	if errors.Is(err, bus.ErrConflict) {
		return errors.New("rack power operation in progress"), nil
	}
	if err != nil {
		return nil, err
	}
	target, refusal, err := m.findNode(ctx, ref)
	if err != nil || refusal != "" {
		hold.releaseRack(ctx, guard)
		return asReason(refusal), err
	}
	out := hold.change(ctx, target, op)
	if out.answered {
		hold.releaseRack(ctx, guard)
	}
	return out.err, nil
}

func asReason(text string) error {
	if text == "" {
		return nil
	}
	return errors.New(text)
}

// GetPowerState reads the power of a registered node from the device.
func (m *rackManager) GetPowerState(ctx context.Context, req *rackmanager.GetPowerStateRequest) (*rackmanager.GetPowerStateResponse, error) {
	resp := &rackmanager.GetPowerStateResponse{Status: statusOf(false), NodeId: req.GetNodeId(), RackId: req.GetRackId()}
	target, refusal, err := m.findNode(ctx, node.Ref{RackID: req.GetRackId(), NodeID: req.GetNodeId()})
	if err != nil {
		return nil, err
	}
	if refusal != "" {
		tellReason(ctx, refusal)
		return resp, nil
	}
	out := m.ask(ctx, query{op: opPowerGet, target: target, limit: m.opts.Timing.PowerLimit})
	if out.err != nil {
		tellReason(ctx, out.err.Error())
		return resp, nil
	}
	resp.Status, resp.Pstate = statusOf(true), out.reply.GetPowerState()
	return resp, nil
}

// BatchSetPowerState changes the power of nodes the caller describes.
func (m *rackManager) BatchSetPowerState(ctx context.Context, req *rackmanager.BatchSetPowerStateRequest) (*rackmanager.BatchSetPowerStateResponse, error) {
	nodes, err := selectNodes(req.GetNodes())
	if err != nil {
		return nil, err
	}
	if len(nodes) == 0 {
		return &rackmanager.BatchSetPowerStateResponse{Response: batchFailure(textNoNodes)}, nil
	}
	if err := checkOperation(req.GetOperation()); err != nil {
		return nil, err
	}
	if err := m.awaitBus(ctx); err != nil {
		return nil, err
	}
	results := make([]*rackmanager.NodeOperationResult, len(nodes))
	targets := m.newTargets()
	eachNode(refsOf(nodes), m.opts.BatchParallelism, func(i int) {
		target, err := targets.build(&nodes[i], forPower)
		if err == nil {
			hold := m.newHold(ctx, req.GetOperation().String(), m.opts.Timing.PowerLimit)
			err = hold.change(ctx, target, req.GetOperation()).err
		}
		results[i] = nodeResult(nodes[i].ref.NodeID, err)
	})
	return &rackmanager.BatchSetPowerStateResponse{Response: batchResponse(results,
		"Power operation completed for %d/%d nodes",
		"Power operation completed with %d successes and %d failures out of %d nodes")}, nil
}

// BatchGetPowerState reads the power of nodes the caller describes.
func (m *rackManager) BatchGetPowerState(ctx context.Context, req *rackmanager.BatchGetPowerStateRequest) (*rackmanager.BatchGetPowerStateResponse, error) {
	nodes, err := selectNodes(req.GetNodes())
	if err != nil {
		return nil, err
	}
	if len(nodes) == 0 {
		return &rackmanager.BatchGetPowerStateResponse{Response: batchFailure(textNoNodes)}, nil
	}
	replies, results, err := m.askAll(ctx, nodes, forPower, opPowerGet, m.powerLimit)
	if err != nil {
		return nil, err
	}
	resp := &rackmanager.BatchGetPowerStateResponse{Response: batchResponse(results,
		"Power state queried for %d/%d nodes",
		"Power state query completed with %d successes and %d failures out of %d nodes")}
	for i, reply := range replies {
		if reply != nil {
			resp.NodePowerStates = append(resp.NodePowerStates,
				&rackmanager.NodePowerState{NodeId: nodes[i].ref.NodeID, Pstate: reply.GetPowerState()})
		}
	}
	return resp, nil
}

// textNoNodes refuses a batch without nodes.
const textNoNodes = "No nodes specified in request"

// askAll builds and asks all nodes of a batch. Replies are nil where a node
// failed; results has a line for each. The error is that the bus is away.
func (m *rackManager) askAll(ctx context.Context, nodes []selected, p purpose, op string, limit limitOf,
) ([]*rackbusv1.NodeReply, []*rackmanager.NodeOperationResult, error) {
	if err := m.awaitBus(ctx); err != nil {
		return nil, nil, err
	}
	replies := make([]*rackbusv1.NodeReply, len(nodes))
	results := make([]*rackmanager.NodeOperationResult, len(nodes))
	targets := m.newTargets()
	eachNode(refsOf(nodes), m.opts.BatchParallelism, func(i int) {
		target, err := targets.build(&nodes[i], p)
		if err == nil {
			out := m.ask(ctx, query{op: op, target: target, limit: limit(nodes[i].typ.Family)})
			replies[i], err = out.reply, out.err
		}
		results[i] = nodeResult(nodes[i].ref.NodeID, err)
	})
	return replies, results, nil
}

// busy returns which job or operation holds a node, "" when none does.
func (m *rackManager) busy(ctx context.Context, ref node.Ref) (string, error) {
	lock, err := m.opts.Conn.Lock(ctx, ref)
	if err != nil {
		return "", fmt.Errorf("read lock of node %s: %w", ref, err)
	}
	return busyText(ref, lock), nil
}
