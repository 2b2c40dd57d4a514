// SPDX-License-Identifier: Apache-2.0

package computeagent_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/redfishagent/agenttest"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/sim"
	"github.com/rackbus/rackbus/sim/bmc"
	"github.com/rackbus/rackbus/sim/faults"
)

// failure is how an update that cannot succeed is told.
type failure struct {
	name  string
	knobs bmc.Knobs
	fault *faults.Rule
	spoil func(*bench)
	agent func(*agenttest.AgentOptions)
	// activate asks for the activation.
	activate bool
	model    func(*sim.Options)
	// sent is how many images arrive whole.
	sent int

	code      job.FailureCode
	class     job.ErrorCode
	phase     string
	messageID string
	text      string
	targetID  string
}

func (f failure) run(t *testing.T) {
	if f.model == nil {
		f.model = func(*sim.Options) {}
	}
	var b *bench
	if f.agent == nil {
		b = newTray(t, f.model)
	} else {
		b = newBench(t, f.model)
		b.Start(f.agent)
	}
	b.knobs(func(k *bmc.Knobs) { *k = f.knobs })
	if f.fault != nil {
		_, err := b.rack.AddFault(*f.fault)
		require.NoError(t, err)
	}
	target := b.pldm("nvfw_P4972_9.fwpkg", "99.01", "BMC")
	if f.spoil != nil {
		f.spoil(b)
	}
	u := update(target)
	u.Activate = f.activate
	j := b.run(u)
	require.Equal(t, job.StateFailed, j.State, j.Description)
	require.Equal(t, f.code, j.Failure.FailureCode, "%+v", j.Failure)
	require.Equal(t, f.class, j.Failure.Code, "%+v", j.Failure)
	require.Equal(t, f.phase, j.Failure.Phase, "%+v", j.Failure)
	require.Contains(t, j.Failure.Message, f.text)
	require.Len(t, b.uploads(), f.sent)
	require.LessOrEqual(t, b.posts(auxReset), 1, "a refused AUX cycle is not repeated")

	result := decode(t, j.ResultJSON)
	require.Equal(t, "failed", result["status"])
	require.Equal(t, f.phase, result["phase"])
	require.Equal(t, f.class.String(), result["error_code"])
	require.Equal(t, string(f.code), result["failure_code"])
	require.Equal(t, result["summary"], result["error_message"])
	require.Contains(t, result["summary"], f.text)
	if f.phase == "update" || f.phase == "poll" {
		require.Equal(t, map[string]any{"component": "", "firmware_file": target.GetFile()}, result["target"])
	} else {
		require.NotContains(t, result, "target")
	}
	if f.messageID == "" {
		require.NotContains(t, result, "redfish")
	} else {
		require.Equal(t, f.messageID, j.Failure.Device.MessageID)
		require.Equal(t, f.messageID, result["redfish"].(map[string]any)["code"])
		require.NotEmpty(t, result["redfish"].(map[string]any)["message"])
	}
	if f.targetID != "" {
		require.Equal(t, f.targetID, result["target_id"])
	}
	require.NotContains(t, j.ResultJSON+j.Failure.Message, b.tray.Password())
}

// taskEnd is a knob for how the update task ends.
func taskEnd(state, status string, messages ...bmc.Message) bmc.Knobs {
	return bmc.Knobs{TaskEnd: &bmc.TaskEnd{State: state, Status: status, Messages: messages}}
}

func status(code int, method, path string) *faults.Rule {
	return &faults.Rule{Selector: faults.Request(method, path), Action: faults.Action{Status: &faults.Status{Code: code}}}
}

