// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/failpoint"
	"github.com/rackbus/rackbus/pkg/job"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/services/switch-agent/internal/crashtest"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nvue"
	"github.com/rackbus/rackbus/sim/faults"
	"github.com/rackbus/rackbus/sim/nvswitch"
	"github.com/rackbus/rackbus/sim/reqlog"
)

func TestControllerThatDoesNotConverge(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault    nvswitch.ControllerFault
		restarts int
		ends     bool
	}{
		"helped by a restart": {nvswitch.ControllerFault{State: nvue.ControlPlaneUnconfigured, Restarts: 2}, 1, true},
		"stuck":               {nvswitch.ControllerFault{State: nvue.ControlPlaneUnconfigured}, 1, false},
		"tells no state":      {nvswitch.ControllerFault{}, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, 2, func(_ int, o *nvswitch.Options) { o.Knobs.Controller = &c.fault })
			l.enable(1)
			r := l.fabric(func(c *rackbusv1.FabricReconcile) { c.PrimaryNodeId = "sw-1" })
			if c.ends {
				require.Equal(t, topology, r.completed().Topology)
			} else {
				f := failureOf(t, r.end())
				require.Equal(t, stageConfigure, f.Phase)
				require.Equal(t, job.FailureTaskTimeout, f.FailureCode)
				require.Contains(t, f.Message, "MNNVL_TOPOLOGY had no value before")
				require.Equal(t, []string{stateDisabled, stateEnabled},
					[]string{l.switches[0].Config("/cluster/state"), l.switches[1].Config("/cluster/state")})
			}
			require.Equal(t, c.restarts, count(l.writes("sw-1", 0), "@stop"))
		})
	}
}

func TestEntriesOfOtherFilesNeedNoRestart(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	l.fabric(func(c *rackbusv1.FabricReconcile) {
		c.Extras = []*rackbusv1.FabricEntry{{File: "sm_config", Key: "log_flags", Value: "0xff"}}
	}).completed()
	require.Equal(t, "0xff", l.switches[0].StaticConfig("sm_config", "log_flags"))
	require.Zero(t, count(l.writes("", 0), "@stop"))
}

func TestControllerThatRefusesEntries(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1, func(_ int, o *nvswitch.Options) { o.Knobs.NMXC = nvswitch.NMXCKnobs{SetCode: 3, SetStores: true} })
	l.fabric().completed()

	l = newLab(t, 1, func(_ int, o *nvswitch.Options) { o.Knobs.NMXC = nvswitch.NMXCKnobs{SetIgnored: true} })
	l.enable(0)
	f := failureOf(t, l.fabric().end())
	require.Contains(t, f.Message, "did not take")
	require.Equal(t, 2, count(l.writes("", 0), "@stop"), "two soft resets")
	require.Equal(t, stateEnabled, l.switches[0].App(nvue.AppController).Manager)
}

// TestFormerValuesComeBack: what was changed in the static configuration is undone
// too.
func TestFormerValuesComeBack(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	l.fabric().completed()
	r := l.fabric(func(c *rackbusv1.FabricReconcile) {
		c.Topology = "gb200_nvl72r1_c2g4_topology"
		c.Extras = []*rackbusv1.FabricEntry{{File: "fm_config", Key: "LOG_LEVEL", Value: "9"}}
	})
	r.failAt(t, stageReadBack, faults.Rule{Device: "sw-1", Selector: faults.Request("GET", "/nvue_v1/cluster"), Action: broken(), Remaining: 1})
	e := r.end()
	f := failureOf(t, e)
	require.Contains(t, f.Message, "the prior state was restored")
	require.Equal(t, topology, l.switches[0].StaticConfig("fm_config", "MNNVL_TOPOLOGY"))
	require.Equal(t, "4", l.switches[0].StaticConfig("fm_config", "LOG_LEVEL"))
	require.Equal(t, 2, count(l.writes("", 0), "@stop"), "one for the new value, one for the old")
	require.Equal(t, stateEnabled, l.switches[0].Config("/cluster/state"))

	var partial document
	require.NoError(t, json.Unmarshal([]byte(e.ResultJSON), &partial))
	require.Equal(t, "gb200_nvl72r1_c2g4_topology", partial.Topology)
	require.NotEmpty(t, partial.Switches[0].Error)
}

