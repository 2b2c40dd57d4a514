// SPDX-License-Identifier: Apache-2.0

package computeagent_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/failpoint"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/redfishagent"
	"github.com/rackbus/rackbus/pkg/redfishagent/agenttest"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/sim"
	"github.com/rackbus/rackbus/sim/bmc"
	"github.com/rackbus/rackbus/sim/reqlog"
)

// A job that reads cancelled has left the node: what the device has begun is
// waited for, and a host that was taken down is brought up again.
func TestCancel(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		stage string
		// begins is for stages that end of themselves: the job is asked to stop as they begin.
		begins bool
		knobs  bmc.Knobs
		// uploads and aux are what the device got all the same.
		uploads, aux int
		installed    bool
		text         string
		phase        string
	}{
		{stage: "check_1", knobs: bmc.Knobs{BackgroundCopy: -1}, text: "before starting the next target group"},
		{stage: "upload_1", knobs: bmc.Knobs{UploadBytesPerSecond: 2 << 20}, uploads: 1, installed: true,
			text: "before starting the next target group"},
		{stage: "install_1", begins: true, uploads: 1, installed: true, text: "before starting the next target group"},
		{stage: "install_2", begins: true, uploads: 2, installed: true, text: "before activation"},
		{stage: "activate_aux_cycle", uploads: 2, aux: 1, installed: true, text: "before the new versions were verified"},
		{stage: "activate_keep_on", uploads: 2, aux: 1, installed: true, text: "before the new versions were verified"},
		{stage: "verify", uploads: 2, aux: 1, installed: true, text: "before the new versions were verified"},
	} {
		t.Run(tt.stage, func(t *testing.T) {
			b := newBench(t, gb300, func(o *sim.Options) {
				o.Timing.PowerOn = 200 * time.Millisecond
			})
			b.knobs(func(k *bmc.Knobs) { *k = tt.knobs })
			admitted, points := make(chan job.ID, 1), &failpoint.Points{}
			if tt.begins {
				points.Arm(redfishagent.FailInStage+tt.stage, 1, func() error {
					b.Cancel(<-admitted, job.CancelGraceful)
					return nil
				})
			}
			b.Start(func(o *agenttest.AgentOptions) {
				o.Failpoints = points
				o.Timing.Redfish.BackgroundCopyLimit = agenttest.Patience
				o.Timing.Redfish.PowerOffSettle = 600 * time.Millisecond
				o.Timing.VerifyFirstDelay = agenttest.Patience
			})
			id := b.Admit(b.node, activated(
				b.File("FW_BMC_0", "obmc_7.bin", make([]byte, 4<<20)), b.raw("FW_CPLD_0", "cpld_8.bin")))
			admitted <- id
			if !tt.begins {
				b.AwaitStage(id, tt.stage)
			}
			if tt.stage == "upload_1" {
				_, err := b.rack.WaitInFlight(t.Context(), b.tray.ID(), reqlog.Filter{Path: "**/update-multipart"})
				require.NoError(t, err)
			}
			if tt.stage == "activate_aux_cycle" {
				// Before the host is taken down the stage is left at once.
				_, err := b.rack.WaitRequests(t.Context(), b.tray.ID(), reqlog.Filter{Path: "**/" + hostReset, Method: "POST"}, 1)
				require.NoError(t, err)
			}
			if !tt.begins {
				b.Cancel(id, job.CancelGraceful)
			}
			j := b.Await(id)
			require.Equal(t, job.StateCancelled, j.State, "%+v", j.Failure)
			require.Equal(t, job.FailureCancelledByOperator, j.Failure.FailureCode)
			require.Len(t, b.uploads(), tt.uploads)
			require.Equal(t, tt.aux, b.posts(auxReset))
			require.Equal(t, bmc.PowerOn, b.tray.PowerState())
			for _, task := range b.tray.Tasks() {
				require.Equal(t, "Completed", task.State, "the device is at rest")
			}
			require.Len(t, b.tray.Tasks(), tt.uploads)
			result := decode(t, j.ResultJSON)
			require.Equal(t, "failed", result["status"])
			require.Equal(t, "cancelled", result["phase"])
			require.Equal(t, "Other", result["error_code"])
			require.Equal(t, "firmware update job cancelled "+tt.text, result["summary"])
		})
	}
}

func TestTerminateInInstallation(t *testing.T) {
	b := newTray(t)
	b.knobs(func(k *bmc.Knobs) { k.TaskStuckAt = 50 })
	id := b.Admit(b.node, activated(b.raw("FW_BMC_0", "obmc_7.bin")))
	b.AwaitStage(id, "install")
	b.Cancel(id, job.CancelTerminate)
	j := b.Await(id)
	require.Equal(t, job.StateTerminated, j.State, "%+v", j.Failure)
	require.Equal(t, job.FailureTerminatedByOperator, j.Failure.FailureCode)
	require.Equal(t, "terminated during stage install (Running firmware workflow for target FW_BMC_0): "+
		"hardware state unknown; in flight: task /redfish/v1/TaskService/Tasks/0", j.Failure.Message)
	require.Contains(t, j.ResultJSON, "hardware state unknown")
	require.Equal(t, job.StageFailed, j.Stage("install").Status)
	// The node is free: the polls have ended.
	require.Eventually(t, func() bool {
		all := b.rack.Requests("", reqlog.Filter{})
		return time.Since(all[len(all)-1].End()) > 20*agenttest.Timing().TaskPoll.Interval
	}, agenttest.Patience, 10*time.Millisecond)
}

