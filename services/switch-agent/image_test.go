// SPDX-License-Identifier: Apache-2.0

package switchagent_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/failpoint"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/redfishagent/agenttest"
	"github.com/rackbus/rackbus/services/switch-agent/internal/crashtest"
	"github.com/rackbus/rackbus/services/switch-agent/internal/runbook"
	"github.com/rackbus/rackbus/sim/faults"
	"github.com/rackbus/rackbus/sim/nvswitch"
	"github.com/rackbus/rackbus/sim/reqlog"
)

// imageStages are the names that callers know.
var imageStages = []string{
	"inspect_state", "cleanup_old_partition", "stage_image", "trigger_install", "wait_for_install_handoff",
	"wait_for_target_steady_state",
}

const oldBuild, newBuild = "nvos-25.02.2000", "nvos-25.02.4440"

// twoImages makes the switch have an old image in its unused partition.
func twoImages(o *nvswitch.Options) { o.Images = [2]string{oldBuild, "nvos-25.01.1000"} }

func (b *bench) statuses(j agenttest.Job) []string {
	var out []string
	for _, s := range j.Stages {
		out = append(out, s.Status.String())
	}
	return out
}

func TestImageUpdate(t *testing.T) {
	b := newBench(t, twoImages)
	b.start(nil)
	j := b.Await(b.admitImage(b.imageFile("25.02.4440")))
	require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
	require.Equal(t, "Completed", j.Description)
	require.Equal(t, imageStages, j.StageNames())
	for _, s := range b.statuses(j) {
		require.Equal(t, "completed", s)
	}
	require.Equal(t, newBuild, b.sw.Images().Current)
	require.Equal(t, newBuild, b.sw.Images().Next)
	require.Equal(t, 1, b.actions("@uninstall"))
	require.Equal(t, 1, b.actions("@install"))
	require.Len(t, b.puts(), 1)
	require.Equal(t, 1, b.sw.Reboots())

	r := decode(t, j.ResultJSON)
	require.Equal(t, "success", r["status"])
	require.Equal(t, "r1", r["rack_id"])
	require.Equal(t, b.sw.ID(), r["node_id"])
	require.Equal(t, "nvos-amd64-25.02.4440.bin", r["image_filename"])
	require.Equal(t, newBuild, r["target_build_id"])
	require.Equal(t, false, r["image_visible_before_stage"])
	require.Equal(t, true, r["image_visible_after_stage"])
	require.NotEmpty(t, r["install_job_id"])
	require.Equal(t, oldBuild, r["before"].(map[string]any)["current_build_id"])
	after := r["after"].(map[string]any)
	require.Equal(t, newBuild, after["current_build_id"])
	require.Equal(t, "partition2", after["current_partition"])
	require.Equal(t, oldBuild, after["partition1_build_id"])
	summary := r["timing_summary"].(map[string]any)
	require.EqualValues(t, 6, summary["stage_count"])
	require.EqualValues(t, 6, summary["stage_index"])
	stages := summary["stages"].([]any)
	for i, raw := range stages {
		s := raw.(map[string]any)
		require.Equal(t, imageStages[i], s["name"])
		require.Equal(t, j.ID.String(), s["job_id"])
		require.Equal(t, "completed", s["status"])
	}
	staged := stages[2].(map[string]any)["details"].(map[string]any)
	require.EqualValues(t, r["image_size_bytes"], staged["image_size_bytes"])
	require.Greater(t, staged["average_rate_bytes_per_second"], 0.0)
	require.Equal(t, r["install_job_id"], stages[3].(map[string]any)["details"].(map[string]any)["install_job_id"])

	// The image that runs is left alone.
	writes := len(b.sw.Requests(reqlog.Filter{Writes: true, Protocol: reqlog.NVUE}))
	j = b.Await(b.admitImage(b.imageFile("25.02.4440")))
	require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
	require.Equal(t, []string{"completed", "skipped", "skipped", "skipped", "skipped", "skipped"}, b.statuses(j))
	require.Equal(t, "already_up_to_date", decode(t, j.ResultJSON)["status"])
	require.Len(t, b.sw.Requests(reqlog.Filter{Writes: true, Protocol: reqlog.NVUE}), writes)
	require.Len(t, b.puts(), 1)
}

