// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/sim"
	"github.com/rackbus/rackbus/sim/bmc"
	"github.com/rackbus/rackbus/sim/firmwarepackage"
)

const noTargets = `{"Targets":[]}`

func targets(uris ...string) string { return `{"Targets":["` + strings.Join(uris, `","`) + `"]}` }

func TestUploadChangesVersions(t *testing.T) {
	t.Parallel()
	hmcPackage := pldm(t, "GB200-P4975_0004",
		firmwarepackage.Component{Name: "HMC", Version: "hmc-2"},
		firmwarepackage.Component{Name: "GPU", Version: "gpu-2"},
		firmwarepackage.Component{Name: "SBIOS", Version: "cpu-2"},
		firmwarepackage.Component{Name: "ERoT", Version: "erot-2"},
		firmwarepackage.Component{Name: "HGX_FW_FPGA_1", Version: "fpga-2"})
	bmcPackage := pldm(t, "GB200-P4972_0004",
		firmwarepackage.Component{Name: "BMC", Version: "bmc-2"}, firmwarepackage.Component{Name: "ERoT", Version: "erot-2"})
	tests := []struct {
		name, parameters, file string
		content                []byte
		want                   map[string]string
		hgx                    bool
	}{
		{"HMC package to the chassis", targets(hgx), "p.fwpkg", hmcPackage, map[string]string{
			"HGX_FW_BMC_0": "hmc-2", "HGX_FW_GPU_0": "gpu-2", "HGX_FW_GPU_1": "gpu-2", "HGX_FW_GPU_2": "gpu-2",
			"HGX_FW_GPU_3": "gpu-2", "HGX_FW_CPU_0": "cpu-2", "HGX_FW_CPU_1": "cpu-2", "HGX_FW_ERoT_BMC_0": "erot-2",
			"HGX_FW_ERoT_CPU_0": "erot-2", "HGX_FW_ERoT_CPU_1": "erot-2", "HGX_FW_ERoT_FPGA_0": "erot-2",
			"HGX_FW_ERoT_FPGA_1": "erot-2", "HGX_FW_FPGA_1": "fpga-2"}, true},
		{"HMC package known by its version", `{"ForceUpdate":true}`, "p.fwpkg", pldm(t, "GB200-P4975_0004",
			firmwarepackage.Component{Name: "BMC", Version: "hmc-2"}), map[string]string{"HGX_FW_BMC_0": "hmc-2"}, true},
		{"BMC package", noTargets, "p.fwpkg", bmcPackage, map[string]string{"FW_BMC_0": "bmc-2", "FW_ERoT_BMC_0": "erot-2"}, false},
		{"one target of a package", targets(inventory + "HGX_FW_GPU_2"), "p.fwpkg", hmcPackage,
			map[string]string{"HGX_FW_GPU_2": "gpu-2"}, true},
		{"single image to named targets", targets(inventory+"FW_CPLD_0", inventory+"FW_ERoT_BMC_0"), "p.fwpkg",
			pldm(t, "X", firmwarepackage.Component{Name: "whatever", Version: "7"}),
			map[string]string{"FW_CPLD_0": "7", "FW_ERoT_BMC_0": "7"}, false},
		{"raw file by name", noTargets, "obmc_25.08-5.bin", []byte("raw"), map[string]string{"FW_BMC_0": "25.08-5"}, false},
		{"raw HGX file by name", targets(hgx), "nosbios_9.9.fwpkg", []byte("raw"), map[string]string{"HGX_FW_BMC_0": "9.9"}, true},
		{"raw file that names itself", noTargets, "", firmwarepackage.Raw("bmc_3.1.bin", 4000), map[string]string{"FW_BMC_0": "3.1"}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rack, d, c := tray(t)
			before := d.Versions()
			uri := c.taskURI(c.upload(tt.parameters, tt.file, tt.content))
			require.Equal(t, tt.hgx, strings.HasPrefix(uri, tasks+"/HGX_"), uri)
			done := c.follow(uri)
			require.Equal(t, "Completed", done.get("TaskState"))
			require.Equal(t, "OK", done.get("TaskStatus"))
			require.Equal(t, 100.0, done.get("PercentComplete"))
			for _, id := range []string{"TaskEvent.1.0.3.TaskStarted", "Update.1.0.TargetDetermined",
				"Update.1.0.TransferringToComponent", "Update.1.0.InstallingOnComponent", "TaskEvent.1.0.3.TaskCompletedOK"} {
				require.Contains(t, messageIDs(done), id)
			}
			require.Equal(t, before, d.Versions(), "nothing is active yet")
			require.Equal(t, tt.want, d.Pending())

			require.Equal(t, 204, c.hostReset("ForceOff").status)
			require.Equal(t, before, d.Versions())
			require.Equal(t, 200, c.post(aux, obj{"ResetType": "AuxPowerCycle"}).status)
			c.awaitUp()
			for name := range before {
				want, changed := tt.want[name]
				if !changed {
					want = before[name]
				}
				require.Equal(t, want, c.version(name), name)
			}
			require.Empty(t, d.Pending())

			sum := sha256.Sum256(tt.content)
			uploads := rack.Uploads(d.ID())
			require.Len(t, uploads, 1)
			require.Equal(t, hex.EncodeToString(sum[:]), uploads[0].SHA256)
			require.Equal(t, int64(len(tt.content)), uploads[0].Upload.FileBytes)
			require.Equal(t, tt.file, uploads[0].Upload.File)
			require.True(t, uploads[0].Complete)
			require.Greater(t, uploads[0].Bytes, int64(len(tt.content)))
		})
	}
}

