// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/sim/bmc"
	"github.com/rackbus/rackbus/sim/firmwarepackage"
)

func TestTaskEnds(t *testing.T) {
	t.Parallel()
	note := bmc.Message{ID: "Update.1.0.X", Text: "stamp is lower", Severity: "Critical"}
	tests := []struct {
		name          string
		end           bmc.TaskEnd
		state, status string
		percent       float64
		message       string
		flashed       bool
	}{
		{"exception", bmc.TaskEnd{}, "Exception", "Critical", 60, "Update.1.0.VerificationFailed", false},
		{"given message", bmc.TaskEnd{Percent: 10, Messages: []bmc.Message{note}}, "Exception", "Critical", 10, note.ID, false},
		{"killed", bmc.TaskEnd{State: "Killed", Status: "Warning"}, "Killed", "Warning", 60, "", false},
		{"completed but critical", bmc.TaskEnd{State: "Completed"}, "Completed", "Critical", 100, "Update.1.0.VerificationFailed", false},
		{"failed after flashing", bmc.TaskEnd{Flashed: true}, "Exception", "Critical", 60, "", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, d, c := tray(t)
			d.UpdateKnobs(func(k *bmc.Knobs) { k.TaskEnd = &tt.end })
			got := c.follow(c.taskURI(c.upload(noTargets, "bmc_2.bin", []byte("x"))))
			require.Equal(t, tt.state, got.get("TaskState"))
			require.Equal(t, tt.status, got.get("TaskStatus"))
			require.Equal(t, tt.percent, got.get("PercentComplete"))
			if tt.message != "" {
				require.Contains(t, messageIDs(got), tt.message)
			}
			require.Equal(t, tt.flashed, d.Pending() != nil)
		})
	}
}

func TestTaskStuck(t *testing.T) {
	t.Parallel()
	_, d, c := tray(t)
	d.UpdateKnobs(func(k *bmc.Knobs) { k.TaskStuckAt = 42 })
	uri := c.taskURI(c.upload(noTargets, "bmc_2.bin", []byte("x")))
	require.Eventually(t, func() bool { return c.get(uri).get("PercentComplete") == 42.0 }, 20*time.Second, time.Millisecond)
	<-time.After(2 * quick.Task) // past its time, it must still be there
	require.Equal(t, "Running", c.get(uri).get("TaskState"))
	require.Equal(t, 42.0, c.get(uri).get("PercentComplete"))
}

func TestRestartDuringUpdate(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		restart bmc.UpdateRestart
		state   string // of the task afterwards; "" means 404
		pending bool
		active  bool
	}{
		{"continues", bmc.UpdateRestart{}, "Completed", true, false},
		{"continues unseen", bmc.UpdateRestart{LoseTask: true}, "", true, false},
		{"abandons", bmc.UpdateRestart{Outcome: bmc.RestartAbandons}, "Exception", false, false},
		{"abandons and loses", bmc.UpdateRestart{Outcome: bmc.RestartAbandons, LoseTask: true}, "", false, false},
		{"activates", bmc.UpdateRestart{AtPercent: 20, Outcome: bmc.RestartActivates}, "Completed", false, true},
		{"activates and loses", bmc.UpdateRestart{Outcome: bmc.RestartActivates, LoseTask: true}, "", false, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, d, c := tray(t)
			d.SetTiming(bmc.Timing{Task: quick.Task, BMCOutage: time.Second}) // long enough to be seen
			d.UpdateKnobs(func(k *bmc.Knobs) { k.RestartDuringUpdate = &tt.restart })
			uri := c.taskURI(c.upload(noTargets, "bmc_2.bin", []byte("x")))
			require.Eventually(t, func() bool { return d.Resets() == 1 }, 20*time.Second, time.Millisecond)
			require.Equal(t, 503, c.get(uri).status)
			c.awaitUp()
			if tt.state == "" {
				require.Equal(t, 404, c.get(uri).status)
			} else {
				require.Equal(t, tt.state, c.follow(uri).get("TaskState"))
			}
			require.Eventually(t, func() bool { return (len(d.Pending()) > 0) == tt.pending }, 20*time.Second, time.Millisecond)
			require.Equal(t, tt.active, c.version("FW_BMC_0") == "2")
		})
	}
}

