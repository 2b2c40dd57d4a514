// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

// nonceSize is the length of an SPDM nonce (DSP0274).
const nonceSize = 32

// BatchCollectSwitchSpdmAttestationEvidence collects signed measurements of switches.
// Nothing of them is stored. What has not been found out when the time of the call is
// nearly over is said to be missing, and the rest is returned.
func (m *rackManager) BatchCollectSwitchSpdmAttestationEvidence(ctx context.Context, req *rackmanager.BatchCollectSwitchSpdmAttestationEvidenceRequest,
) (*rackmanager.BatchCollectSwitchSpdmAttestationEvidenceResponse, error) {
	nodes, err := selectNodes(&rackmanager.NodeSet{Nodes: req.GetTargets()})
	if err != nil {
		return nil, err
	}
	if err := checkSpdm(req.GetNonce(), nodes); err != nil {
		return nil, err
	}
	if err := m.awaitBus(ctx); err != nil {
		return nil, err
	}
	domain := strings.TrimSpace(req.GetDomain())
	results := make([]*rackmanager.SwitchSpdmAttestationTargetResult, len(nodes))
	targets := m.newTargets()
	// They all begin at once: they share the time of the call.
	eachNode(refsOf(nodes), len(nodes), func(i int) {
		var evidence *rackbusv1.SpdmEvidence
		target, err := m.switchTarget(targets, &nodes[i], bmcChecked)
		if err == nil {
			out := m.askSwitch(ctx, m.opts.Timing.AttestationLimit, query{
				op: opSpdmEvidence, target: target, domain: domain, fill: func(r *rackbusv1.NodeRequest) {
					r.SwitchOperation = &rackbusv1.NodeRequest_Spdm{Spdm: &rackbusv1.SpdmRequest{Nonce: req.GetNonce()}}
				},
			})
			evidence, err = out.reply.GetSpdmEvidence(), out.err
		}
		results[i] = spdmResult(nodes[i].ref, evidence, err)
	})
	ok := 0
	for _, r := range results {
		if r.GetStatus() == statusOf(true) {
			ok++
		}
	}
	return &rackmanager.BatchCollectSwitchSpdmAttestationEvidenceResponse{
		Status:  statusOf(ok == len(results)),
		Message: fmt.Sprintf("SPDM attestation evidence collected from %d/%d targets", ok, len(results)), Results: results,
	}, nil
}

// checkSpdm checks a request, one rule after the other.
func checkSpdm(nonce []byte, nodes []selected) error {
	switch {
	case len(nonce) != nonceSize:
		return errorf(CodeInvalidArgument, "nonce must have %d bytes, not %d", nonceSize, len(nonce))
	case len(nodes) == 0:
		return errorf(CodeInvalidArgument, "targets must name at least one switch")
	}
	ids := make(map[string]bool, len(nodes))
	addresses := make(map[netip.Addr]string, len(nodes))
	for i := range nodes {
		id := strings.TrimSpace(nodes[i].ref.NodeID)
		switch {
		case id == "":
			return errorf(CodeInvalidArgument, "target %d has no node_id", i+1)
		case ids[id]:
			return errorf(CodeInvalidArgument, "node_id %s is given more than once", id)
		}
		ids[id] = true
		address := canonical(strings.TrimSpace(nodes[i].info.GetHostEndpoint().GetInterface().GetIpAddress()))
		if !address.IsValid() {
			continue // this target fails by itself
		}
		if other, taken := addresses[address]; taken {
			return errorf(CodeInvalidArgument, "targets %s and %s have the same host address %s", other, id, address)
		}
		addresses[address] = id
	}
	return nil
}

// spdmResult is the outcome of one target.
func spdmResult(ref node.Ref, evidence *rackbusv1.SpdmEvidence, err error) *rackmanager.SwitchSpdmAttestationTargetResult {
	r := &rackmanager.SwitchSpdmAttestationTargetResult{NodeId: ref.NodeID, CollectionTimestamp: timestamppb.Now()}
	if err == nil && len(evidence.GetComponents()) == 0 {
		err = fmt.Errorf("switch %s named no component with SPDM", ref.NodeID)
	}
	if err != nil {
		text := err.Error()
		r.Status, r.ErrorMessage = statusOf(false), &text
		return r
	}
	all := true
	for _, c := range evidence.GetComponents() {
		ok := c.GetError() == ""
		all = all && ok
		one := &rackmanager.SwitchSpdmComponentResult{ComponentId: c.GetComponentId(), Status: statusOf(ok), ErrorMessage: c.GetError()}
		if ok {
			one.Evidence = &rackmanager.SwitchSpdmComponentEvidence{Measurements: c.GetMeasurements(), CertificateChain: c.GetCertificateChain()}
		}
		r.Components = append(r.Components, one)
	}
	r.Status = statusOf(all)
	return r
}