// What the switch does wrong, and what becomes of the job.
func TestImageUpdateFaults(t *testing.T) {
	t.Parallel()
	say := func(state, text string) json.RawMessage {
		raw, err := json.Marshal(map[string]any{"state": state, "status": "", "detail": "", "issue": []any{map[string]any{"message": text}}, "percentage": 10})
		require.NoError(t, err)
		return raw
	}
	rule := func(r nvswitch.ActionRule) func(*nvswitch.Options) {
		return func(o *nvswitch.Options) { o.Knobs.Actions = []nvswitch.ActionRule{r} }
	}
	fault := func(r faults.Rule) func(*nvswitch.Options) {
		return func(o *nvswitch.Options) {
			o.Faults = &faults.Set{}
			_, err := o.Faults.Add(r)
			require.NoError(t, err)
		}
	}
	action := func(status int) func(*nvswitch.Options) {
		return fault(faults.Rule{Selector: faults.Request("GET", "/nvue_v1/action/*"), Action: faults.Action{Status: &faults.Status{Code: status}}})
	}
	for _, tt := range []struct {
		name   string
		change []func(*nvswitch.Options)
		// stage, code and text of the failure; none for a job that completes.
		stage string
		code  job.FailureCode
		text  string
		// uninstalls and installs are the actions asked for.
		uninstalls, installs int
	}{
		{name: "empty partition", installs: 1},
		{name: "nothing to uninstall", uninstalls: 1, installs: 1, change: []func(*nvswitch.Options){twoImages,
			rule(nvswitch.ActionRule{Verb: "@uninstall", Script: []json.RawMessage{say("action_error", "Nothing to uninstall")}})}},
		{name: "uninstall never ends", uninstalls: 1, stage: "cleanup_old_partition", code: job.FailureTaskException, text: "not done within",
			change: []func(*nvswitch.Options){twoImages,
				rule(nvswitch.ActionRule{Verb: "@uninstall", NoEffect: true, Script: []json.RawMessage{say("action_running", "")}})}},
		{name: "uninstall fails", uninstalls: 1, stage: "cleanup_old_partition", code: job.FailureTaskException, text: "partition is busy",
			change: []func(*nvswitch.Options){twoImages,
				rule(nvswitch.ActionRule{Verb: "@uninstall", NoEffect: true, Script: []json.RawMessage{say("action_failed", "partition is busy")}})}},
		{name: "uninstall vanishes", uninstalls: 1, installs: 1, change: []func(*nvswitch.Options){twoImages, func(o *nvswitch.Options) {
			o.Timing.Action = time.Millisecond
			o.Knobs.Actions = []nvswitch.ActionRule{{Verb: "@uninstall", Missing: true}}
		}}},
		{name: "install fails", installs: 1, stage: "wait_for_install_handoff", code: job.FailureTaskException, text: "image is corrupt",
			change: []func(*nvswitch.Options){rule(nvswitch.ActionRule{Verb: "@install", NoEffect: true, Script: []json.RawMessage{say("action_failed", "image is corrupt")}})}},
		{name: "install refused", stage: "trigger_install", code: job.FailureTaskException, text: "HTTP 400",
			change: []func(*nvswitch.Options){fault(faults.Rule{Selector: faults.Request("POST", "/nvue_v1/system/image/files/*"), Action: faults.Action{Status: &faults.Status{Code: 400}}})}},
		{name: "install refused as busy", stage: "trigger_install", code: job.FailureTaskException, text: "HTTP 409",
			change: []func(*nvswitch.Options){fault(faults.Rule{Selector: faults.Request("POST", "/nvue_v1/system/image/files/*"), Action: faults.Action{Status: &faults.Status{Code: 409}}})}},
		{name: "401 in the handoff", installs: 1, change: []func(*nvswitch.Options){action(http.StatusUnauthorized)}},
		{name: "500 in the handoff", installs: 1, change: []func(*nvswitch.Options){action(http.StatusInternalServerError), slowHandoff}},
		{name: "action vanishes and the image is in", installs: 1, change: []func(*nvswitch.Options){rule(nvswitch.ActionRule{Verb: "@install", Missing: true})}},
		{name: "404 for ever", installs: 1, stage: "wait_for_install_handoff", code: job.FailureTaskTimeout, text: "did not go down",
			change: []func(*nvswitch.Options){rule(nvswitch.ActionRule{Verb: "@install", Missing: true, NoEffect: true})}},
		{name: "reboot longer than the first window", installs: 1, change: []func(*nvswitch.Options){func(o *nvswitch.Options) { o.Timing.Reboot = 1200 * time.Millisecond }}},
		{name: "old build after the boot", installs: 1, stage: "wait_for_target_steady_state", code: job.FailureVersionMismatch,
			text: "the switch runs " + oldBuild, change: []func(*nvswitch.Options){func(o *nvswitch.Options) { o.Knobs.BootOldImage = true }}},
		{name: "never back", installs: 1, stage: "wait_for_target_steady_state", code: job.FailureSwitchNotReady, text: "did not come back",
			change: []func(*nvswitch.Options){func(o *nvswitch.Options) { o.Knobs.NeverBack = true }}},
		{name: "the file does not show", stage: "stage_image", code: job.FailureUploadFailed, text: "does not see the file",
			change: []func(*nvswitch.Options){func(o *nvswitch.Options) {
				o.Knobs.Commands = []nvswitch.CommandRule{{Match: "echo ok", Answer: true, Stdout: "no\n"}}
			}}},
		{name: "upload stalls", stage: "stage_image", code: job.FailureUploadFailed, text: "stalled",
			change: []func(*nvswitch.Options){func(o *nvswitch.Options) { o.Knobs.SFTP.StallAfter = 4096 }}},
		{name: "disk full", stage: "stage_image", code: job.FailureUploadFailed, text: "upload",
			change: []func(*nvswitch.Options){func(o *nvswitch.Options) { o.Knobs.SFTP.FailAfter = 4096 }}},
		{name: "corrupt on the way", stage: "stage_image", code: job.FailureUploadFailed, text: "another digest",
			change: []func(*nvswitch.Options){func(o *nvswitch.Options) { o.Knobs.SFTP.Corrupt = true }}},
		{name: "image state not readable", stage: "inspect_state", code: job.FailurePreconditionFailed, text: "HTTP 500",
			change: []func(*nvswitch.Options){fault(faults.Rule{Selector: faults.Request("GET", "/nvue_v1/system/image"), Action: faults.Action{Status: &faults.Status{Code: 500}}})}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, tt.change...)
			if tt.stage != "" {
				// These wait until a limit is over.
				b.timing.SteadyThird, b.timing.HandoffLimit, b.timing.UninstallLimit = 500*time.Millisecond, time.Second, time.Second
			}
			if tt.text == "stalled" {
				b.stall = 300 * time.Millisecond
			}
			b.start(nil)
			j := b.Await(b.admitImage(b.imageFile("25.02.4440")))
			require.Equal(t, tt.uninstalls, b.actions("@uninstall"))
			require.Equal(t, tt.installs, b.actions("@install"))
			r := decode(t, j.ResultJSON)
			if tt.stage == "" {
				require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
				require.Equal(t, "success", r["status"])
				require.Equal(t, newBuild, b.sw.Images().Current)
				return
			}
			require.Equal(t, job.StateFailed, j.State)
			require.Equal(t, tt.code, j.Failure.FailureCode, "%+v", j.Failure)
			require.Equal(t, job.CodeOther, j.Failure.Code)
			require.Contains(t, j.Failure.Message, tt.text)
			require.Equal(t, tt.stage, j.Failure.Phase)
			require.Equal(t, "failed", r["status"])
			failed := map[string]any{}
			for i, raw := range r["timing_summary"].(map[string]any)["stages"].([]any) {
				s := raw.(map[string]any)
				if s["name"] == tt.stage {
					failed = s
					require.Equal(t, "failed", s["status"])
					require.EqualValues(t, i, r["timing_summary"].(map[string]any)["stage_index"])
				}
			}
			require.Contains(t, failed["details"].(map[string]any)["error"], tt.text)
			if tt.name == "the file does not show" || tt.installs > 0 {
				return
			}
			require.Equal(t, oldBuild, b.sw.Images().Current)
			require.Zero(t, b.sw.Reboots())
		})
	}
}

