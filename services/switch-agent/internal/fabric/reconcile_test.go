// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/failpoint"
	"github.com/rackbus/rackbus/pkg/job"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nvue"
	"github.com/rackbus/rackbus/sim/faults"
	"github.com/rackbus/rackbus/sim/nvswitch"
)

func TestReconcile(t *testing.T) {
	t.Parallel()
	for name, secure := range map[string]bool{"plaintext": false, "mutual TLS": true} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, 3)
			if secure {
				l.protect("nvue", "nmxc")
			}
			l.enable(1)
			extras := func(c *rackbusv1.FabricReconcile) {
				c.Extras = []*rackbusv1.FabricEntry{
					{File: "sm_config", Key: "sweep_interval", Value: "20"}, {File: "fm_config", Key: "LOG_LEVEL", Value: "7"},
				}
			}
			r := l.fabric(extras)
			doc := r.completed()
			require.Equal(t, topology, doc.Topology)
			require.Contains(t, doc.Extras, documentEntry{"sm_config", "sweep_interval", "20"})
			require.Equal(t, []documentSwitch{
				{NodeID: "sw-1", Enabled: true, Manager: "ok"}, {NodeID: "sw-2", Manager: "stopped"}, {NodeID: "sw-3", Manager: "stopped"},
			}, doc.Switches)
			require.Empty(t, doc.SDN)
			require.Equal(t, stateDisabled, l.switches[1].Config("/cluster/state"))
			require.Equal(t, stateEnabled, l.switches[0].SavedConfig("/cluster/state"))
			require.Equal(t, "7", l.switches[0].StaticConfig("fm_config", "LOG_LEVEL"))
			require.Equal(t, 1, count(l.writes("sw-1", 0), "@stop"), "an entry of fm_config counts after a restart")
			require.Subset(t, r.texts, []string{
				"Taking a snapshot of the fabric", "Selecting the primary switch", "Disabling non-primary switches",
				"Enforcing NMX-C security", "Reading the fabric back",
			})

			before := l.last()
			require.Equal(t, doc, l.fabric(extras).completed())
			require.Empty(t, l.writes("", before), "the second run changes nothing")
		})
	}
}

func TestReconcileChoosesThePrimary(t *testing.T) {
	t.Parallel()
	l := newLab(t, 3, func(i int, o *nvswitch.Options) { o.Slot = 2 - i })
	doc := l.fabric().completed()
	require.True(t, doc.Switches[2].Enabled, "the lowest tray")

	doc = l.fabric(func(c *rackbusv1.FabricReconcile) {
		c.PrimaryNodeId = "sw-2"
		c.Switches[1].FmConfig = map[string]string{"FABRIC_MODE": "3"}
		c.Switches[0].FmConfig = map[string]string{"FABRIC_MODE": "9"}
	}).completed()
	require.True(t, doc.Switches[1].Enabled)
	require.False(t, doc.Switches[2].Enabled)
	require.Contains(t, doc.Extras, documentEntry{"fm_config", "FABRIC_MODE", "3"})
	require.Equal(t, "1", l.switches[0].StaticConfig("fm_config", "FABRIC_MODE"))
}

// TestReconcileRefuses: whatever is wrong before the first change changes nothing.
func TestReconcileRefuses(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2)
	for name, c := range map[string]struct {
		change func(*rackbusv1.FabricReconcile)
		knobs  nvswitch.Knobs
		code   job.FailureCode
		text   string
	}{
		"unknown primary": {change: func(c *rackbusv1.FabricReconcile) { c.PrimaryNodeId = "sw-9" }, code: job.FailureInvalidArgument, text: "sw-9"},
		"duplicate entry": {change: func(c *rackbusv1.FabricReconcile) {
			c.PrimaryNodeId, c.Extras = "sw-1", []*rackbusv1.FabricEntry{{File: "fm_config", Key: "A", Value: "1"}}
			c.Switches[0].FmConfig = map[string]string{"A": "2"}
		}, code: job.FailureInvalidArgument, text: "twice"},
		"topology as entry": {change: func(c *rackbusv1.FabricReconcile) {
			c.PrimaryNodeId, c.Switches[0].FmConfig = "sw-1", map[string]string{"MNNVL_TOPOLOGY": "x"}
		}, code: job.FailureInvalidArgument, text: "topology"},
		"mixed racks": {change: func(c *rackbusv1.FabricReconcile) { c.Switches[1].Target.NodeType = "switch_vrnvl72_nvidia" },
			code: job.FailureInvalidArgument, text: "VR NVL72"},
		"switch away": {change: func(*rackbusv1.FabricReconcile) {}, knobs: nvswitch.Knobs{Refuse: []string{"nvue"}},
			code: job.FailureHostUnreachable, text: "sw-2"},
	} {
		t.Run(name, func(t *testing.T) {
			l.switches[1].SetKnobs(c.knobs)
			f := failureOf(t, l.fabric(c.change).end())
			require.Equal(t, c.code, f.FailureCode)
			require.Contains(t, f.Message, c.text)
		})
	}
	require.Empty(t, l.writes("", 0))
	require.Equal(t, stateDisabled, l.switches[0].Config("/cluster/state"))
}