func TestTasksLostOnRestart(t *testing.T) {
	t.Parallel()
	_, d, c := tray(t)
	d.UpdateKnobs(func(k *bmc.Knobs) { k.LoseTasksOnRestart = true })
	d.SetTiming(bmc.Timing{Task: time.Hour, BMCOutage: quick.BMCOutage})
	uri := c.taskURI(c.upload(noTargets, "bmc_2.bin", []byte("x")))
	d.Restart()
	c.awaitUp()
	require.Equal(t, 404, c.get(uri).status)
	require.Empty(t, d.Pending())

	d.SetTiming(quick)
	uri = c.taskURI(c.upload(noTargets, "bmc_2.bin", []byte("x")))
	c.follow(uri)
	d.DropTask("1")
	require.Equal(t, 404, c.get(uri).status)
}

func TestForeignTask(t *testing.T) {
	t.Parallel()
	_, d, c := tray(t)
	d.UpdateKnobs(func(k *bmc.Knobs) { k.RunningTask = "HGX_77" })
	require.Equal(t, []any{obj{"@odata.id": tasks + "/HGX_77"}}, c.get(tasks).get("Members"))
	require.Equal(t, "Running", c.get(tasks+"/HGX_77").get("TaskState"))
	require.Equal(t, 503, c.upload(targets(hgx), "hgx_1.bin", []byte("x")).status)
	require.Equal(t, 202, c.upload(noTargets, "bmc_1.bin", []byte("x")).status)
}

func TestUploadAnswers(t *testing.T) {
	t.Parallel()
	tests := []struct {
		answer   bmc.UploadAnswer
		status   int
		location bool
		member   []string
	}{
		{bmc.AnswerFull, 202, true, []string{"TaskState"}},
		{bmc.AnswerLocation, 202, true, nil},
		{bmc.AnswerBody, 202, false, []string{"Id"}},
		{bmc.AnswerLink, 202, true, []string{"@odata.id"}},
		{bmc.AnswerMessageArgs, 202, false, []string{"Messages"}},
		{bmc.AnswerAcceptedEmpty, 202, false, nil},
		{bmc.AnswerOKEmpty, 200, false, nil},
	}
	for _, tt := range tests {
		t.Run("shape "+string(tt.answer), func(t *testing.T) {
			_, d, c := tray(t)
			d.UpdateKnobs(func(k *bmc.Knobs) { k.UploadAnswer, k.TaskReadStatus = tt.answer, 202 })
			got := c.upload(noTargets, "bmc_2.bin", []byte("x"))
			require.Equal(t, tt.status, got.status)
			require.Equal(t, tt.location, got.header.Get("Location") != "")
			if tt.member == nil {
				require.Empty(t, got.raw)
			} else {
				require.NotNil(t, got.get(tt.member...))
			}
			require.Eventually(t, func() bool { return d.Pending()["FW_BMC_0"] == "2" }, 20*time.Second, time.Millisecond)
			if tt.answer != bmc.AnswerOKEmpty {
				require.Equal(t, 202, c.get(tasks+"/0").status)
			}
		})
	}
}

func TestActivationKnobs(t *testing.T) {
	t.Parallel()
	_, d, c := tray(t)
	before := c.version("FW_BMC_0")
	d.UpdateKnobs(func(k *bmc.Knobs) { k.ActivationNeedsAUX = true })
	c.follow(c.taskURI(c.upload(noTargets, "bmc_2.bin", []byte("x"))))
	c.hostReset("PowerCycle")
	require.Equal(t, before, c.version("FW_BMC_0"))
	require.Len(t, d.Pending(), 1)

	d.UpdateKnobs(func(k *bmc.Knobs) { k.VersionUnchanged = true })
	c.hostReset("ForceOff")
	c.post(aux, obj{"ResetType": "AuxPowerCycle"})
	c.awaitUp()
	require.Equal(t, before, c.version("FW_BMC_0"))
	require.Empty(t, d.Pending())
}

func TestWriteProtect(t *testing.T) {
	t.Parallel()
	_, d, c := tray(t)
	d.UpdateKnobs(func(k *bmc.Knobs) { k.WriteProtected = []string{"FW_BMC_0"} })
	require.Equal(t, true, c.get(inventory+"FW_BMC_0").get("WriteProtected"))
	require.Equal(t, false, c.get(inventory+"FW_CPLD_0").get("WriteProtected"))
	got := c.follow(c.taskURI(c.upload(noTargets, "bmc_2.bin", []byte("x"))))
	require.Equal(t, "Exception", got.get("TaskState"))

	d.SetKnobs(bmc.Knobs{HardwareWriteProtect: true})
	require.Equal(t, true, c.get(root+"/Chassis/Chassis_0").get("Oem", "Nvidia", "HardwareWriteProtectEnable"))
	got = c.follow(c.taskURI(c.upload(noTargets, "bmc_2.bin", []byte("x"))))
	require.Equal(t, "Exception", got.get("TaskState"))
	require.Empty(t, d.Pending())
}

