// SPDX-License-Identifier: Apache-2.0

package certificate_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/certs"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/services/switch-agent/internal/security/securitytest"
	"github.com/rackbus/rackbus/sim/nvswitch"
)

// J7: a switch without certificate, in the one workflow that may talk to it.
func TestJ7InstallOnAFactoryNewSwitch(t *testing.T) {
	t.Parallel()
	b := newBench(t, nvueAPI, gnmi, manager, telemetry)
	b.cmd.TestHello = true
	e := b.install()
	r := b.completed(e)
	require.Equal(t, []string{
		"prepare_remote_dir", "sftp_copy_ca_pem", "sftp_copy_client_pem", "sftp_copy_client_key", "import_material",
		"bind_" + gnmi, "bind_" + manager, "bind_" + telemetry, "bind_" + nvueAPI,
		"verify_services", "test_nvue_hello", "test_nmx_hello", "test_gnmi_capabilities",
	}, stageNames(e))
	require.Equal(t, []any{gnmi, manager, telemetry, nvueAPI}, r["services"])
	for key, want := range map[string]any{
		"domain": securitytest.Domain, "ca_certificate_id": caID, "entity_certificate_id": certID, "remote_dir": directory,
		"nvue_hello_test": "success", "hello_test": "success", "gnmi_capabilities_test": "success",
	} {
		require.Equal(t, want, r[key], key)
	}
	v := r["service_verification"].(map[string]any)
	require.Equal(t, certID, v["entity_certificate_id"])
	require.Contains(t, v["installed_services"], "nvue-rest-api")
	require.Contains(t, v["installed_services"], "gnmi-server")
	require.NotEmpty(t, v["valid_to"])
	require.Equal(t, map[string]any{"ca-certificate": caID}, v["nvue_mtls"])
	require.Equal(t, map[string]any{"ca-certificate": caID}, v["gnmi_mtls"])
	require.Equal(t, []string{"nmx-controller", "nmx-telemetry"}, slices.Sorted(maps.Keys(v["cluster_apps"].(map[string]any))))
	// What the switch has of it.
	require.Equal(t, certID, b.Sim.SavedConfig("/system/api/certificate"))
	require.Equal(t, caID, b.Sim.SavedConfig("/system/api/mtls/ca-certificate"))
	require.Equal(t, certID, b.Sim.SavedConfig("/system/gnmi-server/certificate"))
	require.ElementsMatch(t, []string{directory + "/ca.pem", directory + "/client.pem"}, b.Sim.Files("/home/admin/certs"))
	mode, err := b.Sim.FileMode(directory)
	require.NoError(t, err)
	require.EqualValues(t, 0o751, mode)
	mode, err = b.Sim.FileMode(directory + "/ca.pem")
	require.NoError(t, err)
	require.EqualValues(t, 0o644, mode)
	require.Contains(t, b.writes(), "ssh EXEC chmod 400 '"+directory+"/client.key'")
	// It was told, and logged.
	require.Contains(t, b.Logs.String(), "unverified until its certificate is installed")
	stages := r["timing_summary"].(map[string]any)["stages"].([]any)
	require.Equal(t, "unverified until the certificate is bound", stages[0].(map[string]any)["details"].(map[string]any)["connection"])
	require.Equal(t, float64(len(b.material.Key)), stages[3].(map[string]any)["details"].(map[string]any)["bytes"])
}

// A renewal goes over a verified connection from the first request on.
func TestRenew(t *testing.T) {
	t.Parallel()
	b := newBench(t, nvueAPI, gnmi)
	b.Provision("nvue", "gnmi")
	b.completed(b.install())
	require.NotContains(t, b.Logs.String(), "unverified")
	require.Equal(t, certID, b.Sim.SavedConfig("/system/api/certificate"))
	require.Empty(t, slices.DeleteFunc(b.writes(), func(w string) bool { return !strings.Contains(w, "/cluster") }))
}

func TestOnlyNamedServices(t *testing.T) {
	t.Parallel()
	b := newBench(t, gnmi)
	r := b.completed(b.install())
	require.Nil(t, r["service_verification"].(map[string]any)["nvue_mtls"])
	require.Equal(t, map[string]any{}, r["service_verification"].(map[string]any)["cluster_apps"])
	require.Equal(t, "self-signed", b.Sim.Config("/system/api/certificate"))
	require.NotContains(t, r, "nvue_hello_test")
}

// J1: revisions that say they were saved as well.
func TestJ1AppliedAndSaved(t *testing.T) {
	t.Parallel()
	b := newBench(t, nvueAPI, gnmi)
	b.Sim.SetKnobs(nvswitch.Knobs{RevisionDone: "applied_and_saved", ApplyPolls: 2, RevisionForm: nvswitch.RevisionFlat})
	b.completed(b.install())
	require.Zero(t, b.count("nvue PATCH /nvue_v1/revision/applied"))
}

