// SPDX-License-Identifier: Apache-2.0

package computeagent_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/redfishagent/agenttest"
	"github.com/rackbus/rackbus/sim"
	"github.com/rackbus/rackbus/sim/bmc"
	"github.com/rackbus/rackbus/sim/faults"
)

func TestUpdateWithoutActivation(t *testing.T) {
	b := newBench(t)
	b.Start()
	before := b.tray.Version("FW_BMC_0")
	j := b.run(update(b.pldm("nvfw_GB200-P4972_9.fwpkg", "GB200Nvl-99.01", "BMC")))
	require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
	require.Len(t, b.uploads(), 1)
	require.Equal(t, before, b.tray.Version("FW_BMC_0"), "nothing is in force without activation")
	require.Equal(t, map[string]string{"FW_BMC_0": "GB200Nvl-99.01"}, b.tray.Pending())
	require.Zero(t, b.posts(hostReset))
	require.Equal(t, []string{"check", "upload", "install"}, j.StageNames())
	require.Equal(t, "Completed", j.Description)
	require.JSONEq(t, `{
		"rack_id":"rack-1","node_id":"compute-0001","targets_completed":1,"targets_skipped":0,
		"targets":[{"component":"","firmware_file":"nvfw_GB200-P4972_9.fwpkg","target":"package-derived","status":"completed",
			"nvfwupd_summary":{"message":"The task has completed.","task_ids":["0"]}}],
		"activated":false,"post_activation_version_check":null,"status":"completed"}`, j.ResultJSON)
}

func TestUpdateWithActivation(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		model  string
		option func(*sim.Options)
		stages []string
	}{
		{"GB200", func(*sim.Options) {}, []string{
			"recover", "recover_power", "check", "upload", "install", "activate_aux_cycle", "activate_aux_settle", "activate_power_on", "activate_wait_on",
			"activate_aux_cycle_2", "activate_aux_settle_2", "activate_power_on_2", "activate_wait_on_2", "verify",
		}},
		{"GB300", gb300, []string{
			"recover", "recover_power", "check", "upload", "install", "activate_aux_cycle", "activate_wait_bmc", "activate_power_on", "activate_keep_on", "verify",
		}},
	} {
		t.Run(tt.model, func(t *testing.T) {
			b := newBench(t, tt.option)
			b.Start()
			j := b.run(activated(b.pldm("nvfw_P4972_9.fwpkg", "99.01", "BMC")))
			require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
			require.Len(t, b.uploads(), 1)
			require.Equal(t, "99.01", b.tray.Version("FW_BMC_0"))
			require.Equal(t, bmc.PowerOn, b.tray.PowerState())
			require.Equal(t, 1, b.posts(auxReset))
			require.Equal(t, 2, b.posts(hostReset), "off and on")
			require.Equal(t, tt.stages, j.StageNames())
			for _, s := range j.Stages {
				want := job.StageCompleted
				if strings.HasSuffix(s.Name, "_2") || strings.HasPrefix(s.Name, "recover") {
					want = job.StageSkipped
				}
				require.Equal(t, want, s.Status, s.Name)
				require.False(t, s.FinishedAt.IsZero(), s.Name)
			}
			require.JSONEq(t, `{
				"rack_id":"rack-1","node_id":"compute-0001","targets_completed":1,"targets_skipped":0,
				"targets":[{"component":"","firmware_file":"nvfw_P4972_9.fwpkg","target":"package-derived","status":"completed",
					"nvfwupd_summary":{"message":"The task has completed.","task_ids":["0"]}}],
				"activated":true,
				"post_activation_version_check":{"status":"matched","comparable_components":1,"mismatches":0,"components":[
					{"name":"FW_BMC_0","inventory_path":"/redfish/v1/UpdateService/FirmwareInventory/FW_BMC_0",
					 "system_version":"99.01","package_version":"99.01","status":"matched"}]},
				"status":"completed"}`, j.ResultJSON)
		})
	}
}