func broken() faults.Action { return faults.Action{Status: &faults.Status{Code: 500}} }

// failAt arms a fault at the begin of a stage.
func (r *run) failAt(t *testing.T, stage string, rules ...faults.Rule) {
	r.opts.Failpoints = &failpoint.Points{}
	r.opts.Failpoints.Arm(Point(stage), 1, func() error {
		for _, rule := range rules {
			if _, err := r.l.rules.Add(rule); err != nil {
				t.Error(err)
			}
		}
		return nil
	})
}

// vera is a lab of three VR NVL72 switches, of which the second is in a fabric.
func vera(t *testing.T) *lab {
	t.Helper()
	l := newLab(t, 3, func(_ int, o *nvswitch.Options) { o.Model = nvswitch.VRNVL72 })
	l.enable(1)
	l.switches[1].SetConfig("/cluster/node/primary/server", map[string]any{"192.0.2.1": map[string]any{}, "192.0.2.2": map[string]any{}})
	l.switches[1].SetConfig("/cluster/node/secondary/server", map[string]any{"192.0.2.9": map[string]any{}})
	return l
}

func withSecondary(c *rackbusv1.FabricReconcile) {
	c.PrimaryNodeId = "sw-1"
	for i, s := range c.Switches {
		s.SecondaryAddress = []string{"198.51.100.1", "198.51.100.2", "198.51.100.3"}[i]
	}
}

func (l *lab) requireFormer(t *testing.T) {
	t.Helper()
	var states []string
	for _, sw := range l.switches {
		states = append(states, sw.Config("/cluster/state"))
	}
	require.Equal(t, []string{stateDisabled, stateEnabled, stateDisabled}, states)
	require.Empty(t, l.switches[0].Servers("primary"))
	require.Empty(t, l.switches[0].Servers("secondary"))
	require.Equal(t, []string{"192.0.2.1", "192.0.2.2"}, l.switches[1].Servers("primary"))
	require.Equal(t, []string{"192.0.2.9"}, l.switches[1].Servers("secondary"))
	require.Equal(t, stateDisabled, l.switches[0].App(nvue.AppController).Manager)
}

func TestNodeServers(t *testing.T) {
	t.Parallel()
	l := vera(t)
	doc := l.fabric(withSecondary).completed()
	require.Equal(t, bridgesOK, doc.SDN)
	require.Equal(t, []string{"127.0.0.1", "127.0.0.2", "127.0.0.3"}, l.switches[0].Servers("primary"))
	require.Equal(t, []string{"198.51.100.1", "198.51.100.2", "198.51.100.3"}, l.switches[0].Servers("secondary"))
	require.Empty(t, l.switches[1].Servers("primary"))
	require.Empty(t, l.switches[1].Servers("secondary"))
	require.Equal(t, stateDisabled, l.switches[1].Config("/cluster/state"))

	before := l.last()
	require.Equal(t, doc, l.fabric(withSecondary).completed())
	require.Empty(t, l.writes("", before))

	// One address that has gone makes the set be replaced, one more only added.
	l.switches[0].SetConfig("/cluster/node/primary/server", map[string]any{"192.0.2.7": map[string]any{}})
	l.switches[0].SetConfig("/cluster/node/secondary/server", map[string]any{"198.51.100.2": nil})
	l.fabric(withSecondary).completed()
	lines := l.writes("sw-1", before)
	require.Equal(t, 1, count(lines, "DELETE /nvue_v1/cluster/node/primary"))
	require.Equal(t, 1, count(lines, "PATCH /nvue_v1/cluster/node/secondary"))
	require.Zero(t, count(lines, "DELETE /nvue_v1/cluster/node/secondary"))
	require.Equal(t, []string{"127.0.0.1", "127.0.0.2", "127.0.0.3"}, l.switches[0].Servers("primary"))
}

func TestSecondaryAddressesAreChecked(t *testing.T) {
	t.Parallel()
	l := vera(t)
	for _, address := range []string{"127.0.0.2", "198.51.100.2"} {
		f := failureOf(t, l.fabric(withSecondary, func(c *rackbusv1.FabricReconcile) { c.Switches[0].SecondaryAddress = address }).end())
		require.Equal(t, job.FailureInvalidArgument, f.FailureCode)
		require.Contains(t, f.Message, "secondary address")
	}
	require.Empty(t, l.writes("", 0))
}

