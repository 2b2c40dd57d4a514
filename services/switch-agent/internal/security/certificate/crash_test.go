// SPDX-License-Identifier: Apache-2.0

package certificate_test

import (
	"encoding/json"
	"path"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/services/switch-agent/internal/crashtest"
	"github.com/rackbus/rackbus/services/switch-agent/internal/runbook"
	"github.com/rackbus/rackbus/services/switch-agent/internal/security/securitytest"
	"github.com/rackbus/rackbus/sim/nvswitch"
)

// A request to stop that comes during the import stops the job in front of the first
// binding.
func TestCancelDuringTheImport(t *testing.T) {
	t.Parallel()
	b := newBench(t, gnmi, nvueAPI)
	stop := make(chan struct{})
	j := b.job()
	j.Cancel = stop
	j.Events = func(e job.Event) {
		if statusOf(e, "import_material") == job.StageRunning {
			select {
			case <-stop:
			default:
				close(stop)
			}
		}
	}
	b.Sim.SetKnobs(nvswitch.Knobs{Actions: []nvswitch.ActionRule{{Verb: "@import", Takes: nvswitch.Duration(300 * time.Millisecond)}}})
	e := b.Run(j)
	require.Equal(t, job.StateCancelled, e.State, "%+v", e.Failure)
	require.Contains(t, e.Failure.Message, "staged files were removed")
	b.silent(e)
	require.Zero(t, b.Sim.Revisions())
	require.Empty(t, b.Sim.Files("/home/admin/certs"))
}

func TestCancelDuringTheCopyOfTheKey(t *testing.T) {
	t.Parallel()
	b := newBench(t, gnmi)
	stop := make(chan struct{})
	j := b.job()
	j.Cancel = stop
	j.Events = func(e job.Event) {
		if statusOf(e, "sftp_copy_client_key") == job.StageRunning {
			select {
			case <-stop:
			default:
				close(stop)
			}
		}
	}
	b.Sim.SetKnobs(nvswitch.Knobs{Commands: []nvswitch.CommandRule{{Match: "chmod 400", Hang: true}}})
	e := b.Run(j)
	require.Equal(t, job.StateCancelled, e.State, "%+v", e.Failure)
	require.Contains(t, e.Failure.Message, "private key and its directory were removed")
	require.Equal(t, "cancelled", result(t, e)["status"])
	b.silent(e)
	require.Empty(t, b.Sim.Files("/home/admin/certs"))
}

// The key cannot be removed: that is told, and is no success.
func TestKeyCannotBeRemoved(t *testing.T) {
	t.Parallel()
	b := newBench(t, gnmi)
	j := b.job()
	j.Events = func(e job.Event) {
		if statusOf(e, "import_material") == job.StageRunning {
			b.Sim.UpdateKnobs(func(k *nvswitch.Knobs) { k.SFTP.Denied = []string{"**/client.key"} })
		}
	}
	e := b.Run(j)
	require.Equal(t, job.StateFailed, e.State)
	require.Contains(t, e.Failure.Message, "private key may still be on the switch in "+directory)
	require.Contains(t, b.Logs.String(), "staged private key not removed")
}

// J4: wherever the process dies, the next one ends the job right; nothing is
// imported or staged twice, and the key is gone.
func TestJ4AgentDiesInEachStage(t *testing.T) {
	t.Parallel()
	services := []string{gnmi, manager, nvueAPI}
	stages := []string{
		"prepare_remote_dir", "sftp_copy_ca_pem", "sftp_copy_client_pem", "sftp_copy_client_key", "import_material",
		"bind_" + gnmi, "bind_" + manager, "bind_" + nvueAPI, "verify_services", "test_nvue_hello", "test_nmx_hello", "test_gnmi_capabilities",
	}
	const changes = 13
	all := slices.Concat(crashtest.Times(agent.FailAfterDeviceChange, changes), crashtest.Times(agent.FailAfterDone, 1),
		crashtest.InStages(runbook.FailInStage, stages...))
	for _, d := range crashtest.Pick(all,
		crashtest.Death{Point: agent.FailAfterDeviceChange, N: 3}, crashtest.Death{Point: agent.FailAfterDeviceChange, N: 7},
		crashtest.Death{Point: agent.FailAfterDeviceChange, N: changes},
		crashtest.Death{Point: runbook.FailInStage + "import_material", N: 1}, crashtest.Death{Point: runbook.FailInStage + "bind_" + nvueAPI, N: 1},
		crashtest.Death{Point: runbook.FailInStage + "test_nmx_hello", N: 1},
	) {
		t.Run(d.String(), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, services...)
			b.cmd.TestHello = true
			left := b.Dies(b.job(), d.Point, d.N)
			require.NotContains(t, string(left), b.keySecret())
			require.NotContains(t, string(left), securitytest.Password)
			e := b.install()
			r := b.completed(e)
			require.Equal(t, []any{gnmi, manager, nvueAPI}, r["services"])
			require.Equal(t, certID, b.Sim.SavedConfig("/system/api/certificate"))
			require.Equal(t, certID, b.Sim.SavedConfig("/system/gnmi-server/certificate"))
			require.LessOrEqual(t, b.count("nvue POST /nvue_v1/system/security/certificate/"+certID), 1)
			require.LessOrEqual(t, b.Sim.Revisions(), 3, "cluster, gnmi, nvue")
			require.Equal(t, 1, b.count("nvue POST /nvue_v1/cluster/apps/nmx-controller/manager/encryption"))
		})
	}
}

// A process that died with the key on the disk, and a job that then fails.
func TestKeyOfADeadOwnerIsRemoved(t *testing.T) {
	t.Parallel()
	b := newBench(t, gnmi)
	b.Dies(b.job(), runbook.FailInStage+"import_material", 1)
	require.Equal(t, []string{path.Join(directory, "client.key")}, b.keys())
	mode, err := b.Sim.FileMode(directory + "/client.key")
	require.NoError(t, err)
	require.EqualValues(t, 0o400, mode)
	b.Sim.SetKnobs(nvswitch.Knobs{Actions: []nvswitch.ActionRule{{Resource: "/system/security/**", NoEffect: true,
		Script: []json.RawMessage{json.RawMessage(`{"state":"action_error","issue":["no"]}`)}}}})
	b.failed(b.install(), job.FailureTaskException)
}