func TestProgressIsTold(t *testing.T) {
	b := newTray(t, func(o *sim.Options) { o.Timing.Task = 2 * time.Second })
	b.knobs(func(k *bmc.Knobs) { k.UploadBytesPerSecond = 6 << 20 })
	j := b.run(update(b.File("FW_BMC_0", "obmc_7.bin", make([]byte, 6<<20))))
	require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
	texts := j.Descriptions()
	for _, want := range []string{
		"Checking the node for target 1/1: FW_BMC_0", "Uploading target 1/1: FW_BMC_0",
		"Running firmware workflow for target FW_BMC_0", "Completed",
	} {
		require.Contains(t, texts, want)
	}
	polled, sending := 0, 0
	for _, e := range j.History {
		if e.Percent > 0 && e.Percent < 100 {
			switch {
			case e.Stages[1].Status == job.StageRunning:
				sending++
			case e.Stages[2].Status == job.StageRunning:
				require.Contains(t, e.Description, "Polling firmware task 0 for target FW_BMC_0")
				polled++
			}
		}
	}
	require.Positive(t, sending, "the upload's percentage moves")
	require.Positive(t, polled, "the task's percentage moves")
}

func TestAlreadyUpToDate(t *testing.T) {
	b := newBench(t)
	b.Start()
	version := b.tray.Version("FW_BMC_0")
	target := b.pldm("nvfw_P4972_9.fwpkg", version, "BMC")
	j := b.run(activated(target))
	require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
	require.Empty(t, b.rack.Uploads(b.tray.ID()), "nothing is sent")
	require.Zero(t, b.posts(hostReset), "nothing is activated")
	require.JSONEq(t, `{
		"rack_id":"rack-1","node_id":"compute-0001","targets_completed":0,"targets_skipped":1,
		"targets":[{"component":"","firmware_file":"nvfw_P4972_9.fwpkg","target":"package-derived","status":"skipped",
			"reason":"already at the version of the package"}],
		"activated":false,"post_activation_version_check":null,"status":"already_up_to_date"}`, j.ResultJSON)
	for _, s := range j.Stages {
		if s.Name == "check" {
			continue
		}
		require.Equal(t, job.StageSkipped, s.Status, s.Name)
	}

	u := update(target)
	u.Force = true
	j = b.run(u)
	require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
	require.Len(t, b.uploads(), 1, "forced all the same")
	require.JSONEq(t, `{"ForceUpdate":true,"Targets":[]}`, string(b.uploads()[0].Upload.Parameters))
}

// Only one of two images is new.
func TestPartlyUpToDateIsSent(t *testing.T) {
	b := newTray(t)
	version := b.tray.Version("FW_BMC_0")
	j := b.run(update(b.pldm("nvfw_P4972_9.fwpkg", version, "BMC", "CPLD")))
	require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
	require.Len(t, b.uploads(), 1)
}

// A device that could not be looked at may need the image: the others of its kind do
// not speak for it.
func TestUnreadableDeviceIsNotUpToDate(t *testing.T) {
	b := newTray(t)
	for i := range 4 {
		b.tray.SetVersion(fmt.Sprintf("HGX_FW_GPU_%d", i), "9.9")
	}
	b.tray.SetVersion("HGX_FW_GPU_3", "1.0")
	_, err := b.rack.AddFault(faults.Rule{
		Selector: faults.Request("GET", servicePath+"/FirmwareInventory/HGX_FW_GPU_3"), Action: faults.Action{Status: &faults.Status{Code: 500}},
	})
	require.NoError(t, err)
	j := b.run(update(b.pldm("nvfw_GB200-P4975_9.fwpkg", "9.9", "GPU")))
	require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
	require.Len(t, b.uploads(), 1)
	require.Equal(t, "completed", decode(t, j.ResultJSON)["status"])
}

func TestForceKeepsBaseboardTarget(t *testing.T) {
	b := newTray(t)
	u := update(b.pldm("nvfw_GB200-P4975_9.fwpkg", "9.9", "GPU"))
	u.Force = true
	j := b.run(u)
	require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
	require.JSONEq(t, `{"ForceUpdate":true,"Targets":["/redfish/v1/Chassis/HGX_Chassis_0"]}`, string(b.uploads()[0].Upload.Parameters))
}

