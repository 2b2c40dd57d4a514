// SPDX-License-Identifier: Apache-2.0

package computeagent_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/redfishagent"
	"github.com/rackbus/rackbus/pkg/redfishagent/agenttest"
	"github.com/rackbus/rackbus/sim"
	"github.com/rackbus/rackbus/sim/bmc"
	"github.com/rackbus/rackbus/sim/faults"
	"github.com/rackbus/rackbus/sim/reqlog"
)

// The tests of this file are named after the rows E of the field reports: what
// people met with updates and tasks over Redfish, and what a good rack manager
// makes of it.

// tray is the package that most of these tests send.
func (b *bench) trayUpdate() agenttest.Job {
	b.t.Helper()
	return b.run(update(b.pldm("nvfw_P4972_9.fwpkg", "99.01", "BMC")))
}

// followed runs an update whose device answers uploads in some shape, and expects
// that its task was followed to the end.
func followed(t *testing.T, change func(*bmc.Knobs)) {
	t.Helper()
	b := newTray(t)
	b.knobs(change)
	j := b.trayUpdate()
	require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
	tasks := b.tray.Tasks()
	require.Len(t, tasks, 1)
	require.False(t, j.At.Before(tasks[0].Ended), "not told before the task had ended")
	require.Contains(t, j.ResultJSON, `"task_ids":["`+tasks[0].ID+`"]`)
}

// 202, a Location relative to the request, no body.
func TestE1(t *testing.T) {
	followed(t, func(k *bmc.Knobs) { k.UploadAnswer = bmc.AnswerRelative })
}

// The task monitor is opaque: 202 without a body, then 204.
func TestE2(t *testing.T) {
	b := newTray(t)
	b.knobs(func(k *bmc.Knobs) { k.UploadAnswer, k.TaskMonitor = bmc.AnswerMonitor, bmc.MonitorEmpty })
	j := b.trayUpdate()
	require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
	require.False(t, j.At.Before(b.tray.Tasks()[0].Ended))
}

// The task is only in the body.
func TestE3(t *testing.T) {
	t.Parallel()
	for _, answer := range []bmc.UploadAnswer{bmc.AnswerBody, bmc.AnswerMonitorBody} {
		t.Run(string(answer), func(t *testing.T) {
			b := newTray(t)
			b.knobs(func(k *bmc.Knobs) { k.UploadAnswer = answer })
			j := b.trayUpdate()
			require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
			require.False(t, j.At.Before(b.tray.Tasks()[0].Ended))
		})
	}
}

// The job id hides in the message arguments.
func TestE5(t *testing.T) {
	followed(t, func(k *bmc.Knobs) { k.UploadAnswer = bmc.AnswerJobID })
}

// 200 without a task means accepted at most.
func TestE6(t *testing.T) {
	t.Parallel()
	t.Run("the version changes", func(t *testing.T) {
		b := newTray(t, func(o *sim.Options) { o.Timing.Task = 400 * time.Millisecond })
		b.knobs(func(k *bmc.Knobs) { k.UploadAnswer, k.Immediate = bmc.AnswerOKEmpty, true })
		began := time.Now()
		j := b.trayUpdate()
		require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
		require.GreaterOrEqual(t, j.At.Sub(began), 400*time.Millisecond, "success only once the version is there")
		require.Equal(t, "99.01", b.tray.Version("FW_BMC_0"))
	})
	t.Run("the version was there before", func(t *testing.T) {
		const writes = 400 * time.Millisecond
		b := newBench(t, func(o *sim.Options) { o.Timing.Task = writes })
		b.Start(func(o *agenttest.AgentOptions) { o.Timing.UntrackedLimit = 2 * writes })
		target := b.pldm("nvfw_P4972_9.fwpkg", "99.01", "BMC")
		require.Equal(t, job.StateCompleted, b.run(activated(target)).State)
		b.knobs(func(k *bmc.Knobs) { k.UploadAnswer = bmc.AnswerOKEmpty })
		again := activated(target)
		again.Force = true
		began := time.Now()
		j := b.run(again)
		require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
		require.Equal(t, 2, b.posts(auxReset))
		require.GreaterOrEqual(t, j.At.Sub(began), 2*writes, "the power is not cut while the device may still write")
	})
	t.Run("it never does", func(t *testing.T) {
		b := newBench(t)
		b.Start(func(o *agenttest.AgentOptions) { o.Timing.UntrackedLimit = 200 * time.Millisecond })
		b.knobs(func(k *bmc.Knobs) { k.UploadAnswer, k.VersionUnchanged = bmc.AnswerOKEmpty, true })
		j := b.trayUpdate()
		require.Equal(t, job.StateFailed, j.State)
		require.Equal(t, job.FailureTaskLost, j.Failure.FailureCode)
		require.Contains(t, j.Failure.Message, "without naming a task, and the old version is still installed")
	})
}

