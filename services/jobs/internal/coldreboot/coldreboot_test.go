// SPDX-License-Identifier: Apache-2.0

package coldreboot

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

// timeline is a result as clients read it.
type timeline struct {
	StageIndex int `json:"stage_index"`
	StageCount int `json:"stage_count"`
	Stages     []struct {
		Name, Status, Message string
		Description           string
		DurationMS            int64 `json:"duration_ms"`
		Details               map[string]any
	}
}

func resultOf(t *testing.T, o agent.Outcome) timeline {
	t.Helper()
	var tl timeline
	require.NoError(t, json.Unmarshal([]byte(o.ResultJSON), &tl), o.ResultJSON)
	require.Equal(t, 9, tl.StageCount)
	require.Len(t, tl.Stages, 9)
	return tl
}

// stage finds a stage of a result.
func (tl *timeline) stage(t *testing.T, name string) (status, message string, details map[string]any) {
	t.Helper()
	for _, s := range tl.Stages {
		if s.Name == name {
			return s.Status, s.Message, s.Details
		}
	}
	t.Fatalf("no stage %s", name)
	return "", "", nil
}

func requireFailure(t *testing.T, err error, code job.FailureCode) *job.Failure {
	t.Helper()
	var f *agent.FailureError
	require.ErrorAs(t, err, &f)
	require.Equal(t, code, f.Failure.FailureCode, f.Failure.Message)
	require.Equal(t, job.CodeOther, f.Failure.Code, "callers see the class other")
	return f.Failure
}

func TestWholeSequence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, f := newFakeRack(), newFakeTask()
		start := time.Now()
		o, err := f.run(t.Context(), r)
		require.NoError(t, err)
		require.Equal(t, Completed, o.Description)
		require.Equal(t, everyActionOnce, r.taken())
		tl := resultOf(t, o)
		require.Equal(t, 9, tl.StageIndex)
		for i, want := range []struct {
			name    string
			details map[string]any
			seconds int64
		}{
			{"prestage_shutdown_compute", map[string]any{"nodes": 2.0}, 0},
			{"prestage_verify_compute_down", map[string]any{}, 45},
			{"power_off_shelves", map[string]any{"nodes": 2.0}, 0},
			{"verify_discharged", map[string]any{}, 210}, // floor 180 s, two polls
			{"power_on_shelves", map[string]any{"nodes": 2.0}, 0},
			{"verify_bmc_up", map[string]any{}, 135},                   // floor 120 s, one poll
			{"verify_nvos_ready", map[string]any{"attempts": 3.0}, 90}, // 30 s and 60 s
			{"power_on_compute", map[string]any{"nodes": 2.0}, 0},
			{"wait_compute_boot", map[string]any{"waited_seconds": 300.0}, 300},
		} {
			require.Equal(t, want.name, tl.Stages[i].Name)
			require.Equal(t, "completed", tl.Stages[i].Status)
			require.Equal(t, want.details, tl.Stages[i].Details, want.name)
			require.Equal(t, want.seconds*1000, tl.Stages[i].DurationMS, want.name)
		}
		require.Equal(t, 780*time.Second, time.Since(start))
		require.Equal(t, []string{
			"Rack reboot step 0: Gracefully shutting down compute trays",
			"Rack reboot step 0: Waiting for compute trays to power down",
			"Rack reboot step 1: Powering off power shelves",
			"Rack reboot step 2-3: Waiting for capacitor discharge (tray BMCs unreachable)",
			"Rack reboot step 4: Powering on power shelves",
			"Rack reboot step 5-6: Waiting for tray BMCs to become reachable",
			"Rack reboot step 7-8: Waiting for switch NVOS readiness (nvue hello)",
			"Rack reboot step 10: Powering on compute nodes",
			"Rack reboot step 11-12: Waiting for compute OS boot",
		}, f.texts)
	})
}

func TestRequestReplacesWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, f := newFakeRack(), newFakeTask()
		r.shutdown, r.discharge, r.start, r.nvos = 0, 0, 0, 0
		f.cmd.GetColdReboot().Timing = &rackbusv1.ColdRebootTiming{
			PrestageShutdownFloor: 1, PrestageShutdownPollMax: 2, DischargeFloor: 4, DischargePollMax: 5,
			BmcUpFloor: 8, BmcUpPollMax: 9, NvosHelloBackoff: 3, ComputeBootWait: 16, PollInterval: 7,
		}
		start := time.Now()
		_, err := f.run(t.Context(), r)
		require.NoError(t, err)
		require.Equal(t, 29*time.Second, time.Since(start))
		require.Equal(t, Timing{
			PrestageFloor: time.Second, PrestagePollMax: 2 * time.Second, DischargeFloor: 4 * time.Second, DischargePollMax: 5 * time.Second,
			BMCUpFloor: 8 * time.Second, BMCUpPollMax: 9 * time.Second, HelloBackoff: 3 * time.Second, BootWait: 16 * time.Second,
			PollInterval: 7 * time.Second,
		}, Timing{}.with(f.cmd.GetColdReboot().GetTiming()))
	})
}

// TestLastProbeAtTheLimit: what comes true right at the limit is seen.
func TestLastProbeAtTheLimit(t *testing.T) {
	for name, c := range map[string]struct {
		shutdown time.Duration
		fails    bool
	}{"at the limit": {307 * time.Second, false}, "behind the limit": {309 * time.Second, true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, f := newFakeRack(), newFakeTask()
				r.shutdown = c.shutdown
				f.cmd.GetColdReboot().Timing = &rackbusv1.ColdRebootTiming{PrestageShutdownFloor: 8}
				start := time.Now()
				o, err := f.run(t.Context(), r)
				if !c.fails {
					require.NoError(t, err)
					return
				}
				require.Equal(t, 308*time.Second, time.Since(start))
				failure := requireFailure(t, err, job.FailurePowerStateTimeout)
				require.True(t, strings.HasPrefix(failure.Message, "prestage_verify_compute_down timed out after 300s"), failure.Message)
				require.Contains(t, failure.Message, "tray-1 reads ON; tray-2 reads ON")
				require.Equal(t, "prestage_verify_compute_down", failure.Phase)
				tl := resultOf(t, o)
				status, message, details := tl.stage(t, stageDown)
				require.Equal(t, "failed", status)
				require.Equal(t, failure.Message, message)
				require.Equal(t, 300.0, details["timeout_seconds"])
				status, _, _ = tl.stage(t, stageShelvesOff)
				require.Equal(t, "skipped", status)
				require.Equal(t, map[string][]string{tray1: {"GRACEFUL_SHUTDOWN"}, tray2: {"GRACEFUL_SHUTDOWN"}}, r.taken(),
					"no power action after a failed stage")
			})
		})
	}
}

// TestDischargeNeedsEvidence: neither an answer that says nothing nor a lost one
// counts as an unreachable controller.
func TestDischargeNeedsEvidence(t *testing.T) {
	answers := map[string]struct {
		answer func() (*rackbusv1.NodeReply, error)
		passes bool
	}{
		"UNKNOWN":             {func() (*rackbusv1.NodeReply, error) { return &rackbusv1.NodeReply{V: 1, PowerState: "UNKNOWN"}, nil }, false},
		"no power state":      {func() (*rackbusv1.NodeReply, error) { return &rackbusv1.NodeReply{V: 1}, nil }, false},
		"unreadable":          {func() (*rackbusv1.NodeReply, error) { return refuse("invalid_response", "no JSON"), nil }, false},
		"HTTP 503":            {func() (*rackbusv1.NodeReply, error) { return refuse("unavailable", "HTTP 503"), nil }, false},
		"slow":                {func() (*rackbusv1.NodeReply, error) { return refuse("timeout", "no answer in time"), nil }, false},
		"refused login":       {func() (*rackbusv1.NodeReply, error) { return refuse("unauthenticated", "HTTP 401"), nil }, false},
		"agent does not tell": {func() (*rackbusv1.NodeReply, error) { return nil, context.DeadlineExceeded }, false},
		"unreachable":         {func() (*rackbusv1.NodeReply, error) { return refuse("unreachable", "no route"), nil }, true},
		"own fault":           {func() (*rackbusv1.NodeReply, error) { return refuse("connection_refused", "too many open files"), nil }, false},
	}
	for name, c := range answers {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, f := newFakeRack(), newFakeTask()
				r.discharge = 0
				r.hook = func(op, id string, _ *rackbusv1.NodeRequest) (*rackbusv1.NodeReply, error) {
					r.mu.Lock()
					dark := !r.cutAt.IsZero() && r.fedAt.IsZero()
					r.mu.Unlock()
					if op != opPowerGet || id != switch1 || !dark {
						return nil, nil
					}
					return c.answer()
				}
				_, err := f.run(t.Context(), r)
				if c.passes {
					require.NoError(t, err)
					return
				}
				failure := requireFailure(t, err, job.FailurePowerStateTimeout)
				require.Contains(t, failure.Message, "verify_discharged timed out after 600s: switch-1 gives no power state")
				require.NotContains(t, failure.Message, "tray")
			})
		})
	}
}

func TestSwitchThatDoesNotComeUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, f := newFakeRack(), newFakeTask()
		r.nvos = time.Hour
		o, err := f.run(t.Context(), r)
		failure := requireFailure(t, err, job.FailureSwitchNotReady)
		require.Equal(t, "switch NVOS not ready: nvue hello failed after 5 attempts; unresponsive switches: switch-1", failure.Message)
		tl := resultOf(t, o)
		_, _, details := tl.stage(t, stageNVOS)
		require.Equal(t, 5.0, details["attempts"])
		require.Equal(t, []any{"switch-1"}, details["unresponsive_switches"])
		require.Equal(t, []string{"OFF", "ON"}, r.taken()[shelf1])
		require.Equal(t, []string{"GRACEFUL_SHUTDOWN"}, r.taken()[tray1])
	})
}

// TestNothingIsChangedWithoutAgents: a rack must not be taken down when nobody
// could bring it up.
func TestNothingIsChangedWithoutAgents(t *testing.T) {
	for _, family := range node.Families() {
		t.Run(string(family), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, f := newFakeRack(), newFakeTask()
				r.noAgent[family] = true
				start := time.Now()
				_, err := f.run(t.Context(), r)
				failure := requireFailure(t, err, job.FailureAgentLost)
				require.Equal(t, "no agent of the "+string(family)+" family answers power_get; nothing was changed", failure.Message)
				require.Empty(t, r.taken())
				require.Zero(t, time.Since(start), "at once")
			})
		})
	}
}

func TestRefusedActionsAreNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, f := newFakeRack(), newFakeTask()
		r.hook = func(op, id string, _ *rackbusv1.NodeRequest) (*rackbusv1.NodeReply, error) {
			switch {
			case op != opPowerSet || id == tray1 || id == tray2:
				return nil, nil
			case id == shelf1:
				return refuse("failed_precondition", "GracefulShutdown is not allowed"), nil
			}
			return refuse("unauthenticated", "HTTP 401"), nil
		}
		o, err := f.run(t.Context(), r)
		failure := requireFailure(t, err, job.FailurePowerActionFailed)
		require.Equal(t, "power_off_shelves failed: shelf-1: GracefulShutdown is not allowed; shelf-2: HTTP 401", failure.Message)
		tl := resultOf(t, o)
		_, _, details := tl.stage(t, stageShelvesOff)
		require.Equal(t, []any{"shelf-1: GracefulShutdown is not allowed", "shelf-2: HTTP 401"}, details["failures"])
		require.NotContains(t, r.taken(), shelf1)
	})
}

// TestRefusalOfWhatIsSoAlready: a tray that is down refuses to shut down.
func TestRefusalOfWhatIsSoAlready(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, f := newFakeRack(), newFakeTask()
		r.states[tray2] = "OFF"
		r.hook = func(op, id string, req *rackbusv1.NodeRequest) (*rackbusv1.NodeReply, error) {
			if op == opPowerSet && id == tray2 && req.GetPowerOperation() == int32(rackmanager.PowerOperation_POWER_OPERATION_GRACEFUL_SHUTDOWN) {
				return refuse("conflict", "already off"), nil
			}
			return nil, nil
		}
		_, err := f.run(t.Context(), r)
		require.NoError(t, err)
		require.Equal(t, []string{"ON"}, r.taken()[tray2])
	})
}

