// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/switchtls"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nvue"
	"github.com/rackbus/rackbus/sim/faults"
	"github.com/rackbus/rackbus/sim/nvswitch"
)

func (l *lab) configure(ctx context.Context, topology string) *rackbusv1.FabricManagerReply {
	l.t.Helper()
	return l.answer(ctx, 0, OpConfigure, &rackbusv1.NodeRequest{
		SwitchOperation: &rackbusv1.NodeRequest_FabricManager{FabricManager: &rackbusv1.FabricManagerRequest{Topology: topology}},
	}).GetFabricManager()
}

func TestConfigureManager(t *testing.T) {
	t.Parallel()
	for name, secure := range map[string]bool{"plaintext": false, "mutual TLS": true} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, 1)
			if secure {
				l.protect("nvue", "nmxc")
			}
			out := l.configure(t.Context(), topology)
			require.True(t, out.GetConfigured() && out.GetStateEnabled() && out.GetGrpcEnabled(), out)
			require.Equal(t, topology, out.GetTopologyUsed())
			require.NotContains(t, out.GetMessage(), "already")
			require.Equal(t, topology, l.switches[0].StaticConfig("fm_config", "MNNVL_TOPOLOGY"))

			before := l.last()
			out = l.configure(t.Context(), topology)
			require.True(t, out.GetConfigured())
			require.Contains(t, out.GetMessage(), "already")
			require.Empty(t, l.writes("", before))
		})
	}
}

func TestConfigureManagerFails(t *testing.T) {
	t.Parallel()
	hello := nvswitch.Knobs{NMXC: nvswitch.NMXCKnobs{HelloUnavailable: -1}}
	for name, c := range map[string]struct {
		topology string
		knobs    nvswitch.Knobs
		rule     faults.Rule
		text     string
		enabled  bool
		grpc     bool
		restarts int
	}{
		"no topology":        {topology: "unknown", text: "no topology", enabled: true},
		"hello refused":      {knobs: hello, text: "Unavailable", enabled: true},
		"cluster unreadable": {rule: faults.Rule{Selector: faults.Request("GET", "/nvue_v1/cluster"), Action: broken()}, text: "HTTP 500"},
		"never takes it": {
			knobs: nvswitch.Knobs{NMXC: nvswitch.NMXCKnobs{SetIgnored: true}}, text: "after 2 soft resets, a hard reset", enabled: true, restarts: 2,
		},
		"manager stuck": {knobs: nvswitch.Knobs{ManagerStuck: true}, text: "does not show the change", enabled: true},
		"port closed":   {knobs: nvswitch.Knobs{Refuse: []string{"nmxc"}}, text: "not ready for clients", enabled: true},
		"rollback fails": {
			knobs: hello, text: "gRPC was not switched off again", enabled: true, grpc: true,
			rule: faults.Rule{ID: "manager", Selector: faults.Request("GET", "/nvue_v1/cluster/apps/nmx-controller/manager"), Action: broken()},
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, 1, func(_ int, o *nvswitch.Options) { o.Knobs = c.knobs })
			l.timing.Converge.Times = 4
			if c.rule.ID != "" { // only from the greeting on, that is when the port was open once
				l.enable(0)
			}
			if c.rule.Selector.Path != "" {
				_, err := l.rules.Add(c.rule)
				require.NoError(t, err)
			}
			if c.topology == "" {
				c.topology = topology
			}
			out := l.configure(t.Context(), c.topology)
			require.False(t, out.GetConfigured())
			require.Contains(t, out.GetMessage(), c.text)
			require.Equal(t, c.enabled, out.GetStateEnabled())
			require.Equal(t, c.grpc, out.GetGrpcEnabled())
			require.Equal(t, c.restarts, count(l.writes("", 0), "@stop"))
			if c.enabled {
				require.Equal(t, stateEnabled, l.switches[0].Config("/cluster/state"), "the cluster stays on")
			}
			open := l.switches[0].App(nvue.AppController).Manager == stateEnabled
			require.Equal(t, c.grpc, open, "what the reply says is so")
		})
	}
}

func TestConfigureManagerAfterSoftReset(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	l.enable(0)
	l.switches[0].SetKnobs(nvswitch.Knobs{NMXC: nvswitch.NMXCKnobs{SetIgnored: true, SetIgnoredRestarts: 2}})
	require.True(t, l.configure(t.Context(), topology).GetConfigured())
	require.Equal(t, 2, count(l.writes("", 0), "@stop"))

	l = newLab(t, 1, func(_ int, o *nvswitch.Options) { o.Knobs.NMXC = nvswitch.NMXCKnobs{SetCode: 7, SetStores: true} })
	require.True(t, l.configure(t.Context(), topology).GetConfigured(), "what is read back counts")
}

