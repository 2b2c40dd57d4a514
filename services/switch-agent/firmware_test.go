// SPDX-License-Identifier: Apache-2.0

package switchagent_test

import (
	"encoding/json"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/redfishagent/agenttest"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/sim/firmwarepackage"
	"github.com/rackbus/rackbus/sim/nvswitch"
	"github.com/rackbus/rackbus/sim/reqlog"
)

// pldm writes a package of one version for the named components.
func (b *bench) pldm(component, name, version string, components ...string) *rackbusv1.FirmwareUpdateTarget {
	b.t.Helper()
	spec := firmwarepackage.Spec{Version: name}
	for _, c := range components {
		// A CPLD's image has to tell its version by itself: it leaves the package.
		spec.Components = append(spec.Components, firmwarepackage.Component{
			Name: c, Version: version, Payload: firmwarepackage.Raw("image_"+version+".bin", 2048),
		})
	}
	content, err := firmwarepackage.Build(spec)
	require.NoError(b.t, err)
	return b.File(component, name, content)
}

func activated(targets ...*rackbusv1.FirmwareUpdateTarget) *rackbusv1.FirmwareUpdate {
	return &rackbusv1.FirmwareUpdate{Targets: targets, Activate: true}
}

// run runs an update to its end.
func (b *bench) run(u *rackbusv1.FirmwareUpdate) agenttest.Job {
	b.t.Helper()
	return b.Await(b.Admit(b.node, u))
}

// sentTo are the folders that files went to, in order.
func (b *bench) sentTo() []string {
	var out []string
	for _, e := range b.puts() {
		out = append(out, path.Dir(e.Path))
	}
	return out
}

// Every component goes where it belongs, and comes into force with one power cycle.
func TestFirmwareComponents(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		component string
		images    []string
		file      string
		dir       string
		versions  []string
	}{
		{component: "bmc", images: []string{"BMC", "FPGA", "ERoT_BMC"}, dir: "/host/fw-images/bmc", versions: []string{"BMC"}},
		{component: "fpga", images: []string{"BMC", "FPGA", "ERoT_BMC"}, dir: "/host/fw-images/fpga", versions: []string{"FPGA"}},
		{component: "smr", images: []string{"FPGA"}, dir: "/host/fw-images/fpga", versions: []string{"FPGA"}},
		{component: "erot", images: []string{"EROT"}, dir: "/host/fw-images/erot", versions: []string{"EROT"}},
		{component: "bios", images: []string{"BIOS"}, dir: "/host/fw-images/bios", versions: []string{"BIOS"}},
		{component: "sbios", images: []string{"BIOS"}, dir: "/host/fw-images/bios", versions: []string{"BIOS"}},
	} {
		t.Run(tt.component, func(t *testing.T) {
			b := newBench(t)
			b.start(nil)
			j := b.run(activated(b.pldm(tt.component, "nvfw_9.fwpkg", "9.9", tt.images...)))
			require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
			require.Equal(t, []string{tt.dir}, b.sentTo())
			require.Equal(t, tt.dir+"/nvfw_9.fwpkg", b.sw.Files(tt.dir)[0])
			for _, v := range tt.versions {
				require.Equal(t, "9.9", b.sw.Version(v))
			}
			require.Equal(t, 1, b.actions("@power-cycle"))
			require.Equal(t, 1, b.sw.Reboots())
			r := decode(t, j.ResultJSON)
			require.Equal(t, "completed", r["status"])
			require.Equal(t, true, r["activated"])
			require.EqualValues(t, 1, r["targets_completed"])
			require.Equal(t, "matched", r["post_activation_version_check"].(map[string]any)["status"])
			one := r["targets"].([]any)[0].(map[string]any)
			require.Equal(t, tt.component, one["component"])
			require.Equal(t, "nvfw_9.fwpkg", one["firmware_file"])
			require.Len(t, one["nvfwupd_summary"].(map[string]any)["task_ids"], 1)
			require.Equal(t, "NVUE_PWR_CYCLE", r["activation"].(map[string]any)["command"])
			require.Equal(t, []string{"check", "upload", "install", "monitor", "outcome", "activate", "activate_wait", "activate_bmc",
				"activate_bmc_wait", "verify"}, j.StageNames())

			// What is installed already is left alone.
			j = b.run(activated(b.pldm(tt.component, "nvfw_9.fwpkg", "9.9", tt.images...)))
			require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
			require.Equal(t, "already_up_to_date", decode(t, j.ResultJSON)["status"])
			require.Equal(t, 1, b.actions("@install"))
			require.Equal(t, 1, b.actions("@power-cycle"))
		})
	}
	t.Run("cpld", func(t *testing.T) {
		b := newBench(t)
		b.start(nil)
		j := b.run(activated(b.pldm("cpld", "nvfw_cpld.fwpkg", "9.9", "CPLD")))
		require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
		files := b.sw.Files("/host/fw-images/cpld")
		require.Len(t, files, 1)
		require.True(t, strings.HasPrefix(path.Base(files[0]), "CPLD_9.9_") && strings.HasSuffix(files[0], ".vme"), files[0])
		require.NotEmpty(t, b.sw.Requests(reqlog.Filter{Path: "/nvue_v1/platform/firmware/CPLD1/files/*", Method: "POST"}))
	})
	t.Run("cpld raw", func(t *testing.T) {
		b := newBench(t)
		b.start(nil)
		j := b.run(&rackbusv1.FirmwareUpdate{Targets: []*rackbusv1.FirmwareUpdateTarget{b.File("cpld2", "cpld_9.bin", firmwarepackage.Raw("cpld_9.bin", 4096))}})
		require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
		require.Equal(t, []string{"/host/fw-images/cpld/cpld_9.vme"}, b.sw.Files("/host/fw-images/cpld"))
		require.Zero(t, b.actions("@power-cycle"))
		require.Nil(t, decode(t, j.ResultJSON)["post_activation_version_check"])
	})
	t.Run("transceiver", func(t *testing.T) {
		b := newBench(t)
		b.start(nil)
		j := b.run(activated(b.File("transceiver", "xcvr_9.bin", firmwarepackage.Raw("xcvr_9.bin", 4096))))
		require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
		require.Equal(t, []string{"/host/fw-images/transceiver/xcvr_9.bin"}, b.sw.Files("/host/fw-images/transceiver"))
		require.Equal(t, "unverified", decode(t, j.ResultJSON)["post_activation_version_check"].(map[string]any)["status"])
	})
	for name, tt := range map[string]struct {
		images  []string
		targets []string
	}{
		"package with a BIOS": {[]string{"BIOS", "EROT"}, []string{"BIOS", "EROT"}},
		"package with a CPLD": {[]string{"CPLD"}, []string{"CPLD1"}},
		"package of the BMC":  {[]string{"BMC", "EROT", "FPGA"}, []string{"BMC", "EROT", "FPGA"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.start(nil)
			j := b.run(activated(b.pldm("", "nvfw_9.fwpkg", "9.9", tt.images...)))
			require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
			var targets []string
			for _, raw := range decode(t, j.ResultJSON)["targets"].([]any) {
				target := raw.(map[string]any)["target"].(string)
				targets = append(targets, target)
				require.Equal(t, "9.9", b.sw.Version(target))
			}
			require.Equal(t, tt.targets, targets)
			require.Equal(t, 1, b.actions("@power-cycle"), "all come into force together")
		})
	}
}

