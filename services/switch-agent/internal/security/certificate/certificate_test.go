// SPDX-License-Identifier: Apache-2.0

package certificate_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/certs"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/ssh"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/services/switch-agent/internal/channel"
	"github.com/rackbus/rackbus/services/switch-agent/internal/device"
	"github.com/rackbus/rackbus/services/switch-agent/internal/fabric"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nmxc"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nvue"
	"github.com/rackbus/rackbus/services/switch-agent/internal/security"
	"github.com/rackbus/rackbus/services/switch-agent/internal/security/certificate"
	"github.com/rackbus/rackbus/services/switch-agent/internal/security/securitytest"
	"github.com/rackbus/rackbus/sim/faults"
	"github.com/rackbus/rackbus/sim/nvswitch"
	"github.com/rackbus/rackbus/sim/reqlog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	nvueAPI   = string(security.ServiceNVUE)
	gnmi      = string(security.ServiceGNMI)
	manager   = string(security.ServiceManager)
	telemetry = string(security.ServiceTelemetry)

	run       = "2026-01-02_03-04-05_678"
	caID      = "rms-rack-a-ca-" + run
	certID    = "rms-rack-a-cert-" + run
	directory = "/home/admin/certs/" + run
)

// bench is a switch and the material that a job installs on it.
type bench struct {
	*securitytest.Bench
	material nvswitch.Material
	cmd      *rackbusv1.SwitchCertificate
}

func newBench(t *testing.T, services ...string) *bench {
	return newBenchWith(t, nil, services...)
}

func newBenchWith(t *testing.T, change func(*securitytest.Setup), services ...string) *bench {
	t.Helper()
	b := &bench{Bench: securitytest.New(t, func(s *securitytest.Setup) {
		if change != nil {
			change(s)
		}
	})}
	b.material = b.Material()
	b.cmd = &rackbusv1.SwitchCertificate{
		Services: services, Domain: securitytest.Domain, RunId: run, CaCertificateId: caID, EntityCertificateId: certID,
	}
	// The telemetry interface listens only when it is on.
	b.Sim.SetConfig("/system/gnmi-server", map[string]any{"state": "enabled"})
	return b
}

// fabricSwitch is an opened switch as the fabric steps need it.
type fabricSwitch struct {
	*device.Switch
	own *bench
}

func (s fabricSwitch) Node() node.Ref    { return s.Ref }
func (s fabricSwitch) API() *nvue.Client { return s.NVUE }
func (s fabricSwitch) Insecure() bool    { return false }
func (s fabricSwitch) AppAddress(app string) string {
	if app == nvue.AppTelemetry {
		return s.NMXTelemetry()
	}
	return s.NMXController()
}
func (s fabricSwitch) Controller() (nmxc.Options, error) {
	m, err := s.own.Store.Client("")
	return nmxc.Options{Address: s.NMXController(), Security: channel.Security{Material: m, ServerName: s.ServerName()}}, err
}
func (s fabricSwitch) Shell() (*ssh.Client, error) { return s.SSH() }

func (b *bench) job() securitytest.Job {
	look := fabric.Look{Times: 100, Pause: securitytest.Tick}
	return securitytest.Job{
		Type:    job.TypeSwitchCertificate,
		Command: &rackbusv1.JobCommand{Operation: &rackbusv1.JobCommand_SwitchCertificate{SwitchCertificate: b.cmd}},
		Handler: certificate.Install(certificate.Options{
			Switches: b.Switches,
			Secrets: securitytest.Holding(&rackbusv1.SwitchCertificateSecrets{
				Ca: b.material.CA, Certificate: b.material.Certificate, Key: b.material.Key,
			}),
			Cluster: func(sw *device.Switch) certificate.Cluster {
				return fabric.NewCluster(fabricSwitch{sw, b}, fabric.Timing{
					Converge: look, Ready: look, CertificateSettle: securitytest.Tick, CommandGap: securitytest.Tick, Probe: time.Second,
				})
			},
			Services: certificate.Greeter{
				NMXC: nmxc.Timing{Connect: 2 * time.Second, Call: 2 * time.Second},
			},
			Timing: certificate.Timing{
				HelloTries: 20, HelloPause: securitytest.Tick, VerifyTries: 3, VerifyPause: securitytest.Tick,
				Cleanup: 5 * time.Second, UnsetPause: securitytest.Tick,
			},
		}),
	}
}

