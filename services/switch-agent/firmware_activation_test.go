// SPDX-License-Identifier: Apache-2.0

package switchagent_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/redfishagent/agenttest"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/sim/faults"
	"github.com/rackbus/rackbus/sim/nvswitch"
	"github.com/rackbus/rackbus/sim/reqlog"
)

// A VR NVL72 switch takes all components from one package at once, and one by one
// when it cannot.
func TestBundle(t *testing.T) {
	t.Parallel()
	vr := func(o *nvswitch.Options) { o.Model = nvswitch.VRNVL72 }
	all := []string{"BMC", "BIOS", "SMA", "EROT", "CPLD1"}
	update := func(b *bench) *rackbusv1.FirmwareUpdate { return activated(b.pldm("", "nvfw_vr.fwpkg", "9.9", all...)) }
	updated := func(t *testing.T, b *bench, j agenttest.Job) {
		t.Helper()
		require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
		for _, c := range all {
			require.Equal(t, "9.9", b.sw.Version(c), c)
		}
		require.Equal(t, 1, b.actions("@power-cycle"))
	}
	t.Run("at once", func(t *testing.T) {
		b := newBench(t, vr)
		b.start(nil)
		j := b.run(update(b))
		updated(t, b, j)
		require.Equal(t, []string{"/tmp"}, b.sentTo())
		require.Equal(t, 1, b.actions("@install"))
		require.Equal(t, 1, b.actions("@fetch"))
		require.EqualValues(t, 5, decode(t, j.ResultJSON)["targets_completed"])
	})
	t.Run("by name", func(t *testing.T) {
		b := newBench(t, vr)
		b.start(nil)
		var targets []*rackbusv1.FirmwareUpdateTarget
		for _, c := range []string{"bmc", "bios", "sma", "erot", "cpld1"} {
			targets = append(targets, b.pldm(c, "nvfw_vr.fwpkg", "9.9", all...))
		}
		updated(t, b, b.run(activated(targets...)))
		require.Equal(t, 1, b.actions("@install"))
	})
	t.Run("some of them", func(t *testing.T) {
		b := newBench(t, vr)
		b.start(nil)
		j := b.run(activated(b.pldm("sma", "nvfw_vr.fwpkg", "9.9", all...)))
		require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
		require.Zero(t, b.actions("@fetch"))
		require.Equal(t, []string{"/host/fw-images/sma"}, b.sentTo())
	})
	for name, rule := range map[string]nvswitch.ActionRule{
		"fetch fails":  {Verb: "@fetch", NoEffect: true, Script: []json.RawMessage{json.RawMessage(`{"state":"action_error","issue":["no room"]}`)}},
		"fetch is odd": {Verb: "@fetch", NoEffect: true, Missing: true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, vr, func(o *nvswitch.Options) { o.Knobs.Actions = []nvswitch.ActionRule{rule} })
			b.start(nil)
			j := b.run(update(b))
			updated(t, b, j)
			require.Equal(t, 5, b.actions("@install"))
			details := decode(t, j.ResultJSON)["targets"].([]any)[0].(map[string]any)["nvfwupd_summary"].(map[string]any)["details"]
			require.NotEmpty(t, details.(map[string]any)["fallback"])
		})
	}
	t.Run("install refused", func(t *testing.T) {
		b := newBench(t, vr, func(o *nvswitch.Options) {
			o.Faults = &faults.Set{}
			_, err := o.Faults.Add(faults.Rule{Selector: faults.Request("POST", "/nvue_v1/platform/firmware/files/*"), Action: faults.Action{Status: &faults.Status{Code: 400}}})
			require.NoError(t, err)
		})
		b.start(nil)
		updated(t, b, b.run(update(b)))
	})
	t.Run("install fails", func(t *testing.T) {
		b := newBench(t, vr, func(o *nvswitch.Options) {
			o.Knobs.Actions = []nvswitch.ActionRule{{Verb: "@install", NoEffect: true, Script: []json.RawMessage{json.RawMessage(`{"state":"action_failed","issue":["half way"]}`)}}}
		})
		b.start(nil)
		j := b.run(update(b))
		require.Equal(t, job.StateFailed, j.State)
		require.Contains(t, j.Failure.Message, "half way")
		require.Equal(t, 1, b.actions("@install"), "no way back behind the begin")
	})
}

