// SPDX-License-Identifier: Apache-2.0

package password_test

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/secret"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/services/switch-agent/internal/crashtest"
	"github.com/rackbus/rackbus/services/switch-agent/internal/firstlogin"
	"github.com/rackbus/rackbus/services/switch-agent/internal/runbook"
	"github.com/rackbus/rackbus/services/switch-agent/internal/security/password"
	"github.com/rackbus/rackbus/services/switch-agent/internal/security/securitytest"
	"github.com/rackbus/rackbus/sim/faults"
	"github.com/rackbus/rackbus/sim/nvswitch"
	"github.com/rackbus/rackbus/sim/reqlog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	planted  = "Pl4nted.New"
	userPath = "/nvue_v1/system/aaa/user/*"
	admin    = securitytest.User
)

// bench has a switch with a certificate of the domain.
func bench(t *testing.T, change ...func(*securitytest.Setup)) *securitytest.Bench {
	b := securitytest.New(t, change...)
	b.Provision("nvue")
	return b
}

func update(b *securitytest.Bench, user string) securitytest.Job {
	return securitytest.Job{
		Type: job.TypeSwitchSystemPasswordUpdate,
		Command: &rackbusv1.JobCommand{Operation: &rackbusv1.JobCommand_SwitchPasswordUpdate{
			SwitchPasswordUpdate: &rackbusv1.SwitchPasswordUpdate{Username: user},
		}},
		Handler: password.Update(password.Options{
			Switches: b.Switches, Secrets: securitytest.Holding(&rackbusv1.SwitchPasswordSecrets{Password: planted}),
			Timing: password.Timing{
				First: firstlogin.Timing{Dialog: 10 * time.Second, Login: 5 * time.Second, Pause: securitytest.Tick, Limit: 5 * time.Second},
				Tries: 3, TryPause: securitytest.Tick,
			},
		}),
	}
}

func result(t *testing.T, e job.Event) map[string]any {
	t.Helper()
	var out map[string]any
	require.NoError(t, json.Unmarshal([]byte(e.ResultJSON), &out))
	return out
}

// rotated checks that the new password is in force and saved, and no secret in
// anything that was told.
func rotated(t *testing.T, b *securitytest.Bench, e job.Event, user, phase string) {
	t.Helper()
	require.Equal(t, job.StateCompleted, e.State, "%+v", e.Failure)
	require.Equal(t, planted, b.Sim.UserPassword(user))
	require.Equal(t, base64.StdEncoding.EncodeToString([]byte(planted)), b.Sim.SavedConfig("/system/aaa/user/"+user+"/password"))
	r := result(t, e)
	require.Equal(t, "completed", r["status"])
	require.Equal(t, phase, r["phase"])
	require.Equal(t, user, r["username"])
	require.Equal(t, "rack-1", r["rack_id"])
	require.Equal(t, "switch-1", r["node_id"])
	silent(t, b, e)
}

// silent checks that no password shows anywhere.
func silent(t *testing.T, b *securitytest.Bench, e job.Event) {
	t.Helper()
	told, err := json.Marshal(e)
	require.NoError(t, err)
	texts := map[string]string{"event": string(told), "result": e.ResultJSON, "logs": b.Logs.String()}
	for _, r := range b.Sim.Requests(reqlog.Filter{}) {
		texts["request "+strconv.FormatUint(r.Seq, 10)] = r.Path + "?" + r.Query
	}
	for name, text := range texts {
		for _, plain := range []string{planted, securitytest.Password} {
			require.NotContains(t, text, plain, name)
			require.NotContains(t, text, base64.StdEncoding.EncodeToString([]byte(plain)), name)
		}
	}
}

func patches(b *securitytest.Bench) int {
	return len(b.Sim.Requests(reqlog.Filter{Protocol: reqlog.NVUE, Method: "PATCH", Path: userPath}))
}

func failed(t *testing.T, b *securitytest.Bench, e job.Event, code job.FailureCode) string {
	t.Helper()
	require.Equal(t, job.StateFailed, e.State)
	require.Equal(t, code, e.Failure.FailureCode, e.Failure.Message)
	r := result(t, e)
	require.Equal(t, "failed", r["status"])
	require.NotEmpty(t, r["error_message"])
	require.NotContains(t, r, "phase")
	silent(t, b, e)
	return e.Failure.Message
}

