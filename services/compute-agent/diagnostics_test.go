// SPDX-License-Identifier: Apache-2.0

package computeagent_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/diagnostics"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/redfishagent"
	"github.com/rackbus/rackbus/pkg/redfishagent/agenttest"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/sim"
	"github.com/rackbus/rackbus/sim/bmc"
	"github.com/rackbus/rackbus/sim/faults"
	"github.com/rackbus/rackbus/sim/reqlog"
)

// diagnose has the tray examined.
func (b *bench) diagnose(order *rackbusv1.NodeDiagnosis) job.ID {
	b.t.Helper()
	return b.Admit(b.node, nil, func(c *rackbusv1.JobCommand) {
		c.Type = string(job.TypeNodeDiagnostics)
		c.Operation = &rackbusv1.JobCommand_NodeDiagnosis{NodeDiagnosis: order}
	})
}

// stored is what a run has left in the store.
type stored struct {
	manifest diagnostics.Manifest
	files    map[string][]byte
	last     string
}

// evidence reads the bundle of a run and compares it with its manifest.
func (b *bench) evidence(id job.ID) stored {
	b.t.Helper()
	read := func(name bus.EvidenceName) []byte {
		e, err := b.Conn.Evidence(b.t.Context(), name)
		require.NoError(b.t, err)
		var content bytes.Buffer
		require.NoError(b.t, b.Conn.ReadEvidence(b.t.Context(), e, &content))
		return content.Bytes()
	}
	var out stored
	var err error
	out.manifest, err = diagnostics.ParseManifest(read(bus.EvidenceManifest(id)))
	require.NoError(b.t, err)
	bundle := read(bus.EvidenceBundle(id))
	require.Equal(b.t, int64(len(bundle)), out.manifest.Bundle.Size)
	sum := sha256.Sum256(bundle)
	require.Equal(b.t, hex.EncodeToString(sum[:]), out.manifest.Bundle.SHA256)

	gz, err := gzip.NewReader(bytes.NewReader(bundle))
	require.NoError(b.t, err)
	out.files = map[string][]byte{}
	for files := tar.NewReader(gz); ; {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(b.t, err)
		out.files[h.Name], err = io.ReadAll(files)
		require.NoError(b.t, err)
		out.last = h.Name
	}
	require.Equal(b.t, diagnostics.ManifestName, out.last, "the manifest is the last entry")
	for _, f := range out.manifest.Files {
		sum := sha256.Sum256(out.files[f.Name])
		require.Equal(b.t, hex.EncodeToString(sum[:]), f.SHA256, f.Name)
		require.Equal(b.t, int64(len(out.files[f.Name])), f.Size, f.Name)
	}
	require.Len(b.t, out.files, len(out.manifest.Files)+1)
	return out
}

// statuses are the collectors by what became of them.
func statuses(outcomes []job.CollectorOutcome) map[string]string {
	out := map[string]string{}
	for _, o := range outcomes {
		out[o.Name] = o.Status.String()
	}
	return out
}

func failedUpdate(code job.FailureCode, at time.Time) *rackbusv1.NodeDiagnosis {
	return &rackbusv1.NodeDiagnosis{
		AboutJobId: "0193aaaa-0000-7000-8000-000000000000",
		History: []*rackbusv1.JobHistoryEntry{
			{Sequence: 1, At: timestamppb.New(at), Kind: "started", State: rackbusv1.JobState_JOB_STATE_RUNNING},
			{Sequence: 2, At: timestamppb.New(at.Add(time.Second)), Kind: "finished", State: rackbusv1.JobState_JOB_STATE_FAILED,
				Failure: job.FailureToProto(job.NewFailure(code, "it went wrong"))},
		},
	}
}

