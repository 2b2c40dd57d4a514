// SPDX-License-Identifier: Apache-2.0

package switchagent_test

import (
	"encoding/json"
	"net/http"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/redfishagent/agenttest"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/services/switch-agent/internal/firmware"
	"github.com/rackbus/rackbus/services/switch-agent/internal/runbook"
	"github.com/rackbus/rackbus/sim/faults"
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

// The operating system as firmware: the ASIC follows the image, nothing reboots
// before the activation.
func TestImageAsFirmware(t *testing.T) {
	t.Parallel()
	image := func(b *bench) *rackbusv1.FirmwareUpdateTarget {
		return b.File("nvos", "nvos-amd64-25.02.4440.bin", nvswitch.ImageContent("25.02.4440", 64<<10))
	}
	t.Run("installed", func(t *testing.T) {
		b := newBench(t, func(o *nvswitch.Options) {})
		b.start(nil)
		j := b.run(activated(image(b)))
		require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
		require.Equal(t, newBuild, b.sw.Images().Current)
		require.False(t, b.sw.Installs()[0].Forced)
		require.Equal(t, 1, b.sw.Reboots())
		require.Equal(t, "matched", decode(t, j.ResultJSON)["post_activation_version_check"].(map[string]any)["status"])
		writes := len(b.sw.Requests(reqlog.Filter{Protocol: reqlog.NVUE, Writes: true}))
		j = b.run(activated(image(b)))
		require.Equal(t, "already_up_to_date", decode(t, j.ResultJSON)["status"])
		require.Len(t, b.sw.Requests(reqlog.Filter{Protocol: reqlog.NVUE, Writes: true}), writes)
	})
	t.Run("a failed installation takes its file away", func(t *testing.T) {
		b := newBench(t, func(o *nvswitch.Options) {
			o.Knobs.Actions = []nvswitch.ActionRule{{Verb: "@install", NoEffect: true, Script: []json.RawMessage{
				json.RawMessage(`{"state":"action_failed","issue":["not for this switch"]}`)}}}
		})
		b.start(nil)
		j := b.run(activated(image(b)))
		require.Equal(t, job.StateFailed, j.State)
		require.Contains(t, j.Failure.Message, "not for this switch")
		require.Empty(t, b.sw.Files("/host/nos-images"))
		require.Zero(t, b.sw.Reboots())
	})
	t.Run("not alone", func(t *testing.T) {
		b := newBench(t)
		b.start(nil)
		j := b.run(activated(image(b), b.pldm("bmc", "nvfw_9.fwpkg", "9.9", "BMC")))
		require.Equal(t, job.FailureInvalidArgument, j.Failure.FailureCode)
		require.Empty(t, b.puts())
	})
}

// asicApart lets the ASIC not follow the image.
func asicApart(b *bench) {
	b.sw.SetConfig("/platform/firmware/ASIC", map[string]any{"auto-update": "disabled", "fw-source": "custom"})
}

// The agent dies between the staging of a change and its application: the next one
// looks at the switch and applies it.
func TestJ4RevisionIsAppliedByTheNextAgent(t *testing.T) {
	b := newBench(t)
	asicApart(b)
	doomed := b.doomed(firmware.FailBeforeApply, 1)
	id := b.Admit(b.node, activated(b.File("nvos", "nvos-amd64-25.02.4440.bin", nvswitch.ImageContent("25.02.4440", 64<<10))))
	b.died(doomed, id)
	require.Empty(t, b.sw.Requests(reqlog.Filter{Protocol: reqlog.NVUE, Method: "PATCH", Path: "/nvue_v1/revision/*"}))
	b.start(nil)
	j := b.Await(id)
	require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
	require.Len(t, b.sw.Requests(reqlog.Filter{Protocol: reqlog.NVUE, Method: "POST", Path: "/nvue_v1/revision"}), 1)
	require.Equal(t, "enabled", b.sw.SavedConfig("/platform/firmware/ASIC/auto-update"))
	require.Equal(t, "default", b.sw.SavedConfig("/platform/firmware/ASIC/fw-source"))
	require.Equal(t, newBuild, b.sw.Images().Current)
}

// A revision that the switch accepts and then finds invalid fails the job with its
// own words.
func TestJ2ApplyIsReadBack(t *testing.T) {
	b := newBench(t, func(o *nvswitch.Options) {
		o.Knobs.Revisions = []nvswitch.RevisionRule{{State: "invalid", Issue: "fw-source is locked"}}
	})
	asicApart(b)
	b.start(nil)
	j := b.run(activated(b.File("nvos", "nvos-amd64-25.02.4440.bin", nvswitch.ImageContent("25.02.4440", 64<<10))))
	require.Equal(t, job.StateFailed, j.State)
	require.Equal(t, job.FailurePreconditionFailed, j.Failure.FailureCode)
	require.Contains(t, j.Failure.Message, "fw-source is locked")
	require.Len(t, b.sw.Requests(reqlog.Filter{Protocol: reqlog.NVUE, Method: "DELETE", Path: "/nvue_v1/revision/*"}), 1)
	require.Empty(t, b.puts())
}

// A revision that reaches applied_and_saved is applied.
func TestJ1AppliedAndSaved(t *testing.T) {
	b := newBench(t, func(o *nvswitch.Options) { o.Knobs.RevisionDone = "applied_and_saved" })
	asicApart(b)
	b.start(nil)
	j := b.run(activated(b.File("nvos", "nvos-amd64-25.02.4440.bin", nvswitch.ImageContent("25.02.4440", 64<<10))))
	require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
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
				b.timing.InstallLimit, b.timing.RebootLimit = 2*time.Second, 800*time.Millisecond
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

// A VR NVL72 switch takes all components from one package at once, and one by one
// when it cannot.
func TestBundle(t *testing.T) {
	t.Parallel()
	vr := func(o *nvswitch.Options) { o.Model = nvswitch.VRNVL72 }
	all := []string{"BMC", "BIOS", "SMA", "EROT", "CPLD1"}
	update := func(b *bench) *rackbusv1.FirmwareUpdate { return activated(b.pldm("", "nvfw_vr.fwpkg", "9.9", all...)) }
	updated := func(t *testing.T, b *bench, j agenttest.Job) {
		t.Helper()
		require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
		for _, c := range all {
			require.Equal(t, "9.9", b.sw.Version(c), c)
		}
		require.Equal(t, 1, b.actions("@power-cycle"))
	}
	t.Run("at once", func(t *testing.T) {
		b := newBench(t, vr)
		b.start(nil)
		j := b.run(update(b))
		updated(t, b, j)
		require.Equal(t, []string{"/tmp"}, b.sentTo())
		require.Equal(t, 1, b.actions("@install"))
		require.Equal(t, 1, b.actions("@fetch"))
		require.EqualValues(t, 5, decode(t, j.ResultJSON)["targets_completed"])
	})
	t.Run("by name", func(t *testing.T) {
		b := newBench(t, vr)
		b.start(nil)
		var targets []*rackbusv1.FirmwareUpdateTarget
		for _, c := range []string{"bmc", "bios", "sma", "erot", "cpld1"} {
			targets = append(targets, b.pldm(c, "nvfw_vr.fwpkg", "9.9", all...))
		}
		updated(t, b, b.run(activated(targets...)))
		require.Equal(t, 1, b.actions("@install"))
	})
	t.Run("some of them", func(t *testing.T) {
		b := newBench(t, vr)
		b.start(nil)
		j := b.run(activated(b.pldm("sma", "nvfw_vr.fwpkg", "9.9", all...)))
		require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
		require.Zero(t, b.actions("@fetch"))
		require.Equal(t, []string{"/host/fw-images/sma"}, b.sentTo())
	})
	for name, rule := range map[string]nvswitch.ActionRule{
		"fetch fails":  {Verb: "@fetch", NoEffect: true, Script: []json.RawMessage{json.RawMessage(`{"state":"action_error","issue":["no room"]}`)}},
		"fetch is odd": {Verb: "@fetch", NoEffect: true, Missing: true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, vr, func(o *nvswitch.Options) { o.Knobs.Actions = []nvswitch.ActionRule{rule} })
			b.start(nil)
			j := b.run(update(b))
			updated(t, b, j)
			require.Equal(t, 5, b.actions("@install"))
			details := decode(t, j.ResultJSON)["targets"].([]any)[0].(map[string]any)["nvfwupd_summary"].(map[string]any)["details"]
			require.NotEmpty(t, details.(map[string]any)["fallback"])
		})
	}
	t.Run("install refused", func(t *testing.T) {
		b := newBench(t, vr, func(o *nvswitch.Options) {
			o.Faults = &faults.Set{}
			_, err := o.Faults.Add(faults.Rule{Selector: faults.Request("POST", "/nvue_v1/platform/firmware/files/*"), Action: faults.Action{Status: &faults.Status{Code: 400}}})
			require.NoError(t, err)
		})
		b.start(nil)
		updated(t, b, b.run(update(b)))
	})
	t.Run("install fails", func(t *testing.T) {
		b := newBench(t, vr, func(o *nvswitch.Options) {
			o.Knobs.Actions = []nvswitch.ActionRule{{Verb: "@install", NoEffect: true, Script: []json.RawMessage{json.RawMessage(`{"state":"action_failed","issue":["half way"]}`)}}}
		})
		b.start(nil)
		j := b.run(update(b))
		require.Equal(t, job.StateFailed, j.State)
		require.Contains(t, j.Failure.Message, "half way")
		require.Equal(t, 1, b.actions("@install"), "no way back behind the begin")
	})
}