// J6: on a switch of a rack whose fabric another one runs, apps of the cluster are
// left alone, and reported so.
func TestJ6OneSwitchRunsTheFabric(t *testing.T) {
	t.Parallel()
	primary, other := newBench(t, manager, nvueAPI), newBench(t, manager, nvueAPI)
	primary.cmd.TestHello, other.cmd.TestHello = true, true
	primary.Sim.SetConfig("/cluster", map[string]any{"state": "enabled"})
	other.cmd.FabricElsewhere = true
	primary.completed(primary.install())
	require.Equal(t, "enabled", primary.Sim.Config("/cluster/state"))
	e := other.install()
	r := other.completed(e)
	require.Equal(t, []any{nvueAPI}, r["services"])
	require.Equal(t, []any{manager}, r["skipped_services"])
	require.Equal(t, job.StageSkipped, statusOf(e, "bind_"+manager))
	require.Equal(t, job.StageSkipped, statusOf(e, "test_nmx_hello"))
	require.NotContains(t, r, "hello_test")
	require.Equal(t, "disabled", other.Sim.Config("/cluster/state"))
	require.Empty(t, slices.DeleteFunc(other.writes(), func(w string) bool { return !strings.Contains(w, "/cluster") }))
}

// Connections that fail for another reason than the switch's certificate are never
// weakened.
func TestOtherTLSErrorsAreRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		knobs nvswitch.Knobs
		code  job.FailureCode
	}{
		"no TLS":        {nvswitch.Knobs{Garbage: []string{"nvue"}}, job.FailureTLSFailed},
		"no connection": {nvswitch.Knobs{Refuse: []string{"nvue"}}, job.FailureHostUnreachable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, nvueAPI)
			b.Sim.SetKnobs(c.knobs)
			e := b.install()
			require.Equal(t, job.StateFailed, e.State)
			require.Equal(t, c.code, e.Failure.FailureCode, e.Failure.Message)
			require.NotContains(t, b.Logs.String(), "unverified")
			require.Empty(t, b.writes())
			stages := result(t, e)["timing_summary"].(map[string]any)["stages"].([]any)
			require.Len(t, stages, 7)
			for _, s := range stages {
				require.Equal(t, "skipped", s.(map[string]any)["status"])
			}
		})
	}
}

// What would lock us out is refused before anything is changed.
func TestLockOutIsRefused(t *testing.T) {
	t.Parallel()
	stranger, err := certs.NewCA()
	require.NoError(t, err)
	for name, change := range map[string]func(*bench){
		"certificate of another CA": func(b *bench) {
			cert, key, err := stranger.Issue(certs.Leaf{Role: "switch", Hosts: []string{b.Sim.IP()}})
			require.NoError(t, err)
			b.material.Certificate, b.material.Key = cert, key
		},
		"CA that did not sign us":      func(b *bench) { b.material.CA = stranger.PEM() },
		"certificate for another name": func(b *bench) { b.material = b.Issue(certs.Leaf{Hosts: []string{"elsewhere.example"}}) },
		"expired certificate": func(b *bench) {
			b.material = b.Issue(certs.Leaf{NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour)})
		},
		"no material of our own": func(b *bench) { b.cmd.Domain = "rack-b" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, nvueAPI)
			change(b)
			e := b.install()
			code := job.FailurePreconditionFailed
			if name == "expired certificate" || name == "no material of our own" {
				code = job.FailureCertificateMaterial
			}
			b.failed(e, code)
			require.Empty(t, b.writes())
		})
	}
	t.Run("hello without material", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, gnmi)
		b.cmd.TestHello, b.cmd.Domain = true, "rack-b"
		b.failed(b.install(), job.FailureCertificateMaterial)
		require.Empty(t, b.writes())
	})
}

func TestInvalidCommand(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*bench){
		"no service":        func(b *bench) { b.cmd.Services = nil },
		"unknown service":   func(b *bench) { b.cmd.Services = []string{"toaster"} },
		"id with a blank":   func(b *bench) { b.cmd.EntityCertificateId = "a b" },
		"run with a quote":  func(b *bench) { b.cmd.RunId = "a'; reboot; '" },
		"run outside":       func(b *bench) { b.cmd.RunId = "../x" },
		"no certificate id": func(b *bench) { b.cmd.CaCertificateId = "" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, nvueAPI)
			change(b)
			e := b.install()
			require.Equal(t, job.FailureInvalidArgument, e.Failure.FailureCode)
			require.Empty(t, b.writes())
		})
	}
	b := newBench(t, nvueAPI)
	b.material.Key = []byte("-----BEGIN PRIVATE KEY-----\nnot a key, but s3cret\n-----END PRIVATE KEY-----\n")
	e := b.install()
	require.Equal(t, job.FailureCertificateMaterial, e.Failure.FailureCode)
	require.NotContains(t, e.Failure.Message, "s3cret")
}