func (b *bench) install() job.Event { return b.Run(b.job()) }

func result(t *testing.T, e job.Event) map[string]any {
	t.Helper()
	var out map[string]any
	require.NoError(t, json.Unmarshal([]byte(e.ResultJSON), &out))
	return out
}

func stageNames(e job.Event) []string {
	var out []string
	for _, s := range e.Stages {
		out = append(out, s.Name)
	}
	return out
}

func statusOf(e job.Event, stage string) job.StageStatus {
	for _, s := range e.Stages {
		if s.Name == stage {
			return s.Status
		}
	}
	return 0
}

// keys are the files on the switch that hold the private key.
func (b *bench) keys() []string {
	var out []string
	for _, name := range b.Sim.Files("/") {
		content, err := b.Sim.ReadFile(name)
		require.NoError(b.T, err)
		if bytes.Contains(content, bytes.TrimSpace(b.material.Key)) {
			out = append(out, name)
		}
	}
	return out
}

// keySecret is a line of the private key that is in no other file.
func (b *bench) keySecret() string { return strings.Split(string(b.material.Key), "\n")[1] }

// silent checks that the key shows nowhere, and lies nowhere.
func (b *bench) silent(e job.Event) {
	b.T.Helper()
	told, err := json.Marshal(e)
	require.NoError(b.T, err)
	for name, text := range map[string]string{"event": string(told), "result": e.ResultJSON, "logs": b.Logs.String()} {
		require.NotContains(b.T, text, b.keySecret(), name)
		require.NotContains(b.T, text, securitytest.Password, name)
	}
	for _, r := range b.Sim.Requests(reqlog.Filter{}) {
		require.NotContains(b.T, r.Path+r.Query, b.keySecret())
	}
	require.Empty(b.T, b.keys(), "the private key is still on the switch")
}

func (b *bench) completed(e job.Event) map[string]any {
	b.T.Helper()
	require.Equal(b.T, job.StateCompleted, e.State, "%+v", e.Failure)
	b.silent(e)
	r := result(b.T.(*testing.T), e)
	require.Equal(b.T, "completed", r["status"])
	return r
}

func (b *bench) failed(e job.Event, code job.FailureCode) string {
	b.T.Helper()
	require.Equal(b.T, job.StateFailed, e.State)
	require.Equal(b.T, code, e.Failure.FailureCode, e.Failure.Message)
	b.silent(e)
	require.NotContains(b.T, b.Sim.Files("/"), directory)
	for _, name := range b.Sim.Files("/") {
		require.False(b.T, strings.HasPrefix(name, directory), name)
	}
	require.Equal(b.T, "failed", result(b.T.(*testing.T), e)["status"])
	return e.Failure.Message
}

// writes are the requests that could change the switch, by protocol and line.
func (b *bench) writes() []string {
	var out []string
	for _, r := range b.Sim.Requests(reqlog.Filter{Writes: true}) {
		out = append(out, r.Protocol+" "+r.Method+" "+r.Path)
	}
	return out
}

