// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/rackbus/rackbus/pkg/agent"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

var nonce = []byte("0123456789abcdefABCDEF-pl4nted-n")

func spdmEvidence(components ...*rackbusv1.SpdmComponent) *rackbusv1.NodeReply {
	return &rackbusv1.NodeReply{V: 1, SwitchResult: &rackbusv1.NodeReply_SpdmEvidence{SpdmEvidence: &rackbusv1.SpdmEvidence{Components: components}}}
}

func TestSpdmEvidence(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	good := &rackbusv1.SpdmComponent{ComponentId: "ERoT_BMC_0", Measurements: []byte(`{"m":1}`), CertificateChain: []byte(`{"c":1}`)}
	agents := h.switches(map[string]agent.QueryHandler{opSpdmEvidence: func(_ context.Context, q *agent.Query) *rackbusv1.NodeReply {
		switch q.Target().GetNodeId() {
		case "sw-1":
			return spdmEvidence(good)
		case "sw-2":
			return spdmEvidence(good, &rackbusv1.SpdmComponent{ComponentId: "ERoT_FPGA_0", Error: "the action ended in action_error"})
		case "sw-3":
			return spdmEvidence()
		default:
			return agent.Refuse("unauthenticated", "NVUE refused the login", "")
		}
	}})
	before := time.Now()
	resp, err := h.rm.BatchCollectSwitchSpdmAttestationEvidence(t.Context(), &rackmanager.BatchCollectSwitchSpdmAttestationEvidenceRequest{
		Targets: []*rackmanager.NodeInfo{switchNode("r1", 1), switchNode("r1", 2), switchNode("r1", 3), switchNode("r1", 4), compute("r1", "tray")},
		Nonce:   nonce, Domain: proto.String(" lab ")})
	require.NoError(t, err)
	requireFailure(t, resp.GetStatus())
	require.Equal(t, "SPDM attestation evidence collected from 1/5 targets", resp.GetMessage())
	require.Len(t, resp.GetResults(), 5)
	for i, want := range []struct {
		node, text string
		ok         bool
		components int
	}{
		{"sw-1", "", true, 1}, {"sw-2", "", false, 2}, {"sw-3", "switch sw-3 named no component with SPDM", false, 0},
		{"sw-4", "NVUE refused the login", false, 0}, {"tray", "node tray is not a switch (type=compute_gb200_nvidia)", false, 0},
	} {
		r := resp.GetResults()[i]
		require.Equal(t, want.node, r.GetNodeId())
		require.Equal(t, statusOf(want.ok), r.GetStatus())
		require.Equal(t, want.text, r.GetErrorMessage())
		require.Equal(t, want.text != "", r.ErrorMessage != nil, "unset unless the target itself failed")
		require.Len(t, r.GetComponents(), want.components)
		require.False(t, r.GetCollectionTimestamp().AsTime().Before(before.Truncate(time.Millisecond)))
	}
	parts := resp.GetResults()[1].GetComponents()
	require.True(t, proto.Equal(&rackmanager.SwitchSpdmComponentResult{ComponentId: "ERoT_BMC_0", Status: statusOf(true),
		Evidence: &rackmanager.SwitchSpdmComponentEvidence{Measurements: []byte(`{"m":1}`), CertificateChain: []byte(`{"c":1}`)}}, parts[0]))
	require.True(t, proto.Equal(&rackmanager.SwitchSpdmComponentResult{ComponentId: "ERoT_FPGA_0", Status: statusOf(false),
		ErrorMessage: "the action ended in action_error"}, parts[1]))
	asked := agents.requests(opSpdmEvidence)
	require.Len(t, asked, 4)
	require.Equal(t, nonce, asked[0].GetSpdm().GetNonce())
	require.Equal(t, "lab", asked[0].GetDomain())
	for _, form := range []string{string(nonce), hex.EncodeToString(nonce), strings.ToUpper(hex.EncodeToString(nonce))} {
		require.NotContains(t, h.log.String(), form)
	}

	all, err := h.rm.BatchCollectSwitchSpdmAttestationEvidence(t.Context(), &rackmanager.BatchCollectSwitchSpdmAttestationEvidenceRequest{
		Targets: []*rackmanager.NodeInfo{switchNode("r1", 1)}, Nonce: nonce})
	require.NoError(t, err)
	requireSuccess(t, all.GetStatus(), all.GetMessage())
}

func TestSpdmEvidenceIsRefused(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	same := switchNode("r1", 2)
	same.HostEndpoint.Interface.IpAddress = "[::ffff:10.0.1.1]"
	blank := switchNode("r1", 2)
	blank.NodeId = " "
	type request = rackmanager.BatchCollectSwitchSpdmAttestationEvidenceRequest
	list := func(n ...*rackmanager.NodeInfo) []*rackmanager.NodeInfo { return n }
	for text, req := range map[string]*request{
		"nonce must have 32 bytes, not 31":    {Nonce: nonce[:31], Targets: list(switchNode("r1", 1))},
		"nonce must have 32 bytes, not 0":     {},
		"targets must name":                   {Nonce: nonce},
		"target 2 has no node_id":             {Nonce: nonce, Targets: list(switchNode("r1", 1), blank)},
		"node_id sw-1 is given more":          {Nonce: nonce, Targets: list(switchNode("r1", 1), switchNode("r2", 1))},
		"have the same host address 10.0.1.1": {Nonce: nonce, Targets: list(switchNode("r1", 1), same)},
		"unknown node type value 99":          {Nonce: nonce, Targets: list(typed("r1", "x", 99))},
	} {
		_, err := h.rm.BatchCollectSwitchSpdmAttestationEvidence(t.Context(), req)
		requireCode(t, err, codes.InvalidArgument, text)
	}
}

// A target that does not answer in time does not cost the caller the others.
func TestSpdmEvidenceAnswersInTime(t *testing.T) {
	t.Parallel()
	h := newHarness(t, func(o *Options) { o.Timing.AnswerMargin = 2 * time.Second })
	release := make(chan struct{})
	h.switches(map[string]agent.QueryHandler{opSpdmEvidence: func(_ context.Context, q *agent.Query) *rackbusv1.NodeReply {
		if q.Target().GetNodeId() == "sw-2" {
			<-release
		}
		return spdmEvidence(&rackbusv1.SpdmComponent{ComponentId: "ERoT_BMC_0", Measurements: []byte(`{}`), CertificateChain: []byte(`{}`)})
	}})
	defer close(release)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	resp, err := h.rm.BatchCollectSwitchSpdmAttestationEvidence(ctx, &rackmanager.BatchCollectSwitchSpdmAttestationEvidenceRequest{
		Targets: []*rackmanager.NodeInfo{switchNode("r1", 1), switchNode("r1", 2)}, Nonce: nonce})
	require.NoError(t, err)
	requireFailure(t, resp.GetStatus())
	require.Equal(t, statusOf(true), resp.GetResults()[0].GetStatus())
	require.Contains(t, resp.GetResults()[1].GetErrorMessage(), "no answer within")
}