func TestTaskRuns(t *testing.T) {
	t.Parallel()
	rack := start(t, sim.Options{Compute: 1, Timing: bmc.Timing{Task: 10 * time.Second}})
	c := newClient(t, rack, rack.Devices()[0])
	uri := c.taskURI(c.upload(noTargets, "bmc_2.bin", []byte("x")))
	page := c.get(uri)
	require.Equal(t, "Running", page.get("TaskState"))
	require.Less(t, page.get("PercentComplete").(float64), 100.0)
	require.Nil(t, page.get("EndTime"))
	require.Equal(t, 202, c.get(page.get("TaskMonitor").(string)).status)
	require.Equal(t, []any{obj{"@odata.id": uri}}, c.get(tasks).get("Members"))

	again := c.upload(noTargets, "bmc_3.bin", []byte("x"))
	require.Equal(t, 503, again.status, "one update at a time")
	require.Equal(t, "30", again.header.Get("Retry-After"))
	require.Equal(t, 202, c.upload(targets(hgx), "hgx_3.bin", []byte("x")).status, "the HMC has its own")
	require.Equal(t, 404, c.get(tasks+"/99").status)
	require.Equal(t, 404, c.get(tasks+"/99/Monitor").status)
}

func TestBadUploads(t *testing.T) {
	t.Parallel()
	_, d, c := tray(t)
	file := []byte("content")
	tests := []struct {
		name, parameters string
		file             []byte
		oem              string
		want             int
	}{
		{"no parameters", "", file, "", 400},
		{"no file", noTargets, nil, "", 400},
		{"empty file", noTargets, []byte{}, "", 400},
		{"parameters are no JSON", "{", file, "", 400},
		{"targets are no list", `{"Targets":"x"}`, file, "", 400},
		{"OEM part is no JSON", noTargets, file, "{", 400},
		{"unknown target", targets(inventory + "FW_NOPE"), file, "", 400},
		{"fixed component", targets(inventory + "UEFI"), file, "", 400},
		{"OEM part", noTargets, file, `{"ImageType":"BMC"}`, 202},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			body, kind := multipartBody(t, tt.parameters, "bmc_1.bin", tt.file, tt.oem)
			got, err := c.request(t.Context(), http.MethodPost, update+"/update-multipart", body, http.Header{"Content-Type": {kind}})
			require.NoError(t, err)
			require.Equal(t, tt.want, got.status, string(got.raw))
		})
	}
	require.Equal(t, 415, c.post(update+"/update-multipart", file).status)
	require.Equal(t, 415, c.post(update+"/update", obj{}).status)
	got, err := c.request(t.Context(), http.MethodPost, update+"/update-multipart", strings.NewReader("no parts"),
		http.Header{"Content-Type": {"multipart/form-data; boundary=b"}})
	require.NoError(t, err)
	require.Equal(t, 400, got.status)

	d.UpdateKnobs(func(k *bmc.Knobs) { k.ServiceDisabled = true })
	require.Equal(t, false, c.get(update).get("ServiceEnabled"))
	require.Equal(t, 503, c.upload(noTargets, "bmc_1.bin", file).status)
}