// TestDiagnoseTray examines a tray with a failed supply in its log, which was not
// there before.
func TestDiagnoseTray(t *testing.T) {
	b := newTray(t)
	now := time.Now()
	b.knobs(func(k *bmc.Knobs) {
		k.LogEntries = []bmc.LogEntry{
			{Log: bmc.LogSEL, MessageID: "OpenBMC.0.1.CPUThermalTrip", Severity: "Critical", Created: now.Add(-30 * 24 * time.Hour)},
			{Log: bmc.LogSEL, MessageID: "OpenBMC.0.1.PowerSupplyFailed", Message: "Power supply PSU_1 failed; login password=hunter2", Severity: "Critical", Created: now},
		}
	})
	writes := len(b.rack.Requests(b.tray.ID(), reqlog.Filter{Writes: true}))
	id := b.diagnose(failedUpdate(job.FailureTaskException, now.Add(-time.Minute)))
	j := b.Await(id)
	require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
	require.Len(t, b.rack.Requests(b.tray.ID(), reqlog.Filter{Writes: true}), writes, "the tray was only read")
	require.NotNil(t, j.Diagnostics)
	require.Equal(t, "POWER_SUPPLY_FAULT", j.Diagnostics.FailureSignature)
	require.Contains(t, j.Diagnostics.Summary, "PSU_1")
	require.NotEmpty(t, j.Diagnostics.Advice)
	require.Equal(t, map[string]string{
		"history": "collected", "power": "collected", "managers": "collected", "systems": "collected", "chassis": "collected",
		"power_supplies": "skipped", "firmware": "collected", "tasks": "collected", "sel": "collected",
		"event_logs": "collected", "sensors": "collected",
	}, statuses(j.Diagnostics.Collectors))
	require.Equal(t, []string{"prepare", "collect", "classify", "store", "conclude"}, j.StageNames())
	require.Equal(t, "POWER_SUPPLY_FAULT", decode(t, j.ResultJSON)["node_diagnostics"].(map[string]any)["failure_signature"])

	s := b.evidence(id)
	require.Equal(t, s.manifest.Bundle.SHA256, hex.EncodeToString(j.Diagnostics.Evidence.SHA256))
	require.Equal(t, "0193aaaa-0000-7000-8000-000000000000", s.manifest.AboutJobID)
	require.Nil(t, s.manifest.Failure)
	require.Empty(t, s.manifest.State.Changes)
	require.Equal(t, "ON", s.manifest.State.Before["power.state"])
	for _, name := range []string{
		"history.json", "power.json", "managers.json", "systems.json", "chassis.json", "firmware.json", "tasks.json",
		"logs/sel.json", "logs/events.json", "sensors.json",
	} {
		require.Contains(t, s.files, name)
	}
	require.Contains(t, string(s.files["history.json"]), "TASK_EXCEPTION")
	require.Contains(t, string(s.files["firmware.json"]), "FW_BMC_0")
	for name, content := range s.files {
		require.NotContains(t, string(content), "hunter2", name)
		require.NotContains(t, string(content), b.tray.Password(), name)
	}
}

// TestOurOwnCycleIsNoFault examines a tray whose firmware did not come into force in the
// power cycle of an update. That it lost its power then is what the update wanted; the
// same entry of a time before it is a fault.
func TestOurOwnCycleIsNoFault(t *testing.T) {
	b := newTray(t)
	b.knobs(func(k *bmc.Knobs) { k.VersionUnchanged = true })
	failed := b.run(activated(b.pldm("nvfw_P4972_9.fwpkg", "99.01", "BMC")))
	require.Equal(t, job.FailureVersionMismatch, failed.Failure.FailureCode, "%+v", failed.Failure)
	history, err := diagnostics.ReadHistory(t.Context(), b.Conn, failed.ID)
	require.NoError(t, err)
	order := diagnostics.Order(failed.ID, history)
	require.NotEmpty(t, order.GetPowerActions())
	cycled := order.GetPowerActions()[0].GetFrom().AsTime()
	for at, want := range map[time.Time]string{
		cycled:                        "VERSION_MISMATCH_AFTER_UPDATE",
		cycled.Add(-10 * time.Minute): "POWER_SEQUENCE_FAULT",
	} {
		b.knobs(func(k *bmc.Knobs) {
			k.LogEntries = []bmc.LogEntry{{MessageID: "OpenBMC.0.1.SystemPowerLost", Message: "The power was lost.", Severity: "Critical", Created: at}}
		})
		id := b.diagnose(order)
		j := b.Await(id)
		require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
		require.Equal(t, want, j.Diagnostics.FailureSignature, j.Diagnostics.Summary)
		require.Contains(t, string(b.evidence(id).files["history.json"]), "power_actions")
	}
}

