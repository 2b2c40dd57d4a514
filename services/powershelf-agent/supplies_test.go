// SPDX-License-Identifier: Apache-2.0

package powershelfagent_test

import (
	"bytes"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/redfishagent/agenttest"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/sim"
	"github.com/rackbus/rackbus/sim/bmc"
	"github.com/rackbus/rackbus/sim/faults"
	"github.com/rackbus/rackbus/sim/firmwarepackage"
	"github.com/rackbus/rackbus/sim/reqlog"
)

const liteOn = "powershelf_gb300_liteon"

// supplyImage is an image for all supplies, recognised by its name.
func (b *bench) supplyImage() *rackbusv1.FirmwareUpdateTarget { return b.image("sp-2552_F1F1_x.bin") }

// requireSupplies expects a version on every supply.
func (b *bench) requireSupplies(version string) {
	b.t.Helper()
	for i := range 6 {
		require.Equal(b.t, version, b.shelf.Version(fmt.Sprintf("powerdevice%d", i)), "supply %d", i)
	}
}

func details(t *testing.T, j agenttest.Job) map[string]any {
	t.Helper()
	return decode(t, j.ResultJSON)["targets"].([]any)[0].(map[string]any)["nvfwupd_summary"].(map[string]any)
}

// All supplies at once, however the image is recognised.
func TestSuppliesAtOnce(t *testing.T) {
	t.Parallel()
	for name, target := range map[string]func(*bench) *rackbusv1.FirmwareUpdateTarget{
		"by prefix":   (*bench).supplyImage,
		"by name":     func(b *bench) *rackbusv1.FirmwareUpdateTarget { return b.image("liteon-psu_F1F1.bin") },
		"by manifest": func(b *bench) *rackbusv1.FirmwareUpdateTarget { return b.archive("shelf.tar", "LITEON-PSU", "F1F1") },
		"by key": func(b *bench) *rackbusv1.FirmwareUpdateTarget {
			target := b.archive("shelf.tar", "LITEON-PSU", "F1F1")
			target.Key = "LiteOnPSU"
			return target
		},
		"by package": func(b *bench) *rackbusv1.FirmwareUpdateTarget {
			pldm, err := firmwarepackage.Build(firmwarepackage.Spec{
				Version: "shelf", Components: []firmwarepackage.Component{{Name: "PSU", Version: "F1F1"}},
			})
			require.NoError(b.t, err)
			return b.File("", "shelf.fwpkg", pldm)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newShelf(t, of(liteOn))
			j := b.run(activated(target(b)))
			require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
			b.requireSupplies("0xf1 / 0xf1")
			require.Len(t, b.requests("POST", pushPath), 1)
			require.Empty(t, b.units())
			require.Equal(t, job.StageSkipped, j.Stage("repair").Status)
			require.Equal(t, []any{"0"}, details(t, j)["task_ids"])
			require.Equal(t, "OnReset", b.shelf.ApplyTime())
		})
	}
}

func TestSuppliesUpToDate(t *testing.T) {
	b := newShelf(t, of(liteOn))
	require.Equal(t, job.StateCompleted, b.run(activated(b.supplyImage())).State)
	j := b.run(activated(b.supplyImage()))
	require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
	require.Equal(t, "already_up_to_date", decode(t, j.ResultJSON)["status"])
	require.Len(t, b.requests("POST", pushPath), 1)
	require.Len(t, b.requests("POST", "**/"+managerReset), 1)
}

