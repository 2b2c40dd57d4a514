// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"fmt"
	"slices"
	"strings"

	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

const textNoNode = "node is required"

// ConfigureScaleUpFabricManager sets the topology on one switch and starts its fabric
// manager, while nobody else changes the switch.
func (m *rackManager) ConfigureScaleUpFabricManager(ctx context.Context, req *rackmanager.ConfigureScaleUpFabricManagerRequest,
) (*rackmanager.ConfigureScaleUpFabricManagerResponse, error) {
	refuse := func(message string) (*rackmanager.ConfigureScaleUpFabricManagerResponse, error) {
		return &rackmanager.ConfigureScaleUpFabricManagerResponse{Status: statusOf(false), Message: message}, nil
	}
	topology := strings.TrimSpace(req.GetTopologyType())
	var n selected
	if req.GetNode() != nil {
		var err error
		if n, err = selectNode(req.GetNode()); err != nil {
			return nil, err
		}
	}
	switch {
	case topology == "":
		return refuse("topology_type is required")
	case req.GetNode() == nil:
		return refuse(textNoNode)
	}
	target, err := m.switchTarget(m.newTargets(), &n, bmcChecked)
	if err != nil {
		return refuse(err.Error())
	}
	out := m.changeSwitch(ctx, "scale-up fabric configuration", m.opts.Timing.FabricConfigureLimit, query{
		op: opFabricConfigure, target: target, domain: strings.TrimSpace(req.GetDomain()), fill: func(r *rackbusv1.NodeRequest) {
			r.SwitchOperation = &rackbusv1.NodeRequest_FabricManager{FabricManager: &rackbusv1.FabricManagerRequest{Topology: topology}}
		},
	})
	if out.err != nil {
		return refuse(out.err.Error())
	}
	got := out.reply.GetFabricManager()
	return &rackmanager.ConfigureScaleUpFabricManagerResponse{
		Status: statusOf(got.GetConfigured()), Message: got.GetMessage(), TopologyUsed: got.GetTopologyUsed(),
		ScaleUpFabricStateEnabled: got.GetStateEnabled(), GrpcEnabled: got.GetGrpcEnabled(),
	}, nil
}

// switchedTo asks for a part of a switch to be on or off.
func switchedTo(enabled bool) func(*rackbusv1.NodeRequest) {
	return func(r *rackbusv1.NodeRequest) {
		r.SwitchOperation = &rackbusv1.NodeRequest_FabricSwitch{FabricSwitch: &rackbusv1.FabricSwitchRequest{Enabled: enabled}}
	}
}

// BatchSetScaleUpFabricState turns the fabric of switches on or off.
func (m *rackManager) BatchSetScaleUpFabricState(ctx context.Context, req *rackmanager.BatchSetScaleUpFabricStateRequest,
) (*rackmanager.BatchSetScaleUpFabricStateResponse, error) {
	nodes, err := selectNodes(req.GetNodes())
	if err != nil {
		return nil, err
	}
	if len(nodes) == 0 {
		return &rackmanager.BatchSetScaleUpFabricStateResponse{Response: batchFailure(textNoNodes)}, nil
	}
	if err := m.awaitBus(ctx); err != nil {
		return nil, err
	}
	errs := m.eachSwitch(nodes, func(_ int, target *rackbusv1.NodeTarget) error {
		return m.changeSwitch(ctx, "scale-up fabric state change", m.opts.Timing.FabricStateLimit, query{
			op: opFabricStateSet, target: target, fill: switchedTo(req.GetEnabled()),
		}).err
	})
	results := make([]*rackmanager.NodeOperationResult, len(nodes))
	for i := range nodes {
		results[i] = nodeResult(nodes[i].ref.NodeID, errs[i])
	}
	return &rackmanager.BatchSetScaleUpFabricStateResponse{Response: batchResponse(results,
		"Scale-up fabric state set for %d/%d nodes",
		"Scale-up fabric state set with %d successes and %d failures out of %d nodes")}, nil
}

