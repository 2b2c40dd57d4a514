// SPDX-License-Identifier: Apache-2.0

package computeagent_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/redfishagent/agenttest"
	"github.com/rackbus/rackbus/sim"
	"github.com/rackbus/rackbus/sim/bmc"
	"github.com/rackbus/rackbus/sim/faults"
	"github.com/rackbus/rackbus/sim/reqlog"
)

var anyWrite = reqlog.Filter{Writes: true}

// Faults that an update gets over.
func TestUpdateGetsOver(t *testing.T) {
	t.Parallel()
	const pushPath = "/redfish/v1/UpdateService/update-multipart"
	for _, tt := range []struct {
		name   string
		knobs  bmc.Knobs
		faults []faults.Rule
		// requests is how many uploads arrive at the device's door.
		requests int
		version  bool
	}{
		{name: "background copy that ends", knobs: bmc.Knobs{BackgroundCopy: 100 * time.Millisecond}, requests: 1},
		{name: "HMC task", knobs: bmc.Knobs{RunningTask: "HGX_77"}, requests: 1},
		{name: "update service not ready", requests: 1, faults: []faults.Rule{{
			Selector: faults.Resource("/redfish/v1/UpdateService"), Remaining: 4,
			Action: faults.Action{Status: &faults.Status{Code: 503, Headers: map[string]string{"Retry-After": "0"}}},
		}}},
		{name: "upload not ready", requests: 3, faults: []faults.Rule{{
			Selector: faults.Request("POST", pushPath), Remaining: 2,
			Action: faults.Action{Status: &faults.Status{Code: 503}},
		}}},
		// OpenBMC gives up waiting for the update that it has begun, and it goes on.
		{name: "upload taken and answered with 500", requests: 1, faults: []faults.Rule{{
			Selector: faults.Request("POST", pushPath), Remaining: 1,
			Action: faults.Action{Status: &faults.Status{Code: 500, AfterExecute: true}},
		}}},
		{name: "upload refused with 500", requests: 2, faults: []faults.Rule{{
			Selector: faults.Request("POST", pushPath), Remaining: 1,
			Action: faults.Action{Status: &faults.Status{Code: 500}},
		}}},
		{name: "answer with a link", knobs: bmc.Knobs{UploadAnswer: bmc.AnswerLink}, requests: 1},
		{name: "answer without task", knobs: bmc.Knobs{UploadAnswer: bmc.AnswerAcceptedEmpty}, requests: 1},
		{name: "task unreadable for a while", requests: 1, faults: []faults.Rule{{
			Selector: faults.Resource("/redfish/v1/TaskService/Tasks/0"), Remaining: 4,
			Action: faults.Action{Status: &faults.Status{Code: 500}},
		}}},
		{name: "task not found at first", requests: 1, faults: []faults.Rule{{
			Selector: faults.Resource("/redfish/v1/TaskService/Tasks/0"), Remaining: 2,
			Action: faults.Action{Status: &faults.Status{Code: 404}},
		}}},
		// The tasks of the baseboard are not there before its controller has been found again.
		{name: "task away for longer", requests: 1, faults: []faults.Rule{{
			Selector: faults.Resource("/redfish/v1/TaskService/Tasks/0"), Remaining: 5,
			Action: faults.Action{Status: &faults.Status{Code: 404}},
		}}},
		{name: "restart in the middle", knobs: bmc.Knobs{RestartDuringUpdate: &bmc.UpdateRestart{}}, requests: 1},
		{name: "restart without connections", requests: 1,
			knobs: bmc.Knobs{RestartDuringUpdate: &bmc.UpdateRestart{}, Outage: bmc.OutageRefuse}},
		{name: "upload cut after the device took it", requests: 1, faults: []faults.Rule{{
			Selector: faults.Request("POST", pushPath), Remaining: 1, Action: faults.Action{Cut: &faults.Cut{AfterExecute: true}},
		}}},
		{name: "upload cut before the device took it", requests: 2, faults: []faults.Rule{{
			Selector: faults.Request("POST", pushPath), Remaining: 1, Action: faults.Action{Cut: &faults.Cut{}},
		}}},
		{name: "upload cut in the middle", requests: 2, faults: []faults.Rule{{
			Selector: faults.Request("POST", pushPath), Remaining: 1, Action: faults.Action{Cut: &faults.Cut{RequestBytes: 300}},
		}}},
		{name: "answer of the upload cut", requests: 1, faults: []faults.Rule{{
			Selector: faults.Request("POST", pushPath), Remaining: 1, Action: faults.Action{Cut: &faults.Cut{Bytes: 5}},
		}}},
		{name: "answer of the upload broken", requests: 1, faults: []faults.Rule{{
			Selector: faults.Request("POST", pushPath), Remaining: 1, Action: faults.Action{Malformed: true},
		}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newTray(t)
			b.knobs(func(k *bmc.Knobs) { *k = tt.knobs })
			for _, rule := range tt.faults {
				_, err := b.rack.AddFault(rule)
				require.NoError(t, err)
			}
			j := b.run(update(b.pldm("nvfw_P4972_9.fwpkg", "99.01", "BMC")))
			require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
			require.Len(t, b.rack.Requests(b.tray.ID(), reqlog.Filter{Path: pushPath, Method: "POST"}), tt.requests)
			require.Len(t, b.tray.Tasks(), map[bool]int{false: 1}[tt.knobs.RestartDuringUpdate != nil && tt.knobs.RestartDuringUpdate.LoseTask],
				"the device began one update")
			if tt.version {
				require.Equal(t, "99.01", b.tray.Version("FW_BMC_0"))
			} else {
				require.Equal(t, map[string]string{"FW_BMC_0": "99.01"}, b.tray.Pending())
			}
		})
	}
}

