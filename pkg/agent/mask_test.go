// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/secret"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

func TestMasker(t *testing.T) {
	var m masker
	password := secret.New(`pl4nted"1`)
	m.login(node.Credentials{User: "root", Password: password})
	m.login(node.Credentials{User: "root", Password: password})
	m.login(node.Credentials{User: "nobody"})
	m.message(&rackbusv1.DownloadSecrets{AccessToken: "t0ken-of-the-job"})
	m.hide("abc") // too short to be told from other text
	password.Wipe()

	require.Equal(t, "no XXXX, XXXX, XXXX, XXXX and abc", m.text(`no pl4nted"1, pl4nted\"1, cm9vdDpwbDRudGVkIjE=, t0ken-of-the-job and abc`))
	require.Equal(t, "user XXXX below /root2 and root-1, root_x; nobody; x-auth-token: XXXX",
		m.device("user root below /root2 and root-1, root_x; nobody; x-auth-token: 12"))
	require.Equal(t, "by XXXX", m.device("by root"))

	answer := &job.DeviceAnswer{MessageID: "X.1", Message: "root said \"no\"", Severity: "Critical", Resolution: "Ask root.", HTTPStatus: 403}
	f := &FailureError{Failure: job.NewFailure(job.FailureBMCRefused, `set root: root said "no" to pl4nted"1`), Err: errors.New("x")}
	f.Failure.Device = answer
	got := m.verdict(verdict{failure: f.Failure, description: `failed: root said "no"`, result: `{"message":"root said \"no\"","root":"t0ken-of-the-job"}`})
	require.Equal(t, &job.DeviceAnswer{MessageID: "X.1", Message: `XXXX said "no"`, Severity: "Critical", Resolution: "Ask XXXX.", HTTPStatus: 403}, got.failure.Device)
	require.Equal(t, `set root: XXXX said "no" to XXXX`, got.failure.Message, "only the device's words lose the user's name")
	require.Equal(t, `failed: XXXX said "no"`, got.description)
	require.JSONEq(t, `{"message":"XXXX said \"no\"","root":"XXXX"}`, got.result)
	require.Equal(t, `root said "no"`, answer.Message, "others may share the failure")
	require.Equal(t, `set root: XXXX said "no" to XXXX`, m.told(f))
	require.Equal(t, "plain", m.told(errors.New("plain")))

	m.message(&rackbusv1.DownloadSecrets{Locations: map[string]string{"fw.bin": "https://mirror/fw.bin?sig=pl4nted2"}})
	require.Equal(t, "no XXXX", m.text("no https://mirror/fw.bin?sig=pl4nted2"))

	found := &job.Diagnostics{
		FailureSignature: "X", Summary: `says pl4nted"1`, Advice: `not pl4nted"1`,
		Collectors: []job.CollectorOutcome{{Name: "sel", Message: `refused pl4nted"1`}},
	}
	require.Equal(t, &job.Diagnostics{
		FailureSignature: "X", Summary: "says XXXX", Advice: "not XXXX",
		Collectors: []job.CollectorOutcome{{Name: "sel", Message: "refused XXXX"}},
	}, m.findings(found))
	require.Equal(t, `says pl4nted"1`, found.Summary, "others may share the findings")
	require.Nil(t, m.findings(nil))
}