// The task decides, whatever the inventory shows.
func TestE8(t *testing.T) {
	b := newTray(t, func(o *sim.Options) { o.Timing.Task = 500 * time.Millisecond })
	j := b.trayUpdate()
	require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
	require.False(t, j.At.Before(b.tray.Tasks()[0].Ended))
	polls := b.rack.Requests(b.tray.ID(), reqlog.Filter{Path: "/redfish/v1/TaskService/Tasks/0"})
	require.Greater(t, len(polls), 2, "it kept polling while the task ran")
}

// The task stays Running until the BMC restarts itself.
func TestE9(t *testing.T) {
	b := newTray(t)
	b.knobs(func(k *bmc.Knobs) {
		k.TaskStuckAt = 60
		k.RestartDuringUpdate = &bmc.UpdateRestart{LoseTask: true, Outcome: bmc.RestartActivates}
	})
	j := b.trayUpdate()
	require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
	require.Equal(t, "99.01", b.tray.Version("FW_BMC_0"))
	require.Len(t, b.files(), 1)
}

// Tasks vanish with a restart of the BMC: the version decides.
func TestE10(t *testing.T) {
	t.Parallel()
	for outcome, want := range map[bmc.RestartOutcome]job.State{
		bmc.RestartActivates: job.StateCompleted, bmc.RestartAbandons: job.StateFailed,
	} {
		t.Run(string(outcome), func(t *testing.T) {
			b := newTray(t)
			b.knobs(func(k *bmc.Knobs) { k.RestartDuringUpdate = &bmc.UpdateRestart{LoseTask: true, Outcome: outcome} })
			old := b.tray.Version("FW_BMC_0")
			j := b.trayUpdate()
			require.Equal(t, want, j.State, "%+v", j.Failure)
			if want == job.StateFailed {
				require.Equal(t, job.FailureTaskLost, j.Failure.FailureCode)
				require.Contains(t, j.Failure.Message, "FW_BMC_0: expected 99.01, found "+old, "both versions are named")
			}
		})
	}
}

// Somebody deletes the task; the old version stays.
func TestE12(t *testing.T) {
	b := newTray(t)
	b.knobs(func(k *bmc.Knobs) { k.TaskStuckAt = 30 })
	id := b.Admit(b.node, update(b.pldm("nvfw_P4972_9.fwpkg", "99.01", "BMC")))
	b.sent()
	b.tray.DropTask("0")
	j := b.Await(id)
	require.Equal(t, job.StateFailed, j.State)
	require.Equal(t, job.FailureTaskLost, j.Failure.FailureCode)
	require.Contains(t, j.Failure.Message, "task 0 disappeared")
}

// Completed, 100 %, but Critical.
func TestE13(t *testing.T) {
	b := newTray(t)
	b.knobs(func(k *bmc.Knobs) {
		k.TaskEnd = &bmc.TaskEnd{State: "Completed", Status: "Critical", Messages: []bmc.Message{{
			ID: "Update.1.0.ApplyFailed", Text: "The image could not be applied.", Severity: "Critical", Resolution: "Send it again.",
		}}}
	})
	j := b.trayUpdate()
	require.Equal(t, job.StateFailed, j.State)
	require.Equal(t, "Update.1.0.ApplyFailed", j.Failure.Device.MessageID)
	require.Contains(t, j.Failure.Message, "The image could not be applied.")
}

// UserIntervention ends the job and says what to do.
func TestE14(t *testing.T) {
	b := newTray(t)
	b.knobs(func(k *bmc.Knobs) {
		k.TaskEnd = &bmc.TaskEnd{State: "UserIntervention", Status: "Warning", Messages: []bmc.Message{{
			ID: "Update.1.2.1.ResetRequired", Text: "The update waits.", Severity: "Warning", Resolution: "Press the button of the tray.",
		}}}
	})
	j := b.trayUpdate()
	require.Equal(t, job.StateFailed, j.State)
	require.Contains(t, j.Failure.Message, "Press the button of the tray.")
}

// Reads of the task answer 202.
func TestE16(t *testing.T) {
	followed(t, func(k *bmc.Knobs) { k.TaskReadStatus = 202 })
}

// A slow upload gets the time that its size needs, and its percentage moves.
func TestE17(t *testing.T) {
	b := newBench(t)
	b.Start(func(o *agenttest.AgentOptions) { o.Timing.Redfish.UploadTotal = 100 * time.Millisecond })
	b.knobs(func(k *bmc.Knobs) { k.UploadBytesPerSecond = 12 << 20 })
	j := b.run(update(b.File("FW_BMC_0", "obmc_7.bin", make([]byte, 6<<20))))
	require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
	moved := map[uint32]bool{}
	for _, e := range j.History {
		if e.Percent > 0 && e.Percent < 100 && len(e.Stages) > 1 && e.Stages[1].Status == job.StageRunning {
			moved[e.Percent] = true
		}
	}
	require.Greater(t, len(moved), 1)
}

