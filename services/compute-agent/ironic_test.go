// SPDX-License-Identifier: Apache-2.0

package computeagent_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/diagnostics"
	"github.com/rackbus/rackbus/pkg/ironic"
	"github.com/rackbus/rackbus/pkg/ironic/ironictest"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/process"
	"github.com/rackbus/rackbus/pkg/redfishagent"
	"github.com/rackbus/rackbus/pkg/redfishagent/agenttest"
	"github.com/rackbus/rackbus/pkg/seal"
	computeagent "github.com/rackbus/rackbus/services/compute-agent"
	"github.com/rackbus/rackbus/sim/bmc"
	"github.com/rackbus/rackbus/sim/reqlog"
)

// newEnrolled is a tray that Ironic knows, and an agent that asks Ironic about it.
func newEnrolled(t *testing.T, members ironictest.Object) (*bench, *ironictest.Fake) {
	t.Helper()
	b := newBench(t)
	f := ironictest.Start(t)
	f.AddNode(b.node.GetNodeId(), members)
	f.Set("", "conductors", ironictest.Object{"conductors": []any{}})
	roots, err := ironic.Roots(f.CAFile())
	require.NoError(t, err)
	b.Start(func(o *agenttest.AgentOptions) {
		o.Collectors = []redfishagent.CollectorsFor{computeagent.IronicCollectors(ironic.Options{
			Endpoint: f.URL(), Roots: roots, NodeName: "{node_id}", Request: 10 * time.Second,
		})}
	})
	return b, f
}

const imageMissing = "Failed to inspect hardware. Reason: Validation of image href http://conductor/ironic-python-agent.kernel failed, " +
	"reason: Got HTTP code 404 instead of 200 in response to HEAD request."

// TestDiagnoseNodeOfIronic has what Ironic knows in the bundle.
func TestDiagnoseNodeOfIronic(t *testing.T) {
	b, _ := newEnrolled(t, nil)
	id := b.diagnose(nil)
	j := b.Await(id)
	require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
	require.Equal(t, diagnostics.SignatureNoFault, j.Diagnostics.FailureSignature)
	require.Equal(t, "collected", statuses(j.Diagnostics.Collectors)["ironic"])
	s := b.evidence(id)
	require.Contains(t, s.files, "ironic/node.json")
	require.Equal(t, "active", s.manifest.State.Before["ironic.provision_state"])
}

// TestProblemOfIronicFailsTheRun shows both a failure code and a signature, which
// need not say the same.
func TestProblemOfIronicFailsTheRun(t *testing.T) {
	for signature, entries := range map[string][]bmc.LogEntry{
		string(job.FailureIronicImageNotFound): nil,
		"POWER_SUPPLY_FAULT":                   {{Log: bmc.LogSEL, MessageID: "OpenBMC.0.1.PowerSupplyFailed", Severity: "Critical", Created: time.Now()}},
	} {
		t.Run(signature, func(t *testing.T) {
			b, _ := newEnrolled(t, ironictest.Object{"provision_state": "inspect failed", "last_error": imageMissing})
			b.knobs(func(k *bmc.Knobs) { k.LogEntries = entries })
			id := b.diagnose(nil)
			j := b.Await(id)
			require.Equal(t, job.StateFailed, j.State)
			require.Equal(t, job.FailureIronicImageNotFound, j.Failure.FailureCode)
			require.Contains(t, j.Failure.Message, "every conductor")
			require.Equal(t, signature, j.Diagnostics.FailureSignature)
			s := b.evidence(id)
			require.Equal(t, job.FailureIronicImageNotFound, s.manifest.Failure.FailureCode)
			require.Equal(t, signature, s.manifest.Finding.Signature)
			require.Contains(t, string(s.files["ironic/node.json"]), "ironic-python-agent.kernel")
		})
	}
}

