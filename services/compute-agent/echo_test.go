// SPDX-License-Identifier: Apache-2.0

package computeagent_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/sim/bmc"
	"github.com/rackbus/rackbus/sim/faults"
)

const sessionToken = "3c9d0f8a77b14f01"

// echo is a message in which a device repeats everything that it must not.
func echo(b *bench) bmc.Message {
	user, password := b.tray.Username(), b.tray.Password()
	basic := base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
	return bmc.Message{
		ID: "Base.1.18.1.InsufficientPrivilege", Severity: "Critical",
		Text:       fmt.Sprintf(`the account %s with %q may not do this; Authorization: Basic %s, X-Auth-Token: %s`, user, password, basic, sessionToken),
		Resolution: fmt.Sprintf("Give %s the privilege ConfigureComponents (password=%s).", user, password),
	}
}

func refusal(t *testing.T, m bmc.Message, method, path string) faults.Rule {
	t.Helper()
	body, err := json.Marshal(map[string]any{"error": map[string]any{
		"code": "Base.1.18.1.GeneralError", "message": "see @Message.ExtendedInfo", "@Message.ExtendedInfo": []bmc.Message{m},
	}})
	require.NoError(t, err)
	return faults.Rule{Selector: faults.Request(method, path), Action: faults.Action{Status: &faults.Status{Code: 400, Body: body}}}
}

// TestEchoedCredentialsAreMasked: what a device says is kept whole, but for the
// credentials that it repeats, wherever it says it.
func TestEchoedCredentialsAreMasked(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		arrange func(*bench)
		status  int32
		code    job.FailureCode
	}{
		"upload refused": {func(b *bench) {
			_, err := b.rack.AddFault(refusal(b.t, echo(b), "POST", "**/update-multipart"))
			require.NoError(b.t, err)
		}, 400, job.FailureBMCRefused},
		"task ends badly": {func(b *bench) {
			b.knobs(func(k *bmc.Knobs) { *k = taskEnd("Exception", "Critical", echo(b)) })
		}, 0, job.FailureTaskException},
		"power refused": {func(b *bench) {
			for _, path := range []string{"**/Actions/ComputerSystem.Reset", auxReset} {
				_, err := b.rack.AddFault(refusal(b.t, echo(b), "POST", path))
				require.NoError(b.t, err)
			}
		}, 400, job.FailureBMCRefused},
	} {
		t.Run(name, func(t *testing.T) {
			b := newTray(t)
			c.arrange(b)
			u := update(b.pldm("nvfw_P4972_9.fwpkg", "99.01", "BMC"))
			u.Activate = true
			j := b.run(u)
			require.Equal(t, job.StateFailed, j.State, j.Description)
			require.Equal(t, c.code, j.Failure.FailureCode, "%+v", j.Failure)
			d := j.Failure.Device
			require.NotNil(t, d, "%+v", j.Failure)
			require.Equal(t, "Base.1.18.1.InsufficientPrivilege", d.MessageID)
			require.Equal(t, "Critical", d.Severity)
			require.Equal(t, c.status, d.HTTPStatus)
			require.Contains(t, d.Message, "may not do this")
			require.Contains(t, d.Resolution, "the privilege ConfigureComponents")

			told, err := json.Marshal(j)
			require.NoError(t, err)
			basic := base64.StdEncoding.EncodeToString([]byte(b.tray.Username() + ":" + b.tray.Password()))
			for what, secret := range map[string]string{"password": b.tray.Password(), "login": basic, "token": sessionToken} {
				require.NotContains(t, string(told), secret, what)
			}
			for _, text := range []string{d.Message, d.Resolution, j.Failure.Message, j.ResultJSON} {
				require.False(t, strings.Contains(text, "account "+b.tray.Username()) || strings.Contains(text, "Give "+b.tray.Username()), text)
			}
		})
	}
}