// Who asks a job to stop whose device installs is told how long that may take.
func TestCancelInInstallationSaysWhatCannotBeCut(t *testing.T) {
	b := newBench(t, func(o *sim.Options) { o.Timing.Task = 3 * time.Second })
	b.Start()
	id := b.Admit(b.node, activated(b.raw("FW_BMC_0", "obmc_7.bin")))
	b.AwaitStage(id, "install")
	b.Cancel(id, job.CancelGraceful)
	var stage job.Stage
	for _, e := range b.Await(id).History {
		if s, ok := job.RunningStage(e.Stages); ok && s.Name == "install" {
			stage = s
		}
		if s, ok := job.RunningStage(e.Stages); ok && s.Name == "check" {
			require.False(t, s.Uninterruptible)
		}
	}
	timing := agenttest.Timing()
	require.True(t, stage.Uninterruptible)
	require.Equal(t, max(timing.TaskPoll.Limit+timing.LostTaskWindow, timing.UntrackedLimit), stage.StopLimit)
}

// A termination cuts the image that is being sent.
func TestTerminateInUpload(t *testing.T) {
	b := newTray(t)
	b.knobs(func(k *bmc.Knobs) { k.UploadBytesPerSecond = 1 << 20 })
	id := b.Admit(b.node, update(b.File("FW_BMC_0", "obmc_7.bin", make([]byte, 24<<20))))
	_, err := b.rack.WaitInFlight(t.Context(), b.tray.ID(), reqlog.Filter{Path: "**/update-multipart"})
	require.NoError(t, err)
	b.Cancel(id, job.CancelTerminate)
	j := b.Await(id)
	require.Equal(t, job.StateTerminated, j.State, "%+v", j.Failure)
	require.Empty(t, b.uploads())
	require.Empty(t, b.tray.Tasks())
}

// The agent dies and the job is asked to stop before another one has it: the
// device is still waited for.
func TestCancelWhileNobodyHasTheJob(t *testing.T) {
	b := newBench(t, func(o *sim.Options) { o.Timing.Task = 5 * time.Second })
	doomed := b.Start(agenttest.Mortal)
	id := b.Admit(b.node, activated(b.raw("FW_BMC_0", "obmc_7.bin")))
	b.AwaitStage(id, "install")
	doomed.Kill()
	b.Cancel(id, job.CancelGraceful)
	b.Start()
	j := b.Await(id)
	require.Equal(t, job.StateCancelled, j.State, "%+v", j.Failure)
	require.Equal(t, uint64(2), j.Epoch)
	require.Equal(t, "Completed", b.tray.Tasks()[0].State)
	require.Zero(t, b.posts(auxReset))
	require.Equal(t, bmc.PowerOn, b.tray.PowerState())
}

func TestRunLimit(t *testing.T) {
	b := newBench(t)
	b.Start(func(o *agenttest.AgentOptions) { o.Timing.TaskPoll.Limit = agenttest.Patience })
	b.knobs(func(k *bmc.Knobs) { k.TaskStuckAt = 50 })
	id := b.Admit(b.node, activated(b.raw("FW_BMC_0", "obmc_7.bin")), func(c *rackbusv1.JobCommand) { c.RunLimitSeconds = 8 })
	j := b.Await(id)
	require.Equal(t, job.StateTimedOut, j.State, "%+v", j.Failure)
	require.Equal(t, job.FailureDeadlineExceeded, j.Failure.FailureCode)
	require.Contains(t, j.Failure.Message, "was cut during stage install (Running firmware workflow for target FW_BMC_0): "+
		"hardware state unknown; in flight: task /redfish/v1/TaskService/Tasks/0")
	require.Equal(t, "firmware update job passed its deadline", decode(t, j.ResultJSON)["summary"])
	require.Equal(t, "Timeout", decode(t, j.ResultJSON)["error_code"])
}

// Between two groups the node is at rest, with the first one in force.
func TestCancelBetweenGroups(t *testing.T) {
	b := newBench(t, of(supermicroTray))
	b.Start(func(o *agenttest.AgentOptions) { o.Timing.Redfish.BackgroundCopyLimit = agenttest.Patience })
	id := b.Admit(b.node, b.supermicro().update)
	b.sent()
	b.knobs(func(k *bmc.Knobs) { k.BackgroundCopy = -1 })
	b.AwaitStage(id, "check_2")
	b.Cancel(id, job.CancelGraceful)
	j := b.Await(id)
	require.Equal(t, job.StateCancelled, j.State, "%+v", j.Failure)
	require.Equal(t, "firmware update job cancelled before starting the next target group", decode(t, j.ResultJSON)["summary"])
	require.Equal(t, []string{"GB300_nosbios_9.fwpkg"}, b.files())
	require.Equal(t, "9.1", b.tray.Version("HGX_FW_BMC_0"))
	require.Equal(t, bmc.PowerOn, b.tray.PowerState())
}
