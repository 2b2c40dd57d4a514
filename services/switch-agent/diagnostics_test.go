// SPDX-License-Identifier: Apache-2.0

package switchagent_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/diagnostics"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/redfishagent/agenttest"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	switchagent "github.com/rackbus/rackbus/services/switch-agent"
	"github.com/rackbus/rackbus/sim/faults"
	"github.com/rackbus/rackbus/sim/nvswitch"
	"github.com/rackbus/rackbus/sim/reqlog"
)

// patient is a switch with its BMC, and a table of faults.
func patient(t *testing.T) (*bench, *faults.Set) {
	t.Helper()
	table := &faults.Set{}
	b := newBench(t, func(o *nvswitch.Options) { o.Faults = table })
	b.node = b.target(true)
	return b, table
}

// examining starts an agent that keeps its bundles in the broker of the test.
func (b *bench) examining() {
	b.t.Helper()
	b.start(nil, func(o *switchagent.Options) { o.Diagnostics = diagnostics.Options{Store: b.Conn} })
}

// diagnosed runs a diagnosis and gives its job and its bundle.
func (b *bench) diagnosed() (agenttest.Job, map[string]string) {
	b.t.Helper()
	id := b.Admit(b.node, nil, func(c *rackbusv1.JobCommand) {
		c.Type = string(job.TypeNodeDiagnostics)
		c.Operation = &rackbusv1.JobCommand_NodeDiagnosis{NodeDiagnosis: &rackbusv1.NodeDiagnosis{}}
	})
	done := b.Await(id)
	e, err := b.Conn.Evidence(b.t.Context(), bus.EvidenceBundle(id))
	require.NoError(b.t, err)
	var content bytes.Buffer
	require.NoError(b.t, b.Conn.ReadEvidence(b.t.Context(), e, &content))
	gz, err := gzip.NewReader(&content)
	require.NoError(b.t, err)
	files := map[string]string{}
	for r := tar.NewReader(gz); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(b.t, err)
		raw, err := io.ReadAll(r)
		require.NoError(b.t, err)
		files[h.Name] = string(raw)
		require.NotContains(b.t, files[h.Name], planted, h.Name)
	}
	return done, files
}

// statuses are the collectors by what became of them.
func statuses(outcomes []job.CollectorOutcome) map[string]string {
	out := map[string]string{}
	for _, o := range outcomes {
		out[o.Name] = o.Status.String()
	}
	return out
}

// TestDiagnoseSwitch examines a healthy switch whose fabric is configured, and
// changes nothing on it.
func TestDiagnoseSwitch(t *testing.T) {
	b, _ := patient(t)
	b.sw.SetConfig("/cluster", map[string]any{"state": "enabled"})
	b.sw.SetApp("nmx-controller", true, "enabled")
	b.sw.SetStaticConfig("fm_config", "MNNVL_TOPOLOGY", topology)
	b.until("the apps to run", func() bool {
		return b.sw.App("nmx-controller").Status == "ok" && b.sw.App("nmx-telemetry").Status == "ok"
	})
	b.examining()
	done, files := b.diagnosed()
	require.Equal(t, job.StateCompleted, done.State, "%+v", done.Failure)
	require.Equal(t, map[string]string{
		"history": "skipped", "system": "collected", "image": "collected", "platform": "collected", "switch_firmware": "collected",
		"services": "collected", "actions": "collected", "cluster": "collected", "fabric": "collected",
		"bmc_power": "collected", "bmc_managers": "collected", "bmc_systems": "collected", "bmc_chassis": "collected",
		"bmc_power_supplies": "skipped", "bmc_firmware": "collected", "bmc_tasks": "skipped", "bmc_sel": "skipped",
		"bmc_event_logs": "collected", "bmc_sensors": "skipped",
	}, statuses(done.Diagnostics.Collectors), "%+v", done.Diagnostics.Collectors)
	require.Equal(t, diagnostics.SignatureNoFault, done.Diagnostics.FailureSignature, done.Diagnostics.Summary)
	for _, o := range done.Diagnostics.Collectors {
		require.Equal(t, o.Name == "system" || o.Name == "image", o.Required, o.Name)
	}
	require.Contains(t, files["nvue/system.json"], b.sw.ID())
	require.Contains(t, files["nvue/image.json"], b.sw.Images().Current)
	require.Contains(t, files["nvue/firmware.json"], b.sw.Version("BMC"))
	require.Contains(t, files["nvue/cluster.json"], "nmx-telemetry")
	require.Contains(t, files["fabric.json"], topology)
	require.Contains(t, files["firmware.json"], "FW_BMC_0")
	manifest := decode(t, files[diagnostics.ManifestName])
	before := manifest["state"].(map[string]any)["before"].(map[string]any)
	require.Equal(t, b.sw.Images().Current, before["system.image"])
	require.NotEmpty(t, before["system.boot_id"])
	require.Equal(t, "ON", before["bmc_power.state"])
	for _, e := range b.sw.Requests(reqlog.Filter{Protocol: reqlog.NVUE}) {
		require.Equal(t, "GET", e.Method, e.Path)
	}
	require.Empty(t, b.sw.Requests(reqlog.Filter{Protocol: reqlog.Redfish, Writes: true}))
}

