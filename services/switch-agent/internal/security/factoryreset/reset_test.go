// SPDX-License-Identifier: Apache-2.0

package factoryreset_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/secret"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/services/switch-agent/internal/crashtest"
	"github.com/rackbus/rackbus/services/switch-agent/internal/runbook"
	"github.com/rackbus/rackbus/services/switch-agent/internal/security/factoryreset"
	"github.com/rackbus/rackbus/services/switch-agent/internal/security/securitytest"
	"github.com/rackbus/rackbus/sim/faults"
	"github.com/rackbus/rackbus/sim/nvswitch"
	"github.com/rackbus/rackbus/sim/reqlog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	admin = securitytest.User
)

func timing() factoryreset.Timing {
	return factoryreset.Timing{
		Settle: securitytest.Tick, Poll: securitytest.Tick, Login: 5 * time.Second, Down: 2 * time.Second,
		Limit: 20 * time.Second,
	}
}

func reset(b *securitytest.Bench, change ...func(*factoryreset.Timing)) securitytest.Job {
	limits := timing()
	for _, c := range change {
		c(&limits)
	}
	return securitytest.Job{
		Type: job.TypeSwitchFactoryDefaultReset,
		Command: &rackbusv1.JobCommand{Operation: &rackbusv1.JobCommand_SwitchFactoryReset{
			SwitchFactoryReset: &rackbusv1.SwitchFactoryReset{},
		}},
		Handler: factoryreset.Reset(factoryreset.Options{Switches: b.Switches, Timing: limits}),
	}
}

func bench(t *testing.T, change ...func(*securitytest.Setup)) *securitytest.Bench {
	// A switch is away for long enough to be seen away on a busy machine.
	away := func(s *securitytest.Setup) { s.Sim.Timing.Reboot = time.Second }
	b := securitytest.New(t, append([]func(*securitytest.Setup){away}, change...)...)
	b.Provision("nvue")
	return b
}

// isReset checks that the switch was reset once and is back.
func isReset(t *testing.T, b *securitytest.Bench, e job.Event) {
	t.Helper()
	require.Equal(t, job.StateCompleted, e.State, "%+v", e.Failure)
	require.Empty(t, e.ResultJSON)
	require.Contains(t, e.Description, "Factory reset completed")
	require.Equal(t, 1, b.Sim.FactoryResets())
	require.Equal(t, 1, b.Sim.Reboots())
	require.True(t, b.Sim.Up())
	require.Equal(t, "admin", b.Sim.UserPassword(admin))
	require.NotContains(t, b.Logs.String(), securitytest.Password)
}

func TestReset(t *testing.T) {
	t.Parallel()
	for name, knobs := range map[string]nvswitch.Knobs{
		"expired": {}, "new host key": {NewHostKey: true}, "open": {OpenAfterReset: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bench(t)
			b.Sim.SetKnobs(knobs)
			e := b.Run(reset(b))
			isReset(t, b, e)
			require.Equal(t, !knobs.OpenAfterReset, b.Sim.Expired(admin), "the first login is left alone")
		})
	}
}

// I3: the new host key is accepted by the job that has caused it, and known from then on.
func TestI3NewHostKeyIsKnownAfterwards(t *testing.T) {
	t.Parallel()
	b := bench(t)
	b.Sim.SetKnobs(nvswitch.Knobs{NewHostKey: true, OpenAfterReset: true})
	isReset(t, b, b.Run(reset(b)))
	b.Login.Password = secret.New("admin")
	b.Provision("nvue")
	e := b.Run(reset(b))
	require.Equal(t, job.StateCompleted, e.State, "%+v", e.Failure)
	// One that changes without a job is refused.
	b.Provision("nvue")
	require.NoError(t, b.Sim.NewHostKey())
	e = b.Run(reset(b))
	require.Equal(t, job.FailureHostKeyRefused, e.Failure.FailureCode, e.Failure.Message)
	require.Equal(t, 2, b.Sim.FactoryResets())
}