// slowHandoff lets the installation end before the answer is readable again.
func slowHandoff(o *nvswitch.Options) { o.Timing.Install = 100 * time.Millisecond }

// An upload that is stopped leaves the switch as it was, and says so.
func TestImageUpdateCancelled(t *testing.T) {
	t.Parallel()
	t.Run("in the upload", func(t *testing.T) {
		b := newBench(t, func(o *nvswitch.Options) { o.Knobs.SFTP.BytesPerSecond = 16 << 10 })
		b.start(nil)
		id := b.admitImage(b.imageFile("25.02.4440"))
		b.AwaitStage(id, "stage_image")
		b.Cancel(id, job.CancelGraceful)
		j := b.Await(id)
		require.Equal(t, job.StateCancelled, j.State)
		r := decode(t, j.ResultJSON)
		require.Equal(t, "cancelled", r["status"])
		stages := r["timing_summary"].(map[string]any)["stages"].([]any)
		require.Equal(t, true, stages[2].(map[string]any)["details"].(map[string]any)["cancelled"])
		require.Zero(t, b.actions("@install"))
	})
	t.Run("in the reboot it goes on", func(t *testing.T) {
		b := newBench(t)
		b.start(nil)
		id := b.admitImage(b.imageFile("25.02.4440"))
		b.AwaitStage(id, "wait_for_install_handoff")
		b.Cancel(id, job.CancelGraceful)
		require.Equal(t, job.StateCompleted, b.Await(id).State)
	})
	t.Run("by force in the installation", func(t *testing.T) {
		b := newBench(t, func(o *nvswitch.Options) { o.Timing.Install = agenttest.Patience })
		b.start(nil)
		id := b.admitImage(b.imageFile("25.02.4440"))
		b.AwaitStage(id, "wait_for_install_handoff")
		b.Cancel(id, job.CancelTerminate)
		j := b.Await(id)
		require.Equal(t, job.StateTerminated, j.State)
		action := decode(t, j.ResultJSON)["install_job_id"]
		require.NotEmpty(t, action)
		require.Equal(t, "terminated during stage wait_for_install_handoff (Waiting for the switch to reboot into the image): "+
			fmt.Sprintf("hardware state unknown; in flight: action %v", action), j.Failure.Message)
		stage := j.Stage("wait_for_install_handoff")
		require.True(t, stage.Uninterruptible)
		require.Greater(t, stage.StopLimit, b.timing.HandoffLimit, "what follows goes on with the change")
	})
}

