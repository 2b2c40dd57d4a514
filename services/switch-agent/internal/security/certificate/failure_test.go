// SPDX-License-Identifier: Apache-2.0

package certificate_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/switchtls"
	"github.com/rackbus/rackbus/services/switch-agent/internal/channel"
	"github.com/rackbus/rackbus/services/switch-agent/internal/device"
	"github.com/rackbus/rackbus/services/switch-agent/internal/security/certificate"
	"github.com/rackbus/rackbus/services/switch-agent/internal/security/securitytest"
	"github.com/rackbus/rackbus/sim/faults"
	"github.com/rackbus/rackbus/sim/nvswitch"
)

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
			"prepare_remote_dir", job.FailureTaskException, "read-only"},
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
		"J2 nvue revision": {[]string{nvueAPI}, nvswitch.Knobs{Revisions: []nvswitch.RevisionRule{{Path: "/system/api**", State: "failed", Issue: "the key is too short"}}},
			"bind_" + nvueAPI, job.FailureTaskException, "the key is too short"},
		"never applied": {[]string{nvueAPI}, nvswitch.Knobs{Revisions: []nvswitch.RevisionRule{{Path: "/system/api**", State: "apply"}}},
			"bind_" + nvueAPI, job.FailureCertificateUntrusted, ""},
		"encryption 400": {[]string{manager}, nvswitch.Knobs{Actions: []nvswitch.ActionRule{
			{Resource: "/cluster/apps/nmx-controller/manager/encryption", Script: script("action_error", "unknown mode"), NoEffect: true},
		}}, "bind_" + manager, job.FailureTaskException, "unknown mode"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBenchWith(t, func(s *securitytest.Setup) { s.NVUE.RevisionLimit = 1500 * time.Millisecond }, c.services...)
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

	otherSet := &faults.Set{}
	other := newBenchWith(t, func(s *securitytest.Setup) { s.Sim.Faults = otherSet }, manager)
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

// reluctant is a controller that is not there for a while.
type reluctant struct {
	certificate.Greeter
	refusals int
}

func (r *reluctant) Controller(ctx context.Context, sw *device.Switch, own *switchtls.Material) error {
	if r.refusals--; r.refusals >= 0 {
		return &channel.Error{Address: "192.0.2.1:9370", Kind: channel.ErrUnreachable, Err: errors.New("connection refused")}
	}
	return r.Greeter.Controller(ctx, sw, own)
}

// Connections that do not come up are tried again, for a while.
func TestHelloIsTriedAgain(t *testing.T) {
	t.Parallel()
	for refusals, code := range map[int]job.FailureCode{3: "", 1000: job.FailureHostUnreachable} {
		b := newBench(t, manager)
		b.cmd.TestHello = true
		b.services = &reluctant{refusals: refusals}
		e := b.install()
		if code == "" {
			require.Equal(t, "success", b.completed(e)["hello_test"])
			continue
		}
		b.failed(e, code)
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