func TestChecksFail(t *testing.T) {
	t.Parallel()
	for _, f := range []failure{
		{
			name: "hardware write protect", knobs: bmc.Knobs{HardwareWriteProtect: true},
			code: job.FailureWriteProtected, class: job.CodeFailedPrecondition, phase: "update",
			text: "Upload failed for target package-derived: hardware write protect is enabled at /redfish/v1/Chassis/Chassis_0",
		}, {
			name: "component write protect", knobs: bmc.Knobs{WriteProtected: []string{"FW_BMC_0"}},
			code: job.FailureWriteProtected, class: job.CodeFailedPrecondition, phase: "update",
			text: "1 component(s): /redfish/v1/UpdateService/FirmwareInventory/FW_BMC_0 WriteProtected=true",
		}, {
			name: "background copy never ends", knobs: bmc.Knobs{BackgroundCopy: -1},
			agent: func(o *agenttest.AgentOptions) { o.Timing.Redfish.BackgroundCopyLimit = 200 * time.Millisecond },
			code:  job.FailureBackgroundCopyPending, class: job.CodeFailedPrecondition, phase: "update",
			text: "HGX_ERoT_BMC_0=InProgress",
		}, {
			name: "foreign update", knobs: bmc.Knobs{RunningTask: "77"},
			code: job.FailureUpdateAlreadyRunning, class: job.CodeUpdateInProgress, phase: "update", text: "77 (state Running)",
		}, {
			name: "update service off", knobs: bmc.Knobs{ServiceDisabled: true},
			code: job.FailurePreconditionFailed, class: job.CodeFailedPrecondition, phase: "update", text: "update service is disabled",
		}, {
			name: "credentials refused", spoil: func(b *bench) { b.tray.SetAccount("admin", "another") },
			code: job.FailureBMCAuthFailed, class: job.CodeUnauthenticated, phase: "update",
			messageID: "Base.1.18.1.ResourceAtUriUnauthorized", text: "HTTP 401",
		}, {
			name: "unreachable", fault: &faults.Rule{Action: faults.Action{Refuse: true}},
			code: job.FailureBMCUnreachable, class: job.CodeClientError, phase: "update", text: "connection refused",
		}, {
			name: "other product", spoil: func(b *bench) { b.node.NodeType = "switch_gb200_nvidia" },
			code: job.FailureInvalidArgument, class: job.CodeInvalidArgument, phase: "validation", text: "switch_gb200_nvidia",
		}, {
			name: "file missing", spoil: func(b *bench) { require.NoError(b.t, os.Remove(b.firmware())) },
			code: job.FailureFileNotFound, class: job.CodeFileNotFound, phase: "validation", text: "not found on the agent",
		}, {
			name: "file changed", spoil: func(b *bench) { require.NoError(b.t, os.WriteFile(b.firmware(), []byte("other"), 0o600)) },
			code: job.FailureFileChanged, class: job.CodeFileNotFound, phase: "validation", text: "has changed since the job was admitted",
		}, {
			name: "file changed, same size", spoil: func(b *bench) {
				content, err := os.ReadFile(b.firmware())
				require.NoError(b.t, err)
				content[len(content)-1] ^= 1
				require.NoError(b.t, os.WriteFile(b.firmware(), content, 0o600))
			},
			code: job.FailureFileChanged, class: job.CodeFileNotFound, phase: "validation", text: "its SHA-256 is",
		}, {
			name: "file is a directory", spoil: func(b *bench) {
				require.NoError(b.t, os.Remove(b.firmware()))
				require.NoError(b.t, os.Mkdir(b.firmware(), 0o700))
			},
			code: job.FailureFileUnreadable, class: job.CodeFileNotFound, phase: "validation", text: "no regular file",
		}, {
			name: "file leads outside", spoil: func(b *bench) {
				require.NoError(b.t, os.Remove(b.firmware()))
				require.NoError(b.t, os.Symlink("/etc/passwd", b.firmware()))
			},
			code: job.FailureFileUnreadable, class: job.CodeFileNotFound, phase: "validation", text: "escapes",
		},
	} {
		t.Run(f.name, f.run)
	}
}

// hasty agents give a host little time to go off.
func hasty(o *agenttest.AgentOptions) { o.Timing.Redfish.PowerOffLimit = 300 * time.Millisecond }

func (b *bench) firmware() string { return filepath.Join(b.FirmwareDir, "nvfw_P4972_9.fwpkg") }

func TestFileOutsideOfTheDirectory(t *testing.T) {
	b := newTray(t)
	j := b.run(update(&rackbusv1.FirmwareUpdateTarget{File: "../../etc/passwd"}))
	require.Equal(t, job.FailureFileUnreadable, j.Failure.FailureCode)
	require.Equal(t, "validation", j.Failure.Phase)
	require.Empty(t, b.rack.Requests("", anyWrite))
}

func TestUploadIsRefused(t *testing.T) {
	t.Parallel()
	for _, f := range []failure{
		{
			name: "as a bad request", fault: status(400, "POST", "**/update-multipart"),
			code: job.FailureBMCRefused, class: job.CodeServerError, phase: "update", messageID: "Base.1.18.1.GeneralError",
			text: "Upload failed for target package-derived: upload firmware: POST /redfish/v1/UpdateService/update-multipart: HTTP 400",
		}, {
			name: "for ever as broken", fault: status(500, "POST", "**/update-multipart"),
			code: job.FailureBMCRefused, class: job.CodeServerError, phase: "update", messageID: "Base.1.18.1.GeneralError", text: "HTTP 500",
		}, {
			name: "for ever as not ready", fault: status(503, "POST", "**/update-multipart"),
			code: job.FailureBMCRefused, class: job.CodeServerError, phase: "update", messageID: "Base.1.18.1.GeneralError", text: "HTTP 503",
		},
	} {
		t.Run(f.name, f.run)
	}
}