// GetScaleUpFabricState reads the fabric of one switch.
func (m *rackManager) GetScaleUpFabricState(ctx context.Context, req *rackmanager.GetScaleUpFabricStateRequest,
) (*rackmanager.GetScaleUpFabricStateResponse, error) {
	refuse := func(message string) (*rackmanager.GetScaleUpFabricStateResponse, error) {
		return &rackmanager.GetScaleUpFabricStateResponse{Status: statusOf(false), ErrorMessage: message}, nil
	}
	if req.GetNode() == nil {
		return refuse(textNoNode)
	}
	n, err := selectNode(req.GetNode())
	if err != nil {
		return nil, err
	}
	target, err := m.switchTarget(m.newTargets(), &n, bmcChecked)
	if err != nil {
		return refuse(err.Error())
	}
	state, err := m.askSwitch(ctx, m.opts.Timing.SwitchReadLimit, query{op: opFabricStateGet, target: target}).result()
	if err != nil {
		return refuse(err.Error())
	}
	return &rackmanager.GetScaleUpFabricStateResponse{Status: statusOf(true), StateJson: state}, nil
}

// BatchGetScaleUpFabricServiceStatus reads the fabric manager of switches. How each of
// them is stands in its entry; the status is that of the call.
func (m *rackManager) BatchGetScaleUpFabricServiceStatus(ctx context.Context, req *rackmanager.BatchGetScaleUpFabricServiceStatusRequest,
) (*rackmanager.BatchGetScaleUpFabricServiceStatusResponse, error) {
	nodes, err := selectNodes(req.GetNodes())
	if err != nil {
		return nil, err
	}
	if len(nodes) == 0 {
		return &rackmanager.BatchGetScaleUpFabricServiceStatusResponse{
			Status: statusOf(false), Stats: &rackmanager.NodeOperationStats{},
		}, nil
	}
	if err := m.awaitBus(ctx); err != nil {
		return nil, err
	}
	documents := make([]string, len(nodes))
	errs := m.eachSwitch(nodes, func(i int, target *rackbusv1.NodeTarget) (err error) {
		documents[i], err = m.askSwitch(ctx, m.opts.Timing.SwitchReadLimit, query{op: opFabricService, target: target}).result()
		return err
	})
	resp := &rackmanager.BatchGetScaleUpFabricServiceStatusResponse{
		Status: statusOf(true), ServiceStatuses: make(map[string]*rackmanager.ScaleUpFabricServiceStatusEntry, len(nodes)),
	}
	failed := 0
	for i := range nodes {
		entry := &rackmanager.ScaleUpFabricServiceStatusEntry{StatusJson: documents[i]}
		if errs[i] != nil {
			failed++
			entry.ErrorMessage = errs[i].Error()
		}
		resp.ServiceStatuses[nodes[i].ref.NodeID] = entry
	}
	resp.Stats = stats(len(nodes), failed)
	return resp, nil
}

// SetScaleUpFabricTelemetryInterfaceState turns the telemetry interface of one switch on
// or off.
func (m *rackManager) SetScaleUpFabricTelemetryInterfaceState(ctx context.Context, req *rackmanager.SetScaleUpFabricTelemetryInterfaceStateRequest,
) (*rackmanager.SetScaleUpFabricTelemetryInterfaceStateResponse, error) {
	refuse := func(message string) (*rackmanager.SetScaleUpFabricTelemetryInterfaceStateResponse, error) {
		return &rackmanager.SetScaleUpFabricTelemetryInterfaceStateResponse{Status: statusOf(false), ErrorMessage: message}, nil
	}
	if req.GetNode() == nil {
		return refuse(textNoNode)
	}
	n, err := selectNode(req.GetNode())
	if err != nil {
		return nil, err
	}
	target, err := m.switchTarget(m.newTargets(), &n, bmcChecked)
	if err != nil {
		return refuse(err.Error())
	}
	out := m.changeSwitch(ctx, "telemetry interface change", m.opts.Timing.FabricStateLimit, query{
		op: opTelemetrySet, target: target, fill: switchedTo(req.GetEnable()),
	})
	if out.err != nil {
		return refuse(out.err.Error())
	}
	result := `{"status":"success","state":"disabled"}`
	if req.GetEnable() {
		result = `{"status":"success","state":"enabled"}`
	}
	return &rackmanager.SetScaleUpFabricTelemetryInterfaceStateResponse{Status: statusOf(true), ResultJson: result}, nil
}