// The device is asked how it takes updates; paths are never built by hand.
func TestE18(t *testing.T) {
	t.Parallel()
	for _, way := range []bmc.Push{bmc.PushMultipart, bmc.PushOctet} {
		t.Run(string(way), func(t *testing.T) {
			b := newTray(t)
			b.knobs(func(k *bmc.Knobs) { k.Advertise = []bmc.Push{way} })
			j := b.run(activated(b.pldm("nvfw_P4972_9.fwpkg", "99.01", "BMC")))
			require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
			require.Equal(t, "99.01", b.tray.Version("FW_BMC_0"))
		})
	}
	t.Run(string(bmc.PushSimple), func(t *testing.T) {
		b := newBench(t)
		listener := httptest.NewUnstartedServer(nil)
		images, err := redfishagent.NewImageServer("http://" + listener.Listener.Addr().String() + "/images")
		require.NoError(t, err)
		listener.Config.Handler = images
		listener.Start()
		t.Cleanup(listener.Close)
		b.Start(func(o *agenttest.AgentOptions) { o.Images = images })
		b.knobs(func(k *bmc.Knobs) { k.Advertise = []bmc.Push{bmc.PushSimple} })
		j := b.run(activated(b.pldm("nvfw_P4972_9.fwpkg", "99.01", "BMC")))
		require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
		require.Equal(t, "99.01", b.tray.Version("FW_BMC_0"))
		asked := b.rack.Requests(b.tray.ID(), reqlog.Filter{Path: "**/*SimpleUpdate", Method: "POST"})
		require.Len(t, asked, 1)
		var sent struct{ ImageURI, TransferProtocol string }
		require.NoError(t, json.Unmarshal(asked[0].Upload.Parameters, &sent))
		require.Equal(t, "HTTP", sent.TransferProtocol)
		require.Contains(t, sent.ImageURI, "/nvfw_P4972_9.fwpkg")
		// Behind the update nobody gets the image any more.
		res, err := listener.Client().Get(sent.ImageURI)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		require.Equal(t, http.StatusNotFound, res.StatusCode)
	})
	// Agents without such a server tell it at once, and nothing is sent.
	t.Run(string(bmc.PushSimple)+" without a server", func(t *testing.T) {
		b := newTray(t)
		b.knobs(func(k *bmc.Knobs) { k.Advertise = []bmc.Push{bmc.PushSimple} })
		j := b.trayUpdate()
		require.Equal(t, job.StateFailed, j.State)
		require.Equal(t, job.FailurePreconditionFailed, j.Failure.FailureCode)
		require.Contains(t, j.Failure.Message, "the device only fetches images itself")
		require.Empty(t, b.rack.Requests(b.tray.ID(), anyWrite))
	})
}

// One update per controller at any time, also across components.
func TestE20(t *testing.T) {
	b := newTray(t, func(o *sim.Options) { o.Timing.Task = 150 * time.Millisecond })
	j := b.run(update(b.raw("FW_BMC_0", "obmc_7.bin"), b.raw("FW_CPLD_0", "cpld_8.bin"), b.raw("FW_ERoT_BMC_0", "erot_9.bin")))
	require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
	uploads, tasks := b.uploads(), b.tray.Tasks()
	require.Len(t, uploads, 3)
	for i := 1; i < len(uploads); i++ {
		require.False(t, uploads[i].Time.Before(tasks[i-1].Ended), "upload %d waits for task %d", i, i-1)
	}
}

// The same image again: neither accepted nor refused.
func TestE21(t *testing.T) {
	t.Parallel()
	t.Run("versions are compared first", func(t *testing.T) {
		b := newTray(t)
		b.knobs(func(k *bmc.Knobs) { k.SameVersion = bmc.SameVersionNoTask })
		j := b.run(activated(b.pldm("nvfw_P4972_9.fwpkg", b.tray.Version("FW_BMC_0"), "BMC")))
		require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
		require.Equal(t, "already_up_to_date", decode(t, j.ResultJSON)["status"])
		require.Empty(t, b.files())
	})
	// Only part of the package is new to the device; it takes it without a task.
	t.Run("no task, but the version is there", func(t *testing.T) {
		b := newTray(t)
		b.knobs(func(k *bmc.Knobs) { k.UploadAnswer, k.Immediate = bmc.AnswerOKEmpty, true })
		j := b.trayUpdate()
		require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
		require.Contains(t, j.ResultJSON, "the new version is installed")
	})
	t.Run("the device refuses it", func(t *testing.T) {
		b := newTray(t)
		b.knobs(func(k *bmc.Knobs) { k.SameVersion = bmc.SameVersionConflict })
		version := b.tray.Version("FW_CPLD_0")
		j := b.run(activated(b.raw("FW_CPLD_0", "cpld_"+version+".bin")))
		require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
		require.Equal(t, "already_up_to_date", decode(t, j.ResultJSON)["status"])
		require.Zero(t, b.posts(auxReset))
	})
	t.Run("an error event of somebody else's task", func(t *testing.T) {
		b := newTray(t)
		b.knobs(func(k *bmc.Knobs) { k.RunningTask, k.RunningTaskState = "77", "Exception" })
		j := b.trayUpdate()
		require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
	})
}