func (b *bench) count(line string) int {
	return len(slices.DeleteFunc(b.writes(), func(w string) bool { return w != line }))
}

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
	for name, knobs := range map[string]nvswitch.Knobs{
		"no TLS": {Garbage: []string{"nvue"}}, "no connection": {Refuse: []string{"nvue"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, nvueAPI)
			b.Sim.SetKnobs(knobs)
			e := b.install()
			require.Equal(t, job.StateFailed, e.State)
			require.Equal(t, job.FailureHostUnreachable, e.Failure.FailureCode, e.Failure.Message)
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
			b.failed(e, job.FailurePreconditionFailed)
			require.Empty(t, b.writes())
		})
	}
	t.Run("hello without material", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, gnmi)
		b.cmd.TestHello, b.cmd.Domain = true, "rack-b"
		b.failed(b.install(), job.FailurePreconditionFailed)
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
	require.Equal(t, job.FailurePreconditionFailed, e.Failure.FailureCode)
	require.NotContains(t, e.Failure.Message, "s3cret")
}

func TestStageFailures(t *testing.T) {
	t.Parallel()
	security := "/system/security/certificate/*"
	script := func(state, issue string) []json.RawMessage {
		return []json.RawMessage{json.RawMessage(`{"state":"` + state + `","issue":["` + issue + `"],"percentage":50}`)}
	}
	for name, c := range map[string]struct {
		services []string
		knobs    nvswitch.Knobs
		stage    string
		code     job.FailureCode
		says     string
	}{
		"directory": {[]string{gnmi}, nvswitch.Knobs{Commands: []nvswitch.CommandRule{{Match: "install -d", Answer: true, Exit: 1, Stderr: "read-only file system"}}},
			"prepare_remote_dir", job.FailureInternal, "read-only"},
		"copy": {[]string{gnmi}, nvswitch.Knobs{SFTP: nvswitch.SFTPKnobs{Denied: []string{"**/*.client.pem*"}}},
			"sftp_copy_client_pem", job.FailureUploadFailed, ""},
		"copy of the key": {[]string{gnmi}, nvswitch.Knobs{SFTP: nvswitch.SFTPKnobs{FailAfter: 10}},
			"sftp_copy_ca_pem", job.FailureUploadFailed, ""},
		"chmod": {[]string{gnmi}, nvswitch.Knobs{Commands: []nvswitch.CommandRule{{Match: "chmod 400", Answer: true, Exit: 1, Stderr: "not permitted"}}},
			"sftp_copy_client_key", job.FailureUploadFailed, "private key and its directory were removed"},
		"import": {[]string{gnmi}, nvswitch.Knobs{Actions: []nvswitch.ActionRule{{Resource: security, Script: script("action_error", "bad passphrase"), NoEffect: true}}},
			"import_material", job.FailureTaskException, "bad passphrase"},
		"import failed": {[]string{gnmi}, nvswitch.Knobs{Actions: []nvswitch.ActionRule{{Resource: security, Script: script("action_failed", "no"), NoEffect: true}}},
			"import_material", job.FailureTaskException, "private key and its directory were removed"},
		"gnmi revision": {[]string{gnmi}, nvswitch.Knobs{Revisions: []nvswitch.RevisionRule{{Path: "/system/gnmi-server**", State: "invalid", Issue: "no such leaf"}}},
			"bind_" + gnmi, job.FailureTaskException, "no such leaf"},
		// J2: accepted, and then not applied.
		"nvue revision": {[]string{nvueAPI}, nvswitch.Knobs{Revisions: []nvswitch.RevisionRule{{Path: "/system/api**", State: "failed", Issue: "the key is too short"}}},
			"bind_" + nvueAPI, job.FailureTaskException, "the key is too short"},
		"never applied": {[]string{nvueAPI}, nvswitch.Knobs{Revisions: []nvswitch.RevisionRule{{Path: "/system/api**", State: "apply"}}},
			"bind_" + nvueAPI, job.FailureHostUnreachable, ""},
		"encryption 400": {[]string{manager}, nvswitch.Knobs{Actions: []nvswitch.ActionRule{
			{Resource: "/cluster/apps/nmx-controller/manager/encryption", Script: script("action_error", "unknown mode"), NoEffect: true},
		}}, "bind_" + manager, job.FailureTaskException, "unknown mode"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBenchWith(t, func(s *securitytest.Setup) { s.NVUE.RevisionLimit = 300 * time.Millisecond }, c.services...)
			b.Sim.SetKnobs(c.knobs)
			e := b.install()
			message := b.failed(e, c.code)
			require.Equal(t, job.StageFailed, statusOf(e, c.stage), "%+v", e.Stages)
			require.Contains(t, message, c.says)
			require.Contains(t, message, "removed from the switch")
			stages := result(t, e)["timing_summary"].(map[string]any)["stages"].([]any)
			at := slices.IndexFunc(stages, func(s any) bool { return s.(map[string]any)["name"] == c.stage })
			require.NotEmpty(t, stages[at].(map[string]any)["details"].(map[string]any)["error"])
		})
	}
}

