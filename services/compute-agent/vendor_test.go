// SPDX-License-Identifier: Apache-2.0

package computeagent_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/job"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/sim"
	"github.com/rackbus/rackbus/sim/bmc"
	"github.com/rackbus/rackbus/sim/reqlog"
)

const (
	lenovoTray     = "compute_gb300_lenovo"
	supermicroTray = "compute_gb300_supermicro"
)

// A Lenovo BMC is told to keep its configuration before it gets its image; a BMC
// that was not would come back with the factory's password.
func TestLenovoKeepsItsConfiguration(t *testing.T) {
	b := newTray(t, of(lenovoTray))
	b.knobs(func(k *bmc.Knobs) { k.SilentPatches = 1 })
	image := b.raw("BMC", "lenovo_9.2.hpm")
	image.ExpectedVersion = "9.2"
	j := b.run(activated(image))
	require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
	require.Equal(t, []string{
		"recover", "recover_power", "check", "preserve", "upload", "install", "activate_aux_cycle", "activate_wait_bmc",
		"activate_power_on", "activate_keep_on", "verify",
	}, j.StageNames())
	patches := b.rack.Requests(b.tray.ID(), reqlog.Filter{Method: "PATCH", Path: "/redfish/v1/UpdateService"})
	require.Len(t, patches, 2, "what was taken without effect is sent again")
	upload := b.uploads()[0]
	require.True(t, patches[1].End().Before(upload.Time), "before the image")
	require.JSONEq(t, `{"ImageType":"HPM"}`, string(upload.Upload.OEM))
	require.Equal(t, []string{inventoryPath + "BMC"}, upload.Upload.Targets)
	require.Equal(t, "9.2", b.tray.Version("BMC"))
}

func TestLenovoThatForgetsIsNotUpdated(t *testing.T) {
	b := newTray(t, of(lenovoTray))
	b.knobs(func(k *bmc.Knobs) { k.SilentPatches = -1 })
	j := b.run(activated(b.raw("", "lenovo_9.2.ima")))
	require.Equal(t, job.StateFailed, j.State)
	require.Equal(t, "update", j.Failure.Phase)
	require.Contains(t, j.Failure.Message, "could not be made to keep its configuration")
	require.Equal(t, job.StageFailed, j.Stage("preserve").Status)
	require.Empty(t, b.files())
}

func TestLenovoBaseboard(t *testing.T) {
	b := newTray(t, of(lenovoTray))
	u := update(b.pldm("nvfw_P4059_9.fwpkg", "9.1", "HMC"))
	u.Force = true
	j := b.run(u)
	require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
	upload := b.uploads()[0].Upload
	require.JSONEq(t, `{"ImageType":"PLDM","Platform":"HGX"}`, string(upload.OEM))
	require.JSONEq(t, `{"Targets":[],"ForceUpdate":true}`, string(upload.Parameters))
	require.NotContains(t, j.StageNames(), "preserve")
}

// The parts of a Supermicro tray go in their order, each in force before the next;
// the BMC restarts itself, forgets its task, and is judged by its version.
func TestSupermicroOrder(t *testing.T) {
	b := newTray(t, of(supermicroTray))
	s := b.supermicro()
	j := b.run(s.update)
	require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
	require.Equal(t, s.files, b.files())
	require.Equal(t, []string{
		"recover", "recover_power",
		"check_1", "upload_1", "install_1",
		"activate_hmc_aux_cycle", "activate_hmc_wait_bmc", "activate_hmc_power_on", "activate_hmc_keep_on", "verify_hmc",
		"check_2", "upload_2", "install_2",
		"activate_bios_aux_cycle", "activate_bios_wait_bmc", "activate_bios_power_on", "activate_bios_keep_on", "verify_bios",
		"check_3", "upload_3", "install_3", "verify_bmc",
	}, j.StageNames())
	uploads := b.uploads()
	require.Equal(t, []string{inventoryPath + "HGX_FW_CPU_0", inventoryPath + "HGX_FW_CPU_1"}, uploads[1].Upload.Targets)
	require.Equal(t, []string{inventoryPath + "FW_BMC_0"}, uploads[2].Upload.Targets)
	cycles := b.rack.Requests(b.tray.ID(), reqlog.Filter{Path: "**/" + auxReset, Method: "POST"})
	require.Len(t, cycles, 2)
	require.True(t, cycles[0].End().Before(uploads[1].Time) && cycles[1].End().Before(uploads[2].Time))

	result := decode(t, j.ResultJSON)
	require.InDelta(t, 2, result["activation_count"], 0)
	require.InDelta(t, 3, result["targets_completed"], 0)
	stages := result["post_activation_version_check"].(map[string]any)["stages"].([]any)
	require.Len(t, stages, 3)
	for i, name := range []string{"hmc", "bios", "bmc"} {
		one := stages[i].(map[string]any)
		require.Equal(t, name, one["stage"])
		require.Equal(t, "supermicro_firmware_manifest_version", one["verification"])
	}
	require.Equal(t, "matched", stages[2].(map[string]any)["status"])
	last := result["targets"].([]any)[2].(map[string]any)
	require.Equal(t, "9.2", last["expected_version"])
	details := last["nvfwupd_summary"].(map[string]any)["details"].(map[string]any)
	require.Equal(t, "supermicro_bmc_task_loss_firmware_manifest_version_match", details["recovery"])
	require.Equal(t, "9.2", details["expected_version"])
	require.NotEmpty(t, details["task_id"])
	require.NotEmpty(t, details["poll_error"])
	check := details["version_check"].(map[string]any)
	require.Equal(t, "matched", check["status"])
	require.Equal(t, "supermicro_firmware_manifest_version", check["verification"])
}

