// SPDX-License-Identifier: Apache-2.0

package powershelfagent_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/job"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/sim"
	"github.com/rackbus/rackbus/sim/bmc"
	"github.com/rackbus/rackbus/sim/faults"
	"github.com/rackbus/rackbus/sim/firmwarepackage"
)

func TestControllerUpdate(t *testing.T) {
	t.Parallel()
	for _, generation := range []sim.Generation{sim.GB200, sim.GB300} {
		t.Run(string(generation), func(t *testing.T) {
			b := newBench(t, func(o *sim.Options) { o.ShelfGeneration = generation })
			b.Start()
			require.Equal(t, "Immediate", b.shelf.ApplyTime())
			j := b.run(&rackbusv1.FirmwareUpdate{
				Targets: []*rackbusv1.FirmwareUpdateTarget{b.image("openbmc_r1.9.9.tar")}, Activate: true,
			})
			require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
			require.Len(t, b.requests("PATCH", "/redfish/v1/UpdateService"), 1)
			require.Equal(t, "OnReset", b.shelf.ApplyTime())
			require.Len(t, b.requests("POST", pushPath), 1)
			require.Len(t, b.requests("POST", "**/"+managerReset), 1)
			require.Equal(t, "r1.9.9", b.controller())
			require.Equal(t, bmc.PowerOn, b.shelf.PowerState(), "power stays")
			require.Equal(t, []string{"check", "upload", "install", "repair", "activate_manager_reset", "activate_wait_manager", "verify"}, j.StageNames())
			require.JSONEq(t, `{
				"rack_id":"rack-1","node_id":"powershelf-0001","targets_completed":1,"targets_skipped":0,
				"targets":[{"component":"","firmware_file":"openbmc_r1.9.9.tar","target":"package-derived","status":"completed",
					"nvfwupd_summary":{"message":"The task has completed.","task_ids":["0"]}}],
				"activated":true,"post_activation_version_check":null,"status":"completed"}`, j.ResultJSON)
		})
	}
}

func TestUpdateWithoutActivation(t *testing.T) {
	b := newShelf(t)
	before := b.controller()
	j := b.run(&rackbusv1.FirmwareUpdate{Targets: []*rackbusv1.FirmwareUpdateTarget{b.image("openbmc_r1.9.9.tar")}})
	require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
	require.Empty(t, b.requests("POST", "**/"+managerReset))
	require.Equal(t, before, b.controller())
	require.Len(t, b.shelf.Pending(), 1)
}

// A forced update restarts the controller by force, too.
func TestForcedUpdateForcesTheRestart(t *testing.T) {
	t.Parallel()
	for force, want := range map[bool]string{false: "GracefulRestart", true: "ForceRestart"} {
		t.Run(want, func(t *testing.T) {
			b := newShelf(t)
			u := activated(b.image("openbmc_r1.9.9.tar"))
			u.Force = force
			j := b.run(u)
			require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
			resets := b.requests("POST", "**/"+managerReset)
			require.Len(t, resets, 1)
			// The log has the bodies' lengths only.
			require.EqualValues(t, len(`{"ResetType":"`+want+`"}`), resets[0].Bytes)
		})
	}
}

// Shelves leave an OnReset update in shapes that read as failures.
func TestHandoff(t *testing.T) {
	t.Parallel()
	for _, shape := range []bmc.Handoff{bmc.HandoffAborted, bmc.HandoffInternalError} {
		t.Run(string(shape), func(t *testing.T) {
			b := newShelf(t)
			b.shelf.UpdateKnobs(func(k *bmc.Knobs) { k.Handoff = shape })
			j := b.run(&rackbusv1.FirmwareUpdate{
				Targets: []*rackbusv1.FirmwareUpdateTarget{b.image("openbmc_r1.9.9.tar")}, Activate: true,
			})
			require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
			require.Equal(t, "r1.9.9", b.controller())
			require.Contains(t, j.ResultJSON, "reached reset handoff; activation required")
		})
	}
}

// The controller drops the upload as it hands over; its task is the update's.
func TestDroppedUploadIsAdopted(t *testing.T) {
	t.Parallel()
	for name, action := range map[string]faults.Action{
		"no answer":     {Cut: &faults.Cut{AfterExecute: true}},
		"broken answer": {Cut: &faults.Cut{Bytes: 3}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newShelf(t)
			b.shelf.UpdateKnobs(func(k *bmc.Knobs) { k.Handoff = bmc.HandoffAborted })
			_, err := b.rack.AddFault(faults.Rule{Selector: faults.Request("POST", pushPath), Action: action, Remaining: 1})
			require.NoError(t, err)
			j := b.run(&rackbusv1.FirmwareUpdate{
				Targets: []*rackbusv1.FirmwareUpdateTarget{b.image("openbmc_r1.9.9.tar")}, Activate: true,
			})
			require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
			require.Len(t, b.requests("POST", pushPath), 1)
			require.Equal(t, "r1.9.9", b.controller())
			require.Contains(t, j.ResultJSON, `"task_ids":["0"]`)
		})
	}
}

