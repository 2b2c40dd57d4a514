// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"strings"

	"github.com/rackbus/rackbus/pkg/admission"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

const pollJob = "GetJobStatus"

// BatchResetSwitchFactoryDefault admits a job for each switch that returns it to
// factory settings.
func (m *rackManager) BatchResetSwitchFactoryDefault(ctx context.Context, req *rackmanager.BatchResetSwitchFactoryDefaultRequest,
) (*rackmanager.BatchResetSwitchFactoryDefaultResponse, error) {
	nodes, err := selectNodes(req.GetNodes())
	if err != nil {
		return nil, err
	}
	answer := func(r *rackmanager.NodeBatchResponse) (*rackmanager.BatchResetSwitchFactoryDefaultResponse, error) {
		return &rackmanager.BatchResetSwitchFactoryDefaultResponse{Response: r}, nil
	}
	if len(nodes) == 0 {
		return answer(batchFailure(textNoNodes))
	}
	meta, idem, err := m.jobCall(ctx, "BatchResetSwitchFactoryDefault", req)
	if err != nil {
		return nil, err
	}
	reset := &rackbusv1.SwitchFactoryReset{Domain: strings.TrimSpace(req.GetDomain())}
	b := &switchJobs{
		typ: job.TypeSwitchFactoryDefaultReset, nodes: nodes, noun: "switch factory-default reset", poll: pollJob, listed: true,
		command: func(cmd *rackbusv1.JobCommand) {
			cmd.Operation = &rackbusv1.JobCommand_SwitchFactoryReset{SwitchFactoryReset: reset}
		},
	}
	if res, found, err := m.admitter.Lookup(ctx, idem, refsOf(nodes)); err != nil {
		return nil, err
	} else if found {
		return answer(b.answer(res))
	}
	res, err := m.admitSwitches(ctx, b, meta.request(nodes[0].ref.RackID, idem))
	if refused, ok := b.refused(err); ok {
		for i := range nodes {
			refused.NodeResults = append(refused.NodeResults, nodeResult(nodes[i].ref.NodeID, err))
		}
		return answer(refused)
	}
	if err != nil {
		return nil, err
	}
	return answer(b.answer(res))
}

// BatchResetSwitchSdnFactoryDefault admits a job for each switch that returns its
// fabric settings to factory defaults.
func (m *rackManager) BatchResetSwitchSdnFactoryDefault(ctx context.Context, req *rackmanager.BatchResetSwitchSdnFactoryDefaultRequest,
) (*rackmanager.BatchResetSwitchSdnFactoryDefaultResponse, error) {
	nodes, err := selectNodes(req.GetNodes())
	if err != nil {
		return nil, err
	}
	answer := func(r *rackmanager.NodeBatchResponse) (*rackmanager.BatchResetSwitchSdnFactoryDefaultResponse, error) {
		return &rackmanager.BatchResetSwitchSdnFactoryDefaultResponse{Response: r}, nil
	}
	if len(nodes) == 0 {
		return answer(batchFailure(textNoNodes))
	}
	for i := range nodes {
		ref := &nodes[i].ref
		ref.RackID, ref.NodeID = strings.TrimSpace(ref.RackID), strings.TrimSpace(ref.NodeID)
	}
	meta, idem, err := m.jobCall(ctx, "BatchResetSwitchSdnFactoryDefault", req)
	if err != nil {
		return nil, err
	}
	reset := &rackbusv1.SdnReset{Domain: strings.TrimSpace(req.GetDomain())}
	b := &switchJobs{
		typ: job.TypeSwitchSdnFactoryDefaultReset, nodes: nodes, noun: "switch SDN factory-default reset", poll: pollJob, bmc: bmcChecked,
		command: func(cmd *rackbusv1.JobCommand) {
			cmd.Operation = &rackbusv1.JobCommand_SdnReset{SdnReset: reset}
		},
	}
	if res, found, err := m.admitter.Lookup(ctx, idem, refsOf(nodes)); err != nil {
		return nil, err
	} else if found {
		return answer(b.answer(res))
	}
	if refused := m.noneUsable(b); refused != nil {
		return answer(refused)
	}
	res, err := m.admitSwitches(ctx, b, meta.request(nodes[0].ref.RackID, idem))
	if refused, ok := b.refused(err); ok {
		return answer(refused)
	}
	if err != nil {
		return nil, err
	}
	return answer(b.answer(res))
}

// noneUsable is the answer when no switch of a batch could get a job, whoever else
// may hold it; nil when one could. No parent is made then.
func (s *Server) noneUsable(b *switchJobs) *rackmanager.NodeBatchResponse {
	targets := s.newTargets()
	seen := make(map[node.Ref]bool, len(b.nodes))
	var results []*rackmanager.NodeOperationResult
	for i := range b.nodes {
		n := &b.nodes[i]
		if seen[n.ref] {
			results = append(results, nodeResult(n.ref.NodeID, &admission.Refusal{Message: job.DuplicateText(n.ref.RackID, n.ref.NodeID)}))
			continue
		}
		seen[n.ref] = true
		if _, err := s.switchTarget(targets, n, b.bmc); err != nil {
			results = append(results, nodeResult(n.ref.NodeID, err))
			continue
		}
		return nil
	}
	refused := batchFailure("%s: no node of the request can be reset", b.nothing())
	refused.NodeResults, refused.Stats = results, stats(len(b.nodes), len(b.nodes))
	return refused
}