// A device that asks to come back later is not asked before.
func TestRetryAfterIsHonoured(t *testing.T) {
	b := newTray(t)
	_, err := b.rack.AddFault(faults.Rule{
		Selector: faults.Request("POST", "**/update-multipart"), Remaining: 1,
		Action: faults.Action{Status: &faults.Status{Code: 503, Headers: map[string]string{"Retry-After": "1"}}},
	})
	require.NoError(t, err)
	j := b.run(update(b.raw("FW_BMC_0", "obmc_7.bin")))
	require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
	sent := b.rack.Requests(b.tray.ID(), reqlog.Filter{Path: "**/update-multipart"})
	require.Len(t, sent, 2)
	require.GreaterOrEqual(t, sent[1].Time.Sub(sent[0].End()), time.Second)
}

// The device keeps refusing an image that it has.
func TestDeviceSaysNothingToDo(t *testing.T) {
	t.Parallel()
	refusing := func(t *testing.T) *bench {
		b := newTray(t)
		_, err := b.rack.AddFault(faults.Rule{
			Selector: faults.Request("POST", "**/update-multipart"),
			Action: faults.Action{Status: &faults.Status{Code: 400, Body: []byte(
				`{"error":{"@Message.ExtendedInfo":[{"MessageId":"Base.1.18.1.ResourceAlreadyExists","Message":"The image is installed."}]}}`)}},
		})
		require.NoError(t, err)
		return b
	}
	t.Run("nothing contradicts it", func(t *testing.T) {
		b := refusing(t)
		j := b.run(activated(b.raw("FW_BMC_0", "obmc_7.bin")))
		require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
		require.Equal(t, "already_up_to_date", decode(t, j.ResultJSON)["status"])
		require.Zero(t, b.posts(auxReset))
	})
	// An image that waits for its activation is not up to date: what is in force counts.
	t.Run("the old version is in force", func(t *testing.T) {
		b := refusing(t)
		j := b.run(activated(b.pldm("nvfw_P4972_9.fwpkg", "99.01", "BMC")))
		require.Equal(t, job.StateFailed, j.State)
		require.Equal(t, job.FailureVersionMismatch, j.Failure.FailureCode, "%+v", j.Failure)
		require.Equal(t, 1, b.posts(auxReset), "it was activated")
		require.Equal(t, job.StageCompleted, j.Stage("install").Status)
	})
}

// secondRound agents soon take a host for one that does not come on.
func secondRound(o *agenttest.AgentOptions) { o.Timing.Redfish.PowerOnLimit = time.Second }

