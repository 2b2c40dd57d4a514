// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/proto/rackmanager"
	"github.com/rackbus/rackbus/sim/nvswitch"
)

// indiscreet is a switch that repeats secrets in its errors.
const indiscreet = "switch-0009"

// refuseOnce makes the next action of a kind fail with a text.
func (f *fabric) refuseOnce(t *testing.T, resource, verb, issue string) {
	t.Helper()
	reply, err := json.Marshal(map[string]any{"state": "action_error", "percentage": 0, "issue": []string{issue}})
	require.NoError(t, err)
	f.rack.Switch(indiscreet).UpdateKnobs(func(k *nvswitch.Knobs) {
		k.Actions = []nvswitch.ActionRule{{Resource: resource, Verb: verb, Script: []json.RawMessage{reply}, NoEffect: true, Remaining: 1}}
	})
}

// refused waits for the job of one switch that must fail, and returns what it says.
func (f *fabric) refused(ctx context.Context, t *testing.T, b *rackmanager.NodeBatchResponse) string {
	t.Helper()
	require.Equal(t, success, b.GetStatus(), "%v", b)
	_, err := f.WaitJob(ctx, b.GetJobId())
	require.NoError(t, err)
	out, err := f.GetJobStatus(ctx, &rackmanager.GetJobStatusRequest{JobId: b.GetJobId(), IncludeChildJobStates: true})
	require.NoError(t, err)
	require.Len(t, out.GetJobStates(), 2)
	s := out.GetJobStates()[1]
	require.Equal(t, rackmanager.JobExecutionState_JOB_EXECUTION_STATE_FAILED, s.GetExecutionState(), "%v", s)
	return s.GetErrorMessage()
}

// certificateRefused: a failed run leaves no key on the switch, nor tells it.
func (f *fabric) certificateRefused(t *testing.T) {
	f.refuseOnce(t, "/system/security/certificate/*", "@import", "the key "+f.key+" does not fit")
	ctx := withinRack(t)
	out, err := f.ConfigureSwitchCertificate(ctx, &rackmanager.ConfigureSwitchCertificateRequest{
		Nodes: f.switches(indiscreet), Services: []rackmanager.SwitchService{rackmanager.SwitchService_SWITCH_SERVICE_NVUE_API},
	})
	require.NoError(t, err)
	require.Contains(t, f.refused(ctx, t, out.GetResponse()), "does not fit")
	for _, name := range f.rack.Switch(indiscreet).Files("/") {
		require.NotContains(t, name, "client.key")
	}
}

// passwordRefused: the switch keeps its password, and its reason is told without the one it refused.
func (f *fabric) passwordRefused(t *testing.T) {
	sw := f.rack.Switch(indiscreet)
	sw.UpdateKnobs(func(k *nvswitch.Knobs) {
		k.Revisions = []nvswitch.RevisionRule{{
			Path: "/system/aaa/**", State: "invalid", Remaining: 1,
			Issue: "the password " + f.renewed + " (" + base64.StdEncoding.EncodeToString([]byte(f.renewed)) + ") is too weak",
		}}
	})
	ctx := withinRack(t)
	out, err := f.UpdateSwitchSystemPassword(ctx, &rackmanager.UpdateSwitchSystemPasswordRequest{
		Nodes: f.switches(indiscreet), Username: switchUser, Password: f.renewed,
	})
	require.NoError(t, err)
	require.Contains(t, f.refused(ctx, t, out.GetResponse()), "is too weak")
	require.Equal(t, f.password, sw.UserPassword(switchUser))
}

// evidenceRefused: one component fails, the others are attested all the same.
func (f *fabric) evidenceRefused(t *testing.T) {
	f.refuseOnce(t, "/system/security/spdm/*", "@generate", "the nonce "+hex.EncodeToString(f.nonce)+" was used before")
	out, err := f.BatchCollectSwitchSpdmAttestationEvidence(within(t), &rackmanager.BatchCollectSwitchSpdmAttestationEvidenceRequest{
		Targets: f.switches(indiscreet).GetNodes(), Nonce: f.nonce,
	})
	require.NoError(t, err)
	require.NotEqual(t, success, out.GetStatus())
	components := out.GetResults()[0].GetComponents()
	require.Len(t, components, 2)
	require.Contains(t, components[0].GetErrorMessage(), "was used before")
	require.Equal(t, success, components[1].GetStatus(), "%v", components[1])
}