// TestDiagnoseHealthyTray finds nothing, and logs that only link their entries are
// read all the same.
func TestDiagnoseHealthyTray(t *testing.T) {
	b := newTray(t)
	b.knobs(func(k *bmc.Knobs) { k.LogLinksOnly = true })
	id := b.diagnose(nil)
	j := b.Await(id)
	require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
	require.Equal(t, diagnostics.SignatureNoFault, j.Diagnostics.FailureSignature, j.Diagnostics.Summary)
	require.Equal(t, "skipped", statuses(j.Diagnostics.Collectors)["history"])
	require.Contains(t, string(b.evidence(id).files["logs/events.json"]), "ResourceCreated")
}

// TestRequiredCollectorFails shows that a run without what it needs tells so, finds
// nothing, and leaves what it could read; an optional part does no harm.
func TestRequiredCollectorFails(t *testing.T) {
	for name, c := range map[string]struct {
		path  string
		state job.State
	}{
		"required": {"/redfish/v1/UpdateService/FirmwareInventory", job.StateFailed},
		"optional": {"/redfish/v1/TaskService/Tasks", job.StateCompleted},
	} {
		t.Run(name, func(t *testing.T) {
			b := newTray(t)
			b.rack.AddFault(faults.Rule{Selector: faults.Selector{Path: c.path}, Action: faults.Action{Status: &faults.Status{Code: 500}}})
			id := b.diagnose(failedUpdate(job.FailureBMCAuthFailed, time.Now()))
			j := b.Await(id)
			require.Equal(t, c.state, j.State, "%+v", j.Failure)
			s := b.evidence(id)
			require.Contains(t, s.files, "systems.json")
			if c.state == job.StateCompleted {
				require.Equal(t, "CREDENTIALS_REFUSED", j.Diagnostics.FailureSignature)
				require.Equal(t, "failed", statuses(j.Diagnostics.Collectors)["tasks"])
				return
			}
			require.Equal(t, job.FailureDiagnosticsClassification, j.Failure.FailureCode)
			require.Contains(t, j.Failure.Message, "firmware")
			require.Nil(t, j.Diagnostics)
			require.Nil(t, decode(t, j.ResultJSON)["node_diagnostics"])
			require.Equal(t, job.FailureDiagnosticsClassification, s.manifest.Failure.FailureCode)
			require.Nil(t, s.manifest.Finding)
		})
	}
}

// withCollectors adds collectors to those of every node.
func withCollectors(more ...diagnostics.Collector) func(*agenttest.AgentOptions) {
	return func(o *agenttest.AgentOptions) {
		o.Collectors = []redfishagent.CollectorsFor{func(*agent.Task) ([]diagnostics.Collector, error) { return more, nil }}
	}
}

// step is a collector that does something to the node while it is examined.
type step struct {
	do           func()
	precondition error
}

func (step) Name() string { return "step" }

func (step) Required() bool { return false }

func (s step) Collect(_ context.Context, into diagnostics.Sink) error {
	s.do()
	return into.Text("step.txt", "done")
}

func (s step) Precondition(context.Context) error { return s.precondition }