// A shelf that is busy is asked again; one that does not take the image for all
// supplies gets it for one after the other.
func TestSuppliesAreRefusedTogether(t *testing.T) {
	t.Parallel()
	t.Run("busy for a while", func(t *testing.T) {
		b := newShelf(t, of(liteOn))
		_, err := b.rack.AddFault(faults.Rule{
			Selector: faults.Request("POST", pushPath), Remaining: 2, Action: faults.Action{Status: &faults.Status{Code: 503}},
		})
		require.NoError(t, err)
		j := b.run(activated(b.supplyImage()))
		require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
		require.Len(t, b.requests("POST", pushPath), 3)
		require.Empty(t, b.units())
		b.requireSupplies("0xf1 / 0xf1")
	})
	for name, spoil := range map[string]func(*bench){
		"refused": func(b *bench) { b.knobs(func(k *bmc.Knobs) { k.RejectAllSupplies = true }) },
		"busy for ever": func(b *bench) {
			_, err := b.rack.AddFault(faults.Rule{
				Selector: faults.Request("POST", pushPath), Action: faults.Action{Status: &faults.Status{Code: 503}},
			})
			require.NoError(b.t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newShelf(t, of(liteOn))
			spoil(b)
			j := b.run(activated(b.supplyImage()))
			require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
			require.Len(t, b.requests("POST", pushPath), 3, "three tries for all together")
			require.Equal(t, []string{"0", "1", "2", "3", "4", "5"}, b.units())
			b.requireSupplies("0xf1 / 0xf1")
			require.Equal(t, job.StageCompleted, j.Stage("repair").Status)
			require.Equal(t, []any{"liteon-psu-serial-complete"}, details(t, j)["task_ids"])
			require.Len(t, b.requests("POST", "**/"+managerReset), 1)
		})
	}
}

// A task that takes too long is no reason to send another image to supplies that are
// still being written.
func TestSuppliesAtWorkGetNoOtherImage(t *testing.T) {
	b := newBench(t, of(liteOn), func(o *sim.Options) { o.Timing.Task = 600 * time.Millisecond })
	b.Start(func(o *agenttest.AgentOptions) { o.Timing.TaskPoll.Limit = 100 * time.Millisecond })
	j := b.run(activated(b.supplyImage()))
	require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
	require.Empty(t, b.units(), "every supply had the image by the time it was at rest")
	b.requireSupplies("0xf1 / 0xf1")
	require.Equal(t, job.StageCompleted, j.Stage("repair").Status)
}

// Supplies that did not take the image together get it alone; the others are left
// as they are.
func TestSuppliesAreRepaired(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		spoil func(*bmc.Knobs)
		heal  bool
		units []string
	}{
		"one fails once":                  {func(k *bmc.Knobs) { k.SupplyFailures = map[string]int{"powerdevice2": 1} }, false, []string{"2"}},
		"one fails alone, too, but once":  {func(k *bmc.Knobs) { k.SupplyFailures = map[string]int{"powerdevice2": 2} }, false, []string{"2", "2"}},
		"two keep their version together": {func(k *bmc.Knobs) { k.SuppliesUnchanged = []string{"powerdevice1", "powerdevice4"} }, true, []string{"1", "4"}},
		"the task fails":                  {func(k *bmc.Knobs) { k.TaskEnd = &bmc.TaskEnd{} }, true, []string{"0", "1", "2", "3", "4", "5"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newShelf(t, of(liteOn))
			b.knobs(tt.spoil)
			id := b.Admit(b.node, activated(b.supplyImage()))
			if tt.heal {
				// What has begun stays as it is.
				_, err := b.rack.WaitRequests(t.Context(), b.shelf.ID(), reqlog.Filter{Path: pushPath, Method: "POST"}, 1)
				require.NoError(t, err)
				b.knobs(func(k *bmc.Knobs) { *k = bmc.Knobs{} })
			}
			j := b.Await(id)
			require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
			b.requireSupplies("0xf1 / 0xf1")
			require.Len(t, b.requests("POST", pushPath), 1)
			require.Equal(t, tt.units, b.units())
		})
	}
}