func TestNothingMatches(t *testing.T) {
	t.Parallel()
	_, _, c := tray(t)
	file := pldm(t, "P4972", firmwarepackage.Component{Name: "Toaster", Version: "1"})
	got := c.follow(c.taskURI(c.upload(noTargets, "p.fwpkg", file)))
	require.Equal(t, "Completed", got.get("TaskState"))
	require.Equal(t, "Warning", got.get("TaskStatus"))
	require.Contains(t, string(got.raw), "no matching devices")
}

func TestBackgroundCopy(t *testing.T) {
	t.Parallel()
	_, d, c := tray(t)
	status := func() any {
		return c.get(root+"/Chassis/HGX_ERoT_BMC_0").get("Oem", "Nvidia", "BackgroundCopyStatus")
	}
	require.Equal(t, "Completed", status())
	d.UpdateKnobs(func(k *bmc.Knobs) { k.BackgroundCopy = -1 })
	require.Equal(t, "InProgress", status())
	d.UpdateKnobs(func(k *bmc.Knobs) { k.BackgroundCopy = time.Second })
	require.Equal(t, "InProgress", status())
	require.Eventually(t, func() bool { return status() == "Completed" }, 20*time.Second, time.Millisecond)
}

func TestHandoffShapes(t *testing.T) {
	t.Parallel()
	for _, shape := range []bmc.Handoff{bmc.HandoffAborted, bmc.HandoffInternalError} {
		t.Run(string(shape), func(t *testing.T) {
			_, d, c := shelf(t)
			c.do("PATCH", update, obj{"HttpPushUriOptions": obj{"HttpPushUriApplyTime": obj{"ApplyTime": "OnReset"}}})
			d.UpdateKnobs(func(k *bmc.Knobs) { k.Handoff = shape })
			uri := c.taskURI(c.post(update+"/update", firmwarepackage.Raw("pmc_r9.bin", 0)))
			var got reply
			require.Eventually(t, func() bool {
				got = c.get(uri)
				return got.get("EndTime") != nil
			}, 20*time.Second, time.Millisecond)
			if shape == bmc.HandoffAborted {
				require.Equal(t, []any{"Cancelled", "Warning", 100.0},
					[]any{got.get("TaskState"), got.get("TaskStatus"), got.get("PercentComplete")})
				require.Contains(t, messageIDs(got), "TaskEvent.1.0.3.TaskAborted")
				require.Contains(t, string(got.raw), "completed with errors")
			} else {
				require.Equal(t, []any{"Running", "OK", 0.0},
					[]any{got.get("TaskState"), got.get("TaskStatus"), got.get("PercentComplete")})
				require.Contains(t, string(got.raw), "internal service error")
			}
			c.post(root+"/Managers/bmc/Actions/Manager.Reset", obj{"ResetType": "ForceRestart"})
			c.awaitUp()
			require.Equal(t, "r9", c.version("pmc_5c3f81d0"))
		})
	}
}

func TestKnobsJSON(t *testing.T) {
	t.Parallel()
	in := `{"task_end":{"state":"Killed"},"upload_answer":"location","background_copy":"1.5s","write_protected":["FW_BMC_0"]}`
	var k bmc.Knobs
	require.NoError(t, json.Unmarshal([]byte(in), &k))
	require.Equal(t, bmc.Knobs{TaskEnd: &bmc.TaskEnd{State: "Killed"}, UploadAnswer: bmc.AnswerLocation,
		BackgroundCopy: 1500 * time.Millisecond, WriteProtected: []string{"FW_BMC_0"}}, k)
	require.NoError(t, json.Unmarshal([]byte(`{"task_stuck_at":3}`), &k), "members are merged")
	require.Equal(t, 3, k.TaskStuckAt)
	require.Equal(t, bmc.AnswerLocation, k.UploadAnswer)
	out, err := json.Marshal(k)
	require.NoError(t, err)
	var again bmc.Knobs
	require.NoError(t, json.Unmarshal(out, &again))
	require.Equal(t, k, again)
	require.Error(t, json.Unmarshal([]byte(`{"taks_end":{}}`), &k))
}