// Activation through the switch, and through its BMC where the switch cannot.
func TestActivation(t *testing.T) {
	t.Parallel()
	update := func(b *bench) *rackbusv1.FirmwareUpdate {
		return activated(b.pldm("bmc", "nvfw_9.fwpkg", "9.9", "BMC"))
	}
	stays := func(o *nvswitch.Options) {
		o.Knobs.Actions = []nvswitch.ActionRule{{Verb: "@power-cycle", NoEffect: true}}
	}
	t.Run("never away, no BMC", func(t *testing.T) {
		b := newBench(t, stays)
		b.timing.CycleProbes = 5
		b.start(nil)
		j := b.run(update(b))
		require.Equal(t, job.FailureActivationFailed, j.Failure.FailureCode, "%+v", j.Failure)
		require.Contains(t, j.Failure.Message, "Firmware flashed but activation failed")
		r := decode(t, j.ResultJSON)
		require.Equal(t, "activation", r["phase"])
		require.Equal(t, 1, b.actions("@power-cycle"))
	})
	t.Run("never away, BMC", func(t *testing.T) {
		b := newBench(t, stays)
		b.node, b.timing.CycleProbes = b.target(true), 5
		b.start(nil)
		j := b.run(update(b))
		require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
		require.Equal(t, "9.9", b.sw.Version("BMC"))
		require.Len(t, b.sw.Requests(reqlog.Filter{Protocol: reqlog.Redfish, Method: "POST"}), 1)
		recovery := decode(t, j.ResultJSON)["activation"].(map[string]any)["recovery"].(map[string]any)
		require.Equal(t, "bmc", recovery["endpoint"])
		require.Contains(t, recovery["reason"], "did not go down")
	})
	t.Run("refused", func(t *testing.T) {
		b := newBench(t, func(o *nvswitch.Options) {
			o.Faults = &faults.Set{}
			_, err := o.Faults.Add(faults.Rule{Selector: faults.Request("POST", "/nvue_v1/system"), Action: faults.Action{Status: &faults.Status{Code: http.StatusForbidden}}})
			require.NoError(t, err)
		})
		b.node = b.target(true)
		b.start(nil)
		j := b.run(update(b))
		require.Equal(t, job.StateFailed, j.State)
		require.Equal(t, "activation", decode(t, j.ResultJSON)["phase"])
		require.Empty(t, b.sw.Requests(reqlog.Filter{Protocol: reqlog.Redfish, Method: "POST"}))
	})
	t.Run("the new version does not show", func(t *testing.T) {
		b := newBench(t, func(o *nvswitch.Options) { o.Knobs.FirmwareUnchanged = true })
		b.timing.VerifyAttempts = 3
		b.start(nil)
		j := b.run(update(b))
		require.Equal(t, job.FailureVersionMismatch, j.Failure.FailureCode, "%+v", j.Failure)
		require.Equal(t, "post_activation_version_check", decode(t, j.ResultJSON)["phase"])
	})
	t.Run("inactive", func(t *testing.T) {
		b := newBench(t)
		b.start(nil)
		u := update(b)
		u.Activate = false
		j := b.run(u)
		require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
		require.Equal(t, map[string]string{"BMC": "9.9"}, b.sw.Pending())
		require.Zero(t, b.sw.Reboots())
	})
}