func TestRotate(t *testing.T) {
	t.Parallel()
	for name, knobs := range map[string]nvswitch.Knobs{
		"applied":           {},
		"applied and saved": {RevisionDone: "applied_and_saved"}, // J1
		"slow to show":      {ApplyPolls: 3},
		"flat revisions":    {RevisionForm: nvswitch.RevisionFlat},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bench(t)
			b.Sim.SetKnobs(knobs)
			e := b.Run(update(b, admin))
			rotated(t, b, e, admin, "password_update_persisted")
			require.NotEmpty(t, result(t, e)["revision_id"])
			require.Equal(t, 1, patches(b))
		})
	}
}

func TestRotateOtherUser(t *testing.T) {
	t.Parallel()
	b := bench(t)
	e := b.Run(update(b, "monitor"))
	rotated(t, b, e, "monitor", "password_update_persisted")
	require.Equal(t, securitytest.Password, b.Sim.UserPassword(admin))
	// Once more: the switch sees no difference, and saves all the same.
	e = b.Run(update(b, "monitor"))
	rotated(t, b, e, "monitor", "password_update_persisted")
}

func TestInsecureSwitch(t *testing.T) {
	t.Parallel()
	b := securitytest.New(t, func(s *securitytest.Setup) { s.Insecure = true })
	rotated(t, b, b.Run(update(b, admin)), admin, "password_update_persisted")
}

// The new password is refused until the switch has changed it, and is not tried
// before: switches lock accounts.
func TestNewPasswordIsNotTriedBeforeItIsSet(t *testing.T) {
	t.Parallel()
	b := bench(t, func(s *securitytest.Setup) { s.Sim.Timing.Apply = 300 * time.Millisecond })
	rotated(t, b, b.Run(update(b, admin)), admin, "password_update_persisted")
	refused := 0
	for _, r := range b.Sim.Requests(reqlog.Filter{Protocol: reqlog.NVUE}) {
		if r.Status == 401 {
			refused++
		}
	}
	require.LessOrEqual(t, refused, 1, "at most the former password, once, behind the change")
}

func TestUnchangedIsSaved(t *testing.T) {
	t.Parallel()
	b := bench(t)
	b.Sim.SetUser(admin, planted, false)
	b.Login.Password = secret.New(planted)
	e := b.Run(update(b, admin))
	rotated(t, b, e, admin, "applied_config_persisted")
	require.Zero(t, patches(b))
	require.NotContains(t, result(t, e), "revision_id")
}

func TestRevisionFails(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		user string
		rule nvswitch.RevisionRule
		code job.FailureCode
		says string
	}{
		"own": {admin, nvswitch.RevisionRule{State: "failed", Issue: "password " + planted + " is in the dictionary"}, job.FailureTaskException, "is in the dictionary"},
		// J2: the apply was accepted, and its result is read.
		"J2 invalid": {admin, nvswitch.RevisionRule{State: "invalid", Issue: "no: " + planted}, job.FailureTaskException, "no: XXXX"},
		"other":      {"monitor", nvswitch.RevisionRule{State: "failed", Issue: planted + " is bad"}, job.FailureTaskException, "XXXX is bad"},
		"for ever":   {admin, nvswitch.RevisionRule{State: "apply"}, job.FailureTaskTimeout, "finds out"},
		"no answer":  {admin, nvswitch.RevisionRule{State: "ays_fail"}, job.FailureTaskException, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bench(t, func(s *securitytest.Setup) { s.NVUE.RevisionLimit = 1500 * time.Millisecond })
			c.rule.Path = "/system/aaa/**"
			b.Sim.SetKnobs(nvswitch.Knobs{Revisions: []nvswitch.RevisionRule{c.rule}})
			message := failed(t, b, b.Run(update(b, c.user)), c.code)
			require.Contains(t, message, c.says)
			require.Equal(t, securitytest.Password, b.Sim.UserPassword(admin))
		})
	}
}

// Where the switch does not save what is applied, the revision itself is saved.
func TestSaveFallsBackToTheRevision(t *testing.T) {
	t.Parallel()
	set := &faults.Set{}
	b := bench(t, func(s *securitytest.Setup) { s.Sim.Faults = set })
	_, err := set.Add(faults.Rule{Selector: faults.Request("PATCH", "/nvue_v1/revision/applied"), Action: faults.Action{Status: &faults.Status{Code: 500}}})
	require.NoError(t, err)
	rotated(t, b, b.Run(update(b, admin)), admin, "password_update_persisted")
}