// A supply that cannot be updated is named, in the form that operators know.
func TestSupplyFails(t *testing.T) {
	t.Parallel()
	t.Run("for good", func(t *testing.T) {
		b := newShelf(t, of(liteOn))
		b.knobs(func(k *bmc.Knobs) { k.SupplyFailures = map[string]int{"powerdevice3": -1} })
		j := b.run(activated(b.supplyImage()))
		require.Equal(t, job.StateFailed, j.State)
		require.Equal(t, job.FailureTaskException, j.Failure.FailureCode)
		require.Equal(t, []string{"3", "3"}, b.units(), "two tries")
		require.Empty(t, b.requests("POST", "**/"+managerReset), "nothing is activated")
		result := decode(t, j.ResultJSON)
		require.Equal(t, "poll", result["phase"])
		require.Equal(t, "powerdevice3", result["target_id"])
		require.Equal(t, "PSU update failed on powerdevice3: LiteOn PSU serial fallback failed.", result["summary"])
		require.Contains(t, result["raw_error"], "LiteOn PSU serial fallback failed for powerdevice3")
	})
	t.Run("the push is refused", func(t *testing.T) {
		b := newShelf(t, of(liteOn))
		b.knobs(func(k *bmc.Knobs) { k.RejectAllSupplies = true })
		_, err := b.rack.AddFault(faults.Rule{
			Selector: faults.Request("POST", unitPath),
			Action: faults.Action{Status: &faults.Status{Code: 400, Body: []byte(`{"error":{"@Message.ExtendedInfo":[{
				"MessageId":"Base.1.18.1.InvalidUpload","Message":"The image is not for this supply","Resolution":"Use another image"}]}}`)}},
		})
		require.NoError(t, err)
		j := b.run(activated(b.supplyImage()))
		require.Equal(t, job.StateFailed, j.State)
		require.Equal(t, "PSU update failed on powerdevice0: LiteOn PSU serial fallback failed. "+
			"Redfish returned Base.1.18.1.InvalidUpload: The image is not for this supply. Resolution: Use another image.",
			decode(t, j.ResultJSON)["summary"])
	})
	t.Run("in time", func(t *testing.T) {
		b := newBench(t, of(liteOn))
		b.knobs(func(k *bmc.Knobs) { k.RejectAllSupplies, k.TaskStuckAt = true, 40 })
		b.Start(func(o *agenttest.AgentOptions) { o.Timing.Redfish.PowerUnitLimit = 150 * time.Millisecond })
		j := b.run(activated(b.supplyImage()))
		require.Equal(t, job.StateFailed, j.State)
		require.Contains(t, decode(t, j.ResultJSON)["summary"], "PSU update failed on powerdevice0: LiteOn PSU update timed out")
		require.Equal(t, []string{"0"}, b.units(), "a supply that is still writing gets no second image")
	})
	t.Run("credentials refused", func(t *testing.T) {
		b := newShelf(t, of(liteOn))
		_, err := b.rack.AddFault(faults.Rule{
			Selector: faults.Request("POST", pushPath), Action: faults.Action{Status: &faults.Status{Code: 401}},
		})
		require.NoError(t, err)
		j := b.run(activated(b.supplyImage()))
		require.Equal(t, job.FailureBMCAuthFailed, j.Failure.FailureCode, "%+v", j.Failure)
		require.Empty(t, b.units(), "who is refused does not go on asking")
	})
}

// The answer to the image for all supplies is lost: the units tell.
func TestLostAnswerOfSupplies(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		cut      faults.Cut
		requests int
	}{
		"behind the shelf's work": {faults.Cut{AfterExecute: true}, 1},
		"before it":               {faults.Cut{}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			b := newShelf(t, of(liteOn))
			_, err := b.rack.AddFault(faults.Rule{
				Selector: faults.Request("POST", pushPath), Remaining: 1, Action: faults.Action{Cut: &tt.cut},
			})
			require.NoError(t, err)
			j := b.run(activated(b.supplyImage()))
			require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
			require.Len(t, b.requests("POST", pushPath), tt.requests)
			b.requireSupplies("0xf1 / 0xf1")
		})
	}
	t.Run("of one supply", func(t *testing.T) {
		b := newShelf(t, of(liteOn))
		b.knobs(func(k *bmc.Knobs) { k.RejectAllSupplies = true })
		_, err := b.rack.AddFault(faults.Rule{
			Selector: faults.Request("POST", unitPath), Remaining: 1,
			Action: faults.Action{Cut: &faults.Cut{AfterExecute: true}},
		})
		require.NoError(t, err)
		j := b.run(activated(b.supplyImage()))
		require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
		require.Len(t, b.requests("POST", unitPath), 6, "one for each")
		b.requireSupplies("0xf1 / 0xf1")
	})
}

