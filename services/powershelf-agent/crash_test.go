// SPDX-License-Identifier: Apache-2.0

package powershelfagent_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/redfishagent"
	"github.com/rackbus/rackbus/pkg/redfishagent/agenttest"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/sim"
	"github.com/rackbus/rackbus/sim/bmc"
)

// flavour is a shelf's way of updating.
type flavour struct {
	nodeType string
	target   func(*bench) *rackbusv1.FirmwareUpdateTarget
	knobs    func(*bmc.Knobs)
	stages   []string
	// always are the stages of a run without -long.
	always []string
	// changes is how often the shelf is changed; pushes and units are the images
	// for the shelf as a whole and for its supplies.
	changes, pushes int
	units           []string
	versions        map[string]string
}

func flavours() map[string]flavour {
	supplies := func(name, version string, first int) map[string]string {
		out := map[string]string{}
		for i := range 6 {
			out[fmt.Sprintf(name, i+first)] = version
		}
		return out
	}
	controller := []string{"check", "upload", "install", "activate_manager_reset", "activate_wait_manager", "verify"}
	return map[string]flavour{
		"LiteOn controller": {
			nodeType: "powershelf_gb200_liteon",
			target:   func(b *bench) *rackbusv1.FirmwareUpdateTarget { return b.archive("obmc.tar", "OPENBMC", "r1.9.9") },
			knobs:    func(k *bmc.Knobs) { k.Handoff = bmc.HandoffAborted },
			stages:   controller, always: controller[3:4], changes: 2, pushes: 1, versions: map[string]string{"pmc_5c3f81d0": "r1.9.9"},
		},
		"LiteOn supplies at once": {
			nodeType: liteOn, target: (*bench).supplyImage, knobs: func(*bmc.Knobs) {},
			stages: controller[:5], always: controller[1:2], changes: 2, pushes: 1, versions: supplies("powerdevice%d", "0xf1 / 0xf1", 0),
		},
		"LiteOn supplies one by one": {
			nodeType: liteOn, target: (*bench).supplyImage, knobs: func(k *bmc.Knobs) { k.SupplyFailures = map[string]int{"powerdevice1": 1, "powerdevice4": 1} },
			stages: []string{"check", "upload", "install", "repair", "activate_manager_reset", "activate_wait_manager"},
			always: []string{"repair"}, changes: 4, pushes: 1, units: []string{"1", "4"}, versions: supplies("powerdevice%d", "0xf1 / 0xf1", 0),
		},
		"Delta controller": {
			nodeType: "powershelf_gb300_delta",
			target:   func(b *bench) *rackbusv1.FirmwareUpdateTarget { return b.archive("pmc.tar", "OPENBMC", "1.9.9") },
			knobs:    func(k *bmc.Knobs) { k.Handoff = bmc.HandoffInternalError },
			stages:   controller, always: controller[2:3], changes: 2, pushes: 1, versions: map[string]string{"FW_PMC_primary": "1.9.9"},
		},
		"Delta supplies": {
			nodeType: "powershelf_gb200_delta",
			target:   func(b *bench) *rackbusv1.FirmwareUpdateTarget { return b.archive("psu.tar", "DELTA-PSU", "0109") },
			knobs:    func(*bmc.Knobs) {},
			stages:   controller, always: controller[5:], changes: 2, pushes: 1, versions: supplies("FW_PSU_%d", "01090109", 1),
		},
	}
}

// The agent dies where a stage begins its work, or behind a change of the shelf.
// Another one ends the job: no image is sent twice, the controller restarts once,
// and everything has its version. Without -long it dies in one stage of each flavour, and
// behind the last change.
func TestAgentDies(t *testing.T) {
	t.Parallel()
	for name, f := range flavours() {
		stages, first := f.stages, 1
		if !*long {
			stages, first = f.always, f.changes
		}
		for _, stage := range stages {
			t.Run(name+"/"+stage, func(t *testing.T) { f.dies(t, redfishagent.FailInStage+stage, 1) })
		}
		for n := first; n <= f.changes; n++ {
			t.Run(name+"/behind_change_"+strconv.Itoa(n), func(t *testing.T) { f.dies(t, agent.FailAfterDeviceChange, n) })
		}
	}
}

func (f flavour) dies(t *testing.T, point string, n int) {
	b := newBench(t, of(f.nodeType))
	b.knobs(f.knobs)
	target := f.target(b)
	doomed := b.StartDoomed(point, n)
	id := b.Admit(b.node, activated(target))
	b.died(doomed, id)
	b.Start()
	j := b.Await(id)
	require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
	require.GreaterOrEqual(t, j.Epoch, uint64(2))
	require.Len(t, b.requests("POST", pushPath), f.pushes)
	require.Equal(t, f.units, b.units())
	require.Len(t, b.requests("POST", unitPath), len(f.units))
	require.Len(t, b.requests("POST", "**/"+managerReset), 1)
	for name, version := range f.versions {
		require.Equal(t, version, b.shelf.Version(name), name)
	}
	require.Equal(t, "completed", decode(t, j.ResultJSON)["status"])
}

// The agent dies between the note that a supply gets its image and the image, and
// while the supply installs it.
func TestAgentDiesAtASupply(t *testing.T) {
	t.Parallel()
	t.Run("before the image", func(t *testing.T) {
		b := newBench(t, of(liteOn))
		b.knobs(func(k *bmc.Knobs) { k.RejectAllSupplies = true })
		// The first two intents are those of the upload and of supply 0.
		doomed := b.StartDoomed(agent.FailAfterIntent, 3)
		id := b.Admit(b.node, activated(b.supplyImage()))
		b.died(doomed, id)
		b.Start()
		j := b.Await(id)
		require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
		require.Equal(t, []string{"0", "1", "2", "3", "4", "5"}, b.units())
		b.requireSupplies("0xf1 / 0xf1")
	})
	t.Run("while it installs", func(t *testing.T) {
		b := newBench(t, of(liteOn), func(o *sim.Options) { o.Timing.Task = 3 * time.Second })
		b.knobs(func(k *bmc.Knobs) { k.RejectAllSupplies = true })
		target := b.supplyImage()
		target.Component = "powerdevice2"
		patient := func(o *agenttest.AgentOptions) { o.Timing.Redfish.PowerUnitLimit = agenttest.Patience }
		doomed := b.StartDoomed(agent.FailAfterDeviceChange, 1, patient)
		id := b.Admit(b.node, activated(target))
		b.died(doomed, id)
		b.Start(patient)
		j := b.Await(id)
		require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
		require.Equal(t, []string{"2"}, b.units())
		require.Len(t, b.requests("POST", unitPath), 1, "the shelf was not even asked")
		require.Equal(t, "0xf1 / 0xf1", b.shelf.Version("powerdevice2"))
	})
}

// A drained agent hands over in the middle of the supplies.
func TestAgentIsDrainedBetweenSupplies(t *testing.T) {
	b := newBench(t, of(liteOn))
	b.knobs(func(k *bmc.Knobs) { k.RejectAllSupplies = true })
	first := b.Start(func(o *agenttest.AgentOptions) { o.Timing.UnitSettle = time.Second })
	id := b.Admit(b.node, activated(b.supplyImage()))
	b.AwaitStage(id, "repair")
	first.Stop()
	b.Start()
	j := b.Await(id)
	require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
	require.Equal(t, uint64(2), j.Epoch)
	require.Len(t, b.units(), 6)
	b.requireSupplies("0xf1 / 0xf1")
}