// TestSwitchFaults gives a switch one fault each.
func TestSwitchFaults(t *testing.T) {
	t.Parallel()
	merge := func(path, members string) faults.Rule {
		return faults.Rule{Selector: faults.Resource(path), Action: faults.Action{JSONMerge: json.RawMessage(members)}}
	}
	for signature, fault := range map[string]faults.Rule{
		"SWITCH_IMAGE_MISMATCH":         merge("/nvue_v1/system/image", `{"next":"2","partition2":{"build-id":"nvos-9.9.9"}}`),
		"SWITCH_IMAGE_MISSING":          merge("/nvue_v1/system/image", `{"next":"2","partition2":{"build-id":""}}`),
		"SWITCH_FIRMWARE_PENDING":       merge("/nvue_v1/platform/firmware", `{"EROT":{"pending-firmware":"2.0"}}`),
		"SWITCH_FIRMWARE_UNHEALTHY":     merge("/nvue_v1/platform/firmware", `{"EROT":{"Status":{"Health":"Critical"}}}`),
		"SWITCH_CLUSTER_APP_DOWN":       merge("/nvue_v1/cluster", `{"state":"enabled","nmxc-conn":"up"}`),
		"SWITCH_ACTION_FAILED":          merge("/nvue_v1/action", `{"7":{"state":"action_error","issue":[{"message":"no space is left, password=`+planted+`"}]}}`),
		"POWER_SUPPLY_FAULT":            merge("/redfish/v1/Systems/System_0/LogServices/EventLog/Entries", `{"Members":[{"@odata.id":"/redfish/v1/x/1","MessageId":"OpenBMC.0.1.PowerSupplyFailed","Message":"PSU 3"}]}`),
		"SWITCH_CONTROLLER_UNREACHABLE": {},
		"SWITCH_CLUSTER_DISCONNECTED":   merge("/nvue_v1/cluster", `{"nmxc-conn":{"state":"down"}}`),
	} {
		t.Run(signature, func(t *testing.T) {
			b, table := patient(t)
			if fault.Action.JSONMerge != nil {
				_, err := table.Add(fault)
				require.NoError(t, err)
			}
			switch signature {
			case "SWITCH_CONTROLLER_UNREACHABLE":
				b.sw.UpdateKnobs(func(k *nvswitch.Knobs) { k.NMXC.HelloUnavailable = -1 })
				fallthrough
			case "SWITCH_CLUSTER_DISCONNECTED":
				b.sw.SetConfig("/cluster", map[string]any{"state": "enabled"})
				b.sw.SetApp("nmx-controller", true, "enabled")
				b.until("the apps to run", func() bool {
					return b.sw.App("nmx-controller").Status == "ok" && b.sw.App("nmx-telemetry").Status == "ok"
				})
			}
			b.examining()
			done, _ := b.diagnosed()
			require.Equal(t, job.StateCompleted, done.State, "%+v", done.Failure)
			require.Equal(t, signature, done.Diagnostics.FailureSignature, "%+v", done.Diagnostics)
		})
	}
}

// TestSwitchRepeatsItsPassword has the switch show the password that we log in with
// wherever we take over a text of it.
func TestSwitchRepeatsItsPassword(t *testing.T) {
	b, table := patient(t)
	b.sw.SetConfig("/cluster", map[string]any{"state": "enabled"})
	b.sw.SetStaticConfig("fm_config", "NOTE", planted)
	for path, members := range map[string]string{
		"/nvue_v1/cluster":                     `{"state":"enabled","nmxc-conn":"` + planted + `"}`,
		"/nvue_v1/cluster/apps/nmx-controller": `{"status":"down","reason":"` + planted + `","manager":{"state":"enabled"}}`,
		"/nvue_v1/platform/firmware":           `{"EROT":{"actual-firmware":"` + planted + `","pending-firmware":"` + planted + `"}}`,
		"/nvue_v1/system":                      `{"hostname":"` + planted + `"}`,
		"/nvue_v1/system/image":                `{"partition2":{"build-id":"` + planted + `"}}`,
	} {
		_, err := table.Add(faults.Rule{Selector: faults.Resource(path), Action: faults.Action{JSONMerge: json.RawMessage(members)}})
		require.NoError(t, err)
	}
	b.examining()
	done, files := b.diagnosed()
	require.Contains(t, files["nvue/cluster.json"], "XXXX")
	require.NotContains(t, done.ResultJSON, planted)
	require.NotContains(t, done.Diagnostics.Summary, planted)
}