func TestBaseboardPackage(t *testing.T) {
	b := newTray(t)
	j := b.run(activated(b.pldm("nvfw_HGX_9.fwpkg", "9.9", "GPU", "HMC", "SBIOS")))
	require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
	require.Equal(t, []string{"/redfish/v1/Chassis/HGX_Chassis_0"}, b.uploads()[0].Upload.Targets)
	for _, name := range []string{"HGX_FW_GPU_0", "HGX_FW_GPU_3", "HGX_FW_BMC_0", "HGX_FW_CPU_1"} {
		require.Equal(t, "9.9", b.tray.Version(name), name)
	}
	check := decode(t, j.ResultJSON)["post_activation_version_check"].(map[string]any)
	require.Equal(t, "matched", check["status"])
	require.InDelta(t, 7, check["comparable_components"], 0)
	require.Contains(t, j.ResultJSON, `"task_ids":["HGX_0"]`)
}

func TestTargetsOfComponents(t *testing.T) {
	t.Parallel()
	const inventory = "/redfish/v1/UpdateService/FirmwareInventory/"
	for _, tt := range []struct {
		component string
		want      []string
	}{
		{"", []string{}},
		{"BMC", []string{}},
		{"HMC", []string{"/redfish/v1/Chassis/HGX_Chassis_0"}},
		{"/redfish/v1/Chassis/HGX_Chassis_0", []string{"/redfish/v1/Chassis/HGX_Chassis_0"}},
		{"FW_CPLD_0", []string{inventory + "FW_CPLD_0"}},
		{inventory + "HGX_FW_FPGA_1", []string{inventory + "HGX_FW_FPGA_1"}},
	} {
		t.Run(tt.component, func(t *testing.T) {
			b := newTray(t)
			j := b.run(update(b.raw(tt.component, "image_7.bin")))
			require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
			require.Equal(t, tt.want, b.uploads()[0].Upload.Targets)
		})
	}
}

func TestSeveralTargetsInOrder(t *testing.T) {
	b := newTray(t)
	hmc, cpld, tray := b.pldm("nvfw_P4975_9.fwpkg", "9.1", "HMC"), b.raw("FW_CPLD_0", "cpld_9.2.bin"), b.raw("FW_BMC_0", "obmc_9.3.bin")
	tray.ExpectedVersion = "9.3"
	j := b.run(activated(hmc, cpld, tray))
	require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
	var files []string
	for _, u := range b.uploads() {
		files = append(files, u.Upload.File)
	}
	require.Equal(t, []string{"nvfw_P4975_9.fwpkg", "cpld_9.2.bin", "obmc_9.3.bin"}, files)
	require.Equal(t, 1, b.posts(auxReset), "one activation at the end")
	require.Equal(t, []string{
		"recover", "recover_power", "check_1", "upload_1", "install_1", "check_2", "upload_2", "install_2", "check_3", "upload_3", "install_3",
	}, j.StageNames()[:11])
	for name, version := range map[string]string{"HGX_FW_BMC_0": "9.1", "FW_CPLD_0": "9.2", "FW_BMC_0": "9.3"} {
		require.Equal(t, version, b.tray.Version(name), name)
	}
	result := decode(t, j.ResultJSON)
	require.Equal(t, "matched", result["post_activation_version_check"].(map[string]any)["status"])
	require.Equal(t, "9.3", result["targets"].([]any)[2].(map[string]any)["expected_version"])
}

// Two nodes are updated side by side although only one may be sent an image at
// a time.
func TestUploadLimit(t *testing.T) {
	b := newBench(t, func(o *sim.Options) { o.Compute = 2 })
	b.Start(func(o *agenttest.AgentOptions) { o.MaxUploads = 1 })
	target := b.raw("FW_BMC_0", "obmc_7.bin")
	var ids []job.ID
	for _, d := range b.rack.Devices() {
		d.UpdateKnobs(func(k *bmc.Knobs) { k.UploadBytesPerSecond = 20 << 10 })
		ids = append(ids, b.Admit(b.target(d), update(target)))
	}
	for _, id := range ids {
		require.Equal(t, job.StateCompleted, b.Await(id).State)
	}
	uploads := b.rack.Uploads("")
	require.Len(t, uploads, 2)
	require.False(t, uploads[1].Time.Before(uploads[0].End()), "one after the other")
}

func TestResultIsPlainJSON(t *testing.T) {
	b := newTray(t)
	j := b.run(activated(b.raw("FW_BMC_0", "obmc_7.bin")))
	require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
	require.True(t, json.Valid([]byte(j.ResultJSON)))
	// An image without versions leaves nothing to compare, and says so.
	check := decode(t, j.ResultJSON)["post_activation_version_check"].(map[string]any)
	require.Equal(t, "unverified", check["status"])
}