// TestLostAnswers: the state of the device decides, and nothing is repeated that
// it has taken.
func TestLostAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		// arrives says that the device takes the action although nobody hears of it;
		// tells is what is heard.
		arrives bool
		tells   func() (*rackbusv1.NodeReply, error)
		dark    bool
		fails   job.FailureCode
	}{
		"taken, no reply":          {true, func() (*rackbusv1.NodeReply, error) { return nil, context.DeadlineExceeded }, false, ""},
		"taken, the agent is lost": {true, func() (*rackbusv1.NodeReply, error) { return nil, errors.New("connection lost") }, false, ""},
		"taken, timeout at device": {true, func() (*rackbusv1.NodeReply, error) { return refuse("timeout", "no answer"), nil }, false, ""},
		"not taken, no reply":      {false, func() (*rackbusv1.NodeReply, error) { return nil, context.DeadlineExceeded }, false, ""},
		"not taken, timeout at device": {false, func() (*rackbusv1.NodeReply, error) { return refuse("timeout", "no answer"), nil },
			false, job.FailurePowerActionFailed},
		"unknown": {true, func() (*rackbusv1.NodeReply, error) { return nil, context.DeadlineExceeded }, true, job.FailureOutcomeUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, f := newFakeRack(), newFakeTask()
				lost := false
				r.hook = func(op, id string, req *rackbusv1.NodeRequest) (*rackbusv1.NodeReply, error) {
					if id != shelf2 {
						return nil, nil
					}
					r.mu.Lock()
					defer r.mu.Unlock()
					if op == opPowerGet && lost && c.dark {
						return refuse("unavailable", "HTTP 503"), nil
					}
					if op != opPowerSet || lost {
						return nil, nil
					}
					lost = true
					if c.arrives {
						r.take(id, rackmanager.PowerOperation(req.GetPowerOperation()))
					}
					return c.tells()
				}
				_, err := f.run(t.Context(), r)
				if c.fails == "" {
					require.NoError(t, err)
					require.Equal(t, everyActionOnce, r.taken())
					return
				}
				failure := requireFailure(t, err, c.fails)
				require.Contains(t, failure.Message, "power_off_shelves failed: shelf-2: ")
				require.LessOrEqual(t, len(r.taken()[shelf2]), 1)
			})
		})
	}
}

// TestAgentThatRestarts is waited for in the middle of a sequence.
func TestAgentThatRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, f := newFakeRack(), newFakeTask()
		f.points[Point(stageShelvesOn)] = func() error {
			r.mu.Lock()
			r.noAgent[node.FamilyPowerShelf] = true
			r.mu.Unlock()
			time.AfterFunc(20*time.Second, func() {
				r.mu.Lock()
				defer r.mu.Unlock()
				delete(r.noAgent, node.FamilyPowerShelf)
			})
			return nil
		}
		_, err := f.run(t.Context(), r)
		require.NoError(t, err)
		require.Equal(t, everyActionOnce, r.taken())
	})
	synctest.Test(t, func(t *testing.T) {
		r, f := newFakeRack(), newFakeTask()
		f.points[Point(stageShelvesOn)] = func() error {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.noAgent[node.FamilyPowerShelf] = true
			return nil
		}
		_, err := f.run(t.Context(), r)
		failure := requireFailure(t, err, job.FailurePowerActionFailed)
		require.Contains(t, failure.Message, "shelf-1: no agent of the powershelf family is connected")
	})
}

func TestUnusableCommands(t *testing.T) {
	f := newFakeTask()
	f.cmd.GetColdReboot().GetNodes()[0].NodeType = "toaster"
	_, err := f.run(t.Context(), newFakeRack())
	require.ErrorContains(t, err, `"toaster"`)
	f = newFakeTask()
	f.cmd.GetColdReboot().Nodes = f.cmd.GetColdReboot().GetNodes()[:2]
	_, err = f.run(t.Context(), newFakeRack())
	require.ErrorContains(t, err, "lacks")
}