// TestSwitchWithoutItsBMC shows that a switch is examined also when its BMC does not
// answer, or when it has none.
func TestSwitchWithoutItsBMC(t *testing.T) {
	t.Parallel()
	t.Run("none", func(t *testing.T) {
		b, _ := patient(t)
		b.node.Bmc = nil
		b.examining()
		done, _ := b.diagnosed()
		require.Equal(t, job.StateCompleted, done.State, "%+v", done.Failure)
		require.Equal(t, diagnostics.SignatureNoFault, done.Diagnostics.FailureSignature)
		require.Len(t, done.Diagnostics.Collectors, 9)
	})
	t.Run("away", func(t *testing.T) {
		b, _ := patient(t)
		b.node.Bmc.Port = 1
		b.examining()
		done, files := b.diagnosed()
		require.Equal(t, job.StateCompleted, done.State, "%+v", done.Failure)
		require.Equal(t, diagnostics.SignatureUnclassified, done.Diagnostics.FailureSignature, "what was not read may be at fault")
		require.Equal(t, "failed", statuses(done.Diagnostics.Collectors)["bmc_power"])
		require.Contains(t, files[diagnostics.ManifestName], `"bmc_power.readable": "no"`)
	})
}

// TestRequiredPartOfSwitch fails a run without the image state, with what else there
// is, and has the others go on.
func TestRequiredPartOfSwitch(t *testing.T) {
	b, table := patient(t)
	_, err := table.Add(faults.Rule{
		Selector: faults.Resource("/nvue_v1/system/image"), Action: faults.Action{Status: &faults.Status{Code: 500}},
	})
	require.NoError(t, err)
	b.examining()
	done, files := b.diagnosed()
	require.Equal(t, job.StateFailed, done.State)
	require.Equal(t, job.FailureDiagnosticsClassification, done.Failure.FailureCode)
	require.Contains(t, done.Failure.Message, "image")
	require.Nil(t, done.Diagnostics)
	require.Contains(t, files, "nvue/firmware.json")
	require.Contains(t, files, "systems.json")
}

// TestSwitchChangesWhileExamined has the switch show another boot, and another
// image, when it is looked at again.
func TestSwitchChangesWhileExamined(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*bench, *faults.Set){
		"boot_id": func(b *bench, _ *faults.Set) {
			b.sw.UpdateKnobs(func(k *nvswitch.Knobs) {
				k.Commands = []nvswitch.CommandRule{{Match: "boot_id", Answer: true, Stdout: "an-earlier-boot\n", Remaining: 1}}
			})
		},
		"next_image": func(b *bench, table *faults.Set) {
			_, err := table.Add(faults.Rule{
				Selector: faults.Resource("/nvue_v1/system/image"), Remaining: 1,
				Action: faults.Action{JSONMerge: json.RawMessage(`{"next":"2","partition2":{"build-id":"nvos-9.9.9"}}`)},
			})
			require.NoError(b.t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b, table := patient(t)
			change(b, table)
			b.examining()
			done, _ := b.diagnosed()
			require.Equal(t, job.StateFailed, done.State)
			require.Equal(t, job.FailureDiagnosticsStateChanged, done.Failure.FailureCode)
			require.Contains(t, done.Failure.Message, "system."+name)
			require.NotNil(t, done.Diagnostics, "what was found is told beside that")
		})
	}
}

// TestOldSwitchListsNoActions skips what the switch does not have.
func TestOldSwitchListsNoActions(t *testing.T) {
	t.Parallel()
	for name, status := range map[string]int{"unknown": http.StatusNotFound, "not to be read": http.StatusMethodNotAllowed} {
		t.Run(name, func(t *testing.T) {
			b, table := patient(t)
			_, err := table.Add(faults.Rule{
				Selector: faults.Resource("/nvue_v1/action"), Action: faults.Action{Status: &faults.Status{Code: status}},
			})
			require.NoError(t, err)
			b.examining()
			done, _ := b.diagnosed()
			require.Equal(t, "skipped", statuses(done.Diagnostics.Collectors)["actions"])
			require.Equal(t, diagnostics.SignatureNoFault, done.Diagnostics.FailureSignature)
		})
	}
}