// The save fails; the next job finds the new password in force and saves it.
func TestSaveFailsAndIsResumed(t *testing.T) {
	t.Parallel()
	set := &faults.Set{}
	b := bench(t, func(s *securitytest.Setup) { s.Sim.Faults = set })
	// Behind the apply, so that the fault meets only the save.
	b.Dies(update(b, admin), agent.FailAfterDeviceChange, 3)
	id, err := set.Add(faults.Rule{Selector: faults.Request("PATCH", "/nvue_v1/revision/*"), Action: faults.Action{Status: &faults.Status{Code: 500}}})
	require.NoError(t, err)
	e := b.Run(update(b, admin))
	require.Contains(t, failed(t, b, e, job.FailureBMCRefused), "not saved")
	require.NotEmpty(t, result(t, e)["revision_id"])
	require.Equal(t, job.CodeInternal, e.Failure.Code)
	require.True(t, set.Remove(id))
	rotated(t, b, b.Run(update(b, admin)), admin, "password_update_persisted")
}

func TestNeitherPasswordIsTaken(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ endpoint, user string }{
		"own":                       {"operator", "operator"},
		"another":                   {admin, "monitor"},
		"admin, not of the factory": {admin, admin},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bench(t)
			b.Sim.SetUser(admin, "a third one", false)
			b.Login.User = c.endpoint
			failed(t, b, b.Run(update(b, c.user)), job.FailureHostAuthFailed)
			require.Equal(t, "a third one", b.Sim.UserPassword(admin))
			require.Zero(t, patches(b))
		})
	}
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	b := bench(t)
	b.Login.User = "operator"
	b.Sim.SetKnobs(nvswitch.Knobs{Refuse: []string{"nvue"}})
	e := b.Run(update(b, "operator"))
	failed(t, b, e, job.FailureHostUnreachable)
	require.Equal(t, job.CodeClientError, e.Failure.Code)
}

// A switch with factory settings has neither our password nor our certificate.
func TestFactoryDefaultRecovery(t *testing.T) {
	t.Parallel()
	for _, change := range []nvswitch.PasswordChange{
		nvswitch.PasswordUpdated, nvswitch.PasswordUpdatedAlso, nvswitch.PasswordChanged, nvswitch.PasswordSilent,
	} {
		t.Run(string(change), func(t *testing.T) {
			t.Parallel()
			b := securitytest.New(t)
			b.Sim.SetUser(admin, "admin", true)
			b.Sim.SetKnobs(nvswitch.Knobs{PasswordChange: change})
			rotated(t, b, b.Run(update(b, admin)), admin, "factory_default_admin_password_recovered")
			require.Zero(t, patches(b))
		})
	}
	t.Run("with a certificate", func(t *testing.T) {
		t.Parallel()
		b := bench(t)
		b.Sim.SetUser(admin, "admin", true)
		rotated(t, b, b.Run(update(b, admin)), admin, "factory_default_admin_password_recovered")
	})
}

func TestFactoryDefaultRecoveryFails(t *testing.T) {
	t.Parallel()
	for change, code := range map[nvswitch.PasswordChange]job.FailureCode{
		nvswitch.PasswordBad: job.FailurePreconditionFailed, nvswitch.PasswordTokenError: job.FailurePreconditionFailed,
		nvswitch.PasswordUnchanged: job.FailurePreconditionFailed, nvswitch.PasswordSetting: job.FailurePreconditionFailed,
		nvswitch.PasswordEarlyClose: job.FailurePreconditionFailed, nvswitch.PasswordHang: job.FailureTaskTimeout,
	} {
		t.Run(string(change), func(t *testing.T) {
			t.Parallel()
			b := securitytest.New(t)
			b.Sim.SetUser(admin, "admin", true)
			b.Sim.SetKnobs(nvswitch.Knobs{PasswordChange: change})
			failed(t, b, b.Run(update(b, admin)), code)
			require.Equal(t, "admin", b.Sim.UserPassword(admin))
		})
	}
}

