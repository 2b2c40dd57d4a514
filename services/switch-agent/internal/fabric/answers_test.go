// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nvue"
	"github.com/rackbus/rackbus/sim/faults"
	"github.com/rackbus/rackbus/sim/nvswitch"
)

func switched(on bool) *rackbusv1.NodeRequest {
	return &rackbusv1.NodeRequest{SwitchOperation: &rackbusv1.NodeRequest_FabricSwitch{FabricSwitch: &rackbusv1.FabricSwitchRequest{Enabled: on}}}
}

func TestFabricState(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	require.Nil(t, l.answer(t.Context(), 0, OpStateSet, switched(false)).GetError())
	require.Empty(t, l.writes("", 0), "it was off")
	require.Nil(t, l.answer(t.Context(), 0, OpStateSet, switched(true)).GetError())
	require.Equal(t, stateEnabled, l.switches[0].SavedConfig("/cluster/state"))
	before := l.last()
	require.Nil(t, l.answer(t.Context(), 0, OpStateSet, switched(true)).GetError())
	require.Empty(t, l.writes("", before))

	l.switches[0].SetKnobs(nvswitch.Knobs{Revisions: []nvswitch.RevisionRule{{Path: "/cluster", State: "applied"}}})
	e := l.answer(t.Context(), 0, OpStateSet, switched(false)).GetError()
	require.Equal(t, "unavailable", e.GetCode(), "it never shows the change")
	require.Contains(t, e.GetMessage(), `the cluster is "enabled" and not disabled`)

	_, err := l.rules.Add(faults.Rule{Selector: faults.Request("GET", "/nvue_v1/cluster"), Action: faults.Action{JSONMerge: json.RawMessage(`{"state":null}`)}})
	require.NoError(t, err)
	require.Contains(t, l.answer(t.Context(), 0, OpStateSet, switched(false)).GetError().GetMessage(), "no state")
}

func TestStateDocument(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	for body, c := range map[string]struct{ healthy, warning, recommendation bool }{
		`{"state":"enabled","nmxc-conn":{"state":"up"}}`:       {healthy: true},
		`{"state":"enabled","nmxc-conn":"up"}`:                 {healthy: true},
		`{"state":"enabled"}`:                                  {healthy: true},
		`{"state":"start","nmxc-conn":"n/a"}`:                  {healthy: true},
		`{"state":"enabled","nmxc-conn":{"state":"down"}}`:     {warning: true},
		`{"state":"enabled","nmxc-conn":{"state":"disabled"}}`: {warning: true},
		`{"state":"enabled","nmxc-conn":"down"}`:               {warning: true},
		`{"state":"disabled","nmxc-conn":"n/a"}`:               {warning: true, recommendation: true},
		`{}`:                                                   {warning: true, recommendation: true},
	} {
		id, err := l.rules.Add(faults.Rule{Selector: faults.Request("GET", "/nvue_v1/cluster"), Action: faults.Action{Replace: json.RawMessage(body)}})
		require.NoError(t, err)
		var doc map[string]any
		require.NoError(t, json.Unmarshal([]byte(l.answer(t.Context(), 0, OpStateGet, nil).GetResultJson()), &doc))
		l.rules.Remove(id)
		require.Equal(t, c.healthy, doc["cluster_healthy"], body)
		require.Equal(t, c.warning, doc["warning"] != nil, body)
		require.Equal(t, c.recommendation, doc["recommendation"] != nil, body)
		var own map[string]any
		require.NoError(t, json.Unmarshal([]byte(body), &own))
		require.Equal(t, own["state"], doc["state"], "the switch's own members are there")
	}
	l.switches[0].SetKnobs(nvswitch.Knobs{Refuse: []string{"nvue"}})
	require.Equal(t, "unreachable", l.answer(t.Context(), 0, OpStateGet, nil).GetError().GetCode())
}

func TestServiceDocument(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	read := func() map[string]any {
		var doc map[string]any
		require.NoError(t, json.Unmarshal([]byte(l.answer(t.Context(), 0, OpServiceStatus, nil).GetResultJson()), &doc))
		return doc
	}
	require.Subset(t, read(), map[string]any{"installed": true, "health_status": "red", "status": "stopped"})
	l.enable(0)
	require.Subset(t, read(), map[string]any{"installed": true, "health_status": "green", "status": "ok"})
	l.switches[0].SetApp(nvue.AppController, false, "")
	doc := read()
	require.Subset(t, doc, map[string]any{"installed": false, "health_status": "unknown"})
	require.NotEmpty(t, doc["status_description"])
}

func TestTelemetryInterface(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	require.JSONEq(t, `{"status":"success","state":"disabled"}`, l.answer(t.Context(), 0, OpTelemetrySet, switched(false)).GetResultJson())
	require.Empty(t, l.writes("", 0))
	require.JSONEq(t, `{"status":"success","state":"enabled"}`, l.answer(t.Context(), 0, OpTelemetrySet, switched(true)).GetResultJson())
	require.Equal(t, stateEnabled, l.switches[0].SavedConfig("/system/gnmi-server/state"))
	l.switches[0].SetKnobs(nvswitch.Knobs{Revisions: []nvswitch.RevisionRule{{State: "applied"}}})
	require.Equal(t, "unavailable", l.answer(t.Context(), 0, OpTelemetrySet, switched(false)).GetError().GetCode())
	l.switches[0].SetKnobs(nvswitch.Knobs{Revisions: []nvswitch.RevisionRule{{State: "invalid", Issue: "no such state"}}})
	e := l.answer(t.Context(), 0, OpTelemetrySet, switched(false)).GetError()
	require.Contains(t, e.GetMessage(), "no such state", "the switch's own words")
}

func TestFabricStatus(t *testing.T) {
	t.Parallel()
	l := newLab(t, 3)
	l.enable(0)
	status := func(i int) *rackbusv1.FabricSwitchStatus {
		return l.answer(t.Context(), i, OpStatus, nil).GetFabricStatus()
	}
	s := status(0)
	require.True(t, s.GetEnabled())
	require.Equal(t, "ok", s.GetManagerStatus())
	require.Contains(t, s.GetConfigError(), "has no MNNVL_TOPOLOGY")
	require.NotEmpty(t, s.GetEntries(), "what could be read is there")

	require.True(t, l.configure(t.Context(), topology).GetConfigured())
	s = status(0)
	require.Equal(t, topology, s.GetTopology())
	require.Empty(t, s.GetConfigError())
	require.Len(t, s.GetEntries(), 4)
	require.Equal(t, "FABRIC_MODE", s.GetEntries()[0].GetKey())

	s = status(1)
	require.False(t, s.GetEnabled())
	require.Empty(t, s.GetError()+s.GetConfigError()+s.GetTopology())

	l.switches[2].SetKnobs(nvswitch.Knobs{Refuse: []string{"nvue"}})
	require.NotEmpty(t, status(2).GetError())
	l.switches[0].SetKnobs(nvswitch.Knobs{Refuse: []string{"nmxc"}})
	require.Contains(t, status(0).GetConfigError(), "unreachable")
	before := l.last()
	status(0)
	require.Empty(t, l.writes("", before), "reading changes nothing")
}