// The encryption call fails in a way that says nothing about it: the command line
// does it again.
func TestEncryptionBackstop(t *testing.T) {
	t.Parallel()
	set := &faults.Set{}
	b := newBenchWith(t, func(s *securitytest.Setup) { s.Sim.Faults = set }, manager)
	_, err := set.Add(faults.Rule{
		Selector: faults.Request("POST", "/nvue_v1/cluster/apps/nmx-controller/manager/encryption"), Action: faults.Action{Status: &faults.Status{Code: 503}},
	})
	require.NoError(t, err)
	b.completed(b.install())
	require.Equal(t, 1, b.count("ssh EXEC nv action update cluster apps nmx-controller manager encryption mtls"))

	other := newBenchWith(t, func(s *securitytest.Setup) { s.Sim.Faults = &faults.Set{} }, manager)
	otherSet := &faults.Set{}
	other = newBenchWith(t, func(s *securitytest.Setup) { s.Sim.Faults = otherSet }, manager)
	_, err = otherSet.Add(faults.Rule{
		Selector: faults.Request("POST", "/nvue_v1/cluster/apps/nmx-controller/manager/encryption"), Action: faults.Action{Status: &faults.Status{Code: 400}},
	})
	require.NoError(t, err)
	other.failed(other.install(), job.FailureBMCRefused)
	require.Zero(t, other.count("ssh EXEC nv action update cluster apps nmx-controller manager encryption mtls"))
}

func TestVerification(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ merge, says string }{
		"expired":      {`{"valid-to":"2020-01-01T00:00:00Z"}`, "has expired"},
		"no date":      {`{"valid-to":"next summer"}`, "which is no date"},
		"no valid-to":  {`{"valid-to":null}`, "does not say until when"},
		"no installed": {`{"installed":null}`, "with gnmi-server"},
		"another":      {`{"installed":["nvue-rest-api"]}`, "with gnmi-server"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set := &faults.Set{}
			b := newBenchWith(t, func(s *securitytest.Setup) { s.Sim.Faults = set }, gnmi)
			_, err := set.Add(faults.Rule{
				Selector: faults.Request("GET", "/nvue_v1/system/security/certificate/*"), Action: faults.Action{JSONMerge: json.RawMessage(c.merge)},
			})
			require.NoError(t, err)
			e := b.install()
			require.Contains(t, b.failed(e, job.FailurePreconditionFailed), c.says)
			require.Equal(t, job.StageFailed, statusOf(e, "verify_services"))
			r := result(t, e)
			require.Equal(t, []any{gnmi}, r["services"], "what was bound stays told")
			require.NotContains(t, r, "service_verification")
		})
	}
}

