// SPDX-License-Identifier: Apache-2.0

package mtls_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/job"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/services/switch-agent/internal/runbook"
	"github.com/rackbus/rackbus/services/switch-agent/internal/security"
	"github.com/rackbus/rackbus/services/switch-agent/internal/security/mtls"
	"github.com/rackbus/rackbus/services/switch-agent/internal/security/securitytest"
	"github.com/rackbus/rackbus/sim/nvswitch"
	"github.com/rackbus/rackbus/sim/reqlog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	nvue      = string(security.ServiceNVUE)
	gnmi      = string(security.ServiceGNMI)
	manager   = string(security.ServiceManager)
	telemetry = string(security.ServiceTelemetry)
)

func disable(b *securitytest.Bench, services ...string) securitytest.Job {
	return securitytest.Job{
		Type: job.TypeSwitchMtlsDisable,
		Command: &rackbusv1.JobCommand{Operation: &rackbusv1.JobCommand_SwitchMtlsDisable{
			SwitchMtlsDisable: &rackbusv1.SwitchMtlsDisable{Services: services},
		}},
		Handler: mtls.Disable(mtls.Options{Switches: b.Switches, Pause: securitytest.Tick}),
	}
}

// lines are the command lines the switch got.
func lines(b *securitytest.Bench) []string {
	var out []string
	for _, e := range b.Sim.Requests(reqlog.Filter{Protocol: reqlog.SSH, Method: "EXEC"}) {
		out = append(out, e.Path)
	}
	return out
}

func decode(t *testing.T, e job.Event) map[string]any {
	t.Helper()
	var out map[string]any
	require.NoError(t, json.Unmarshal([]byte(e.ResultJSON), &out))
	return out
}

func clusterOn(b *securitytest.Bench) {
	b.Sim.SetConfig("/cluster", map[string]any{"state": "enabled"})
}

func TestDisable(t *testing.T) {
	t.Parallel()
	b := securitytest.New(t)
	clusterOn(b)
	b.Provision("nvue", "gnmi", "nmxc", "telemetry")
	e := b.Run(disable(b, nvue, gnmi, manager, telemetry, nvue))
	require.Equal(t, job.StateCompleted, e.State, "%+v", e.Failure)
	want := []string{
		"nv unset system api mtls ca-certificate", "nv unset system gnmi-server mtls certificate",
		"nv action restore cluster apps nmx-controller manager encryption",
		"nv action restore cluster apps nmx-telemetry manager encryption",
		"nv config apply --assume-yes", "nv config save",
	}
	require.Equal(t, want, lines(b))
	r := decode(t, e)
	require.Equal(t, "completed", r["status"])
	require.Equal(t, "unset_mtls", r["operation"])
	require.Equal(t, "disable-mtls", r["mode"])
	require.Equal(t, []any{nvue, gnmi, manager, telemetry}, r["services"])
	require.Len(t, r["commands"], len(want))
	stages := r["timing_summary"].(map[string]any)["stages"].([]any)
	require.Len(t, stages, 1)
	require.Equal(t, "unset_mtls_mode", stages[0].(map[string]any)["name"])
	require.Empty(t, b.Sim.Config("/system/api/mtls/ca-certificate"))
	require.Empty(t, b.Sim.SavedConfig("/system/api/mtls/ca-certificate"))
}