// The handoff task of an earlier update is not taken for this one's.
func TestOldHandoffIsNotAdopted(t *testing.T) {
	b := newShelf(t)
	b.shelf.UpdateKnobs(func(k *bmc.Knobs) { k.Handoff = bmc.HandoffAborted })
	first := b.run(&rackbusv1.FirmwareUpdate{Targets: []*rackbusv1.FirmwareUpdateTarget{b.image("openbmc_r1.9.8.tar")}})
	require.Equal(t, job.StateCompleted, first.State, "%+v", first.Failure)
	_, err := b.rack.AddFault(faults.Rule{
		Selector: faults.Request("POST", pushPath), Action: faults.Action{Status: &faults.Status{Code: 500}},
	})
	require.NoError(t, err)
	j := b.run(&rackbusv1.FirmwareUpdate{Targets: []*rackbusv1.FirmwareUpdateTarget{b.image("openbmc_r1.9.9.tar")}, Activate: true})
	require.Equal(t, job.StateFailed, j.State)
	require.Equal(t, job.FailureBMCRefused, j.Failure.FailureCode, "%+v", j.Failure)
	require.Equal(t, "update", j.Failure.Phase)
	require.Empty(t, b.requests("POST", "**/"+managerReset))
}

// A controller that restarts between two looks is no failure.
func TestSilentManagerReset(t *testing.T) {
	b := newShelf(t)
	b.shelf.UpdateKnobs(func(k *bmc.Knobs) { k.SilentManagerReset = true })
	j := b.run(&rackbusv1.FirmwareUpdate{
		Targets: []*rackbusv1.FirmwareUpdateTarget{b.image("openbmc_r1.9.9.tar")}, Activate: true,
	})
	require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
	require.Equal(t, "r1.9.9", b.controller())
}

func TestLostAnswerToTheReset(t *testing.T) {
	b := newShelf(t)
	_, err := b.rack.AddFault(faults.Rule{
		Selector: faults.Request("POST", "**/"+managerReset), Action: faults.Action{Cut: &faults.Cut{AfterExecute: true}}, Remaining: 1,
	})
	require.NoError(t, err)
	j := b.run(&rackbusv1.FirmwareUpdate{
		Targets: []*rackbusv1.FirmwareUpdateTarget{b.image("openbmc_r1.9.9.tar")}, Activate: true,
	})
	require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
	require.Len(t, b.requests("POST", "**/"+managerReset), 1)
	require.Equal(t, "r1.9.9", b.controller())
}

func TestControllerPackageUpToDate(t *testing.T) {
	b := newShelf(t)
	for _, version := range []string{b.controller(), "r1.9.9"} {
		want := map[bool]string{true: "already_up_to_date", false: "completed"}[version == b.controller()]
		archive, err := firmwarepackage.ShelfArchive("OPENBMC", version, "PF-1333-7R", []byte("image"))
		require.NoError(t, err)
		j := b.run(&rackbusv1.FirmwareUpdate{
			Targets: []*rackbusv1.FirmwareUpdateTarget{b.File("", "obmc-"+version+".tar", archive)}, Activate: true,
		})
		require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
		result := decode(t, j.ResultJSON)
		require.Equal(t, want, result["status"])
		if want == "completed" {
			require.Equal(t, "matched", result["post_activation_version_check"].(map[string]any)["status"])
		}
	}
	require.Equal(t, "r1.9.9", b.controller())
	require.Len(t, b.requests("POST", pushPath), 1)
}

// The controller's entry in the inventory is named after its version: the update takes
// the old one away and brings another.
func TestControllerWithAnotherNameAfterwards(t *testing.T) {
	t.Parallel()
	t.Run("new version", func(t *testing.T) {
		b := newShelf(t)
		b.knobs(func(k *bmc.Knobs) { k.Renames = map[string]string{"pmc_5c3f81d0": "pmc_0badcafe"} })
		j := b.run(activated(b.archive("obmc.tar", "OPENBMC", "r1.9.9")))
		require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
		check := decode(t, j.ResultJSON)["post_activation_version_check"].(map[string]any)
		require.Equal(t, "matched", check["status"], j.ResultJSON)
	})
	t.Run("old version", func(t *testing.T) {
		b := newShelf(t)
		b.knobs(func(k *bmc.Knobs) {
			k.Renames, k.VersionUnchanged = map[string]string{"pmc_5c3f81d0": "pmc_0badcafe"}, true
		})
		j := b.run(activated(b.archive("obmc.tar", "OPENBMC", "r1.9.9")))
		require.Equal(t, job.FailureVersionMismatch, j.Failure.FailureCode, "%+v", j.Failure)
	})
}