// TestStateChangesWhileExamined switches the host off in the middle. The run says
// so, and what it found is told beside that.
func TestStateChangesWhileExamined(t *testing.T) {
	for name, change := range map[string]func(*bench){
		"power": func(b *bench) { b.knobs(func(k *bmc.Knobs) { k.PowerReported = "Off" }) },
		"gone": func(b *bench) {
			b.rack.AddFault(faults.Rule{Selector: faults.Any(), Action: faults.Action{Status: &faults.Status{Code: 503}}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.Start(withCollectors(step{do: func() { change(b) }}))
			id := b.diagnose(nil)
			j := b.Await(id)
			require.Equal(t, job.StateFailed, j.State)
			require.Equal(t, job.FailureDiagnosticsStateChanged, j.Failure.FailureCode, j.Failure.Message)
			require.NotNil(t, j.Diagnostics)
			require.Equal(t, diagnostics.SignatureNoFault, j.Diagnostics.FailureSignature)
			s := b.evidence(id)
			require.NotEmpty(t, s.manifest.State.Changes)
			require.Equal(t, "done", string(s.files["step.txt"]))
		})
	}
}

// TestUnexpectedProvisionState refuses to examine a node before anything is read.
func TestUnexpectedProvisionState(t *testing.T) {
	b := newBench(t)
	b.Start(withCollectors(step{precondition: &diagnostics.StateError{State: "deploying", Wanted: []string{"manageable"}}}))
	id := b.diagnose(nil)
	j := b.Await(id)
	require.Equal(t, job.StateFailed, j.State)
	require.Equal(t, job.FailureDiagnosticsProvisionState, j.Failure.FailureCode)
	require.Nil(t, j.Diagnostics)
	require.Empty(t, b.rack.Requests(b.tray.ID(), reqlog.Filter{}))
	_, err := b.Conn.Evidence(t.Context(), bus.EvidenceManifest(id))
	require.ErrorIs(t, err, bus.ErrNotFound)
}

// fullStore refuses bundles.
type fullStore struct{ err error }

func (s fullStore) PutEvidence(context.Context, bus.EvidenceName, io.Reader) (bus.Evidence, error) {
	return bus.Evidence{}, s.err
}

// TestEvidenceNotStored fails a run whose bundle nobody takes, and tells what it
// found all the same.
func TestEvidenceNotStored(t *testing.T) {
	b := newBench(t)
	b.Start(func(o *agenttest.AgentOptions) {
		o.Diagnostics = diagnostics.Options{Store: fullStore{errors.New("no space left")}, StoreAttempts: 2, StorePause: time.Millisecond}
	})
	j := b.Await(b.diagnose(nil))
	require.Equal(t, job.StateFailed, j.State)
	require.Equal(t, job.FailureDiagnosticsStore, j.Failure.FailureCode)
	require.Equal(t, diagnostics.SignatureNoFault, j.Diagnostics.FailureSignature)
	require.Nil(t, j.Diagnostics.Evidence)
}

// TestDiagnosisTakenOver kills the agent while it collects: the next one begins anew
// and leaves one whole bundle.
func TestDiagnosisTakenOver(t *testing.T) {
	b := newBench(t)
	var doomed *agenttest.Agent
	killed := make(chan struct{})
	doomed = b.Start(withCollectors(step{do: func() {
		select {
		case <-killed:
		default:
			close(killed)
			doomed.Kill()
		}
	}}), agenttest.Mortal)
	id := b.diagnose(nil)
	<-killed
	b.Start()
	j := b.Await(id)
	require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
	require.Equal(t, uint64(2), j.Epoch)
	require.NotContains(t, b.evidence(id).files, "step.txt")
}

// TestDiagnosisOfDifferentTrays examines every type of tray without a part failing.
func TestDiagnosisOfDifferentTrays(t *testing.T) {
	for _, typ := range []string{"compute_gb200_wiwynn", "compute_gb300_lenovo", "compute_gb300_supermicro", "compute_vrnvl72_nvidia"} {
		t.Run(strings.TrimPrefix(typ, "compute_"), func(t *testing.T) {
			b := newTray(t, func(o *sim.Options) {
				o.Compute, o.NodeTypes = 0, []sim.NodeTypeCount{{Type: typ, Count: 1}}
			})
			j := b.Await(b.diagnose(nil))
			require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
			for _, c := range j.Diagnostics.Collectors {
				require.NotEqual(t, job.CollectorFailed, c.Status, "%s: %s", c.Name, c.Message)
			}
		})
	}
}