func TestTextExceptions(t *testing.T) {
	t.Parallel()
	const first, second = "nv unset system gnmi-server mtls certificate", "nv unset system gnmi-server mtls ca-certificate"
	for name, c := range map[string]struct {
		knobs    nvswitch.Knobs
		services []string
		lines    []string
		state    job.State
	}{
		"older form": {nvswitch.Knobs{GNMIUnset: nvswitch.GNMIUnsetCAOnly}, []string{gnmi},
			[]string{first, second, "nv config apply --assume-yes", "nv config save"}, job.StateCompleted},
		"schema absent": {nvswitch.Knobs{GNMIUnset: nvswitch.GNMIUnsetAbsent}, []string{gnmi}, []string{first, second}, job.StateCompleted},
		"schema absent, in double quotes": {nvswitch.Knobs{Commands: []nvswitch.CommandRule{
			{Match: "gnmi-server", Answer: true, Exit: 1, Stderr: `Error: "mtls" is not one of ["state"]`},
		}}, []string{gnmi}, []string{first, second}, job.StateCompleted},
		"schema absent, other services": {nvswitch.Knobs{GNMIUnset: nvswitch.GNMIUnsetAbsent}, []string{gnmi, nvue},
			[]string{first, second, "nv unset system api mtls ca-certificate", "nv config apply --assume-yes", "nv config save"}, job.StateCompleted},
		"both forms fail": {nvswitch.Knobs{Commands: []nvswitch.CommandRule{
			{Match: "gnmi-server", Answer: true, Exit: 1, Stderr: "Error: the daemon is away"},
		}}, []string{gnmi, nvue}, []string{first, second}, job.StateFailed},
		"cluster off": {nvswitch.Knobs{}, []string{manager},
			[]string{"nv action restore cluster apps nmx-controller manager encryption", "nv config apply --assume-yes", "nv config save"}, job.StateCompleted},
		"restore fails": {nvswitch.Knobs{Commands: []nvswitch.CommandRule{{Match: "restore", Answer: true, Exit: 1, Stderr: "Error: busy"}}},
			[]string{manager, nvue}, []string{"nv action restore cluster apps nmx-controller manager encryption"}, job.StateFailed},
		"nothing to apply": {nvswitch.Knobs{Commands: []nvswitch.CommandRule{
			{Match: "config apply", Answer: true, Exit: 1, Stderr: "config apply executed with no config diff"},
		}}, []string{nvue}, []string{"nv unset system api mtls ca-certificate", "nv config apply --assume-yes", "nv config save"}, job.StateCompleted},
		"apply fails": {nvswitch.Knobs{Revisions: []nvswitch.RevisionRule{{State: "invalid", Issue: "no such leaf"}}}, []string{nvue},
			[]string{"nv unset system api mtls ca-certificate", "nv config apply --assume-yes"}, job.StateFailed},
		"a cut proves nothing": {nvswitch.Knobs{Commands: []nvswitch.CommandRule{{Match: first, Cut: true}}}, []string{gnmi},
			[]string{first}, job.StateFailed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := securitytest.New(t)
			b.Provision("nvue", "gnmi")
			b.Sim.SetKnobs(c.knobs)
			e := b.Run(disable(b, c.services...))
			require.Equal(t, c.state, e.State, "%+v", e.Failure)
			require.Equal(t, c.lines, lines(b))
			r := decode(t, e)
			if c.state == job.StateCompleted {
				require.Len(t, r["commands"], len(c.lines))
				return
			}
			require.Equal(t, "failed", r["status"])
			require.NotContains(t, r, "commands")
		})
	}
}

func TestCancelBetweenTwoLines(t *testing.T) {
	t.Parallel()
	b := securitytest.New(t)
	b.Provision("nvue", "gnmi")
	j := disable(b, nvue, gnmi)
	j.Handler = mtls.Disable(mtls.Options{Switches: b.Switches, Pause: 2 * time.Second})
	stop := make(chan struct{})
	j.Cancel = stop
	b.Sim.SetKnobs(nvswitch.Knobs{})
	j.Events = func(e job.Event) {
		if len(e.Stages) > 0 && e.Stages[0].Status == job.StageRunning {
			select {
			case <-stop:
			default:
				close(stop)
			}
		}
	}
	e := b.Run(j)
	require.Equal(t, job.StateCancelled, e.State)
	require.Equal(t, "cancelled", decode(t, e)["status"])
	require.NotContains(t, lines(b), "nv config apply --assume-yes")
	require.NotEmpty(t, b.Sim.Config("/system/api/mtls/ca-certificate"))
}

func TestWrongPassword(t *testing.T) {
	t.Parallel()
	b := securitytest.New(t)
	b.Sim.SetUser(securitytest.User, "another", false)
	e := b.Run(disable(b, nvue))
	require.Equal(t, job.FailureHostAuthFailed, e.Failure.FailureCode)
	require.Empty(t, lines(b))
}

func TestNoServices(t *testing.T) {
	t.Parallel()
	b := securitytest.New(t)
	for _, services := range [][]string{nil, {"toaster"}} {
		e := b.Run(disable(b, services...))
		require.Equal(t, job.FailureInvalidArgument, e.Failure.FailureCode)
	}
}

// The process dies in front of the commands, or behind them; the next one does it all.
func TestAgentDies(t *testing.T) {
	t.Parallel()
	for _, point := range []string{runbook.FailInStage + "unset_mtls_mode", agent.FailAfterDeviceChange} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			b := securitytest.New(t)
			b.Provision("nvue", "gnmi")
			j := disable(b, nvue, gnmi)
			b.Dies(j, point, 1)
			e := b.Run(j)
			require.Equal(t, job.StateCompleted, e.State, "%+v", e.Failure)
			require.EqualValues(t, 2, e.Epoch)
			require.Empty(t, b.Sim.SavedConfig("/system/api/mtls/ca-certificate"))
			require.Empty(t, b.Sim.SavedConfig("/system/gnmi-server/mtls/ca-certificate"))
		})
	}
}