// What the switch says of an installation, and what becomes of it.
func TestFirmwareActions(t *testing.T) {
	t.Parallel()
	said := func(docs ...string) []json.RawMessage {
		var out []json.RawMessage
		for _, d := range docs {
			out = append(out, json.RawMessage(d))
		}
		return out
	}
	for _, tt := range []struct {
		name string
		rule nvswitch.ActionRule
		code job.FailureCode
		text string
	}{
		{name: "error at 100", rule: nvswitch.ActionRule{Script: said(`{"state":"action_error","percentage":100,"issue":["lost"]}`)}},
		{name: "success in other words", rule: nvswitch.ActionRule{Script: said(`{"status":"running"}`, `{"status":"complete"}`)}},
		{name: "error before", rule: nvswitch.ActionRule{NoEffect: true, Script: said(`{"state":"action_error","percentage":40,"issue":["bad signature"]}`)},
			code: job.FailureTaskException, text: "bad signature"},
		{name: "failed", rule: nvswitch.ActionRule{NoEffect: true, Script: said(`{"state":"action_failed","detail":"no space"}`)},
			code: job.FailureTaskException, text: "no space"},
		{name: "unexpected state", rule: nvswitch.ActionRule{NoEffect: true, Script: said(`{"state":"odd"}`)},
			code: job.FailureTaskException, text: "state odd"},
		{name: "never ends", rule: nvswitch.ActionRule{NoEffect: true, Script: said(`{"state":"running"}`)},
			code: job.FailureTaskTimeout, text: "did not end within"},
		{name: "vanishes with effect", rule: nvswitch.ActionRule{Missing: true, Takes: nvswitch.Duration(time.Millisecond)}},
		{name: "vanishes without", rule: nvswitch.ActionRule{Missing: true, NoEffect: true}, code: job.FailureTaskLost, text: "forgotten"},
		{name: "announces a restart and stays", rule: nvswitch.ActionRule{NoEffect: true, Script: said(`{"state":"action_running","status":"reboot pending"}`)},
			code: job.FailureTaskException, text: "did not go down"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, func(o *nvswitch.Options) {
				tt.rule.Verb = "@install"
				o.Knobs.Actions = []nvswitch.ActionRule{tt.rule}
			})
			if tt.code != "" {
				b.timing.RebootLimit = 800 * time.Millisecond
			}
			if tt.code == job.FailureTaskTimeout {
				b.timing.InstallLimit = 2 * time.Second
			}
			b.start(nil)
			j := b.run(activated(b.pldm("bmc", "nvfw_9.fwpkg", "9.9", "BMC")))
			require.Equal(t, 1, b.actions("@install"))
			if tt.code == "" {
				require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
				require.Equal(t, "9.9", b.sw.Version("BMC"))
				return
			}
			require.Equal(t, job.StateFailed, j.State)
			require.Equal(t, tt.code, j.Failure.FailureCode, "%+v", j.Failure)
			require.Equal(t, job.CodeOther, j.Failure.Code)
			require.Contains(t, j.Failure.Message, tt.text)
			r := decode(t, j.ResultJSON)
			require.Equal(t, "poll", r["phase"])
			require.Equal(t, "BMC", r["target_id"])
			require.Zero(t, b.actions("@power-cycle"))
		})
	}
	t.Run("restarts in the installation", func(t *testing.T) {
		b := newBench(t, func(o *nvswitch.Options) {
			o.Knobs.Actions = []nvswitch.ActionRule{{Verb: "@install", Script: said(`{"state":"action_running","status":"system is offline"}`)}}
		})
		b.start(nil)
		id := b.Admit(b.node, activated(b.pldm("bmc", "nvfw_9.fwpkg", "9.9", "BMC")))
		b.until("the installation", func() bool { return len(b.sw.Pending()) > 0 })
		b.sw.Reboot()
		j := b.Await(id)
		require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
		require.Equal(t, 2, b.sw.Reboots())
	})
}