func TestTaskFails(t *testing.T) {
	t.Parallel()
	const verification = "Update.1.0.VerificationFailed"
	for _, f := range []failure{
		{
			name: "exception", knobs: taskEnd("Exception", "Critical"), sent: 1, targetID: "0",
			code: job.FailureTaskException, class: job.CodeOther, phase: "poll", messageID: verification,
			text: "Poll failed for target package-derived: firmware task 0 ended unsuccessfully: state='Exception', status='Critical'",
		}, {
			name: "killed", knobs: taskEnd("Killed", "Critical"), sent: 1, targetID: "0",
			code: job.FailureTaskException, class: job.CodeOther, phase: "poll", messageID: verification, text: "state='Killed'",
		}, {
			name: "stuck", knobs: bmc.Knobs{TaskStuckAt: 42}, sent: 1,
			agent: func(o *agenttest.AgentOptions) { o.Timing.TaskPoll.Limit = 200 * time.Millisecond },
			code:  job.FailureTaskTimeout, class: job.CodeOther, phase: "poll", text: "polling firmware task 0 exceeded timeout of ",
		}, {
			name:  "gone, old version",
			knobs: bmc.Knobs{RestartDuringUpdate: &bmc.UpdateRestart{LoseTask: true, Outcome: bmc.RestartAbandons}}, sent: 1,
			code: job.FailureTaskLost, class: job.CodeOther, phase: "poll", text: "task 0 disappeared, and the old version is still installed: FW_BMC_0: expected 99.01, found GB200Nvl",
		}, {
			name: "not readable any more", fault: status(500, "GET", "/redfish/v1/TaskService/Tasks/0"), sent: 1,
			agent: func(o *agenttest.AgentOptions) { o.Timing.TaskPoll.Tolerance = 100 * time.Millisecond },
			code:  job.FailureTaskLost, class: job.CodeOther, phase: "poll", text: "task 0 could not be read any more (read task",
		}, {
			name:  "restart in the middle",
			knobs: bmc.Knobs{RestartDuringUpdate: &bmc.UpdateRestart{Outcome: bmc.RestartAbandons}}, sent: 1, targetID: "0",
			code: job.FailureTaskException, class: job.CodeOther, phase: "poll", messageID: "Update.1.0.ApplyFailed",
			text: "interrupted by a restart",
		},
	} {
		t.Run(f.name, f.run)
	}
}

func TestActivationFails(t *testing.T) {
	t.Parallel()
	for _, f := range []failure{
		{
			name: "version unchanged", knobs: bmc.Knobs{VersionUnchanged: true}, activate: true, sent: 1,
			code: job.FailureVersionMismatch, class: job.CodeOther, phase: "post_activation_version_check",
			text: "post-activation firmware version check failed: FW_BMC_0: expected 99.01, found GB200Nvl",
		}, {
			name: "AUX refused", fault: status(400, "POST", "**/NvidiaChassis.AuxPowerReset"), activate: true, sent: 1,
			code: job.FailureBMCRefused, class: job.CodeOther, phase: "activation", messageID: "Base.1.18.1.GeneralError",
			text: "Firmware flashed but activation failed: AUX power cycle",
		}, {
			name: "host does not go off", knobs: bmc.Knobs{PowerIgnored: true}, activate: true, sent: 1, agent: hasty,
			code: job.FailureActivationFailed, class: job.CodeOther, phase: "activation", text: "wanted OFF",
		}, {
			name: "AUX while the host is on", knobs: bmc.Knobs{PowerIgnored: true}, activate: true, model: gb300, sent: 1, agent: hasty,
			code: job.FailurePreconditionFailed, class: job.CodeFailedPrecondition, phase: "activation",
			messageID: "Base.1.18.1.ChassisPowerStateOffRequired", text: "Firmware flashed but activation failed: AUX power cycle",
		}, {
			name: "BMC does not come back", activate: true, model: func(o *sim.Options) {
				gb300(o)
				o.Timing.AUXOutage = time.Minute
			}, sent: 1, agent: func(o *agenttest.AgentOptions) { o.Timing.Redfish.BMCLimit = 200 * time.Millisecond },
			code: job.FailureActivationFailed, class: job.CodeOther, phase: "activation", text: "the BMC did not come back",
		},
	} {
		t.Run(f.name, f.run)
	}
}