func TestReconcileBindsTheCertificatesOfNVUE(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2).protect("nvue")
	doc := l.fabric().completed()
	require.Equal(t, topology, doc.Topology)
	app := l.switches[0].App(nvue.AppController)
	require.Equal(t, []string{"lab", "lab", "mtls"}, []string{app.Certificate, app.Authority, app.Encryption})

	before := l.last()
	l.fabric().completed()
	require.Empty(t, l.writes("", before))
}

func TestReconcileWithoutCertificates(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2).protect("nvue")
	// The switch has the API certificate but demands no client certificates.
	l.switches[0].SetConfig("/system/api", map[string]any{"mtls": map[string]any{"ca-certificate": nil}})
	l.enable(1)
	e := l.fabric(func(c *rackbusv1.FabricReconcile) { c.PrimaryNodeId = "sw-1" }).end()
	f := failureOf(t, e)
	require.Equal(t, job.FailurePreconditionFailed, f.FailureCode)
	require.Contains(t, f.Message, "ConfigureSwitchCertificate")
	require.Contains(t, f.Message, "the prior state was restored")
	require.Equal(t, stateDisabled, l.switches[0].Config("/cluster/state"))
	require.Equal(t, stateEnabled, l.switches[1].Config("/cluster/state"))
	require.Equal(t, stateDisabled, l.switches[0].App(nvue.AppController).Manager)
	require.Empty(t, e.ResultJSON)
}

func TestReconcileTurnsEncryptionOff(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1).protect("nmxc")
	l.store, l.secure = newLab(t, 0).store, false
	l.enable(0)
	l.fabric().completed()
	require.Equal(t, encryptionOff, l.switches[0].App(nvue.AppController).Encryption)
	require.Equal(t, []string{"EXEC nv action restore cluster apps nmx-controller manager encryption",
		"EXEC nv config apply --assume-yes", "EXEC nv config save", "CALL /nmx_c.NMX_Controller/SetStaticConfig"}, l.writes("sw-1", 0))

	// The action has left nothing to apply, which NVOS calls a failure.
	l = newLab(t, 1).protect("nmxc")
	l.store, l.secure = newLab(t, 0).store, false
	l.enable(0)
	l.switches[0].SetKnobs(nvswitch.Knobs{Commands: []nvswitch.CommandRule{
		{Match: "config apply", Answer: true, Exit: 1, Stderr: "config apply executed with no config diff"},
	}})
	l.fabric().completed()
}

func TestReconcileWithoutTrayIndex(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2)
	_, err := l.rules.Add(faults.Rule{
		Device: "sw-2", Selector: faults.Request("GET", "/nvue_v1/platform/chassis-location"),
		Action: faults.Action{JSONMerge: json.RawMessage(`{"tray-index":null}`)},
	})
	require.NoError(t, err)
	f := failureOf(t, l.fabric().end())
	require.Equal(t, job.FailurePreconditionFailed, f.FailureCode)
	require.Contains(t, f.Message, "switch sw-2")
	require.Contains(t, f.Message, "nothing was changed")
	require.Empty(t, l.writes("", 0))
	l.fabric(func(c *rackbusv1.FabricReconcile) { c.PrimaryNodeId = "sw-2" }).completed()
}

// TestReconcileOfTwoFabrics: several switches that manage a fabric end as one.
func TestReconcileOfTwoFabrics(t *testing.T) {
	t.Parallel()
	l := newLab(t, 3)
	l.enable(0)
	l.enable(2)
	doc := l.fabric().completed()
	require.Equal(t, []bool{true, false, false}, []bool{doc.Switches[0].Enabled, doc.Switches[1].Enabled, doc.Switches[2].Enabled})
}

// TestReadBackFindsAnotherManager: somebody else switched one on meanwhile.
func TestReadBackFindsAnotherManager(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2)
	r := l.fabric()
	r.opts.Failpoints = &failpoint.Points{}
	r.opts.Failpoints.Arm(Point(stageReadBack), 1, func() error { l.enable(1); return nil })
	e := r.end()
	f := failureOf(t, e)
	require.Equal(t, stageReadBack, f.Phase)
	require.Contains(t, f.Message, "switch sw-2 takes part")
	var partial document
	require.NoError(t, json.Unmarshal([]byte(e.ResultJSON), &partial))
	require.True(t, partial.Switches[1].Enabled)
	require.Equal(t, stateDisabled, l.switches[1].Config("/cluster/state"), "as it was before")
}
