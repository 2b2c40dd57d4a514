// SPDX-License-Identifier: Apache-2.0

package switchagent_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/job"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/services/switch-agent/internal/firmware"
	"github.com/rackbus/rackbus/sim/nvswitch"
	"github.com/rackbus/rackbus/sim/reqlog"
)

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