// The switch takes the password of the factory while it has not gone down yet.
func TestASwitchThatHasNotGoneDownIsNotFinished(t *testing.T) {
	t.Parallel()
	b := bench(t, func(s *securitytest.Setup) { s.Sim.Timing.Shutdown = 2 * time.Second })
	j := reset(b, func(l *factoryreset.Timing) { l.Down = securitytest.Patience })
	j.Events = func(e job.Event) {
		if len(e.Stages) == 2 && e.Stages[1].Status == job.StageRunning && b.Sim.Reboots() == 0 {
			b.Sim.SetUser(admin, "admin", true)
		}
	}
	e := b.Run(j)
	isReset(t, b, e)
	require.Contains(t, e.Description, "went down and came back")
	logins := 0
	for _, r := range b.Sim.Requests(reqlog.Filter{Protocol: reqlog.SSH, Method: "LOGIN"}) {
		if r.Path == admin && r.Status == 200 {
			logins++
		}
	}
	require.Greater(t, logins, 3, "it took the password before it went down")
}

// While the switch has its former accounts the factory's password is not tried:
// switches lock accounts.
func TestFactoryPasswordIsNotTriedBeforeTheReset(t *testing.T) {
	t.Parallel()
	b := bench(t, func(s *securitytest.Setup) { s.Sim.Timing.Shutdown = 300 * time.Millisecond })
	isReset(t, b, b.Run(reset(b)))
	refused := 0
	for _, r := range b.Sim.Requests(reqlog.Filter{Protocol: reqlog.SSH, Method: "LOGIN"}) {
		if r.Status != 200 {
			refused++
		}
	}
	require.LessOrEqual(t, refused, 1, "the former password, once, behind the reset")
}

// A switch that takes the reset and does nothing.
func TestNeverGoesDown(t *testing.T) {
	t.Parallel()
	b := bench(t)
	b.Sim.SetKnobs(nvswitch.Knobs{Actions: []nvswitch.ActionRule{{Resource: "/system/factory-default", NoEffect: true}}})
	e := b.Run(reset(b))
	require.Equal(t, job.FailureTaskTimeout, e.Failure.FailureCode)
	require.Contains(t, e.Failure.Message, "neither went down")
	require.Equal(t, securitytest.Password, b.Sim.UserPassword(admin))
}

func TestNeverBack(t *testing.T) {
	t.Parallel()
	b := bench(t)
	b.Sim.SetKnobs(nvswitch.Knobs{NeverBack: true})
	e := b.Run(reset(b, func(l *factoryreset.Timing) { l.Limit = time.Second }))
	require.Equal(t, job.FailureTaskTimeout, e.Failure.FailureCode)
	require.Contains(t, e.Failure.Message, "not back with factory defaults within 1s")
	require.Equal(t, 1, b.Sim.FactoryResets())
}

// 401, then the password of the factory works.
func TestFactoryPasswordWorks(t *testing.T) {
	t.Parallel()
	for name, insecure := range map[string]bool{"verified": false, "insecure": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bench(t, func(s *securitytest.Setup) { s.Insecure = insecure })
			if insecure {
				b.Sim.SetConfig("/system/api/mtls", map[string]any{"ca-certificate": nil})
			}
			b.Sim.SetUser(admin, "admin", false)
			isReset(t, b, b.Run(reset(b)))
		})
	}
}

func TestAlreadyReset(t *testing.T) {
	t.Parallel()
	for name, password := range map[string]string{"configured": securitytest.Password, "factory": "admin"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bench(t)
			b.Sim.SetUser(admin, "admin", true)
			b.Login.Password = secret.New(password)
			e := b.Run(reset(b))
			require.Equal(t, job.StateCompleted, e.State, "%+v", e.Failure)
			require.Contains(t, e.Description, "already")
			require.Zero(t, b.Sim.FactoryResets())
		})
	}
	t.Run("not", func(t *testing.T) {
		t.Parallel()
		b := bench(t)
		b.Sim.SetUser(admin, "a third one", false)
		e := b.Run(reset(b))
		require.Equal(t, job.FailureHostAuthFailed, e.Failure.FailureCode)
		require.Zero(t, b.Sim.FactoryResets())
	})
}

func TestRefusedIsNotRepeated(t *testing.T) {
	t.Parallel()
	set := &faults.Set{}
	b := bench(t, func(s *securitytest.Setup) { s.Sim.Faults = set })
	_, err := set.Add(faults.Rule{Selector: faults.Request("POST", "/nvue_v1/system/factory-default"), Action: faults.Action{Status: &faults.Status{Code: 500}}})
	require.NoError(t, err)
	e := b.Run(reset(b))
	require.Equal(t, job.FailureBMCRefused, e.Failure.FailureCode)
	require.Len(t, b.Sim.Requests(reqlog.Filter{Method: "POST", Path: "/nvue_v1/system/factory-default"}), 1)
}