// The agent dies in every stage; the next one ends the job, with one uninstallation
// and one installation.
func TestImageUpdateAgentDies(t *testing.T) {
	t.Parallel()
	const install = 2 // behind the uninstallation
	all := slices.Concat(
		crashtest.Times(agent.FailAfterClaim, 1),
		// The uninstallation and the installation note their intent.
		crashtest.Times(agent.FailAfterIntent, install), crashtest.Times(agent.FailAfterDeviceChange, install),
		crashtest.Times(agent.FailAfterDone, 1), crashtest.Times(agent.FailBeforeAck, 1),
		crashtest.InStages(runbook.FailInStage, imageStages...),
	)
	for _, d := range crashtest.Pick(all,
		crashtest.Death{Point: agent.FailAfterIntent, N: 1}, crashtest.Death{Point: agent.FailAfterIntent, N: install},
		crashtest.Death{Point: agent.FailAfterDeviceChange, N: install},
		crashtest.Death{Point: runbook.FailInStage + "stage_image", N: 1},
		crashtest.Death{Point: runbook.FailInStage + "wait_for_target_steady_state", N: 1},
	) {
		t.Run(d.String(), func(t *testing.T) {
			b := newBench(t, twoImages)
			doomed := b.doomed(d.Point, d.N)
			id := b.admitImage(b.imageFile("25.02.4440"))
			b.died(doomed, id)
			b.start(nil)
			j := b.Await(id)
			require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
			require.Equal(t, newBuild, b.sw.Images().Current)
			require.Equal(t, 1, b.actions("@uninstall"))
			require.Equal(t, 1, b.actions("@install"))
			require.Len(t, b.puts(), 1)
			require.Equal(t, 1, b.sw.Reboots())
			require.Equal(t, "success", decode(t, j.ResultJSON)["status"])
		})
	}
}

