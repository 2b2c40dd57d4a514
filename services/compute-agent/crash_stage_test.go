// SPDX-License-Identifier: Apache-2.0

package computeagent_test

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/redfishagent"
	"github.com/rackbus/rackbus/sim/bmc"
)

// flavour is a product's way of updating, with the stages in which its agent may
// die. That of GB300 and VR NVL72 trays is in TestAgentDies.
type flavour struct {
	nodeType string
	packages func(*bench) set
	stages   []string
	// always are the stages of a run without -long.
	always []string
	// changes is how often the device is changed.
	changes int
}

func flavours() map[string]flavour {
	return map[string]flavour{
		"GB200": {
			"compute_gb200_wiwynn", func(b *bench) set {
				return set{activated(b.pldm("nvfw_P4972_9.fwpkg", "9.2", "BMC")), map[string]string{"FW_BMC_0": "9.2"}, 1, []string{"nvfw_P4972_9.fwpkg"}}
			}, []string{"check", "upload", "install", "activate_aux_cycle", "activate_aux_settle", "activate_power_on", "activate_wait_on", "verify"},
			[]string{"install", "activate_aux_settle"}, 2,
		},
		"Lenovo": {
			"compute_gb300_lenovo", func(b *bench) set {
				image := b.raw("BMC", "lenovo_9.2.hpm")
				image.ExpectedVersion = "9.2"
				return set{activated(image), map[string]string{"BMC": "9.2"}, 1, []string{"lenovo_9.2.hpm"}}
			}, []string{
				"check", "preserve", "upload", "install", "activate_aux_cycle", "activate_wait_bmc", "activate_power_on", "activate_keep_on", "verify",
			}, []string{"preserve", "activate_wait_bmc"}, 2,
		},
		"Supermicro": {
			"compute_gb300_supermicro", (*bench).supermicro, []string{
				"check_1", "upload_1", "install_1", "activate_hmc_aux_cycle", "activate_hmc_wait_bmc", "activate_hmc_power_on",
				"activate_hmc_keep_on", "verify_hmc", "check_2", "upload_2", "install_2", "activate_bios_aux_cycle",
				"activate_bios_keep_on", "verify_bios", "check_3", "upload_3", "install_3", "verify_bmc",
			}, []string{"activate_bios_aux_cycle", "install_3"}, 5,
		},
	}
}

// The agent dies where a stage begins its work, or behind a change of the device.
// Another one ends the job: every image is sent once, every AUX cycle happens
// once, and every controller has its version. Without -long it dies in some stages of
// each flavour, and behind the last change.
func TestAgentDiesInEachStage(t *testing.T) {
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
	s := f.packages(b)
	doomed := b.StartDoomed(point, n)
	id := b.Admit(b.node, s.update)
	b.died(doomed, id)
	b.Start()
	j := b.Await(id)
	require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
	require.GreaterOrEqual(t, j.Epoch, uint64(2))
	require.Equal(t, s.files, b.files(), "no image twice")
	require.Equal(t, s.activations, b.posts(auxReset))
	for name, version := range s.versions {
		require.Equal(t, version, b.tray.Version(name), name)
	}
	require.Equal(t, bmc.PowerOn, b.tray.PowerState())
	require.Equal(t, "completed", decode(t, j.ResultJSON)["status"])
}

// The host does not come on in the first round of a GB200 tray, and the agent dies
// in the second.
func TestAgentDiesInTheSecondRound(t *testing.T) {
	t.Parallel()
	for _, stage := range []string{"activate_aux_cycle_2", "activate_wait_on_2"} {
		t.Run(stage, func(t *testing.T) {
			b := newBench(t)
			b.knobs(func(k *bmc.Knobs) { k.PowerOnIgnored = 1 })
			doomed := b.StartDoomed(redfishagent.FailInStage+stage, 1, secondRound)
			id := b.Admit(b.node, activated(b.pldm("nvfw_P4972_9.fwpkg", "9.2", "BMC")))
			b.died(doomed, id)
			b.Start(secondRound)
			j := b.Await(id)
			require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
			require.Equal(t, 2, b.posts(auxReset))
			require.Len(t, b.files(), 1)
			require.Equal(t, bmc.PowerOn, b.tray.PowerState())
		})
	}
}