// J7: a switch without our certificate is refused, not talked to unverified.
func TestJ7UnverifiedSwitch(t *testing.T) {
	t.Parallel()
	b := securitytest.New(t)
	e := b.Run(reset(b))
	require.Equal(t, job.FailurePreconditionFailed, e.Failure.FailureCode)
	require.Zero(t, b.Sim.FactoryResets())
}

// The answer is lost. Whether the switch took the reset is seen from it.
func TestAnswerLost(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]faults.Cut{"before": {}, "behind": {AfterExecute: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set := &faults.Set{}
			b := bench(t, func(s *securitytest.Setup) { s.Sim.Faults = set })
			_, err := set.Add(faults.Rule{
				Selector: faults.Request("POST", "/nvue_v1/system/factory-default"), Action: faults.Action{Cut: &cut}, Remaining: 1,
			})
			require.NoError(t, err)
			isReset(t, b, b.Run(reset(b)))
		})
	}
}

// The process dies at every point; the switch is reset once.
func TestAgentDies(t *testing.T) {
	t.Parallel()
	all := slices.Concat(crashtest.Times(agent.FailAfterIntent, 1), crashtest.Times(agent.FailAfterDeviceChange, 1),
		crashtest.Times(agent.FailAfterDone, 1), crashtest.InStages(runbook.FailInStage, "factory_reset", "await_factory_defaults"))
	for _, d := range crashtest.Pick(all,
		crashtest.Death{Point: agent.FailAfterIntent, N: 1}, crashtest.Death{Point: agent.FailAfterDeviceChange, N: 1},
		crashtest.Death{Point: runbook.FailInStage + "await_factory_defaults", N: 1},
	) {
		t.Run(d.String(), func(t *testing.T) {
			t.Parallel()
			b := bench(t)
			state := b.Dies(reset(b), d.Point, d.N)
			require.NotContains(t, string(state), securitytest.Password)
			isReset(t, b, b.Run(reset(b)))
		})
	}
}

// The process is away for the whole reset. What is left as evidence differs.
func TestAgentMissesTheReset(t *testing.T) {
	t.Parallel()
	back := func(b *securitytest.Bench) {
		require.Eventually(b.T, func() bool { return b.Sim.Reboots() == 1 && b.Sim.Up() }, securitytest.Patience, time.Millisecond)
	}
	t.Run("host key", func(t *testing.T) {
		t.Parallel()
		b := bench(t)
		b.Sim.SetKnobs(nvswitch.Knobs{NewHostKey: true})
		b.Dies(reset(b), agent.FailAfterDeviceChange, 1)
		back(b)
		e := b.Run(reset(b))
		isReset(t, b, e)
		require.Contains(t, e.Description, "new host key")
	})
	t.Run("boot", func(t *testing.T) {
		t.Parallel()
		b := bench(t)
		b.Sim.SetKnobs(nvswitch.Knobs{OpenAfterReset: true})
		b.Dies(reset(b), agent.FailAfterDeviceChange, 1)
		back(b)
		e := b.Run(reset(b))
		isReset(t, b, e)
		require.Contains(t, e.Description, "booted anew")
	})
	t.Run("credentials and time", func(t *testing.T) {
		t.Parallel()
		b := bench(t)
		b.Dies(reset(b), agent.FailAfterDeviceChange, 1)
		back(b)
		e := b.Run(reset(b))
		isReset(t, b, e)
		require.Contains(t, e.Description, "ample time")
	})
	for name, before := range map[string]bool{"none": false, "a boot that cannot be read any more": true} {
		t.Run(name+", and the same login before and after", func(t *testing.T) {
			t.Parallel()
			b := bench(t, func(s *securitytest.Setup) { s.Sim.Knobs.NoBootID = !before })
			b.Sim.SetUser(admin, "admin", false)
			b.Login.Password = secret.New("admin")
			b.Sim.SetKnobs(nvswitch.Knobs{OpenAfterReset: true, NoBootID: true})
			b.Dies(reset(b), agent.FailAfterDeviceChange, 1)
			back(b)
			e := b.Run(reset(b))
			require.Equal(t, job.FailureOutcomeUnknown, e.Failure.FailureCode)
			require.Equal(t, 1, b.Sim.FactoryResets(), "not repeated")
		})
	}
}