// A component that fails does not keep the others from being tried, and the job
// from failing.
func TestOtherComponentsGoOn(t *testing.T) {
	b := newBench(t, func(o *nvswitch.Options) {
		o.Knobs.Actions = []nvswitch.ActionRule{{
			Verb: "@install", Resource: "/platform/firmware/EROT/**", NoEffect: true,
			Script: []json.RawMessage{json.RawMessage(`{"state":"action_failed","issue":["no"]}`)},
		}}
	})
	b.start(nil)
	j := b.run(activated(b.pldm("", "nvfw_9.fwpkg", "9.9", "BMC", "EROT", "FPGA")))
	require.Equal(t, job.StateFailed, j.State)
	require.Equal(t, 3, b.actions("@install"))
	require.Equal(t, "EROT", decode(t, j.ResultJSON)["target_id"])
	require.Equal(t, map[string]string{"BMC": "9.9", "FPGA": "9.9"}, b.sw.Pending())
	require.Zero(t, b.actions("@power-cycle"))
}

// What the switch does not have is refused before a file is sent for it.
func TestComponentThatIsNotThere(t *testing.T) {
	b := newBench(t)
	b.start(nil)
	j := b.run(activated(b.pldm("sma", "nvfw_9.fwpkg", "9.9", "SMA")))
	require.Equal(t, job.FailureTargetNotFound, j.Failure.FailureCode, "%+v", j.Failure)
	require.Contains(t, j.Failure.Message, "no component SMA")
	require.Empty(t, b.puts())
}

// An upload that is cut off goes on; one that cannot be made ends the update.
func TestFirmwareUploads(t *testing.T) {
	t.Parallel()
	big := func(b *bench) *rackbusv1.FirmwareUpdateTarget {
		return b.File("bmc", "bmc_9.bin", firmwarepackage.Raw("bmc_9.bin", 4<<20))
	}
	t.Run("cut", func(t *testing.T) {
		b := newBench(t, func(o *nvswitch.Options) { o.Knobs.SFTP.CutAfter, o.Knobs.SFTP.Cuts = 3<<20, 2 })
		b.start(nil)
		j := b.run(activated(big(b)))
		require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
		require.Equal(t, 1, b.actions("@install"))
	})
	t.Run("no sftp for a while", func(t *testing.T) {
		b := newBench(t, func(o *nvswitch.Options) { o.Knobs.SFTP.RefuseSubsystem = 2 })
		b.start(nil)
		require.Equal(t, job.StateCompleted, b.run(activated(big(b))).State)
	})
	t.Run("no sftp", func(t *testing.T) {
		b := newBench(t, func(o *nvswitch.Options) { o.Knobs.SFTP.RefuseSubsystem = -1 })
		b.timing.UploadWindow = 500 * time.Millisecond
		b.start(nil)
		j := b.run(activated(big(b)))
		require.Equal(t, job.FailureUploadFailed, j.Failure.FailureCode, "%+v", j.Failure)
		require.Contains(t, j.Failure.Message, "Upload failed for target BMC")
		require.Zero(t, b.actions("@install"))
	})
	t.Run("wrong password", func(t *testing.T) {
		b := newBench(t)
		b.node = b.Target(agenttest.Device{RackID: "r1", NodeID: b.sw.ID(), Type: b.sw.NodeType(), IP: b.sw.IP(), Port: 1,
			Host: &agenttest.Host{IP: b.sw.IP(), Port: b.sw.Ports().NVUE, User: "admin", Password: "wrong"}})
		b.start(nil)
		j := b.run(activated(big(b)))
		require.Equal(t, job.FailureHostAuthFailed, j.Failure.FailureCode, "%+v", j.Failure)
	})
}