// The BMC comes back with its old version: its lost task has failed.
func TestSupermicroLostTaskWithOldVersion(t *testing.T) {
	b := newTray(t, of(supermicroTray))
	b.knobs(func(k *bmc.Knobs) { k.VersionUnchanged = true })
	image := b.raw("BMC", "obmc_9.2.bin")
	image.ExpectedVersion = "9.2"
	j := b.run(activated(image))
	require.Equal(t, job.StateFailed, j.State)
	require.Equal(t, job.FailureTaskLost, j.Failure.FailureCode)
	require.Contains(t, j.Failure.Message, "FW_BMC_0: expected 9.2")
	require.Equal(t, "poll", decode(t, j.ResultJSON)["phase"])
	require.Zero(t, b.posts(auxReset))
}

// Without a version to expect, the BMC's own version has to change.
func TestSupermicroLostTaskWithoutExpectedVersion(t *testing.T) {
	b := newTray(t, of(supermicroTray))
	j := b.run(update(b.raw("", "obmc_9.2.bin")))
	require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
	require.NotContains(t, j.ResultJSON, "recovery", "only a manifest's version counts as a match")
	require.Contains(t, j.ResultJSON, `"activation_count":0`)
	require.Contains(t, j.ResultJSON, `"status":"unverified"`)
}

// What is installed already is neither sent nor activated.
func TestSupermicroPartlyUpToDate(t *testing.T) {
	b := newTray(t, of(supermicroTray))
	s := b.supermicro()
	hmc := b.pldm("GB300_nosbios_10.fwpkg", b.tray.Version("HGX_FW_BMC_0"), "HMC")
	hmc.Component = "HMC"
	s.update.Targets[2] = hmc
	j := b.run(s.update)
	require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
	require.Equal(t, []string{"bios_9.3.bin", "obmc_9.2.bin"}, b.files())
	require.Equal(t, 1, b.posts(auxReset))
	require.Equal(t, job.StageSkipped, j.Stage("activate_hmc_aux_cycle").Status)
	require.Contains(t, j.ResultJSON, `"activation_count":1`)
}

// An agent of another version may get what the API would have refused.
func TestPlanIsRefused(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		nodeType string
		targets  []*rackbusv1.FirmwareUpdateTarget
		code     job.FailureCode
		text     string
	}{
		"supermicro file":   {supermicroTray, []*rackbusv1.FirmwareUpdateTarget{{Component: "HMC", File: "obmc.bin"}}, job.FailureInvalidArgument, "does not fit"},
		"key of other type": {lenovoTray, []*rackbusv1.FirmwareUpdateTarget{{Component: "CPU_0", File: "x"}}, job.FailureInvalidArgument, "not CPU_0"},
		"no target":         {lenovoTray, nil, job.FailureInvalidArgument, "names no firmware targets"},
		"in-band inactive":  {"compute_gb200_nvidia", []*rackbusv1.FirmwareUpdateTarget{{Component: "CX7", File: "a.bin"}}, job.FailurePreconditionFailed, "need activate"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newTray(t, of(tt.nodeType))
			j := b.run(update(tt.targets...))
			require.Equal(t, job.StateFailed, j.State)
			require.Equal(t, tt.code, j.Failure.FailureCode)
			require.Equal(t, "planning", j.Failure.Phase)
			require.Contains(t, j.Failure.Message, tt.text)
			require.Empty(t, b.rack.Requests("", anyWrite))
		})
	}
}

// A component that the node lacks is refused before its image is sent.
func TestComponentThatIsNotThere(t *testing.T) {
	b := newTray(t)
	b.knobs(func(k *bmc.Knobs) { k.Hidden = []string{"HGX_FW_CPU_1"} })
	j := b.run(update(b.raw("CPU_1", "sbios_9.bin")))
	require.Equal(t, job.StateFailed, j.State)
	require.Equal(t, job.FailureTargetNotFound, j.Failure.FailureCode)
	require.Contains(t, j.Failure.Message, "HGX_FW_CPU_1")
	require.Empty(t, b.files())
}

// A logical component is sent to its inventory entry.
func TestLogicalComponent(t *testing.T) {
	b := newTray(t, func(o *sim.Options) { o.ComputeGeneration = sim.GB300 })
	image := b.raw("erot-cpu-1", "erot_9.4.bin")
	image.ExpectedVersion = "9.4"
	j := b.run(activated(image))
	require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
	require.Equal(t, []string{inventoryPath + "HGX_FW_ERoT_CPU_1"}, b.uploads()[0].Upload.Targets)
	require.Equal(t, "9.4", b.tray.Version("HGX_FW_ERoT_CPU_1"))
	require.Equal(t, "matched", decode(t, j.ResultJSON)["post_activation_version_check"].(map[string]any)["status"])
}

// An image that is older than what is installed is refused by the device, in its
// own words, unless it is forced.
func TestDowngrade(t *testing.T) {
	b := newTray(t)
	b.knobs(func(k *bmc.Knobs) { k.ComparisonStamp = 5 })
	image := b.pldm("nvfw_P4972_9.fwpkg", "99.01", "BMC")
	j := b.run(update(image))
	require.Equal(t, job.StateFailed, j.State)
	require.Contains(t, j.Failure.Message, "Component comparison stamp is lower than the firmware component comparison stamp in the FD.")
	require.Equal(t, "poll", decode(t, j.ResultJSON)["phase"])
	forced := update(image)
	forced.Force = true
	require.Equal(t, job.StateCompleted, b.run(forced).State)
}