func TestHelloFailures(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		services []string
		knobs    nvswitch.Knobs
		stage    string
		code     job.FailureCode
	}{
		"gnmi refuses the call": {[]string{gnmi}, nvswitch.Knobs{GNMIUnavailable: -1}, "test_gnmi_capabilities", job.FailureBMCRefused},
		"gnmi is not there":     {[]string{gnmi}, nvswitch.Knobs{Refuse: []string{"gnmi"}}, "test_gnmi_capabilities", job.FailureHostUnreachable},
		"controller refuses":    {[]string{manager}, nvswitch.Knobs{NMXC: nvswitch.NMXCKnobs{HelloCode: 3}}, "test_nmx_hello", job.FailureBMCRefused},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, c.services...)
			b.cmd.TestHello = true
			b.Sim.SetKnobs(c.knobs)
			e := b.install()
			b.failed(e, c.code)
			require.Equal(t, job.StageFailed, statusOf(e, c.stage))
			require.NotContains(t, result(t, e), "service_verification")
		})
	}
}

// Our own material is replaced between the proof and the binding of NVUE.
func TestOwnMaterialIsReplaced(t *testing.T) {
	t.Parallel()
	b := newBench(t, gnmi, nvueAPI)
	j := b.job()
	j.Events = func(e job.Event) {
		if statusOf(e, "bind_"+gnmi) == job.StageRunning {
			b.WriteClient(b.Material())
		}
	}
	e := b.Run(j)
	require.Contains(t, b.failed(e, job.FailurePreconditionFailed), "replaced while the job ran")
	require.Equal(t, job.StageFailed, statusOf(e, "bind_"+nvueAPI))
	require.Equal(t, "self-signed", b.Sim.Config("/system/api/certificate"))
}

func TestInsecureSwitchUnsets(t *testing.T) {
	t.Parallel()
	for name, insecure := range map[string]bool{"by configuration": true, "by command": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBenchWith(t, func(s *securitytest.Setup) { s.Insecure = insecure }, nvueAPI, gnmi)
			b.cmd.Unset = !insecure
			b.Provision("nvue", "gnmi")
			e := b.install()
			require.Equal(t, job.StateCompleted, e.State, "%+v", e.Failure)
			r := result(t, e)
			require.Equal(t, "insecure-switch", r["mode"])
			require.Len(t, r["commands"], 4)
			require.Empty(t, b.Sim.SavedConfig("/system/api/mtls/ca-certificate"))
		})
	}
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
func TestAgentDiesInEachStage(t *testing.T) {
	t.Parallel()
	services := []string{gnmi, manager, nvueAPI}
	stages := []string{
		"prepare_remote_dir", "sftp_copy_ca_pem", "sftp_copy_client_pem", "sftp_copy_client_key", "import_material",
		"bind_" + gnmi, "bind_" + manager, "bind_" + nvueAPI, "verify_services", "test_nvue_hello", "test_nmx_hello", "test_gnmi_capabilities",
	}
	points := map[string]int{agent.FailAfterDeviceChange: 13, agent.FailAfterDone: 1}
	for _, s := range stages {
		points[security.FailInStage+s] = 1
	}
	for point, hits := range points {
		for n := 1; n <= hits; n++ {
			t.Run(point+"/"+strconv.Itoa(n), func(t *testing.T) {
				t.Parallel()
				b := newBench(t, services...)
				b.cmd.TestHello = true
				left := b.Dies(b.job(), point, n)
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
}

// A process that died with the key on the disk, and a job that then fails.
func TestKeyOfADeadOwnerIsRemoved(t *testing.T) {
	t.Parallel()
	b := newBench(t, gnmi)
	b.Dies(b.job(), security.FailInStage+"import_material", 1)
	require.Equal(t, []string{path.Join(directory, "client.key")}, b.keys())
	mode, err := b.Sim.FileMode(directory + "/client.key")
	require.NoError(t, err)
	require.EqualValues(t, 0o400, mode)
	b.Sim.SetKnobs(nvswitch.Knobs{Actions: []nvswitch.ActionRule{{Resource: "/system/security/**", NoEffect: true,
		Script: []json.RawMessage{json.RawMessage(`{"state":"action_error","issue":["no"]}`)}}}})
	b.failed(b.install(), job.FailureTaskException)
}