// The operating system is down when it should restart: the job goes through the BMC
// and says so.
func TestJ8ActivationThroughTheBMC(t *testing.T) {
	down := &faults.Set{}
	b := newBench(t, func(o *nvswitch.Options) { o.Faults = down })
	b.node = b.target(true)
	b.sw.UpdateKnobs(func(k *nvswitch.Knobs) {
		k.Actions = []nvswitch.ActionRule{{Verb: "@install", Takes: nvswitch.Duration(300 * time.Millisecond)}}
	})
	b.start(nil)
	id := b.Admit(b.node, activated(b.pldm("bmc", "nvfw_9.fwpkg", "9.9", "BMC")))
	b.until("the installation", func() bool { return len(b.sw.Pending()) > 0 })
	_, err := down.Add(faults.Rule{ID: "down", Selector: faults.Request("POST", "/nvue_v1/system"), Action: faults.Action{Cut: &faults.Cut{}}})
	require.NoError(t, err)
	j := b.Await(id)
	require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
	require.Equal(t, "9.9", b.sw.Version("BMC"))
	recovery := decode(t, j.ResultJSON)["activation"].(map[string]any)["recovery"].(map[string]any)
	require.Equal(t, "bmc", recovery["endpoint"])
	require.NotEmpty(t, recovery["reason"])
	require.Equal(t, "completed", j.Stage("activate_bmc").Status.String())
}