// Activation through the switch, and through its BMC where the switch cannot.
func TestActivation(t *testing.T) {
	t.Parallel()
	update := func(b *bench) *rackbusv1.FirmwareUpdate {
		return activated(b.pldm("bmc", "nvfw_9.fwpkg", "9.9", "BMC"))
	}
	stays := func(o *nvswitch.Options) {
		o.Knobs.Actions = []nvswitch.ActionRule{{Verb: "@power-cycle", NoEffect: true}}
	}
	t.Run("never away, no BMC", func(t *testing.T) {
		b := newBench(t, stays)
		b.timing.CycleProbes = 5
		b.start(nil)
		j := b.run(update(b))
		require.Equal(t, job.FailureActivationFailed, j.Failure.FailureCode, "%+v", j.Failure)
		require.Contains(t, j.Failure.Message, "Firmware flashed but activation failed")
		r := decode(t, j.ResultJSON)
		require.Equal(t, "activation", r["phase"])
		require.Equal(t, 1, b.actions("@power-cycle"))
	})
	t.Run("never away, BMC", func(t *testing.T) {
		b := newBench(t, stays)
		b.node, b.timing.CycleProbes = b.target(true), 5
		b.start(nil)
		j := b.run(update(b))
		require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
		require.Equal(t, "9.9", b.sw.Version("BMC"))
		require.Len(t, b.sw.Requests(reqlog.Filter{Protocol: reqlog.Redfish, Method: "POST"}), 1)
		recovery := decode(t, j.ResultJSON)["activation"].(map[string]any)["recovery"].(map[string]any)
		require.Equal(t, "bmc", recovery["endpoint"])
		require.Contains(t, recovery["reason"], "did not go down")
	})
	t.Run("answer lost behind it, BMC", func(t *testing.T) {
		b := newBench(t, func(o *nvswitch.Options) {
			o.Faults = &faults.Set{}
			_, err := o.Faults.Add(faults.Rule{Selector: faults.Request("POST", "/nvue_v1/system"), Action: faults.Action{Cut: &faults.Cut{AfterExecute: true}}})
			require.NoError(t, err)
			// It takes longer to go down than a lost answer is looked into after a crash.
			o.Timing.Shutdown = time.Second
		})
		b.node = b.target(true)
		b.start(nil)
		j := b.run(update(b))
		require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
		require.Equal(t, 1, b.sw.Reboots())
		require.Empty(t, b.sw.Requests(reqlog.Filter{Protocol: reqlog.Redfish, Method: "POST"}), "not cycled twice")
	})
	t.Run("refused", func(t *testing.T) {
		b := newBench(t, func(o *nvswitch.Options) {
			o.Faults = &faults.Set{}
			_, err := o.Faults.Add(faults.Rule{Selector: faults.Request("POST", "/nvue_v1/system"), Action: faults.Action{Status: &faults.Status{Code: http.StatusForbidden}}})
			require.NoError(t, err)
		})
		b.node = b.target(true)
		b.start(nil)
		j := b.run(update(b))
		require.Equal(t, job.StateFailed, j.State)
		require.Equal(t, "activation", decode(t, j.ResultJSON)["phase"])
		require.Empty(t, b.sw.Requests(reqlog.Filter{Protocol: reqlog.Redfish, Method: "POST"}))
	})
	t.Run("the new version does not show", func(t *testing.T) {
		b := newBench(t, func(o *nvswitch.Options) { o.Knobs.FirmwareUnchanged = true })
		b.timing.VerifyAttempts = 3
		b.start(nil)
		j := b.run(update(b))
		require.Equal(t, job.FailureVersionMismatch, j.Failure.FailureCode, "%+v", j.Failure)
		require.Equal(t, "post_activation_version_check", decode(t, j.ResultJSON)["phase"])
	})
	t.Run("inactive", func(t *testing.T) {
		b := newBench(t)
		b.start(nil)
		u := update(b)
		u.Activate = false
		j := b.run(u)
		require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
		require.Equal(t, map[string]string{"BMC": "9.9"}, b.sw.Pending())
		require.Zero(t, b.sw.Reboots())
	})
}

// The operating system is down when it should restart: the job goes through the BMC
// and says so.
func TestJ8ActivationThroughTheBMC(t *testing.T) {
	down := &faults.Set{}
	b := newBench(t, func(o *nvswitch.Options) { o.Faults = down })
	b.node, b.timing.CycleProbes = b.target(true), 20
	b.sw.UpdateKnobs(func(k *nvswitch.Knobs) {
		k.Actions = []nvswitch.ActionRule{{Verb: "@install", Takes: nvswitch.Duration(300 * time.Millisecond)}}
	})
	b.start(nil)
	id := b.Admit(b.node, activated(b.pldm("bmc", "nvfw_9.fwpkg", "9.9", "BMC")))
	b.until("the installation", func() bool { return len(b.sw.Pending()) > 0 })
	_, err := down.Add(faults.Rule{ID: "down", Selector: faults.Request("POST", "/nvue_v1/system"), Action: faults.Action{Cut: &faults.Cut{}}})
	require.NoError(t, err)
	j := b.Await(id)
	require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
	require.Equal(t, "9.9", b.sw.Version("BMC"))
	recovery := decode(t, j.ResultJSON)["activation"].(map[string]any)["recovery"].(map[string]any)
	require.Equal(t, "bmc", recovery["endpoint"])
	require.NotEmpty(t, recovery["reason"])
	require.Equal(t, "completed", j.Stage("activate_bmc").Status.String())
}