func TestBridgesNeverFailTheJob(t *testing.T) {
	t.Parallel()
	l := vera(t)
	l.fabric(withSecondary).completed()
	for fault, text := range map[nvswitch.SDNReport]string{
		nvswitch.SDNReportStale: "no new report", nvswitch.SDNReportBadName: "none of a report", nvswitch.SDNReportMalformed: "not readable",
		nvswitch.SDNReportDown: "DISCONNECTED", nvswitch.SDNReportNoPeer: "no connection to 127.0.0.1", nvswitch.SDNReportMismatch: "chassis mismatch: true",
	} {
		l.switches[0].SetKnobs(nvswitch.Knobs{SDNReport: fault})
		require.Contains(t, l.fabric(withSecondary).completed().SDN, text, fault)
	}
	l.switches[0].SetKnobs(nvswitch.Knobs{SDNPeerStates: map[string]any{"kaState": nil}})
	require.Contains(t, l.fabric(withSecondary).completed().SDN, "(no state)")
}

// TestControllerThatStartsBehindItsPort: on VR NVL72 it is greeted again.
func TestControllerThatStartsBehindItsPort(t *testing.T) {
	t.Parallel()
	l := vera(t)
	l.fabric(withSecondary).completed()
	l.switches[0].SetKnobs(nvswitch.Knobs{NMXC: nvswitch.NMXCKnobs{HelloUnavailable: 3}})
	before := l.last()
	l.fabric(withSecondary).completed()
	require.Empty(t, l.writes("", before))

	plain := newLab(t, 1)
	plain.fabric().completed()
	plain.switches[0].SetKnobs(nvswitch.Knobs{NMXC: nvswitch.NMXCKnobs{HelloUnavailable: -1}})
	require.Equal(t, stageConfigure, failureOf(t, plain.fabric().end()).Phase)
	require.Len(t, plain.log.Select(reqlog.Filter{Path: "**/Hello"}), 2+2, "two in the job that ends well, two looks of the other")
}

// TestFailureInEveryStage: whatever fails once something was changed, the fabric is
// brought back, in this order: servers, gRPC port, states.
func TestFailureInEveryStage(t *testing.T) {
	t.Parallel()
	get := func(device, path string) faults.Rule {
		return faults.Rule{Device: device, Selector: faults.Request("GET", "/nvue_v1"+path), Action: broken(), Remaining: 1}
	}
	// States and servers are polled, so that all looks of one wait have to fail.
	for stage, rule := range map[string]faults.Rule{
		stageClear:     {Device: "sw-2", Selector: faults.Request("POST", "/nvue_v1/revision"), Action: broken(), Remaining: 1},
		stageDisable:   get("sw-3", "/cluster"),
		stageEnable:    get("sw-1", "/cluster"),
		stageServers:   get("sw-1", "/cluster/node/secondary/server"),
		stageSecurity:  get("sw-1", "/cluster/apps/nmx-controller"),
		stageConfigure: get("sw-1", "/cluster"),
		stageReadBack:  get("sw-3", "/cluster"),
		stageVerify:    get("sw-1", "/cluster/node/primary/server"),
	} {
		t.Run(stage, func(t *testing.T) {
			t.Parallel()
			l := vera(t)
			r := l.fabric(withSecondary)
			r.failAt(t, stage, rule)
			e := r.end()
			f := failureOf(t, e)
			require.Equal(t, stage, f.Phase, f.Message)
			require.Contains(t, r.texts, textRestoring)
			l.requireFormer(t)
			for _, s := range r.stages {
				if s.Name == stage {
					require.Equal(t, job.StageFailed, s.Status)
				}
			}
			if slices.Index(StageNames(), stage) <= slices.Index(StageNames(), stageConfigure) {
				require.Contains(t, f.Message, "the prior state was restored")
				require.Empty(t, e.ResultJSON)
			} else {
				require.Contains(t, f.Message, "not restored: static configuration")
			}
		})
	}
}