// GetScaleUpFabricStatus reads a fabric from all of its switches.
func (m *rackManager) GetScaleUpFabricStatus(ctx context.Context, req *rackmanager.GetScaleUpFabricStatusRequest,
) (*rackmanager.GetScaleUpFabricStatusResponse, error) {
	nodes, err := selectNodes(req.GetNodes())
	if err != nil {
		return nil, err
	}
	if len(nodes) == 0 {
		return &rackmanager.GetScaleUpFabricStatusResponse{Status: statusOf(false), ErrorMessage: textNoNodes}, nil
	}
	if err := m.awaitBus(ctx); err != nil {
		return nil, err
	}
	parts := make([]*rackbusv1.FabricSwitchStatus, len(nodes))
	domain := strings.TrimSpace(req.GetDomain())
	errs := m.eachSwitch(nodes, func(i int, target *rackbusv1.NodeTarget) error {
		out := m.askSwitch(ctx, m.opts.Timing.FabricStatusLimit, query{op: opFabricStatus, target: target, domain: domain})
		parts[i] = out.reply.GetFabricStatus()
		return out.err
	})
	for i, err := range errs {
		if err != nil {
			parts[i] = &rackbusv1.FabricSwitchStatus{Error: err.Error()}
		}
	}
	return fabricStatus(nodes, parts), nil
}

// fabricStatus puts a fabric together from what its switches say. One of them at most
// may run the fabric manager, whose configuration is that of the fabric.
func fabricStatus(nodes []selected, parts []*rackbusv1.FabricSwitchStatus) *rackmanager.GetScaleUpFabricStatusResponse {
	fabric := &rackmanager.ScaleUpFabricStatus{}
	var enabled []int
	failed := 0
	for i, p := range parts {
		fabric.Switches = append(fabric.Switches, &rackmanager.ScaleUpFabricSwitchStatus{
			NodeId: nodes[i].ref.NodeID, Enabled: p.GetEnabled(), FabricManagerStatus: p.GetManagerStatus(), ErrorMessage: p.GetError(),
		})
		if p.GetEnabled() {
			enabled = append(enabled, i)
		}
		if p.GetError() != "" {
			failed++
		}
	}
	resp := &rackmanager.GetScaleUpFabricStatusResponse{Status: statusOf(false), FabricStatus: fabric}
	switch {
	case failed == len(parts):
		resp.ErrorMessage = "none of the switches could be inspected; fabric_status has the reasons"
	case len(enabled) > 1:
		resp.ErrorMessage = "more than one switch has the scale-up fabric enabled: " + strings.Join(namesAt(nodes, enabled), ", ")
	case len(enabled) == 0:
		resp.Status = statusOf(true)
	case parts[enabled[0]].GetConfigError() != "":
		resp.ErrorMessage = fmt.Sprintf("the fabric configuration of switch %s could not be read: %s",
			nodes[enabled[0]].ref.NodeID, parts[enabled[0]].GetConfigError())
	case parts[enabled[0]].GetTopology() == "":
		resp.ErrorMessage = fmt.Sprintf("the fabric manager of switch %s has no topology", nodes[enabled[0]].ref.NodeID)
	default:
		resp.Status = statusOf(true)
		fabric.TopologyType = parts[enabled[0]].GetTopology()
		fabric.ExtraStaticConfigs = staticConfigs(parts[enabled[0]].GetEntries())
	}
	return resp
}

func namesAt(nodes []selected, at []int) []string {
	names := make([]string, len(at))
	for i, index := range at {
		names[i] = nodes[index].ref.NodeID
	}
	return names
}

// staticConfigs are entries in the order of their file and key.
func staticConfigs(entries []*rackbusv1.FabricEntry) []*rackmanager.ScaleUpFabricStaticConfig {
	out := make([]*rackmanager.ScaleUpFabricStaticConfig, len(entries))
	for i, e := range entries {
		out[i] = &rackmanager.ScaleUpFabricStaticConfig{ConfigFileName: e.GetFile(), Key: e.GetKey(), Value: e.GetValue()}
	}
	slices.SortStableFunc(out, func(a, b *rackmanager.ScaleUpFabricStaticConfig) int {
		if c := strings.Compare(a.GetConfigFileName(), b.GetConfigFileName()); c != 0 {
			return c
		}
		return strings.Compare(a.GetKey(), b.GetKey())
	})
	return out
}