// The host of a GB200 tray does not come on: one more AUX cycle, then the end.
func TestSecondRound(t *testing.T) {
	t.Parallel()
	ignored := func(n int) faults.Rule {
		return faults.Rule{
			Selector: faults.Request("POST", "**/ComputerSystem.Reset"), Remaining: n,
			Action: faults.Action{Status: &faults.Status{Code: 204, Empty: true}},
		}
	}
	t.Run("comes on", func(t *testing.T) {
		b := newBench(t)
		b.Start(secondRound)
		id := b.Admit(b.node, activated(b.pldm("nvfw_P4972_9.fwpkg", "99.01", "BMC")))
		// The first On is accepted and ignored.
		b.AwaitStage(id, "activate_aux_settle")
		_, err := b.rack.AddFault(ignored(1))
		require.NoError(t, err)
		j := b.Await(id)
		require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
		require.Equal(t, 2, b.posts(auxReset))
		require.Equal(t, bmc.PowerOn, b.tray.PowerState())
		require.Equal(t, job.StageCompleted, j.Stage("activate_wait_on_2").Status)
		require.Equal(t, true, decode(t, j.ResultJSON)["activated"])
	})
	t.Run("never", func(t *testing.T) {
		b := newBench(t)
		b.Start(secondRound)
		id := b.Admit(b.node, activated(b.pldm("nvfw_P4972_9.fwpkg", "99.01", "BMC")))
		b.AwaitStage(id, "activate_aux_settle")
		_, err := b.rack.AddFault(ignored(0))
		require.NoError(t, err)
		j := b.Await(id)
		require.Equal(t, job.StateFailed, j.State)
		require.Equal(t, job.FailureActivationFailed, j.Failure.FailureCode, "%+v", j.Failure)
		require.Equal(t, "activation", j.Failure.Phase)
		require.Contains(t, j.Failure.Message, "last read OFF")
		require.Equal(t, 2, b.posts(auxReset))
	})
}

// A second update of the same node begins anew.
func TestNextUpdateOfTheNode(t *testing.T) {
	b := newTray(t)
	for i, version := range []string{"9.1", "9.2"} {
		j := b.run(activated(b.pldm("nvfw_P4972_9.fwpkg", version, "BMC")))
		require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
		require.Equal(t, version, b.tray.Version("FW_BMC_0"))
		require.Len(t, b.uploads(), i+1)
	}
}

// Faults that an activation gets over, with one AUX cycle.
func TestActivationGetsOver(t *testing.T) {
	t.Parallel()
	const aux, host = "**/NvidiaChassis.AuxPowerReset", "**/ComputerSystem.Reset"
	for _, tt := range []struct {
		name  string
		knobs bmc.Knobs
		fault *faults.Rule
		// sent is how many AUX cycles arrive at the device's door.
		sent int
	}{
		{name: "only an AUX cycle activates", knobs: bmc.Knobs{ActivationNeedsAUX: true}, sent: 1},
		{name: "AUX cycle not ready", sent: 2, fault: &faults.Rule{
			Selector: faults.Request("POST", aux), Remaining: 1, Action: faults.Action{Status: &faults.Status{Code: 503}}}},
		{name: "answer to the AUX cycle lost", sent: 1, fault: &faults.Rule{
			Selector: faults.Request("POST", aux), Remaining: 1, Action: faults.Action{Cut: &faults.Cut{AfterExecute: true}}}},
		{name: "power off not ready", sent: 1, fault: &faults.Rule{
			Selector: faults.Request("POST", host), Remaining: 2, Action: faults.Action{Status: &faults.Status{Code: 503}}}},
		{name: "BMC without connections", knobs: bmc.Knobs{Outage: bmc.OutageRefuse}, sent: 1},
	} {
		for model, option := range map[string]func(*sim.Options){"GB200": func(*sim.Options) {}, "GB300": gb300} {
			t.Run(tt.name+"/"+model, func(t *testing.T) {
				b := newTray(t, option)
				b.knobs(func(k *bmc.Knobs) { *k = tt.knobs })
				if tt.fault != nil {
					_, err := b.rack.AddFault(*tt.fault)
					require.NoError(t, err)
				}
				j := b.run(activated(b.pldm("nvfw_P4972_9.fwpkg", "99.01", "BMC")))
				require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
				require.Equal(t, tt.sent, b.posts(auxReset))
				require.Equal(t, 1, b.tray.Resets())
				require.Equal(t, "99.01", b.tray.Version("FW_BMC_0"))
				require.Equal(t, bmc.PowerOn, b.tray.PowerState())
			})
		}
	}
}