// A new image may bring back the factory's password, expired: it is replaced by the
// one that the switch is known by.
func TestImageUpdateExpiredAdmin(t *testing.T) {
	t.Parallel()
	expires := func(o *nvswitch.Options) { o.Knobs.InstallExpiresAdmin, o.Knobs.NewHostKey = true, true }
	t.Run("replaced", func(t *testing.T) {
		b := newBench(t, expires)
		b.start(nil)
		j := b.Await(b.admitImage(b.imageFile("25.02.4440")))
		require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
		require.Equal(t, planted, b.sw.UserPassword("admin"))
		require.False(t, b.sw.Expired("admin"))
		require.NotContains(t, j.ResultJSON, planted)
		require.Equal(t, 1, strings.Count(b.logs.String(), "host key replaced"))
	})
	t.Run("refused by the image", func(t *testing.T) {
		b := newBench(t, expires, func(o *nvswitch.Options) { o.Knobs.PasswordChange = nvswitch.PasswordBad })
		b.start(nil)
		j := b.Await(b.admitImage(b.imageFile("25.02.4440")))
		require.Equal(t, job.StateFailed, j.State)
		require.Equal(t, job.FailurePreconditionFailed, j.Failure.FailureCode, "%+v", j.Failure)
		require.Equal(t, "wait_for_target_steady_state", j.Failure.Phase)
		require.NotContains(t, j.ResultJSON+j.Failure.Message, planted)
	})
	t.Run("another password", func(t *testing.T) {
		b := newBench(t)
		b.start(nil)
		id := b.admitImage(b.imageFile("25.02.4440"))
		b.until("the reboot", func() bool { return b.sw.Reboots() == 1 })
		b.sw.SetUser("admin", "a third one", false)
		j := b.Await(id)
		require.Equal(t, job.StateFailed, j.State)
		require.Equal(t, job.FailureHostAuthFailed, j.Failure.FailureCode, "%+v", j.Failure)
		refused := 0
		for _, e := range b.sw.Requests(reqlog.Filter{Protocol: reqlog.SSH, Method: "LOGIN"}) {
			if e.Status != http.StatusOK {
				refused++
			}
		}
		require.Equal(t, 1+3, refused, "the factory's once, ours three times: switches lock accounts")
	})
	t.Run("the agent dies behind it", func(t *testing.T) {
		b := newBench(t, expires)
		points := &failpoint.Points{}
		doomed := b.startTimed(agenttest.BusTiming(), points)
		id := b.admitImage(b.imageFile("25.02.4440"))
		_, err := b.sw.Log().Wait(t.Context(), reqlog.Filter{Protocol: reqlog.SSH, Method: "SHELL"}, 1)
		require.NoError(t, err)
		doomed.kill()
		b.start(nil)
		j := b.Await(id)
		require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
		require.Equal(t, planted, b.sw.UserPassword("admin"))
		require.Equal(t, 1, b.actions("@install"))
	})
}

// The answer to the installation is lost: it is judged by the image state, and
// never asked for twice.
func TestImageInstallAnswerLost(t *testing.T) {
	b := newBench(t, func(o *nvswitch.Options) {
		o.Faults = &faults.Set{}
		_, err := o.Faults.Add(faults.Rule{
			Selector: faults.Request("POST", "/nvue_v1/system/image/files/*"), Remaining: 1,
			Action: faults.Action{Cut: &faults.Cut{AfterExecute: true}},
		})
		require.NoError(t, err)
	})
	b.start(nil)
	j := b.Await(b.admitImage(b.imageFile("25.02.4440")))
	require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
	require.Equal(t, 1, b.actions("@install"))
	require.Equal(t, newBuild, b.sw.Images().Current)
}

// Another file of the same size under the same name is no reason not to send it.
func TestImageOfEqualSizeIsSent(t *testing.T) {
	b := newBench(t)
	cmd := b.imageFile("25.02.4440")
	content := []byte("racksim-image: nvos-25.02.9999\n" + strings.Repeat("y", int(cmd.GetSizeBytes())-len("racksim-image: nvos-25.02.9999\n")))
	require.NoError(t, b.sw.WriteFile("/host/nos-images/"+cmd.GetImageFilename(), content))
	b.start(nil)
	j := b.Await(b.admitImage(cmd))
	require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
	require.Len(t, b.puts(), 1)
	require.Equal(t, newBuild, b.sw.Images().Current)
	require.Equal(t, true, decode(t, j.ResultJSON)["image_visible_before_stage"])
}

// The key of a switch that this job has reinstalled is accepted once, and only by
// this job.
func TestI3HostKeyAfterOurOwnInstall(t *testing.T) {
	b := newBench(t, func(o *nvswitch.Options) { o.Knobs.NewHostKey = true })
	b.start(nil)
	before := b.sw.HostKey().Marshal()
	j := b.Await(b.admitImage(b.imageFile("25.02.4440")))
	require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
	require.NotEqual(t, before, b.sw.HostKey().Marshal())
	logs := b.logs.String()
	require.Equal(t, 1, strings.Count(logs, "host key replaced"), logs)

	// The next job finds the recorded key.
	j = b.Await(b.admitImage(b.imageFile("25.02.5000")))
	require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)

	// A key that changes without a job is refused.
	require.NoError(t, b.sw.NewHostKey())
	j = b.Await(b.admitImage(b.imageFile("25.02.6000")))
	require.Equal(t, job.StateFailed, j.State)
	require.Equal(t, job.FailureHostKeyRefused, j.Failure.FailureCode, "%+v", j.Failure)
	require.Equal(t, 2, b.actions("@install"))
}
