// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"fmt"

	"github.com/rackbus/rackbus/pkg/firmware/manifest"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

// CompareFirmwareObject lays a manifest beside what is installed on nodes. It
// changes nothing, fetches nothing, and starts no job.
func (m *rackManager) CompareFirmwareObject(ctx context.Context, req *rackmanager.CompareFirmwareObjectRequest,
) (*rackmanager.CompareFirmwareObjectResponse, error) {
	nodes, err := selectNodes(req.GetNodes())
	if err != nil {
		return nil, err
	}
	selection, err := selectionOf(req.GetComponentFilters(), req.GetNodeDescriptorComponentFilters(), nil)
	if err != nil {
		return nil, err
	}
	parsed, err := manifest.Parse([]byte(req.GetConfigJson()))
	if err != nil {
		return nil, manifestError(err)
	}
	resp := &rackmanager.CompareFirmwareObjectResponse{ObjectId: parsed.ID()}
	if len(nodes) == 0 {
		resp.Response = batchFailure(textNoDevices)
		return resp, nil
	}
	if err := m.awaitBus(ctx); err != nil {
		return nil, err
	}
	targets := m.newTargets()
	compared := make([]*rackmanager.NodeFirmwareManifestComparison, len(nodes))
	results := make([]*rackmanager.NodeOperationResult, len(nodes))
	eachNode(refsOf(nodes), m.opts.BatchParallelism, func(i int) {
		var err error
		compared[i], err = m.compareNode(ctx, targets, &nodes[i], parsed, req.GetFirmwareType(), selection)
		results[i] = nodeResult(nodes[i].ref.NodeID, err)
	})
	resp.Response = batchResponse(results, "Firmware compared for %d/%d nodes",
		"Firmware comparison completed with %d successes and %d failures out of %d nodes")
	resp.MatchesManifest = true
	left, cut := m.answerBudget()-sizeOf(resp.Response), false
	for _, c := range compared {
		if c == nil {
			resp.MatchesManifest = false
			continue
		}
		resp.MatchesManifest = resp.MatchesManifest && c.GetMatchesManifest()
		if left -= sizeOf(c); left < 0 {
			c.Components, cut = nil, true
		}
		resp.Nodes = append(resp.Nodes, c)
	}
	if cut {
		tellReason(ctx, "components of the last nodes are left out to keep the answer small; compare fewer nodes at a time")
	}
	return resp, nil
}

// compareNode reads the inventory of one node and compares it. What cannot be
// compared is found out before the node is asked.
func (m *rackManager) compareNode(ctx context.Context, targets *targetBuilder, n *selected, parsed *manifest.Manifest,
	firmwareType string, selection manifest.Selection,
) (*rackmanager.NodeFirmwareManifestComparison, error) {
	if !selection.Includes(n.typ) {
		return nil, fmt.Errorf("No firmware targets provided for node type %s", n.typ) //nolint:staticcheck // published text
	}
	proposals, err := parsed.Proposals(n.typ, firmwareType, selection)
	if err != nil {
		return nil, err
	}
	target, err := targets.build(n, forFirmwareInventory)
	if err != nil {
		return nil, err
	}
	out := m.ask(ctx, query{op: opFirmwareInventory, target: target, limit: m.opts.Timing.InventoryLimit})
	if out.err != nil {
		return nil, out.err
	}
	lines, matches := manifest.Compare(proposals, installedOf(out.reply))
	c := &rackmanager.NodeFirmwareManifestComparison{NodeId: n.ref.NodeID, MatchesManifest: matches}
	for _, l := range lines {
		c.Components = append(c.Components, &rackmanager.FirmwareManifestComponentComparison{
			Component: l.Component, InstalledComponent: l.Installed, InstalledVersion: l.InstalledVersion,
			ProposedVersion: l.ProposedVersion, Status: rackmanager.FirmwareComparisonStatus(l.Status),
			Target: l.Target, Reason: l.Reason, SkuId: l.SKU,
		})
	}
	return c, nil
}

func installedOf(reply *rackbusv1.NodeReply) []manifest.Installed {
	var out []manifest.Installed
	for _, f := range reply.GetFirmware() {
		out = append(out, manifest.Installed{Name: f.GetName(), Version: f.GetVersion(), SKU: f.GetSku()})
	}
	return out
}