func TestOctetStreamPushToTray(t *testing.T) {
	t.Parallel()
	_, d, c := tray(t)
	uri := c.taskURI(c.post(update+"/update", pldm(t, "P4972", firmwarepackage.Component{Name: "BMC", Version: "5"})))
	require.Equal(t, "Completed", c.follow(uri).get("TaskState"))
	require.Equal(t, map[string]string{"FW_BMC_0": "5"}, d.Pending())
	c.hostReset("PowerCycle")
	require.Equal(t, "5", c.version("FW_BMC_0"))
	require.Equal(t, "5", c.get(root+"/Managers/BMC_0").get("FirmwareVersion"))
}

func TestShelfController(t *testing.T) {
	t.Parallel()
	archive, err := firmwarepackage.ShelfArchive("LITEON-BMC", "r2.0.0", "PF-1333-7R", []byte("image"))
	require.NoError(t, err)
	tests := []struct {
		name      string
		content   []byte
		component string
		want      string
	}{
		{"archive", archive, "pmc_5c3f81d0", "r2.0.0"},
		{"PLDM", pldm(t, "pmc", firmwarepackage.Component{Name: "PMC", Version: "r2.0.1"}), "pmc_5c3f81d0", "r2.0.1"},
		{"PLDM for the MCU", pldm(t, "mcu", firmwarepackage.Component{Name: "MCU", Version: "1.9"}), "mcu", "1.9"},
		{"raw", firmwarepackage.Raw("pmc_r2.0.2.bin", 0), "pmc_5c3f81d0", "r2.0.2"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, d, c := shelf(t)
			require.Equal(t, "Immediate", c.get(update).get("HttpPushUriOptions", "HttpPushUriApplyTime", "ApplyTime"))
			patch := obj{"HttpPushUriOptions": obj{"HttpPushUriApplyTime": obj{"ApplyTime": "OnReset"}}}
			require.Equal(t, 204, c.do(http.MethodPatch, update, patch).status)
			require.Equal(t, "OnReset", d.ApplyTime())

			before := c.version(tt.component)
			c.follow(c.taskURI(c.post(update+"/update", tt.content)))
			require.Equal(t, before, c.version(tt.component))
			require.Equal(t, 200, c.post(root+"/Managers/bmc/Actions/Manager.Reset", obj{"ResetType": "GracefulRestart"}).status)
			require.Equal(t, 503, c.get(root).status)
			c.awaitUp()
			require.Equal(t, tt.want, c.version(tt.component))
		})
	}
}

func TestShelfControllerImmediate(t *testing.T) {
	t.Parallel()
	_, d, c := shelf(t)
	// Shelves also take the push on the UpdateService itself.
	require.Equal(t, 202, c.post(update, firmwarepackage.Raw("pmc_r3.bin", 0)).status)
	require.Eventually(t, func() bool { return d.Resets() == 1 }, 20*time.Second, time.Millisecond, "it restarts itself")
	c.awaitUp()
	require.Equal(t, "r3", c.version("pmc_5c3f81d0"))
}

func TestPatchUpdateService(t *testing.T) {
	t.Parallel()
	patch := func(v string) obj {
		return obj{"HttpPushUriOptions": obj{"HttpPushUriApplyTime": obj{"ApplyTime": v}}}
	}
	tests := []struct {
		name   string
		knobs  bmc.Knobs
		body   any
		header []string
		want   int
	}{
		{"plain", bmc.Knobs{}, patch("OnReset"), nil, 204},
		{"star", bmc.Knobs{}, patch("OnReset"), []string{"If-Match", "*"}, 204},
		{"stale tag", bmc.Knobs{}, patch("OnReset"), []string{"If-Match", `"0"`}, 412},
		{"empty tag", bmc.Knobs{}, patch("OnReset"), []string{"If-Match", ""}, 412},
		{"tag missing", bmc.Knobs{IfMatch: bmc.IfMatchRequired}, patch("OnReset"), nil, 428},
		{"tag refused", bmc.Knobs{IfMatch: bmc.IfMatchRefused}, patch("OnReset"), []string{"If-Match", "*"}, 412},
		{"no tag where refused", bmc.Knobs{IfMatch: bmc.IfMatchRefused}, patch("OnReset"), nil, 204},
		{"unknown value", bmc.Knobs{}, patch("Later"), nil, 400},
		{"other property", bmc.Knobs{}, obj{"ServiceEnabled": false}, nil, 400},
		{"unchanged", bmc.Knobs{}, patch("Immediate"), nil, 204},
		{"unchanged refused", bmc.Knobs{RefuseUnchangedPatch: true}, patch("Immediate"), nil, 400},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, d, c := shelf(t)
			d.SetKnobs(tt.knobs)
			got := c.do(http.MethodPatch, update, tt.body, tt.header...)
			require.Equal(t, tt.want, got.status, string(got.raw))
		})
	}
	_, _, c := shelf(t)
	tag := c.get(update).header.Get("ETag")
	require.NotEmpty(t, tag)
	require.Equal(t, 204, c.do(http.MethodPatch, update, patch("OnReset"), "If-Match", tag).status)
	require.Equal(t, 412, c.do(http.MethodPatch, update, patch("Immediate"), "If-Match", tag).status, "the tag has changed")
}