// K7, J4: whichever change the process dies behind, the job that goes on, or the next
// one with the former password, completes the rotation, and the password is staged
// once unless the revision is lost.
func TestK7AgentDiesBehindEachChange(t *testing.T) {
	t.Parallel()
	const changes = 3
	all := slices.Concat(crashtest.InStages(runbook.FailInStage, "initialize", "update_password"), crashtest.Times(agent.FailAfterIntent, 1),
		crashtest.Times(agent.FailAfterDeviceChange, changes), crashtest.Times(agent.FailAfterDone, 1))
	for _, user := range []string{admin, "monitor"} {
		for _, d := range crashtest.Pick(all,
			crashtest.Death{Point: runbook.FailInStage + "update_password", N: 1}, crashtest.Death{Point: agent.FailAfterIntent, N: 1},
			crashtest.Death{Point: agent.FailAfterDeviceChange, N: 2}, crashtest.Death{Point: agent.FailAfterDeviceChange, N: changes},
		) {
			t.Run(user+"/"+d.String(), func(t *testing.T) {
				t.Parallel()
				b := bench(t)
				state := b.Dies(update(b, user), d.Point, d.N)
				require.NotContains(t, string(state), planted)
				require.NotContains(t, string(state), securitytest.Password)
				e := b.Run(update(b, user))
				rotated(t, b, e, user, "password_update_persisted")
				require.LessOrEqual(t, patches(b), 2)
				require.LessOrEqual(t, b.Sim.Revisions(), 2)
			})
		}
	}
}

func TestK7NextJobCompletes(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 4; n++ {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			t.Parallel()
			b := bench(t)
			b.Dies(update(b, admin), agent.FailAfterDeviceChange, n)
			b.Forget()
			rotated(t, b, b.Run(update(b, admin)), admin, "password_update_persisted")
		})
	}
}

// The switch restarts between the change and its saving: the former password is back.
func TestRestartBeforeTheSave(t *testing.T) {
	t.Parallel()
	b := bench(t)
	b.Dies(update(b, admin), agent.FailAfterDeviceChange, 3)
	require.Eventually(t, func() bool { return b.Sim.UserPassword(admin) == planted }, securitytest.Patience, time.Millisecond)
	b.Sim.Reboot()
	require.Eventually(t, b.Sim.Up, securitytest.Patience, time.Millisecond)
	require.Equal(t, securitytest.Password, b.Sim.UserPassword(admin))
	rotated(t, b, b.Run(update(b, admin)), admin, "password_update_persisted")
}

func TestAgentDiesInTheRecovery(t *testing.T) {
	t.Parallel()
	for point, n := range map[string]int{agent.FailAfterIntent: 1, agent.FailAfterDeviceChange: 1, agent.FailAfterDone: 1} {
		for _, provisioned := range []bool{false, true} {
			t.Run(point+"/"+strconv.FormatBool(provisioned), func(t *testing.T) {
				t.Parallel()
				b := securitytest.New(t)
				if provisioned {
					b.Provision("nvue")
				}
				b.Sim.SetUser(admin, "admin", true)
				b.Dies(update(b, admin), point, n)
				rotated(t, b, b.Run(update(b, admin)), admin, "factory_default_admin_password_recovered")
			})
		}
	}
}

// The request to apply never reaches the switch, or its answer never us.
func TestApplyIsCut(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]faults.Cut{"before": {}, "behind": {AfterExecute: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set := &faults.Set{}
			b := bench(t, func(s *securitytest.Setup) { s.Sim.Faults = set })
			_, err := set.Add(faults.Rule{
				Selector: faults.Request("PATCH", "/nvue_v1/revision/*"), Action: faults.Action{Cut: &cut}, Remaining: 1,
			})
			require.NoError(t, err)
			rotated(t, b, b.Run(update(b, admin)), admin, "password_update_persisted")
		})
	}
}

// Once the change has begun, a request to stop comes too late.
func TestCancel(t *testing.T) {
	t.Parallel()
	b := bench(t)
	stop := make(chan struct{})
	close(stop)
	j := update(b, admin)
	j.Cancel = stop
	e := b.Run(j)
	if e.State == job.StateCancelled {
		require.Zero(t, patches(b))
		require.Equal(t, securitytest.Password, b.Sim.UserPassword(admin))
		return
	}
	rotated(t, b, e, admin, "password_update_persisted")
}

func TestNoSecrets(t *testing.T) {
	t.Parallel()
	b := bench(t)
	j := update(b, admin)
	j.Handler = password.Update(password.Options{Switches: b.Switches})
	e := b.Run(j)
	require.Equal(t, job.FailureCredentialsMissing, e.Failure.FailureCode)
	require.NotContains(t, e.Failure.Message, planted)
}
