// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/services/switch-agent/internal/crashtest"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nvue"
	"github.com/rackbus/rackbus/sim/faults"
	"github.com/rackbus/rackbus/sim/nvswitch"
)

const sdnPath = "/nvue_v1/sdn/factory-default"

// configured is a lab of one switch that manages a fabric.
func configured(t *testing.T, k nvswitch.Knobs) *lab {
	t.Helper()
	l := newLab(t, 1)
	require.True(t, l.configure(t.Context(), topology).GetConfigured())
	require.Eventually(t, func() bool { return l.switches[0].App(nvue.AppController).Plane == nvue.ControlPlaneConfigured }, 20*time.Second, 5*time.Millisecond)
	l.switches[0].SetKnobs(k)
	return l
}

func TestResetSDN(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		knobs nvswitch.Knobs
		code  job.FailureCode
		text  string
	}{
		"seen at work":     {text: "SDN factory reset finished (action "},
		"never seen":       {knobs: nvswitch.Knobs{SDNReset: nvswitch.SDNResetQuiet}, text: "finished"},
		"gone after work":  {knobs: nvswitch.Knobs{SDNReset: nvswitch.SDNResetVanishes}, text: "finished"},
		"gone before":      {knobs: nvswitch.Knobs{SDNReset: nvswitch.SDNResetAbsent}, code: job.FailurePreconditionFailed, text: "never seen at its reset"},
		"tells no state":   {knobs: nvswitch.Knobs{SDNReset: nvswitch.SDNResetWithoutInfo}, code: job.FailurePreconditionFailed, text: "tells no state"},
		"never ends":       {knobs: nvswitch.Knobs{SDNReset: nvswitch.SDNResetStuck}, code: job.FailureTaskTimeout, text: "after its reset"},
		"action forgotten": {knobs: nvswitch.Knobs{Actions: []nvswitch.ActionRule{{Resource: "/sdn/**", Missing: true}}}, text: "finished"},
		"action without name": {
			knobs: nvswitch.Knobs{Actions: []nvswitch.ActionRule{{Resource: "/sdn/**", NoID: true}}}, text: "SDN factory reset finished",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := configured(t, c.knobs)
			r := l.sdn()
			e := r.end()
			if c.code != "" {
				f := failureOf(t, e)
				require.Equal(t, c.code, f.FailureCode)
				require.Contains(t, f.Message, c.text)
			} else {
				require.Equal(t, job.StateCompleted, e.State, "%+v", e.Failure)
				require.Contains(t, e.Description, c.text)
				require.Empty(t, l.switches[0].StaticConfig("fm_config", "MNNVL_TOPOLOGY"))
			}
			require.Empty(t, e.ResultJSON)
			require.Equal(t, 1, count(l.writes("", 0), sdnPath))
		})
	}
}

func TestResetSDNOfASwitchThatManagesNothing(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	f := failureOf(t, l.sdn().end())
	require.Equal(t, job.FailurePreconditionFailed, f.FailureCode)
	require.Contains(t, f.Message, "probably not the primary")
}

func TestResetSDNThatTheSwitchRefuses(t *testing.T) {
	t.Parallel()
	l := configured(t, nvswitch.Knobs{})
	_, err := l.rules.Add(faults.Rule{Selector: faults.Request("POST", sdnPath), Action: faults.Action{Status: &faults.Status{Code: 403}}})
	require.NoError(t, err)
	require.Equal(t, job.FailureHostAuthFailed, failureOf(t, l.sdn().end()).FailureCode)
	require.Equal(t, topology, l.switches[0].StaticConfig("fm_config", "MNNVL_TOPOLOGY"))
}

// TestResetSDNWithoutAnAnswer: a lost answer is judged by what the controller does.
func TestResetSDNWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cut   faults.Cut
		posts int
	}{
		"taken":     {faults.Cut{AfterExecute: true}, 1},
		"not taken": {faults.Cut{}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			l := configured(t, nvswitch.Knobs{})
			_, err := l.rules.Add(faults.Rule{Selector: faults.Request("POST", sdnPath), Action: faults.Action{Cut: &c.cut}, Remaining: 1})
			require.NoError(t, err)
			e := l.sdn().end()
			require.Equal(t, job.StateCompleted, e.State, "%+v", e.Failure)
			require.Equal(t, c.posts, count(l.writes("", 0), sdnPath))
		})
	}
}

// TestCrashOfAReset: the reset is sent once, wherever the process dies.
func TestCrashOfAReset(t *testing.T) {
	t.Parallel()
	all := slices.Concat(crashtest.Times(agent.FailAfterIntent, 1), crashtest.Times(agent.FailAfterDeviceChange, 1),
		crashtest.Times(agent.FailAfterDone, 1), crashtest.InStages(Point(""), SDNStageNames()...))
	for _, d := range crashtest.Pick(all,
		crashtest.Death{Point: agent.FailAfterIntent, N: 1}, crashtest.Death{Point: agent.FailAfterDeviceChange, N: 1},
		crashtest.Death{Point: Point(stageController), N: 1},
	) {
		t.Run(d.String(), func(t *testing.T) {
			t.Parallel()
			l := configured(t, nvswitch.Knobs{})
			r := l.sdn()
			require.True(t, r.crash(d.Point, d.N), "the point is reached")
			e := r.end()
			require.Equal(t, job.StateCompleted, e.State, "%+v", e.Failure)
			require.Equal(t, 1, count(l.writes("", 0), sdnPath))
			require.Empty(t, l.switches[0].StaticConfig("fm_config", "MNNVL_TOPOLOGY"))
		})
	}
}

// TestCrashOfAResetNobodyCanJudge: a controller that was unconfigured before shows
// nothing, and the reset is not sent again.
func TestCrashOfAResetNobodyCanJudge(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	l.enable(0)
	r := l.sdn()
	require.True(t, r.crash(agent.FailAfterIntent, 1))
	require.Equal(t, job.FailureOutcomeUnknown, failureOf(t, r.end()).FailureCode)
	require.Zero(t, count(l.writes("", 0), sdnPath))
}