// One supply by its id.
func TestOneSupply(t *testing.T) {
	b := newShelf(t, of(liteOn))
	target := b.supplyImage()
	target.Component = "powerdevice4"
	j := b.run(activated(target))
	require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
	require.Equal(t, []string{"4"}, b.units())
	require.Empty(t, b.requests("POST", pushPath))
	require.Equal(t, "0xf1 / 0xf1", b.shelf.Version("powerdevice4"))
	require.Equal(t, "0xe8 / 0xe8", b.shelf.Version("powerdevice5"))
}

// Forced, every supply gets the image once, whatever it has.
func TestSuppliesForcedOneByOne(t *testing.T) {
	b := newShelf(t, of(liteOn))
	require.Equal(t, job.StateCompleted, b.run(activated(b.supplyImage())).State)
	b.knobs(func(k *bmc.Knobs) { k.RejectAllSupplies = true })
	u := activated(b.supplyImage())
	u.Force = true
	j := b.run(u)
	require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
	require.Len(t, b.units(), 6)
	require.Len(t, b.requests("POST", pushPath), 4, "one for the first job, three tries of the second")
}

// A forced image whose answer was lost is sent again when no supply has begun with it,
// although all of them show its version: they did so before.
func TestForcedImageThatNeverArrived(t *testing.T) {
	b := newShelf(t, of(liteOn))
	require.Equal(t, job.StateCompleted, b.run(activated(b.supplyImage())).State)
	_, err := b.rack.AddFault(faults.Rule{
		Selector: faults.Request("POST", pushPath), Remaining: 1, Action: faults.Action{Cut: &faults.Cut{}},
	})
	require.NoError(t, err)
	u := activated(b.supplyImage())
	u.Force = true
	j := b.run(u)
	require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
	require.Len(t, b.requests("POST", pushPath), 3, "one for the first job, the lost one, and the one that arrived")
}

// A shelf that says in its answer that it did not take the image is believed.
func TestSupplyPushThatFailsWithStatus200(t *testing.T) {
	b := newShelf(t, of(liteOn))
	b.knobs(func(k *bmc.Knobs) { k.RejectAllSupplies = true })
	_, err := b.rack.AddFault(faults.Rule{
		Selector: faults.Request("POST", unitPath),
		Action:   faults.Action{Status: &faults.Status{Code: 200, Body: []byte(`{"Result":"failure"}`)}},
	})
	require.NoError(t, err)
	j := b.run(activated(b.supplyImage()))
	require.Equal(t, job.StateFailed, j.State)
	require.Len(t, b.requests("POST", unitPath), 2, "two tries for the first supply")
	result := decode(t, j.ResultJSON)
	require.Equal(t, "powerdevice0", result["target_id"])
	require.Contains(t, result["raw_error"], `Result "failure"`)
}

// A job that is asked to stop leaves between two supplies.
func TestCancelBetweenSupplies(t *testing.T) {
	b := newBench(t, of(liteOn))
	b.knobs(func(k *bmc.Knobs) { k.RejectAllSupplies = true })
	b.Start(func(o *agenttest.AgentOptions) { o.Timing.UnitSettle = time.Second })
	id := b.Admit(b.node, activated(b.supplyImage()))
	b.AwaitEvent(id, "a supply", func(e job.Event) bool {
		for _, s := range e.Stages {
			if s.Name == "repair" && s.Status == job.StageRunning {
				return true
			}
		}
		return false
	})
	b.Cancel(id, job.CancelGraceful)
	j := b.Await(id)
	require.Equal(t, job.StateCancelled, j.State, "%+v", j.Failure)
	require.Less(t, len(b.units()), 6)
	for i, unit := range b.units() {
		require.Equal(t, strconv.Itoa(i), unit)
		require.Equal(t, "0xf1 / 0xf1", b.shelf.Version("powerdevice"+unit), "what was begun was ended")
	}
}