// TestConfigureManagerInTime: the reply comes before the caller has gone, and the
// port is closed by then.
func TestConfigureManagerInTime(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	l.enable(0)
	l.switches[0].SetKnobs(nvswitch.Knobs{NMXC: nvswitch.NMXCKnobs{Delay: nvswitch.Duration(time.Minute)}})
	l.timing.Rollback = 4 * time.Second
	ctx, cancel := context.WithTimeout(t.Context(), 3500*time.Millisecond)
	defer cancel()
	out := l.configure(ctx, topology)
	require.NoError(t, ctx.Err())
	require.False(t, out.GetConfigured())
	require.Contains(t, out.GetMessage(), "the request's time was over")
	require.False(t, out.GetGrpcEnabled())
	require.Equal(t, stateDisabled, l.switches[0].App(nvue.AppController).Manager)
}

func TestConfigureManagerWithoutMaterial(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	l.store = switchtls.NewStore(switchtls.Settings{ClientRoot: filepath.Join(t.TempDir(), "none"), DefaultDomain: "lab"})
	out := l.configure(t.Context(), topology)
	require.Contains(t, out.GetMessage(), "missing a file")
	require.False(t, out.GetStateEnabled())
	require.Empty(t, l.writes("", 0))
}

// TestClosingAnUnreadablePort: it may be open.
func TestClosingAnUnreadablePort(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	l.enable(0)
	_, err := l.rules.Add(faults.Rule{Selector: faults.Request("GET", "/nvue_v1/cluster/apps/nmx-controller/manager"), Action: broken()})
	require.NoError(t, err)
	_, err = l.cluster(0).SetGRPC(t.Context(), nvue.AppController, false)
	require.ErrorIs(t, err, ErrUnreadable)
	l.rules.Clear()

	l.switches[0].SetApp(nvue.AppController, false, stateEnabled)
	changed, err := l.cluster(0).SetGRPC(t.Context(), nvue.AppController, false)
	require.NoError(t, err, "an app that is not there has no port")
	require.False(t, changed)
	l.switches[0].SetApp(nvue.AppController, true, "active")
	changed, err = l.cluster(0).SetGRPC(t.Context(), nvue.AppController, false)
	require.NoError(t, err)
	require.True(t, changed)
}

// TestStoppedAppIsStarted: a controller that somebody stopped is started, once.
func TestStoppedAppIsStarted(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	l.enable(0)
	c := l.cluster(0)
	_, err := c.api().RunAction(t.Context(), nvue.StopApp(nvue.AppController))
	require.NoError(t, err)
	before := l.last()
	_, err = c.SetGRPC(t.Context(), nvue.AppController, true)
	require.NoError(t, err)
	require.NoError(t, c.AwaitReady(t.Context(), nvue.AppController))
	require.Equal(t, 1, count(l.writes("", before), "@start"))
}

func TestBind(t *testing.T) {
	t.Parallel()
	encryption := faults.Request("POST", "/nvue_v1/cluster/apps/nmx-controller/manager/encryption")
	for name, c := range map[string]struct {
		code  int
		fails bool
		ssh   int
	}{
		"ok": {}, "overwhelmed": {code: 503, ssh: 1}, "refused": {code: 400, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, 1).protect("nvue")
			if c.code != 0 {
				_, err := l.rules.Add(faults.Rule{Selector: encryption, Action: faults.Action{Status: &faults.Status{Code: c.code}}})
				require.NoError(t, err)
			}
			err := l.cluster(0).Bind(t.Context(), nvue.AppController, "lab", "lab")
			require.Equal(t, c.fails, err != nil, err)
			require.Equal(t, c.ssh, count(l.writes("", 0), "EXEC "+cmdEncrypt(nvue.AppController)))
			if c.fails {
				return
			}
			before := l.last()
			require.NoError(t, l.cluster(0).Bind(t.Context(), nvue.AppController, "lab", "lab"))
			require.Empty(t, l.writes("", before), "what is bound stays")
			require.ErrorIs(t, l.cluster(0).VerifyBinding(t.Context(), nvue.AppController, "other", "lab"), ErrNotConverged)
		})
	}
}