// TestIronicIsBusyWithTheNode refuses to examine a node that is being cleaned, before
// anything is read of it.
func TestIronicIsBusyWithTheNode(t *testing.T) {
	b, _ := newEnrolled(t, ironictest.Object{"provision_state": "clean wait"})
	j := b.Await(b.diagnose(nil))
	require.Equal(t, job.StateFailed, j.State)
	require.Equal(t, job.FailureDiagnosticsProvisionState, j.Failure.FailureCode)
	require.Contains(t, j.Failure.Message, `"clean wait"`)
	require.Nil(t, j.Diagnostics)
	require.Empty(t, b.rack.Requests(b.tray.ID(), reqlog.Filter{}))
}

// TestIronicStartsSomething has somebody deploy the node while it is examined.
func TestIronicStartsSomething(t *testing.T) {
	b, f := newEnrolled(t, nil)
	f.Answer(func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/conductors") {
			f.Change(b.node.GetNodeId(), ironictest.Object{"provision_state": "deploying", "last_error": imageMissing})
		}
		return false
	})
	j := b.Await(b.diagnose(nil))
	require.Equal(t, job.StateFailed, j.State)
	require.Equal(t, job.FailureDiagnosticsStateChanged, j.Failure.FailureCode)
	require.Contains(t, j.Failure.Message, `ironic.provision_state: "deploying", was "active"`)
	require.NotNil(t, j.Diagnostics)
}

// TestIronicIsRequired fails the run of a node that Ironic does not know, with what
// the tray tells.
func TestIronicIsRequired(t *testing.T) {
	b, f := newEnrolled(t, nil)
	f.Change(b.node.GetNodeId(), ironictest.Object{"name": "another"})
	id := b.diagnose(nil)
	j := b.Await(id)
	require.Equal(t, job.StateFailed, j.State)
	require.Equal(t, job.FailureDiagnosticsClassification, j.Failure.FailureCode)
	require.Contains(t, j.Failure.Message, "ironic knows no node")
	require.Nil(t, j.Diagnostics)
	require.Contains(t, b.evidence(id).files, "systems.json")
}

// TestIronicFromConfiguration has the program log in with an account that only it can
// open.
func TestIronicFromConfiguration(t *testing.T) {
	b := newBench(t)
	f := ironictest.Start(t)
	f.SetAuth("http_basic")
	f.AddNode(b.node.GetRackId()+"-"+b.node.GetNodeId(), nil)
	sealed := filepath.Join(t.TempDir(), "account")
	public, err := seal.LoadPublic(b.KeyDir)
	require.NoError(t, err)
	sealer, err := seal.NewSealer(public)
	require.NoError(t, err)
	session, err := sealer.NewSession(node.FamilyCompute)
	require.NoError(t, err)
	account := []byte("OS_USERNAME=" + ironictest.User + "\nOS_PASSWORD=" + ironictest.Password + "\n")
	text, err := seal.EncodeDocument(session, ironic.EnvironmentKind, account)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(sealed, text, 0o600))
	set := []string{
		"diagnostics.ironic.endpoint=" + f.URL(), "diagnostics.ironic.auth=http_basic",
		"diagnostics.ironic.environment_file=" + sealed, "diagnostics.ironic.tls_ca=" + f.CAFile(),
	}
	logs, stop := b.Run(computeagent.Program(), set...)
	j := b.Await(b.diagnose(nil))
	stop()
	require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
	require.Equal(t, "collected", statuses(j.Diagnostics.Collectors)["ironic"])
	require.NotContains(t, logs.String(), ironictest.Password)

	for want, content := range map[string][]byte{"not a sealed document": account, "no such file": nil} {
		require.NoError(t, os.Remove(sealed))
		if content != nil {
			require.NoError(t, os.WriteFile(sealed, content, 0o600))
		}
		err := computeagent.RunOn(t.Context(), &process.Env{Config: b.config(set...)}, nil)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), ironictest.Password)
		require.NoError(t, os.WriteFile(sealed, text, 0o600))
	}
}