// The agent dies in every stage; the next one ends the job, with one installation
// of each component and one power cycle.
func TestFirmwareAgentDies(t *testing.T) {
	t.Parallel()
	type death struct {
		point string
		n     int
	}
	deaths := []death{
		{agent.FailAfterClaim, 1}, {agent.FailAfterIntent, 1}, {agent.FailAfterIntent, 2}, {agent.FailAfterIntent, 3},
		{agent.FailAfterDeviceChange, 1}, {agent.FailAfterDeviceChange, 2}, {agent.FailAfterDeviceChange, 3},
		{agent.FailAfterDone, 1}, {agent.FailBeforeAck, 1},
	}
	for _, s := range []string{"check", "upload_1", "install_1", "monitor_1", "upload_2", "install_2", "monitor_2", "outcome", "activate", "activate_wait", "verify"} {
		deaths = append(deaths, death{runbook.FailInStage + s, 1})
	}
	for _, d := range deaths {
		t.Run(d.point+"#"+string(rune('0'+d.n)), func(t *testing.T) {
			b := newBench(t)
			doomed := b.doomed(d.point, d.n)
			id := b.Admit(b.node, activated(b.pldm("", "nvfw_9.fwpkg", "9.9", "BIOS", "EROT")))
			b.died(doomed, id)
			b.start(nil)
			j := b.Await(id)
			require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
			require.Equal(t, 2, b.actions("@install"))
			require.Equal(t, 1, b.actions("@power-cycle"))
			require.Equal(t, 1, b.sw.Reboots())
			require.Equal(t, "9.9", b.sw.Version("BIOS"))
			require.Equal(t, "9.9", b.sw.Version("EROT"))
			require.Len(t, b.puts(), 2)
		})
	}
}

func TestBundleAgentDies(t *testing.T) {
	t.Parallel()
	deaths := map[string]int{agent.FailAfterIntent: 1, agent.FailAfterDeviceChange: 1}
	for _, s := range []string{"bundle_upload", "bundle_fetch", "bundle_install", "bundle_monitor"} {
		deaths[runbook.FailInStage+s] = 1
	}
	for point, n := range deaths {
		t.Run(point, func(t *testing.T) {
			b := newBench(t, func(o *nvswitch.Options) { o.Model = nvswitch.VRNVL72 })
			doomed := b.doomed(point, n)
			id := b.Admit(b.node, activated(b.pldm("", "nvfw_vr.fwpkg", "9.9", "BMC", "BIOS", "SMA", "EROT", "CPLD1")))
			b.died(doomed, id)
			b.start(nil)
			j := b.Await(id)
			require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
			require.Equal(t, 1, b.actions("@install"))
			require.Equal(t, 1, b.actions("@power-cycle"))
			require.Equal(t, "9.9", b.sw.Version("SMA"))
		})
	}
}

// The agent dies while the BMC has to restart the switch.
func TestBMCCycleAgentDies(t *testing.T) {
	t.Parallel()
	for point, n := range map[string]int{
		runbook.FailInStage + "activate_bmc": 1, runbook.FailInStage + "activate_bmc_wait": 1,
		// Behind the installation and the power cycle that had no effect.
		agent.FailAfterDeviceChange: 3,
	} {
		t.Run(point, func(t *testing.T) {
			b := newBench(t, func(o *nvswitch.Options) {
				o.Knobs.Actions = []nvswitch.ActionRule{{Verb: "@power-cycle", NoEffect: true}}
			})
			b.node, b.timing.CycleProbes, b.timing.VerifyAttempts = b.target(true), 5, 200
			doomed := b.doomed(point, n)
			id := b.Admit(b.node, activated(b.pldm("bmc", "nvfw_9.fwpkg", "9.9", "BMC")))
			b.died(doomed, id)
			b.start(nil)
			j := b.Await(id)
			cycles := len(b.sw.Requests(reqlog.Filter{Protocol: reqlog.Redfish, Method: "POST"}))
			require.LessOrEqual(t, cycles, 1)
			if cycles == 0 {
				// It was never asked, and nobody asks again blindly: the versions tell.
				require.Equal(t, job.FailureVersionMismatch, j.Failure.FailureCode, "%+v", j.Failure)
				return
			}
			require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
			require.Equal(t, "9.9", b.sw.Version("BMC"))
		})
	}
}