// TestOrderOfRestoration looks at what is sent for a failure late in the job.
func TestOrderOfRestoration(t *testing.T) {
	t.Parallel()
	l := vera(t)
	r := l.fabric(withSecondary)
	var from uint64
	r.opts.Failpoints = &failpoint.Points{}
	r.opts.Failpoints.Arm(Point(stageVerify), 1, func() error {
		from = l.last()
		_, err := l.rules.Add(faults.Rule{Device: "sw-1", Selector: faults.Request("GET", "/nvue_v1/cluster/node/primary/server"), Action: broken(), Remaining: 1})
		return err
	})
	failureOf(t, r.end())
	var order []string
	for _, line := range l.writes("", from) {
		for _, part := range []string{"sw-1 DELETE /nvue_v1/cluster/node/primary", "sw-2 PATCH /nvue_v1/cluster/node/primary/server",
			"sw-1 POST /nvue_v1/cluster/apps/nmx-controller/manager", "sw-1 PATCH /nvue_v1/cluster"} {
			if line == part || line == part+" @update" {
				order = append(order, part)
			}
		}
	}
	require.Len(t, order, 4)
	require.ElementsMatch(t, []string{"sw-1 DELETE /nvue_v1/cluster/node/primary", "sw-2 PATCH /nvue_v1/cluster/node/primary/server"}, order[:2])
	require.Equal(t, []string{"sw-1 POST /nvue_v1/cluster/apps/nmx-controller/manager", "sw-1 PATCH /nvue_v1/cluster"}, order[2:])
}

// TestUnreadableManagerIsNotClosed: a port of which nothing was known before is left
// alone, and that is told.
func TestUnreadableManagerIsNotClosed(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	r := l.fabric()
	r.failAt(t, stageSecurity,
		faults.Rule{Selector: faults.Request("GET", "/nvue_v1/cluster/apps/nmx-controller/manager"), Action: broken(), Remaining: 1},
		faults.Rule{Selector: faults.Request("GET", "/nvue_v1/cluster"), Action: broken(), Remaining: 1})
	f := failureOf(t, r.end())
	require.Contains(t, f.Message, "could not be read before")
}

// TestRunLimit: a job whose time is over restores the fabric before it ends.
func TestRunLimit(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2, func(_ int, o *nvswitch.Options) {
		o.Knobs.Controller = &nvswitch.ControllerFault{State: nvue.ControlPlaneUnconfigured}
	})
	l.enable(1)
	l.timing.Configured = time.Minute
	r := l.fabric(func(c *rackbusv1.FabricReconcile) { c.PrimaryNodeId = "sw-1" })
	r.opts.Command.RunLimitSeconds = 3
	f := failureOf(t, r.end())
	require.Equal(t, job.FailureDeadlineExceeded, f.FailureCode)
	require.Equal(t, []string{stateDisabled, stateEnabled},
		[]string{l.switches[0].Config("/cluster/state"), l.switches[1].Config("/cluster/state")})
}

func TestCancel(t *testing.T) {
	t.Parallel()
	t.Run("before the first change", func(t *testing.T) {
		l := vera(t)
		r := l.fabric(withSecondary)
		cancel := make(chan struct{})
		r.opts.Cancel, r.opts.Failpoints = cancel, &failpoint.Points{}
		r.opts.Failpoints.Arm(Point(stagePlan), 1, func() error { close(cancel); return nil })
		e := r.end()
		require.Equal(t, job.StateCancelled, e.State)
		l.requireFormer(t)
		require.Empty(t, l.writes("", 0))
	})
	t.Run("before the certificates are bound", func(t *testing.T) {
		l := newLab(t, 1).protect("nvue")
		r := l.fabric()
		cancel := make(chan struct{})
		r.opts.Cancel, r.opts.Failpoints = cancel, &failpoint.Points{}
		r.opts.Failpoints.Arm(Point(stageSecurity), 1, func() error { close(cancel); return nil })
		e := r.end()
		require.Equal(t, job.StateCancelled, e.State)
		require.Contains(t, e.Failure.Message, "cancelled during "+stageSecurity+"; the prior state was restored")
		require.Equal(t, stateDisabled, l.switches[0].Config("/cluster/state"))
		require.Zero(t, count(l.writes("", 0), "/manager/certificate"))
	})
}