func TestSupplyUpdates(t *testing.T) {
	t.Parallel()
	image := firmwarepackage.Raw("liteon-psu_F1F1_x.bin", 2000)
	push := units + "/Actions/UpdateService/"
	unit := func(c *client, i string) reply { return c.get(units + "/powerdevice" + i) }
	await := func(c *client, i string) {
		require.Eventually(t, func() bool {
			p := unit(c, i)
			return p.get("Version") == "0xf1 / 0xf1" && p.get("updateProgress") == 0.0
		}, 20*time.Second, time.Millisecond)
	}

	t.Run("one", func(t *testing.T) {
		rack, d, c := shelf(t)
		got := c.post(push, image, "LiteonPowerDeviceId", "3")
		require.Equal(t, 200, got.status)
		require.Equal(t, "success", got.get("Result"))
		require.Empty(t, d.Tasks(), "units have pages of their own")
		await(c, "3")
		require.Equal(t, "0xf1 / 0xf1", c.version("powerdevice3"))
		require.NotEqual(t, "0xf1 / 0xf1", c.version("powerdevice2"))
		require.Equal(t, "3", rack.Uploads("")[0].Upload.PowerDevice)
		require.Equal(t, 400, c.post(push, image, "LiteonPowerDeviceId", "6").status)
	})
	t.Run("all by task", func(t *testing.T) {
		_, _, c := shelf(t)
		c.follow(c.taskURI(c.post(update+"/update", image)))
		for _, i := range []string{"0", "5"} {
			await(c, i)
		}
	})
	t.Run("all refused", func(t *testing.T) {
		_, d, c := shelf(t)
		d.UpdateKnobs(func(k *bmc.Knobs) { k.RejectAllSupplies = true })
		require.Equal(t, 500, c.post(update+"/update", image).status)
		require.Equal(t, 500, c.post(push, image).status)
		require.Equal(t, 200, c.post(push, image, "LiteonPowerDeviceId", "0").status)
		await(c, "0")
	})
	t.Run("failing", func(t *testing.T) {
		_, d, c := shelf(t)
		d.UpdateKnobs(func(k *bmc.Knobs) { k.TaskEnd = &bmc.TaskEnd{} })
		d.SetTiming(bmc.Timing{Task: 1500 * time.Millisecond})
		c.post(push, image, "LiteonPowerDeviceId", "0")
		require.Equal(t, "Updating", unit(c, "0").get("state"))
		require.Eventually(t, func() bool { return unit(c, "0").get("status") == "Failed" }, 20*time.Second, time.Millisecond)
		require.NotEqual(t, "0xf1 / 0xf1", c.version("powerdevice0"))
	})
}

func TestUploadIsStreamed(t *testing.T) {
	t.Parallel()
	rack, d, c := tray(t)
	d.UpdateKnobs(func(k *bmc.Knobs) { k.UploadBytesPerSecond = 1 << 20 })
	file := bytes.Repeat([]byte("0123456789abcdef"), 8<<10)
	require.Equal(t, 202, c.upload(noTargets, "bmc_1.bin", file).status)
	got := rack.Uploads(d.ID())[0]
	require.GreaterOrEqual(t, got.Upload.DurationMS, 100.0, "128 KiB at 1 MiB/s")
	require.GreaterOrEqual(t, got.DurationMS, got.Upload.DurationMS)
}