// A package that says of itself what it is for does not go elsewhere: a name that reads
// like one of supplies is no reason, and a request that means something else is refused.
func TestPackageForAnotherPartOfTheShelf(t *testing.T) {
	t.Parallel()
	t.Run("controller, named like supplies", func(t *testing.T) {
		b := newShelf(t, of(liteOn))
		j := b.run(activated(b.archive("openbmc_psu_fix.tar", "OPENBMC", "r1.9.9")))
		require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
		require.Equal(t, "r1.9.9", b.controller())
		require.Equal(t, job.StageSkipped, j.Stage("repair").Status)
		require.Equal(t, "matched", decode(t, j.ResultJSON)["post_activation_version_check"].(map[string]any)["status"])
	})
	pldm := func(b *bench) *rackbusv1.FirmwareUpdateTarget {
		content, err := firmwarepackage.Build(firmwarepackage.DeltaController("1.9.9"))
		require.NoError(b.t, err)
		return b.File("", "delta.fwpkg", content)
	}
	for name, tt := range map[string]struct {
		model, key string
		target     func(*bench) *rackbusv1.FirmwareUpdateTarget
		text       string
	}{
		"controller for supplies": {liteOn, "LiteOnPSU", func(b *bench) *rackbusv1.FirmwareUpdateTarget {
			return b.archive("shelf.tar", "OPENBMC", "r1.9.9")
		}, "is for the controller"},
		"controller for one supply": {liteOn, "", func(b *bench) *rackbusv1.FirmwareUpdateTarget {
			target := b.archive("shelf.tar", "OPENBMC", "r1.9.9")
			target.Component = "powerdevice3"
			return target
		}, "is for the controller"},
		"supplies for the controller": {liteOn, "LiteOnPMC", func(b *bench) *rackbusv1.FirmwareUpdateTarget {
			return b.archive("shelf.tar", "LITEON-PSU", "F1F1")
		}, "is for power supplies"},
		"Delta's controller for supplies": {"powershelf_gb300_delta", "DeltaPSU", pldm, "is for the controller"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newShelf(t, of(tt.model))
			target := tt.target(b)
			target.Key = tt.key
			j := b.run(activated(target))
			require.Equal(t, job.FailureInvalidArgument, j.Failure.FailureCode, "%+v", j.Failure)
			require.Contains(t, j.Failure.Message, tt.text)
			require.Empty(t, b.rack.Uploads(b.shelf.ID()), "nothing is sent")
		})
	}
}

// A broken package is not sent to a shelf, which could not say what is wrong with it.
func TestBrokenPackage(t *testing.T) {
	t.Parallel()
	archive, err := firmwarepackage.ShelfArchive("OPENBMC", "r1.9.9", "PF-1333-7R", make([]byte, 4096))
	require.NoError(t, err)
	pldm, err := firmwarepackage.Build(firmwarepackage.DeltaController("1.9.9"))
	require.NoError(t, err)
	for name, tt := range map[string]struct {
		content []byte
		text    string
	}{
		"cut archive":       {archive[:len(archive)-4096], "unexpected EOF"},
		"manifest lacks":    {bytes.Replace(archive, []byte("version="), []byte("version_"), 1), "names no version"},
		"cut PLDM":          {pldm[:len(pldm)-3], "unexpected EOF"},
		"PLDM with garbage": {append(bytes.Clone(pldm[:32]), bytes.Repeat([]byte{0xff}, 200)...), "component bitmap length"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newShelf(t)
			j := b.run(activated(b.File("", "package.bin", tt.content)))
			require.Equal(t, job.StateFailed, j.State)
			require.Equal(t, job.FailureInvalidArgument, j.Failure.FailureCode, "%+v", j.Failure)
			require.Contains(t, j.Failure.Message, tt.text)
			require.Empty(t, b.rack.Uploads(b.shelf.ID()), "nothing is sent")
		})
	}
}