// TestCrashInEveryStage lets the process die at the begin of every stage and behind
// every change that must not be made twice. What is sent in all is the same as
// without a crash.
func TestCrashInEveryStage(t *testing.T) {
	t.Parallel()
	job := func(l *lab) *run {
		return l.fabric(withSecondary, func(c *rackbusv1.FabricReconcile) {
			c.Extras = []*rackbusv1.FabricEntry{{File: "fm_config", Key: "LOG_LEVEL", Value: "7"}}
		})
	}
	start := func(t *testing.T) *lab {
		l := vera(t).protect("nvue")
		l.settled(1)
		return l
	}
	clean := start(t)
	doc := job(clean).completed()
	want := clean.writes("", 0)
	slices.Sort(want)
	all := slices.Concat(crashtest.Times(PointBound, 1), crashtest.Times(PointActed, 2), crashtest.Times(PointKept, 2),
		crashtest.Times(PointRestarted, 1), crashtest.Times(PointWritten, 2), crashtest.Times(agent.FailAfterDone, 1),
		crashtest.InStages(Point(""), StageNames()...))
	for _, d := range crashtest.Pick(all,
		crashtest.Death{Point: PointBound, N: 1}, crashtest.Death{Point: PointActed, N: 2}, crashtest.Death{Point: PointWritten, N: 2},
		crashtest.Death{Point: Point(stageDisable), N: 1}, crashtest.Death{Point: Point(stageServers), N: 1},
		crashtest.Death{Point: Point(stageReadBack), N: 1},
	) {
		t.Run(d.String(), func(t *testing.T) {
			t.Parallel()
			l := start(t)
			r := job(l)
			require.True(t, r.crash(d.Point, d.N), "the point is reached")
			require.Equal(t, doc, r.completed())
			got := l.writes("", 0)
			slices.Sort(got)
			require.Equal(t, want, got)
		})
	}
}

// TestCrashWhileRestoring: who takes over goes on restoring, and the job still fails.
func TestCrashWhileRestoring(t *testing.T) {
	t.Parallel()
	for _, d := range crashtest.Pick(crashtest.Times(PointRestored, 5), crashtest.Death{Point: PointRestored, N: 2}) {
		t.Run(d.String(), func(t *testing.T) {
			t.Parallel()
			l := vera(t)
			r := l.fabric(withSecondary).keep()
			r.failAt(t, stageServers, faults.Rule{Device: "sw-1", Selector: faults.Request("GET", "/nvue_v1/cluster/node/secondary/server"), Action: broken(), Remaining: 1})
			r.opts.Failpoints.Arm(d.Point, d.N, func() error { return failpoint.ErrInjected })
			_, err := agent.RunDirect(t.Context(), r.opts)
			require.ErrorIs(t, err, agent.ErrInterrupted)
			r.opts.Failpoints = nil
			f := failureOf(t, r.end())
			require.Equal(t, stageServers, f.Phase)
			require.Equal(t, int32(500), f.Device.HTTPStatus)
			l.requireFormer(t)
		})
	}
}

// TestCrashBetweenApplyAndSave: what an owner has applied and not saved is saved by
// the next one, although it is in force already.
func TestCrashBetweenApplyAndSave(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2)
	l.enable(1)
	r := l.fabric(func(c *rackbusv1.FabricReconcile) { c.PrimaryNodeId = "sw-1" }).keep()
	_, err := l.rules.Add(faults.Rule{
		Device: "sw-2", Selector: faults.Request("PATCH", "/nvue_v1/revision/applied"), Remaining: 1,
		Action: faults.Action{Latency: &faults.Latency{Mean: time.Minute}},
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := agent.RunDirect(ctx, r.opts)
		done <- err
	}()
	_, err = l.log.WaitInFlight(t.Context(), reqlog.Filter{Device: "sw-2", Path: "/nvue_v1/revision/applied"})
	require.NoError(t, err)
	cancel()
	require.ErrorIs(t, <-done, agent.ErrInterrupted)
	require.Equal(t, stateDisabled, l.switches[1].Config("/cluster/state"))
	require.Equal(t, stateEnabled, l.switches[1].SavedConfig("/cluster/state"))
	r.completed()
	require.Equal(t, stateDisabled, l.switches[1].SavedConfig("/cluster/state"))
	require.Equal(t, 1, count(l.writes("sw-2", 0), "POST /nvue_v1/revision"))
}