// The update service is not ready right after a restart.
func TestE22(t *testing.T) {
	b := newBench(t)
	var log bytes.Buffer
	running := b.Start(func(o *agenttest.AgentOptions) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	_, err := b.rack.AddFault(faults.Rule{
		Selector: faults.Request("POST", "**/update-multipart"), Remaining: 3,
		Action: faults.Action{Status: &faults.Status{Code: 503}},
	})
	require.NoError(t, err)
	_, err = b.rack.AddFault(faults.Rule{
		Selector: faults.Resource("/redfish/v1/UpdateService"), Remaining: 4,
		Action: faults.Action{Status: &faults.Status{Code: 503}},
	})
	require.NoError(t, err)
	j := b.run(activated(b.pldm("nvfw_P4972_9.fwpkg", "99.01", "BMC")))
	require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
	require.Len(t, b.uploads(), 1)
	require.Equal(t, 1, b.posts(auxReset), "a service that is not ready yet is no reason for an AUX cycle")
	running.Stop()
	// The first of the four looks is the one that finds a hung BMC.
	for attempt := range 3 {
		require.Regexp(t, fmt.Sprintf(`update service not ready.* attempt=%d .*HTTP 503`, attempt+1), log.String())
		require.Regexp(t, fmt.Sprintf(`stage to be tried again.* op=upload attempt=%d .*HTTP 503`, attempt+1), log.String())
	}
}

// A release renames the entries of the inventory.
func TestE24(t *testing.T) {
	t.Parallel()
	for from, to := range map[string]string{"HGX_FW_BMC_0": "FW_BMC_0", "HGX_FW_GPU_2": "FW_GPU_2"} {
		t.Run(from, func(t *testing.T) {
			b := newTray(t, func(o *sim.Options) { o.Timing.Task = 1500 * time.Millisecond })
			b.knobs(func(k *bmc.Knobs) {
				k.Renames = map[string]string{from: to}
				if to == "FW_BMC_0" {
					k.Hidden = []string{"FW_BMC_0"}
				}
			})
			id := b.Admit(b.node, activated(b.pldm("nvfw_P4975_9.fwpkg", "9.9", "HMC", "GPU")))
			b.sent()
			b.knobs(func(k *bmc.Knobs) { k.Hidden = nil })
			j := b.Await(id)
			require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
			check := decode(t, j.ResultJSON)["post_activation_version_check"].(map[string]any)
			require.Equal(t, "matched", check["status"])
			var names []string
			for _, f := range b.Ask(b.node, redfishagent.OpFirmwareInventory).GetFirmware() {
				names = append(names, f.GetName())
			}
			require.NotContains(t, names, from)
			require.Contains(t, names, to)
		})
	}
}

// The new version comes only with an AUX cycle: until then the job shows that the
// activation is still to come.
func TestE25(t *testing.T) {
	b := newBench(t, gb300)
	b.knobs(func(k *bmc.Knobs) { k.ActivationNeedsAUX = true })
	b.Start(func(o *agenttest.AgentOptions) { o.Timing.Redfish.PowerOffSettle = 500 * time.Millisecond })
	old := b.tray.Version("FW_BMC_0")
	id := b.Admit(b.node, activated(b.pldm("nvfw_P4972_9.fwpkg", "99.01", "BMC")))
	staged := b.AwaitStage(id, "activate_aux_cycle")
	require.Equal(t, job.StageCompleted, staged.Stage("install").Status)
	require.Contains(t, staged.Description, "Activating firmware")
	require.Equal(t, job.StageQueued, staged.Stage("verify").Status)
	j := b.Await(id)
	require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
	require.Equal(t, "99.01", b.tray.Version("FW_BMC_0"))
	require.NotEqual(t, "99.01", old)

	// Without an activation it stays staged, and the result says so.
	j = b.run(update(b.pldm("nvfw_P4972_10.fwpkg", "99.02", "BMC")))
	require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
	require.Equal(t, false, decode(t, j.ResultJSON)["activated"])
	require.Equal(t, "99.01", b.tray.Version("FW_BMC_0"))
	require.Equal(t, map[string]string{"FW_BMC_0": "99.02"}, b.tray.Pending())
}
